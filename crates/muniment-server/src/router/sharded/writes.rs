//! insert, update and delete on sharded collections: statements are sent to the shards of their documents.
//!
//! Statements that reach one shard are sent together: of an unordered command all at once, of an ordered one as long
//! as they follow one another. A statement of many documents (`multi`) goes to each shard that it can reach, and each
//! does it once. A statement of one document, which more shards may have, is [`one`]'s.
//!
//! Invariant: no statement is sent to a shard again, unless it was refused there before it did anything, or the
//! command is retryable and the shard remembers it.

use super::done_ranges::DoneRanges;
use super::spread::{Done, Outcome, Owned, Statement, StatementIds, Writes, command, no_multi};
use super::{
    PRIMARY, Repeats, ask_parts, collation_in, is_stale, one, parsed, reached, relocate, upsert,
};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::{Beside, Part};
use crate::router::place::set_of;
use crate::router::tables::Known;
use crate::sets::Reply;
use crate::transactions::{is_resumable, is_transient};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, number};
use muniment_wire::client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a statement goes.
#[derive(Clone, Debug)]
pub enum Goes {
    /// To this shard.
    To(usize),
    /// To each of these, and each does its part.
    ToAll(Vec<usize>),
    /// To that of these which has the document.
    ToOne(Vec<usize>),
    /// Nowhere.
    Fails(Error),
}

/// The statements of a command that are not done yet.
pub struct Run<'a> {
    writes: Writes,
    ordered: bool,
    statements: Vec<Statement<'a>>,
    /// The places of those that are not done, ascending.
    pending: BTreeSet<usize>,
    outcome: Outcome,
    /// What is done of statements for all.
    did: DoneRanges,
    /// The documents that these have found.
    found: i64,
}

/// Runs insert, update or delete.
///
/// # Errors
/// Those of the command as a whole: each statement's own are in the reply.
pub fn run(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: &Arc<Known>,
    writes: Writes,
) -> Result<()> {
    let mut run = begin(cx, writes)?;
    run.all(cx, router, known)?;
    run.ends(cx, router);
    Ok(())
}

/// The statements of a command with this name.
pub fn of(command: &str) -> Option<Writes> {
    let all = [Writes::Inserts, Writes::Updates, Writes::Deletes];
    all.into_iter().find(|writes| writes.command() == command)
}

/// Whether a reply says that some of the statements were refused because the collection is sharded.
pub fn has_stale(reply: &Reply) -> bool {
    let errors = reply
        .body
        .as_doc()
        .get_array("writeErrors")
        .unwrap_or(Doc::EMPTY);
    let mut errors = errors.values().filter_map(|v| v.as_doc());
    errors.any(|e| client::code_of(e) == Some(Code::StaleConfig))
}

/// Goes on with a command that was begun as if the collection were not sharded, by what the configuration says then: it may
/// have been about to be sharded, and not be after all.
///
/// # Errors
/// As [`run`]; 13388 StaleConfig if nothing was done yet, or if the shard and the configuration go on to differ.
pub fn resume(
    cx: &mut CommandContext<'_>,
    router: &Router,
    reply: &Reply,
    writes: Writes,
) -> Result<()> {
    let mut run = begin(cx, writes)?;
    let places: Vec<usize> = run.pending.iter().copied().collect();
    let mut done = run.take(reply, &places);
    let mut repeats = Repeats::new();
    while let Err(e) = done {
        if !is_stale(&e) || run.outcome.is_empty() {
            return Err(e);
        }
        repeats.next(cx, router, cx.ns(), e)?;
        done = match router.tables.of(&**cx.op, router, cx.ns())? {
            Some(known) => run.all(cx, router, &known),
            None => run.whole(cx, router),
        };
    }
    run.ends(cx, router);
    Ok(())
}

