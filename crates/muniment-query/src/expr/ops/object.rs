//! `$mergeObjects`, `$objectToArray`, `$arrayToObject`, `$getField`.

use super::{NULL, arg, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::{Error, Result, Value};
use std::collections::HashMap;

/// Fields in the order of their first appearance, each with its last value.
struct Fields<'a, T> {
    list: Vec<(&'a str, T)>,
    places: HashMap<&'a str, usize>,
}

impl<'a, T> Fields<'a, T> {
    fn new() -> Fields<'a, T> {
        Fields {
            list: Vec::new(),
            places: HashMap::new(),
        }
    }

    fn put(&mut self, name: &'a str, value: T) {
        let place = *self.places.entry(name).or_insert(self.list.len());
        match self.list.get_mut(place) {
            Some((_, old)) => *old = value,
            None => self.list.push((name, value)),
        }
    }
}

/// The specification of `$mergeObjects`.
pub(super) const MERGE_OBJECTS: OpSpec = OpSpec::new(
    "$mergeObjects",
    Arity::Any,
    "One object with the fields of all (or of the elements of a single array); later ones win.",
    merge_objects,
);

fn merge_objects<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let mut fields = Fields::new();
    let mut merge = |v: Value<'a>| {
        let d = match v {
            Value::Null | Value::Undefined => return Ok(()),
            Value::Document(d) => d,
            v => {
                return Err(Error::location(
                    40400,
                    format!(
                        "$mergeObjects requires object inputs, but input {} is of type {}",
                        v.to_display(),
                        v.type_name()
                    ),
                ));
            }
        };
        for x in d {
            fields.put(x.name(), x);
        }
        Ok(())
    };
    for e in args {
        match e.eval(ctx)? {
            Some(Value::Array(items)) if args.len() == 1 => {
                items.values().try_for_each(&mut merge)?;
            }
            Some(v) => merge(v)?,
            None => {}
        }
    }
    let out = arena::build_doc(ctx.arena, |w| {
        for (name, f) in &fields.list {
            w.put(name, f);
        }
        Ok(())
    })?;
    Ok(Some(Value::Document(out)))
}

/// The specification of `$objectToArray`.
pub(super) const OBJECT_TO_ARRAY: OpSpec = OpSpec::new(
    "$objectToArray",
    Arity::Exactly(1),
    "The fields of an object as {k, v} pairs.",
    |args, ctx| match arg_some(args, 0, ctx)? {
        None => NULL,
        Some(Value::Document(d)) => {
            let out = arena::build_array(ctx.arena, |w| {
                for e in d {
                    let pair = arena::build_doc(ctx.arena, |w| {
                        w.put("k", e.name());
                        w.put("v", &e);
                        Ok(())
                    })?;
                    w.push(&pair)?;
                }
                Ok(())
            })?;
            Ok(Some(Value::Array(out)))
        }
        Some(v) => Err(Error::location(
            40390,
            format!(
                "$objectToArray requires a document input, found: {}",
                v.type_name()
            ),
        )),
    },
);

/// The specification of `$arrayToObject`.
pub(super) const ARRAY_TO_OBJECT: OpSpec = OpSpec::new(
    "$arrayToObject",
    Arity::Exactly(1),
    "An object from {k, v} pairs or [key, value] pairs; later ones win.",
    array_to_object,
);

/// The key and the value that an element of the array describes, and the code for a key that is no string. All
/// elements must have the form of the first one.
fn pair<'a>(v: Value<'a>, first: Option<Value<'a>>) -> Result<(Value<'a>, Value<'a>, i32)> {
    match v {
        v if matches!(first, Some(Value::Document(_))) && !matches!(v, Value::Document(_)) => {
            Err(Error::location(
                40391,
                format!(
                    "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Object was detected, now found: {}",
                    v.type_name()
                ),
            ))
        }
        v if matches!(first, Some(Value::Array(_))) && !matches!(v, Value::Array(_)) => {
            Err(Error::location(
                40396,
                format!(
                    "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Array was detected, now found: {}",
                    v.type_name()
                ),
            ))
        }
        Value::Array(pair) => {
            let mut pair = pair.values();
            match (pair.next(), pair.next(), pair.next()) {
                (Some(k), Some(v), None) => Ok((k, v, 40395)),
                _ => Err(Error::location(
                    40397,
                    "$arrayToObject requires an array of size 2 arrays,found array of another size",
                )),
            }
        }
        Value::Document(d) => match (d.get("k"), d.get("v"), d.count()) {
            (Some(k), Some(v), 2) => Ok((k, v, 40394)),
            (_, _, 2) => Err(Error::location(
                40393,
                "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from the object",
            )),
            (_, _, n) => Err(Error::location(
                40392,
                format!(
                    "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{n}"
                ),
            )),
        },
        v => Err(Error::location(
            40398,
            format!(
                "Unrecognised input type format for $arrayToObject: {}",
                v.type_name()
            ),
        )),
    }
}

