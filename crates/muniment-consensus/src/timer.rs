//! How long members wait for each other, and the draw of how long one that hears of no leader waits before it
//! campaigns.
//!
//! Raft draws its own election timeouts from the machine's randomness. Here they are drawn from a seed, and
//! raft's own are so long that they never end. The members are spread over 15 % of an election timeout, as
//! MongoDB's are, and a member with a lower priority comes later, so that the best remaining member campaigns
//! first, and each member does so within one and a half election timeouts. A candidate that collided with
//! another one tries again sooner, so that a collision does not cost a whole timeout.

/// How long the members of a set wait for each other, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time without a leader after which elections begin. A leader that hears of no majority gives up the
    /// leadership after one to two times as long.
    pub election: u64,
    /// The time between two heartbeats.
    pub heartbeat: u64,
    /// A member that has not been heard for this time counts as absent, for example when the leadership is
    /// offered.
    pub answer: u64,
    /// When the leader is known to be gone ([`Core::gone`](crate::Core::gone)), the first campaign begins
    /// after one to three times this time.
    pub soon: u64,
}

impl Times {
    /// The times that follow from the election timeout alone.
    pub fn of(election: u64) -> Times {
        Times {
            election,
            heartbeat: (election / 5).max(1),
            answer: election,
            soon: (election / 20).max(1),
        }
    }
}

/// Draws from a seed (SplitMix64).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }
}

/// The number of ranks that are distinguished. Members that would come after the last rank share it.
const RANKS: u64 = 3;

/// The ticks over which the members of one rank are spread.
pub(crate) fn spread(election: u64) -> u64 {
    (election * 3 / 20).max(1)
}

/// The ticks without a leader after which a member campaigns, if the voters have `better` different
/// priorities above its own.
pub(crate) fn patience(draw: &mut Draw, election: u64, better: usize) -> u64 {
    let rank = (better as u64).min(RANKS - 1);
    election + rank * election / 6 + draw.below(spread(election) + 1)
}

/// The ticks until the next candidacy of a member that has a reason to be quicker than `election`, after
/// `tries` failed ones: one to three times `unit` at first, and twice as long each time, up to an election
/// timeout.
pub(crate) fn again(draw: &mut Draw, unit: u64, election: u64, tries: u32, better: usize) -> u64 {
    let rank = (better as u64).min(RANKS - 1);
    let drawn = unit + rank * unit + draw.below(2 * unit + 1);
    let longer = drawn.saturating_mul(1 << tries.saturating_sub(1).min(20));
    match longer < election {
        true => longer.max(1),
        false => patience(draw, election, better),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_come_first_and_all_come() {
        for election in [3, 10, 20, 100, 10_000, 43_200_000] {
            let mut draw = Draw::new(7);
            let mut sums = [0; 5];
            for _ in 0..1000 {
                for (better, sum) in sums.iter_mut().enumerate() {
                    let ticks = patience(&mut draw, election, better);
                    assert!(ticks >= election && ticks <= election * 3 / 2 + 1);
                    *sum += ticks;
                }
            }
            assert!(election < 10 || (sums[0] < sums[1] && sums[1] < sums[2]));
        }
    }

    /// MongoDB's electionTimeoutOffsetLimitFraction is 0.15.
    #[test]
    fn draws_of_the_best_spread_over_15_percent() {
        let mut draw = Draw::new(3);
        let all: Vec<u64> = (0..2000).map(|_| patience(&mut draw, 10_000, 0)).collect();
        let (least, most) = (all.iter().min(), all.iter().max());
        assert!(least.is_some_and(|t| (10_000..10_020).contains(t)));
        assert!(most.is_some_and(|t| (11_480..=11_500).contains(t)));
    }

    #[test]
    fn a_further_try_comes_sooner_and_then_later_each_time() {
        let mut draw = Draw::new(5);
        for _ in 0..1000 {
            let mut bound = 450;
            for tries in 1..5 {
                let ticks = again(&mut draw, 150, 10_000, tries, 0);
                assert!(ticks >= bound / 3 && ticks <= bound, "{tries}: {ticks}");
                bound *= 2;
            }
            let last = again(&mut draw, 150, 10_000, 30, 0);
            assert!((10_000..=11_500).contains(&last));
            assert!(again(&mut draw, 0, 1, 0, 0) > 0);
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
