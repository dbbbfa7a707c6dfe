//! The key of a document.

use super::{KeyField, ShardKey};
use muniment_value::hashed::hash64;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, keyenc};

impl ShardKey {
    /// Appends the key of a document, as bytes in the order of keys.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound if there is an array on the path of a field. Nothing is appended then.
    pub fn write_key(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        for field in &self.fields {
            match field.value_in(doc) {
                Ok(v) => field.put(v, out),
                Err(e) => {
                    out.truncate(start);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// The key of a document, as bytes in the order of keys.
    ///
    /// # Errors
    /// Those of [`ShardKey::write_key`].
    pub fn key_of(&self, doc: Doc<'_>) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(16 * self.fields.len());
        self.write_key(doc, &mut out)?;
        Ok(out)
    }

    /// The key of a document, as a document in the form of chunks' bounds: `{"a.b": 5, c: <hash>}`.
    ///
    /// # Errors
    /// Those of [`ShardKey::write_key`].
    pub fn key_doc(&self, doc: Doc<'_>) -> Result<DocBuf> {
        let mut out = DocBuf::new();
        for field in &self.fields {
            out.append(field.path.as_str(), field.in_key(field.value_in(doc)?));
        }
        Ok(out)
    }

    /// The values at the fields of the shard key, not hashed: `{"a.b": 5, c: "text"}`. A field that the
    /// document does not have is left out. Change events and errors name documents by them.
    ///
    /// # Errors
    /// Those of [`ShardKey::write_key`].
    pub fn values_of(&self, doc: Doc<'_>) -> Result<DocBuf> {
        let mut out = DocBuf::new();
        for field in &self.fields {
            out.append_some(field.path.as_str(), field.find(doc)?);
        }
        Ok(out)
    }

    /// The key of values that [`ShardKey::values_of`] gives. A field that is left out counts as null.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound if a value is an array.
    pub fn key_of_values(&self, values: Doc<'_>) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(16 * self.fields.len());
        for field in &self.fields {
            match values.get(field.path.as_str()) {
                Some(Value::Array(_)) => return Err(has_array()),
                v => field.put(v.unwrap_or(Value::Null), &mut out),
            }
        }
        Ok(out)
    }
}

impl KeyField {
    /// The value at the path, if it is there.
    fn find<'d>(&self, doc: Doc<'d>) -> Result<Option<Value<'d>>> {
        let mut at = Value::Document(doc);
        for part in self.path.parts() {
            let next = match at {
                Value::Document(d) => d.get(part),
                _ => None,
            };
            match next {
                Some(Value::Array(_)) => return Err(has_array()),
                Some(v) => at = v,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn value_in<'d>(&self, doc: Doc<'d>) -> Result<Value<'d>> {
        Ok(self.find(doc)?.unwrap_or(Value::Null))
    }

    /// The value that a key has for a value of a document.
    pub(super) fn in_key<'v>(&self, v: Value<'v>) -> Value<'v> {
        match self.hashed {
            true => Value::Int64(hash64(v)),
            false => v,
        }
    }

    /// Appends what a key has for a value of a document.
    pub(super) fn put(&self, v: Value<'_>, out: &mut Vec<u8>) {
        keyenc::encode(self.in_key(v), false, out);
    }
}

#[cold]
fn has_array() -> Error {
    Error::new(
        Code::ShardKeyNotFound,
        "Shard key cannot contain array values or array descendants.",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{DocBuf, arbitrary, doc};
    use proptest::prelude::*;

    fn key(json: &str) -> ShardKey {
        ShardKey::parse(DocBuf::from_json(json).unwrap().as_doc()).unwrap()
    }

    fn shown(key: &ShardKey, json: &str) -> String {
        let doc = DocBuf::from_json(json).unwrap();
        match key.key_doc(doc.as_doc()) {
            Ok(d) => d.as_doc().to_display(),
            Err(e) => e.code().0.to_string(),
        }
    }

    #[test]
    fn missing_fields_are_null_and_arrays_are_refused() {
        let key = key(r#"{"a.b": 1, "c": 1}"#);
        for (json, want) in [
            (r#"{"a": {"b": 1}, "c": "x"}"#, r#"{ a.b: 1, c: "x" }"#),
            (r#"{"c": {"d": [1]}}"#, "{ a.b: null, c: { d: [ 1 ] } }"),
            (r#"{"a": 5}"#, "{ a.b: null, c: null }"),
            (r#"{"a": {"b": null}}"#, "{ a.b: null, c: null }"),
            (r#"{"a": [{"b": 1}]}"#, "61"),
            (r#"{"a": {"b": []}}"#, "61"),
            (r#"{"a": {"b": 1}, "c": [1]}"#, "61"),
        ] {
            assert_eq!(shown(&key, json), want, "{json}");
        }
        let mut out = vec![9];
        let doc = doc! { "a": doc! { "b": 1 }, "c": muniment_value::array![1] };
        assert!(key.write_key(doc.as_doc(), &mut out).is_err());
        assert_eq!(out, [9]);
        let doc = doc! { "a": doc! { "b": 1 } };
        assert_eq!(key.values_of(doc.as_doc()).unwrap(), doc! { "a.b": 1 });
    }

    #[test]
    fn numeric_parts_are_names() {
        let key = key(r#"{"a.0": 1}"#);
        assert_eq!(shown(&key, r#"{"a": {"0": 7}}"#), "{ a.0: 7 }");
        assert_eq!(shown(&key, r#"{"a": [7]}"#), "61");
    }

    #[test]
    fn hashed_fields_have_the_hash() {
        let key = key(r#"{"a": 1, "b": "hashed"}"#);
        let hash = hash64(Value::Null);
        let doc = doc! { "a": 1 };
        assert_eq!(
            key.key_doc(doc.as_doc()).unwrap(),
            doc! { "a": 1, "b": hash }
        );
        let with_null = doc! { "a": 1.0, "b": Value::Null };
        assert_eq!(
            key.key_of(doc.as_doc()).unwrap(),
            key.key_of(with_null.as_doc()).unwrap()
        );
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_the_values_and_of_the_key_document(doc in arbitrary::doc()) {
            for pattern in [r#"{"a": 1, "b.c": 1}"#, r#"{"c": 1, "a": "hashed", "b": 1}"#] {
                let key = key(pattern);
                let Ok(bytes) = key.key_of(doc.as_doc()) else {
                    prop_assert!(key.key_doc(doc.as_doc()).is_err());
                    continue;
                };
                let values = key.values_of(doc.as_doc()).unwrap();
                prop_assert_eq!(&bytes, &key.key_of_values(values.as_doc()).unwrap());
                let as_bound = key.key_doc(doc.as_doc()).unwrap();
                prop_assert_eq!(&bytes, &key.bound(as_bound.as_doc()).unwrap());
            }
        }
    }
}
