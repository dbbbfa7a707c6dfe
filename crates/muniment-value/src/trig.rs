//! Trigonometric and hyperbolic functions of decimals.
//!
//! The functions are computed with 75 digits, and with 140 for large angles (by series after a reduction of
//! the argument), and rounded once to 34. An angle of 1E100 or more has no exact digit left after the
//! reduction, so its functions are NaN.

use crate::decimal::Decimal;
use std::cmp::Ordering;

/// The digits of the computation: 34, as many again for the digits that a difference cancels, and some more.
const PRECISION: usize = 75;

/// The digits for the reduction of a large angle.
const ANGLE_PRECISION: usize = 140;

/// The exponent from which on an angle is large.
const LARGE_ANGLE: i32 = 20;

/// π to 150 digits (Machin's formula).
const PI: &str = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651328230664709384460955058223172535940812848";

/// The greatest exponent of an angle that can still be reduced.
const MAX_ANGLE: i32 = 100;

type Dec = dec::Decimal<48>;

/// Arithmetic with many digits.
struct Wide(dec::Context<Dec>);

impl Wide {
    fn new() -> Wide {
        let mut cx = dec::Context::<Dec>::default();
        // decNumber's functions require these limits, which all three calls accept.
        let _ = cx.set_precision(PRECISION);
        let _ = cx.set_max_exponent(999_999);
        let _ = cx.set_min_exponent(-999_999);
        Wide(cx)
    }

    fn parse(&mut self, text: &str) -> Dec {
        self.0.parse(text).unwrap_or_else(|_| Dec::nan())
    }

    fn of(&mut self, d: Decimal) -> Dec {
        self.parse(&d.to_string())
    }

    fn int(&mut self, n: i32) -> Dec {
        self.0.from_i32(n)
    }

    fn pi(&mut self) -> Dec {
        self.parse(PI)
    }

    fn add(&mut self, mut a: Dec, b: Dec) -> Dec {
        self.0.add(&mut a, &b);
        a
    }

    fn sub(&mut self, mut a: Dec, b: Dec) -> Dec {
        self.0.sub(&mut a, &b);
        a
    }

    fn mul(&mut self, mut a: Dec, b: Dec) -> Dec {
        self.0.mul(&mut a, &b);
        a
    }

    fn div(&mut self, mut a: Dec, b: Dec) -> Dec {
        self.0.div(&mut a, &b);
        a
    }

    fn neg(&mut self, mut a: Dec) -> Dec {
        self.0.neg(&mut a);
        a
    }

    fn sqrt(&mut self, mut a: Dec) -> Dec {
        self.0.sqrt(&mut a);
        a
    }

    fn exp(&mut self, mut a: Dec) -> Dec {
        self.0.exp(&mut a);
        a
    }

    fn ln(&mut self, mut a: Dec) -> Dec {
        self.0.ln(&mut a);
        a
    }

    fn half(&mut self, a: Dec) -> Dec {
        let two = self.int(2);
        self.div(a, two)
    }

    fn less(&mut self, a: Dec, b: Dec) -> bool {
        self.0.partial_cmp(&a, &b) == Some(Ordering::Less)
    }

    /// |a| < 10^exponent.
    fn below(&mut self, mut a: Dec, exponent: i32) -> bool {
        let limit = self.parse(&format!("1E{exponent}"));
        self.0.abs(&mut a);
        self.less(a, limit)
    }

    /// x − s·x³/(2·3) + s²·x⁵/(2·3·4·5) …: the sine for s = −1, the hyperbolic sine for s = 1.
    /// If the series begins with the term 1 instead of x, it is that of the cosines.
    fn series(&mut self, x: Dec, odd: bool, sign: i32) -> Dec {
        let square = self.mul(x, x);
        let mut term = if odd { x } else { self.int(1) };
        let mut sum = term;
        for n in 1..200 {
            let k = 2 * n + i32::from(odd);
            let divisor = self.int(sign * k * (k - 1));
            term = self.mul(term, square);
            term = self.div(term, divisor);
            let before = sum;
            sum = self.add(sum, term);
            if self.0.partial_cmp(&before, &sum) == Some(Ordering::Equal) {
                break;
            }
        }
        sum
    }

