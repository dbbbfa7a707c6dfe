//! hashed: the 64-bit hash of a field's value, which serves equality alone.
//!
//! A document without the field has the hash of null, so the index leaves no document out. Arrays are
//! refused anywhere on the path, and in the plain fields of the index as well.

use super::{IndexKind, KindSpec};
use crate::catalog::IndexSpec;
use muniment_query::filter::Pred;
use muniment_query::running::Work;
use muniment_value::hashed::hash64;
use muniment_value::path::Path;
use muniment_value::{Collation, Doc, Error, IndexKeys, Result, Value, ValueBuf};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: KindSpec = KindSpec {
    name: "hashed",
    doc: "The hash of a field's value, for equality.",
    options: &[],
    prepare,
    open,
};

fn prepare(spec: &mut IndexSpec) -> Result<()> {
    let key = spec.key.as_doc();
    let hashed = key.iter().filter(is_hashed).count();
    if hashed > 1 {
        return Err(Error::location(
            31303,
            format!(
                "A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {}",
                Value::Document(key).to_display()
            ),
        ));
    }
    if spec.unique {
        return Err(not_unique());
    }
    Ok(())
}

/// The error of a hashed index that is to be unique.
pub(super) fn not_unique() -> Error {
    Error::location(
        16764,
        "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
    )
}

fn is_hashed(e: &muniment_value::Elem<'_>) -> bool {
    e.value().as_str().is_some()
}

fn open(spec: &IndexSpec) -> Result<Arc<dyn IndexKind>> {
    Ok(Arc::new(Hashed {
        sparse: spec.sparse,
        collation: spec.collation.clone(),
        fields: spec
            .key
            .as_doc()
            .iter()
            .map(|e| Field {
                path: Path::new(e.name()),
                hashed: is_hashed(&e),
                descending: crate::index::descending(e.value()),
            })
            .collect(),
    }))
}

#[derive(Debug)]
struct Field {
    path: Path,
    hashed: bool,
    descending: bool,
}

#[derive(Debug)]
struct Hashed {
    sparse: bool,
    collation: Collation,
    fields: Vec<Field>,
}

