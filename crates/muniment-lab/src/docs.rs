//! The experiments' documents, encoded straight to BSON bytes without a tree. The sizes are
//! part of the experiments' definitions and are tested here to the byte.

use muniment_load::rng::Rng;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes a twelve-byte ObjectId as a driver does: seconds, five random bytes of the process, and a
/// counter that all threads share.
pub(crate) fn object_id() -> [u8; 12] {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    static RANDOM: OnceLock<[u8; 5]> = OnceLock::new();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let random = RANDOM.get_or_init(|| {
        let seed = now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40);
        let b = Rng::new(seed).next_u64().to_le_bytes();
        [b[0], b[1], b[2], b[3], b[4]]
    });
    let s = (now.as_secs() as u32).to_be_bytes();
    let c = COUNTER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let r = random;
    [
        s[0], s[1], s[2], s[3], r[0], r[1], r[2], r[3], r[4], c[1], c[2], c[3],
    ]
}

/// Appends one document to a buffer; the length is filled in by [`Encoder::end`].
pub(crate) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Encoder<'a> {
    /// Begins a document at the end of `out`.
    pub(crate) fn begin(out: &'a mut Vec<u8>) -> Encoder<'a> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        Encoder { out, start }
    }

    #[inline]
    fn name(&mut self, ty: u8, name: &str) {
        self.out.push(ty);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
    }

    /// An ObjectId.
    pub(crate) fn oid(&mut self, name: &str, id: [u8; 12]) -> &mut Self {
        self.name(7, name);
        self.out.extend_from_slice(&id);
        self
    }

    /// An int32.
    pub(crate) fn i32(&mut self, name: &str, v: i32) -> &mut Self {
        self.name(16, name);
        self.out.extend_from_slice(&v.to_le_bytes());
        self
    }

    /// An int64.
    pub(crate) fn i64(&mut self, name: &str, v: i64) -> &mut Self {
        self.name(18, name);
        self.out.extend_from_slice(&v.to_le_bytes());
        self
    }

    /// A date, ms since 1970.
    pub(crate) fn date(&mut self, name: &str, ms: i64) -> &mut Self {
        self.name(9, name);
        self.out.extend_from_slice(&ms.to_le_bytes());
        self
    }

    /// A string given in two parts (a constant and a varying one, without joining them first).
    pub(crate) fn str2(&mut self, name: &str, a: &[u8], b: &[u8]) -> &mut Self {
        self.name(2, name);
        let n = (a.len() + b.len() + 1) as u32;
        self.out.extend_from_slice(&n.to_le_bytes());
        self.out.extend_from_slice(a);
        self.out.extend_from_slice(b);
        self.out.push(0);
        self
    }

    /// Ends the document.
    pub(crate) fn end(self) {
        self.out.push(0);
        let n = ((self.out.len() - self.start) as u32).to_le_bytes();
        if let Some(head) = self.out.get_mut(self.start..self.start + 4) {
            head.copy_from_slice(&n);
        }
    }
}

/// Writes the decimal digits of `n` into `buf`.
fn digits(mut n: u64, buf: &mut [u8; 20]) -> &[u8] {
    let mut at = buf.len();
    loop {
        at -= 1;
        if let Some(b) = buf.get_mut(at) {
            *b = b'0' + (n % 10) as u8;
        }
        n /= 10;
        if n == 0 || at == 0 {
            break;
        }
    }
    buf.get(at..).unwrap_or_default()
}

/// W1: `{a: 1, b: "hat"}` without `_id`: 23 bytes sent, 40 stored.
pub(crate) fn w1(out: &mut Vec<u8>) {
    let mut e = Encoder::begin(out);
    e.i32("a", 1).str2("b", b"hat", b"");
    e.end();
}

/// The document of [`w1`] with the `_id` in front, as the server stores it.
#[cfg(test)]
pub(crate) fn w1_with_id(id: [u8; 12], out: &mut Vec<u8>) {
    let mut e = Encoder::begin(out);
    e.oid("_id", id).i32("a", 1).str2("b", b"hat", b"");
    e.end();
}

