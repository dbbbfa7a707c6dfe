//! What a pipeline writes at a router: `$merge` into a collection wherever it is, and `$out`.
//!
//! `$merge`: documents are sent in batches to the shards that own them by the target's shard key. A shard says which
//! documents it has refused since it knows another placement; these are sent again as the configuration has it by then,
//! and no others, so each takes effect once.
//!
//! `$out`: the shard that holds the target's database keeps the documents in a collection with a name of its own, which
//! takes the target's name at the end. A router that ends before leaves the target as it was
//! ([`crate::outputs`]).
//!
//! Invariant: after something was written that stays, nobody begins the pipeline anew ([`Output::wrote`]).
//!
//! [`Output::wrote`]: super::remote::Output

use super::remote::Terms;
use super::{PAUSE, is_stale};
use crate::placement;
use crate::router::forward::{Own, write_own_to_all};
use crate::router::tables::Known;
use crate::router::{Reach, SetPool};
use crate::sets::{Reply, check_done};
use bytes::Bytes;
use muniment_exec::{Batch, check_on, with_id};
use muniment_op::sleep_until;
use muniment_query::QueryContext;
use muniment_query::stage::host::Writer;
use muniment_query::stage::merge::MergeSpec;
use muniment_query::stage::out::OutSpec;
use muniment_value::path::Path;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A batch is sent when it reaches this many bytes.
const BATCH_BYTES: usize = 16 << 20;
/// So long documents are sent again that a shard has refused.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same while nothing was written yet: the command as a whole can begin anew, which settles what is left of a change.
const BEFORE_FIRST: Duration = Duration::from_secs(2);

/// A collection that is written to, as the router knows it now.
struct Target {
    /// Its table, if it is sharded or tracked.
    known: Option<Arc<Known>>,
    /// The sets that have it, by their places in the table, with what they are to expect.
    sets: Vec<(Arc<SetPool>, DocBuf)>,
}

impl Target {
    fn now(terms: &Terms, db: &str, collection: &str) -> Result<Target> {
        let (router, on) = (terms.router()?, &*terms.on);
        let known = router
            .tables
            .of(on, router, &format!("{db}.{collection}"))?;
        let sets = match &known {
            Some(known) => {
                let sets = known.sets.iter().enumerate();
                sets.map(|(i, set)| (Arc::clone(set), known.versions(i)))
                    .collect()
            }
            None => {
                let set = router.catalog.database(on, router, db, Some(None))?;
                let set = set.ok_or_else(|| Error::new(Code::ShardNotFound, "No shards found"))?;
                vec![(set, DocBuf::new())]
            }
        };
        Ok(Target { known, sets })
    }

    /// The table, if the collection is divided.
    fn divided(&self) -> Option<&Known> {
        let known = self.known.as_deref()?;
        (!known.collection.unsplittable).then_some(known)
    }

    /// The place of the set to which a document belongs.
    fn of(&self, doc: Doc<'_>) -> Result<usize> {
        match &self.known {
            Some(known) => Ok(known.table.owner(&known.key.key_of(doc)?)),
            None => Ok(0),
        }
    }

    /// A set that has a part of it.
    fn any(&self) -> usize {
        let all = self.known.as_ref().map(|known| known.all());
        all.and_then(|all| all.first().copied()).unwrap_or(0)
    }
}

