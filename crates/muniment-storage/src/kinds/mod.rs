//! Index kinds: how an index that is not plain makes its keys, and what predicates mean for them.
//!
//! A plain index (ascending and descending fields) has no kind, and costs nothing more for the
//! mechanism. A kind is one file with its [`KindSpec`] and one line in the sorted registry. It is chosen
//! by a string in the key pattern (`{loc: "2dsphere"}`), or by the field name `$**`, and makes all the
//! keys of a document, including the plain fields of the index.
//!
//! Invariants: the same document always has the same keys (validate and updates compute them anew); the
//! fields of a key are encoded values as in a plain index, so that every reader of index entries can
//! decode them.

mod hashed;
mod literal;
mod plane;
mod sphere;
mod text;
mod wildcard;

pub use wildcard::{Wildcard, is_wildcard};

use crate::catalog::IndexSpec;
use crate::keys::KeyRange;
use muniment_query::filter::Pred;
use muniment_query::geo::NearQuery;
use muniment_query::running::Work;
use muniment_query::text::TextSpec;
use muniment_value::path::Path;
use muniment_value::{Code, Doc, DocBuf, Error, IndexKeys, Put, Result, Value, ValueBuf};
use std::fmt::Debug;
use std::sync::Arc;

/// How one index makes its keys: a kind with the options of that index.
pub trait IndexKind: Debug + Send + Sync {
    /// The name in the key pattern.
    fn name(&self) -> &'static str;

    /// Computes the keys of `doc`, with [`IndexKeys::begin`] first. Replaces what `out` held.
    ///
    /// # Errors
    /// If the kind refuses the document, with MongoDB's codes.
    fn keys(&self, doc: Doc<'_>, out: &mut IndexKeys, work: Work<'_>) -> Result<()>;

    /// True when the keys of field `field` do not hold the values at its path. The planner then asks
    /// [`IndexKind::bounds`] instead of reading predicates itself, and neither sorts by the field nor
    /// returns it from the key.
    fn transforms(&self, field: usize) -> bool;

    /// The bounds of `pred` on the path of field `field`, which is transformed: closed intervals of key
    /// values, ascending and disjoint, outside of which there is no match. `None` when the index cannot
    /// help.
    fn bounds(&self, field: usize, pred: &Pred) -> Option<Vec<(ValueBuf, ValueBuf)>>;

    /// True when its bounds need the geometries of predicates to be covered first
    /// ([`Filter::cover`](muniment_query::Filter::cover)).
    fn needs_cover(&self) -> bool {
        false
    }

    /// True when the index leaves out documents that have none of the transformed fields. It may be used
    /// only if a predicate has bounds on one of these, or such documents would be missed.
    fn leaves_out(&self) -> bool {
        true
    }

    /// The fields of its keys, with true for descending, if they differ from the pattern's.
    fn columns(&self) -> Option<Vec<(Path, bool)>> {
        None
    }

    /// The paths of a wildcard index.
    fn wildcard(&self) -> Option<&Wildcard> {
        None
    }

    /// False when a document keeps its keys as long as `touched` is false for the paths whose values
    /// changed. `fields` are those of the keys.
    fn reads(&self, fields: &[(Path, bool)], touched: &dyn Fn(&str) -> bool) -> bool {
        fields.iter().any(|(p, _)| touched(p.as_str()))
    }

    /// The way to find documents by their distance, if the kind has one.
    fn near(&self) -> Option<&dyn NearIndex> {
        None
    }

    /// The way to find documents by their words, if the kind has one; such an index serves nothing else.
    fn text(&self) -> Option<&dyn TextIndex> {
        None
    }
}

/// An index that finds documents by their words.
pub trait TextIndex {
    /// The fields and the language that it indexes.
    fn spec(&self) -> &Arc<TextSpec>;

    /// The plain fields before the words, with true for descending. A search needs one value for each.
    fn before(&self) -> &[(Path, bool)];

    /// The range of a term's entries, with these values of the plain fields.
    fn postings(&self, before: &[ValueBuf], term: &str) -> KeyRange;

    /// The score in the type bits of an entry.
    fn score(&self, bits: &[u8]) -> f64;

    /// True when the entries of a term are in the order of their records.
    fn by_record(&self) -> bool;
}

/// An index that finds documents by their distance from a point.
pub trait NearIndex {
    /// The name of its stage in `explain`.
    fn stage(&self) -> &'static str;

    /// Whether it can answer this query on field `field`.
    fn serves(&self, field: usize, near: &NearQuery) -> bool;

    /// Whether distances can be measured from the query's point.
    ///
    /// # Errors
    /// The reason why not.
    fn check(&self, near: &NearQuery) -> Result<()> {
        let _ = near;
        Ok(())
    }

    /// The greatest distance that a document in it can have, in the query's unit.
    fn farthest(&self, near: &NearQuery) -> f64;

    /// The keys that documents between two distances can have: closed intervals, ascending.
    ///
    /// # Errors
    /// If the operation is stopped.
    fn ring(
        &self,
        near: &NearQuery,
        inner: f64,
        outer: f64,
        work: Work<'_>,
    ) -> Result<Vec<(ValueBuf, ValueBuf)>>;
}

/// A kind as the registry knows it.
pub struct KindSpec {
    /// The name in the key pattern.
    pub name: &'static str,
    /// One line for the documentation.
    pub doc: &'static str,
    /// The options of `createIndexes` that belong to it.
    pub options: &'static [&'static str],
    /// Checks key, options and flags of a specification, and adds the default options that `listIndexes`
    /// shows.
    prepare: fn(&mut IndexSpec) -> Result<()>,
    /// Makes the kind of an index whose specification was prepared.
    open: fn(&IndexSpec) -> Result<Arc<dyn IndexKind>>,
}

