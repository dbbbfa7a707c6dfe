//! The rule of the keywords that limit a size of a value: `minItems`, `maxItems`, `minLength`, `maxLength`,
//! `minProperties`, `maxProperties`.

use super::Rule;
use super::parse::length;
use muniment_value::{DocBuf, Result, Value, ValueBuf};
use std::ops::RangeInclusive;

/// The size that a keyword limits.
#[derive(Debug)]
pub(super) struct Counted {
    /// The size of a value; `None` if the keyword does not restrict such a value.
    pub of: fn(Value<'_>) -> Option<usize>,
    /// The explanation of why a value fails the keyword with its operand.
    pub explain: fn(&str, Value<'_>, Value<'_>) -> DocBuf,
}

#[derive(Debug)]
struct Limits {
    keyword: &'static str,
    allowed: RangeInclusive<u64>,
    operand: ValueBuf,
    counted: &'static Counted,
}

/// The rule of a keyword that sets the least size.
pub(super) fn least(
    keyword: &'static str,
    v: Value<'_>,
    counted: &'static Counted,
) -> Result<Option<Box<dyn Rule>>> {
    Ok(Some(Box::new(Limits {
        keyword,
        allowed: length(keyword, v)?..=u64::MAX,
        operand: ValueBuf::new(v),
        counted,
    })))
}

/// The rule of a keyword that sets the greatest size.
pub(super) fn most(
    keyword: &'static str,
    v: Value<'_>,
    counted: &'static Counted,
) -> Result<Option<Box<dyn Rule>>> {
    Ok(Some(Box::new(Limits {
        keyword,
        allowed: 0..=length(keyword, v)?,
        operand: ValueBuf::new(v),
        counted,
    })))
}

impl Rule for Limits {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok((self.counted.of)(v).is_none_or(|n| self.allowed.contains(&(n as u64))))
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        Ok((self.counted.explain)(
            self.keyword,
            self.operand.as_value(),
            v,
        ))
    }
}