    /// An angle as a number of quarter turns and a rest of at most an eighth of a turn.
    fn reduce(&mut self, x: Dec) -> Option<(u8, Dec)> {
        if !self.below(x, MAX_ANGLE) {
            return None;
        }
        if !self.below(x, LARGE_ANGLE) {
            let _ = self.0.set_precision(ANGLE_PRECISION);
        }
        let quarter = self.pi();
        let quarter = self.half(quarter);
        let mut turns = self.div(x, quarter);
        self.0.round(&mut turns);
        let whole = self.mul(turns, quarter);
        let rest = self.sub(x, whole);
        let four = self.int(4);
        let mut n = turns;
        self.0.rem(&mut n, &four);
        let n = Decimal::parse(&n.to_string())?.to_i64_exact()?;
        Some((n.rem_euclid(4) as u8, rest))
    }

    /// The sine of an angle with this many quarter turns and this rest.
    fn sin_of(&mut self, turns: u8, rest: Dec) -> Dec {
        let v = self.series(rest, turns.is_multiple_of(2), -1);
        if turns % 4 >= 2 { self.neg(v) } else { v }
    }

    fn atan(&mut self, x: Dec) -> Dec {
        // Three steps of atan x = 2·atan(x / (1 + √(1 + x²))) bring the argument below 0.2.
        let mut x = x;
        let one = self.int(1);
        for _ in 0..3 {
            let square = self.mul(x, x);
            let root = self.add(one, square);
            let root = self.sqrt(root);
            let below = self.add(one, root);
            x = self.div(x, below);
        }
        let square = self.mul(x, x);
        let square = self.neg(square);
        let (mut power, mut sum) = (x, x);
        for n in 1..400 {
            power = self.mul(power, square);
            let divisor = self.int(2 * n + 1);
            let term = self.div(power, divisor);
            let before = sum;
            sum = self.add(sum, term);
            if self.0.partial_cmp(&before, &sum) == Some(Ordering::Equal) {
                break;
            }
        }
        let eight = self.int(8);
        self.mul(sum, eight)
    }

    fn done(&mut self, d: Dec) -> Decimal {
        Decimal::parse(&d.to_string()).unwrap_or(Decimal::NAN)
    }
}

/// The results for values that are not finite, and the zero of odd functions.
enum Special {
    /// The argument needs computing.
    No,
    /// This is the result.
    Is(Decimal),
}

impl Decimal {
    fn one(negative: bool) -> Decimal {
        Decimal::from_i64(if negative { -1 } else { 1 })
    }

    /// n quarters of π with a sign.
    fn quarters_of_pi(n: i32, negative: bool) -> Decimal {
        let mut w = Wide::new();
        let (pi, n) = (w.pi(), w.int(if negative { -n } else { n }));
        let v = w.mul(pi, n);
        let four = w.int(4);
        let v = w.div(v, four);
        w.done(v)
    }

    fn with_wide(self, special: Special, f: impl FnOnce(&mut Wide, Dec) -> Dec) -> Decimal {
        match special {
            Special::Is(d) => d,
            Special::No if self.is_nan() => Decimal::NAN,
            Special::No => {
                let mut w = Wide::new();
                let x = w.of(self);
                let y = f(&mut w, x);
                w.done(y)
            }
        }
    }

    fn odd(self, at_infinity: impl FnOnce() -> Decimal) -> Special {
        if self.is_zero() {
            Special::Is(self)
        } else if self.is_infinite() {
            Special::Is(at_infinity())
        } else {
            Special::No
        }
    }

    /// The sine of an angle in radians; NaN for an infinite one.
    pub fn sin(self) -> Decimal {
        self.with_wide(self.odd(|| Decimal::NAN), |w, x| match w.reduce(x) {
            Some((turns, rest)) => w.sin_of(turns, rest),
            None => Dec::nan(),
        })
    }

    /// The cosine.
    pub fn cos(self) -> Decimal {
        if self.is_zero() {
            return Decimal::one(false);
        }
        self.with_wide(self.odd(|| Decimal::NAN), |w, x| match w.reduce(x) {
            Some((turns, rest)) => w.sin_of((turns + 1) % 4, rest),
            None => Dec::nan(),
        })
    }

