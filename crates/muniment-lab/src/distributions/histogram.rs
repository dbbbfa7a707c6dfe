//! A distribution of sizes that is given as a histogram of blocks, as YCSB reads one from a file.

use super::Distribution;
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;

/// A histogram of sizes.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    block: u64,
    buckets: Vec<u64>,
    sum: u64,
}

impl Histogram {
    /// Reads `BlockSize<TAB>n`, then a line `bucket<TAB>count` for each bucket from 0 on.
    pub(crate) fn parse(text: &str) -> Result<Histogram> {
        let mut lines = text.lines();
        let block = lines
            .next()
            .and_then(|l| l.strip_prefix("BlockSize\t"))
            .and_then(|n| n.trim().parse().ok())
            .ok_or_else(|| Failure::new("its first line is not 'BlockSize<TAB>number'"))?;
        let mut buckets = Vec::new();
        for (i, line) in lines.filter(|l| !l.trim().is_empty()).enumerate() {
            let count = line
                .split_once('\t')
                .filter(|(n, _)| n.trim().parse() == Ok(i))
                .and_then(|(_, c)| c.trim().parse().ok());
            buckets.push(count.ok_or_else(|| {
                Failure(format!(
                    "'{line}' is not the line of bucket {i} ('{i}<TAB>count')"
                ))
            })?);
        }
        let sum = buckets.iter().sum();
        if sum == 0 {
            return Err(Failure::new("all its buckets are empty"));
        }
        Ok(Histogram {
            block,
            buckets,
            sum,
        })
    }
}

impl Distribution for Histogram {
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        // As in YCSB, a draw is the end of its bucket, but in the last bucket its beginning.
        let mut n = rng.below(self.sum) as i64;
        let last = self.buckets.len().saturating_sub(1);
        for (i, b) in self.buckets.iter().take(last).enumerate() {
            n -= *b as i64;
            if n <= 0 {
                return (i as u64 + 1) * self.block;
            }
        }
        last as u64 * self.block
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_are_ends_of_blocks() {
        let mut h = Histogram::parse("BlockSize\t100\n0\t3000\n1\t1000\n2\t1000\n").unwrap();
        let mut rng = Rng::new(2);
        let mut counts = [0; 4];
        for _ in 0..50_000 {
            counts[(h.draw(&mut rng) / 100) as usize] += 1;
        }
        assert_eq!(counts[0] + counts[3], 0);
        assert!((29_000..31_000).contains(&counts[1]), "{counts:?}");
        for (text, why) in [
            ("x", "first line"),
            ("BlockSize\t1\n1\t5", "bucket 0"),
            ("BlockSize\t1\n0\t0", "empty"),
        ] {
            assert!(Histogram::parse(text).unwrap_err().0.contains(why));
        }
    }
}