/// The value at a path; `None` if there is none.
///
/// # Errors
/// 16766 for an array on the path.
fn value_at<'a>(doc: Doc<'a>, path: &Path) -> Result<Option<Value<'a>>> {
    let mut value = Value::Document(doc);
    for part in path.parts() {
        let Value::Document(d) = value else {
            return Ok(None);
        };
        match d.get(part) {
            Some(Value::Array(_)) => {
                return Err(Error::location(
                    16766,
                    format!(
                        "hashed indexes do not currently support array values. Found array at \
                         path: {}",
                        path.as_str()
                    ),
                ));
            }
            Some(v) => value = v,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

impl Hashed {
    /// The hash of a value. Texts that are equal by the collation have the same hash.
    fn hash(&self, v: Value<'_>) -> i64 {
        if self.collation.is_simple() {
            return hash64(v);
        }
        hash64(self.collation.key_value(v).as_value())
    }
}

impl IndexKind for Hashed {
    fn name(&self) -> &'static str {
        SPEC.name
    }

    fn keys(&self, doc: Doc<'_>, out: &mut IndexKeys, _: Work<'_>) -> Result<()> {
        out.begin(self.fields.len());
        let mut found = false;
        for field in &self.fields {
            let value = value_at(doc, &field.path)?;
            found |= value.is_some();
            let value = value.unwrap_or(Value::Null);
            if field.hashed {
                out.push(Value::Int64(self.hash(value)), field.descending);
            } else {
                out.push(value, field.descending);
            }
        }
        if found || !self.sparse {
            out.end_key()?;
        } else {
            out.begin(self.fields.len());
        }
        out.finish();
        Ok(())
    }

    fn transforms(&self, field: usize) -> bool {
        self.fields.get(field).is_some_and(|f| f.hashed)
    }

    fn bounds(&self, _: usize, pred: &Pred) -> Option<Vec<(ValueBuf, ValueBuf)>> {
        let point = |v: &ValueBuf| match v.as_value() {
            // Arrays are not in the index, and undefined is never stored, so neither is found by it.
            Value::Array(_) | Value::Undefined => None,
            v => Some(self.hash(v)),
        };
        let mut hashes = match pred {
            Pred::Eq(v) => vec![point(v)?],
            Pred::In { values, regexes } if regexes.is_empty() => {
                values.iter().map(point).collect::<Option<Vec<i64>>>()?
            }
            _ => return None,
        };
        hashes.sort_unstable();
        hashes.dedup();
        Some(
            hashes
                .into_iter()
                .map(|h| {
                    let v = ValueBuf::new(Value::Int64(h));
                    (v.clone(), v)
                })
                .collect(),
        )
    }

    fn leaves_out(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{Code, DocBuf};

    fn index(spec: &str) -> Result<Arc<dyn IndexKind>> {
        let d = DocBuf::from_json(&format!("{{\"name\": \"x\", {spec}}}")).unwrap();
        let mut spec = IndexSpec::parse(d.as_doc())?;
        prepare(&mut spec)?;
        open(&spec)
    }

    fn keys(kind: &Arc<dyn IndexKind>, json: &str) -> Result<Vec<Vec<u8>>> {
        let mut out = IndexKeys::new();
        kind.keys(
            DocBuf::from_json(json).unwrap().as_doc(),
            &mut out,
            Work::unasked(),
        )?;
        Ok(out.iter().map(|(k, _)| k.to_vec()).collect())
    }

    #[test]
    fn a_document_has_one_key_and_none_with_an_array() {
        let one = index(r#""key": {"a.b": "hashed", "c": -1}"#).unwrap();
        for json in [r#"{"a": {"b": 1}}"#, r#"{"a": 5}"#, "{}"] {
            assert_eq!(keys(&one, json).unwrap().len(), 1, "{json}");
        }
        // Numbers hash as the integer they truncate to; a missing value hashes as null.
        let same = |x: &str, y: &str| keys(&one, x).unwrap() == keys(&one, y).unwrap();
        assert!(same(r#"{"a": {"b": 1}}"#, r#"{"a": {"b": 1.5}}"#));
        assert!(same("{}", r#"{"a": {"b": null}}"#));
        assert!(!same("{}", r#"{"a": {"b": 0}}"#));
        for json in [
            r#"{"a": {"b": [1]}}"#,
            r#"{"a": [{"b": 1}]}"#,
            r#"{"c": []}"#,
        ] {
            assert_eq!(keys(&one, json).unwrap_err().code(), Code(16766), "{json}");
        }
        let sparse = index(r#""key": {"a": "hashed"}, "sparse": true"#).unwrap();
        assert_eq!(keys(&sparse, "{}").unwrap().len(), 0);
        assert_eq!(keys(&sparse, r#"{"a": null}"#).unwrap().len(), 1);
    }

    #[test]
    fn equality_alone_has_bounds() {
        let one = index(r#""key": {"a": "hashed"}"#).unwrap();
        let int = |n: i32| ValueBuf::new(Value::Int32(n));
        let eq = one.bounds(0, &Pred::Eq(int(7))).unwrap();
        assert!(matches!(eq[0].0.as_value(), Value::Int64(h) if h == hash64(Value::Int32(7))));
        let list = one.bounds(
            0,
            &Pred::In {
                values: vec![int(1), int(2), int(3)],
                regexes: Vec::new(),
            },
        );
        let list = list.unwrap();
        assert_eq!(list.len(), 3);
        assert!(list.windows(2).all(|w| {
            let n = |v: &ValueBuf| v.as_value().as_i64_exact().unwrap();
            n(&w[0].0) < n(&w[1].0)
        }));
        assert!(one.bounds(0, &Pred::Gt(int(7))).is_none());
    }

    #[test]
    fn options_are_checked() {
        for (spec, code) in [
            (r#""key": {"a": "hashed"}, "unique": true"#, 16764),
            (r#""key": {"a": "hashed", "b": "hashed"}"#, 31303),
        ] {
            assert_eq!(index(spec).unwrap_err().code(), Code(code), "{spec}");
        }
    }
}
