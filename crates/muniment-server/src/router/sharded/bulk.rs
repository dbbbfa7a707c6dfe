//! bulkWrite over several shards: each operation is sent to the shards of its documents.
//!
//! As in [`writes`](super::writes), operations for one shard are sent together, also those on several collections,
//! and what the shards say of each is put together. The invariant is the same, too.

use super::choose::{ATTEMPTS, Chosen, Wanted, choose, executed, narrowed, too_often};
use super::done_ranges::DoneRanges;
use super::relocate::{self, Change, Outcome};
use super::remote::{Remote, Terms};
use super::spread::{Owned, StatementIds, no_multi, number_statements, told};
use super::upsert::{Upsert, place as place_upsert, with_filter, without};
use super::writes::{Aim, Goes, is_of_statement, worse};
use super::{PRIMARY, Repeats, ask_parts, collation_in, is_stale};
use crate::context::CommandContext;
use crate::router::forward::{Beside, Part};
use crate::router::place::{OF_CONFIG, set_of};
use crate::router::tables::Known;
use crate::router::{Router, SetPool};
use crate::sets::Reply;
use muniment_exec::with_constants;
use muniment_op::Interrupt;
use muniment_query::{DocStream, MetaSet};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc, number};
use muniment_wire::client::{check_ok, code_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The counters of a reply.
pub const COUNTERS: [&str; 6] = [
    "nErrors",
    "nInserted",
    "nMatched",
    "nModified",
    "nUpserted",
    "nDeleted",
];

/// What the operations came to.
pub struct Done {
    /// [`COUNTERS`].
    pub totals: [i64; 6],
    /// The document about each operation that was tried, by its place.
    pub results: BTreeMap<usize, DocBuf>,
    /// The first error of a write concern.
    pub concern: Option<DocBuf>,
}

/// An operation, and the name of its collection.
struct Op<'a> {
    doc: Owned<'a>,
    ns: &'a str,
    id: i64,
}

struct Bulk<'a> {
    ordered: bool,
    ops: Vec<Op<'a>>,
    pending: BTreeSet<usize>,
    done: Done,
    /// The shards that have done their part of an operation for all.
    did: DoneRanges,
    known: BTreeMap<&'a str, Option<Arc<Known>>>,
}

/// Where an operation goes, by sets.
enum Way {
    To(Arc<SetPool>),
    ToAll(Vec<(usize, Arc<SetPool>)>),
    ToOne(Vec<usize>),
    Fails(Error),
}

/// Runs the operations; `None` for a command that names no collection.
///
/// # Errors
/// Those of the command as a whole.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<Option<Done>> {
    let namespaces: Vec<&str> = cx
        .request
        .documents("nsInfo")
        .map(|d| d.get_str("ns").unwrap_or_default())
        .collect();
    let mut known = BTreeMap::new();
    if namespaces.is_empty() {
        return Ok(None);
    }
    for ns in &namespaces {
        let (db, _) = ns.split_once('.').unwrap_or((ns, ""));
        let of = match OF_CONFIG.contains(&db) {
            true => None,
            false => router.tables.of(&**cx.op, router, ns)?,
        };
        known.insert(*ns, of);
    }
    let ids = StatementIds::of(cx);
    let ops = cx.request.documents("ops").enumerate().map(|(i, doc)| {
        let at = doc.first().and_then(|e| number::to_i64_exact(e.value()));
        let at = at.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        Op {
            doc: with_id(doc),
            ns: namespaces.get(at).copied().unwrap_or_default(),
            id: ids.at(i),
        }
    });
    let ops: Vec<_> = ops.collect();
    let mut bulk = Bulk {
        ordered: cx.args.bool("ordered", true) || cx.generic.in_transaction(),
        pending: (0..ops.len()).collect(),
        ops,
        done: Done {
            totals: [0; 6],
            results: BTreeMap::new(),
            concern: None,
        },
        did: DoneRanges::default(),
        known,
    };
    bulk.all(cx, router)?;
    // An operation on one document would have moved it.
    let results = bulk.done.results.values_mut();
    for d in results.filter(|d| has_code(d, Code::WouldChangeOwningShard)) {
        *d = with_error(d.as_doc(), &no_multi());
    }
    if bulk.has_errors() {
        super::fails(cx, router);
    }
    Ok(Some(bulk.done))
}

