//! Signatures of the cluster's time, so that clients can bring a member what another one has told them, and
//! cannot make up times of their own.
//!
//! A signature is an HMAC-SHA-256, cut to 20 bytes, with a key derived from each key of the key file. A new time
//! comes with each write, so one signature holds for all times of a second whose counters differ only in their
//! last 16 bits: a client may then advance the clock within that second, which harms nobody.
//!
//! The first key of the file signs. A signature by a key that is not known, or no longer, is no mistake of the
//! client's: keys are changed one member at a time.

use crate::key::{Keys, LEN};
use hmac::{Hmac, KeyInit, Mac};
use muniment_storage::Timestamp;
use parking_lot::Mutex;
use sha2::Sha256;

/// The words that a signing key is derived with.
const DOMAIN: &[u8] = b"Muniment: the cluster's time, version 1";
/// The words that the number of a signing key is derived with.
const NUMBER: &[u8] = b"Muniment: the number of a key, version 1";
/// The bits of a time that a signature does not tell apart.
const RANGE: u64 = 0xFFFF;

/// Bytes of a signature, as in MongoDB.
pub const HASH: usize = 20;

/// A signature, as clients carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// `hash`.
    pub hash: [u8; HASH],
    /// `keyId`: 0 stands for no signature.
    pub key_id: i64,
}

/// What a signature is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// A member has signed the time.
    Right,
    /// No member has.
    Wrong,
    /// This member does not have the key, or there is no signature.
    Unknown,
}

struct Key {
    id: i64,
    mac: Hmac<Sha256>,
}

impl Key {
    fn new(stretched: &[u8]) -> Option<Key> {
        let derived = |words: &[u8]| -> Option<[u8; LEN]> {
            let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(stretched).ok()?;
            mac.update(words);
            Some(mac.finalize().into_bytes().into())
        };
        let number = derived(NUMBER)?.first_chunk::<8>().copied()?;
        Some(Key {
            // Positive, as MongoDB's are.
            id: (i64::from_le_bytes(number) & i64::MAX).max(1),
            mac: <Hmac<Sha256> as KeyInit>::new_from_slice(&derived(DOMAIN)?).ok()?,
        })
    }

    fn hash(&self, range: u64) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&range.to_le_bytes());
        mac
    }
}

/// Signs times, and checks what others have signed.
pub struct Signer {
    keys: Vec<Key>,
    /// The last range that was signed.
    last: Mutex<(u64, Signature)>,
}

impl Signer {
    /// A signer with the keys of a file.
    pub fn new(keys: &Keys) -> Signer {
        let keys: Vec<Key> = keys.stretched_keys().filter_map(Key::new).collect();
        let last = Mutex::default();
        Signer { keys, last }
    }

    /// Signs a time.
    pub fn sign(&self, time: Timestamp) -> Signature {
        let range = time.0 | RANGE;
        let Some(key) = self.keys.first() else {
            return Signature::default();
        };
        let mut last = self.last.lock();
        // No range is 0, since its last bits are all 1.
        if last.0 != range {
            let mac = key.hash(range).finalize().into_bytes();
            let mut hash = [0; HASH];
            hash.copy_from_slice(mac.get(..HASH).unwrap_or_default());
            let key_id = key.id;
            *last = (range, Signature { hash, key_id });
        }
        last.1
    }

    /// Checks a signature of a time.
    pub fn check(&self, time: Timestamp, signature: &Signature) -> Checked {
        let mut keys = self.keys.iter();
        let Some(key) = keys.find(|key| key.id == signature.key_id) else {
            return Checked::Unknown;
        };
        let mac = key.hash(time.0 | RANGE);
        match mac.verify_truncated_left(&signature.hash) {
            Ok(()) => Checked::Right,
            Err(_) => Checked::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn signer(text: &str) -> Signer {
        Signer::new(&Keys::of_text(text))
    }

    #[test]
    fn members_check_what_others_have_signed() {
        let (old, both, new) = (
            signer("oldold"),
            signer("- oldold\n- newnew"),
            signer("newnew"),
        );
        let time = Timestamp::new(1_700_000_000, 7);
        let signed = old.sign(time);
        assert!(signed.key_id > 0);
        assert_eq!(signed, both.sign(time));
        assert_eq!(both.check(time, &signed), Checked::Right);
        assert_eq!(both.check(time, &new.sign(time)), Checked::Right);
        assert_eq!(new.check(time, &signed), Checked::Unknown);
        assert_eq!(old.check(time, &Signature::default()), Checked::Unknown);
        // Within its second it holds for the counters around it, and nowhere else.
        assert_eq!(
            old.check(Timestamp::new(1_700_000_000, 0xFFFF), &signed),
            Checked::Right
        );
        for other in [
            Timestamp::new(1_700_000_000, 0x1_0000),
            Timestamp::new(1_700_000_001, 7),
            Timestamp::MAX,
        ] {
            assert_eq!(old.check(other, &signed), Checked::Wrong);
            assert_ne!(old.sign(other), signed);
        }
        for i in 0..HASH {
            let mut altered = signed;
            altered.hash[i] ^= 1;
            assert_eq!(old.check(time, &altered), Checked::Wrong);
        }
        assert_eq!(old.sign(time), signed);
    }
}
