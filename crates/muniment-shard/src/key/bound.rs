//! Bounds of chunks and zones: documents with the key's fields, and their bytes.

use super::{KeyField, ShardKey};
use muniment_value::{Code, Doc, DocBuf, Elem, Error, Result, Value, keyenc};

impl ShardKey {
    /// The bytes of a bound, which must have exactly the key's fields in their order.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound if it has other fields; 2 BadValue for a value that no key can have.
    pub fn bound(&self, doc: Doc<'_>) -> Result<Vec<u8>> {
        let (bytes, given) = self.some_bound(doc)?;
        match given == self.fields.len() {
            true => Ok(bytes),
            false => Err(self.misfit(doc)),
        }
    }

    /// The bytes of a bound that has some of the key's fields, from the first one on. The others count as
    /// MinKey, so that both ends of a zone's range are below all keys that begin with what is given.
    ///
    /// # Errors
    /// Those of [`ShardKey::bound`].
    pub fn extended_bound(&self, doc: Doc<'_>) -> Result<Vec<u8>> {
        let (mut bytes, given) = self.some_bound(doc)?;
        if given == 0 {
            return Err(self.misfit(doc));
        }
        for _ in given..self.fields.len() {
            keyenc::encode(Value::MinKey, false, &mut bytes);
        }
        Ok(bytes)
    }

    /// The document of a bound. Numbers have their default types: what was a double 1.0 may be an int 1.
    ///
    /// # Errors
    /// 22 InvalidBSON if the bytes are not a key of this shard key.
    pub fn bound_doc(&self, bytes: &[u8]) -> Result<DocBuf> {
        let mut out = DocBuf::new();
        let mut rest = bytes;
        for field in &self.fields {
            let (value, after) = keyenc::decode(rest, false, &mut &[][..])?;
            rest = after;
            // Hashes are longs, but a decoded number has the type that is its default.
            let v = value.as_value();
            let hash = v.as_i64_exact().filter(|_| field.hashed);
            out.append(field.path.as_str(), hash.map_or(v, Value::Int64));
        }
        match rest.is_empty() {
            true => Ok(out),
            false => Err(Error::new(
                Code::InvalidBSON,
                "a key has more fields than the shard key",
            )),
        }
    }

    /// A bound's document as text, for messages. Bytes that are no bound are shown as such.
    pub fn show(&self, bytes: &[u8]) -> String {
        match self.bound_doc(bytes) {
            Ok(doc) => doc.as_doc().to_display(),
            Err(_) => format!("{bytes:02x?}"),
        }
    }

    /// The lowest bound: MinKey in every field.
    pub fn lowest(&self) -> Vec<u8> {
        self.extreme(Value::MinKey)
    }

    /// The highest bound: MaxKey in every field. The last range of a collection ends there; a document whose
    /// key is MaxKey belongs to that range too.
    pub fn highest(&self) -> Vec<u8> {
        self.extreme(Value::MaxKey)
    }

    /// The bytes of a bound of a shorter key, which this one [extends](ShardKey::extends): the other fields have MinKey,
    /// but the highest bound stays the highest one.
    pub fn bound_of_shorter(&self, shorter: &ShardKey, bytes: &[u8]) -> Vec<u8> {
        if bytes == shorter.highest() {
            return self.highest();
        }
        let more = self.fields.len().saturating_sub(shorter.fields.len());
        [bytes, &keyenc::encoded(Value::MinKey).repeat(more)].concat()
    }

    fn extreme(&self, v: Value<'_>) -> Vec<u8> {
        keyenc::encoded(v).repeat(self.fields.len())
    }

    /// The bytes of the fields that a bound has, and their number.
    fn some_bound(&self, doc: Doc<'_>) -> Result<(Vec<u8>, usize)> {
        let mut out = Vec::with_capacity(16 * self.fields.len());
        let mut fields = self.fields.iter();
        let mut given = 0;
        for e in doc {
            let field = fields.next().filter(|f| e.is_named(f.path.as_str()));
            let field = field.ok_or_else(|| self.misfit(doc))?;
            put_bound(field, e, &mut out)?;
            given += 1;
        }
        Ok((out, given))
    }