fn begin<'a>(cx: &mut CommandContext<'a>, writes: Writes) -> Result<Run<'a>> {
    let docs = cx.documents(writes.field())?;
    crate::commands::write_reply::check_batch(docs.len())?;
    let ids = StatementIds::of(cx);
    let statements = docs.iter().enumerate().map(|(i, doc)| Statement {
        doc: match writes {
            Writes::Inserts => Owned::with_id(doc),
            _ => Owned::Sent(doc),
        },
        id: ids.at(i),
    });
    let statements: Vec<_> = statements.collect();
    cx.op_count = Some(statements.len() as u64);
    Ok(Run {
        writes,
        // The first error ends a transaction.
        ordered: cx.args.bool("ordered", true) || cx.generic.in_transaction(),
        pending: (0..statements.len()).collect(),
        statements,
        outcome: Outcome::default(),
        did: DoneRanges::default(),
        found: 0,
    })
}

impl Run<'_> {
    /// Writes the reply.
    fn ends(self, cx: &mut CommandContext<'_>, router: &Router) {
        if self.outcome.has_errors() {
            super::fails(cx, router);
        }
        self.outcome.write(cx, self.writes == Writes::Updates);
        super::told(cx, router);
    }

    fn all(&mut self, cx: &CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
        let mut known = Arc::clone(known);
        let mut repeats = Repeats::new();
        while !self.pending.is_empty() {
            let Err(e) = self.with(cx, router, &known) else {
                return Ok(());
            };
            // If nothing is done yet, the command as a whole begins anew, since the collection may not be sharded
            // any more.
            if !is_stale(&e) || self.outcome.is_empty() {
                return Err(e);
            }
            repeats.next(cx, router, known.ns(), e)?;
            known = router
                .tables
                .of(&**cx.op, router, known.ns())?
                .ok_or_else(|| {
                    let why = format!("{} was dropped while it was written to", known.ns());
                    Error::new(Code::QueryPlanKilled, why)
                })?;
        }
        Ok(())
    }

    /// Runs what is pending on the shard of the database, as long as that takes the collection for its own.
    ///
    /// # Errors
    /// 13388 StaleConfig; those that end the command.
    fn whole(&mut self, cx: &CommandContext<'_>, router: &Router) -> Result<()> {
        let set = set_of(cx, router, cx.db())?;
        let places: Vec<usize> = self.pending.iter().copied().collect();
        let (docs, body) = self.message(cx, &places);
        let part = Part {
            set: &set,
            db: cx.db(),
            body: body.as_doc(),
            beside: Beside::These(self.writes.field(), &docs),
            versions: Some(Doc::EMPTY),
            reach: PRIMARY,
        };
        let reply = ask_parts(cx, router, &[part]).pop().ok_or_else(lost)?;
        drop(docs);
        self.take(&reply?, &places)?;
        if self.ordered && self.outcome.has_errors() {
            self.pending.clear();
        }
        Ok(())
    }

    /// Runs what is pending, as long as the shards know the collection as the router does.
    ///
    /// # Errors
    /// 13388 StaleConfig; those that end the command.
    fn with(&mut self, cx: &CommandContext<'_>, router: &Router, known: &Known) -> Result<()> {
        let mut goes: BTreeMap<usize, Goes> = BTreeMap::new();
        for place in &self.pending {
            goes.insert(*place, self.goes(cx, known, *place));
        }
        while let Some(place) = self.pending.first().copied() {
            let groups = self.groups(&goes);
            if !groups.is_empty() {
                self.send(cx, router, known, &groups)?;
            } else {
                match goes.get(&place) {
                    Some(Goes::ToAll(shards)) => {
                        self.send_to_all(cx, router, known, place, shards)?
                    }
                    Some(Goes::ToOne(shards)) => {
                        let statement = self.statements.get(place).ok_or_else(lost)?;
                        match one::write(cx, router, known, self.writes, statement, shards) {
                            Ok(done) => self.outcome.add(done, &[place]),
                            Err(e) if is_of_statement(&e) => self.outcome.fails(place, &e),
                            Err(e) => return Err(e),
                        }
                    }
                    Some(Goes::Fails(e)) => self.outcome.fails(place, e),
                    _ => return Err(lost()),
                }
                self.pending.remove(&place);
            }
            if self.ordered && self.outcome.has_errors() {
                self.pending.clear();
            }
        }
        Ok(())
    }

    /// The statements that are sent together now, by shard.
    fn groups(&self, goes: &BTreeMap<usize, Goes>) -> BTreeMap<usize, Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for place in &self.pending {
            match goes.get(place) {
                Some(Goes::To(shard))
                    if !self.ordered || groups.is_empty() || groups.contains_key(shard) =>
                {
                    groups.entry(*shard).or_default().push(*place);
                }
                _ if self.ordered => break,
                _ => {}
            }
        }
        groups
    }

    fn send(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        known: &Known,
        groups: &BTreeMap<usize, Vec<usize>>,
    ) -> Result<()> {
        let mut made = Vec::new();
        for (shard, places) in groups {
            let (docs, body) = self.message(cx, places);
            made.push((*shard, docs, body, known.versions(*shard)));
        }
        let mut parts = Vec::new();
        for (shard, docs, body, versions) in &made {
            parts.push(Part {
                set: known.set(*shard)?,
                db: cx.db(),
                body: body.as_doc(),
                beside: Beside::These(self.writes.field(), docs),
                versions: Some(versions.as_doc()),
                reach: PRIMARY,
            });
        }
        let replies = ask_parts(cx, router, &parts);
        drop(parts);
        drop(made);
        let mut stale = None;
        let mut ends = None;
        for (reply, places) in replies.into_iter().zip(groups.values()) {
            match reply.and_then(|reply| self.take(&reply, places)) {
                Ok(()) => {}
                Err(e) if is_stale(&e) => stale = stale.or(Some(e)),
                Err(e) => {
                    ends.get_or_insert(e);
                }
            }
        }
        // In a transaction all parts have failed after the first.
        let first = match cx.generic.in_transaction() {
            true => stale.or(ends),
            false => ends.or(stale),
        };
        first.map_or(Ok(()), Err)
    }

    /// The message with the statements at these places: its documents, and its body.
    fn message(&self, cx: &CommandContext<'_>, places: &[usize]) -> (Vec<Doc<'_>>, DocBuf) {
        let of = places.iter().filter_map(|p| self.statements.get(*p));
        let docs = of.clone().map(|s| s.doc.as_doc()).collect();
        let ids: Vec<i64> = of.map(|s| s.id).collect();
        (docs, command(cx, self.writes, self.ordered, &ids))
    }

    /// Takes what a shard says of the statements at these places.
    ///
    /// # Errors
    /// 13388 StaleConfig if it has refused some or all; those that end the command.
    fn take(&mut self, reply: &Reply, places: &[usize]) -> Result<()> {
        let mut done = Done::read(reply)?;
        let again = done.take_stale();
        self.settle(places, &done, again.as_ref());
        self.outcome.add(done, places);
        again.map_or(Ok(()), |(_, e)| Err(e))
    }

    /// Takes away what is done of these statements. `again`: the places, within them, of those that were refused.
    fn settle(&mut self, places: &[usize], done: &Done, again: Option<&(Vec<usize>, Error)>) {
        let refused = again
            .map(|(refused, _)| refused.as_slice())
            .unwrap_or_default();
        let failed = done.first_error();
        for (i, place) in places.iter().enumerate() {
            let not_tried = self.ordered && refused.first().is_some_and(|first| i >= *first);
            let ended = self.ordered && failed.is_some_and(|first| i > first);
            if !not_tried && !refused.contains(&i) && !ended {
                self.pending.remove(place);
            }
        }
    }

    fn send_to_all(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        known: &Known,
        place: usize,
        shards: &[usize],
    ) -> Result<()> {
        let statement = self.statements.get(place).ok_or_else(lost)?;
        // If no shard has a document, it is inserted afterwards.
        let plain = upsert::without(statement.doc.as_doc());
        let docs = [plain.as_doc()];
        let body = command(cx, self.writes, true, &[]);
        let mut left: Vec<(usize, DocBuf)> = Vec::new();
        for shard in shards {
            let to_do = self.did.left(place, known, *shard)?;
            let limits = to_do.limits(known.versions(*shard), known.ns());
            left.extend(limits.map(|versions| (*shard, versions)));
        }
        let mut parts = Vec::new();
        for (shard, versions) in &left {
            parts.push(Part {
                set: known.set(*shard)?,
                db: cx.db(),
                body: body.as_doc(),
                beside: Beside::These(self.writes.field(), &docs),
                versions: Some(versions.as_doc()),
                reach: PRIMARY,
            });
        }
        let replies = ask_parts(cx, router, &parts);
        let mut ends = None;
        for (reply, (shard, _)) in replies.into_iter().zip(&left) {
            let done = reply.and_then(|reply| Done::read(&reply));
            match done.map(|mut done| (done.take_stale(), done)) {
                // In a transaction all parts have failed after the first.
                Err(_) if cx.generic.in_transaction() && self.outcome.failed(place) => {}
                Ok((Some((_, e)), _)) | Err(e) => ends = ends.filter(|e| !is_stale(e)).or(Some(e)),
                Ok((None, done)) => {
                    self.did.did(place, known, *shard)?;
                    self.found += done.n;
                    self.outcome.add(done, &[place]);
                }
            }
        }
        if let Some(e) = ends {
            return Err(e);
        }
        let found = std::mem::take(&mut self.found);
        let d = statement.doc.as_doc();
        let failed = self.outcome.failed(place);
        if found == 0 && !failed && d.get("upsert").is_some_and(|v| v.truthy()) {
            match one::upsert(cx, router, known, self.writes, d, &body) {
                Ok(done) => self.outcome.add(done, &[place]),
                Err(e) if is_of_statement(&e) => self.outcome.fails(place, &e),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn goes(&self, cx: &CommandContext<'_>, known: &Known, place: usize) -> Goes {
        let Some(statement) = self.statements.get(place) else {
            return Goes::Fails(lost());
        };
        let d = statement.doc.as_doc();
        let is = |name: &str| d.get(name).is_some_and(|v| v.truthy());
        let aim = match self.writes {
            Writes::Inserts => Aim::Insert(d),
            Writes::Updates | Writes::Deletes => Aim::Change {
                filter: d.get_doc("q").unwrap_or(Doc::EMPTY),
                collation: collation_in(d),
                upsert: is("upsert"),
                update: d.get("u").filter(|_| self.writes == Writes::Updates),
                multi: match self.writes {
                    Writes::Deletes => d.get("limit").and_then(number::to_i64_exact) == Some(0),
                    _ => is("multi"),
                },
            },
        };
        match goes(cx, known, &aim) {
            // What is done already is not done again.
            Goes::To(shard) if self.did.any(place) => Goes::ToAll(vec![shard]),
            other => other,
        }
    }
}

/// Whether an error is the statement's own, such as one of its filter, or of the shard to which it would bring its
/// document. Other statements go on. All else fails the command: what fails one on a server, what may be tried again,
/// and what is of the way to the shards.
pub fn is_of_statement(e: &Error) -> bool {
    let of_the_way = matches!(
        e.code(),
        Code::InternalError
            | Code::Unauthorized
            | Code::QueryPlanKilled
            | Code::TransactionTooOld
            | Code::ShardNotFound
    );
    !of_the_way && !e.fails_command() && !is_transient(e.code()) && !is_resumable(e.code())
}

/// What a statement aims at.
pub enum Aim<'a> {
    /// A new document.
    Insert(Doc<'a>),
    /// Documents that match.
    Change {
        /// The filter.
        filter: Doc<'a>,
        /// The statement's collation.
        collation: Option<Doc<'a>>,
        /// The change; `None` if documents are deleted.
        update: Option<Value<'a>>,
        /// It inserts a document if none matches.
        upsert: bool,
        /// It changes all that match.
        multi: bool,
    },
}

/// Where a statement goes.
pub fn goes(cx: &CommandContext<'_>, known: &Known, aim: &Aim<'_>) -> Goes {
    let (filter, collation, upsert, multi, update) = match aim {
        Aim::Insert(_) if known.buckets => {
            return match known.collection.unsplittable {
                true => Goes::To(known.table.owner(&known.key.lowest())),
                false => Goes::Fails(no_buckets(known)),
            };
        }
        Aim::Insert(d) => {
            return match known.key.key_of(*d) {
                Ok(key) => Goes::To(known.table.owner(&key)),
                Err(e) => Goes::Fails(e),
            };
        }
        Aim::Change {
            filter,
            collation,
            update,
            upsert,
            multi,
        } => (*filter, *collation, *upsert, *multi, *update),
    };
    if known.buckets && update.is_some() {
        // No bucket is updated, as any shard says.
        return Goes::To(0);
    }
    match update.map_or(Fits::Yes, |update| fits(known, update, multi, upsert)) {
        Fits::Yes => {}
        Fits::No => return Goes::To(0),
        Fits::ChangesKey(e) => return Goes::Fails(e),
    }
    // An `_id` never changes, so most updates need not be looked at.
    let looks = upsert || update.is_some_and(|update| relocate::may_move(known, update, None));
    let parsed = looks
        .then(|| parsed(cx, known, filter, collation))
        .flatten();
    let fixed = parsed.as_ref().and_then(|f| known.key.values_of_filter(f));
    if let Some(key) = parsed
        .filter(|_| upsert)
        .and_then(|f| known.key.key_of_filter(&f))
        && !update.is_some_and(|u| relocate::may_move(known, u, fixed.as_ref().map(|d| d.as_doc())))
    {
        return Goes::To(known.table.owner(&key));
    }
    let mut shards = reached(cx, known, filter, collation);
    if upsert && shards.is_empty() {
        shards = known.all();
    }
    if let Some(update) =
        update.filter(|_| !multi && relocate::is_possible(known) && !shards.is_empty())
        && relocate::may_move(known, update, fixed.as_ref().map(|d| d.as_doc()))
    {
        return Goes::ToOne(shards);
    }
    match (shards.as_slice(), multi) {
        // Which shard an upsert of an unknown key would write to is not known.
        ([shard], _) if !upsert => Goes::To(*shard),
        // No document can match. Any shard says what the statement comes to.
        ([], _) => Goes::To(0),
        (_, true) => Goes::ToAll(shards),
        (_, false) => Goes::ToOne(shards),
    }
}

/// Whether an update can be one of a collection.
pub enum Fits {
    /// It may be. A shard says whether it is.
    Yes,
    /// No time series takes it, as any shard says.
    No,
    /// It may move measurements to other shards.
    ChangesKey(Error),
}

/// Looks at an update of a time series: shards that have none of its measurements, or not all, would not see what is wrong
/// with it.
pub fn fits(known: &Known, update: Value<'_>, multi: bool, upsert: bool) -> Fits {
    let Some(series) = known
        .series()
        .filter(|_| !known.buckets && !known.collection.unsplittable)
    else {
        return Fits::Yes;
    };
    if series.check_update(update, multi, upsert).is_err() {
        return Fits::No;
    }
    match relocate::may_move(known, update, None) {
        true => Fits::ChangesKey(no_multi()),
        false => Fits::Yes,
    }
}

/// 115: a bucket may have measurements of several shards.
fn no_buckets(known: &Known) -> Error {
    Error::new(
        Code::CommandNotSupported,
        format!(
            "Buckets cannot be inserted into {}, which is sharded: insert the measurements, or restore the buckets \
             before it is sharded",
            known.ns()
        ),
    )
}

/// The error that counts: in a transaction, all parts have failed after the first.
pub fn worse(cx: &CommandContext<'_>, first: Option<Error>, e: Error) -> Error {
    match first {
        Some(first) if cx.generic.in_transaction() || !is_stale(&first) => first,
        _ => e,
    }
}

#[cold]
fn lost() -> Error {
    Error::internal("a statement of the command is lost")
}
