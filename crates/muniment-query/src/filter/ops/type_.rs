//! `$type`: BSON types by number or alias.

use super::OpSpec;
use crate::filter::parse::FieldOperand;
use crate::filter::{FieldOp, Pred};
use crate::running::Work;
use muniment_value::{Error, Result, Type, Value, ValueBuf};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::field(
    "$type",
    "A value of one of these BSON types, by number or alias; \"number\" is all numeric types.",
    |_, o| parse(o),
);

#[derive(Debug)]
struct Types {
    types: Vec<Type>,
    operand: ValueBuf,
}

fn all_types() -> impl Iterator<Item = Type> {
    (0..=u8::MAX).filter_map(Type::from_byte)
}

fn add(v: Value<'_>, types: &mut Vec<Type>) -> Result<()> {
    match v {
        Value::String("number") => {
            types.extend([Type::Double, Type::Int32, Type::Int64, Type::Decimal128]);
        }
        Value::String(name) => types.push(
            all_types()
                .find(|t| t.name() == name)
                .ok_or_else(|| Error::bad_value(format!("Unknown type name alias: {name}")))?,
        ),
        v if v.is_number() => {
            let known = v
                .as_i64_exact()
                .and_then(|n| all_types().find(|t| i64::from(t.number()) == n));
            types.push(known.ok_or_else(|| {
                Error::bad_value(format!("Invalid numerical type code: {}", v.to_display()))
            })?);
        }
        _ => {
            return Err(Error::type_mismatch(
                "type must be represented as a number or a string",
            ));
        }
    }
    Ok(())
}

fn parse(o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let mut types = Vec::new();
    match o.value {
        Value::Array(items) => {
            for v in items.values() {
                add(v, &mut types)?;
            }
            if types.is_empty() {
                return Err(Error::failed_to_parse(format!(
                    "{} must match at least one type",
                    o.path
                )));
            }
        }
        v => add(v, &mut types)?,
    }
    Ok(Some(Pred::Other(Arc::new(Types {
        types,
        operand: ValueBuf::new(o.value),
    }))))
}

impl Types {
    fn holds(&self, value: Option<Value<'_>>) -> bool {
        value.is_some_and(|v| self.types.contains(&v.ty()))
    }
}

impl FieldOp for Types {
    fn name(&self) -> &'static str {
        "$type"
    }

    fn operand(&self) -> ValueBuf {
        self.operand.clone()
    }

    fn types(&self) -> Option<&[Type]> {
        Some(&self.types)
    }

    fn matches(&self, value: Option<Value<'_>>, _: Work<'_>) -> Result<bool> {
        Ok(self.holds(value))
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$type': 'string'}}",
            &["{'a': 'x'}", "{'a': [1, 'x']}"],
            &["{'a': 1}", "{}"],
        );
        matches("{'a': {'$type': 16}}", &["{'a': 1}"], &["{'a': 1.0}"]);
        matches(
            "{'a': {'$type': 'number'}}",
            &["{'a': 1}", "{'a': 1.5}", "{'a': ['$long', 5]}"],
            &["{'a': 'x'}"],
        );
        matches(
            "{'a': {'$type': 'array'}}",
            &["{'a': []}", "{'a': [[]]}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$type': ['null', 'bool']}}",
            &["{'a': null}", "{'a': true}"],
            &["{}"],
        );
        matches(
            "{'a': {'$type': -1}}",
            &["{'a': ['$minKey']}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$type': 127}}",
            &["{'a': ['$maxKey']}"],
            &["{'a': 1}"],
        );
        fails("{'a': {'$type': 'foo'}}", 2, "Unknown type name alias: foo");
        fails("{'a': {'$type': 99}}", 2, "Invalid numerical type code: 99");
        fails(
            "{'a': {'$type': true}}",
            14,
            "type must be represented as a number or a string",
        );
        fails("{'a': {'$type': []}}", 9, "a must match at least one type");
        fails(
            "{'a': {'$elemMatch': {'b.c': {'$not': {'$type': []}}}}}",
            9,
            "b.c must match at least one type",
        );
        fails(
            "{'a': {'$elemMatch': {'$type': []}}}",
            9,
            " must match at least one type",
        );
    }
}
