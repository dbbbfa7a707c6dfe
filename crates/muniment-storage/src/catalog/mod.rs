//! What the catalog keeps of a collection and of an index.
//!
//! [`Entry`] says how both are stored, and what becomes of an entry that is damaged.

pub(crate) mod accounts;
pub(crate) mod ddl;
mod entry;
mod map;
pub(crate) mod names;
mod new_index;
pub(crate) mod notes;
mod state;

use crate::index::is_id_pattern;
use crate::kinds::is_wildcard;
use muniment_value::{
    Code, Collation, Doc, DocBuf, Error, MAX_DEPTH, Result, Value, ValueBuf, doc, nests_deeper,
    number,
};

pub(crate) use entry::{Entry, IndexEntry};
pub use map::Kinds;
pub(crate) use state::Catalog;

/// Most indexes a collection may have, `_id_` with them: MongoDB's limit.
pub const MAX_INDEXES: usize = 64;

/// A collection's options as `create` gave them and `listCollections` returns them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectionOptions {
    /// Capped: the size limit in bytes.
    pub capped_size: Option<u64>,
    /// Capped: the limit on documents.
    pub capped_max: Option<u64>,
    /// A time-series collection: the field whose date begins a measurement's record key.
    pub time_field: Option<String>,
    /// The collection is made without an `_id_` index, so its documents need no `_id`. Only a
    /// capped collection can be; later it is recognized by having no such index.
    pub without_ids: bool,
    /// This shard has a part of a collection whose database is on another shard. That one's change
    /// streams tell of changes of the catalog, so this one's do not.
    pub guest: bool,
    /// The time of the newest generation that has ended here while the collection stayed: what a router says of that one
    /// comes late.
    pub ended: muniment_shard::Timestamp,
    /// The options document as `listCollections` shows it (with `capped`, `size`, `max`,
    /// `validator`, …).
    pub document: DocBuf,
}

impl CollectionOptions {
    /// True if the key of a document's record is its `_id`.
    pub(crate) fn is_clustered(&self) -> bool {
        self.document.as_doc().get("clusteredIndex").is_some()
            && self.capped_size.is_none()
            && self.time_field.is_none()
    }

    /// True if the key of a document's record is a number, in the order of the inserts.
    pub(crate) fn numbers_records(&self) -> bool {
        !self.is_clustered() && self.time_field.is_none()
    }

    /// The collation that applies where a command names none.
    ///
    /// # Errors
    /// As [`Collation::parse`].
    pub fn collation(&self) -> Result<Collation> {
        Collation::parse_some(self.document.as_doc().get_doc("collation"))
    }
}

/// An index as `createIndexes` describes it, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// The name, unique within the collection.
    pub name: String,
    /// The key pattern, e.g. `{a: 1, "b.c": -1}`.
    pub key: DocBuf,
    /// No two documents may have the same key.
    pub unique: bool,
    /// Documents without any of the fields are left out.
    pub sparse: bool,
    /// Hidden from the planner.
    pub hidden: bool,
    /// The first step of making an index unique: it may hold duplicates, but no write may add
    /// another.
    pub prepare_unique: bool,
    /// Only documents that match are indexed.
    pub partial_filter: Option<DocBuf>,
    /// TTL: a document expires this many seconds after the indexed date.
    pub expire_after_seconds: Option<i64>,
    /// `background` as it was given. It has no effect, but is shown.
    pub background: Option<ValueBuf>,
    /// Fields that are kept and shown as they were given, but have no effect here: settings of
    /// MongoDB's engine, and what indexes of old servers have ([`KEPT`]).
    pub kept: DocBuf,
    /// How texts are ordered and which are equal.
    pub collation: Collation,
    /// The options of an index kind (`2dsphereIndexVersion`, `bits`, …), with its defaults.
    pub options: DocBuf,
    /// The whole specification as `listIndexes` returns it: `{v: 2, key, name, …}`.
    pub document: DocBuf,
}

/// Fields of a specification that are kept and shown, but have no effect: settings of another
/// engine, the index on measurements that an index on buckets was made from, the options of
/// geoHaystack indexes, and the `_id` of specifications that were once documents of
/// `system.indexes`.
pub const KEPT: [&str; 4] = ["storageEngine", "originalSpec", "bucketSize", "_id"];

fn too_deep(what: &str) -> Error {
    Error::new(
        Code::Overflow,
        format!("{what} exceeds the maximum nesting depth of {MAX_DEPTH}"),
    )
}