/// W3: `{_id, rand_int, rand_hash, current_date}`, 113 bytes when no hex fraction is short.
/// `rand_hash` is three random hexadecimal fractions without trailing zeros, as a shell's
/// `Math.random().toString(16)` gives them: 52 random bits, so 13 digits mostly.
pub(crate) fn w3(rng: &mut Rng, now_ms: i64, id: [u8; 12], out: &mut Vec<u8>) {
    let mut hash = [0u8; 39];
    let mut len = 0;
    for _ in 0..3 {
        let mut bits = rng.next_u64() >> 12;
        while bits != 0 {
            if let Some(h) = hash.get_mut(len) {
                let d = (bits >> 48) as u8 & 15;
                *h = if d < 10 { b'0' + d } else { b'a' + d - 10 };
            }
            len += 1;
            bits = (bits << 4) & ((1 << 52) - 1);
        }
    }
    let n = (rng.unit() * 1e6).round() as i32;
    let mut e = Encoder::begin(out);
    e.oid("_id", id)
        .i32("rand_int", n)
        .str2("rand_hash", hash.get(..len).unwrap_or(&hash), b"")
        .date("current_date", now_ms);
    e.end();
}

/// The 2300 characters of biography that make up most of W4's documents.
fn bio() -> &'static [u8] {
    static BIO: OnceLock<Vec<u8>> = OnceLock::new();
    BIO.get_or_init(|| b"I am a Java Developer. ".repeat(100))
}

/// W4a: `{_id, age: "{i}", lName: "Gulati{i}", fName: "Shekhar{i}", bio}`: 2382 bytes for
/// one-digit `i`, 2400 for 1,000,000.
pub(crate) fn w4a(i: u64, id: [u8; 12], out: &mut Vec<u8>) {
    let mut buf = [0u8; 20];
    let d = digits(i, &mut buf);
    let mut e = Encoder::begin(out);
    e.oid("_id", id)
        .str2("age", d, b"")
        .str2("lName", b"Gulati", d)
        .str2("fName", b"Shekhar", d)
        .str2("bio", bio(), b"");
    e.end();
}

/// The name that W4b's finds ask for; row 0 carries it.
pub(crate) const W4B_NAME: &str = "Shekhar Gulati";

/// W4b: `{_id, name, someId1: i64, str1, date1, bio}`, 2401 bytes. The row is a function of `i`
/// alone, so every batch inserts the same rows (with new `_id`s): `name` is ten random letters
/// except in row 0, which the finds look for.
pub(crate) fn w4b(i: u64, now_ms: i64, id: [u8; 12], out: &mut Vec<u8>) {
    let mut rng = Rng::new(i.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x5734_6221);
    let mut letters = [0u8; 15];
    for l in &mut letters {
        *l = b'a' + rng.below(26) as u8;
    }
    let (name, str1): (&[u8], &[u8]) = if i == 0 {
        (W4B_NAME.as_bytes(), b"x")
    } else {
        letters.split_at(10)
    };
    let mut e = Encoder::begin(out);
    e.oid("_id", id)
        .str2("name", name, b"")
        .i64("someId1", i as i64)
        .str2("str1", str1, b"")
        .date("date1", now_ms)
        .str2("bio", bio(), b"");
    e.end();
}

/// The 2 KB documents of the find and update yardsticks: `{_id: int64 i, n: 0, pad}`, 2048 bytes.
/// The padding is hexadecimal noise: it compresses by about half, as real data does.
pub(crate) fn point(i: i64, out: &mut Vec<u8>) {
    let mut rng = Rng::new(i as u64);
    let mut pad = [0u8; 2013];
    for chunk in pad.chunks_mut(16) {
        let bits = rng.next_u64();
        for (k, b) in chunk.iter_mut().enumerate() {
            let d = (bits >> (4 * k)) as u8 & 15;
            *b = if d < 10 { b'0' + d } else { b'a' + d - 10 };
        }
    }
    let mut e = Encoder::begin(out);
    e.i64("_id", i).i32("n", 0).str2("pad", &pad, b"");
    e.end();
}

