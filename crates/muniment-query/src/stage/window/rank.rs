//! `$rank`, `$denseRank` and `$documentNumber`: a document's place in its partition.

use super::registry::Spec;
use super::stream::value;
use super::{Call, Function, Row, Rowwise};
use crate::bytes::put;
use crate::expr::Expr;
use muniment_value::{Collation, Error, Result, Value, ValueBuf, number};
use std::sync::Arc;

pub(super) const RANK: Spec = Spec {
    name: "$rank",
    doc: "The number of documents that sort before it, and one.",
    parse: |call| parse(call, Kind::Rank),
};

pub(super) const DENSE: Spec = Spec {
    name: "$denseRank",
    doc: "The number of different sort values before its own, and one.",
    parse: |call| parse(call, Kind::Dense),
};

pub(super) const NUMBER: Spec = Spec {
    name: "$documentNumber",
    doc: "The number of documents before it, and one.",
    parse: |call| parse(call, Kind::Number),
};

#[derive(Clone, Copy)]
enum Kind {
    Rank,
    Dense,
    Number,
}

fn parse(call: &Call<'_>, kind: Kind) -> Result<Function> {
    if call.field.count() != 1 {
        return Err(Error::location(
            5_371_601,
            format!(
                "Rank style window functions take no other arguments: {}",
                call.name
            ),
        ));
    }
    let Some((by, _)) = call.order.single() else {
        return Err(Error::location(
            5_371_602,
            format!(
                "{} must be specified with a top level sortBy expression with exactly one element",
                call.name
            ),
        ));
    };
    if call.operand.as_doc().is_none_or(|d| !d.is_empty()) {
        return Err(Error::location(
            5_371_603,
            format!("{} must be specified with '{{}}' as the value", call.name),
        ));
    }
    let by = Arc::clone(by);
    let collation = call.ctx.collation.clone();
    Ok(Function::Rowwise(Box::new(move || {
        Box::new(Rank {
            kind,
            by: Arc::clone(&by),
            collation: collation.clone(),
            last: None,
            rank: 0,
        })
    })))
}

struct Rank {
    kind: Kind,
    by: Arc<Expr>,
    collation: Collation,
    last: Option<ValueBuf>,
    rank: i64,
}

impl Rowwise for Rank {
    fn row(&mut self, row: &Row<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let number = i64::try_from(row.number)
            .unwrap_or(i64::MAX)
            .saturating_add(1);
        match self.kind {
            Kind::Number => self.rank = number,
            Kind::Rank | Kind::Dense => {
                let v = value(&self.by, row.doc)?;
                let same = |last: &ValueBuf| self.collation.equal(last.as_value(), v.as_value());
                if !self.last.as_ref().is_some_and(same) {
                    self.rank = match self.kind {
                        Kind::Dense => self.rank + 1,
                        _ => number,
                    };
                    self.last = Some(v);
                }
            }
        }
        let rank: Value<'_> = number::narrow(self.rank);
        put(out, name, &rank);
        Ok(())
    }
}
