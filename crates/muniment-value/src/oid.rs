//! ObjectId generation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A new ObjectId: 4 bytes of seconds, 5 bytes random to the process, 3 bytes counter.
/// Source: the BSON ObjectId specification.
pub fn new_object_id() -> [u8; 12] {
    static RANDOM: OnceLock<[u8; 5]> = OnceLock::new();
    static COUNTER: OnceLock<AtomicU32> = OnceLock::new();
    let random = RANDOM.get_or_init(|| {
        let n = entropy().to_le_bytes();
        [n[0], n[1], n[2], n[3], n[4]]
    });
    let counter = COUNTER.get_or_init(|| AtomicU32::new(entropy() as u32));
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as u32)
        .to_be_bytes();
    let count = counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut id = [0; 12];
    for (to, from) in id.iter_mut().zip(
        seconds
            .iter()
            .chain(random.iter())
            .chain(count.iter().skip(1)),
    ) {
        *to = *from;
    }
    id
}

/// Process-random bits from the standard library's seeded hasher.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_of_one_process_ascend_within_a_second() {
        let (a, b) = (super::new_object_id(), super::new_object_id());
        assert_ne!(a, b);
        assert_eq!(a[4..9], b[4..9]);
    }
}
