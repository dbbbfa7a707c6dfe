//! `type` and `bsonType`.

use super::parse::{Keywords, mismatch, refuse};
use super::{KeywordSpec, Rule, considered};
use muniment_value::{DocBuf, Error, Result, Type, Value, ValueBuf};

/// `type`, with JSON's type names.
pub(super) const TYPE: KeywordSpec = KeywordSpec {
    name: "type",
    doc: "The JSON type, or one of several",
    parse: |k, v| {
        if k.doc.get_elem("bsonType").is_some() {
            return Err(Error::failed_to_parse(
                "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
            ));
        }
        parse("type", v, json_type)
    },
};

/// `bsonType`, with the aliases of `$type`.
pub(super) const BSON_TYPE: KeywordSpec = KeywordSpec {
    name: "bsonType",
    doc: "The BSON type, or one of several",
    parse: |_: &Keywords<'_>, v| parse("bsonType", v, bson_type),
};

const NUMBERS: &[Type] = &[Type::Double, Type::Int32, Type::Int64, Type::Decimal128];

fn unknown(name: &str) -> Error {
    match name {
        "integer" => {
            Error::failed_to_parse("$jsonSchema type 'integer' is not currently supported.")
        }
        name => Error::bad_value(format!("Unknown type name alias: {name}")),
    }
}

fn json_type(name: &str, out: &mut Vec<Type>) -> Result<()> {
    match name {
        "array" => out.push(Type::Array),
        "boolean" => out.push(Type::Bool),
        "null" => out.push(Type::Null),
        "number" => out.extend(NUMBERS),
        "object" => out.push(Type::Document),
        "string" => out.push(Type::String),
        name => return Err(unknown(name)),
    }
    Ok(())
}

fn bson_type(name: &str, out: &mut Vec<Type>) -> Result<()> {
    if name == "number" {
        out.extend(NUMBERS);
        return Ok(());
    }
    let known = (0..=u8::MAX)
        .filter_map(Type::from_byte)
        .find(|t| t.name() == name)
        .ok_or_else(|| unknown(name))?;
    out.push(known);
    Ok(())
}

#[derive(Debug)]
struct Types {
    keyword: &'static str,
    types: Vec<Type>,
    operand: ValueBuf,
}

/// The types that an operand of `bsonType` names.
pub(super) fn bson_types(v: Value<'_>) -> Result<Vec<Type>> {
    named("bsonType", v, bson_type)
}

type Add = fn(&str, &mut Vec<Type>) -> Result<()>;

fn named(keyword: &str, v: Value<'_>, add: Add) -> Result<Vec<Type>> {
    let mut types = Vec::new();
    match v {
        Value::String(name) => add(name, &mut types)?,
        Value::Array(list) => {
            let mut seen = std::collections::HashSet::new();
            for v in list.values() {
                let Value::String(name) = v else {
                    return Err(mismatch(keyword, "an array of strings"));
                };
                if !seen.insert(name) {
                    return Err(refuse(keyword, &format!("has duplicate value: '{name}'")));
                }
                add(name, &mut types)?;
            }
            if types.is_empty() {
                return Err(refuse(keyword, "must name at least one type"));
            }
        }
        _ => return Err(mismatch(keyword, "either a string or an array of strings")),
    }
    Ok(types)
}

fn parse(keyword: &'static str, v: Value<'_>, add: Add) -> Result<Option<Box<dyn Rule>>> {
    Ok(Some(Box::new(Types {
        keyword,
        types: named(keyword, v, add)?,
        operand: ValueBuf::new(v),
    })))
}

impl Rule for Types {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok(self.types.contains(&v.ty()))
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let operand = self.operand.as_value();
        let mut d = considered(self.keyword, operand, "type did not match", v);
        d.append("consideredType", v.type_name());
        Ok(d)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{explains, fails, valid};

    #[test]
    fn table_test() {
        valid("{'type': 'object'}", &["{}"], &[]);
        valid("{'bsonType': 'array'}", &[], &["{}"]);
        valid(
            "{'properties': {'a': {'type': ['number', 'boolean']}}}",
            &["{}", "{'a': 1}", "{'a': 1.5}", "{'a': true}"],
            &["{'a': 'x'}", "{'a': null}", "{'a': [1]}"],
        );
        valid(
            "{'properties': {'a': {'bsonType': ['int', 'objectId']}}}",
            &["{'a': 1}"],
            &["{'a': 1.5}"],
        );
        fails("{'type': 'int'}", 2, "Unknown type name alias: int");
        fails(
            "{'bsonType': 'boolean'}",
            2,
            "Unknown type name alias: boolean",
        );
        fails(
            "{'bsonType': 'integer'}",
            9,
            "$jsonSchema type 'integer' is not currently supported.",
        );
        fails(
            "{'type': 'object', 'bsonType': 'object'}",
            9,
            "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
        );
        fails(
            "{'type': 1}",
            14,
            "$jsonSchema keyword 'type' must be either a string or an array of strings",
        );
        fails(
            "{'type': []}",
            9,
            "$jsonSchema keyword 'type' must name at least one type",
        );
        fails(
            "{'type': ['null', 'null']}",
            9,
            "$jsonSchema keyword 'type' has duplicate value: 'null'",
        );
        explains(
            "{'properties': {'a': {'bsonType': 'string'}}}",
            "{'a': 1}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'details': [{'operatorName': 'bsonType', 'specifiedAs': {'bsonType': 'string'}, \
              'reason': 'type did not match', 'consideredValue': 1, 'consideredType': 'int'}]}]}]",
        );
    }
}
