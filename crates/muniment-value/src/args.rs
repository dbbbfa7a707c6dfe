//! The fields of a command or a configuration, checked once against a table.
//!
//! Invariants: a field that is not in the table is 40415, of another type 14, given twice 40413, missing
//! although required 40414, each with MongoDB's message; null counts as absent wherever the table gives types
//! (as in MongoDB's own argument parser). So no argument is ignored silently: for each field that is accepted
//! without being used, the table has the reason.

use crate::{Code, Collation, Doc, Elem, Error, Result, Type, Value};

/// A set of BSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types(u32);

impl Types {
    /// Any type, null included.
    pub const ANY: Types = Types(u32::MAX);
    /// double
    pub const DOUBLE: Types = Types(1 << 1);
    /// string
    pub const STRING: Types = Types(1 << 2);
    /// object
    pub const OBJECT: Types = Types(1 << 3);
    /// array
    pub const ARRAY: Types = Types(1 << 4);
    /// binData
    pub const BINARY: Types = Types(1 << 5);
    /// bool
    pub const BOOL: Types = Types(1 << 8);
    /// javascript
    pub const CODE: Types = Types(1 << 13);
    /// int
    pub const INT: Types = Types(1 << 16);
    /// timestamp
    pub const TIMESTAMP: Types = Types(1 << 17);
    /// long
    pub const LONG: Types = Types(1 << 18);
    /// decimal
    pub const DECIMAL: Types = Types(1 << 19);
    /// The four numeric types.
    pub const NUMBER: Types = Types(1 << 1 | 1 << 16 | 1 << 18 | 1 << 19);
    /// bool or a number.
    pub const SAFE_BOOL: Types = Types(1 << 8 | 1 << 1 | 1 << 16 | 1 << 18 | 1 << 19);

    /// The union of two sets.
    pub const fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// True if `ty` is in the set.
    pub fn has(self, ty: Type) -> bool {
        self == Types::ANY || self.0 & Self::bit(ty) != 0
    }

    fn bit(ty: Type) -> u32 {
        let n = ty as u8;
        if n < 32 { 1 << n } else { 0 }
    }

    /// The names of the types, in the order in which MongoDB lists them.
    pub fn names(self) -> Vec<&'static str> {
        const ORDER: [Type; 12] = [
            Type::String,
            Type::Code,
            Type::Document,
            Type::Array,
            Type::Binary,
            Type::Timestamp,
            Type::Bool,
            Type::Int64,
            Type::Int32,
            Type::Decimal128,
            Type::Double,
            Type::ObjectId,
        ];
        ORDER
            .into_iter()
            .filter(|t| self.has(*t))
            .map(Type::name)
            .collect()
    }
}

/// What a command does with a field that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The command acts on it.
    Used,
    /// It is accepted and has no effect here; the text says why.
    NoEffect(&'static str),
    /// It is not supported: 238 NotImplemented, unless it is false, null, 0 or empty.
    Refused,
}

/// One field of a command.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The types it may have.
    pub types: Types,
    /// Its absence is an error.
    pub required: bool,
    /// What the command does with it.
    pub used: Use,
}

/// An optional field.
pub const fn opt(name: &'static str, types: Types) -> Field {
    Field {
        name,
        types,
        required: false,
        used: Use::Used,
    }
}

/// A required field.
pub const fn req(name: &'static str, types: Types) -> Field {
    Field {
        name,
        types,
        required: true,
        used: Use::Used,
    }
}

/// A field that is accepted without an effect. It is only for fields that MongoDB itself documents as
/// ignored, and for those that ask for something that is always so here. `why` tells which of the two.
pub const fn idle(name: &'static str, types: Types, why: &'static str) -> Field {
    Field {
        name,
        types,
        required: false,
        used: Use::NoEffect(why),
    }
}

/// A field that is refused unless its value asks for nothing.
pub const fn refused(name: &'static str, types: Types) -> Field {
    Field {
        name,
        types,
        required: false,
        used: Use::Refused,
    }
}

/// The most fields that a table may have.
pub const MAX_FIELDS: usize = 32;

/// The fields of one document that are in its table and were given.
#[derive(Clone)]
pub struct Args<'a> {
    path: &'static str,
    fields: &'static [Field],
    /// The first fields that are given. Few commands have more, so that most need no allocation.
    few: [Option<Elem<'a>>; 6],
    more: Vec<Elem<'a>>,
}

