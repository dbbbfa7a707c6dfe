//! Reading the fields of a document, with errors that name them.

use crate::stamp::Timestamp;
use muniment_value::{Code, Doc, Elem, Error, Result, Type, Value};

/// A document of a collection of the `config` database.
#[derive(Clone, Copy)]
pub(super) struct Fields<'d> {
    /// The name of the collection, for errors.
    of: &'static str,
    doc: Doc<'d>,
}

impl<'d> Fields<'d> {
    pub(super) fn new(of: &'static str, doc: Doc<'d>) -> Fields<'d> {
        Fields { of, doc }
    }

    /// The fields of a document within this one.
    pub(super) fn within(self, doc: Doc<'d>) -> Fields<'d> {
        Fields { doc, ..self }
    }

    /// The elements whose names are not in a list.
    pub(super) fn others(self, known: &'static [&'static str]) -> impl Iterator<Item = Elem<'d>> {
        self.doc.iter().filter(|e| !known.contains(&e.name()))
    }

    /// The value of a field, if it is there; null counts as absent.
    pub(super) fn optional<T>(
        self,
        name: &str,
        ty: Type,
        read: impl FnOnce(Value<'d>) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.doc.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(v) => match read(v) {
                Some(read) => Ok(Some(read)),
                None => Err(self.wrong_type(name, ty, v)),
            },
        }
    }

    /// The value of a field that has to be there.
    pub(super) fn required<T>(
        self,
        name: &str,
        ty: Type,
        read: impl FnOnce(Value<'d>) -> Option<T>,
    ) -> Result<T> {
        self.optional(name, ty, read)?
            .ok_or_else(|| self.missing(name))
    }

    pub(super) fn string(self, name: &str) -> Result<String> {
        self.required(name, Type::String, |v| v.as_str().map(str::to_string))
    }

    pub(super) fn doc(self, name: &str) -> Result<Doc<'d>> {
        self.required(name, Type::Document, |v| v.as_doc())
    }

    pub(super) fn object_id(self, name: &str) -> Result<[u8; 12]> {
        self.required(name, Type::ObjectId, object_id)
    }

    pub(super) fn uuid(self, name: &str) -> Result<[u8; 16]> {
        self.required(name, Type::Binary, uuid)
    }

    pub(super) fn timestamp(self, name: &str) -> Result<Timestamp> {
        self.required(name, Type::Timestamp, timestamp)
    }

    pub(super) fn some_timestamp(self, name: &str) -> Result<Option<Timestamp>> {
        self.optional(name, Type::Timestamp, timestamp)
    }

    /// A boolean, or a number as old tools write them; absent is false.
    pub(super) fn flag(self, name: &str) -> Result<bool> {
        Ok(self.some_flag(name)?.unwrap_or(false))
    }

    pub(super) fn some_flag(self, name: &str) -> Result<Option<bool>> {
        let read = |v: Value<'_>| (v.is_number() || v.as_bool().is_some()).then_some(v.truthy());
        self.optional(name, Type::Bool, read)
    }

    pub(super) fn some_long(self, name: &str) -> Result<Option<i64>> {
        self.optional(name, Type::Int64, |v| v.as_i64_exact())
    }

    fn missing(self, name: &str) -> Error {
        Error::new(
            Code::NoSuchKey,
            format!("a document of {} has no field {name}", self.of),
        )
    }

    fn wrong_type(self, name: &str, ty: Type, v: Value<'_>) -> Error {
        Error::type_mismatch(format!(
            "the field {name} of a document of {} has to be of type {}, not {}",
            self.of,
            ty.name(),
            v.type_name()
        ))
    }
}

fn object_id(v: Value<'_>) -> Option<[u8; 12]> {
    match v {
        Value::ObjectId(id) => Some(id),
        _ => None,
    }
}

fn timestamp(v: Value<'_>) -> Option<Timestamp> {
    match v {
        Value::Timestamp { t, i } => Some(Timestamp::new(t, i)),
        _ => None,
    }
}

/// The subtype of a binary value that is a UUID.
const UUID: u8 = 4;

fn uuid(v: Value<'_>) -> Option<[u8; 16]> {
    match v {
        Value::Binary {
            subtype: UUID,
            bytes,
        } => bytes.try_into().ok(),
        _ => None,
    }
}

/// The value of a UUID.
pub(super) fn uuid_value(uuid: &[u8; 16]) -> Value<'_> {
    Value::Binary {
        subtype: UUID,
        bytes: uuid,
    }
}
