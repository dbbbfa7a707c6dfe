//! OP_COMPRESSED: a whole message inside a compressed one.
//!
//! Invariants: the claimed size bounds the work and the memory, and the output must have exactly that size,
//! so a bomb costs at most one message; a compressed message inside another is refused.
//! Source of the format: the OP_COMPRESSED specification (mongodb/specifications).

use crate::frame::{Header, MAX_MESSAGE_SIZE, OP_COMPRESSED, i32_at, set_i32};
use muniment_value::{Code, Error, Result};
use std::io::{Read, Write};

/// A way to compress, with its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compressor {
    /// The message as it is.
    Noop = 0,
    /// Snappy, raw format.
    Snappy = 1,
    /// zlib, level 6.
    Zlib = 2,
    /// Zstandard, level 3.
    Zstd = 3,
}

impl Compressor {
    /// The compressor with this number.
    pub fn from_id(id: u8) -> Option<Compressor> {
        Some(match id {
            0 => Compressor::Noop,
            1 => Compressor::Snappy,
            2 => Compressor::Zlib,
            3 => Compressor::Zstd,
            _ => return None,
        })
    }

    /// The compressor with this name in `hello`; there is no name for noop.
    pub fn from_name(name: &str) -> Option<Compressor> {
        Some(match name {
            "snappy" => Compressor::Snappy,
            "zlib" => Compressor::Zlib,
            "zstd" => Compressor::Zstd,
            _ => return None,
        })
    }

    /// The name in `hello`.
    pub fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }
}

/// The compressors that this crate can negotiate, in MongoDB's order of preference.
pub const NEGOTIABLE: [Compressor; 3] = [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib];

/// Commands that must not be compressed, nor their replies: handshakes, and commands that carry secrets,
/// which the length of compressed data could reveal.
const NEVER: [&str; 12] = [
    "authenticate",
    "copydb",
    "copydbgetnonce",
    "copydbsaslstart",
    "createuser",
    "getnonce",
    "hello",
    "ismaster",
    "logout",
    "saslcontinue",
    "saslstart",
    "updateuser",
];

/// True if a message with this command may be compressed.
pub fn is_compressible(command: &str) -> bool {
    !NEVER.iter().any(|n| n.eq_ignore_ascii_case(command))
}

/// Where the compressed bytes begin: after the header, original op code, uncompressed size and compressor.
const PAYLOAD_AT: usize = Header::LEN + 9;

fn bad(what: impl Into<String>) -> Error {
    Error::new(Code::ProtocolError, what)
}

/// Writes the compressed form of the whole `message` to `out`, which is cleared first.
///
/// # Errors
/// 17 ProtocolError if `message` has no header; 1 InternalError if the compressor fails.
pub fn compress(message: &[u8], with: Compressor, out: &mut Vec<u8>) -> Result<()> {
    let header = Header::parse(message).ok_or_else(|| bad("message without a header"))?;
    let plain = message.get(Header::LEN..).unwrap_or_default();
    out.clear();
    Header {
        op_code: OP_COMPRESSED,
        ..header
    }
    .put(out);
    out.extend_from_slice(&header.op_code.to_le_bytes());
    out.extend_from_slice(&(plain.len() as i32).to_le_bytes());
    out.push(with as u8);
    let failed = |e: &dyn std::fmt::Display| Error::internal(format!("{}: {e}", with.name()));
    match with {
        Compressor::Noop => out.extend_from_slice(plain),
        Compressor::Snappy => {
            let at = out.len();
            out.resize(at + snap::raw::max_compress_len(plain.len()), 0);
            let space = out.get_mut(at..).unwrap_or_default();
            let n = snap::raw::Encoder::new()
                .compress(plain, space)
                .map_err(|e| failed(&e))?;
            out.truncate(at + n);
        }
        Compressor::Zlib => {
            let mut z = flate2::write::ZlibEncoder::new(&mut *out, flate2::Compression::default());
            z.write_all(plain).map_err(|e| failed(&e))?;
            z.finish().map_err(|e| failed(&e))?;
        }
        Compressor::Zstd => {
            zstd::stream::copy_encode(plain, &mut *out, 3).map_err(|e| failed(&e))?;
        }
    }
    let n = out.len() as i32;
    set_i32(out, 0, n);
    Ok(())
}

/// How many bytes the message says that [`decompress`] makes of it, within the limit of a message.
pub fn claimed(message: &[u8]) -> usize {
    let size = i32_at(message, Header::LEN + 4);
    size.and_then(|n| usize::try_from(n).ok())
        .map_or(0, |n| n.min(MAX_MESSAGE_SIZE))
}