impl<'a> Bulk<'a> {
    fn all(&mut self, cx: &CommandContext<'_>, router: &Router) -> Result<()> {
        let mut repeats = Repeats::new();
        while !self.pending.is_empty() {
            let Err(e) = self.with(cx, router) else {
                return Ok(());
            };
            if !is_stale(&e) {
                return Err(e);
            }
            repeats.next(cx, router, "", e)?;
            for (ns, known) in &mut self.known {
                *known = router.tables.of(&**cx.op, router, ns)?;
            }
        }
        Ok(())
    }

    fn with(&mut self, cx: &CommandContext<'_>, router: &Router) -> Result<()> {
        let mut ways = BTreeMap::new();
        for place in &self.pending {
            ways.insert(*place, self.way(cx, router, *place)?);
        }
        while let Some(place) = self.pending.first().copied() {
            let groups = self.groups(&ways);
            if !groups.is_empty() {
                self.send(cx, router, &groups)?;
            } else {
                match ways.get(&place) {
                    Some(Way::ToAll(sets)) => self.send_to_all(cx, router, place, sets)?,
                    Some(Way::ToOne(shards)) => match self.send_to_one(cx, router, place, shards) {
                        Err(e) if is_of_statement(&e) => self.fails(place, &e),
                        done => done?,
                    },
                    Some(Way::Fails(e)) => self.fails(place, e),
                    _ => return Err(lost()),
                }
                self.pending.remove(&place);
            }
            if self.ordered && self.has_errors() {
                self.pending.clear();
            }
        }
        Ok(())
    }

    fn way(&self, cx: &CommandContext<'_>, router: &Router, place: usize) -> Result<Way> {
        let op = self.ops.get(place).ok_or_else(lost)?;
        let (db, _) = op.ns.split_once('.').unwrap_or_default();
        let Some(known) = self.known.get(op.ns).and_then(Option::as_ref) else {
            return Ok(Way::To(set_of(cx, router, db)?));
        };
        let doc = op.doc.as_doc();
        let is = |name: &str| doc.get(name).is_some_and(|v| v.truthy());
        let aim = match doc.get_doc("document") {
            Some(document) => Aim::Insert(document),
            None => Aim::Change {
                filter: doc.get_doc("filter").unwrap_or(Doc::EMPTY),
                collation: collation_in(doc),
                update: doc.get("updateMods"),
                upsert: is("upsert"),
                multi: is("multi"),
            },
        };
        let set = |shard: usize| known.set(shard).map(Arc::clone);
        Ok(match super::writes::goes(cx, known, &aim) {
            // What is done already is not done again.
            Goes::To(shard) if self.did.any(place) => Way::ToAll(vec![(shard, set(shard)?)]),
            Goes::To(shard) => Way::To(set(shard)?),
            Goes::ToAll(shards) => {
                let sets = shards.into_iter().map(|shard| Ok((shard, set(shard)?)));
                Way::ToAll(sets.collect::<Result<_>>()?)
            }
            Goes::ToOne(shards) => Way::ToOne(shards),
            Goes::Fails(e) => Way::Fails(e),
        })
    }

    /// The operations that are sent together now, by set.
    fn groups(&self, ways: &BTreeMap<usize, Way>) -> BTreeMap<String, (Arc<SetPool>, Vec<usize>)> {
        let mut groups: BTreeMap<String, (Arc<SetPool>, Vec<usize>)> = BTreeMap::new();
        for place in &self.pending {
            match ways.get(place) {
                Some(Way::To(set))
                    if !self.ordered || groups.is_empty() || groups.contains_key(&set.name) =>
                {
                    let made = || (Arc::clone(set), Vec::new());
                    groups
                        .entry(set.name.clone())
                        .or_insert_with(made)
                        .1
                        .push(*place);
                }
                _ if self.ordered => break,
                _ => {}
            }
        }
        groups
    }

    /// What a set is to expect of all collections of the command.
    fn versions(&self, set: &SetPool) -> DocBuf {
        let mut versions = DocBuf::new();
        for known in self.known.values().flatten() {
            let shard = known.sets.iter().position(|s| s.name == set.name);
            if let Some(shard) = shard {
                versions.append_all(known.versions(shard).as_doc());
            }
        }
        versions
    }

