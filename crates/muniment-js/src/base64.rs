//! Base 64, the form in which bytes cross between BSON and JavaScript.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of bytes, padded.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let letter = |n: u32| {
        LETTERS
            .get((n & 63) as usize)
            .map_or('=', |b| char::from(*b))
    };
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let n = at(0) << 16 | at(1) << 8 | at(2);
        out.push(letter(n >> 18));
        out.push(letter(n >> 12));
        out.push(if chunk.len() > 1 { letter(n >> 6) } else { '=' });
        out.push(if chunk.len() > 2 { letter(n) } else { '=' });
    }
    out
}

/// The bytes of a text; `None` if it is no base 64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut n = 0;
        for b in chunk {
            n = n << 6 | LETTERS.iter().position(|l| l == b)? as u32;
        }
        match chunk.len() {
            4 => out.extend_from_slice(n.to_be_bytes().get(1..)?),
            3 => out.extend_from_slice((n << 6).to_be_bytes().get(1..3)?),
            2 => out.push((n >> 4) as u8),
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (&[0xFF, 0xFE, 0xFD], "//79"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        assert_eq!(decode("?"), None);
    }
}
