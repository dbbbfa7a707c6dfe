//! UUIDs of collections, operations and rights.

use muniment_value::Value;

/// A UUID as a value.
pub fn uuid_value(uuid: &[u8; 16]) -> Value<'_> {
    Value::Binary {
        subtype: 4,
        bytes: uuid,
    }
}

/// A random (version 4) UUID.
pub fn random_uuid() -> [u8; 16] {
    let (a, b) = (muniment_value::new_object_id(), {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish()
            .to_le_bytes()
    });
    let mut id = [0_u8; 16];
    // SAFETY: the buffer is owned by this function, and its length is given.
    let n = unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) };
    if n != id.len() as isize {
        // Without random bytes, an ObjectId and the hasher's seed still make it unique.
        for (to, from) in id.iter_mut().zip(a.iter().chain(b.iter())) {
            *to = *from;
        }
    }
    id[6] = id[6] & 0x0F | 0x40;
    id[8] = id[8] & 0x3F | 0x80;
    id
}