impl<'a> Args<'a> {
    /// Checks the elements against `fields`; errors name `<path>.<field>`. `other` is called for each element
    /// that is not in the table, and returns whether it knows it.
    ///
    /// # Errors
    /// 14, 40413, 40414, 40415, 238; the errors of `other`.
    pub fn parse_with(
        path: &'static str,
        fields: &'static [Field],
        elems: impl Iterator<Item = Elem<'a>>,
        mut other: impl FnMut(Elem<'a>) -> Result<bool>,
    ) -> Result<Args<'a>> {
        let mut args = Args {
            path,
            fields,
            few: [None; 6],
            more: Vec::new(),
        };
        // Which fields were given: one bit for each place of the table.
        let mut found = 0u32;
        for e in elems {
            let at = fields.iter().position(|f| e.is_named(f.name));
            let Some((bit, field)) = at.and_then(|i| Some((1 << i, fields.get(i)?))) else {
                if !other(e)? {
                    return Err(unknown_field(path, e.name()));
                }
                continue;
            };
            if found & bit != 0 {
                return Err(duplicate_field(path, field.name));
            }
            if field.types != Types::ANY {
                if matches!(e.ty(), Type::Null | Type::Undefined) {
                    continue;
                }
                check_type(path, field.name, field.types, e.ty())?;
            }
            if field.used == Use::Refused && !asks_nothing(e.value()) {
                return Err(Error::new(
                    Code::NotImplemented,
                    format!("BSON field '{path}.{}' is not supported", field.name),
                ));
            }
            found |= bit;
            args.push(e);
        }
        for (i, f) in fields.iter().enumerate() {
            if f.required && found & (1 << i) == 0 {
                return Err(missing_field(path, f.name));
            }
        }
        Ok(args)
    }

    fn push(&mut self, e: Elem<'a>) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(e),
            None => self.more.push(e),
        }
    }

    /// Checks a sub-document whose fields must all be in the table.
    ///
    /// # Errors
    /// As [`Args::parse_with`].
    pub fn parse(path: &'static str, fields: &'static [Field], doc: Doc<'a>) -> Result<Args<'a>> {
        Args::parse_with(path, fields, doc.iter(), |_| Ok(false))
    }

    /// The element of a field, if it was given.
    #[inline(never)]
    pub fn elem(&self, name: &str) -> Option<Elem<'a>> {
        debug_assert!(
            self.fields.iter().any(|f| f.name == name),
            "{name} is not in the table of {}",
            self.path
        );
        let given = self.few.iter().map_while(Option::as_ref).chain(&self.more);
        given.copied().find(|e| e.is_named(name))
    }

    /// The value of a field, if it was given.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.elem(name).map(|e| e.value())
    }

    /// A document field.
    pub fn doc(&self, name: &str) -> Option<Doc<'a>> {
        self.get(name).and_then(|v| v.as_doc())
    }

    /// An array field.
    pub fn array(&self, name: &str) -> Option<Doc<'a>> {
        self.get(name).and_then(|v| v.as_array())
    }

    /// A string field.
    pub fn str(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(|v| v.as_str())
    }

    /// A boolean field, which may also be given as a number.
    pub fn bool(&self, name: &str, default: bool) -> bool {
        self.get(name).map_or(default, |v| v.truthy())
    }

    /// A whole number between `min` and `max`, coerced as MongoDB does ([`to_i64_clamped`]).
    ///
    /// [`to_i64_clamped`]: crate::number::to_i64_clamped
    ///
    /// # Errors
    /// 2 BadValue outside the range.
    pub fn int(&self, name: &'static str, min: i64, max: i64) -> Result<Option<i64>> {
        let Some(v) = self.get(name) else {
            return Ok(None);
        };
        let Some(n) = crate::number::to_i64_clamped(v) else {
            return Ok(None);
        };
        if n < min {
            return Err(Error::bad_value(format!(
                "BSON field '{name}' value must be >= {min}, actual value '{n}'"
            )));
        }
        if n > max {
            return Err(Error::bad_value(format!(
                "BSON field '{name}' value must be <= {max}, actual value '{n}'"
            )));
        }
        Ok(Some(n))
    }
}

impl Args<'_> {
    /// The `collation`, or `None` if there is none or an empty one. The command then uses the collation of
    /// what it works on.
    ///
    /// # Errors
    /// As [`Collation::parse`].
    pub fn collation(&self) -> Result<Option<Collation>> {
        self.doc("collation")
            .filter(|d| !d.is_empty())
            .map(Collation::parse)
            .transpose()
    }
}

/// True for a value that asks for nothing: false, null, zero, an empty string, document or array.
fn asks_nothing(v: Value<'_>) -> bool {
    match v {
        Value::Document(d) | Value::Array(d) => d.is_empty(),
        Value::String(s) => s.is_empty(),
        v => !v.truthy(),
    }
}

