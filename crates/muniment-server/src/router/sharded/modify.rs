//! findAndModify on a sharded collection.

use super::choose::{ATTEMPTS, Wanted, choose, context, executed, narrowed, too_often};
use super::relocate::{self, Change, Moved, Outcome, match_info};
use super::upsert::{Upsert, place, with_filter};
use super::writes::{Fits, fits};
use super::{ask_shard, collation_in, parsed, reached, to_one};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::Beside;
use crate::router::relay::back;
use crate::router::tables::Known;
use muniment_exec::in_find_and_modify;
use muniment_op::Interrupt;
use muniment_query::meta::attach;
use muniment_query::{Filter, MetaSet, Projection, Update};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};
use muniment_wire::client;
use std::sync::Arc;

/// Runs findAndModify: on the shard that the filter names, or on that which has the document.
///
/// # Errors
/// 61 ShardKeyNotFound for an upsert of a document that cannot have a key; the shards'.
pub fn run(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let filter = cx.args.doc("query").unwrap_or(Doc::EMPTY);
    let collation = collation_in(cx.request.body);
    let upsert = cx.args.bool("upsert", false);
    let may_move = |u: Value<'_>| relocate::may_move(known, u, None);
    if upsert && !cx.args.get("update").is_some_and(may_move) {
        let key = parsed(cx, known, filter, collation).and_then(|f| known.key.key_of_filter(&f));
        if let Some(key) = key {
            return to_one(cx, router, known, known.table.owner(&key));
        }
    }
    let shards = reached(cx, known, filter, collation);
    let update = cx.args.get("update");
    let fits = |u: Value<'_>| !known.buckets && matches!(fits(known, u, false, upsert), Fits::Yes);
    if update.is_some_and(|u| !fits(u)) {
        return to_one(cx, router, known, 0);
    }
    let id = cx.args.get("stmtId").and_then(number::to_i64_clamped);
    let id = id.unwrap_or(0);
    let update = update.filter(|_| !cx.args.bool("remove", false));
    if let Some(update) = update.filter(|u| relocate::may_move(known, *u, None))
        && relocate::is_possible(known)
        && !shards.is_empty()
    {
        if let Some(shard) = executed(cx, router, known, &shards, id)? {
            return to_one(cx, router, known, shard);
        }
        return changes_key(cx, router, known, update, &shards);
    }
    match shards.as_slice() {
        [] if !upsert => return to_one(cx, router, known, 0),
        [one] if !upsert => return to_one(cx, router, known, *one),
        _ => {}
    }
    if let Some(shard) = executed(cx, router, known, &shards, id)? {
        return to_one(cx, router, known, shard);
    }
    let wanted = Wanted {
        filter,
        sort: cx.args.doc("sort"),
        hint: cx.args.get("hint"),
        collation,
        variables: cx.args.doc("let").unwrap_or(Doc::EMPTY),
    };
    for _ in 0..ATTEMPTS {
        cx.op.check()?;
        let chosen = choose(cx, router, known, &wanted, &shards);
        let Some(chosen) = chosen.map_err(in_find_and_modify)? else {
            if !upsert {
                // The shard says what it comes to if there is none.
                return to_one(cx, router, known, shards.first().copied().unwrap_or(0));
            }
            return inserts(cx, router, known);
        };
        let body = narrowed(cx.request.body, "query", &chosen);
        let reply = ask_shard(
            cx,
            router,
            (known, chosen.shard),
            body.as_doc(),
            Beside::Nothing,
        )?;
        let set = known.set(chosen.shard)?;
        let done = reply.body.as_doc().get_doc("lastErrorObject");
        if done.and_then(|d| d.get("n")?.as_i64_exact()) != Some(0) {
            return back(cx, router, set, &reply);
        }
    }
    Err(too_often())
}

/// Runs the command on the shard of the document that it inserts.
fn inserts(cx: &mut CommandContext<'_>, router: &Router, known: &Known) -> Result<()> {
    let statement = Upsert {
        filter: cx.args.doc("query").unwrap_or(Doc::EMPTY),
        update: cx.args.get("update").unwrap_or(Value::Null),
        array_filters: cx.args.array("arrayFilters").unwrap_or(Doc::EMPTY),
        variables: cx.args.doc("let").unwrap_or(Doc::EMPTY),
        collation: collation_in(cx.request.body),
    };
    let (shard, filter) = place(cx, known, &statement).map_err(in_find_and_modify)?;
    let body = with_filter(cx.request.body, "query", filter);
    let reply = ask_shard(cx, router, (known, shard), body.as_doc(), Beside::Nothing)?;
    back(cx, router, &Arc::clone(known.set(shard)?), &reply)
}

