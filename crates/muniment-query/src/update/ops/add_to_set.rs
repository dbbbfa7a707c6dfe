//! `$addToSet`: appends values that the array does not contain yet.

use super::Raw;
use crate::bytes::{IndexName, body, close, head, open};
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Collation, Doc, Elem, Error, Result, Type, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$addToSet",
    doc: "Appends a value, or each of several ($each), that the array does not have yet.",
    parse,
};

/// Up to this number of values are compared with every element; more values are looked up.
const FEW: usize = 16;

/// The values, without duplicates.
#[derive(Debug)]
struct AddToSet(Vec<Raw>, Collation);

fn parse(cx: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let collation = &cx.ctx.collation;
    let each = match e.value() {
        Value::Document(d) => d.first().filter(|f| f.name() == "$each").map(|f| (d, f)),
        _ => None,
    };
    let mut values: Vec<Raw> = Vec::new();
    match each {
        None => values.push(Raw::new(e)),
        Some((d, each)) => {
            let Value::Array(array) = each.value() else {
                return Err(Error::type_mismatch(format!(
                    "The argument to $each in $addToSet must be an array but it was of type {}",
                    each.value().type_name()
                )));
            };
            if d.count() > 1 {
                return Err(Error::bad_value(format!(
                    "Found unexpected fields after $each in $addToSet: {}",
                    e.value().to_display()
                )));
            }
            // Each value is kept once, in the order of their first occurrences.
            let work = cx.ctx.task.work();
            let mut all: Vec<(usize, Elem<'_>)> = array.iter().enumerate().collect();
            work.sort_by(&mut all, |a, b| collation.cmp(a.1.value(), b.1.value()))?;
            all.dedup_by(|a, b| collation.equal(a.1.value(), b.1.value()));
            work.sort_by(&mut all, |a, b| a.0.cmp(&b.0))?;
            values.extend(all.into_iter().map(|(_, e)| Raw::new(e)));
        }
    }
    sink(e.name(), Arc::new(AddToSet(values, collation.clone())))
}

impl LeafOp for AddToSet {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let array = match t.old.map(|e| e.value()) {
            None => Doc::EMPTY,
            Some(Value::Array(a)) => a,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Cannot apply $addToSet to non-array field. Field named '{}' has non-array \
                     type {}",
                    t.name_str(),
                    other.type_name()
                )));
            }
        };
        let before = out.len();
        head(out, Type::Array, t.name);
        let start = open(out);
        out.extend_from_slice(body(array));
        let mut n = array.count();
        let had = n;
        // Many values are looked up; a few are compared.
        let mut sorted: Vec<Value<'_>> = Vec::new();
        if self.0.len() > FEW {
            sorted = array.values().collect();
            t.work.sort_by(&mut sorted, |a, b| self.1.cmp(*a, *b))?;
        }
        for v in &self.0 {
            let has = if self.0.len() > FEW {
                t.work.steps(32)?;
                let wanted = |w: &Value<'_>| self.1.cmp(*w, v.value());
                sorted.binary_search_by(wanted).is_ok()
            } else {
                array.values().any(|w| self.1.equal(v.value(), w))
            };
            if !has {
                v.put(IndexName::new(n).as_bytes(), out);
                n += 1;
            }
        }
        if n == had && t.old.is_some() {
            out.truncate(before);
            return Ok(Outcome::Unchanged);
        }
        close(out, start);
        Ok(Outcome::Changed)
    }

    fn depth(&self) -> usize {
        1 + self.0.iter().map(Raw::depth).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_add_to_set() {
        table(&[
            ("{a:[1]}", "{$addToSet:{a:2}}", "{a:[1,2]}"),
            ("{a:[1]}", "{$addToSet:{a:1.0}}", "="),
            ("{}", "{$addToSet:{a:1}}", "{a:[1]}"),
            ("{}", "{$addToSet:{a:{$each:[]}}}", "{a:[]}"),
            ("{a:[1]}", "{$addToSet:{a:[1]}}", "{a:[1,[1]]}"),
            (
                "{a:[1,2]}",
                "{$addToSet:{a:{$each:[2,3,3,4]}}}",
                "{a:[1,2,3,4]}",
            ),
            (
                "{a:[{x:1,y:2}]}",
                "{$addToSet:{a:{y:2,x:1}}}",
                "{a:[{x:1,y:2},{y:2,x:1}]}",
            ),
            (
                "{a:[5,1.0,'x',{y:1}]}",
                "{$addToSet:{a:{$each:[20,19,18,17,16,15,14,13,12,11,10,9,8,7,6,5,4,3,2,1,{y:1},'x',20]}}}",
                "{a:[5,1.0,'x',{y:1},20,19,18,17,16,15,14,13,12,11,10,9,8,7,6,4,3,2]}",
            ),
            (
                "{a:'s'}",
                "{$addToSet:{a:1}}",
                "2: Cannot apply $addToSet to non-array field. Field named 'a' has non-array type string",
            ),
            (
                "{}",
                "{$addToSet:{a:{$each:1}}}",
                "14: The argument to $each in $addToSet must be an array but it was of type int",
            ),
        ]);
    }
}
