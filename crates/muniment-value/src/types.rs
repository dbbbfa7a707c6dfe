//! The BSON types: numbers on the wire, MongoDB's names, ranks in the canonical order.

/// A BSON type with its number on the wire. Source: bsonspec.org 1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // the names are the specification's own
pub enum Type {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Bool = 0x08,
    DateTime = 0x09,
    Null = 0x0A,
    Regex = 0x0B,
    DbPointer = 0x0C,
    Code = 0x0D,
    Symbol = 0x0E,
    CodeWithScope = 0x0F,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MaxKey = 0x7F,
    MinKey = 0xFF,
}

impl Type {
    /// The type with this number on the wire, if there is one.
    pub fn from_byte(b: u8) -> Option<Type> {
        Some(match b {
            0x01 => Type::Double,
            0x02 => Type::String,
            0x03 => Type::Document,
            0x04 => Type::Array,
            0x05 => Type::Binary,
            0x06 => Type::Undefined,
            0x07 => Type::ObjectId,
            0x08 => Type::Bool,
            0x09 => Type::DateTime,
            0x0A => Type::Null,
            0x0B => Type::Regex,
            0x0C => Type::DbPointer,
            0x0D => Type::Code,
            0x0E => Type::Symbol,
            0x0F => Type::CodeWithScope,
            0x10 => Type::Int32,
            0x11 => Type::Timestamp,
            0x12 => Type::Int64,
            0x13 => Type::Decimal128,
            0x7F => Type::MaxKey,
            0xFF => Type::MinKey,
            _ => return None,
        })
    }

    /// MongoDB's alias of the type, as `$type` takes it and error messages print it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Double => "double",
            Type::String => "string",
            Type::Document => "object",
            Type::Array => "array",
            Type::Binary => "binData",
            Type::Undefined => "undefined",
            Type::ObjectId => "objectId",
            Type::Bool => "bool",
            Type::DateTime => "date",
            Type::Null => "null",
            Type::Regex => "regex",
            Type::DbPointer => "dbPointer",
            Type::Code => "javascript",
            Type::Symbol => "symbol",
            Type::CodeWithScope => "javascriptWithScope",
            Type::Int32 => "int",
            Type::Timestamp => "timestamp",
            Type::Int64 => "long",
            Type::Decimal128 => "decimal",
            Type::MaxKey => "maxKey",
            Type::MinKey => "minKey",
        }
    }

    /// The rank of the type in MongoDB's canonical comparison order: types with equal rank
    /// compare by value. Source: the manual, "Comparison/Sort Order".
    pub fn rank(self) -> u8 {
        match self {
            Type::MinKey => 0,
            Type::Undefined => 1,
            Type::Null => 5,
            Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => 10,
            Type::String | Type::Symbol => 15,
            Type::Document => 20,
            Type::Array => 25,
            Type::Binary => 30,
            Type::ObjectId => 35,
            Type::Bool => 40,
            Type::DateTime => 45,
            Type::Timestamp => 47,
            Type::Regex => 50,
            Type::DbPointer => 55,
            Type::Code => 60,
            Type::CodeWithScope => 65,
            Type::MaxKey => 127,
        }
    }

    /// The number that `$type` takes: the wire number, with MinKey as −1.
    pub fn number(self) -> i32 {
        match self {
            Type::MinKey => -1,
            t => t as u8 as i32,
        }
    }
}