    fn send(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        groups: &BTreeMap<String, (Arc<SetPool>, Vec<usize>)>,
    ) -> Result<()> {
        let mut made = Vec::new();
        for (set, places) in groups.values() {
            let docs: Vec<Doc<'_>> = places
                .iter()
                .filter_map(|p| self.ops.get(*p))
                .map(|o| o.doc.as_doc())
                .collect();
            let ids: Vec<i64> = places
                .iter()
                .filter_map(|p| self.ops.get(*p))
                .map(|o| o.id)
                .collect();
            made.push((docs, command(cx, self.ordered, &ids), self.versions(set)));
        }
        let parts = groups
            .values()
            .zip(&made)
            .map(|((set, _), (docs, body, versions))| Part {
                set,
                db: "admin",
                body: body.as_doc(),
                beside: Beside::These("ops", docs),
                versions: Some(versions.as_doc()),
                reach: PRIMARY,
            });
        let parts: Vec<_> = parts.collect();
        let replies = ask_parts(cx, router, &parts);
        let mut ends: Option<Error> = None;
        for (reply, (set, places)) in replies.into_iter().zip(groups.values()) {
            let taken = reply.and_then(|reply| self.take(cx, set, &reply, places));
            if let Err(e) = taken {
                ends = Some(worse(cx, ends, e));
            }
        }
        ends.map_or(Ok(()), Err)
    }

    /// Takes what a set says of the operations at these places. Those that it refused stay pending.
    fn take(
        &mut self,
        cx: &CommandContext<'_>,
        set: &Arc<SetPool>,
        reply: &Reply,
        places: &[usize],
    ) -> Result<()> {
        let (counts, results, concern) = read(cx, set, reply)?;
        let mut stale = None;
        for d in results {
            let i = d
                .as_doc()
                .get("idx")
                .and_then(|v| v.as_i64_exact())
                .unwrap_or(-1);
            let Some(place) = usize::try_from(i).ok().and_then(|i| places.get(i).copied()) else {
                continue;
            };
            if has_code(&d, Code::StaleConfig) {
                let why = d.as_doc().get_str("errmsg").unwrap_or_default();
                stale = Some(Error::new(Code::StaleConfig, why).with_extra(d));
                continue;
            }
            self.pending.remove(&place);
            self.done.results.insert(place, at(place, d.as_doc()));
        }
        self.count(&counts);
        if stale.is_some() {
            // The refused one was counted as an error.
            self.uncount_errors();
        }
        self.done.concern = self.done.concern.take().or(concern);
        stale.map_or(Ok(()), Err)
    }

    fn count(&mut self, counts: &[i64; 6]) {
        for (total, n) in self.done.totals.iter_mut().zip(counts) {
            *total += n;
        }
    }

    /// Counts the errors anew.
    fn uncount_errors(&mut self) {
        let errors = self.done.results.values().filter(|d| has_failed(d)).count();
        if let Some(first) = self.done.totals.first_mut() {
            *first = errors as i64;
        }
    }

    /// Whether an operation has failed.
    fn has_errors(&self) -> bool {
        self.done.totals.first().is_some_and(|n| *n > 0)
    }

    fn fails(&mut self, place: usize, e: &Error) {
        let mut d = doc! { "ok": 0.0, "idx": place as i32 };
        d.append_all(told(e).as_doc());
        d.append("n", 0);
        let op = self.ops.get(place).map(|op| op.doc.as_doc());
        if op.is_some_and(|op| op.get("update").is_some()) {
            d.append("nModified", 0);
        }
        self.done.results.insert(place, d);
        self.count(&[1, 0, 0, 0, 0, 0]);
    }

    /// The shards that have something left to do of an operation for all, with what they are to expect.
    fn left<'s>(
        &self,
        place: usize,
        (known, sets): (&Known, &'s [(usize, Arc<SetPool>)]),
    ) -> Result<Vec<(usize, &'s Arc<SetPool>, DocBuf)>> {
        let mut left = Vec::new();
        for (shard, set) in sets {
            let versions = self.versions(set);
            let to_do = self.did.left(place, known, *shard)?;
            left.extend(to_do.limits(versions, known.ns()).map(|v| (*shard, set, v)));
        }
        Ok(left)
    }