/// Runs an update that may change the shard key.
fn changes_key(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: &Known,
    update: Value<'_>,
    shards: &[usize],
) -> Result<()> {
    let mut change = Change {
        wanted: Wanted {
            filter: cx.args.doc("query").unwrap_or(Doc::EMPTY),
            sort: cx.args.doc("sort"),
            hint: cx.args.get("hint"),
            collation: collation_in(cx.request.body),
            variables: cx.args.doc("let").unwrap_or(Doc::EMPTY),
        },
        update,
        array_filters: cx.args.array("arrayFilters").unwrap_or(Doc::EMPTY),
        metadata: MetaSet::NONE,
        id: cx
            .args
            .get("stmtId")
            .and_then(number::to_i64_clamped)
            .unwrap_or(0),
    };
    let shown = Shown::of(cx, known, &change)?;
    change.metadata = shown.metadata;
    for _ in 0..ATTEMPTS {
        cx.op.check()?;
        let moved = relocate::run(cx, router, known, &change, shards);
        let (shard, body, found) = match moved.map_err(in_find_and_modify)? {
            Outcome::None if cx.args.bool("upsert", false) => return inserts(cx, router, known),
            // The shard says what it comes to if there is none.
            Outcome::None => {
                let shard = shards.first().copied().unwrap_or(0);
                (shard, cx.request.body.to_buf(), false)
            }
            Outcome::Before => {
                return Err(Error::new(
                    Code::IncompleteTransactionHistory,
                    "the command has moved a document to another shard when it was sent first, and the document is \
                     not remembered",
                ));
            }
            Outcome::Moved(moved) => {
                let value = shown.value(cx, &moved)?;
                let done = doc! { "n": 1, "updatedExisting": true };
                cx.reply.field("lastErrorObject", done);
                cx.reply.field("value", value.as_doc());
                super::told(cx, router);
                return Ok(());
            }
            Outcome::Stays(chosen) => {
                let body = narrowed(cx.request.body, "query", &chosen);
                (chosen.shard, body, true)
            }
        };
        let to = (known, shard);
        let reply = ask_shard(cx, router, to, body.as_doc(), Beside::Nothing)?;
        let code = client::code_of(reply.body.as_doc());
        let done = reply.body.as_doc().get_doc("lastErrorObject");
        let none = done.and_then(|d| d.get("n")?.as_i64_exact()) == Some(0);
        if code == Some(Code::WouldChangeOwningShard) {
            let wanted = (&change.wanted, change.update);
            relocate::check_possible(cx, known, wanted, change.array_filters)?;
        } else if !(none && found) {
            return back(cx, router, &Arc::clone(known.set(shard)?), &reply);
        }
    }
    Err(too_often())
}

/// How the client is shown a document that was moved: as by the shard that has changed one.
struct Shown {
    /// With the command's filter, and whether its update names the element of an array that it finds.
    fields: Option<(Projection, Filter, bool)>,
    new: bool,
    /// What the projection shows of the search.
    metadata: MetaSet,
}

impl Shown {
    /// What the command asks for.
    ///
    /// # Errors
    /// Those of its update, filter and projection, which are told before anything is done.
    fn of(cx: &CommandContext<'_>, known: &Known, change: &Change<'_>) -> Result<Shown> {
        let new = cx.args.bool("new", false);
        let Some(fields) = cx.args.doc("fields").filter(|d| !d.is_empty()) else {
            return Ok(Shown {
                fields: None,
                new,
                metadata: MetaSet::NONE,
            });
        };
        let ctx = context(cx, known, change.wanted.collation, change.wanted.variables)?;
        let update = Update::parse(change.update, change.array_filters, &ctx)?;
        let filter = Filter::parse_query(change.wanted.filter, &ctx)?;
        let ctx = ctx.with_metadata(filter.metadata());
        let projection = Projection::parse(fields, Some(&filter), &ctx)?;
        Ok(Shown {
            fields: Some((projection, filter, update.needs_match_info())),
            new,
            metadata: ctx.metadata.asked(),
        })
    }

    /// The document as it was or as it is, with the fields that are asked for.
    fn value(&self, cx: &CommandContext<'_>, moved: &Moved) -> Result<DocBuf> {
        let document = if self.new { &moved.new } else { &moved.old };
        let Some((projection, filter, of_update)) = &self.fields else {
            return Ok(document.clone());
        };
        let mut info = None;
        if projection.needs_match_info() {
            info = match_info(cx, filter, document.as_doc())?;
            if info.is_none() && *of_update {
                info = match_info(cx, filter, moved.old.as_doc())?;
            }
        }
        let found = self.metadata.kinds();
        let found = found.filter_map(|m| Some((m, moved.metadata.as_doc().get(m.name())?)));
        let with = attach(document.as_doc(), &found.collect::<Vec<_>>());
        let (mut out, info) = (Vec::new(), info.unwrap_or_default());
        projection
            .apply(Doc::new(&with), info, &mut out, cx.op.work())
            .map_err(|e| in_find_and_modify(e.while_executing()))?;
        Ok(Doc::new(&out).to_buf())
    }
}
