//! `$sortByCount`: the number of documents for each value of an expression, most frequent first.

use super::Stage;
use super::parts;
use super::registry::{Place, Spec, find};
use super::rights::Rights;
use super::spread::{Halves, Spread, Whole};
use crate::context::QueryContext;
use muniment_value::{DocBuf, Elem, Error, Result, Value, doc};

pub(crate) const SPEC: Spec = Spec {
    name: "$sortByCount",
    doc: "How often each value of an expression occurs, most frequent first.",
    place: Place::ANYWHERE,
    spread: Spread::Halves(halves),
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let bad = |code| {
        Err(Error::location(
            code,
            "the sortByCount field must be defined as a $-prefixed path or an expression inside an \
             object",
        ))
    };
    match e.value() {
        Value::String(s) if !s.starts_with('$') => return bad(40148),
        Value::String(_) => {}
        Value::Document(d) if !d.first().is_some_and(|f| f.name().starts_with('$')) => {
            return bad(40147);
        }
        Value::Document(_) => {}
        _ => return bad(40149),
    }
    for stage in [group(e), sort()] {
        if let Some(e) = stage.as_doc().first() {
            (find(e.name())?.parse)(e, ctx, stages)?;
        }
    }
    Ok(())
}

/// The `$group` with which the stage begins.
fn group(e: Elem<'_>) -> DocBuf {
    let mut spec = DocBuf::new();
    spec.append("_id", e);
    spec.append("count", doc! { "$sum": 1 });
    doc! { "$group": spec }
}

/// The `$sort` with which it ends.
fn sort() -> DocBuf {
    doc! { "$sort": doc! { "count": -1 } }
}

/// Divides the stage: its `$group` is divided, and the router sorts.
fn halves(whole: &Whole<'_>) -> Option<Halves> {
    let group = group(whole.source);
    let mut halves = parts::of_group(&Whole {
        source: group.as_doc().first()?,
        ..*whole
    })?;
    halves.router.push(sort());
    Some(halves)
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_sort_by_count() {
        table(&[
            (
                "[{a:1},{a:2},{a:2}]",
                "[{$sortByCount:'$a'}]",
                "[{_id:2,count:2},{_id:1,count:1}]",
            ),
            (
                "[]",
                "[{$sortByCount:'a'}]",
                "40148: the sortByCount field must be defined as a $-prefixed path or an expression \
              inside an object",
            ),
            (
                "[]",
                "[{$sortByCount:5}]",
                "40149: the sortByCount field must be defined as a $-prefixed path or an expression \
              inside an object",
            ),
        ]);
    }
}