    fn send_to_all(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        place: usize,
        sets: &[(usize, Arc<SetPool>)],
    ) -> Result<()> {
        let op = self.ops.get(place).ok_or_else(lost)?;
        // If no shard has a document, it is inserted afterwards.
        let plain = without(op.doc.as_doc());
        let docs = [plain.as_doc()];
        let body = command(cx, true, &[]);
        let known = self.known.get(op.ns).and_then(Option::as_ref);
        let known = known.map(Arc::clone).ok_or_else(lost)?;
        let left = self.left(place, (&known, sets))?;
        let parts = left.iter().map(|(_, set, versions)| Part {
            set,
            db: "admin",
            body: body.as_doc(),
            beside: Beside::These("ops", &docs),
            versions: Some(versions.as_doc()),
            reach: PRIMARY,
        });
        let parts: Vec<_> = parts.collect();
        let mut ends: Option<Error> = None;
        let replies = ask_parts(cx, router, &parts);
        for (reply, (shard, set, _)) in replies.into_iter().zip(&left) {
            let before = self.done.results.remove(&place);
            let taken = reply.and_then(|reply| self.take(cx, set, &reply, &[place]));
            match taken {
                Ok(()) => {
                    self.did.did(place, &known, *shard)?;
                }
                // In a transaction all parts have failed after the first.
                Err(_)
                    if cx.generic.in_transaction() && before.as_ref().is_some_and(has_failed) => {}
                Err(e) => ends = Some(worse(cx, ends, e)),
            }
            let now = self.done.results.remove(&place);
            if let Some(both) = together(before, now) {
                self.done.results.insert(place, both);
            }
        }
        self.uncount_errors();
        if let Some(e) = ends {
            // One shard has done its part, but not each of them.
            self.pending.insert(place);
            return Err(e);
        }
        let result = self.done.results.get(&place).map(|d| d.as_doc());
        let upserts = self
            .ops
            .get(place)
            .and_then(|op| op.doc.as_doc().get("upsert"));
        if upserts.is_some_and(|v| v.truthy()) && result.is_some_and(finds_none) {
            let send = |bulk: &mut Self, shard: usize, doc: Doc<'_>| {
                bulk.send_one(cx, router, (place, &known, shard), doc, &body)
            };
            // The shards have answered, but the document may be refused by a shard that knows another placement.
            self.pending.insert(place);
            cx.at_step("beforeUpsert")?;
            match self.upsert(cx, place, &known, send) {
                Err(e) if is_of_statement(&e) => self.fails(place, &e),
                done => done?,
            }
        }
        Ok(())
    }

    /// Looks for the document of an operation, and moves it if `update` asks for that; `None` if that is all.
    fn find(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        (place, known, shards): (usize, &Known, &[usize]),
        (wanted, update): (&Wanted<'_>, Option<Value<'_>>),
    ) -> Result<Option<Option<Chosen>>> {
        let Some(update) = update else {
            return choose(cx, router, known, wanted, shards).map(Some);
        };
        let op = self.ops.get(place).ok_or_else(lost)?;
        let change = Change {
            wanted: *wanted,
            update,
            array_filters: op
                .doc
                .as_doc()
                .get_array("arrayFilters")
                .unwrap_or(Doc::EMPTY),
            metadata: MetaSet::NONE,
            id: op.id,
        };
        match relocate::run(cx, router, known, &change, shards)? {
            Outcome::None => Ok(Some(None)),
            Outcome::Stays(chosen) => Ok(Some(Some(chosen))),
            Outcome::Moved(..) | Outcome::Before => {
                let d = doc! { "ok": 1.0, "idx": place as i32, "n": 1, "nModified": 1 };
                self.done.results.insert(place, d);
                self.count(&[0, 0, 1, 1, 0, 0]);
                Ok(None)
            }
        }
    }

    /// Sends one operation to one shard.
    fn send_one(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        (place, known, shard): (usize, &Known, usize),
        doc: Doc<'_>,
        body: &DocBuf,
    ) -> Result<()> {
        let (set, docs) = (known.set(shard)?, [doc]);
        let versions = self.versions(set);
        let part = Part {
            set,
            db: "admin",
            body: body.as_doc(),
            beside: Beside::These("ops", &docs),
            versions: Some(versions.as_doc()),
            reach: PRIMARY,
        };
        let reply = ask_parts(cx, router, &[part]).pop().ok_or_else(lost)??;
        self.take(cx, set, &reply, &[place])
    }

    /// Inserts the document of an operation that has found none.
    fn upsert(
        &mut self,
        cx: &CommandContext<'_>,
        place: usize,
        known: &Known,
        send: impl FnOnce(&mut Self, usize, Doc<'_>) -> Result<()>,
    ) -> Result<()> {
        let doc = self.ops.get(place).ok_or_else(lost)?.doc.as_doc().to_buf();
        let doc = doc.as_doc();
        let variables = variables(cx, doc);
        let upsert = Upsert {
            filter: doc.get_doc("filter").unwrap_or(Doc::EMPTY),
            update: doc.get("updateMods").unwrap_or(Value::Null),
            array_filters: doc.get_array("arrayFilters").unwrap_or(Doc::EMPTY),
            variables: variables.as_doc(),
            collation: collation_in(doc),
        };
        let (shard, filter) = place_upsert(cx, known, &upsert)?;
        send(self, shard, with_filter(doc, "filter", filter).as_doc())
    }

    fn send_to_one(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        place: usize,
        shards: &[usize],
    ) -> Result<()> {
        let (op, ns, id) = {
            let op = self.ops.get(place).ok_or_else(lost)?;
            (op.doc.as_doc().to_buf(), op.ns, op.id)
        };
        let doc = op.as_doc();
        let known = self.known.get(ns).and_then(Option::as_ref);
        let known = known.map(Arc::clone).ok_or_else(lost)?;
        let body = command(cx, true, &[id]);
        let send = |bulk: &mut Self, shard: usize, doc: Doc<'_>| {
            bulk.send_one(cx, router, (place, &known, shard), doc, &body)
        };
        if let Some(shard) = executed(cx, router, &known, shards, id)? {
            return send(self, shard, doc);
        }
        let variables = variables(cx, doc);
        let wanted = Wanted {
            filter: doc.get_doc("filter").unwrap_or(Doc::EMPTY),
            sort: doc.get_doc("sort"),
            hint: doc.get("hint"),
            collation: collation_in(doc),
            variables: variables.as_doc(),
        };
        let constants = doc.get_doc("constants");
        let update = doc.get("updateMods");
        let update = update.filter(|u| relocate::changes_key(&known, *u, constants));
        for _ in 0..ATTEMPTS {
            cx.op.check()?;
            let found = match self.find(cx, router, (place, &known, shards), (&wanted, update))? {
                Some(found) => found,
                None => return Ok(()),
            };
            let (shard, narrowed) = match &found {
                Some(chosen) => (chosen.shard, narrowed(doc, "filter", chosen)),
                None if doc.get("upsert").is_some_and(|v| v.truthy()) => {
                    return self.upsert(cx, place, &known, send);
                }
                // Any shard says what the operation comes to.
                None => (shards.first().copied().unwrap_or(0), op.clone()),
            };
            cx.at_step("afterChoice")?;
            send(self, shard, narrowed.as_doc())?;
            let again = self.done.results.get(&place).is_some_and(|d| {
                let gone = found.is_some() && finds_none(d.as_doc());
                gone || has_code(d, Code::WouldChangeOwningShard)
            });
            if !again {
                return Ok(());
            }
            let moves = |d: &DocBuf| has_code(d, Code::WouldChangeOwningShard);
            if let Some(update) =
                update.filter(|_| self.done.results.get(&place).is_some_and(moves))
            {
                let filters = doc.get_array("arrayFilters").unwrap_or(Doc::EMPTY);
                relocate::check_possible(cx, &known, (&wanted, update), filters)?;
            }
            // It is not done: if the next attempt ends since the router knows an old placement, it begins anew.
            self.pending.insert(place);
            self.done.results.remove(&place);
            self.uncount_errors();
        }
        Err(too_often())
    }
}

