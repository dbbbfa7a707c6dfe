//! The states of windows over numbers, from which a number can be removed again.

use super::Sliding;
use super::sum::exact;
use crate::bytes::put;
use muniment_value::decimal::Decimal;
use muniment_value::{Result, Value, number};

/// A sum from which numbers can be removed. Whole numbers are added exactly and doubles with compensation;
/// numbers that are not finite are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::stage) struct RemovableSum {
    whole: i128,
    double: f64,
    lost: f64,
    decimal: Option<Decimal>,
    longs: i64,
    doubles: i64,
    decimals: i64,
    nan: i64,
    infinite: i64,
    negative_infinite: i64,
    /// The number of numbers.
    pub count: i64,
}

impl RemovableSum {
    /// Adds a number (`sign` 1) or removes it (−1). Other values are ignored.
    pub(crate) fn update(&mut self, v: Value<'_>, sign: i64) {
        if !v.is_number() {
            return;
        }
        self.count += sign;
        match v {
            Value::Int64(_) => self.longs += sign,
            Value::Double(_) => self.doubles += sign,
            Value::Decimal128(_) => self.decimals += sign,
            _ => {}
        }
        if number::is_nan(v) {
            self.nan += sign;
        } else if number::is_infinite(v) {
            if number::is_negative(v) {
                self.negative_infinite += sign;
            } else {
                self.infinite += sign;
            }
        } else {
            match v {
                Value::Int32(n) => self.whole += i128::from(n) * i128::from(sign),
                Value::Int64(n) => self.whole += i128::from(n) * i128::from(sign),
                Value::Double(n) => self.add_double(if sign < 0 { -n } else { n }),
                Value::Decimal128(b) => {
                    let d = Decimal::from_bid(b);
                    let d = if sign < 0 { d.negated() } else { d };
                    self.decimal = Some(self.decimal.map_or(d, |sum| sum.add(d)));
                }
                _ => {}
            }
        }
        if self.decimals == 0 {
            self.decimal = None;
        }
        if self.doubles == 0 {
            (self.double, self.lost) = (0.0, 0.0);
        }
    }

    /// Adds a double to the sum.
    fn add_double(&mut self, n: f64) {
        let sum = self.double + n;
        if sum.is_finite() {
            self.lost += if self.double.abs() >= n.abs() {
                (self.double - sum) + n
            } else {
                (n - sum) + self.double
            };
        }
        self.double = sum;
    }

    /// NaN or an infinity, if the sum is not finite.
    fn special(&self) -> Option<f64> {
        match (self.nan, self.infinite, self.negative_infinite) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }

    /// The sum as a double.
    pub(crate) fn as_f64(&self) -> f64 {
        if let Some(n) = self.special() {
            return n;
        }
        let decimal = self.decimal.map_or(0.0, Decimal::to_f64);
        self.whole as f64 + (self.double + self.lost) + decimal
    }

    /// The sum as a decimal, if there is a decimal among the numbers.
    pub(crate) fn as_decimal(&self) -> Option<Decimal> {
        if self.decimals == 0 {
            return None;
        }
        if let Some(n) = self.special() {
            return Some(Decimal::from_f64(n));
        }
        let whole = Decimal::from_parts(self.whole < 0, self.whole.unsigned_abs(), 0)
            .unwrap_or_else(|| Decimal::from_f64(self.whole as f64));
        let sum = self.decimal.map_or(whole, |d| d.add(whole));
        Some(if self.doubles > 0 {
            sum.add(exact(self.double)).add(exact(self.lost))
        } else {
            sum
        })
    }

    /// The sum in the widest type among the numbers.
    pub(crate) fn sum(&self) -> Value<'static> {
        if let Some(d) = self.as_decimal() {
            return Value::Decimal128(d.to_bid());
        }
        if self.doubles > 0 {
            return Value::Double(self.as_f64());
        }
        match i64::try_from(self.whole) {
            Ok(n) if self.longs > 0 => Value::Int64(n),
            Ok(n) => number::narrow(n),
            Err(_) => Value::Double(self.whole as f64),
        }
    }

    /// The mean; null if there are no numbers.
    pub(crate) fn mean(&self) -> Value<'static> {
        if self.count == 0 {
            return Value::Null;
        }
        match self.as_decimal() {
            Some(d) => Value::Decimal128(d.div(Decimal::from_i64(self.count)).to_bid()),
            None => Value::Double(self.as_f64() / self.count as f64),
        }
    }
}

/// `$sum` and `$avg`.
#[derive(Debug)]
pub(super) struct SlidingSum {
    total: RemovableSum,
    mean: bool,
}

impl SlidingSum {
    pub(crate) fn new(mean: bool) -> SlidingSum {
        SlidingSum {
            total: RemovableSum::default(),
            mean,
        }
    }
}

impl Sliding for SlidingSum {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = v {
            self.total.update(v, 1);
        }
        Ok(())
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = v {
            self.total.update(v, -1);
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        let v = if self.mean {
            self.total.mean()
        } else {
            self.total.sum()
        };
        put(out, name, &v);
    }
}

/// `$stdDevPop` and `$stdDevSamp`: the sum and the sum of the squared differences, which the recurrence of
/// Youngs and Cramer updates in both directions.
#[derive(Debug)]
pub(super) struct SlidingDev {
    sample: bool,
    n: i64,
    sum: RemovableSum,
    squares: RemovableSum,
    /// The number of values that are not finite. While there is one, the deviation is null.
    odd: i64,
}

impl SlidingDev {
    pub(crate) fn new(sample: bool) -> SlidingDev {
        SlidingDev {
            sample,
            n: 0,
            sum: RemovableSum::default(),
            squares: RemovableSum::default(),
            odd: 0,
        }
    }

    fn update(&mut self, v: Option<Value<'_>>, sign: i64) {
        let Some(n) = v.and_then(number::to_f64) else {
            return;
        };
        if !n.is_finite() {
            self.odd += sign;
            return;
        }
        let v = Value::Double(n);
        if self.n == 0 || self.n + sign == 0 {
            let odd = self.odd;
            *self = SlidingDev::new(self.sample);
            self.odd = odd;
            if sign > 0 {
                self.n = 1;
                self.sum.update(v, 1);
            }
            return;
        }
        let x = self.n as f64 * n - self.sum.as_f64();
        self.n += sign;
        self.sum.update(v, sign);
        let more = x * x * sign as f64 / (self.n as f64 * (self.n - sign) as f64);
        self.squares.update(Value::Double(more), 1);
    }
}

impl Sliding for SlidingDev {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        self.update(v, 1);
        Ok(())
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        self.update(v, -1);
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        let n = if self.sample { self.n - 1 } else { self.n };
        if n <= 0 || self.odd > 0 {
            return put(out, name, &Value::Null);
        }
        let squares = self.squares.as_f64();
        if self.n == 1 || squares < 0.0 {
            return put(out, name, &0_i32);
        }
        put(out, name, &(squares / n as f64).sqrt());
    }
}
