//! `$rank`, `$denseRank` and `$documentNumber`: a document's position in its partition.

use super::registry::Spec;
use super::{Call, Function, Row, Rowwise};
use crate::bytes::put;
use crate::sort::SortSpec;
use muniment_value::{Error, Result, Value, number};
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
    let (Some(_), Some(sort)) = (call.order.single(), &call.order.sort) else {
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
    let sort = Arc::new(sort.clone());
    Ok(Function::Rowwise(Box::new(move || {
        Box::new(Rank {
            kind,
            sort: Arc::clone(&sort),
            last: None,
            rank: 0,
        })
    })))
}

/// Documents that are equal for the sort have the same rank. These include null and a missing field, and
/// arrays with the same least element.
struct Rank {
    kind: Kind,
    sort: Arc<SortSpec>,
    /// The sort key of the previous document.
    last: Option<Vec<u8>>,
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
                let mut key = Vec::new();
                self.sort.key(row.doc, &mut key)?;
                if self.last.as_ref() != Some(&key) {
                    self.rank = match self.kind {
                        Kind::Dense => self.rank + 1,
                        _ => number,
                    };
                    self.last = Some(key);
                }
            }
        }
        let rank: Value<'_> = number::narrow(self.rank);
        put(out, name, &rank);
        Ok(())
    }
}
