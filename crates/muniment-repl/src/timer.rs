//! When a member that hears of no leader campaigns.
//!
//! Raft draws its own election timeouts from the machine's randomness; here they are drawn from a
//! seed, and raft's are set so long that they never end. Members are spread over half an election
//! timeout, so that they rarely meet, and those with a lower priority come later: the best of those
//! that are left is the first, and everybody's turn comes within twice the election timeout.

/// Draws from a seed (SplitMix64).
pub(crate) struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Below `n`; 0 if that is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }
}

/// Ranks that are told apart; everybody behind is as the last.
const RANKS: u64 = 3;

/// Ticks without a leader after which a member campaigns whose priority has `better` higher ones
/// above it among the voters.
pub(crate) fn patience(draw: &mut Draw, election: u64, better: usize) -> u64 {
    let rank = (better as u64).min(RANKS - 1);
    election + rank * election / 6 + draw.below(election / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_come_first_and_all_come() {
        for election in [3, 10, 20, 100] {
            let mut draw = Draw::new(7);
            let mut sums = [0; 5];
            for _ in 0..1000 {
                for (better, sum) in sums.iter_mut().enumerate() {
                    let ticks = patience(&mut draw, election, better);
                    assert!(ticks >= election && ticks < 2 * election);
                    *sum += ticks;
                }
            }
            assert!(election < 10 || (sums[0] < sums[1] && sums[1] < sums[2]));
        }
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draws = |seed| {
            let mut draw = Draw::new(seed);
            (0..100).map(|_| draw.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        assert_eq!(Draw::new(1).below(0), 0);
    }
}