fn cannot_create(message: impl Into<String>) -> Error {
    Error::new(Code::CannotCreateIndex, message)
}

fn boolean(v: Value<'_>, name: &str) -> Result<bool> {
    match v {
        Value::Bool(b) => Ok(b),
        v if v.is_number() => Ok(v.truthy()),
        _ => Err(Error::type_mismatch(format!(
            "The field '{name}' has value {name}: {}, which is not convertible to bool",
            v.to_display()
        ))),
    }
}

impl IndexSpec {
    /// Parses and checks one element of `createIndexes.indexes`, for a collection without a
    /// collation.
    ///
    /// # Errors
    /// 67 CannotCreateIndex, 197 InvalidIndexSpecificationOption, 9 FailedToParse, 15 Overflow,
    /// 14 TypeMismatch with MongoDB's messages; an option that is not supported is named.
    pub fn parse(spec: Doc<'_>) -> Result<IndexSpec> {
        IndexSpec::parse_for(spec, &Collation::SIMPLE)
    }

    /// As [`IndexSpec::parse`], for a collection with this collation: an index that names none has
    /// the collection's.
    ///
    /// # Errors
    /// As [`IndexSpec::parse`].
    pub fn parse_for(spec: Doc<'_>, default: &Collation) -> Result<IndexSpec> {
        if nests_deeper(spec, MAX_DEPTH) {
            return Err(too_deep("An index specification"));
        }
        let mut name = None;
        let mut key = None;
        let (mut unique, mut sparse, mut hidden) = (false, false, false);
        let mut prepare_unique = false;
        let mut partial_filter = None;
        let mut expire_after_seconds = None;
        let mut version = 2;
        let mut options = DocBuf::new();
        let mut collation = None;
        let mut background = None;
        let mut kept = DocBuf::new();
        for e in spec {
            let v = e.value();
            match e.name() {
                "name" => match v.as_str() {
                    Some("") => return Err(cannot_create("index name cannot be empty")),
                    Some("*") => {
                        return Err(Error::bad_value("The index name '*' is not valid."));
                    }
                    Some(s) if s.contains('\0') => {
                        return Err(cannot_create(
                            "index name cannot contain an embedded null byte",
                        ));
                    }
                    Some(s) => name = Some(s.to_string()),
                    None => {
                        return Err(Error::type_mismatch(format!(
                            "The field 'name' must be a string, but got {}",
                            v.type_name()
                        )));
                    }
                },
                "key" => match v {
                    Value::Document(d) => key = Some(check_key(d)?),
                    _ => {
                        return Err(Error::type_mismatch(format!(
                            "The field 'key' must be an object, but got {}",
                            v.type_name()
                        )));
                    }
                },
                "unique" => unique = boolean(v, "unique")?,
                "sparse" => sparse = boolean(v, "sparse")?,
                "hidden" => match v {
                    Value::Bool(b) => hidden = b,
                    _ => {
                        return Err(Error::type_mismatch(format!(
                            "The field 'hidden' must be a bool, but got {}",
                            v.type_name()
                        )));
                    }
                },
                "prepareUnique" => prepare_unique = boolean(v, "prepareUnique")?,
                "partialFilterExpression" => match v {
                    Value::Document(d) => partial_filter = Some(d.to_buf()),
                    _ => {
                        return Err(Error::type_mismatch(format!(
                            "The field 'partialFilterExpression' must be an object, but got {}",
                            v.type_name()
                        )));
                    }
                },
                "expireAfterSeconds" => expire_after_seconds = Some(expire_seconds(v)?),
                "v" => version = check_version(v)?,
                // Has no effect since MongoDB 4.2, nor here, but is shown.
                "background" => background = Some(ValueBuf::new(v)),
                // These have no effect; dumps of old servers have them.
                "dropDups" | "ns" => {}
                "collation" => match v {
                    Value::Document(d) if d.is_empty() => {
                        return Err(Error::bad_value(
                            "The field 'collation' cannot be an empty object.",
                        ));
                    }
                    Value::Document(d) => collation = Some(Collation::parse(d)?),
                    _ => {
                        return Err(Error::type_mismatch(format!(
                            "The field 'collation' must be an object, but got {}",
                            v.type_name()
                        )));
                    }
                },
                name if KEPT.contains(&name) => {
                    check_kept(name, v, default)?;
                    kept.append_elem(e);
                }
                option if crate::kinds::is_option(option) => {
                    options.append_elem(e);
                }
                other => {
                    return Err(Error::new(
                        Code::InvalidIndexSpecificationOption,
                        format!(
                            "The field '{other}' is not valid for an index specification. \
                             Specification: {spec:?}"
                        ),
                    ));
                }
            }
        }
        let Some(key) = key else {
            return Err(Error::failed_to_parse(
                "The 'key' field is a required property of an index specification",
            ));
        };
        let Some(name) = name else {
            return Err(Error::failed_to_parse(
                "The 'name' field is a required property of an index specification",
            ));
        };
        if is_id_pattern(&key) {
            for e in spec {
                if !matches!(e.name(), "key" | "name" | "v" | "ns" | "collation" | "_id") {
                    return Err(Error::new(
                        Code::InvalidIndexSpecificationOption,
                        format!(
                            "The field '{}' is not valid for an _id index specification. \
                             Specification: {spec:?}",
                            e.name()
                        ),
                    ));
                }
            }
            return Ok(IndexSpec::id_index(&collation.unwrap_or(default.clone())));
        }
        if version < 2 && key.as_doc().iter().any(|e| is_wildcard(e.name())) {
            return Err(cannot_create(
                "Invalid index specification: wildcard indexes need v: 2",
            ));
        }
        if sparse && partial_filter.is_some() {
            return Err(cannot_create(
                "cannot mix \"partialFilterExpression\" and \"sparse\" options",
            ));
        }
        if version < 2 && collation.is_some() {
            return Err(cannot_create(
                "Index version 1 does not support the 'collation' option",
            ));
        }
        let mut parsed = IndexSpec {
            name,
            key,
            unique,
            sparse,
            hidden,
            prepare_unique,
            partial_filter,
            expire_after_seconds,
            background,
            kept,
            collation: collation.unwrap_or(default.clone()),
            options,
            document: DocBuf::new(),
        };
        // Counted before `prepare`, which gives a text index a second field that does not count.
        let key = parsed.key.as_doc();
        let fields = key.iter().filter(|e| e.name() != "_ftsx").count();
        crate::kinds::prepare(&mut parsed)?;
        if parsed.expire_after_seconds.is_some() && fields != 1 {
            return Err(cannot_create(format!(
                "TTL indexes are single-field indexes, compound indexes do not support TTL. \
                 Index spec: {spec:?}"
            )));
        }
        Ok(parsed.with_document())
    }

