//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`. Whole numbers are tested as two's
//! complement of any width; in binary data, bit 0 is the lowest bit of the first byte.

use super::OpSpec;
use crate::filter::parse::FieldOperand;
use crate::filter::{FieldOp, Pred};
use crate::running::Work;
use muniment_value::decimal::{Decimal, Round};
use muniment_value::{Error, Result, Value, ValueBuf};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::AllSet => "$bitsAllSet",
            Kind::AllClear => "$bitsAllClear",
            Kind::AnySet => "$bitsAnySet",
            Kind::AnyClear => "$bitsAnyClear",
        }
    }
}

/// The specification of `$bitsAllSet`.
pub(super) const ALL_SET: OpSpec = OpSpec::field("$bitsAllSet", "All these bits are 1.", |_, o| {
    parse(Kind::AllSet, o)
});

/// The specification of `$bitsAllClear`.
pub(super) const ALL_CLEAR: OpSpec =
    OpSpec::field("$bitsAllClear", "All these bits are 0.", |_, o| {
        parse(Kind::AllClear, o)
    });

/// The specification of `$bitsAnySet`.
pub(super) const ANY_SET: OpSpec =
    OpSpec::field("$bitsAnySet", "Some of these bits is 1.", |_, o| {
        parse(Kind::AnySet, o)
    });

/// The specification of `$bitsAnyClear`.
pub(super) const ANY_CLEAR: OpSpec =
    OpSpec::field("$bitsAnyClear", "Some of these bits is 0.", |_, o| {
        parse(Kind::AnyClear, o)
    });

#[derive(Debug)]
struct Bits {
    kind: Kind,
    mask: Mask,
    operand: ValueBuf,
}

/// The bits to test.
#[derive(Debug)]
enum Mask {
    Positions(Box<[u64]>),
    /// The bytes of the mask, each with its lowest bit first. A list with a position for each bit would take
    /// 64 times the memory.
    Bytes(Box<[u8]>),
}

impl Mask {
    /// Whether `f` holds for any of the positions.
    fn any(&self, f: impl Fn(u64) -> bool) -> bool {
        match self {
            Mask::Positions(all) => all.iter().any(|&at| f(at)),
            Mask::Bytes(bytes) => (0_u64..)
                .zip(bytes)
                .any(|(i, byte)| (0..8).any(|b| byte >> b & 1 == 1 && f(i * 8 + b))),
        }
    }
}

fn parse(kind: Kind, o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let op = kind.name();
    let mut positions = Vec::new();
    match o.value {
        Value::Array(items) => {
            for v in items.values() {
                let at = v
                    .is_number()
                    .then(|| v.as_i64_exact())
                    .flatten()
                    .ok_or_else(|| {
                        Error::bad_value(format!(
                            "Failed to parse bit position. Expected an integer: {}",
                            v.to_display()
                        ))
                    })?;
                let at = u64::try_from(at).map_err(|_| {
                    Error::bad_value(format!(
                        "Failed to parse bit position. Expected a non-negative number in: {at}"
                    ))
                })?;
                if at > i32::MAX as u64 {
                    return Err(Error::bad_value(format!(
                        "bit positions cannot be represented as a 32-bit signed integer: {at}"
                    )));
                }
                positions.push(at);
            }
        }
        Value::Binary { bytes, .. } => {
            return Ok(op_of(kind, Mask::Bytes(bytes.into()), o));
        }
        v if v.is_number() => {
            let mask = v.as_i64_exact().ok_or_else(|| {
                Error::failed_to_parse(format!("Expected an integer: {op}: {}", v.to_display()))
            })?;
            let mask = u64::try_from(mask).map_err(|_| {
                Error::failed_to_parse(format!("Expected a non-negative number in: {op}: {mask}"))
            })?;
            positions.extend((0..64).filter(|b| mask >> b & 1 == 1));
        }
        v => {
            return Err(Error::bad_value(format!(
                "{op} takes an Array, a number, or a BinData but received: {op}: {}",
                v.to_display()
            )));
        }
    }
    positions.sort_unstable();
    positions.dedup();
    Ok(op_of(kind, Mask::Positions(positions.into()), o))
}