fn array_to_object<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let items = match arg_some(args, 0, ctx)? {
        None => return NULL,
        Some(Value::Array(items)) => items,
        Some(v) => {
            return Err(Error::location(
                40386,
                format!(
                    "$arrayToObject requires an array input, found: {}",
                    v.type_name()
                ),
            ));
        }
    };
    let mut fields = Fields::new();
    let first = items.values().next();
    for v in items.values() {
        let (key, value, code) = pair(v, first)?;
        let Value::String(key) = key else {
            return Err(Error::location(
                code,
                format!(
                    "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. Found type: {}",
                    key.type_name()
                ),
            ));
        };
        if key.contains('\0') {
            return Err(Error::location(
                if code == 40394 { 4940401 } else { 4940400 },
                "Key field cannot contain an embedded null byte",
            ));
        }
        fields.put(key, value);
    }
    let out = arena::build_doc(ctx.arena, |w| {
        for (k, v) in &fields.list {
            w.put(k, v);
        }
        Ok(())
    })?;
    Ok(Some(Value::Document(out)))
}

/// The specification of `$getField`.
pub(super) const GET_FIELD: OpSpec = OpSpec::new(
    "$getField",
    Arity::Custom(parse_get_field),
    "The field of this very name (dots and dollars count as characters) of an object.",
    |args, ctx| {
        let name = match arg(args, 0, ctx)? {
            Some(Value::String(s)) => s,
            v => {
                return Err(Error::location(
                    3041704,
                    format!(
                        "$getField requires 'field' to evaluate to type String, but got {}",
                        super::type_name(v)
                    ),
                ));
            }
        };
        Ok(match arg(args, 1, ctx)? {
            Some(Value::Document(d)) => d.get(name),
            None => None,
            Some(v) if v.is_nullish() => Some(Value::Null),
            Some(_) => None,
        })
    },
);

fn parse_get_field(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let root = Value::String("$$CURRENT");
    match operand {
        Value::Document(d) if d.first().is_none_or(|e| !e.name().starts_with('$')) => {
            let named = super::Named::read(
                "$getField",
                Value::Document(d),
                ["field", "input"],
                3041701,
                3041701,
            )?;
            let field = p.parse(named.need(0, 3041702)?)?;
            let input = p.parse(named.need(1, 3041703)?)?;
            Ok(vec![field, input])
        }
        v => Ok(vec![p.parse(v)?, p.parse(root)?]),
    }
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': {'x': 1, 'y': 2}, 'n': null, 's': 'z', 'p.q': 7}",
            &[
                (
                    "{'$mergeObjects': ['$a', {'y': 3, 'z': 4}]}",
                    Gives("{'x': 1, 'y': 3, 'z': 4}"),
                ),
                ("{'$mergeObjects': ['$n', '$missing']}", Gives("{}")),
                ("{'$mergeObjects': '$a'}", Gives("{'x': 1, 'y': 2}")),
                ("{'$mergeObjects': ['$s']}", Fails(40400)),
                (
                    "{'$mergeObjects': [[{'x': 1}, null, {'y': 2}]]}",
                    Gives("{'x': 1, 'y': 2}"),
                ),
                (
                    "{'$objectToArray': '$a'}",
                    Gives("[{'k': 'x', 'v': 1}, {'k': 'y', 'v': 2}]"),
                ),
                ("{'$objectToArray': '$n'}", Gives("null")),
                ("{'$objectToArray': '$s'}", Fails(40390)),
                (
                    "{'$arrayToObject': [[['x', 1], ['y', 2], ['x', 3]]]}",
                    Gives("{'x': 3, 'y': 2}"),
                ),
                (
                    "{'$arrayToObject': {'$objectToArray': '$a'}}",
                    Gives("{'x': 1, 'y': 2}"),
                ),
                ("{'$arrayToObject': [[['x']]]}", Fails(40397)),
                ("{'$arrayToObject': [[{'k': 'x'}]]}", Fails(40392)),
                ("{'$arrayToObject': [[{'k': 1, 'v': 1}]]}", Fails(40394)),
                ("{'$arrayToObject': [[[1, 2]]]}", Fails(40395)),
                ("{'$arrayToObject': [[1]]}", Fails(40398)),
                ("{'$arrayToObject': '$s'}", Fails(40386)),
                ("{'$getField': 'p.q'}", Gives("7")),
                ("{'$getField': {'field': 'x', 'input': '$a'}}", Gives("1")),
                (
                    "{'$getField': {'field': 'x', 'input': '$n'}}",
                    Gives("null"),
                ),
                ("{'$getField': {'field': 'w', 'input': '$a'}}", Missing),
                ("{'$getField': {'field': 1, 'input': '$a'}}", Fails(3041704)),
                ("{'$getField': {'field': 'x'}}", Fails(3041703)),
            ],
        );
    }
}