    /// The specification after a change. It is checked by the rules for a new one, since the
    /// catalog could not read a specification again that breaks them.
    ///
    /// # Errors
    /// As [`IndexSpec::parse`]; 16764.
    pub fn changed(&self, change: impl FnOnce(&mut IndexSpec)) -> Result<IndexSpec> {
        let mut new = self.clone();
        change(&mut new);
        let new = IndexSpec::parse(new.with_document().document.as_doc())?;
        crate::kinds::check_new(&new)?;
        Ok(new)
    }

    /// The `_id_` index of a collection with this collation.
    pub fn id_index(collation: &Collation) -> IndexSpec {
        IndexSpec {
            name: "_id_".to_string(),
            key: doc! { "_id": 1 },
            unique: false,
            sparse: false,
            hidden: false,
            prepare_unique: false,
            partial_filter: None,
            expire_after_seconds: None,
            background: None,
            kept: DocBuf::new(),
            collation: collation.clone(),
            options: DocBuf::new(),
            document: DocBuf::new(),
        }
        .with_document()
    }

    /// Makes `document` anew from the other fields: needed after a change of one of them.
    #[must_use]
    pub fn with_document(mut self) -> IndexSpec {
        let mut d = doc! { "v": 2, "key": &self.key, "name": self.name.as_str() };
        d.append_some("background", self.background.as_ref());
        if self.unique {
            d.append("unique", true);
        }
        if self.sparse {
            d.append("sparse", true);
        }
        if self.hidden {
            d.append("hidden", true);
        }
        if self.prepare_unique {
            d.append("prepareUnique", true);
        }
        d.append_some("partialFilterExpression", self.partial_filter.as_ref());
        if let Some(s) = self.expire_after_seconds {
            match i32::try_from(s) {
                Ok(s) => d.append("expireAfterSeconds", s),
                Err(_) => d.append("expireAfterSeconds", s),
            };
        }
        d.append_all(self.options.as_doc());
        d.append_all(self.kept.as_doc());
        d.append_some("collation", self.collation.spec());
        self.document = d;
        self
    }
}

