//! Sort specifications and sort keys.
//!
//! A sort key is the concatenation of order-preserving encodings, so two documents are compared by a single
//! `memcmp`. Arrays follow the rules of index keys: a path that meets an array stands for one key per
//! element, and the least key (in the sort's own order) counts.
//! key per element, and the least key (in the sort's own order) counts.

use crate::context::QueryContext;
use crate::meta::{Meta, MetaSet, attach, binary};
use bytes::Bytes;
use muniment_value::path::Path;
use muniment_value::{ArrayBuf, Collation, Doc, Error, Result, Value, ValueBuf};

/// MongoDB's limit on the keys of one sort.
const MAX_KEYS: usize = 32;

/// MongoDB's limit on the parts of a field path.
const MAX_PARTS: usize = 200;

/// A parsed sort: at most 32 keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortSpec {
    keys: Vec<SortKey>,
    collation: Collation,
}

/// One key of a sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The path. For metadata it is one that no field of an index can have.
    pub path: Path,
    /// True for −1.
    pub descending: bool,
    /// The kind of metadata that is compared instead of a field.
    pub meta: Option<Meta>,
}

impl SortSpec {
    /// Parses `{a: 1, b: -1}`. `{$natural: ±1}` is not a sort key: the caller treats it as a hint. An empty
    /// document gives a sort without keys; the `$sort` stage refuses it, and for find it means no sort.
    ///
    /// # Errors
    /// 15974, 15975, 7472500, 13103 for illegal keys; 16410, 15998, 40352, 40353 for names that are not
    /// paths; 17312, 31138 and 40218 for `{$meta: …}`.
    pub fn parse(doc: Doc<'_>, ctx: &QueryContext) -> Result<SortSpec> {
        let mut keys: Vec<SortKey> = Vec::new();
        let mut fields = 0;
        for e in doc {
            let descending = match e.value() {
                Value::Document(d) => {
                    let meta = meta(d)?;
                    ctx.metadata.ask(meta)?;
                    keys.push(SortKey {
                        path: Path::new(&format!("${}", meta.name())),
                        // The best scores come first, but so do the greatest distances.
                        descending: true,
                        meta: Some(meta),
                    });
                    continue;
                }
                v if v.is_number() => match direction(v) {
                    Some(1) => false,
                    Some(-1) => true,
                    _ => {
                        return Err(Error::location(
                            15975,
                            "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
                        ));
                    }
                },
                _ => {
                    return Err(Error::location(
                        15974,
                        format!(
                            "Illegal key in $sort specification: {}",
                            crate::bytes::show(e)
                        ),
                    ));
                }
            };
            check_field_path(e.name())?;
            if keys.iter().any(|k| k.path.as_str() == e.name()) {
                return Err(Error::location(
                    7_472_500,
                    format!(
                        "$sort key must not contain duplicate keys (field: '{}')",
                        e.name()
                    ),
                ));
            }
            if fields == MAX_KEYS {
                return Err(Error::location(13103, "too many compound keys"));
            }
            fields += 1;
            keys.push(SortKey {
                path: Path::new(e.name()),
                descending,
                meta: None,
            });
        }
        Ok(SortSpec {
            keys,
            collation: ctx.collation.clone(),
        })
    }

    /// The collation by which texts are ordered.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    /// The keys.
    pub fn keys(&self) -> &[SortKey] {
        &self.keys
    }

    /// Whether the sort reads nothing but the values at these paths.
    pub fn reads_only(&self, paths: &[String]) -> bool {
        self.keys.iter().all(|k| {
            let path = k.path.as_str();
            let below = |p: &String| {
                let rest = path.strip_prefix(p.as_str());
                rest.is_some_and(|r| r.is_empty() || r.starts_with('.'))
            };
            k.meta.is_none() && paths.iter().any(below)
        })
    }

    /// Appends `doc`'s sort key: byte strings whose `memcmp` order is the sort's order. For an array, its
    /// least element counts (the greatest one in a descending sort); an empty array counts as undefined, a
    /// missing field as null.
    ///
    /// # Errors
    /// 2 BadValue for parallel arrays.
    pub fn key(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        for key in &self.keys {
            match key.of(doc) {
                At::Value(v) => self.collation.encode(v, key.descending, out),
                At::Array { .. } => {
                    out.truncate(start);
                    return self.key_of_arrays(doc, out);
                }
            }
        }
        Ok(())
    }