    /// The tangent.
    pub fn tan(self) -> Decimal {
        self.with_wide(self.odd(|| Decimal::NAN), |w, x| match w.reduce(x) {
            Some((turns, rest)) => {
                let (s, c) = (w.sin_of(turns, rest), w.sin_of((turns + 1) % 4, rest));
                w.div(s, c)
            }
            None => Dec::nan(),
        })
    }

    /// The inverse sine; NaN outside of [−1, 1].
    pub fn asin(self) -> Decimal {
        self.with_wide(self.odd(|| Decimal::NAN), |w, x| {
            let one = w.int(1);
            let (a, b) = (w.sub(one, x), w.add(one, x));
            let square = w.mul(a, b);
            if square.is_zero() {
                let pi = w.pi();
                let half = w.half(pi);
                return if x.is_negative() { w.neg(half) } else { half };
            }
            let root = w.sqrt(square);
            let t = w.div(x, root);
            w.atan(t)
        })
    }

    /// The inverse cosine; NaN outside of [−1, 1].
    pub fn acos(self) -> Decimal {
        if self.is_infinite() {
            return Decimal::NAN;
        }
        self.with_wide(Special::No, |w, x| {
            let one = w.int(1);
            let (a, b) = (w.sub(one, x), w.add(one, x));
            if b.is_zero() {
                return w.pi();
            }
            let t = w.div(a, b);
            let t = w.sqrt(t);
            let half = w.atan(t);
            w.add(half, half)
        })
    }

    /// The inverse tangent.
    pub fn atan(self) -> Decimal {
        let special = self.odd(|| Decimal::quarters_of_pi(2, self.is_negative()));
        self.with_wide(special, |w, x| w.atan(x))
    }

    /// The angle of the point (x, self).
    pub fn atan2(self, x: Decimal) -> Decimal {
        if self.is_nan() || x.is_nan() {
            return Decimal::NAN;
        }
        let down = self.is_negative();
        match (self.is_infinite(), x.is_infinite()) {
            (true, true) => {
                return Decimal::quarters_of_pi(if x.is_negative() { 3 } else { 1 }, down);
            }
            (true, false) => return Decimal::quarters_of_pi(2, down),
            (false, true) if !x.is_negative() => {
                let zero = Decimal::ZERO;
                return if down { zero.negated() } else { zero };
            }
            (false, true) => return Decimal::quarters_of_pi(4, down),
            (false, false) => {}
        }
        if self.is_zero() {
            return if x.is_negative() {
                Decimal::quarters_of_pi(4, down)
            } else {
                self
            };
        }
        if x.is_zero() {
            return Decimal::quarters_of_pi(2, down);
        }
        self.with_wide(Special::No, |w, y| {
            let x = w.of(x);
            let t = w.div(y, x);
            let angle = w.atan(t);
            if !x.is_negative() {
                return angle;
            }
            let pi = w.pi();
            if down {
                w.sub(angle, pi)
            } else {
                w.add(angle, pi)
            }
        })
    }

    /// The hyperbolic sine.
    pub fn sinh(self) -> Decimal {
        self.with_wide(self.odd(|| self), |w, x| {
            if w.below(x, 0) {
                return w.series(x, true, 1);
            }
            let minus = w.neg(x);
            let (a, b) = (w.exp(x), w.exp(minus));
            let d = w.sub(a, b);
            w.half(d)
        })
    }

    /// The hyperbolic cosine.
    pub fn cosh(self) -> Decimal {
        if self.is_zero() {
            return Decimal::one(false);
        }
        self.with_wide(self.odd(|| self.abs()), |w, x| {
            let minus = w.neg(x);
            let (a, b) = (w.exp(x), w.exp(minus));
            let s = w.add(a, b);
            w.half(s)
        })
    }

    /// The hyperbolic tangent.
    pub fn tanh(self) -> Decimal {
        self.with_wide(self.odd(|| Decimal::one(self.is_negative())), |w, x| {
            if w.below(x, 0) {
                let (s, c) = (w.series(x, true, 1), w.series(x, false, 1));
                return w.div(s, c);
            }
            if !w.below(x, 3) {
                return w.int(if x.is_negative() { -1 } else { 1 });
            }
            let twice = w.add(x, x);
            let e = w.exp(twice);
            let one = w.int(1);
            let (a, b) = (w.sub(e, one), w.add(e, one));
            w.div(a, b)
        })
    }

