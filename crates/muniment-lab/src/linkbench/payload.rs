//! The payloads of nodes and links: their sizes follow a log-normal distribution, and their
//! contents compress as much as the original's.

use muniment_load::rng::Rng;

const CHUNK: usize = 128;
const MOTIF: usize = 512;

/// A source of payloads.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    median: f64,
    most: usize,
    start: u8,
    range: u64,
    uniqueness: f64,
    motifs: Vec<u8>,
}

impl Payload {
    /// Payloads of links with this median size in bytes.
    pub(crate) fn links(median: f64, rng: &mut Rng) -> Payload {
        Payload::new(median, 255, 32, 100, 0.225, rng)
    }

    /// Payloads of nodes with this median size in bytes.
    pub(crate) fn nodes(median: f64, rng: &mut Rng) -> Payload {
        Payload::new(median, 1 << 20, 50, 220, 0.63, rng)
    }

    fn new(
        median: f64,
        below: usize,
        start: u8,
        end: u8,
        uniqueness: f64,
        rng: &mut Rng,
    ) -> Payload {
        let range = u64::from(end - start) + 1;
        Payload {
            median,
            most: below - 1,
            start,
            range,
            uniqueness,
            motifs: (0..MOTIF).map(|_| start + rng.below(range) as u8).collect(),
        }
    }

    /// Draws the next payload into `out`.
    pub(crate) fn draw(&self, rng: &mut Rng, out: &mut Vec<u8>) {
        out.clear();
        let size = (normal(rng).exp() * self.median).round();
        let size = (size as usize).min(self.most);
        while out.len() < size {
            let n = CHUNK.min(size - out.len());
            if rng.unit() < self.uniqueness {
                out.extend((0..n).map(|_| self.start + rng.below(self.range) as u8));
            } else {
                let at = rng.below((MOTIF - n + 1) as u64) as usize;
                out.extend_from_slice(self.motifs.get(at..at + n).unwrap_or_default());
            }
        }
    }
}

/// Draws a normally distributed number (Box and Muller, 1958).
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.unit(), rng.unit());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn sizes_and_bytes() {
        let mut rng = Rng::new(5);
        let (links, nodes) = (
            Payload::links(23.0, &mut rng),
            Payload::nodes(168.0, &mut rng),
        );
        let mut out = Vec::new();
        for (p, median, range) in [(links, 23, 32..=100), (nodes, 168, 50..=220)] {
            let mut sizes = Vec::new();
            for _ in 0..20_001 {
                p.draw(&mut rng, &mut out);
                sizes.push(out.len());
                assert!(out.iter().all(|b| range.contains(b)));
            }
            sizes.sort_unstable();
            let got = sizes[10_000] as f64;
            assert!((got / f64::from(median) - 1.0).abs() < 0.05, "{got}");
            if median == 23 {
                assert_eq!(sizes[20_000], 254);
            }
        }
    }
}
