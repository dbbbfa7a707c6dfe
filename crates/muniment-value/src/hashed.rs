//! MongoDB's 64-bit hash of a value, which hashed indexes store and `$toHashedIndexKey` returns.
//!
//! Source of the algorithm: MongoDB's public `BSONElementHasher`, version 0 (facts only): MD5 over
//! a seed of 0 and, for each value, its canonical type as an int32 and its bytes; numbers count as
//! the int64 they truncate to, documents and arrays as their elements with names, closed by type 0.
//!
//! Invariant: stored index keys depend on this function; it never changes.

use crate::build::Put;
use crate::{Doc, Type, Value, number};
use md5::{Digest, Md5};

/// The hash of a value.
pub fn hash64(v: Value<'_>) -> i64 {
    let mut md5 = Md5::new();
    md5.update(0_i32.to_le_bytes());
    add(&mut md5, v, None);
    let digest: [u8; 16] = md5.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    i64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn add(md5: &mut Md5, v: Value<'_>, name: Option<&[u8]>) {
    let canonical = match v.ty() {
        Type::MinKey => -1,
        Type::Undefined => 0,
        ty => i32::from(ty.rank()),
    };
    md5.update(canonical.to_le_bytes());
    if let Some(name) = name {
        md5.update(name);
        md5.update([0]);
    }
    match v {
        Value::Document(d) | Value::Array(d) => elements(md5, d),
        Value::CodeWithScope { code, scope } => {
            md5.update(code.as_bytes());
            md5.update([0]);
            elements(md5, scope);
        }
        v => match number::to_i64_clamped(v) {
            Some(n) => md5.update(n.to_le_bytes()),
            None => {
                let mut bytes = Vec::new();
                v.put(&mut bytes);
                md5.update(bytes);
            }
        },
    }
}

fn elements(md5: &mut Md5, d: Doc<'_>) {
    for e in d {
        add(md5, e.value(), Some(e.name_bytes()));
    }
    md5.update(0_i32.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{array, doc};

    #[test]
    fn goldens() {
        // From the manual's page of $toHashedIndexKey.
        assert_eq!(hash64(Value::String("string to hash")), 763543691661428748);
        // Numbers of all types with the same whole part have the same hash.
        let one = hash64(Value::Int32(1));
        assert_eq!(one, hash64(Value::Int64(1)));
        assert_eq!(one, hash64(Value::Double(1.9)));
        assert_ne!(one, hash64(Value::Int32(2)));
        assert_eq!(hash64(Value::Double(f64::NAN)), hash64(Value::Int32(0)));
        let a = doc! { "a": array![1, doc! { "b": 2 }] };
        let b = doc! { "a": array![1.5, doc! { "b": 2.0 }] };
        let c = doc! { "a": array![1, doc! { "c": 2 }] };
        let hash = |d: &crate::DocBuf| hash64(Value::Document(d.as_doc()));
        assert_eq!(hash(&a), hash(&b));
        assert_ne!(hash(&a), hash(&c));
    }
}
