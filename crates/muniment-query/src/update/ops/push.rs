//! `$push`: inserts values into an array, with `$each`, `$position`, `$sort` and `$slice`.

use super::{Raw, whole};
use crate::bytes::{IndexName, body, close, head, open, show_id};
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::path::Path;
use muniment_value::{Collation, Doc, Elem, Error, Result, Type, Value};
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$push",
    doc: "Inserts values into an array ($each), at a $position, then sorts ($sort) and cuts it \
          ($slice).",
    parse,
};

#[derive(Debug)]
struct Push {
    values: Vec<Raw>,
    position: Option<i64>,
    slice: Option<i64>,
    sort: Option<Sort>,
    collation: Collation,
}

#[derive(Debug)]
enum Sort {
    /// By the whole elements.
    Whole { descending: bool },
    /// By fields of the elements.
    Fields(Vec<(Path, bool)>),
}

fn parse(cx: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let clauses = match e.value() {
        Value::Document(d) if d.get("$each").is_some() => d,
        _ => {
            let op = Push {
                values: vec![Raw::new(e)],
                position: None,
                slice: None,
                sort: None,
                collation: Collation::SIMPLE,
            };
            return sink(e.name(), Arc::new(op));
        }
    };
    let mut op = Push {
        values: Vec::new(),
        position: None,
        slice: None,
        sort: None,
        collation: cx.ctx.collation.clone(),
    };
    for c in clauses {
        match c.name() {
            "$each" => {
                let Value::Array(array) = c.value() else {
                    return Err(Error::bad_value(format!(
                        "The argument to $each in $push must be an array but it was of type: {}",
                        c.value().type_name()
                    )));
                };
                op.values = array.iter().map(Raw::new).collect();
            }
            "$slice" => op.slice = Some(integer(c, "integer value but was given type: ")?),
            "$position" => op.position = Some(integer(c, "integer value, not of type: ")?),
            "$sort" => op.sort = Some(parse_sort(c.value())?),
            other => {
                return Err(Error::bad_value(format!(
                    "Unrecognized clause in $push: {other}"
                )));
            }
        }
    }
    sink(e.name(), Arc::new(op))
}

fn integer(c: Elem<'_>, text: &str) -> Result<i64> {
    whole(c.value()).ok_or_else(|| {
        Error::bad_value(format!(
            "The value for {} must be an {text}{}",
            c.name(),
            c.value().type_name()
        ))
    })
}

fn parse_sort(v: Value<'_>) -> Result<Sort> {
    let direction = |v: Value<'_>| match whole(v) {
        Some(1) => Some(false),
        Some(-1) => Some(true),
        _ => None,
    };
    match v {
        Value::Document(d) => {
            if d.is_empty() {
                return Err(Error::bad_value(
                    "The $sort pattern is empty when it should be a set of fields.",
                ));
            }
            let mut fields = Vec::new();
            for f in d {
                let descending = direction(f.value()).ok_or_else(|| {
                    Error::bad_value("The $sort element value must be either 1 or -1")
                })?;
                if f.name().is_empty() {
                    return Err(Error::bad_value("The $sort field cannot be empty"));
                }
                if f.name().split('.').any(str::is_empty) {
                    return Err(Error::bad_value(format!(
                        "The $sort field is a dotted field but has an empty part: {}",
                        f.name()
                    )));
                }
                fields.push((Path::new(f.name()), descending));
            }
            Ok(Sort::Fields(fields))
        }
        v if v.is_number() => match direction(v) {
            Some(descending) => Ok(Sort::Whole { descending }),
            None => Err(Error::bad_value(
                "The $sort element value must be either 1 or -1",
            )),
        },
        _ => Err(Error::bad_value(
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort \
             embedded fields",
        )),
    }
}

impl Sort {
    fn cmp(&self, a: Value<'_>, b: Value<'_>, collation: &Collation) -> Ordering {
        let turn = |o: Ordering, descending: bool| if descending { o.reverse() } else { o };
        match self {
            Sort::Whole { descending } => turn(collation.cmp(a, b), *descending),
            Sort::Fields(fields) => {
                for (path, descending) in fields {
                    let o = turn(collation.cmp(field(a, path), field(b, path)), *descending);
                    if o != Ordering::Equal {
                        return o;
                    }
                }
                Ordering::Equal
            }
        }
    }
}

/// The field by which an element is sorted; null if it is missing.
fn field<'a>(v: Value<'a>, path: &Path) -> Value<'a> {
    match v {
        Value::Document(d) => path.get_exact(d).unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

impl LeafOp for Push {
    fn appends(&self) -> bool {
        self.position.is_none() && self.slice.is_none() && self.sort.is_none()
    }

    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let array = match t.old.map(|e| e.value()) {
            None => Doc::EMPTY,
            Some(Value::Array(a)) => a,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "The field '{}' must be an array but is of type {} in document {}",
                    t.path,
                    other.type_name(),
                    show_id(t.root)
                )));
            }
        };
        let before = out.len();
        head(out, Type::Array, t.name);
        let start = open(out);
        if self.position.is_none() && self.slice.is_none() && self.sort.is_none() {
            if self.values.is_empty() && t.old.is_some() {
                out.truncate(before);
                return Ok(Outcome::Unchanged);
            }
            out.extend_from_slice(body(array));
            let n = array.count();
            for (i, v) in self.values.iter().enumerate() {
                v.put(IndexName::new(n + i).as_bytes(), out);
            }
        } else {
            self.rearrange(array, out);
        }
        close(out, start);
        if let Some(old) = t.old
            && out.get(start..) == Some(old.raw_value())
        {
            out.truncate(before);
            return Ok(Outcome::Unchanged);
        }
        Ok(Outcome::Changed)
    }

    fn depth(&self) -> usize {
        1 + self.values.iter().map(Raw::depth).max().unwrap_or(0)
    }
}