/// 14 TypeMismatch unless `ty` is one of `types`.
///
/// # Errors
/// 14 with MongoDB's message.
pub fn check_type(path: &str, field: &str, types: Types, ty: Type) -> Result<()> {
    if types.has(ty) {
        return Ok(());
    }
    let names = types.names();
    let expected = match names.as_slice() {
        [one] => format!("expected type '{one}'"),
        many => format!("expected types '[{}]'", many.join(", ")),
    };
    Err(Error::type_mismatch(format!(
        "BSON field '{path}.{field}' is the wrong type '{}', {expected}",
        ty.name()
    )))
}

/// The UUID of a field that has one.
///
/// # Errors
/// 14 for another type or subtype, 207 InvalidUUID for another length.
pub fn uuid(path: &str, field: &str, v: Value<'_>) -> Result<[u8; 16]> {
    let (subtype, bytes) = match v {
        Value::Binary { subtype, bytes } => (subtype, bytes),
        v => {
            check_type(path, field, Types::BINARY, v.ty())?;
            (0, &[] as &[u8])
        }
    };
    if subtype != 4 {
        return Err(Error::type_mismatch(format!(
            "BSON field '{path}.{field}' is the wrong binData type '{}', expected type 'UUID'",
            subtype_name(subtype)
        )));
    }
    bytes.try_into().map_err(|_| {
        Error::new(
            Code::InvalidUUID,
            "uuid must be a 16-byte binary field with UUID (4) subtype",
        )
    })
}

/// The name of a subtype of binary data in messages.
fn subtype_name(subtype: u8) -> &'static str {
    match subtype {
        0 => "general",
        1 => "function",
        2 => "byte(deprecated)",
        3 => "UUID(deprecated)",
        4 => "UUID",
        5 => "MD5",
        6 => "encrypt",
        7 => "column",
        8 => "sensitive",
        9 => "vector",
        128 => "Custom",
        _ => "invalid",
    }
}

/// 40413: the field is given twice.
pub fn duplicate_field(path: &str, field: &str) -> Error {
    Error::location(
        40413,
        format!("BSON field '{path}.{field}' is a duplicate field"),
    )
}

/// 40415: the field is unknown.
pub fn unknown_field(path: &str, field: &str) -> Error {
    Error::location(
        40415,
        format!("BSON field '{path}.{field}' is an unknown field."),
    )
}

/// 40414: the field is missing.
pub fn missing_field(path: &str, field: &str) -> Error {
    Error::location(
        40414,
        format!("BSON field '{path}.{field}' is missing but a required field"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{DocBuf, doc};

    const FIELDS: &[Field] = &[
        req("filter", Types::OBJECT),
        opt("limit", Types::NUMBER),
        opt("single", Types::SAFE_BOOL),
        opt("any", Types::ANY),
        refused("exchange", Types::OBJECT),
    ];

    fn parse(d: &DocBuf) -> Result<Args<'_>> {
        Args::parse("find", FIELDS, d.as_doc())
    }

    #[test]
    fn errors_have_mongodbs_codes_and_texts() {
        let f = || doc! {};
        for (d, code, text) in [
            (
                doc! { "filter": 1 },
                14,
                "BSON field 'find.filter' is the wrong type 'int', expected type 'object'",
            ),
            (
                doc! { "limit": 1 },
                40414,
                "BSON field 'find.filter' is missing but a required field",
            ),
            (
                doc! { "filter": f(), "foo": 1 },
                40415,
                "BSON field 'find.foo' is an unknown field.",
            ),
            (
                doc! { "filter": f(), "filter": f() },
                40413,
                "BSON field 'find.filter' is a duplicate field",
            ),
            (
                doc! { "filter": f(), "single": "x" },
                14,
                "BSON field 'find.single' is the wrong type 'string', expected types '[bool, long, int, decimal, double]'",
            ),
            (
                doc! { "filter": f(), "exchange": doc! { "policy": "x" } },
                238,
                "BSON field 'find.exchange' is not supported",
            ),
            (
                doc! { "filter": None::<i32> },
                40414,
                "BSON field 'find.filter' is missing but a required field",
            ),
        ] {
            let e = parse(&d).err().unwrap();
            assert_eq!((e.code().0, e.message()), (code, text), "{d:?}");
        }
    }

    #[test]
    fn null_is_absent_and_values_come_back() {
        let d = doc! { "filter": doc! { "a": 1 }, "limit": None::<i32>, "single": 2.0,
        "exchange": doc! {}, "any": None::<i32> };
        let a = parse(&d).unwrap();
        assert_eq!(a.doc("filter").unwrap().count(), 1);
        assert!(a.get("limit").is_none());
        assert!(a.get("any").is_some());
        assert!(a.bool("single", false));
        let d = doc! { "filter": doc! {}, "limit": 5.7 };
        assert_eq!(parse(&d).unwrap().int("limit", 0, 10).unwrap(), Some(5));
        assert!(parse(&d).unwrap().int("limit", 0, 4).is_err());
    }
}
