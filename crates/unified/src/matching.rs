//! Whether a value is the expected one: the fields of documents may have any order, numbers are compared by
//! value, and operators begin with `$$`.

use bson::{Bson, Document};

/// The objects that operators refer to.
pub(crate) trait Entities {
    /// A value that the test has saved.
    fn value(&self, name: &str) -> Option<Bson>;
    /// The id of a session.
    fn lsid(&self, name: &str) -> Option<Bson>;
}

/// The places at which a document may have more fields than expected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// In the value itself.
    Yes,
    /// In the elements of an array, which are results of a cursor.
    Elements,
    /// Nowhere.
    No,
}

/// Compares `actual` with what a test expects.
///
/// # Errors
/// A description of the difference, with its path.
pub(crate) fn matches(
    entities: &dyn Entities,
    expected: &Bson,
    actual: Option<&Bson>,
    root: Root,
) -> Result<(), String> {
    let mut m = Matcher {
        entities,
        path: String::new(),
    };
    m.value(expected, actual, root)
}

/// Whether two values are equal except for the order of fields, including their types. For the contents of
/// collections.
pub(crate) fn same(a: &Bson, b: &Bson) -> bool {
    match (a, b) {
        (Bson::Document(a), Bson::Document(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (Bson::Array(a), Bson::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => a == b,
    }
}

struct Matcher<'e> {
    entities: &'e dyn Entities,
    path: String,
}

impl Matcher<'_> {
    fn wrong<T>(
        &self,
        expected: impl std::fmt::Display,
        actual: Option<&Bson>,
    ) -> Result<T, String> {
        let at = if self.path.is_empty() { "" } else { " at " };
        Err(match actual {
            Some(a) => format!("expected {expected}, got {a}{at}{}", self.path),
            None => format!("expected {expected}, got nothing{at}{}", self.path),
        })
    }

    fn value(&mut self, expected: &Bson, actual: Option<&Bson>, root: Root) -> Result<(), String> {
        match expected {
            Bson::Document(d) => match operator(d) {
                Some((name, argument)) => self.operator(name, argument, actual, root),
                None => self.document(d, actual, root == Root::Yes),
            },
            Bson::Array(want) => {
                let Some(Bson::Array(have)) = actual else {
                    return self.wrong(expected, actual);
                };
                if want.len() != have.len() {
                    return self.wrong(expected, actual);
                }
                let root = match root {
                    Root::Elements => Root::Yes,
                    _ => Root::No,
                };
                for (i, (w, h)) in want.iter().zip(have).enumerate() {
                    self.within(&format!("[{i}]"), |m| m.value(w, Some(h), root))?;
                }
                Ok(())
            }
            _ => match actual.map(plain) {
                Some(a) if scalar(expected, a) => Ok(()),
                _ => self.wrong(expected, actual),
            },
        }
    }

    fn within(
        &mut self,
        name: &str,
        compare: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let len = self.path.len();
        if len > 0 && !name.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = compare(self);
        self.path.truncate(len);
        result
    }

    fn document(
        &mut self,
        want: &Document,
        actual: Option<&Bson>,
        more: bool,
    ) -> Result<(), String> {
        let Some(Bson::Document(have)) = actual else {
            return self.wrong(want, actual);
        };
        for (name, w) in want {
            self.within(name, |m| m.value(w, have.get(name), Root::No))?;
        }
        let extra = have.keys().find(|k| !want.contains_key(k));
        match extra {
            Some(name) if !more => self.within(name, |m| m.wrong("no such field", have.get(name))),
            _ => Ok(()),
        }
    }

    fn operator(
        &mut self,
        name: &str,
        argument: &Bson,
        actual: Option<&Bson>,
        root: Root,
    ) -> Result<(), String> {
        let asked = || format!("{name}: {argument}");
        let fits = match (name, argument) {
            ("$$exists", Bson::Boolean(b)) => actual.is_some() == *b,
            ("$$type", Bson::String(t)) => actual.is_some_and(|a| is_type(a, t)),
            ("$$type", Bson::Array(all)) => actual.is_some_and(|a| {
                all.iter()
                    .any(|t| t.as_str().is_some_and(|t| is_type(a, t)))
            }),
            ("$$unsetOrMatches", want) => {
                return match actual {
                    None => Ok(()),
                    Some(_) => self.value(want, actual, root),
                };
            }
            ("$$matchesEntity", Bson::String(name)) => {
                let Some(want) = self.entities.value(name) else {
                    return Err(format!("there is no value called {name}"));
                };
                return self.value(&want, actual, root);
            }
            ("$$matchesHexBytes", Bson::String(hex)) => {
                let want = from_hex(hex).ok_or_else(|| format!("not hex: {hex}"))?;
                matches!(actual, Some(Bson::Binary(b)) if b.bytes == want)
            }
            ("$$sessionLsid", Bson::String(name)) => {
                let Some(want) = self.entities.lsid(name) else {
                    return Err(format!("there is no session called {name}"));
                };
                actual == Some(&want)
            }
            ("$$lte", limit) => match (actual.and_then(number), number(limit)) {
                (Some(a), Some(limit)) => a <= limit,
                _ => false,
            },
            ("$$matchAsDocument", want) => {
                let parsed = actual
                    .and_then(|a| a.as_str())
                    .and_then(|text| serde_json::from_str::<serde_json::Map<_, _>>(text).ok())
                    .and_then(|map| Document::try_from(map).ok());
                let Some(parsed) = parsed else {
                    return self.wrong("Extended JSON of a document", actual);
                };
                return self.value(want, Some(&Bson::Document(parsed)), Root::No);
            }
            ("$$matchAsRoot", want) => return self.value(want, actual, Root::Yes),
            _ => return Err(format!("the runner does not know the operator {}", asked())),
        };
        if fits {
            Ok(())
        } else {
            self.wrong(asked(), actual)
        }
    }
}

/// The operator and its argument, if `d` is one.
fn operator(d: &Document) -> Option<(&str, &Bson)> {
    let (name, argument) = d.iter().next()?;
    (d.len() == 1 && name.starts_with("$$")).then_some((name, argument))
}

/// In a filter `{$eq: x}` means x: drivers send the one where they formerly sent the other, and the tests
/// expect either.
fn plain(v: &Bson) -> &Bson {
    match v {
        Bson::Document(d) if d.len() == 1 => d.get("$eq").unwrap_or(v),
        _ => v,
    }
}

fn number(v: &Bson) -> Option<f64> {
    match v {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}

fn scalar(want: &Bson, have: &Bson) -> bool {
    match (want, have) {
        (Bson::Int32(_) | Bson::Int64(_), Bson::Int32(_) | Bson::Int64(_)) => {
            crate::failure::whole(want) == crate::failure::whole(have)
        }
        _ => match (number(want), number(have)) {
            (Some(w), Some(h)) => w == h,
            _ => same(want, have),
        },
    }
}

/// The bytes of hexadecimal digits.
pub(crate) fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = hex
        .chars()
        .map(|c| c.to_digit(16).map(|d| d as u8))
        .collect();
    let digits = digits?;
    (digits.len() % 2 == 0).then(|| {
        let pairs = digits.chunks_exact(2);
        pairs
            .map(|p| p.iter().fold(0, |byte, d| byte << 4 | d))
            .collect()
    })
}

/// Whether a value has a type, or one of the group `number`.
fn is_type(v: &Bson, name: &str) -> bool {
    let own = type_name(v);
    own == name || (name == "number" && matches!(own, "int" | "long" | "double" | "decimal"))
}

/// The name of a type in `$type`.
fn type_name(v: &Bson) -> &'static str {
    match v {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Document(_) => "object",
        Bson::Array(_) => "array",
        Bson::Binary(_) => "binData",
        Bson::Undefined => "undefined",
        Bson::ObjectId(_) => "objectId",
        Bson::Boolean(_) => "bool",
        Bson::DateTime(_) => "date",
        Bson::Null => "null",
        Bson::RegularExpression(_) => "regex",
        Bson::DbPointer(_) => "dbPointer",
        Bson::JavaScriptCode(_) => "javascript",
        Bson::Symbol(_) => "symbol",
        Bson::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        Bson::Int32(_) => "int",
        Bson::Timestamp(_) => "timestamp",
        Bson::Int64(_) => "long",
        Bson::Decimal128(_) => "decimal",
        Bson::MinKey => "minKey",
        Bson::MaxKey => "maxKey",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use bson::{bson, doc};

    struct One;

    impl Entities for One {
        fn value(&self, name: &str) -> Option<Bson> {
            (name == "seven").then_some(Bson::Int32(7))
        }
        fn lsid(&self, name: &str) -> Option<Bson> {
            (name == "s").then(|| bson!({ "id": 1 }))
        }
    }

    #[test]
    fn operators_and_their_refusals() {
        let bytes = Bson::Binary(bson::Binary {
            subtype: bson::spec::BinarySubtype::Generic,
            bytes: vec![0x12, 0xab],
        });
        // The expected value, the actual one, and whether they match.
        for (want, have, fits) in [
            (bson!({ "a": 1 }), Some(bson!({ "b": 2, "a": 1.0 })), true),
            (bson!({ "a": 1 }), Some(bson!({ "a": 1.5 })), false),
            (
                bson!({ "a": { "b": 1 } }),
                Some(bson!({ "a": { "b": 1, "c": 1 } })),
                false,
            ),
            (
                bson!({ "a": { "$$matchAsRoot": { "b": 1 } } }),
                Some(bson!({ "a": { "b": 1, "c": 1 } })),
                true,
            ),
            (
                bson!([{ "a": 1 }]),
                Some(bson!([{ "a": 1, "b": 1 }])),
                false,
            ),
            (bson!([1]), Some(bson!([1, 2])), false),
            (bson!({ "a": 1 }), Some(bson!({ "a": { "$eq": 1 } })), true),
            (bson!({ "a": { "$eq": 1 } }), Some(bson!({ "a": 1 })), false),
            (bson!({ "a": { "$$exists": false } }), Some(bson!({})), true),
            (
                bson!({ "a": { "$$exists": false } }),
                Some(bson!({ "a": null })),
                false,
            ),
            (
                bson!({ "a": { "$$exists": true } }),
                Some(bson!({ "a": null })),
                true,
            ),
            (
                bson!({ "$$type": ["int", "long"] }),
                Some(bson!(1_i64)),
                true,
            ),
            (bson!({ "$$type": "int" }), Some(bson!("x")), false),
            (bson!({ "$$type": "int" }), None, false),
            (bson!({ "$$type": "number" }), Some(bson!(1.5)), true),
            (bson!({ "$$type": "number" }), Some(bson!("1")), false),
            (bson!({ "$$unsetOrMatches": { "a": 1 } }), None, true),
            (
                bson!({ "$$unsetOrMatches": { "a": 1 } }),
                Some(bson!({ "a": 1, "b": 1 })),
                true,
            ),
            (bson!({ "$$unsetOrMatches": 1 }), Some(bson!(2)), false),
            (bson!({ "$$matchesEntity": "seven" }), Some(bson!(7)), true),
            (bson!({ "$$matchesEntity": "seven" }), Some(bson!(8)), false),
            (bson!({ "$$matchesEntity": "none" }), Some(bson!(7)), false),
            (
                bson!({ "$$sessionLsid": "s" }),
                Some(bson!({ "id": 1 })),
                true,
            ),
            (
                bson!({ "$$sessionLsid": "s" }),
                Some(bson!({ "id": 2 })),
                false,
            ),
            (bson!({ "$$lte": 5 }), Some(bson!(5.0)), true),
            (bson!({ "$$lte": 5 }), Some(bson!(6)), false),
            (
                bson!({ "$$matchesHexBytes": "12AB" }),
                Some(bytes.clone()),
                true,
            ),
            (
                bson!({ "$$matchesHexBytes": "12" }),
                Some(bytes.clone()),
                false,
            ),
            (
                bson!({ "$$matchAsDocument": { "x": 1 } }),
                Some(bson!("{\"x\": 1}")),
                true,
            ),
            (
                bson!({ "$$matchAsDocument": { "x": 1 } }),
                Some(bson!("{\"x\": 1, \"y\": 1}")),
                false,
            ),
            (
                bson!({ "$$matchAsDocument": { "x": 1 } }),
                Some(bson!("[1]")),
                false,
            ),
            (bson!({ "$$unknown": 1 }), Some(bson!(1)), false),
        ] {
            let result = matches(&One, &want, have.as_ref(), Root::Yes);
            assert_eq!(result.is_ok(), fits, "{want} {have:?}: {result:?}");
        }
        let list = (bson!([{ "a": 1 }]), bson!([{ "a": 1, "b": 1 }]));
        assert!(matches(&One, &list.0, Some(&list.1), Root::Elements).is_ok());
        assert!(same(&bson!({ "a": 1, "b": 2 }), &bson!({ "b": 2, "a": 1 })));
        assert!(!same(
            &Bson::Document(doc! { "a": 1 }),
            &bson!({ "a": 1_i64 })
        ));
    }

    #[test]
    fn a_difference_is_reported_with_its_path() {
        let e = matches(
            &One,
            &bson!({ "a": [{ "b": 1 }] }),
            Some(&bson!({ "a": [{ "b": 2 }] })),
            Root::Yes,
        );
        assert_eq!(e.unwrap_err(), "expected 1, got 2 at a[0].b");
    }
}