    /// The values of `doc` that the sort compares, one for each key: `{$meta: "sortKey"}`. For an array it is
    /// the least element in the key's own order.
    ///
    /// # Errors
    /// As [`SortSpec::key`].
    pub fn values(&self, doc: Doc<'_>) -> Result<ArrayBuf> {
        let mut values = ArrayBuf::new();
        for key in &self.keys {
            match key.of(doc) {
                At::Value(v) => {
                    values.push(v);
                }
                at @ At::Array { .. } => {
                    let alone = SortSpec {
                        keys: vec![key.clone()],
                        collation: self.collation.clone(),
                    };
                    let mut best: Option<(Vec<u8>, ValueBuf)> = None;
                    alone.expand(&[at], &mut |encoded, chosen| {
                        if best.as_ref().is_none_or(|(b, _)| encoded < *b) {
                            let v = chosen.first().copied().unwrap_or(Value::Null);
                            best = Some((encoded, ValueBuf::new(v)));
                        }
                    })?;
                    values.push(
                        best.map(|(_, v)| v)
                            .unwrap_or_else(|| ValueBuf::new(Value::Null)),
                    );
                }
            }
        }
        Ok(values)
    }

    /// The document with those of its keys as metadata that are wanted: [`SortSpec::values`] as the sort key, and
    /// [`SortSpec::key`] as the key for merging.
    ///
    /// # Errors
    /// As [`SortSpec::key`].
    pub fn with_keys(&self, doc: Doc<'_>, wanted: MetaSet) -> Result<Bytes> {
        let values: ArrayBuf;
        let mut key = Vec::new();
        let mut kinds = Vec::new();
        if wanted.has(Meta::SortKey) {
            values = self.values(doc)?;
            kinds.push((Meta::SortKey, Value::Array(values.as_doc())));
        }
        if wanted.has(Meta::MergeKey) {
            self.key(doc, &mut key)?;
            kinds.push((Meta::MergeKey, binary(&key)));
        }
        Ok(attach(doc, &kinds))
    }

    /// The slow path: makes a key for each element of the array that the paths share, and takes the least
    /// one.
    fn key_of_arrays(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let states: Vec<At<'_, '_>> = self.keys.iter().map(|k| k.of(doc)).collect();
        let mut best: Option<Vec<u8>> = None;
        self.expand(&states, &mut |key, _| {
            if best.as_ref().is_none_or(|b| key < *b) {
                best = Some(key);
            }
        })?;
        if let Some(best) = best {
            out.extend_from_slice(&best);
        }
        Ok(())
    }

