//! `encrypt` and `encryptMetadata`: values that clients have encrypted (client-side field level encryption).
//! The server has no key; it checks that a value is encrypted, and of which type it says to be.
//!
//! Source: the MongoDB manual, "Encryption Schemas", and the subtype 6 of the specification "Client Side
//! Encryption": a byte for the algorithm (1 deterministic, 2 random), the key's 16 bytes, a byte for the type
//! of the plain value, the encrypted value.

use super::parse::{Keywords, mismatch, refuse};
use super::types::bson_types;
use super::{KeywordSpec, Rule, considered};
use muniment_value::{Doc, DocBuf, Result, Type, Value, ValueBuf};

/// The subtype of encrypted values.
const SUBTYPE: u8 = 6;
/// The place of the byte for the type of the plain value.
const TYPE_AT: usize = 17;
/// The shortest encrypted value.
const SHORTEST: usize = TYPE_AT + 1;

/// `encrypt`.
pub(super) const ENCRYPT: KeywordSpec = KeywordSpec {
    name: "encrypt",
    doc: "The value was encrypted by the client, from one of some types",
    parse: |k, v| {
        let Value::Document(options) = v else {
            return Err(mismatch("encrypt", &object(v)));
        };
        check_neighbours(k)?;
        let mut types = Vec::new();
        let mut deterministic = None;
        for e in options {
            match (e.name(), e.value()) {
                ("bsonType", v) => types = bson_types(v)?,
                ("algorithm", Value::String(name)) => {
                    deterministic = Some(algorithm(name)?);
                }
                // It may be the path of a field that names the key.
                ("keyId", Value::Array(_) | Value::String(_)) => {}
                ("algorithm" | "keyId", v) => {
                    return Err(refuse(
                        "encrypt",
                        &format!("has {} of the type {}", e.name(), v.type_name()),
                    ));
                }
                (name, _) => {
                    return Err(refuse("encrypt", &format!("has an unknown field '{name}'")));
                }
            }
        }
        Ok(Some(Box::new(Encrypted {
            types,
            deterministic,
            operand: ValueBuf::new(v),
        })))
    },
};

/// `encryptMetadata`.
pub(super) const METADATA: KeywordSpec = KeywordSpec {
    name: "encryptMetadata",
    doc: "The algorithm and the key of encrypted fields below, for clients; without effect",
    parse: |_, v| {
        let Value::Document(options) = v else {
            return Err(mismatch("encryptMetadata", &object(v)));
        };
        check_metadata(options)?;
        Ok(None)
    },
};

fn object(v: Value<'_>) -> String {
    format!("an object, not {}", v.type_name())
}

/// An encrypted value has no properties, lengths or ranges that the server could check.
fn check_neighbours(k: &Keywords<'_>) -> Result<()> {
    let mut others = k.doc.into_iter().map(|e| e.name());
    let allowed = |name: &str| matches!(name, "encrypt" | "title" | "description");
    match others.find(|name| !allowed(name)) {
        None => Ok(()),
        Some(name) => Err(refuse(
            "encrypt",
            &format!("cannot be used in conjunction with '{name}'"),
        )),
    }
}

fn check_metadata(options: Doc<'_>) -> Result<()> {
    for e in options {
        match (e.name(), e.value()) {
            ("algorithm", Value::String(name)) => _ = algorithm(name)?,
            ("keyId", Value::Array(_) | Value::String(_)) => {}
            (name, _) => {
                return Err(refuse(
                    "encryptMetadata",
                    &format!("has a field '{name}' that is unknown or of a wrong type"),
                ));
            }
        }
    }
    Ok(())
}

/// Whether the algorithm of this name is deterministic.
fn algorithm(name: &str) -> Result<bool> {
    match name {
        "AEAD_AES_256_CBC_HMAC_SHA_512-Deterministic" => Ok(true),
        "AEAD_AES_256_CBC_HMAC_SHA_512-Random" => Ok(false),
        _ => Err(refuse(
            "encrypt",
            &format!("has an unknown algorithm '{name}'"),
        )),
    }
}

#[derive(Debug)]
struct Encrypted {
    /// Of one of these, if there are any.
    types: Vec<Type>,
    deterministic: Option<bool>,
    operand: ValueBuf,
}

