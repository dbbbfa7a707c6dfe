//! Random bytes and characters of which a general-purpose compressor saves a chosen share.
//!
//! A value is fresh noise, followed by a piece of a motif that is the same in all values. A
//! compressor that has seen the motif (in a block of many documents) pays about three bytes for
//! each match of at most 258 bytes (deflate's limit), and `noise` bytes for each byte of noise; the
//! length of the piece is computed from that. Compressors without an entropy coder (LZ4, Snappy)
//! save the bytes of the motif, but nothing on the noise of text.

use muniment_load::rng::Rng;

/// 64 characters, so that each carries 6 bits.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";

const MOTIF: usize = 512;
/// Pieces begin at one of eight places, so that the compressor finds a whole piece as one match.
const STARTS: u64 = 8;

/// The alphabet of the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Printable ASCII.
    Letters,
    /// All 256 byte values.
    Bytes,
}

impl Of {
    /// The compressed size of one byte of its noise.
    fn noise(self) -> f64 {
        match self {
            Of::Letters => 0.75,
            Of::Bytes => 1.0,
        }
    }

    /// The least share that is saved, even if the whole value is noise.
    pub(super) fn least(self) -> f64 {
        1.0 - self.noise()
    }
}

/// The largest share that can be asked for.
pub(super) const MOST: f64 = 0.95;

/// Makes values of noise and motif.
#[derive(Debug, Clone)]
pub(super) struct Noise {
    of: Of,
    compressibility: f64,
    motif: Vec<u8>,
}

impl Noise {
    /// Makes values of which a compressor saves `compressibility` (a share).
    pub(super) fn new(of: Of, compressibility: f64) -> Noise {
        let mut motif = Vec::new();
        fresh(of, MOTIF, &mut Rng::new(0x6d6f_7469), &mut motif);
        Noise {
            of,
            compressibility,
            motif,
        }
    }

    /// The number of bytes of the motif in a value of `length` bytes.
    fn piece(&self, length: usize) -> usize {
        let of_match = 3.0;
        let wanted = (self.compressibility - self.of.least()) * length as f64;
        if wanted <= 0.0 {
            return 0;
        }
        let piece = (wanted + of_match) / (self.of.noise() - of_match / 258.0);
        (piece.round() as usize).min(length)
    }

    /// Appends a value of `length` bytes.
    #[inline]
    pub(super) fn write(&self, length: usize, rng: &mut Rng, out: &mut Vec<u8>) {
        let piece = self.piece(length);
        fresh(self.of, length - piece, rng, out);
        let start = match piece {
            0 => return,
            _ => rng.below(STARTS) as usize * (MOTIF / STARTS as usize),
        };
        let (back, front) = self.motif.split_at(start.min(self.motif.len()));
        let mut left = piece;
        for part in [front, back].into_iter().cycle() {
            let n = left.min(part.len());
            out.extend_from_slice(part.get(..n).unwrap_or_default());
            left -= n;
            if left == 0 {
                return;
            }
        }
    }
}

/// Appends fresh noise.
fn fresh(of: Of, length: usize, rng: &mut Rng, out: &mut Vec<u8>) {
    let end = out.len() + length;
    while out.len() < end {
        let mut bits = rng.next_u64();
        match of {
            Of::Bytes => out.extend_from_slice(&bits.to_le_bytes()),
            Of::Letters => {
                let mut letters = [b' '; 10];
                for l in &mut letters {
                    *l = LETTERS.get(bits as usize & 63).copied().unwrap_or(b' ');
                    bits >>= 6;
                }
                out.extend_from_slice(&letters);
            }
        }
    }
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    /// The share that deflate saves of many values one after the other.
    fn saved(of: Of, compressibility: f64, length: usize) -> f64 {
        let noise = Noise::new(of, compressibility);
        let mut rng = Rng::new(5);
        let mut all = Vec::new();
        while all.len() < 400_000 {
            noise.write(length, &mut rng, &mut all);
        }
        let mut z = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        z.write_all(&all).unwrap();
        1.0 - z.finish().unwrap().len() as f64 / all.len() as f64
    }

    #[test]
    fn what_a_compressor_saves_is_what_was_asked_for() {
        for length in [100, 200, 1000, 10_000] {
            for (of, asked) in [
                (Of::Letters, [0.25, 0.35, 0.5, 0.65, 0.8, 0.9]),
                (Of::Bytes, [0.0, 0.1, 0.3, 0.5, 0.8, 0.9]),
            ] {
                for asked in asked {
                    let got = saved(of, asked, length);
                    assert!(
                        (got - asked).abs() < 0.04,
                        "{of:?} of {length}: asked {asked}, saved {got:.3}"
                    );
                }
            }
        }
    }

    #[test]
    fn values_have_their_length_and_alphabet() {
        let mut rng = Rng::new(1);
        for length in [0, 1, 9, 10, 511, 512, 513, 5000] {
            for c in [0.25, 0.5, 0.95] {
                let mut out = Vec::new();
                Noise::new(Of::Letters, c).write(length, &mut rng, &mut out);
                assert_eq!(out.len(), length);
                assert!(out.iter().all(|b| LETTERS.contains(b)));
            }
        }
    }
}
