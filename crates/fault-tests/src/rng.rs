//! Random choices that can be repeated.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// `n` characters that do not compress.
    pub fn text(&mut self, n: usize) -> String {
        (0..n)
            .map(|_| char::from(b'!' + (self.below(90) as u8)))
            .collect()
    }
}

/// True if the long version is asked for.
pub fn long() -> bool {
    std::env::var_os("MUNIMENT_LONG").is_some_and(|v| v != "0")
}

/// The seed of this run, printed so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("MUNIMENT_SEED").ok();
    let seed = given.and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_nanos() as u64 % 1_000_000
    });
    println!("MUNIMENT_SEED={seed}");
    seed
}