/// Writes the message inside the OP_COMPRESSED `message`, with its own header, to `out`, which is cleared
/// first. Returns the compressor of the message, which the reply uses as well.
///
/// # Errors
/// 17 ProtocolError for a message that is cut or is itself compressed, for an unknown compressor, and for a
/// size that is negative, above [`MAX_MESSAGE_SIZE`] or not that of the output.
pub fn decompress(message: &[u8], out: &mut Vec<u8>) -> Result<Compressor> {
    let cut = || bad("OP_COMPRESSED message is cut");
    let header = Header::parse(message).ok_or_else(cut)?;
    let op_code = i32_at(message, Header::LEN).ok_or_else(cut)?;
    let size = i32_at(message, Header::LEN + 4).ok_or_else(cut)?;
    let id = *message.get(Header::LEN + 8).ok_or_else(cut)?;
    let packed = message.get(PAYLOAD_AT..).ok_or_else(cut)?;
    if header.op_code != OP_COMPRESSED || op_code == OP_COMPRESSED {
        return Err(bad(format!(
            "cannot unpack op code {} in op code {}",
            op_code, header.op_code
        )));
    }
    let size = usize::try_from(size)
        .ok()
        .filter(|n| n + Header::LEN <= MAX_MESSAGE_SIZE)
        .ok_or_else(|| bad(format!("uncompressed size {size} is invalid")))?;
    let with = Compressor::from_id(id)
        .ok_or_else(|| bad(format!("Compressor algorithm id {id} is not registered")))?;
    out.clear();
    Header {
        message_length: (size + Header::LEN) as i32,
        op_code,
        ..header
    }
    .put(out);
    match with {
        Compressor::Noop => out.extend_from_slice(packed),
        Compressor::Snappy => {
            // Snappy states its size as well, which is checked before allocating. It cannot compress data
            // below 1/64, so the allocation is bounded by the bytes that arrived.
            let claimed = snap::raw::decompress_len(packed).map_err(|e| bad(e.to_string()))?;
            if claimed != size || size / 64 > packed.len() {
                return Err(mismatch(size));
            }
            out.resize(Header::LEN + size, 0);
            snap::raw::Decoder::new()
                .decompress(packed, out.get_mut(Header::LEN..).unwrap_or_default())
                .map_err(|e| bad(e.to_string()))?;
        }
        Compressor::Zlib => unpack(flate2::read::ZlibDecoder::new(packed), size, out)?,
        Compressor::Zstd => {
            let mut z =
                zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| bad(e.to_string()))?;
            // A frame may ask for a larger window than any message needs.
            z.window_log_max(26).map_err(|e| bad(e.to_string()))?;
            unpack(z, size, out)?;
        }
    }
    if out.len() != size + Header::LEN {
        return Err(mismatch(size));
    }
    Ok(with)
}

fn mismatch(size: usize) -> Error {
    bad(format!(
        "Decompressing message returned a size other than the {size} bytes it claims"
    ))
}

/// Appends at most `size` + 1 bytes of `r`. The buffer grows as they are decompressed.
fn unpack(r: impl Read, size: usize, out: &mut Vec<u8>) -> Result<()> {
    r.take(size as u64 + 1)
        .read_to_end(out)
        .map_err(|e| bad(e.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::op_msg::{OpMsg, begin_request};
    use muniment_value::doc;

    const ALL: [Compressor; 4] = [
        Compressor::Noop,
        Compressor::Snappy,
        Compressor::Zlib,
        Compressor::Zstd,
    ];

    fn message(text: &str) -> Vec<u8> {
        let mut m = Vec::new();
        let d = doc! { "insert": "c", "text": text };
        begin_request(&mut m, 9, 0)
            .body(d.as_doc())
            .finish()
            .unwrap();
        m
    }

    #[test]
    fn round_trips() {
        for text in ["", "short", &"the same again ".repeat(10_000)] {
            let m = message(text);
            for c in ALL {
                let (mut packed, mut plain) = (Vec::new(), Vec::new());
                compress(&m, c, &mut packed).unwrap();
                assert_eq!(
                    Header::parse(&packed).unwrap().checked_len().unwrap(),
                    packed.len()
                );
                assert_eq!(decompress(&packed, &mut plain).unwrap(), c);
                assert_eq!(plain, m, "{c:?}");
                assert_eq!(OpMsg::parse(&plain).unwrap().command_name(), "insert");
                if text.len() > 1000 && c != Compressor::Noop {
                    assert!(packed.len() < m.len() / 10, "{c:?}: {}", packed.len());
                }
            }
        }
    }

    #[test]
    fn cuts_lies_and_bombs_are_refused() {
        let m = message(&"x".repeat(3000));
        let mut out = Vec::new();
        for c in ALL {
            let mut packed = Vec::new();
            compress(&m, c, &mut packed).unwrap();
            for n in 0..packed.len() {
                assert!(
                    decompress(&packed[..n], &mut out).is_err(),
                    "{c:?} cut at {n}"
                );
            }
            for lie in [0, 1, 2999, 100_000, 47_999_984, 47_999_985, i32::MAX, -1] {
                let mut p = packed.clone();
                set_i32(&mut p, 20, lie);
                assert!(decompress(&p, &mut out).is_err(), "{c:?} claims {lie}");
                assert!(
                    out.capacity() < 1 << 20,
                    "{c:?} claims {lie}: {}",
                    out.capacity()
                );
            }
        }
    }

    #[test]
    fn unknown_compressor_and_nested_coat() {
        let m = message("x");
        let mut packed = Vec::new();
        compress(&m, Compressor::Noop, &mut packed).unwrap();
        let mut other = packed.clone();
        other[24] = 4;
        assert!(decompress(&other, &mut Vec::new()).is_err());
        let mut twice = Vec::new();
        compress(&packed, Compressor::Zlib, &mut twice).unwrap();
        assert!(decompress(&twice, &mut Vec::new()).is_err());
    }

    #[test]
    fn handshakes_and_secrets_stay_plain() {
        for c in [
            "hello",
            "isMaster",
            "ismaster",
            "saslStart",
            "saslContinue",
            "createUser",
        ] {
            assert!(!is_compressible(c), "{c}");
        }
        assert!(is_compressible("insert"));
        for c in NEGOTIABLE {
            assert_eq!(Compressor::from_name(c.name()), Some(c));
        }
    }
}
