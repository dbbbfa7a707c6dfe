//! Doubles from a range.

use super::{Generator, Source, Spec};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Item, Parsed};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::Result;
use std::sync::Arc;

/// The generator `double`.
pub(super) const SPEC: Spec = Spec {
    name: "double",
    form: "{ min = 0, max = 1, places }",
    about: "a double of min…max, uniform, rounded to so many decimal places if places is given",
    read,
};

#[derive(Debug, Clone)]
struct Double {
    min: f64,
    span: f64,
    /// Ten to the power of the number of decimal places, if values are rounded.
    unit: Option<f64>,
}

fn read(item: &Item, _: &mut Seen) -> Parsed<Node> {
    let mut f = item.fields("double")?;
    let min = f.get("min").map_or(Ok(0.0), |i| i.number("min"))?;
    let max = f.get("max").map_or(Ok(1.0), |i| i.number("max"))?;
    let places = f.get("places").map(|i| match i.count("places") {
        Ok(n) if n <= 15 => Ok(10f64.powi(n as i32)),
        _ => Err(i.bad("places must be a whole number from 0 to 15")),
    });
    let unit = places.transpose()?;
    let span = max - min;
    if !(span >= 0.0 && span.is_finite()) {
        return Err(f.bad(format!(
            "max ({max}) is below min ({min}), or too far from it"
        )));
    }
    f.end()?;
    Ok(Node::Made(Arc::new(Double { min, span, unit })))
}

impl Generator for Double {
    fn kind(&self) -> Option<u8> {
        Some(1)
    }

    fn width(&self) -> Option<usize> {
        Some(8)
    }

    fn start(&self, _: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }
}

impl Source for Double {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let mut n = self.min + hand.rng.unit() * self.span;
        if let Some(unit) = self.unit {
            n = (n * unit).round() / unit;
        }
        out.extend_from_slice(&n.to_le_bytes());
        1
    }
}
