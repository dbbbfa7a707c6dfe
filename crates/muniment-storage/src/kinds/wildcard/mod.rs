//! wildcard: every path of a document, or of a part of it, in one index (`{"$**": 1}`).
//!
//! A key is the path, then the value: `{$_path: "a.b", a.b: 5}`. Positions in arrays are no part of a
//! path. Leaves are indexed: values that are no documents, empty documents, the elements of arrays,
//! arrays directly within arrays as a whole, and undefined for an empty array. A document without any
//! indexed field (its fields are excluded, or have dots in their names) counts as empty, so that it has
//! a key all the same.
//!
//! In a compound index the other fields stand before and after; they may not have arrays. There a
//! document without any leaf has one key with MinKey for path and value, so that the fields before find
//! every document.
//!
//! Source of the rules: the manual's "Wildcard Indexes" and "Wildcard Index Restrictions".

mod scope;
#[cfg(test)]
mod tests;
mod walk;

pub(super) use self::scope::PROJECTION;
use self::scope::{Scope, check_projection};
use self::walk::Walk;
use super::{IndexKind, KindSpec};
use crate::catalog::IndexSpec;
use muniment_query::filter::Pred;
use muniment_query::running::Work;
use muniment_value::path::Path;
use muniment_value::{Code, Doc, Error, IndexKeys, Result, Value, ValueBuf};
use std::sync::Arc;

/// The name under which a key's path is shown.
const PATH: &str = "$_path";

/// The specification.
pub(super) const SPEC: KindSpec = KindSpec {
    name: "wildcard",
    doc: "Every path of a document.",
    options: &[PROJECTION],
    prepare,
    open,
};

/// True for the field of a key pattern that stands for all paths, or all below one.
pub fn is_wildcard(field: &str) -> bool {
    field == "$**" || field.ends_with(".$**")
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(Code::CannotCreateIndex, message)
}

/// Refuses the name of a kind where it cannot stand: a wildcard field can have none but `text`, and
/// this kind is not asked for by its name.
///
/// # Errors
/// 67 CannotCreateIndex, 7246202.
pub(super) fn check_plugin(field: &str, plugin: &str) -> Result<()> {
    match (is_wildcard(field), plugin == SPEC.name) {
        (true, _) if plugin != "text" => Err(refused(format!(
            "A wildcard index cannot have the type '{plugin}': {field}"
        ))),
        (false, true) => Err(Error::location(
            7_246_202,
            format!("The index type 'wildcard' is not one to ask for by name: {field}"),
        )),
        _ => Ok(()),
    }
}

/// Refuses `wildcardProjection` on an index that is not a wildcard index.
///
/// # Errors
/// 2 BadValue.
pub(super) fn refuse_projection(spec: &IndexSpec) -> Result<()> {
    match spec.options.as_doc().get(PROJECTION) {
        Some(_) => Err(Error::bad_value(format!(
            "The field '{PROJECTION}' is only allowed in an 'wildcard' index"
        ))),
        None => Ok(()),
    }
}

fn prepare(spec: &mut IndexSpec) -> Result<()> {
    for (given, option) in [
        (spec.unique, "unique"),
        (spec.prepare_unique, "prepareUnique"),
        (spec.sparse, "sparse"),
        (spec.expire_after_seconds.is_some(), "expireAfterSeconds"),
    ] {
        if given {
            return Err(refused(format!(
                "Index type 'wildcard' does not support the {option} option"
            )));
        }
    }
    let key = spec.key.as_doc();
    if key.iter().filter(|e| is_wildcard(e.name())).count() > 1 {
        return Err(Error::location(
            7_246_201,
            "A compound wildcard index can only have one wildcard field",
        ));
    }
    let whole = key.get("$**").is_some();
    let projection = match spec.options.as_doc().get(PROJECTION) {
        None => None,
        Some(Value::Document(d)) => Some(d),
        Some(v) => {
            return Err(Error::type_mismatch(format!(
                "The field '{PROJECTION}' must be a non-empty object, but got {}",
                v.type_name()
            )));
        }
    };
    if let Some(p) = projection {
        check_projection(p, whole)?;
    } else if whole && key.count() > 1 {
        return Err(refused(
            "A compound wildcard index on all fields needs a 'wildcardProjection' that leaves \
             its other fields out",
        ));
    }
    let paths = Wildcard::of(spec)?;
    for (path, _) in &paths.others {
        if paths.scope.overlaps(path) {
            let code = match projection {
                None => 7_246_204,
                Some(_) if paths.scope.includes => 7_246_208,
                Some(_) => 7_246_209,
            };
            return Err(Error::location(
                code,
                format!(
                    "The wildcard field of a compound index must leave its other fields out, but \
                     has '{}'",
                    path.as_str()
                ),
            ));
        }
    }
    Ok(())
}