    /// Passes every key that the arrays stand for to `give`, with its values.
    fn expand(
        &self,
        states: &[At<'_, '_>],
        give: &mut dyn FnMut(Vec<u8>, &[Value<'_>]),
    ) -> Result<()> {
        let mut shared: Option<Doc<'_>> = None;
        for s in states {
            if let At::Array { array, .. } = s {
                match shared {
                    None => shared = Some(*array),
                    Some(other) if std::ptr::eq(other.as_bytes(), array.as_bytes()) => {}
                    Some(_) => {
                        return Err(Error::bad_value(
                            "cannot sort with keys that are parallel arrays",
                        ));
                    }
                }
            }
        }
        let Some(array) = shared else {
            let mut key = Vec::new();
            let mut values = Vec::new();
            for (k, s) in self.keys.iter().zip(states) {
                if let At::Value(v) = s {
                    self.collation.encode(*v, k.descending, &mut key);
                    values.push(*v);
                }
            }
            give(key, &values);
            return Ok(());
        };
        let mut step = |element: Option<Value<'_>>| {
            let next: Vec<At<'_, '_>> = states
                .iter()
                .map(|s| match s {
                    At::Array { rest, .. } => match element {
                        // An empty array counts as undefined at the end of a path; before that, it has no
                        // fields.
                        None if rest.is_empty() => At::Value(Value::Undefined),
                        None => At::Value(Value::Null),
                        Some(v) if rest.is_empty() => At::Value(v),
                        Some(Value::Array(inner)) => nested(inner, rest),
                        Some(v) => follow(v, rest),
                    },
                    At::Value(v) => At::Value(*v),
                })
                .collect();
            self.expand(&next, give)
        };
        if array.is_empty() {
            return step(None);
        }
        for v in array.values() {
            step(Some(v))?;
        }
        Ok(())
    }
}

/// The metadata with which documents have a key after a sort.
pub(crate) const KEYS: MetaSet = MetaSet::NONE.with(Meta::SortKey).with(Meta::MergeKey);

/// The whole number for a key's value: doubles lose their fraction, decimals are rounded half to even.
fn direction(v: Value<'_>) -> Option<i64> {
    match v {
        Value::Decimal128(b) => {
            let d = muniment_value::decimal::Decimal::from_bid(b);
            d.round_to(0, muniment_value::decimal::Round::HalfEven)
                .to_i64_exact()
        }
        v => muniment_value::number::to_i64_clamped(v),
    }
}

/// Parses a key whose value is a document: `{$meta: …}`.
///
/// # Errors
/// 17312, 31138 and 9 for a document that is not such a key.
fn meta(d: Doc<'_>) -> Result<Meta> {
    let Some(meta) = d.first().filter(|m| m.name() == "$meta") else {
        return Err(Error::location(
            17312,
            "$meta is the only expression supported by $sort right now",
        ));
    };
    if d.count() > 1 {
        return Err(Error::failed_to_parse(
            "Cannot have additional keys in a $meta sort specification",
        ));
    }
    let kind = meta.value().as_str().and_then(Meta::parse);
    kind.filter(|m| ORDERING.contains(m)).ok_or_else(|| {
        Error::location(
            31138,
            format!("Illegal $meta sort: {}", crate::bytes::show(meta)),
        )
    })
}

/// The metadata that a sort may name.
const ORDERING: [Meta; 6] = [
    Meta::GeoNearDistance,
    Meta::RandVal,
    Meta::Score,
    Meta::SearchScore,
    Meta::TextScore,
    Meta::VectorSearchScore,
];

impl SortKey {
    /// The part of a document that the key compares.
    fn of<'a, 'p>(&'p self, doc: Doc<'a>) -> At<'a, 'p> {
        match self.meta {
            None => follow(Value::Document(doc), self.path.parts()),
            Some(m) => At::Value(m.of(doc).unwrap_or(Value::Null)),
        }
    }
}

/// The end of a path: a value, or an array that stands for several values.
enum At<'a, 'p> {
    Value(Value<'a>),
    Array { array: Doc<'a>, rest: &'p [String] },
}

/// Follows `parts` until they end or meet an array.
fn follow<'a, 'p>(from: Value<'a>, parts: &'p [String]) -> At<'a, 'p> {
    let mut at = from;
    let mut rest = parts;
    loop {
        match (at, rest.split_first()) {
            (Value::Array(array), None) => return At::Array { array, rest },
            (Value::Array(array), Some((part, below))) => {
                match crate::bytes::array_index(part).and_then(|i| array.values().nth(i)) {
                    Some(v) => {
                        at = v;
                        rest = below;
                    }
                    None => return At::Array { array, rest },
                }
            }
            (v, None) => return At::Value(v),
            (Value::Document(d), Some((part, below))) => match d.get(part) {
                Some(v) => {
                    at = v;
                    rest = below;
                }
                None => return At::Value(Value::Null),
            },
            (_, Some(_)) => return At::Value(Value::Null),
        }
    }
}

/// A path enters an array that is directly inside an array only by index.
fn nested<'a, 'p>(array: Doc<'a>, rest: &'p [String]) -> At<'a, 'p> {
    let entered = rest.split_first().and_then(|(part, below)| {
        let v = crate::bytes::array_index(part).and_then(|i| array.values().nth(i))?;
        Some(follow(v, below))
    });
    entered.unwrap_or(At::Value(Value::Null))
}

/// Checks whether `path` can be a field path in a sort, projection or stage.
///
/// # Errors
/// 40352, 40353, 15998, 16410 with MongoDB's messages; 15 Overflow beyond 200 parts.
pub fn check_field_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(Error::location(
            40352,
            "FieldPath cannot be constructed with empty string",
        ));
    }
    if path.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    for (i, part) in path.split('.').enumerate() {
        if part.is_empty() {
            return Err(Error::location(
                15998,
                "FieldPath field names may not be empty strings.",
            ));
        }
        if part.contains('\0') {
            return Err(Error::location(
                16411,
                "FieldPath field names may not contain '\\0'.",
            ));
        }
        if part.starts_with('$') && !matches!(part, "$id" | "$ref" | "$db") {
            return Err(Error::location(
                16410,
                format!(
                    "FieldPath field names may not start with '$'. Consider using $getField or \
                     $setField. Found '{part}'"
                ),
            ));
        }
        if i >= MAX_PARTS {
            return Err(crate::bytes::too_deep());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::update::testing::json;

    fn key(spec: &str, d: &str) -> Result<Vec<u8>> {
        let spec = SortSpec::parse(json(spec).as_doc(), &QueryContext::new())?;
        let mut out = Vec::new();
        spec.key(json(d).as_doc(), &mut out)?;
        Ok(out)
    }

    #[test]
    fn table_of_orders() {
        // Each row has a sort, and documents in the order that the sort must produce.
        for (spec, docs) in [
            (
                "{a:1}",
                vec![
                    "{a:{$minKey:1}}",
                    "{a:[]}",
                    "{}",
                    "{a:1}",
                    "{a:2.5}",
                    "{a:'x'}",
                    "{a:{}}",
                ],
            ),
            (
                "{a:-1}",
                vec!["{a:'x'}", "{a:2.5}", "{a:1}", "{}", "{a:[]}"],
            ),
            ("{a:1}", vec!["{a:[5,0]}", "{a:1}", "{a:[2,9]}", "{a:3}"]),
            ("{a:-1}", vec!["{a:[2,9]}", "{a:[5,0]}", "{a:3}", "{a:1}"]),
            (
                "{'a.b':1}",
                vec!["{a:5}", "{a:[{b:7},{b:1}]}", "{a:{b:2}}", "{a:[{b:3}]}"],
            ),
            ("{'a.0':1}", vec!["{a:[1,0]}", "{a:[2,-5]}"]),
            (
                "{a:1,b:-1}",
                vec!["{a:1,b:3}", "{a:1,b:2}", "{a:1}", "{a:2,b:9}"],
            ),
            (
                "{'a.x':1,'a.y':1}",
                vec![
                    "{a:[{x:1,y:5},{x:2,y:0}]}",
                    "{a:{x:1,y:6}}",
                    "{a:[{x:2,y:0}]}",
                ],
            ),
            ("{a:1,b:1}", vec!["{a:[3,1],b:1}", "{a:1,b:2}"]),
        ] {
            let keys: Vec<_> = docs.iter().map(|d| key(spec, d).unwrap()).collect();
            assert!(keys.is_sorted_by(|a, b| a < b), "{spec} {docs:?}");
        }
        assert_eq!(
            key("{a:1}", "{a:1}").unwrap(),
            key("{a:1}", "{a:1.0}").unwrap()
        );
        assert_eq!(
            key("{a:1}", "{a:null}").unwrap(),
            key("{a:1}", "{}").unwrap()
        );
        assert_eq!(
            key("{'a.b':1}", "{a:[]}").unwrap(),
            key("{'a.b':1}", "{}").unwrap()
        );
    }

    #[test]
    fn table_of_errors() {
        for (spec, code, text) in [
            (
                "{a:'x'}",
                15974,
                "Illegal key in $sort specification: a: \"x\"",
            ),
            ("{a:2}", 15975, "$sort key ordering must be 1"),
            ("{a:0}", 15975, "$sort key ordering must be 1"),
            ("{a:{x:1}}", 17312, "$meta is the only expression"),
            (
                "{a:{$meta:'textScore'}}",
                40218,
                "query requires text score metadata, but it is not available",
            ),
            (
                "{$a:1}",
                16410,
                "FieldPath field names may not start with '$'.",
            ),
            (
                "{'':1}",
                40352,
                "FieldPath cannot be constructed with empty string",
            ),
            (
                "{'a..b':1}",
                15998,
                "FieldPath field names may not be empty strings.",
            ),
            ("{'a.':1}", 40353, "FieldPath must not end with a '.'."),
        ] {
            let e = SortSpec::parse(json(spec).as_doc(), &QueryContext::new()).unwrap_err();
            assert_eq!(e.code().0, code, "{spec}");
            assert!(e.message().starts_with(text), "{spec}: {e}");
        }
        let twice = muniment_value::doc! { "a": 1, "a": -1 };
        let e = SortSpec::parse(twice.as_doc(), &QueryContext::new()).unwrap_err();
        assert_eq!(e.code().0, 7_472_500);
        let e = key("{a:1,b:1}", "{a:[1],b:[2]}").unwrap_err();
        assert_eq!(
            e.message(),
            "cannot sort with keys that are parallel arrays"
        );
        assert!(
            SortSpec::parse(
                json("{a:1.0,b:{$numberLong:'-1'}}").as_doc(),
                &QueryContext::new()
            )
            .is_ok()
        );
        let many: Vec<String> = (0..33).map(|i| format!("f{i}:1")).collect();
        let e = SortSpec::parse(
            json(&format!("{{{}}}", many.join(","))).as_doc(),
            &QueryContext::new(),
        )
        .unwrap_err();
        assert_eq!(e.code().0, 13103);
    }
}
