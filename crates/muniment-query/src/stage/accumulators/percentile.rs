//! `$percentile` and `$median`.
//!
//! MongoDB's method "approximate" allows an error. Here all numbers are kept and the result is exact: the
//! least value that is not exceeded by at least the share p of the values.

use super::sliding_sorted::SlidingPercentile;
use super::{Accumulator, Options, Order, Parsed, Spec, check_held, elements, no_state};
use crate::bytes::{IndexName, close, head, open, put};
use crate::expr::Expr;
use muniment_value::{Error, Result, Type, Value, number};
use std::sync::Arc;

pub(super) const SPEC: Spec = Spec::options(
    "$percentile",
    "Percentiles of the numbers among the values.",
    Order::Free,
    |o| {
        o.only(&["input", "p", "method"])?;
        let ps = percentiles(&o)?;
        parse(&o, ps, false)
    },
);

pub(super) const MEDIAN: Spec = Spec::options(
    "$median",
    "The median of the numbers among the values.",
    Order::Free,
    |o| {
        o.only(&["input", "method"])?;
        parse(&o, vec![0.5], true)
    },
);

fn percentiles(o: &Options<'_>) -> Result<Vec<f64>> {
    let p = o.need("p", 40414)?;
    let none = || {
        Error::location(
            7_750_301,
            format!(
                "The $percentile 'p' field must be a constant array of numbers from 0 to 1, but \
                 found {}",
                p.to_display()
            ),
        )
    };
    let expr = Expr::parse(p, o.ctx)?;
    let Some(Value::Array(ps)) = expr.as_constant() else {
        return Err(none());
    };
    if ps.is_empty() {
        return Err(none());
    }
    ps.values()
        .map(|v| {
            let n = number::to_f64(v).ok_or_else(none)?;
            if (0.0..=1.0).contains(&n) {
                Ok(n)
            } else {
                Err(Error::location(
                    7_750_303,
                    format!(
                        "The $percentile 'p' field must be an array of numbers from 0 to 1, but \
                         found {}",
                        v.to_display()
                    ),
                ))
            }
        })
        .collect()
}

fn parse(o: &Options<'_>, ps: Vec<f64>, single: bool) -> Result<Parsed> {
    let input = o.need("input", 40414)?;
    match o.need("method", 40414)?.as_str() {
        Some("approximate") => {}
        _ => {
            return Err(Error::bad_value(format!(
                "Currently only 'approximate' can be used as percentile 'method' of {}",
                o.name
            )));
        }
    }
    let ps = Arc::new(ps);
    let wanted = Arc::clone(&ps);
    Ok(Parsed {
        start: None,
        expr: Expr::parse(input, o.ctx)?,
        sliding: Some(Box::new(move || {
            Box::new(SlidingPercentile::new(Arc::clone(&wanted), single))
        })),
        make: Box::new(move || {
            Box::new(Percentile {
                ps: Arc::clone(&ps),
                single,
                values: Vec::new(),
            })
        }),
    })
}

#[derive(Debug)]
struct Percentile {
    ps: Arc<Vec<f64>>,
    single: bool,
    values: Vec<f64>,
}

impl Accumulator for Percentile {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(n) = v.and_then(number::to_f64)
            && !n.is_nan()
        {
            self.values.push(n);
            check_held("$percentile", self.heap())?;
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |p: f64| {
            let rank = (p * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied()
        };
        if self.single {
            put(out, name, &self.ps.first().and_then(|p| at(*p)));
            return;
        }
        head(out, Type::Array, name);
        let start = open(out);
        for (i, p) in self.ps.iter().enumerate() {
            put(out, IndexName::new(i).as_bytes(), &at(*p));
        }
        close(out, start);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        head(out, Type::Array, name);
        let start = open(out);
        for (i, n) in self.values.iter().enumerate() {
            put(out, IndexName::new(i).as_bytes(), n);
        }
        close(out, start);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        for v in elements("$percentile", saved)?.values() {
            if !matches!(v, Value::Double(_)) {
                return Err(no_state("$percentile", v));
            }
            self.add(Some(v))?;
        }
        Ok(())
    }

    fn heap(&self) -> usize {
        self.values.capacity() * size_of::<f64>()
    }
}