/// Sends commands to sets of a target, each with documents beside it; the replies, which are of success.
fn send(
    terms: &Terms,
    target: &Target,
    db: &str,
    asked: &[(usize, &DocBuf, &[Doc<'_>])],
) -> Result<Vec<Result<Reply>>> {
    let mut parts = Vec::new();
    for (place, command, docs) in asked {
        let (set, versions) = target.sets.get(*place).ok_or_else(lost)?;
        let own = Own {
            set,
            db,
            command,
            versions: Some(versions.as_doc()),
            reach: Reach::Primary,
        };
        parts.push((own, *docs));
    }
    let replies = write_own_to_all(&*terms.on, terms.router()?, &parts);
    let checked = replies.into_iter().map(|reply| {
        let reply = reply?;
        check_done(reply.body.as_doc())?;
        Ok(reply)
    });
    Ok(checked.collect())
}

/// Reads the configuration again where a shard knows better.
fn look_again(terms: &Terms, ns: &str, why: &Error) -> Result<()> {
    let (router, on) = (terms.router()?, &*terms.on);
    let extra = why.extra().as_doc();
    match extra.get_str("db") {
        Some(db) => router.catalog.forget_database(db),
        None => drop(
            router
                .tables
                .refresh(on, router, extra.get_str("ns").unwrap_or(ns))?,
        ),
    }
    sleep_until(muniment_op::now() + PAUSE, on)
}

#[cold]
fn lost() -> Error {
    Error::internal("a part of a pipeline's output is lost")
}

/// Writes the documents of a `$merge`.
pub struct Merging {
    terms: Terms,
    spec: MergeSpec,
    ctx: QueryContext,
    /// The fields that identify a document.
    on: Vec<Path>,
    sparse: bool,
    batch: Batch,
}

impl Merging {
    /// Opens the target.
    ///
    /// # Errors
    /// 51183 if the fields of `on` cannot be kept unique over shards; those of a shard.
    pub fn open(terms: &Terms, spec: &MergeSpec, ctx: &QueryContext) -> Result<Merging> {
        let mut merging = Merging {
            terms: terms.clone(),
            spec: spec.clone(),
            ctx: ctx.clone(),
            on: Vec::new(),
            sparse: false,
            batch: Batch::new(BATCH_BYTES),
        };
        let target = merging.target()?;
        merging.on = merging.on(&target)?;
        let command = merging.command(&target)?;
        let asked = [(target.any(), &command, &[][..])];
        let reply = send(terms, &target, &spec.db, &asked)?.pop();
        let reply = reply.unwrap_or_else(|| Err(lost()))?;
        let sparse = reply.body.as_doc().get("sparse");
        merging.sparse = sparse.is_some_and(|v| v.truthy());
        Ok(merging)
    }

    fn target(&self) -> Result<Target> {
        let mut target = Target::now(&self.terms, &self.spec.db, &self.spec.collection)?;
        for (_, versions) in &mut target.sets {
            *versions = placement::at(versions.as_doc(), (self.ctx.now_ms, self.ctx.cluster_time));
        }
        Ok(target)
    }

    fn ns(&self) -> String {
        format!("{}.{}", self.spec.db, self.spec.collection)
    }

    /// The fields that identify a document: those of `on`, or `_id`, with the shard key if the target is divided.
    ///
    /// # Errors
    /// 51183 if those of `on` do not include the shard key: no index can keep them unique over shards.
    fn on(&self, target: &Target) -> Result<Vec<Path>> {
        let Some(known) = target.divided() else {
            return Ok(match self.spec.on.as_slice() {
                [] => vec![Path::new("_id")],
                on => on.to_vec(),
            });
        };
        let key = known.key.fields().iter().map(|f| f.path.clone());
        let key: Vec<Path> = key.collect();
        if self.spec.on.is_empty() {
            let has_id = key.iter().any(|p| p.as_str() == "_id");
            let id = (!has_id).then(|| Path::new("_id"));
            return Ok(key.into_iter().chain(id).collect());
        }
        let named = |p: &Path| self.spec.on.iter().any(|on| on.as_str() == p.as_str());
        match key.iter().all(named) {
            true => Ok(self.spec.on.clone()),
            false => Err(Error::location(
                51183,
                "Cannot find index to verify that join fields will be unique",
            )),
        }
    }

    /// The command for a shard, without documents.
    fn command(&self, target: &Target) -> Result<DocBuf> {
        let on: ArrayBuf = self.on(target)?.iter().map(Path::as_str).collect();
        let (db, name) = (self.spec.db.as_str(), self.spec.collection.as_str());
        let mut operand = doc! { "into": doc! { "db": db, "coll": name }, "on": on };
        operand.append_all(self.spec.written.as_doc());
        let by_key = self.spec.on.is_empty() && target.divided().is_some();
        let mut command = doc! {
            "_shardMerge": name, "operand": operand, "byKey": by_key,
            "let": variables(&self.ctx), "now": self.ctx.now_ms,
        };
        command.append_some("collation", self.ctx.collation.spec());
        command.append_all(self.terms.output.terms.as_doc());
        Ok(command)
    }

    /// 61 for a document whose shard is not known since its key has texts that compare by a collation.
    fn check_texts(&self, known: &Known, doc: Doc<'_>) -> Result<()> {
        if self.ctx.collation.spec().is_none() {
            return Ok(());
        }
        let values = known.key.values_of(doc)?;
        let has_text = values.as_doc().iter().any(|e| {
            matches!(
                e.value(),
                Value::String(_) | Value::Symbol(_) | Value::Document(_)
            )
        });
        match has_text {
            false => Ok(()),
            true => Err(Error::new(
                Code::ShardKeyNotFound,
                format!(
                    "Failed to target upsert by query :: could not extract exact shard key from {}, whose texts \
                     compare by a collation",
                    values.as_doc().to_display()
                ),
            )),
        }
    }

    /// Sends documents of a batch. Returns the places of those that were refused because a shard knows another
    /// placement, and why.
    fn send(&self, docs: &[Bytes], places: &[usize]) -> Result<(Vec<usize>, Option<Error>)> {
        let target = self.target()?;
        let command = self.command(&target)?;
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for place in places {
            let doc = Doc::new(docs.get(*place).ok_or_else(lost)?);
            if let Some(known) = target.divided() {
                self.check_texts(known, doc)?;
            }
            groups.entry(target.of(doc)?).or_default().push(*place);
        }
        let beside = groups.iter().map(|(set, places)| {
            let of = places.iter().filter_map(|place| docs.get(*place));
            (*set, of.map(|d| Doc::new(d)).collect::<Vec<_>>())
        });
        let beside: Vec<_> = beside.collect();
        let asked = beside.iter().map(|(set, docs)| (*set, &command, &docs[..]));
        let asked: Vec<_> = asked.collect();
        let replies = send(&self.terms, &target, &self.spec.db, &asked)?;
        let mut refused = (Vec::new(), None);
        let mut first: Option<(usize, Error)> = None;
        for (reply, places) in replies.into_iter().zip(groups.into_values()) {
            let failed = match reply {
                Ok(reply) => failed(&reply, &places),
                // Nothing was done.
                Err(e) if is_stale(&e) => places.iter().map(|p| (*p, e.clone())).collect(),
                Err(e) => places.first().map(|p| (*p, e)).into_iter().collect(),
            };
            for (place, e) in failed {
                match (is_stale(&e), &first) {
                    (true, _) => {
                        refused.0.push(place);
                        refused.1.get_or_insert(e);
                    }
                    (false, Some((before, _))) if *before <= place => {}
                    (false, _) => first = Some((place, e)),
                }
            }
        }
        refused.0.sort_unstable();
        if refused.0.len() < places.len() {
            self.terms.output.wrote.store(true, Relaxed);
        }
        first.map_or(Ok(refused), |(_, e)| Err(e))
    }

    fn flush(&mut self) -> Result<()> {
        let docs = self.batch.take();
        let mut places: Vec<usize> = (0..docs.len()).collect();
        let began = muniment_op::now();
        while !places.is_empty() {
            self.terms.on.check()?;
            let (refused, why) = self.send(&docs, &places)?;
            if let Some(why) = why {
                let wrote = self.terms.output.wrote.load(Relaxed);
                if muniment_op::since(began) >= if wrote { PATIENCE } else { BEFORE_FIRST } {
                    return Err(why);
                }
                look_again(&self.terms, &self.ns(), &why)?;
            }
            places = refused;
        }
        Ok(())
    }
}

/// The documents that a shard has not written, by their places in the batch; `places` has those of what it was sent.
fn failed(reply: &Reply, places: &[usize]) -> Vec<(usize, Error)> {
    let failed = reply
        .body
        .as_doc()
        .get_array("failed")
        .unwrap_or(Doc::EMPTY);
    let failed = failed.values().filter_map(|v| v.as_doc());
    failed
        .map(|d| {
            let index = d.get("index").and_then(|v| v.as_i64_exact()).unwrap_or(0);
            let place = places.get(index as usize).or(places.last());
            let code = client::code_of(d).unwrap_or(Code::UnknownError);
            let mut extra = DocBuf::new();
            for e in d.iter() {
                if !["index", "code", "errmsg"].contains(&e.name()) {
                    extra.append_elem(e);
                }
            }
            let e = Error::new(code, d.get_str("errmsg").unwrap_or_default());
            (place.copied().unwrap_or_default(), e.with_extra(extra))
        })
        .collect()
}

impl Writer for Merging {
    fn write(&mut self, doc: Bytes) -> Result<()> {
        let doc = with_id(doc, &self.on);
        check_on(Doc::new(&doc), &self.on, self.sparse)?;
        match self.batch.push(doc) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()
    }
}

/// Writes the documents of an `$out`.
pub struct Replacing {
    terms: Terms,
    db: String,
    collection: String,
    target: Target,
    /// The collection that they go to, as its shard names it.
    half: DocBuf,
    batch: Batch,
    done: bool,
}

impl Replacing {
    /// Opens the target.
    ///
    /// # Errors
    /// 28769 for a divided collection; those of the shard.
    pub fn open(terms: &Terms, spec: &OutSpec) -> Result<Replacing> {
        let target = Target::now(terms, &spec.db, &spec.collection)?;
        match &target.known {
            // The command has brought it home before, so it is to begin anew.
            Some(known) if known.collection.unsplittable => {
                let why = "the collection is on another shard than its database";
                return Err(muniment_storage::stale(known.ns(), None, why));
            }
            Some(known) => return Err(no_replacing(known)),
            None => {}
        }
        let mut replacing = Replacing {
            terms: terms.clone(),
            db: spec.db.clone(),
            collection: spec.collection.clone(),
            target,
            half: DocBuf::new(),
            batch: Batch::new(BATCH_BYTES),
            // Until there is something to drop.
            done: true,
        };
        let options = spec.written.as_ref().map(|d| d.as_doc());
        let begun = replacing.step("begin", options, &[])?;
        let half = begun.body.as_doc().get_doc("half").ok_or_else(lost)?;
        replacing.half = half.to_buf();
        replacing.done = false;
        Ok(replacing)
    }

    fn step(&self, step: &str, timeseries: Option<Doc<'_>>, docs: &[Doc<'_>]) -> Result<Reply> {
        let mut command = doc! { "_shardOut": self.collection.as_str(), "step": step };
        command.append_some("timeseries", timeseries);
        if !self.half.as_doc().is_empty() {
            command.append("half", &self.half);
        }
        command.append_all(self.terms.output.terms.as_doc());
        let asked = [(0, &command, docs)];
        let reply = send(&self.terms, &self.target, &self.db, &asked)?.pop();
        reply.unwrap_or_else(|| Err(lost()))
    }

    fn flush(&mut self) -> Result<()> {
        let docs = self.batch.take();
        if docs.is_empty() {
            return Ok(());
        }
        let docs: Vec<Doc<'_>> = docs.iter().map(|d| Doc::new(d)).collect();
        self.step("write", None, &docs).map(drop)
    }
}

impl Writer for Replacing {
    fn write(&mut self, doc: Bytes) -> Result<()> {
        match self.batch.push(doc) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.terms.on.check()?;
        self.terms.output.wrote.store(true, Relaxed);
        let finished = self.step("finish", None, &[]);
        if let Err(e) = &finished
            && is_stale(e)
        {
            // Nothing was replaced.
            self.terms.output.wrote.store(false, Relaxed);
        }
        finished?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        if !self.done {
            // If it fails, the shard drops it later.
            let _ = self.step("discard", None, &[]);
        }
    }
}

/// 28769: only `$merge` writes into a divided collection.
pub fn no_replacing(known: &Known) -> Error {
    let ns = known.ns();
    Error::location(
        28769,
        format!("'{ns}' is sharded so it can't be used for $out"),
    )
}

/// The variables of a pipeline, as `let` gives them.
pub fn variables(ctx: &QueryContext) -> DocBuf {
    let mut out = DocBuf::new();
    for e in ctx.variables.as_doc() {
        out.append(e.name(), doc! { "$literal": e.value() });
    }
    for name in &ctx.missing {
        out.append(name, "$$REMOVE");
    }
    out
}