impl Push {
    /// The general case: makes a list of views of the elements, rearranges it, and copies the elements.
    fn rearrange(&self, array: Doc<'_>, out: &mut Vec<u8>) {
        let mut items: Vec<Value<'_>> = array.values().collect();
        let len = items.len();
        let at = match self.position {
            None => len,
            Some(p) if p >= 0 => usize::try_from(p).unwrap_or(len).min(len),
            Some(p) => len.saturating_sub(usize::try_from(p.unsigned_abs()).unwrap_or(len)),
        };
        let tail = items.split_off(at);
        items.extend(self.values.iter().map(Raw::value));
        items.extend(tail);
        if let Some(sort) = &self.sort {
            items.sort_by(|a, b| sort.cmp(*a, *b, &self.collation));
        }
        let len = items.len();
        let range = match self.slice {
            None => 0..len,
            Some(n) if n >= 0 => 0..usize::try_from(n).unwrap_or(len).min(len),
            Some(n) => len.saturating_sub(usize::try_from(n.unsigned_abs()).unwrap_or(len))..len,
        };
        for (i, item) in items.get(range).unwrap_or_default().iter().enumerate() {
            crate::bytes::put(out, IndexName::new(i).as_bytes(), item);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_push() {
        table(&[
            ("{a:[1]}", "{$push:{a:2}}", "{a:[1,2]}"),
            ("{}", "{$push:{a:2}}", "{a:[2]}"),
            ("{}", "{$push:{'a.b':2}}", "{a:{b:[2]}}"),
            ("{a:[1]}", "{$push:{a:[2,3]}}", "{a:[1,[2,3]]}"),
            ("{a:[1]}", "{$push:{a:{$each:[2,3]}}}", "{a:[1,2,3]}"),
            ("{a:[1]}", "{$push:{a:{$each:[]}}}", "="),
            ("{}", "{$push:{a:{$each:[]}}}", "{a:[]}"),
            (
                "{a:[1,2,3]}",
                "{$push:{a:{$each:[9],$position:1}}}",
                "{a:[1,9,2,3]}",
            ),
            (
                "{a:[1,2,3]}",
                "{$push:{a:{$each:[9],$position:-1}}}",
                "{a:[1,2,9,3]}",
            ),
            (
                "{a:[1,2,3]}",
                "{$push:{a:{$each:[9],$position:77}}}",
                "{a:[1,2,3,9]}",
            ),
            (
                "{a:[1,2,3]}",
                "{$push:{a:{$each:[9],$position:-77}}}",
                "{a:[9,1,2,3]}",
            ),
            (
                "{a:[1,2,3]}",
                "{$push:{a:{$each:[4],$slice:-2}}}",
                "{a:[3,4]}",
            ),
            (
                "{a:[1,2,3]}",
                "{$push:{a:{$each:[4],$slice:2}}}",
                "{a:[1,2]}",
            ),
            ("{a:[1,2,3]}", "{$push:{a:{$each:[4],$slice:0}}}", "{a:[]}"),
            ("{a:[1,2]}", "{$push:{a:{$each:[3],$slice:2}}}", "="),
            (
                "{a:[3,1]}",
                "{$push:{a:{$each:[2],$sort:1}}}",
                "{a:[1,2,3]}",
            ),
            (
                "{a:[3,1]}",
                "{$push:{a:{$each:[2],$sort:-1,$slice:2}}}",
                "{a:[3,2]}",
            ),
            (
                "{a:[{x:2,y:1},{x:1,y:1}]}",
                "{$push:{a:{$each:[{x:0}],$sort:{y:1,x:1}}}}",
                "{a:[{x:0},{x:1,y:1},{x:2,y:1}]}",
            ),
            (
                "{a:[{x:{z:2}}]}",
                "{$push:{a:{$each:[{x:{z:1}}],$sort:{'x.z':1}}}}",
                "{a:[{x:{z:1}},{x:{z:2}}]}",
            ),
            (
                "{_id:1,a:'s'}",
                "{$push:{a:1}}",
                "2: The field 'a' must be an array but is of type string in document {_id: 1}",
            ),
            (
                "{}",
                "{$push:{a:{$each:1}}}",
                "2: The argument to $each in $push must be an array but it was of type: int",
            ),
            (
                "{}",
                "{$push:{a:{$each:[],$slice:'x'}}}",
                "2: The value for $slice must be an integer value but was given type: string",
            ),
            (
                "{}",
                "{$push:{a:{$each:[],$position:'x'}}}",
                "2: The value for $position must be an integer value, not of type: string",
            ),
            (
                "{}",
                "{$push:{a:{$each:[],$sort:2}}}",
                "2: The $sort element value must be either 1 or -1",
            ),
            (
                "{}",
                "{$push:{a:{$each:[],$foo:2}}}",
                "2: Unrecognized clause in $push: $foo",
            ),
        ]);
    }
}