fn op_of(kind: Kind, mask: Mask, o: &FieldOperand<'_>) -> Option<Pred> {
    Some(Pred::Other(Arc::new(Bits {
        kind,
        mask,
        operand: ValueBuf::new(o.value),
    })))
}

fn rounded(d: Decimal) -> Option<i64> {
    let (n, _) = d.round_to(0, Round::HalfEven).to_i128_trunc()?;
    i64::try_from(n).ok()
}

impl Bits {
    fn holds(&self, value: Option<Value<'_>>) -> bool {
        let number;
        let is_set: &dyn Fn(u64) -> bool = match value {
            Some(Value::Binary { bytes, .. }) => &move |at: u64| {
                usize::try_from(at / 8)
                    .ok()
                    .and_then(|i| bytes.get(i))
                    .is_some_and(|b| b >> (at % 8) & 1 == 1)
            },
            // MongoDB rounds decimals, but lets doubles that are not whole never match.
            Some(Value::Decimal128(b)) => match rounded(Decimal::from_bid(b)) {
                Some(n) => {
                    number = n;
                    &|at: u64| number >> at.min(63) & 1 == 1
                }
                None => return false,
            },
            Some(v) if v.is_number() => match v.as_i64_exact() {
                Some(n) => {
                    number = n;
                    &|at: u64| number >> at.min(63) & 1 == 1
                }
                None => return false,
            },
            _ => return false,
        };
        match self.kind {
            Kind::AllSet => !self.mask.any(|at| !is_set(at)),
            Kind::AllClear => !self.mask.any(is_set),
            Kind::AnySet => self.mask.any(is_set),
            Kind::AnyClear => self.mask.any(|at| !is_set(at)),
        }
    }
}

impl FieldOp for Bits {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn operand(&self) -> ValueBuf {
        self.operand.clone()
    }

    fn matches(&self, value: Option<Value<'_>>, _: Work<'_>) -> Result<bool> {
        Ok(self.holds(value))
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$bitsAllSet': [0, 2]}}",
            &[
                "{'a': 5}",
                "{'a': 5.0}",
                "{'a': -1}",
                "{'a': ['$dec', '5.13']}",
                "{'a': ['$bin', 5]}",
                "{'a': [1, 5]}",
            ],
            &[
                "{'a': 4}",
                "{'a': 5.5}",
                "{'a': '5'}",
                "{'a': ['$dec', 'NaN']}",
                "{'a': ['$dec', '1E30']}",
                "{}",
            ],
        );
        matches("{'a': {'$bitsAllSet': 5}}", &["{'a': 7}"], &["{'a': 4}"]);
        matches(
            "{'a': {'$bitsAllSet': ['$bin', 0, 1]}}",
            &["{'a': 256}", "{'a': ['$bin', 0, 1]}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$bitsAllClear': [1]}}",
            &["{'a': 5}", "{'a': ['$bin', 5]}"],
            &["{'a': 2}"],
        );
        matches(
            "{'a': {'$bitsAnySet': [1, 2]}}",
            &["{'a': 4}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$bitsAnyClear': [1, 2]}}",
            &["{'a': 4}"],
            &["{'a': 6}"],
        );
        matches(
            "{'a': {'$bitsAllSet': [200]}}",
            &["{'a': -1}"],
            &["{'a': 1}", "{'a': ['$bin', 255]}"],
        );
        matches("{'a': {'$bitsAllSet': []}}", &["{'a': 0}"], &["{}"]);
        fails(
            "{'a': {'$bitsAllSet': -1}}",
            9,
            "Expected a non-negative number in: $bitsAllSet: -1",
        );
        fails(
            "{'a': {'$bitsAllSet': 1.5}}",
            9,
            "Expected an integer: $bitsAllSet: 1.5",
        );
        fails(
            "{'a': {'$bitsAllSet': [-1]}}",
            2,
            "Failed to parse bit position. Expected a non-negative number in: -1",
        );
        fails(
            "{'a': {'$bitsAllSet': ['x']}}",
            2,
            "Failed to parse bit position. Expected an integer: \"x\"",
        );
        fails(
            "{'a': {'$bitsAnySet': 'x'}}",
            2,
            "$bitsAnySet takes an Array, a number, or a BinData but received: $bitsAnySet: \"x\"",
        );
    }
}
