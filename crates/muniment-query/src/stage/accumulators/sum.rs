//! `$sum`, and the running total that `$avg` shares.

use super::sliding_numbers::SlidingSum;
use super::{Accumulator, Order, Spec, no_state};
use crate::bytes::{close, head, open, put};
use muniment_value::decimal::Decimal;
use muniment_value::{Result, Type, Value, number};

pub(super) const SPEC: Spec = Spec::unary(
    "$sum",
    "The sum of the numbers among the values.",
    Order::Free,
    |_| Box::new(Sum::default()),
)
.windows(|_| Box::new(SlidingSum::new(false)));

/// A sum in which whole numbers stay exact and doubles are compensated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Total {
    whole: i128,
    /// Neumaier's summation: the sum, and the part that was lost to rounding.
    double: f64,
    lost: f64,
    decimal: Option<Decimal>,
    long: bool,
    doubles: bool,
    pub count: i64,
}

impl Total {
    pub(crate) fn add(&mut self, v: Value<'_>) {
        match v {
            Value::Int32(n) => self.whole += i128::from(n),
            Value::Int64(n) => {
                self.long = true;
                self.whole += i128::from(n);
            }
            Value::Double(n) => {
                self.doubles = true;
                self.add_double(n);
            }
            Value::Decimal128(b) => {
                let d = Decimal::from_bid(b);
                self.decimal = Some(self.decimal.map_or(d, |sum| sum.add(d)));
            }
            _ => return,
        }
        self.count += 1;
    }

    /// Adds a number to the sum for a mean. There, a long counts as a double.
    pub(crate) fn add_to_mean(&mut self, v: Value<'_>) {
        self.add(match v {
            // Up to this value the conversion makes no difference.
            Value::Int64(n) if n.unsigned_abs() > 1 << 53 => Value::Double(n as f64),
            v => v,
        });
    }

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

    fn as_f64(&self) -> f64 {
        let whole = self.whole as f64;
        let doubles = if self.double.is_finite() {
            self.double + self.lost
        } else {
            self.double
        };
        whole + doubles
    }

    fn as_decimal(&self, d: Decimal) -> Decimal {
        let whole = Decimal::from_parts(self.whole < 0, self.whole.unsigned_abs(), 0)
            .unwrap_or_else(|| Decimal::from_f64(self.whole as f64));
        let sum = d.add(whole);
        if self.doubles {
            sum.add(exact(self.double)).add(exact(self.lost))
        } else {
            sum
        }
    }

    /// The sum in the widest type that was added.
    pub(crate) fn sum(&self) -> Value<'static> {
        if let Some(d) = self.decimal {
            return Value::Decimal128(self.as_decimal(d).to_bid());
        }
        if self.doubles {
            return Value::Double(self.as_f64());
        }
        match i64::try_from(self.whole) {
            Ok(n) if self.long => Value::Int64(n),
            Ok(n) => number::narrow(n),
            Err(_) => Value::Double(self.whole as f64),
        }
    }

    /// The mean; null if there are no numbers.
    pub(crate) fn mean(&self) -> Value<'static> {
        if self.count == 0 {
            return Value::Null;
        }
        if let Some(d) = self.decimal {
            let mean = self.as_decimal(d).div(Decimal::from_i64(self.count));
            return Value::Decimal128(mean.to_bid());
        }
        Value::Double(self.as_f64() / self.count as f64)
    }

    pub(crate) fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        head(out, Type::Document, name);
        let start = open(out);
        let whole = self.whole.to_le_bytes();
        put(
            out,
            b"w",
            &Value::Binary {
                subtype: 0,
                bytes: &whole,
            },
        );
        put(out, b"d", &self.double);
        put(out, b"l", &self.lost);
        if let Some(d) = self.decimal {
            put(out, b"m", &Value::Decimal128(d.to_bid()));
        }
        put(out, b"L", &self.long);
        put(out, b"D", &self.doubles);
        put(out, b"n", &self.count);
        close(out, start);
    }

    /// Adds a saved total.
    ///
    /// # Errors
    /// An internal error for a value that is none.
    pub(crate) fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        let none = || no_state("$sum", saved);
        let d = saved.as_doc().ok_or_else(none)?;
        if d.get("w").is_none() || d.get("n").is_none() {
            return Err(none());
        }
        for e in d {
            match (e.name(), e.value()) {
                ("w", Value::Binary { bytes, .. }) => {
                    let bytes = bytes.try_into().map_err(|_| none())?;
                    self.whole += i128::from_le_bytes(bytes);
                }
                ("d" | "l", Value::Double(n)) => self.add_double(n),
                ("m", Value::Decimal128(b)) => {
                    let d = Decimal::from_bid(b);
                    self.decimal = Some(self.decimal.map_or(d, |sum| sum.add(d)));
                }
                ("L", Value::Bool(b)) => self.long |= b,
                ("D", Value::Bool(b)) => self.doubles |= b,
                ("n", Value::Int64(n)) => self.count += n,
                ("w" | "d" | "l" | "m" | "L" | "D" | "n", _) => return Err(none()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The double's value as a decimal, with no more digits after the point than it needs.
pub(crate) fn exact(n: f64) -> Decimal {
    let d = Decimal::from_f64_exact(n);
    let Some((negative, mut coefficient, mut exponent)) = d.parts() else {
        return d;
    };
    while exponent < 0 && coefficient % 10 == 0 {
        coefficient /= 10;
        exponent += 1;
    }
    Decimal::from_parts(negative, coefficient, exponent).unwrap_or(d)
}

#[derive(Debug, Default)]
struct Sum(Total);

impl Accumulator for Sum {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = v {
            self.0.add(v);
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.0.sum());
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.0.save(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.0.merge(saved)
    }
}
