//! `$limit`: passes a limited number of documents.

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Stage};
use crate::context::QueryContext;
use bytes::Bytes;
use muniment_value::{Elem, Error, Result};

pub(crate) const SPEC: Spec = Spec {
    name: "$limit",
    doc: "Passes on at most so many documents.",
    place: Place::ANYWHERE,
    spread: Spread::Range,
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, _: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let n = whole(e, 5_107_201)?;
    if n == 0 {
        return Err(Error::location(15958, "the limit must be positive"));
    }
    stages.push(Stage::Limit(n));
    Ok(())
}

/// Reads the operand of `$limit` and `$skip`: a whole number that is not negative.
pub(crate) fn whole(e: Elem<'_>, code: i32) -> Result<u64> {
    let bad = |what: &str| {
        Error::location(
            code,
            format!(
                "invalid argument to {} stage: {what} in: {}",
                e.name(),
                crate::bytes::show(e)
            ),
        )
    };
    if !e.value().is_number() {
        return Err(bad("Expected a number"));
    }
    let n = e.value().as_i64_exact();
    let n = n.ok_or_else(|| bad("Expected an integer"))?;
    u64::try_from(n).map_err(|_| bad("Expected a non-negative number"))
}

/// The first documents of a stream.
pub(crate) struct LimitStream {
    source: Option<Box<dyn DocStream>>,
    left: u64,
}

impl LimitStream {
    pub(crate) fn new(source: Box<dyn DocStream>, n: u64) -> LimitStream {
        LimitStream {
            source: Some(source),
            left: n,
        }
    }
}

impl DocStream for LimitStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if self.left == 0 {
            // The resources of the source are released as soon as it is not needed.
            self.source = None;
        }
        let Some(source) = &mut self.source else {
            return Ok(None);
        };
        self.left = self.left.saturating_sub(1);
        source.next()
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_limit() {
        table(&[
            ("[{a:1},{a:2}]", "[{$limit:1}]", "[{a:1}]"),
            ("[{a:1},{a:2}]", "[{$limit:9}]", "[{a:1},{a:2}]"),
            ("[{a:1},{a:2}]", "[{$limit:1.0}]", "[{a:1}]"),
            ("[]", "[{$limit:0}]", "15958: the limit must be positive"),
            (
                "[]",
                "[{$limit:-1}]",
                "5107201: invalid argument to $limit stage: Expected a non-negative number in: $limit: -1",
            ),
            (
                "[]",
                "[{$limit:'x'}]",
                "5107201: invalid argument to $limit stage: Expected a number in: $limit: \"x\"",
            ),
        ]);
    }
}
