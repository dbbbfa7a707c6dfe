//! The number of links of a node. It follows the measured out-degrees of a social graph; the
//! original reads them from a file, and this interpolates a few points of them.

use super::Profile;
use super::shuffle::Shuffle;

/// Pairs of a number of links and the percentage of nodes with at most so many.
const Y2015: &[(u64, f64)] = &[
    (0, 45.33),
    (1, 77.46),
    (2, 86.96),
    (3, 91.99),
    (4, 94.45),
    (5, 95.83),
    (7, 97.32),
    (10, 98.33),
    (20, 99.327),
    (50, 99.722),
    (100, 99.831),
    (300, 99.906),
    (1000, 99.9507),
    (3000, 99.9786),
    (10_000, 99.995_05),
    (30_000, 99.999_38),
    (100_000, 99.999_96),
    (961_963, 100.0),
];
const V2: &[(u64, f64)] = &[
    (1, 79.75),
    (2, 90.51),
    (3, 94.44),
    (4, 95.68),
    (5, 96.40),
    (10, 98.10),
    (20, 98.93),
    (50, 99.51),
    (100, 99.75),
    (300, 99.900),
    (1000, 99.965),
    (3000, 99.990),
    (10_000, 99.998),
    (4_181_357, 100.0),
];

/// The out-degrees of a graph.
#[derive(Debug, Clone)]
pub(crate) struct Degrees {
    profile: Profile,
    ids: u64,
    shuffle: Shuffle,
}

impl Degrees {
    /// The out-degrees of a graph of `ids` nodes.
    pub(crate) fn new(profile: Profile, ids: u64) -> Degrees {
        Degrees {
            profile,
            ids,
            shuffle: Shuffle::new(Shuffle::DEGREE, ids),
        }
    }

    /// The links of the node with this rank; rank 0 has the most links. It is the smallest v with
    /// CDF(v) ≥ 1 − rank/n. Rank 0 counts as half a rank, since in a scaled-down graph its node
    /// would have more links than there are nodes otherwise.
    pub(crate) fn at_rank(&self, rank: u64) -> u64 {
        let rank = if rank == 0 { 0.5 } else { rank as f64 };
        let more = rank / self.ids as f64;
        // After the last point but one, the survival function falls by this factor, which was
        // chosen so that the mean is the original's: 4.097 and 3.85.
        let (table, last_fall) = match self.profile {
            Profile::Y2015 => (Y2015, 10.0),
            Profile::V2 => (V2, 5600.0),
        };
        // The survival function is 1 − CDF; it is interpolated log-log between two points.
        let survival = |(_, percent): (u64, f64)| 1.0 - percent / 100.0;
        let mut before: Option<(u64, f64)> = None;
        for point in table.iter().copied() {
            let (mut s, v) = (survival(point), point.0);
            if let (Some((_, s1)), true) = (before, s <= 0.0) {
                s = s1 / last_fall;
            }
            if more >= s {
                return match before {
                    Some((v1, s1)) if v > v1 + 1 && v1 > 0 => {
                        let share = (s1 / more).ln() / (s1 / s).ln();
                        let x = (v1 as f64).ln() + share * (v as f64 / v1 as f64).ln();
                        (x.exp().ceil() as u64).clamp(v1 + 1, v)
                    }
                    _ => v,
                };
            }
            before = Some((v, s));
        }
        table.last().map_or(0, |p| p.0)
    }

    /// The links of node `id` (from 0 on) that have one of the two types (0 or 1).
    pub(crate) fn of(&self, id: u64, link_type: u64) -> u64 {
        let all = self.at_rank(self.shuffle.invert(id));
        match self.profile {
            Profile::V2 => all.max(2) / 2,
            Profile::Y2015 => {
                let least = all / 2;
                least + u64::from(link_type < all - least)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(profile: Profile, ids: u64) -> f64 {
        let d = Degrees::new(profile, ids);
        let sum: u64 = (0..ids).map(|r| d.at_rank(r)).sum();
        sum as f64 / ids as f64
    }

    #[test]
    fn means_are_those_of_the_original() {
        let m = mean(Profile::Y2015, 10_000_000);
        assert!((m / 4.097 - 1.0).abs() < 0.01, "{m}");
        let m = mean(Profile::V2, 10_000_000);
        assert!((m / 3.85 - 1.0).abs() < 0.01, "{m}");
    }

    #[test]
    fn shares_are_those_of_the_table() {
        let n = 1_000_000;
        for (profile, at_most, percent) in [
            (Profile::Y2015, 0, 45.33),
            (Profile::Y2015, 5, 95.83),
            (Profile::Y2015, 100, 99.831),
            (Profile::V2, 1, 79.75),
            (Profile::V2, 50, 99.51),
        ] {
            let d = Degrees::new(profile, n);
            let got = (0..n).filter(|r| d.at_rank(*r) <= at_most).count() as f64;
            let got = got / n as f64 * 100.0;
            assert!((got - percent).abs() < 0.02, "{profile:?} {at_most}: {got}");
        }
    }

    #[test]
    fn both_types_share_a_nodes_links() {
        let d = Degrees::new(Profile::Y2015, 5000);
        let sum: u64 = (0..5000).map(|i| d.of(i, 0) + d.of(i, 1)).sum();
        let all: u64 = (0..5000).map(|r| d.at_rank(r)).sum();
        // The shares of the two types add up to all links or more; in this graph the excess is at
        // most one link a node on average.
        assert!(sum >= all && sum <= all + 5000, "{sum} {all}");
        let d = Degrees::new(Profile::V2, 5000);
        assert!((0..5000).all(|i| d.of(i, 0) == d.of(i, 1) && d.of(i, 0) >= 1));
    }
}