/// Checks the value of one of the fields of [`KEPT`].
///
/// # Errors
/// 14 TypeMismatch, 2 BadValue, 67 CannotCreateIndex; those of parsing an `originalSpec`.
fn check_kept(name: &str, v: Value<'_>, default: &Collation) -> Result<()> {
    match (name, v) {
        ("storageEngine", Value::Document(d)) if d.is_empty() => Err(cannot_create(
            "Empty \"storageEngine\" options are invalid. Please remove the field or include valid \
             options.",
        )),
        ("storageEngine", Value::Document(_)) => Ok(()),
        ("storageEngine", _) => Err(cannot_create(
            "\"storageEngine\" options must be a document if present",
        )),
        ("originalSpec", Value::Document(d)) if d.is_empty() => Err(Error::bad_value(
            "The field 'originalSpec' cannot be an empty object.",
        )),
        ("originalSpec", Value::Document(d)) => IndexSpec::parse_for(d, default).map(drop),
        ("originalSpec", v) => Err(Error::type_mismatch(format!(
            "The field 'originalSpec' must be an object, but got {}",
            v.type_name()
        ))),
        ("bucketSize", v) if !v.is_number() => Err(Error::type_mismatch(format!(
            "The field 'bucketSize' must be a number, but got {}",
            v.type_name()
        ))),
        _ => Ok(()),
    }
}

fn check_key(key: Doc<'_>) -> Result<DocBuf> {
    if key.is_empty() {
        return Err(cannot_create("Index keys cannot be an empty object."));
    }
    if key.count() > 32 {
        return Err(Error::location(
            13103,
            format!("too many compound keys: {}, at most 32", key.count()),
        ));
    }
    let mut seen = std::collections::HashSet::new();
    for e in key {
        let path = e.name();
        if !seen.insert(path) {
            return Err(cannot_create(format!(
                "Index key pattern names the field '{path}' twice: {}",
                key.to_display()
            )));
        }
        if path.is_empty() {
            return Err(cannot_create("Index keys cannot be an empty field."));
        }
        if path.split('.').any(str::is_empty) {
            return Err(cannot_create("Index keys cannot contain an empty field."));
        }
        // The stored key of a text index has this field, so no other index may.
        if path == "_fts" && e.value().as_str().is_none() {
            return Err(cannot_create(
                "Index key contains an illegal field name: '_fts'",
            ));
        }
        // `$**` may end a path, and the parts of a reference may stand below a field.
        let named = path.strip_suffix("$**").unwrap_or(path);
        let of_reference = |i, p| i > 0 && matches!(p, "$ref" | "$id" | "$db");
        let mut parts = named.split('.').enumerate();
        if parts.any(|(i, p)| p.starts_with('$') && !of_reference(i, p)) {
            return Err(cannot_create(format!(
                "Index key contains an illegal field name: field name starts with '$': {path}"
            )));
        }
        match e.value() {
            v if v.is_number() => {
                let zero = match v {
                    Value::Double(d) => d == 0.0 || d.is_nan(),
                    other => !other.truthy(),
                };
                if zero {
                    return Err(cannot_create(
                        "Values in the index key pattern cannot be 0.",
                    ));
                }
            }
            // The name of an index kind is checked later, together with its options.
            Value::String(_) => {}
            v => {
                return Err(cannot_create(format!(
                    "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, \
                     numbers < 0, and strings are allowed.",
                    v.type_name()
                )));
            }
        }
    }
    Ok(key.to_buf())
}

fn check_version(v: Value<'_>) -> Result<i64> {
    match v.as_i64_exact() {
        Some(n @ (1 | 2)) => Ok(n),
        _ if v.is_number() => Err(cannot_create(format!(
            "Invalid index specification: v: {}; only versions 1 and 2 are supported",
            v.to_display()
        ))),
        _ => Err(Error::type_mismatch(format!(
            "The field 'v' must be a number, but got {}",
            v.type_name()
        ))),
    }
}

fn expire_seconds(v: Value<'_>) -> Result<i64> {
    if !v.is_number() {
        return Err(cannot_create(format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'.",
            v.type_name()
        )));
    }
    if number::is_nan(v) {
        return Err(cannot_create(
            "TTL index 'expireAfterSeconds' option cannot be NaN.",
        ));
    }
    let seconds = number::to_i64_clamped(v).unwrap_or(-1);
    if seconds < 0 {
        return Err(cannot_create(
            "TTL index 'expireAfterSeconds' option cannot be less than 0.",
        ));
    }
    if seconds > i64::from(i32::MAX) {
        return Err(cannot_create(format!(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a \
             lower number; got {seconds}"
        )));
    }
    Ok(seconds)
}