/// An operation; a document that it inserts gets its `_id` here, since that may be a part of the key.
fn with_id(op: Doc<'_>) -> Owned<'_> {
    let document = op.get_doc("document");
    let Some(document) = document.filter(|d| d.get("_id").is_none()) else {
        return Owned::Sent(op);
    };
    let mut made = DocBuf::new();
    for e in op {
        match e.name() {
            "document" => made.append("document", Owned::with_id(document).as_doc()),
            _ => made.append_elem(e),
        };
    }
    Owned::Made(made)
}

/// The variables of an operation.
fn variables(cx: &CommandContext<'_>, op: Doc<'_>) -> DocBuf {
    let constants = op.get_doc("constants").unwrap_or(Doc::EMPTY);
    with_constants(cx.args.doc("let").unwrap_or(Doc::EMPTY), constants)
}

/// The command without its operations.
fn command(cx: &CommandContext<'_>, ordered: bool, ids: &[i64]) -> DocBuf {
    const OWN: [&str; 7] = [
        "ops",
        "nsInfo",
        "ordered",
        "errorsOnly",
        "cursor",
        "stmtId",
        "stmtIds",
    ];
    let mut body = DocBuf::new();
    for e in cx.request.body {
        if !OWN.contains(&e.name()) {
            body.append_elem(e);
        }
    }
    let infos: ArrayBuf = cx.request.documents("nsInfo").map(|d| d.to_buf()).collect();
    body.append("nsInfo", infos);
    body.append("ordered", ordered);
    body.append("errorsOnly", false);
    if cx.generic.txn_number.is_some() && !cx.generic.in_transaction() {
        number_statements(&mut body, ids);
    }
    body
}

/// The counters, the documents about the operations, and the write concern's error of a reply.
type Read = ([i64; 6], Vec<DocBuf>, Option<DocBuf>);

fn read(cx: &CommandContext<'_>, set: &Arc<SetPool>, reply: &Reply) -> Result<Read> {
    let body = reply.body.as_doc();
    check_ok(body)?;
    let counts = COUNTERS.map(|name| body.get(name).and_then(|v| v.as_i64_exact()).unwrap_or(0));
    let on: Arc<dyn Interrupt> = Arc::clone(cx.op) as Arc<dyn Interrupt>;
    let mut results = Remote::new(&Terms::new(cx, &on), set, reply)?;
    let mut all = Vec::new();
    while let Some(d) = results.next()? {
        all.push(Doc::new(&d).to_buf());
    }
    let concern = body.get_doc("writeConcernError").map(|d| d.to_buf());
    Ok((counts, all, concern))
}

/// The document about an operation at a place.
fn at(place: usize, d: Doc<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    for e in d {
        match e.name() {
            "idx" => out.append("idx", i32::try_from(place).unwrap_or(i32::MAX)),
            _ => out.append_elem(e),
        };
    }
    out
}

/// The document about an operation with another error.
fn with_error(d: Doc<'_>, error: &Error) -> DocBuf {
    let mut out = DocBuf::new();
    for e in d {
        match e.name() {
            "code" => out.append("code", error.code().0),
            "errmsg" => out.append("errmsg", error.message()),
            _ => out.append_elem(e),
        };
    }
    out
}

/// Whether an operation has failed.
fn has_failed(d: &DocBuf) -> bool {
    !d.as_doc().get("ok").is_some_and(|v| v.truthy())
}

/// Whether an operation has failed with this code.
fn has_code(d: &DocBuf, code: Code) -> bool {
    code_of(d.as_doc()) == Some(code)
}

/// Whether an operation has matched nothing.
fn finds_none(d: Doc<'_>) -> bool {
    let n = d.get("n").and_then(|v| v.as_i64_exact());
    n == Some(0) && d.get("ok").is_some_and(|v| v.truthy())
}

/// What two shards say of one operation.
fn together(before: Option<DocBuf>, now: Option<DocBuf>) -> Option<DocBuf> {
    let (before, now) = match (before, now) {
        (Some(before), Some(now)) => (before, now),
        (one, other) => return one.or(other),
    };
    // An error is told.
    let (base, other) = match has_failed(&before) {
        true => (before, now),
        false => (now, before),
    };
    let mut out = DocBuf::new();
    for e in base.as_doc() {
        match e.name() {
            "n" | "nModified" => {
                let of = |d: &DocBuf| {
                    d.as_doc()
                        .get(e.name())
                        .and_then(|v| v.as_i64_exact())
                        .unwrap_or(0)
                };
                out.append(e.name(), (of(&base) + of(&other)) as i32)
            }
            _ => out.append_elem(e),
        };
    }
    Some(out)
}

#[cold]
fn lost() -> Error {
    Error::internal("an operation of the command is lost")
}