    /// The inverse hyperbolic sine.
    pub fn asinh(self) -> Decimal {
        self.with_wide(self.odd(|| self), |w, x| {
            // Below this bound, x³/6 does not affect the 34 digits of x.
            if w.below(x, -30) {
                return w.series(x, true, -1);
            }
            let positive = if x.is_negative() { w.neg(x) } else { x };
            let square = w.mul(positive, positive);
            let one = w.int(1);
            let root = w.add(square, one);
            let root = w.sqrt(root);
            let sum = w.add(positive, root);
            let v = w.ln(sum);
            if x.is_negative() { w.neg(v) } else { v }
        })
    }

    /// The inverse hyperbolic cosine; NaN below 1.
    pub fn acosh(self) -> Decimal {
        if self.is_infinite() {
            return if self.is_negative() {
                Decimal::NAN
            } else {
                self
            };
        }
        self.with_wide(Special::No, |w, x| {
            let one = w.int(1);
            let (a, b) = (w.sub(x, one), w.add(x, one));
            let square = w.mul(a, b);
            let root = w.sqrt(square);
            let sum = w.add(x, root);
            w.ln(sum)
        })
    }

    /// The inverse hyperbolic tangent: infinite at −1 and 1, NaN beyond.
    pub fn atanh(self) -> Decimal {
        self.with_wide(self.odd(|| Decimal::NAN), |w, x| {
            // Below this bound, x³/3 does not affect the 34 digits of x.
            if w.below(x, -30) {
                return w.series(x, true, 1);
            }
            let one = w.int(1);
            let (a, b) = (w.add(one, x), w.sub(one, x));
            if a.is_zero() || b.is_zero() {
                let infinity = Dec::infinity();
                return if a.is_zero() {
                    w.neg(infinity)
                } else {
                    infinity
                };
            }
            let q = w.div(a, b);
            let v = w.ln(q);
            w.half(v)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// The values are those of Python's mpmath, rounded to 34 digits.
    #[test]
    fn table() {
        type F = fn(Decimal) -> Decimal;
        let rows: &[(&str, F, &str, &str)] = &[
            (
                "sin",
                Decimal::sin,
                "1",
                "0.8414709848078965066525023216302990",
            ),
            (
                "sin",
                Decimal::sin,
                "-2.5",
                "-0.5984721441039564940518547021861623",
            ),
            (
                "sin",
                Decimal::sin,
                "1E+30",
                "-0.09011690191213805803038642895298733",
            ),
            (
                "sin",
                Decimal::sin,
                "3",
                "0.1411200080598672221007448028081103",
            ),
            (
                "cos",
                Decimal::cos,
                "1",
                "0.5403023058681397174009366074429766",
            ),
            (
                "cos",
                Decimal::cos,
                "100",
                "0.8623188722876839341019385139508425",
            ),
            (
                "cos",
                Decimal::cos,
                "4",
                "-0.6536436208636119146391681830977504",
            ),
            (
                "tan",
                Decimal::tan,
                "1",
                "1.557407724654902230506974807458360",
            ),
            (
                "tan",
                Decimal::tan,
                "-7.25",
                "-1.449279530126825400966804908182545",
            ),
            (
                "asin",
                Decimal::asin,
                "0.5",
                "0.5235987755982988730771072305465838",
            ),
            (
                "asin",
                Decimal::asin,
                "-1",
                "-1.570796326794896619231321691639751",
            ),
            (
                "asin",
                Decimal::asin,
                "0.9999999999999999999999999999999999",
                "1.570796326794896605089186067908801",
            ),
            (
                "acos",
                Decimal::acos,
                "0.5",
                "1.047197551196597746154214461093168",
            ),
            (
                "acos",
                Decimal::acos,
                "-0.5",
                "2.094395102393195492308428922186335",
            ),
            (
                "acos",
                Decimal::acos,
                "0.99999999",
                "0.0001414213563551606353430918368885809",
            ),
            (
                "atan",
                Decimal::atan,
                "1",
                "0.7853981633974483096156608458198757",
            ),
            (
                "atan",
                Decimal::atan,
                "-1000",
                "-1.569796327128229752564797882004831",
            ),
            (
                "atan",
                Decimal::atan,
                "0.001",
                "0.0009999996666668666665238096349205440",
            ),
            (
                "sinh",
                Decimal::sinh,
                "1",
                "1.175201193643801456882381850595601",
            ),
            (
                "sinh",
                Decimal::sinh,
                "-0.01",
                "-0.01000016666750000198412973986141174",
            ),
            (
                "sinh",
                Decimal::sinh,
                "50",
                "2592352764293536232043.726661466743",
            ),
            (
                "cosh",
                Decimal::cosh,
                "1",
                "1.543080634815243778477905620757062",
            ),
            (
                "cosh",
                Decimal::cosh,
                "-3",
                "10.06766199577776584195393603511589",
            ),
            (
                "tanh",
                Decimal::tanh,
                "0.5",
                "0.4621171572600097585023184836436725",
            ),
            (
                "tanh",
                Decimal::tanh,
                "-2",
                "-0.9640275800758168839464137241009232",
            ),
            ("tanh", Decimal::tanh, "1000", "1"),
            (
                "asinh",
                Decimal::asinh,
                "1",
                "0.8813735870195430252326093249797923",
            ),
            (
                "asinh",
                Decimal::asinh,
                "-100",
                "-5.298342365610588757368825689112906",
            ),
            (
                "asinh",
                Decimal::asinh,
                "0.125",
                "0.1246767469214427439257195377050094",
            ),
            (
                "acosh",
                Decimal::acosh,
                "2",
                "1.316957896924816708625046347307968",
            ),
            (
                "acosh",
                Decimal::acosh,
                "1.5",
                "0.9624236501192068949955178268487368",
            ),
            (
                "atanh",
                Decimal::atanh,
                "0.5",
                "0.5493061443340548456976226184612629",
            ),
            (
                "atanh",
                Decimal::atanh,
                "-0.001",
                "-0.001000000333333533333476190587301678",
            ),
            ("sin", Decimal::sin, "Infinity", "NaN"),
            ("sin", Decimal::sin, "0", "0"),
            ("cos", Decimal::cos, "0", "1"),
            ("asin", Decimal::asin, "1.1", "NaN"),
            (
                "acos",
                Decimal::acos,
                "-1",
                "3.141592653589793238462643383279503",
            ),
            (
                "atan",
                Decimal::atan,
                "-Infinity",
                "-1.570796326794896619231321691639751",
            ),
            ("sinh", Decimal::sinh, "-Infinity", "-Infinity"),
            ("cosh", Decimal::cosh, "-Infinity", "Infinity"),
            ("tanh", Decimal::tanh, "-Infinity", "-1"),
            ("acosh", Decimal::acosh, "0.5", "NaN"),
            ("acosh", Decimal::acosh, "1", "0"),
            ("atanh", Decimal::atanh, "1", "Infinity"),
            ("atanh", Decimal::atanh, "-1", "-Infinity"),
            ("sin", Decimal::sin, "NaN", "NaN"),
            ("sin", Decimal::sin, "1E+200", "NaN"),
            (
                "asinh",
                Decimal::asinh,
                "1E-40",
                "1.000000000000000000000000000000000E-40",
            ),
        ];
        for (name, f, x, want) in rows {
            let got = f(Decimal::parse(x).unwrap());
            assert_eq!(got.to_string(), *want, "{name} {x}");
        }
    }

    #[test]
    fn atan2_of_all_quadrants() {
        let d = |s: &str| Decimal::parse(s).unwrap();
        for (y, x, want) in [
            ("0", "1", "0"),
            ("0", "-1", "3.141592653589793238462643383279503"),
            ("-0", "-1", "-3.141592653589793238462643383279503"),
            ("1", "0", "1.570796326794896619231321691639751"),
            ("-1", "0", "-1.570796326794896619231321691639751"),
            ("1", "1", "0.7853981633974483096156608458198757"),
            ("1", "-1", "2.356194490192344928846982537459627"),
            ("-1", "-1", "-2.356194490192344928846982537459627"),
            (
                "Infinity",
                "-Infinity",
                "2.356194490192344928846982537459627",
            ),
            ("1", "Infinity", "0"),
            ("1", "NaN", "NaN"),
        ] {
            assert_eq!(d(y).atan2(d(x)).to_string(), want, "{y} {x}");
        }
    }
}