    fn misfit(&self, doc: Doc<'_>) -> Error {
        Error::new(
            Code::ShardKeyNotFound,
            format!(
                "the bound {} does not have the fields of the shard key {}",
                doc.to_display(),
                self.pattern().to_display()
            ),
        )
    }
}

fn put_bound(field: &KeyField, e: Elem<'_>, out: &mut Vec<u8>) -> Result<()> {
    let value = match (e.value(), field.hashed) {
        (v @ (Value::MinKey | Value::MaxKey), _) => v,
        (Value::Array(_), _) => {
            return Err(Error::bad_value(format!(
                "the bound of the field {} cannot be an array",
                e.name()
            )));
        }
        (v, false) => v,
        (v @ Value::Int64(_), true) => v,
        (v, true) => {
            return Err(Error::bad_value(format!(
                "the bound of the hashed field {} has to be a long, MinKey or MaxKey, not {}",
                e.name(),
                v.type_name()
            )));
        }
    };
    keyenc::encode(value, false, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    fn key(pattern: DocBuf) -> ShardKey {
        ShardKey::parse(pattern.as_doc()).unwrap()
    }

    #[test]
    fn bounds_there_and_back() {
        let key = key(doc! { "a.b": 1, "h": "hashed" });
        for bound in [
            doc! { "a.b": Value::MinKey, "h": Value::MinKey },
            doc! { "a.b": 5, "h": 7_i64 },
            doc! { "a.b": "x", "h": i64::MIN },
            doc! { "a.b": doc! { "c": array![1] }, "h": Value::MaxKey },
            doc! { "a.b": Value::MaxKey, "h": Value::MaxKey },
        ] {
            let bytes = key.bound(bound.as_doc()).unwrap();
            assert_eq!(key.bound_doc(&bytes).unwrap(), bound);
            assert!(key.lowest() <= bytes && bytes <= key.highest());
        }
        let wrong = [key.lowest(), vec![0x0A]].concat();
        assert!(key.bound_doc(&wrong).is_err());
        assert_eq!(key.show(&[1, 2]), "[01, 02]");
    }

    #[test]
    fn a_part_of_the_fields_is_extended() {
        let key = key(doc! { "a": 1, "b": 1 });
        let bytes = key.extended_bound(doc! { "a": 5 }.as_doc()).unwrap();
        assert_eq!(
            key.bound_doc(&bytes).unwrap(),
            doc! { "a": 5, "b": Value::MinKey }
        );
        for wrong in [doc! {}, doc! { "b": 1 }, doc! { "a": 1, "b": 1, "c": 1 }] {
            let e = key.extended_bound(wrong.as_doc()).unwrap_err();
            assert_eq!(e.code(), Code::ShardKeyNotFound);
        }
        assert!(key.bound(doc! { "a": 5 }.as_doc()).is_err());
    }

    #[test]
    fn bounds_of_a_shorter_key() {
        let (short, long) = (key(doc! { "a": 1 }), key(doc! { "a": 1, "b": "hashed" }));
        assert!(long.extends(&short) && !short.extends(&long) && !long.extends(&long));
        assert!(
            !long.extends(&key(doc! { "a": "hashed" })) && !long.extends(&key(doc! { "b": 1 }))
        );
        for (before, after) in [
            (Value::MinKey, Value::MinKey),
            (Value::Int32(5), Value::MinKey),
            (Value::MaxKey, Value::MaxKey),
        ] {
            let bytes = short.bound(doc! { "a": before }.as_doc()).unwrap();
            let now = long.bound_of_shorter(&short, &bytes);
            let wanted = doc! { "a": before, "b": after };
            assert_eq!(long.bound_doc(&now).unwrap(), wanted);
        }
    }

    #[test]
    fn values_that_no_key_has() {
        let key = key(doc! { "a": 1, "h": "hashed" });
        for wrong in [
            doc! { "a": array![1], "h": 1_i64 },
            doc! { "a": 1, "h": 1 },
            doc! { "a": 1, "h": "x" },
        ] {
            let e = key.bound(wrong.as_doc()).unwrap_err();
            assert_eq!(e.code(), Code::BadValue);
        }
    }
}
