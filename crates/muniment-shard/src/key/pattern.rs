//! Parsing a shard key's pattern, such as `{country: 1, user: "hashed"}`.

use super::{KeyField, ShardKey};
use muniment_value::path::Path;
use muniment_value::{Code, Doc, Elem, Error, Result, Value, number};

impl ShardKey {
    /// Parses a pattern.
    ///
    /// # Errors
    /// 2 BadValue for an empty pattern, a name that cannot be a path, a direction other than 1 or "hashed",
    /// and a second hashed field; 67 CannotCreateIndex for fields that no index can have together.
    pub fn parse(pattern: Doc<'_>) -> Result<ShardKey> {
        if pattern.is_empty() {
            return Err(Error::bad_value("Shard key is empty"));
        }
        let mut fields: Vec<KeyField> = Vec::new();
        for e in pattern {
            check_path(e.name())?;
            let field = KeyField {
                path: Path::new(e.name()),
                hashed: e.value().as_str() == Some("hashed"),
            };
            let second = field.hashed && fields.iter().any(|f| f.hashed);
            if second || !(field.hashed || is_one(e)) {
                return Err(Error::bad_value(format!(
                    "Shard key {} can contain either a single 'hashed' field, or multiple numerical \
                     fields set to a value of 1. Failed to parse field {}",
                    pattern.to_display(),
                    e.name()
                )));
            }
            if let Some(other) = fields.iter().find(|f| overlap(&f.path, &field.path)) {
                return Err(Error::new(
                    Code::CannotCreateIndex,
                    format!(
                        "Shard key {} has the field {}, which is or contains its field {}",
                        pattern.to_display(),
                        shorter(&other.path, &field.path),
                        longer(&other.path, &field.path),
                    ),
                ));
            }
            fields.push(field);
        }
        Ok(ShardKey {
            fields,
            pattern: pattern.to_buf(),
        })
    }
}

/// MongoDB reads the direction as an int32, so 1.5 is 1.
fn is_one(e: Elem<'_>) -> bool {
    match e.value() {
        Value::Double(n) => n as i32 == 1,
        v => number::to_i64_clamped(v) == Some(1),
    }
}

fn check_path(name: &str) -> Result<()> {
    let wrong = |what: &str| Err(Error::bad_value(format!("Field {name} {what}")));
    if name.is_empty() {
        return wrong("is empty");
    }
    for (n, part) in name.split('.').enumerate() {
        if part.is_empty() {
            return wrong("contains empty parts");
        }
        let dbref = n > 0 && matches!(part, "$id" | "$ref" | "$db");
        if part.starts_with('$') && !dbref {
            return wrong("contains parts that start with '$'");
        }
    }
    Ok(())
}

fn overlap(a: &Path, b: &Path) -> bool {
    a.parts().iter().zip(b.parts()).all(|(x, y)| x == y)
}

fn shorter<'p>(a: &'p Path, b: &'p Path) -> &'p str {
    std::cmp::min_by_key(a.as_str(), b.as_str(), |p| p.len())
}

fn longer<'p>(a: &'p Path, b: &'p Path) -> &'p str {
    std::cmp::max_by_key(a.as_str(), b.as_str(), |p| p.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{DocBuf, doc};

    #[test]
    fn patterns() {
        for (json, hashed) in [
            (r#"{"a": 1}"#, false),
            (r#"{"a": 1.0}"#, false),
            (r#"{"a": 1.5}"#, false),
            (r#"{"a": {"$numberLong": "1"}, "b.c": 1}"#, false),
            (r#"{"_id": "hashed"}"#, true),
            (r#"{"a": 1, "b": "hashed", "c": 1}"#, true),
            (r#"{"a.b": 1, "a.c": 1, "a.$id": 1}"#, false),
            (r#"{"a": 1, "ab": 1}"#, false),
        ] {
            let doc = DocBuf::from_json(json).unwrap();
            let key = ShardKey::parse(doc.as_doc()).unwrap();
            assert_eq!(key.is_hashed(), hashed, "{json}");
            assert_eq!(key.pattern().as_bytes(), doc.as_bytes());
            assert_eq!(key.fields().len(), doc.as_doc().count());
        }
    }

    #[test]
    fn patterns_that_are_refused() {
        for (json, code, part) in [
            ("{}", 2, "is empty"),
            (r#"{"": 1}"#, 2, "is empty"),
            (r#"{"a": -1}"#, 2, "Failed to parse field a"),
            (r#"{"a": 2}"#, 2, "Failed to parse field a"),
            (r#"{"a": true}"#, 2, "Failed to parse field a"),
            (r#"{"a": "text"}"#, 2, "Failed to parse field a"),
            (r#"{"a": "hashed", "b": "hashed"}"#, 2, "field b"),
            (r#"{"a..b": 1}"#, 2, "empty parts"),
            (r#"{"a.": 1}"#, 2, "empty parts"),
            (r#"{"$a": 1}"#, 2, "start with '$'"),
            (r#"{"a.$b": 1}"#, 2, "start with '$'"),
            (r#"{"a": 1, "a.b": 1}"#, 67, "is or contains"),
            (r#"{"a.b.c": 1, "a.b": 1}"#, 67, "is or contains"),
        ] {
            let doc = DocBuf::from_json(json).unwrap();
            let e = ShardKey::parse(doc.as_doc()).unwrap_err();
            assert_eq!(e.code().0, code, "{json}");
            assert!(e.message().contains(part), "{json}: {}", e.message());
        }
        let twice = doc! { "a": 1, "a": 1 };
        assert_eq!(ShardKey::parse(twice.as_doc()).unwrap_err().code().0, 67);
    }

    #[test]
    fn indexes_that_begin_with_the_key() {
        let key = ShardKey::parse(doc! { "a": 1, "b": 1 }.as_doc()).unwrap();
        for (index, fits) in [
            (doc! { "a": 1, "b": 1 }, true),
            (doc! { "a": 1, "b": -1, "c": 1 }, true),
            (doc! { "b": 1, "a": 1 }, false),
            (doc! { "a": 1 }, false),
            (doc! { "a": "hashed", "b": 1 }, false),
        ] {
            assert_eq!(key.begins_index(index.as_doc()), fits, "{index:?}");
        }
    }
}
