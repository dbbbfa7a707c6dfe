//! Dates: the current time, or one of a range.

use super::{Generator, Source, Spec};
use crate::custom::draw::{Draw, Shape};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Item, Parsed, Value};
use crate::custom::template::{Node, Seen};
use crate::docs::now_ms;
use muniment_load::fail::{Failure, Result};
use std::sync::Arc;

/// The generator `date`.
pub(super) const SPEC: Spec = Spec {
    name: "date",
    form: "\"now\" or { from, to = \"now\", distribution = \"uniform\" }",
    about: "a date: the moment it is made, or one of a range; the ends are TOML dates, \"now\" or \"now-30d\" (also s, m, h, and +), as of the phase's beginning",
    read,
};

/// The number of steps into which a range is divided for any distribution but the uniform one.
const STEPS: u64 = 10_000;

#[derive(Debug, Clone, Copy)]
enum Moment {
    /// A fixed time, ms since 1970.
    Fixed(i64),
    /// A time relative to the beginning of the phase, ms.
    FromNow(i64),
}

impl Moment {
    fn read(item: &Item, what: &str) -> Parsed<Moment> {
        if let Value::Date(ms) = item.value {
            return Ok(Moment::Fixed(ms));
        }
        let wrong = || {
            item.bad(format!(
                "{what} must be a date, \"now\" or \"now-30d\" (s, m, h or d), not {}",
                item.described()
            ))
        };
        let Value::Text(text) = &item.value else {
            return Err(wrong());
        };
        let rest = text.strip_prefix("now").ok_or_else(wrong)?;
        if rest.is_empty() {
            return Ok(Moment::FromNow(0));
        }
        let unit = match rest.chars().last() {
            Some('s') => 1000,
            Some('m') => 60_000,
            Some('h') => 3_600_000,
            Some('d') => 86_400_000,
            _ => return Err(wrong()),
        };
        let number = rest.get(..rest.len() - 1).unwrap_or_default();
        let signed = number.starts_with(['-', '+']);
        let n: Option<i64> = number.parse().ok().filter(|_| signed);
        let ms = n.and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)?;
        Ok(Moment::FromNow(ms))
    }

    fn ms(self, now: i64) -> i64 {
        match self {
            Moment::Fixed(ms) => ms,
            Moment::FromNow(ms) => now.saturating_add(ms),
        }
    }
}

#[derive(Debug)]
enum Date {
    Now,
    Range(Moment, Moment, Shape),
}

fn read(item: &Item, _: &mut Seen) -> Parsed<Node> {
    let date = match &item.value {
        Value::Text(s) if s == "now" => Date::Now,
        Value::Table(_) => {
            let mut f = item.fields("date")?;
            let from = Moment::read(f.need("from")?, "from")?;
            let to = f.get("to").map(|i| Moment::read(i, "to"));
            let to = to.unwrap_or(Ok(Moment::FromNow(0)))?;
            let shape = Shape::read(&mut f)?.unwrap_or_default();
            f.end()?;
            Date::Range(from, to, shape)
        }
        _ => {
            return Err(item.bad(format!(
                "date must be \"now\" or {{ from, to }}, not {} (a constant date stands alone)",
                item.described()
            )));
        }
    };
    Ok(Node::Made(Arc::new(date)))
}

impl Generator for Date {
    fn kind(&self) -> Option<u8> {
        Some(9)
    }

    fn width(&self) -> Option<usize> {
        Some(8)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        let Date::Range(from, to, shape) = self else {
            return Ok(Box::new(Now));
        };
        let now = now_ms();
        let (from, to) = (from.ms(now), to.ms(now));
        if to < from {
            return Err(Failure(format!(
                "{}: date: its end is {} s before its beginning",
                env.name,
                (i128::from(from) - i128::from(to)) / 1000
            )));
        }
        let span = to.abs_diff(from).saturating_add(1);
        let steps = match shape {
            Shape::Uniform | Shape::Sequential => span,
            _ => span.min(STEPS),
        };
        Ok(Box::new(Dates {
            from,
            span,
            steps,
            draw: Draw::new(shape, steps, env.shared, &env.place()),
        }))
    }
}

struct Now;

impl Source for Now {
    fn write(&mut self, _: &mut Hand, out: &mut Vec<u8>) -> u8 {
        out.extend_from_slice(&now_ms().to_le_bytes());
        9
    }
}

struct Dates {
    from: i64,
    span: u64,
    steps: u64,
    draw: Draw,
}

impl Source for Dates {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let mut n = self.draw.draw(self.steps, &mut hand.rng);
        if self.steps < self.span {
            let begin =
                |n: u64| (u128::from(n) * u128::from(self.span) / u128::from(self.steps)) as u64;
            n = begin(n) + hand.rng.below(begin(n + 1) - begin(n));
        }
        out.extend_from_slice(&self.from.wrapping_add(n as i64).to_le_bytes());
        9
    }
}