impl Rule for Encrypted {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        let Value::Binary {
            subtype: SUBTYPE,
            bytes,
        } = v
        else {
            return Ok(false);
        };
        let deterministic = match bytes.first() {
            Some(1) => true,
            Some(2) => false,
            // What queryable encryption stores says nothing that could be checked here.
            _ => return Ok(self.types.is_empty() && self.deterministic.is_none()),
        };
        let plain = bytes.get(TYPE_AT).and_then(|b| Type::from_byte(*b));
        Ok(bytes.len() >= SHORTEST
            && self.deterministic.is_none_or(|d| d == deterministic)
            && (self.types.is_empty() || plain.is_some_and(|t| self.types.contains(&t))))
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let reason = match v {
            Value::Binary {
                subtype: SUBTYPE, ..
            } => "the encrypted value is of another type or algorithm",
            _ => "value was not encrypted",
        };
        Ok(considered("encrypt", self.operand.as_value(), reason, v))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Schema;
    use super::super::testing::{explains, fails, valid};
    use crate::expr::testing::json;
    use muniment_value::{Value, doc};

    /// Whether the schema accepts binary data as the field `a`.
    fn accepts(encrypt: &str, subtype: u8, bytes: &[u8]) -> bool {
        let schema = json(&format!(
            "{{'properties': {{'a': {{'encrypt': {encrypt}}}}}}}"
        ));
        let schema = Schema::parse(schema.as_doc()).unwrap();
        let d = doc! { "a": Value::Binary { subtype, bytes } };
        schema.matches(Value::Document(d.as_doc())).unwrap()
    }

    #[test]
    fn table_test() {
        let text = [&[1][..], &[7; 16], &[2], &[9; 40]].concat();
        let number = [&[2][..], &[7; 16], &[16], &[9; 40]].concat();
        let queryable = [&[14][..], &[7; 60]].concat();
        let random = "{'algorithm': 'AEAD_AES_256_CBC_HMAC_SHA_512-Random', 'keyId': '/key'}";
        for (encrypt, subtype, bytes, accepted) in [
            ("{}", 6, &text, true),
            ("{}", 6, &queryable, true),
            ("{}", 0, &text, false),
            ("{'bsonType': 'string'}", 6, &text, true),
            ("{'bsonType': 'string'}", 6, &number, false),
            ("{'bsonType': 'string'}", 6, &queryable, false),
            ("{'bsonType': ['string', 'int']}", 6, &number, true),
            (random, 6, &number, true),
            (random, 6, &text, false),
        ] {
            assert_eq!(accepts(encrypt, subtype, bytes), accepted, "{encrypt}");
        }
        assert!(!accepts("{'bsonType': 'string'}", 6, &text[..17]));
        valid(
            "{'encryptMetadata': {'keyId': '/k'}, 'properties': {'a': {'encrypt': {}}}}",
            &["{}"],
            &["{'a': 'plain'}", "{'a': null}"],
        );
        fails(
            "{'encrypt': 1}",
            14,
            "$jsonSchema keyword 'encrypt' must be an object, not int",
        );
        fails(
            "{'properties': {'a': {'encrypt': {}, 'bsonType': 'string'}}}",
            9,
            "$jsonSchema keyword 'encrypt' cannot be used in conjunction with 'bsonType'",
        );
        fails(
            "{'encrypt': {'algorithm': 'ROT13'}}",
            9,
            "$jsonSchema keyword 'encrypt' has an unknown algorithm 'ROT13'",
        );
        fails(
            "{'encrypt': {'key': 1}}",
            9,
            "$jsonSchema keyword 'encrypt' has an unknown field 'key'",
        );
        fails(
            "{'encryptMetadata': {'algorithm': 1}}",
            9,
            "$jsonSchema keyword 'encryptMetadata' has a field 'algorithm' that is unknown or of a \
             wrong type",
        );
        explains(
            "{'properties': {'a': {'encrypt': {}}}}",
            "{'a': 1}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'details': [{'operatorName': 'encrypt', 'specifiedAs': {'encrypt': {}}, \
              'reason': 'value was not encrypted', 'consideredValue': 1}]}]}]",
        );
    }
}
