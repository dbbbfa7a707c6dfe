//! `$mergeObjects`: one document with the fields of all documents. If names are equal, the later field
//! counts.

use super::{Accumulator, Order, Spec, check_held};
use crate::bytes::put;
use muniment_value::{Doc, DocBuf, Error, Result, Value};

pub(super) const SPEC: Spec = Spec::unary(
    "$mergeObjects",
    "One document of all documents; later fields win.",
    Order::Kept,
    |_| Box::new(MergeObjects(DocBuf::new())),
);

#[derive(Debug)]
struct MergeObjects(DocBuf);

/// `a` with the fields of `b`. Fields that `a` has keep their place.
fn merged(a: Doc<'_>, b: Doc<'_>) -> DocBuf {
    let mut out = DocBuf::with_capacity(a.byte_len() + b.byte_len());
    for e in a {
        match b.get_elem(e.name()) {
            Some(new) => out.append_elem(new),
            None => out.append_elem(e),
        };
    }
    for e in b {
        if a.get_elem(e.name()).is_none() {
            out.append_elem(e);
        }
    }
    out
}

impl Accumulator for MergeObjects {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        match v {
            None | Some(Value::Null | Value::Undefined) => Ok(()),
            Some(Value::Document(d)) => {
                self.0 = merged(self.0.as_doc(), d);
                check_held("$mergeObjects", self.0.len())
            }
            Some(other) => Err(Error::location(
                5_911_200,
                format!(
                    "$mergeObjects requires object inputs, but input {} is of type {}",
                    other.to_display(),
                    other.type_name()
                ),
            )),
        }
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.0);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.0);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    fn heap(&self) -> usize {
        self.0.len()
    }
}