/// All kinds, sorted by name.
pub fn registry() -> &'static [&'static KindSpec] {
    REGISTRY
}

#[rustfmt::skip]
const REGISTRY: &[&KindSpec] = &[
    &plane::SPEC,
    &sphere::SPEC,
    &hashed::SPEC,
    &text::SPEC,
    &wildcard::SPEC,
];

/// True for an option that belongs to some kind.
pub(crate) fn is_option(name: &str) -> bool {
    REGISTRY.iter().any(|k| k.options.contains(&name))
}

/// The kind that a key pattern names; `None` for a plain one.
///
/// # Errors
/// 67 CannotCreateIndex: no such kind, or several in one pattern.
pub(crate) fn of_key(key: Doc<'_>) -> Result<Option<&'static KindSpec>> {
    let mut found: Option<&'static KindSpec> = None;
    for e in key {
        let name = match e.value() {
            Value::String(name) => name,
            _ if is_wildcard(e.name()) => wildcard::SPEC.name,
            _ => continue,
        };
        if name == "geoHaystack" {
            return Err(Error::new(
                Code::CannotCreateIndex,
                "GeoHaystack indexes cannot be created in version 5.0 and above",
            ));
        }
        let known = REGISTRY.iter().find(|k| k.name == name);
        let spec = known.ok_or_else(|| {
            let index = Value::Document(key).to_display();
            Error::new(
                Code::CannotCreateIndex,
                format!("Unknown index plugin '{name}'. Invalid index specification {index}"),
            )
        })?;
        if let Value::String(_) = e.value() {
            wildcard::check_plugin(e.name(), spec.name)?;
        }
        match found {
            Some(other) if other.name != spec.name => {
                return Err(Error::new(
                    Code::CannotCreateIndex,
                    format!(
                        "Can't use more than one index plugin for a single index: {}",
                        Value::Document(key).to_display()
                    ),
                ));
            }
            _ => found = Some(spec),
        }
    }
    Ok(found)
}

/// Checks a specification against its kind and completes its options.
///
/// # Errors
/// If the kind refuses it.
pub(crate) fn prepare(spec: &mut IndexSpec) -> Result<()> {
    let kind = of_key(spec.key.as_doc())?;
    let is = |k: &KindSpec| kind.is_some_and(|kind| kind.name == k.name);
    if !is(&wildcard::SPEC) {
        wildcard::refuse_projection(spec)?;
    }
    if !is(&text::SPEC) {
        text::refuse_weights(spec)?;
    }
    match kind {
        Some(kind) => (kind.prepare)(spec),
        None => Ok(()),
    }
}

/// Checks limits for new indexes, which an index in an old catalog may break: the types of options that
/// belong to another kind, and `prepareUnique` for a kind that has no unique indexes.
///
/// # Errors
/// 14 TypeMismatch; 16764.
pub(crate) fn check_new(spec: &IndexSpec) -> Result<()> {
    for e in spec.options.as_doc() {
        match e.name() {
            text::WEIGHTS | wildcard::PROJECTION => {}
            text::LANGUAGE | text::OVERRIDE => drop(text::string_option(spec, e.name(), "")?),
            name => drop(number_option(spec, name)?),
        }
    }
    let kind = of_key(spec.key.as_doc())?;
    match spec.prepare_unique && kind.is_some_and(|k| k.name == hashed::SPEC.name) {
        true => Err(hashed::not_unique()),
        false => Ok(()),
    }
}

/// The kind of an index; `None` for a plain one.
///
/// # Errors
/// If the kind refuses the specification.
pub(crate) fn open(spec: &IndexSpec) -> Result<Option<Arc<dyn IndexKind>>> {
    of_key(spec.key.as_doc())?
        .map(|kind| (kind.open)(spec))
        .transpose()
}

/// Refuses a collation, for a kind whose keys do not depend on one.
///
/// # Errors
/// 67 CannotCreateIndex for any but the simple one.
fn refuse_collation(spec: &IndexSpec, kind: &str) -> Result<()> {
    if spec.collation.is_simple() {
        return Ok(());
    }
    Err(Error::new(
        Code::CannotCreateIndex,
        format!(
            "Index type '{kind}' does not support collation: {}. An index on a collection with a \
             collation needs {{collation: {{locale: \"simple\"}}}}",
            spec.collation.to_doc().as_doc().to_display()
        ),
    ))
}

/// The value of an option that must be a number.
///
/// # Errors
/// 14 TypeMismatch.
fn number_option<'s>(spec: &'s IndexSpec, name: &str) -> Result<Option<Value<'s>>> {
    match spec.options.as_doc().get(name) {
        Some(v) if !v.is_number() => Err(Error::type_mismatch(format!(
            "The field '{name}' must be a number, but got {}",
            v.type_name()
        ))),
        other => Ok(other),
    }
}

/// Sets an option to the form in which `listIndexes` shows it.
fn set_option(spec: &mut IndexSpec, name: &str, value: impl Put) {
    let mut options = DocBuf::new();
    for e in spec.options.as_doc().iter().filter(|e| e.name() != name) {
        options.append_elem(e);
    }
    options.append(name, value);
    spec.options = options;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::doc;

    #[test]
    fn the_registry_is_sorted() {
        assert!(registry().is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn a_pattern_names_its_kind() {
        assert!(of_key(doc! { "a": 1, "b": -1 }.as_doc()).unwrap().is_none());
        let e = of_key(doc! { "a": "nosuch" }.as_doc()).err().unwrap();
        assert_eq!(e.code(), Code::CannotCreateIndex);
    }
}
