//! YCSB's hash: FNV-1a with the multiplication after the xor, over the eight octets of a number,
//! least significant first, made non-negative.

const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 1_099_511_628_211;

/// The hash of `n`. Java's `Math.abs` leaves the smallest number negative, and YCSB's decimal text
/// of it then has a sign; an `i64` keeps that.
pub(crate) fn hash(n: u64) -> i64 {
    let h = n
        .to_le_bytes()
        .iter()
        .fold(BASIS, |h, b| (h ^ u64::from(*b)).wrapping_mul(PRIME));
    (h as i64).wrapping_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_ycsb() {
        assert_eq!(hash(0), 6_284_781_860_667_377_211);
        assert_eq!(hash(1), 8_517_097_267_634_966_620);
        assert_eq!(hash(1000), 5_952_875_239_596_136_740);
    }
}