/// The small documents of the scan yardstick: `{_id: int64 i, x: int32, y: int32, s}`, 54 bytes.
pub(crate) fn small(i: i64, out: &mut Vec<u8>) {
    let mut rng = Rng::new(i as u64);
    let mut e = Encoder::begin(out);
    e.i64("_id", i)
        .i32("x", rng.below(1000) as i32)
        .i32("y", (i % 1000) as i32)
        .str2("s", b"small document", b"");
    e.end();
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_value::Doc;

    fn made(f: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut v = Vec::new();
        f(&mut v);
        assert_eq!(
            u32::from_le_bytes(v[..4].try_into().unwrap()) as usize,
            v.len()
        );
        v
    }

    #[test]
    fn w1_is_23_bytes_sent_and_40_stored() {
        let d = made(w1);
        assert_eq!(d.len(), 23);
        assert_eq!(Doc::new(&d).get_str("b"), Some("hat"));
        assert_eq!(made(|o| w1_with_id(object_id(), o)).len(), 40);
    }

    #[test]
    fn w3_is_about_113_bytes() {
        let mut rng = Rng::new(1);
        let mut total = 0;
        for _ in 0..10_000 {
            let d = made(|o| w3(&mut rng, now_ms(), object_id(), o));
            assert!(d.len() <= 113 && d.len() > 100, "{}", d.len());
            total += d.len();
            let doc = Doc::new(&d);
            assert_eq!(doc.count(), 4);
            let hash = doc.get_str("rand_hash").unwrap();
            assert!(hash.bytes().all(|c| c.is_ascii_hexdigit()));
        }
        let mean = f64::from(total as u32) / 10_000.0;
        assert!((112.5..=113.0).contains(&mean), "{mean}");
    }

    #[test]
    fn w4a_is_2382_to_2400_bytes_in_the_posts_field_order() {
        assert_eq!(made(|o| w4a(1, object_id(), o)).len(), 2382);
        assert_eq!(made(|o| w4a(1_000_000, object_id(), o)).len(), 2400);
        let d = made(|o| w4a(42, object_id(), o));
        let names: Vec<String> = Doc::new(&d).iter().map(|e| e.name().to_string()).collect();
        assert_eq!(names, ["_id", "age", "lName", "fName", "bio"]);
        assert_eq!(Doc::new(&d).get_str("fName"), Some("Shekhar42"));
        assert_eq!(Doc::new(&d).get_str("bio").map(str::len), Some(2300));
    }

    #[test]
    fn w4b_is_2401_bytes_and_the_same_rows_again() {
        for i in [0, 1, 9_999_999] {
            assert_eq!(made(|o| w4b(i, now_ms(), object_id(), o)).len(), 2401);
        }
        let a = made(|o| w4b(5, 0, [0; 12], o));
        assert_eq!(a, made(|o| w4b(5, 0, [0; 12], o)));
        let zero = made(|o| w4b(0, 0, [0; 12], o));
        assert_eq!(Doc::new(&zero).get_str("name"), Some(W4B_NAME));
        assert_ne!(Doc::new(&a).get_str("name"), Some(W4B_NAME));
    }

    #[test]
    fn yardstick_documents_have_their_sizes() {
        assert_eq!(made(|o| point(7, o)).len(), 2048);
        assert_eq!(made(|o| small(7, o)).len(), 54);
    }

    #[test]
    fn object_ids_differ_and_ascend() {
        let ids: Vec<_> = (0..1000).map(|_| object_id()).collect();
        assert!(ids.windows(2).all(|w| w[0] < w[1]));
    }
}
