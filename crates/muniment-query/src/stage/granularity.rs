//! Series of preferred numbers, to which `$bucketAuto` rounds the ends of its buckets.
//!
//! Sources: ISO 3 (Renard series R5 to R80), IEC 60063 (E series), the 1-2-5 series, and powers
//! of two.

use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value, ValueBuf, number};

/// A series of preferred numbers.
#[derive(Clone, Debug)]
pub(super) enum Granularity {
    PowersOf2,
    /// One decade of the series, ascending.
    Series(Vec<f64>),
}

const R5: &[u32] = &[10, 16, 25, 40, 63];
const R10: &[u32] = &[100, 125, 160, 200, 250, 315, 400, 500, 630, 800];
const R20: &[u32] = &[
    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800,
    900,
];
const R40: &[u32] = &[
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280,
    300, 315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850,
    900, 950,
];
const R80: &[u32] = &[
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290,
    307, 325, 345, 365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875,
    925, 975,
];
const ONE_TWO_FIVE: &[u32] = &[10, 20, 50];
const E6: &[u32] = &[10, 15, 22, 33, 47, 68];
const E12: &[u32] = &[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82];
const E24: &[u32] = &[
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
];

/// E48 and finer: powers of the n-th root of ten, rounded to three digits. IEC 60063 has one exception, 9.20.
fn e_series(n: u32) -> Vec<f64> {
    (0..n)
        .map(|k| {
            let v = (100.0 * 10_f64.powf(f64::from(k) / f64::from(n))).round();
            if v == 919.0 { 920.0 } else { v }
        })
        .collect()
}

impl Granularity {
    /// The series with this name.
    ///
    /// # Errors
    /// 40257 if there is none.
    pub(crate) fn named(name: &str) -> Result<Granularity> {
        let series = |s: &[u32]| s.iter().map(|n| f64::from(*n)).collect();
        Ok(Granularity::Series(match name {
            "POWERSOF2" => return Ok(Granularity::PowersOf2),
            "R5" => series(R5),
            "R10" => series(R10),
            "R20" => series(R20),
            "R40" => series(R40),
            "R80" => {
                // R80 has the members of R40, and another one after each of them.
                let mut all: Vec<u32> = R40.iter().chain(R80).copied().collect();
                all.sort_unstable();
                series(&all)
            }
            "1-2-5" => series(ONE_TWO_FIVE),
            "E6" => series(E6),
            "E12" => series(E12),
            "E24" => series(E24),
            "E48" => e_series(48),
            "E96" => e_series(96),
            "E192" => e_series(192),
            _ => {
                return Err(Error::location(
                    40257,
                    format!("Unknown rounding granularity '{name}'"),
                ));
            }
        }))
    }

    /// Checks whether `v` can be rounded.
    ///
    /// # Errors
    /// 40258 for a value that is not a number, 40259 for NaN, 40260 for negative numbers.
    pub(crate) fn check(v: Value<'_>) -> Result<()> {
        if !v.is_number() {
            return Err(Error::location(
                40258,
                format!(
                    "A granularity rounder can only round numeric values, but found type: {}.",
                    v.type_name()
                ),
            ));
        }
        if number::is_nan(v) {
            return Err(Error::location(
                40259,
                "A granularity rounder cannot round NaN.",
            ));
        }
        if number::is_negative(v) && !number::is_zero(v) {
            return Err(Error::location(
                40260,
                format!(
                    "A granularity rounder can only round non-negative numbers, but found {}.",
                    v.to_display()
                ),
            ));
        }
        Ok(())
    }

    /// The least member above `v`; 0 and infinity stay as they are.
    pub(crate) fn round_up(&self, v: Value<'_>) -> ValueBuf {
        self.round(v, true)
    }

    /// The greatest member below `v`; 0 and infinity stay as they are.
    pub(crate) fn round_down(&self, v: Value<'_>) -> ValueBuf {
        self.round(v, false)
    }

    fn round(&self, v: Value<'_>, up: bool) -> ValueBuf {
        let Some(n) = number::to_f64(v).filter(|n| *n != 0.0 && n.is_finite()) else {
            return ValueBuf::new(v);
        };
        let decimal = match v {
            Value::Decimal128(b) => Some(Decimal::from_bid(b)),
            _ => None,
        };
        match self {
            Granularity::PowersOf2 => ValueBuf::new(power_of_2(n, decimal.is_some(), up)),
            Granularity::Series(series) => ValueBuf::new(match decimal {
                Some(d) => Value::Decimal128(in_series(series, d, up).to_bid()),
                None => Value::Double(in_series(series, n, up)),
            }),
        }
    }
}

fn power_of_2(n: f64, decimal: bool, up: bool) -> Value<'static> {
    let exponent = if up {
        n.log2().floor() + 1.0
    } else {
        n.log2().ceil() - 1.0
    };
    let power = exponent.exp2();
    if decimal {
        return Value::Decimal128(Decimal::from_f64(power).to_bid());
    }
    if (0.0..63.0).contains(&exponent) {
        number::narrow(power as i64)
    } else {
        Value::Double(power)
    }
}

