//! Makes documents from index keys. Covered plans return them, and predicates are tested on them
//! before the real document is read.
//!
//! A key holds the exact values of fields without arrays along their paths, with one exception:
//! null also stands for a missing field. A plan that must tell the two apart reads the document.

use muniment_value::path::Path;
use muniment_value::{Put, Result, Type, ValueBuf, keyenc};

/// A recipe for making documents from the keys of one index.
#[derive(Clone, Debug)]
pub(crate) struct KeyDoc {
    /// For each index field up to the last one wanted: whether it descends, and whether it is
    /// wanted.
    fields: Vec<(bool, bool)>,
    tree: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    is: Is,
}

#[derive(Clone, Debug)]
enum Is {
    /// The value of the n-th field of the index.
    Value(usize),
    Below(Vec<Node>),
}

impl KeyDoc {
    /// A recipe for documents with the index fields for which `wanted` returns true.
    pub(crate) fn new(fields: &[(Path, bool)], wanted: impl Fn(usize) -> bool) -> KeyDoc {
        let mut out = KeyDoc {
            fields: Vec::new(),
            tree: Vec::new(),
        };
        let last = (0..fields.len()).rev().find(|&i| wanted(i));
        for (i, (path, descending)) in fields.iter().enumerate().take(last.map_or(0, |l| l + 1)) {
            out.fields.push((*descending, wanted(i)));
            if wanted(i) {
                insert(&mut out.tree, path.parts(), i);
            }
        }
        out
    }

    /// Appends the document of a key and its type bits. Returns false if a wanted value is null,
    /// because the document may not have that field.
    ///
    /// # Errors
    /// 22 InvalidBSON: the key is damaged.
    pub(crate) fn append(&self, key: &[u8], bits: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut values = Vec::with_capacity(self.fields.len());
        let (mut rest, mut bits) = (key, bits);
        let mut certain = true;
        for (descending, wanted) in &self.fields {
            let (value, tail) = keyenc::decode(rest, *descending, &mut bits)?;
            rest = tail;
            certain &= !wanted || !value.as_value().is_nullish();
            values.push(value);
        }
        write(&self.tree, &values, out);
        Ok(certain)
    }
}

fn insert(level: &mut Vec<Node>, parts: &[String], field: usize) {
    let Some((name, rest)) = parts.split_first() else {
        return;
    };
    let at = level.iter().position(|n| n.name == *name);
    let is = match (at.and_then(|i| level.get_mut(i)), rest.is_empty()) {
        // The whole value includes the fields below it.
        (Some(n), true) => {
            n.is = Is::Value(field);
            return;
        }
        (Some(n), false) => {
            if let Is::Below(below) = &mut n.is {
                insert(below, rest, field);
            }
            return;
        }
        (None, true) => Is::Value(field),
        (None, false) => {
            let mut below = Vec::new();
            insert(&mut below, rest, field);
            Is::Below(below)
        }
    };
    level.push(Node {
        name: name.clone(),
        is,
    });
}

/// The recursion is bounded by the depth of the index's paths.
fn write(level: &[Node], values: &[ValueBuf], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    for n in level {
        match &n.is {
            Is::Value(i) => {
                if let Some(v) = values.get(*i) {
                    out.push(v.put_type() as u8);
                    out.extend_from_slice(n.name.as_bytes());
                    out.push(0);
                    v.put(out);
                }
            }
            Is::Below(below) => {
                out.push(Type::Document as u8);
                out.extend_from_slice(n.name.as_bytes());
                out.push(0);
                write(below, values, out);
            }
        }
    }
    out.push(0);
    let len = ((out.len() - start) as u32).to_le_bytes();
    if let Some(head) = out.get_mut(start..start + 4) {
        head.copy_from_slice(&len);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::keyenc::TypeBits;
    use muniment_value::{Doc, Value, doc};

    #[test]
    fn keys_become_documents() {
        let fields = ["a.b", "x", "a.c", "n", "d"].map(|p| (Path::new(p), p == "x"));
        let values = [
            Value::Int32(1),
            Value::Double(2.0),
            Value::String("c"),
            Value::Null,
            Value::Int64(5),
        ];
        let (mut key, mut bits) = (Vec::new(), TypeBits::new());
        for (v, (_, descending)) in values.into_iter().zip(&fields) {
            keyenc::encode_with_bits(v, *descending, &mut key, &mut bits);
        }
        let make = |wanted: &[usize]| {
            let mut out = Vec::new();
            let certain = KeyDoc::new(&fields, |i| wanted.contains(&i))
                .append(&key, bits.as_bytes(), &mut out)
                .unwrap();
            (Doc::new(&out).to_buf(), certain)
        };
        let a = doc! { "b": 1, "c": "c" };
        assert_eq!(make(&[0, 1, 2]), (doc! { "a": &a, "x": 2.0 }, true));
        assert_eq!(
            make(&[2, 4]),
            (doc! { "a": doc! { "c": "c" }, "d": 5_i64 }, true)
        );
        assert_eq!(make(&[3]), (doc! { "n": Value::Null }, false));
        assert_eq!(make(&[]), (doc! {}, true));
        // One index field is a prefix of the other.
        let both = [(Path::new("a.b"), false), (Path::new("a"), false)];
        assert_eq!(KeyDoc::new(&both, |_| true).tree.len(), 1);
    }
}