fn open(spec: &IndexSpec) -> Result<Arc<dyn IndexKind>> {
    Ok(Arc::new(Wildcard::of(spec)?))
}

/// One wildcard index.
#[derive(Debug)]
pub struct Wildcard {
    descending: bool,
    scope: Scope,
    /// The other fields of a compound index, with true for descending.
    others: Vec<(Path, bool)>,
    /// How many of them stand before the path.
    position: usize,
}

impl Wildcard {
    fn of(spec: &IndexSpec) -> Result<Wildcard> {
        let (mut descends, mut position, mut below) = (false, 0, None);
        let mut others = Vec::new();
        for e in spec.key.as_doc() {
            let descending = crate::index::descending(e.value());
            if is_wildcard(e.name()) {
                (descends, position) = (descending, others.len());
                below = e.name().strip_suffix(".$**");
            } else {
                others.push((Path::new(e.name()), descending));
            }
        }
        Ok(Wildcard {
            descending: descends,
            scope: Scope::of(below, spec.options.as_doc().get_doc(PROJECTION))?,
            others,
            position,
        })
    }

    /// True if values at `path` are in the index, as far as they have keys.
    pub fn covers(&self, path: &Path) -> bool {
        self.scope.covers(path)
    }

    /// The place of the wildcard field in the pattern.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The fields of the keys as the planner reads them for one path: the others, the key's path
    /// and the value.
    pub fn fields(&self, path: &Path) -> Vec<(Path, bool)> {
        let mut fields = self.others.clone();
        let own = [(Path::new(PATH), false), (path.clone(), self.descending)];
        fields.splice(self.position..self.position, own);
        fields
    }

    /// The value of another field.
    ///
    /// # Errors
    /// 7246301 for an array.
    fn other<'a>(doc: Doc<'a>, path: &Path) -> Result<Value<'a>> {
        let mut at = Value::Document(doc);
        for part in path.parts() {
            let below = at.as_doc().and_then(|d| d.get(part));
            match below {
                Some(Value::Array(_)) => {
                    return Err(Error::location(
                        7_246_301,
                        format!(
                            "The other fields of a compound wildcard index cannot be arrays, but \
                             '{}' has one",
                            path.as_str()
                        ),
                    ));
                }
                Some(v) => at = v,
                None => return Ok(Value::Null),
            }
        }
        Ok(at)
    }
}

impl IndexKind for Wildcard {
    fn name(&self) -> &'static str {
        SPEC.name
    }

    fn keys(&self, doc: Doc<'_>, out: &mut IndexKeys, _: Work<'_>) -> Result<()> {
        out.begin(self.others.len() + 2);
        let mut others = Vec::with_capacity(self.others.len());
        for (path, _) in &self.others {
            others.push(Wildcard::other(doc, path)?);
        }
        Walk::new(self, &others, out).run(doc)?;
        out.finish();
        Ok(())
    }

    fn transforms(&self, _: usize) -> bool {
        false
    }

    fn bounds(&self, _: usize, _: &Pred) -> Option<Vec<(ValueBuf, ValueBuf)>> {
        None
    }

    fn columns(&self) -> Option<Vec<(Path, bool)>> {
        Some(self.fields(&Path::new("$**")))
    }

    fn wildcard(&self) -> Option<&Wildcard> {
        Some(self)
    }

    fn reads(&self, _: &[(Path, bool)], touched: &dyn Fn(&str) -> bool) -> bool {
        self.others.iter().any(|(p, _)| touched(p.as_str())) || self.scope.reads(touched)
    }
}
