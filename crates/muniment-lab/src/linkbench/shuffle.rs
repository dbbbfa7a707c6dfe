//! LinkBench's permutations, which give each rank an id. They decide whether nodes that are read
//! often have many links, so they are computed bit for bit as in the original, from Java's
//! generator.

/// `java.util.Random`, as its documentation defines it.
pub(crate) struct JavaRandom(u64);

impl JavaRandom {
    /// Makes a generator with this seed.
    pub(crate) fn new(seed: i64) -> JavaRandom {
        JavaRandom((seed as u64 ^ 0x5_DEEC_E66D) & ((1 << 48) - 1))
    }

    fn next(&mut self, bits: u32) -> i32 {
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        (self.0 >> (48 - bits)) as i32
    }

    /// `nextInt(bound)`; 0 for a bound below 1.
    pub(crate) fn below(&mut self, bound: i32) -> i32 {
        if bound < 1 {
            return 0;
        }
        if bound & (bound - 1) == 0 {
            return ((i64::from(bound) * i64::from(self.next(31))) >> 31) as i32;
        }
        loop {
            let bits = self.next(31);
            let value = bits % bound;
            if bits.wrapping_sub(value).checked_add(bound - 1).is_some() {
                return value;
            }
        }
    }
}

/// The number of groups, each of which is rotated by a random distance.
const GROUPS: u64 = 1024;

/// A permutation of the numbers below `n`.
#[derive(Debug, Clone)]
pub(crate) struct Shuffle {
    n: u64,
    groups: u64,
    rotations: Vec<u64>,
}

impl Shuffle {
    /// The seed for out-degrees, and for link reads and writes that are correlated with them.
    pub(crate) const DEGREE: i64 = 20_343_988_438_726_021;
    /// The seed for link reads and writes that are not.
    pub(crate) const UNCORRELATED: i64 = 53_238_253_823_453;
    /// The seed for nodes.
    pub(crate) const NODES: i64 = 4_766_565_305_853_767_165;

    /// The permutation of `n` numbers with this seed.
    pub(crate) fn new(seed: i64, n: u64) -> Shuffle {
        let groups = GROUPS.min(n).max(1);
        let size = (n / groups) as i32;
        let mut random = JavaRandom::new(seed);
        Shuffle {
            n,
            groups,
            rotations: (0..groups).map(|_| random.below(size) as u64).collect(),
        }
    }

    /// The number that `i` is mapped to.
    pub(crate) fn permute(&self, i: u64) -> u64 {
        self.rotate(i, false)
    }

    /// The number that is mapped to `i`.
    pub(crate) fn invert(&self, i: u64) -> u64 {
        self.rotate(i, true)
    }

    fn rotate(&self, i: u64, inverse: bool) -> u64 {
        let group = i % self.groups;
        let large = group < self.n % self.groups;
        let size = self.n / self.groups + u64::from(large);
        let mut by = self.rotations.get(group as usize).copied().unwrap_or(0);
        if inverse {
            by = size - by;
        }
        let j = i + self.groups * by;
        if j < self.n {
            return j;
        }
        // A large group has one member more, so its ring is longer by one step.
        let down = self.n / self.groups * self.groups;
        let ring = if large { down + self.groups } else { down };
        let j = j % ring;
        if j >= self.n { group } else { j }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javas_generator() {
        let mut r = JavaRandom::new(42);
        assert_eq!(r.next(32), -1_170_105_035);
        assert_eq!([r.below(10), r.below(1000), r.below(1024)], [3, 248, 49]);
    }

    #[test]
    fn permutations_are_the_originals() {
        for (n, seed, want) in [
            (
                10_000_000,
                Shuffle::DEGREE,
                [355_328, 5_764_097, 1_769_474, 7_871_487, 356_352, 3_297_919],
            ),
            (
                10_000_000,
                Shuffle::UNCORRELATED,
                [
                    5_915_648, 7_568_385, 3_737_602, 1_520_639, 5_916_672, 3_851_903,
                ],
            ),
            (
                10_000_000,
                Shuffle::NODES,
                [
                    6_192_128, 7_244_801, 3_036_162, 7_223_295, 6_193_152, 3_749_503,
                ],
            ),
            (5000, Shuffle::DEGREE, [3072, 2049, 1026, 4095, 4096, 4999]),
            (5000, Shuffle::NODES, [2048, 1, 2050, 2047, 3072, 1927]),
        ] {
            let s = Shuffle::new(seed, n);
            let got = [0, 1, 2, 1023, 1024, n - 1].map(|i| s.permute(i));
            assert_eq!(got, want, "{n} {seed}");
        }
    }

    #[test]
    fn they_are_permutations_and_invertible() {
        for n in [1, 10, 1023, 1024, 1025, 5000, 77_777] {
            let s = Shuffle::new(Shuffle::DEGREE, n);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                let j = s.permute(i);
                assert_eq!(s.invert(j), i, "{n}");
                assert!(
                    seen.get_mut(j as usize)
                        .is_some_and(|s| !std::mem::replace(s, true))
                );
            }
        }
    }
}