/// The type of numbers to which a series can be scaled.
trait Number: Copy {
    fn of(n: f64) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    fn less(self, other: Self) -> bool;
}

impl Number for f64 {
    fn of(n: f64) -> f64 {
        n
    }
    fn times(self, other: f64) -> f64 {
        self * other
    }
    fn over(self, other: f64) -> f64 {
        self / other
    }
    fn less(self, other: f64) -> bool {
        self < other
    }
}

impl Number for Decimal {
    fn of(n: f64) -> Decimal {
        Decimal::from_i64(n as i64)
    }
    fn times(self, other: Decimal) -> Decimal {
        self.mul(other)
    }
    fn over(self, other: Decimal) -> Decimal {
        self.div(other)
    }
    fn less(self, other: Decimal) -> bool {
        self.cmp_value(other).is_lt()
    }
}

/// The next member above (or below) `n`, which is finite and positive.
fn in_series<N: Number>(series: &[f64], n: N, up: bool) -> N {
    let (Some(first), Some(last)) = (series.first(), series.last()) else {
        return n;
    };
    let (first, last, ten) = (N::of(*first), N::of(*last), N::of(10.0));
    let mut scale = N::of(1.0);
    // Each loop takes at most as many steps as the range of the numbers has decades.
    if up {
        while !n.less(last.times(scale)) && last.times(scale).less(last.times(scale.times(ten))) {
            scale = scale.times(ten);
        }
        while n.less(first.times(scale)) {
            let previous = first.times(scale);
            let smaller = scale.over(ten);
            if !smaller.less(scale) {
                return previous;
            }
            scale = smaller;
            if !n.less(last.times(scale)) {
                return previous;
            }
        }
        let above = series
            .iter()
            .map(|s| N::of(*s).times(scale))
            .find(|s| n.less(*s));
        return above.unwrap_or(n);
    }
    while !first.times(scale).less(n) {
        let smaller = scale.over(ten);
        if !smaller.less(scale) {
            return n;
        }
        scale = smaller;
    }
    while last.times(scale).less(n) {
        let previous = last.times(scale);
        let larger = scale.times(ten);
        if !scale.less(larger) {
            return previous;
        }
        scale = larger;
        if !first.times(scale).less(n) {
            return previous;
        }
    }
    let below = series
        .iter()
        .rev()
        .map(|s| N::of(*s).times(scale))
        .find(|s| s.less(n));
    below.unwrap_or(n)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn table_of_series() {
        for (name, n, down, up) in [
            ("R5", 1.0, 0.63, 1.6),
            ("R5", 16.0, 10.0, 25.0),
            ("R5", 64.0, 63.0, 100.0),
            ("1-2-5", 1000.0, 500.0, 2000.0),
            ("E6", 0.02, 0.015, 0.022),
            ("E192", 915.0, 909.0, 920.0),
            ("R80", 1.0, 0.975, 1.03),
            ("E48", 953.5, 953.0, 1000.0),
        ] {
            let g = Granularity::named(name).unwrap();
            let near = |v: &ValueBuf, want: f64| {
                let got = number::to_f64(v.as_value()).unwrap();
                (got / want - 1.0).abs() < 1e-12
            };
            let v = Value::Double(n);
            assert!(
                near(&g.round_down(v), down),
                "{name} {n} {:?}",
                g.round_down(v)
            );
            assert!(near(&g.round_up(v), up), "{name} {n} {:?}", g.round_up(v));
        }
        let g = Granularity::named("POWERSOF2").unwrap();
        let show = |v: ValueBuf| v.as_value().to_display();
        assert_eq!(show(g.round_up(Value::Int32(4))), "8");
        assert_eq!(show(g.round_down(Value::Int32(4))), "2");
        assert_eq!(show(g.round_down(Value::Int32(1))), "0.5");
        assert!(Granularity::named("R6").is_err());
    }

    #[test]
    fn extremes_end() {
        for name in ["R5", "E192", "POWERSOF2"] {
            let g = Granularity::named(name).unwrap();
            for n in [f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, 0.0] {
                g.round_up(Value::Double(n));
                g.round_down(Value::Double(n));
            }
            for text in ["9.99E6144", "1E-6176", "Infinity", "0"] {
                let d = Value::Decimal128(Decimal::parse(text).unwrap().to_bid());
                g.round_up(d);
                g.round_down(d);
            }
        }
    }

    #[test]
    fn the_series_ascend() {
        for name in [
            "R5", "R10", "R20", "R40", "R80", "1-2-5", "E6", "E12", "E24", "E48", "E96", "E192",
        ] {
            let Ok(Granularity::Series(s)) = Granularity::named(name) else {
                unreachable!("{name}");
            };
            assert!(s.is_sorted_by(|a, b| a < b), "{name}");
            if let Ok(n) = name[1..].parse::<usize>() {
                assert_eq!(s.len(), n, "{name}");
            }
        }
    }
}
