//! One running plan: its stages, skip and limit, and the form its results take.

use super::announce::{How, announce};
use super::combine::{Cover, Fetch, Inputs, Or, Skip, fetch};
use super::current::Held;
use super::merge::SortMerge;
use super::metadata::RowMetadata;
use super::near::GeoNear;
use super::scan::{CollScan, IdHack, IxScan, matches};
use super::seen::Seen;
use super::sort::{Sort, SortLimits};
use super::text::{Give, Load, TextMatch};
use super::{Cx, Row, Stage, Step};
use crate::operation::OpContext;
use crate::plan::access::{Access, Branch, Candidate, IndexAccess, MergeInput};
use crate::plan::express::stage_doc;
use crate::run::recipe::Output;
use crate::run::recipe::ProjectionKind;
use crate::run::recipe::Recipe;
use crate::run::wrap;
use bytes::Bytes;
use muniment_query::meta::carry;
use muniment_query::{Filter, Interrupt};
use muniment_storage::Snapshot;
use muniment_value::{Doc, DocBuf, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Steps between two looks at the operation.
const BUDGET: i64 = 512;

/// A running plan.
pub struct Exec {
    /// What stages share.
    pub cx: Cx,
    root: Stage,
    output: Output,
    show_record_id: bool,
    tailable: bool,
    skip: u64,
    limit: Option<u64>,
    skipped: u64,
    returned: u64,
    buffered: VecDeque<Row>,
    /// How many of them are of an earlier snapshot.
    stale: usize,
    /// The first of them was taken back without its document.
    unread: bool,
    /// The whole filter.
    filter: Filter,
    eof: bool,
    flushed: (u64, u64),
    candidate: Arc<Candidate>,
    /// How it was chosen.
    pub(crate) how: How,
    /// It is the plan of its operation, which tells what it did.
    announced: bool,
    /// A covered plan's documents are the projection's result.
    made_to_measure: bool,
    keys_only: bool,
    needs: Option<Arc<[String]>>,
    metadata: Option<RowMetadata>,
}

impl Exec {
    /// Builds the stages of a candidate.
    pub fn build(recipe: &Recipe, candidate: Arc<Candidate>, snapshot: Option<Snapshot>) -> Exec {
        let mut cx = Cx::new(recipe.store.clone(), recipe.collection.clone(), snapshot);
        cx.budget = BUDGET;
        cx.reads(candidate.access.indexes(), recipe.shared.clone());
        let filter = if recipe.want_info {
            Some(recipe.filter.clone())
        } else {
            candidate.filter.clone()
        };
        let mut fetched = true;
        let keys_wanted = recipe.keys_only && !candidate.needs_sort;
        let mut root = match &candidate.access {
            Access::Eof => Stage::Eof(super::Stats::default()),
            Access::CollScan { backward } => Stage::CollScan(Box::new(CollScan::new(
                filter.clone(),
                *backward,
                recipe.want_info,
                recipe.tailable,
            ))),
            Access::IdHack(id) => Stage::IdHack(Box::new(IdHack::new(id.clone()))),
            Access::Index(access) => {
                fetched = false;
                Stage::IxScan(Box::new(ix_scan(
                    recipe,
                    access,
                    Some(recipe.sort_limits.clone()),
                )))
            }
            Access::Near(access) => Stage::GeoNear(Box::new(GeoNear::new(
                access.clone(),
                recipe.sort_limits.clone(),
                recipe.want_info,
                recipe.metadata,
            ))),
            Access::Text(access) => {
                let give = match &recipe.sort {
                    _ if keys_wanted => Give::Records,
                    Some((sort, _)) if Load::can(access, sort) => Give::Scores,
                    _ => Give::Documents,
                };
                Stage::Text(Box::new(TextMatch::new(access.clone(), recipe, give)))
            }
            Access::SortMerge(scans) => {
                fetched = false;
                merge(recipe, scans)
            }
            Access::Or { branches, .. } => {
                fetched = false;
                or(recipe, branches)
            }
        };
        // A sort needs the documents, whatever is returned.
        let key_output = matches!(recipe.output, Output::Key) && !candidate.needs_sort;
        let keys_suffice = (keys_wanted || key_output) && filter.is_none();
        let mut skip = recipe.skip;
        let reads = candidate.covered.is_some() || !keys_suffice;
        if skip > 0 && !fetched && !candidate.needs_sort && filter.is_none() && reads {
            root = Stage::Skip(Box::new(Skip::new(root, std::mem::take(&mut skip))));
        }
        if let Some(keys) = &candidate.covered {
            // The rows of a clustered index are documents.
            if !candidate.clustered() {
                root = Stage::Cover(Box::new(Cover::new(root, keys.clone())));
            }
        } else if !fetched && !keys_suffice {
            root = Stage::Fetch(Box::new(Fetch::new(root, filter, recipe.want_info)));
        }
        if candidate.needs_sort
            && let Some((spec, source)) = &recipe.sort
        {
            let limit = recipe
                .limit
                .and_then(|l| usize::try_from(l.saturating_add(recipe.skip)).ok());
            root = Stage::Sort(Box::new(Sort::new(
                root,
                spec.clone(),
                source.clone(),
                limit,
                recipe.sort_limits.clone(),
            )));
            if let Access::Text(access) = &candidate.access
                && Load::can(access, spec)
            {
                root = Stage::Load(Box::new(Load::new(root, access.clone())));
            }
        }
        if let Stage::IxScan(scan) = &mut root
            && recipe.keys_only
        {
            scan.count_keys();
        }
        Exec {
            cx,
            root,
            output: recipe.output.clone(),
            // The key is all that is returned.
            show_record_id: recipe.show_record_id && !matches!(recipe.output, Output::Key),
            tailable: recipe.tailable,
            skip,
            limit: recipe.limit,
            skipped: 0,
            returned: 0,
            buffered: VecDeque::new(),
            stale: 0,
            unread: false,
            filter: recipe.filter.clone(),
            eof: false,
            flushed: (0, 0),
            how: How::default(),
            announced: false,
            made_to_measure: candidate.needed_exactly,
            keys_only: recipe.keys_only,
            needs: recipe.needs.clone(),
            metadata: RowMetadata::of(recipe, &candidate),
            candidate,
        }
    }

    /// The plan.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Runs for at most `works` steps or until `rows` rows are buffered: a trial.
    ///
    /// # Errors
    /// Those of [`Exec::next_row`].
    pub fn trial(&mut self, op: &Arc<OpContext>, works: u64, rows: usize) -> Result<()> {
        self.cx.run_by(op);
        let end = self.cx.works + works;
        while !self.eof && self.buffered.len() < rows && self.cx.works < end {
            self.cx.budget = self.cx.budget.max(1).min((end - self.cx.works) as i64);
            match self.root.next(&mut self.cx)? {
                Step::Row(row) => self.buffered.push_back(row),
                // What it examined is booked once it has won.
                Step::Pause => {
                    op.check()?;
                    self.cx.budget = BUDGET;
                }
                Step::Eof => self.eof = true,
            }
        }
        Ok(())
    }

    /// Rows that a trial left.
    pub fn buffered(&self) -> usize {
        self.buffered.len()
    }

    /// True when the plan is at its end.
    pub fn at_eof(&self) -> bool {
        self.eof
    }

    /// Books what was examined with the operation.
    pub fn flush(&mut self, op: &OpContext) {
        let (keys, docs) = self.flushed;
        op.counters
            .keys_examined
            .fetch_add(self.cx.keys - keys, Relaxed);
        op.counters
            .docs_examined
            .fetch_add(self.cx.docs - docs, Relaxed);
        self.flushed = (self.cx.keys, self.cx.docs);
    }

    /// The plan lost its trial: what it examined is booked with no operation, as in MongoDB.
    pub fn lose(&mut self) {
        self.cx.op = None;
        self.save();
    }

    /// Says that this is how the operation finds its documents; what it did is told when the plan ends
    /// or its cursor idles.
    pub fn announce(&mut self, op: &Arc<OpContext>) {
        self.announced = true;
        self.cx.run_by(op);
        announce(op, &self.candidate, self.named(), &self.how);
    }

    /// The same for a plan under a stage that tells what both of them did.
    pub fn announce_below(&self, op: &OpContext) {
        announce(op, &self.candidate, self.named(), &self.how);
    }

    /// True if it counts the keys of one range and does nothing else: MongoDB's COUNT_SCAN.
    pub fn counts_keys(&self) -> bool {
        match &self.root {
            Stage::IxScan(s) => s.counts_keys(),
            _ => false,
        }
    }

    /// What its index scan is called if it is of a kind of its own.
    fn named(&self) -> Option<&'static str> {
        self.counts_keys().then_some("COUNT_SCAN")
    }

    /// Books what it has done with the operation that runs it.
    fn settle(&mut self) {
        let Some(op) = self.cx.op.clone() else {
            return;
        };
        self.flush(&op);
        if self.announced && op.observed() {
            // A getMore has the plan of its cursor.
            announce(&op, &self.candidate, self.named(), &self.how);
            op.set_exec_stats(|| self.explain(true));
        }
    }

    /// The next row after skip and within the limit.
    ///
    /// # Errors
    /// Damaged data, what `$expr` raises, the sort's memory limit, what the operation says.
    pub fn next_row(&mut self, op: &Arc<OpContext>) -> Result<Option<Row>> {
        self.cx.run_by(op);
        if self.limit.is_some_and(|l| self.returned >= l) {
            self.flush(op);
            return Ok(None);
        }
        loop {
            let mut row = match self.buffered.pop_front() {
                Some(mut row) => {
                    let stale = self.stale > 0;
                    self.stale = self.stale.saturating_sub(1);
                    if std::mem::take(&mut self.unread) {
                        if !self.read_again(&mut row)? {
                            continue;
                        }
                    } else if stale && !self.renew(&mut row)? {
                        continue;
                    }
                    row
                }
                None if self.eof => {
                    self.flush(op);
                    return Ok(None);
                }
                None => match self.root.next(&mut self.cx)? {
                    Step::Row(row) => row,
                    Step::Pause => {
                        self.flush(op);
                        op.check()?;
                        self.cx.budget = BUDGET;
                        continue;
                    }
                    Step::Eof => {
                        self.eof = !self.tailable;
                        if self.tailable {
                            // What comes later is in a later snapshot only.
                            self.save();
                        }
                        self.flush(op);
                        return Ok(None);
                    }
                },
            };
            if self.skipped < self.skip {
                self.skipped += 1;
                continue;
            }
            self.returned += 1;
            if let Some(metadata) = &self.metadata
                && !row.doc.is_empty()
            {
                row.doc = metadata.attach(&row)?;
            }
            return Ok(Some(row));
        }
    }

    /// True when a tailable scan can never give anything: the collection was empty.
    pub fn tail_is_dead(&self) -> bool {
        matches!(&self.root, Stage::CollScan(s) if s.saw_nothing())
    }

    /// True once the limit is reached.
    pub fn limit_reached(&self) -> bool {
        self.limit.is_some_and(|l| self.returned >= l)
    }

    /// Brings a row of an earlier snapshot up to date; false when it is no match any more.
    fn renew(&mut self, row: &mut Row) -> Result<bool> {
        let keeps = matches!(
            self.candidate.access,
            Access::Near(_) | Access::Text(_) | Access::Eof
        );
        // The rows of a sort stay as it has read them, and those of a count have no document.
        if keeps || self.candidate.needs_sort || row.doc.is_empty() {
            return Ok(true);
        }
        self.read_again(row)
    }

    /// Fetches the row's document; false when it is gone, or is another one by now that does not match.
    fn read_again(&mut self, row: &mut Row) -> Result<bool> {
        let old = std::mem::take(&mut row.doc);
        if !fetch(row, &mut self.cx)? {
            return Ok(false);
        }
        if row.doc != old {
            let want_info = matches!(&self.output, Output::Projected { projection, .. }
                if projection.needs_match_info());
            let Some(info) = matches(&self.filter, &row.doc, want_info, self.cx.work())? else {
                return Ok(false);
            };
            row.info = info;
        }
        if self.candidate.covered.is_some() {
            // It is the stored document now, not what was made of the key.
            row.key.clear();
        }
        Ok(true)
    }

    /// Takes back the row that was given last, for which there was no room, without its document, which
    /// is fetched again when it is given again. False for a plan that cannot: what it has
    /// read cannot be read again.
    pub fn take_back(&mut self, mut row: Row) -> bool {
        let lasts = matches!(
            self.candidate.access,
            Access::Near(_) | Access::Text(_) | Access::Eof
        );
        let covered = self.candidate.covered.is_some() || row.doc.is_empty();
        if lasts || covered || self.candidate.needs_sort || self.metadata.is_some() {
            return false;
        }
        row.doc = Bytes::new();
        self.returned -= 1;
        self.buffered.push_front(row);
        self.unread = true;
        true
    }

    /// Lets go of the snapshot; the next row is looked for after the last one.
    pub fn save(&mut self) {
        self.settle();
        self.stale = self.buffered.len();
        self.root.save();
        self.cx.release();
    }

    /// Appends the row in the form the query asks for: one copy from the storage's bytes.
    ///
    /// # Errors
    /// What the projection raises.
    pub fn emit(&self, row: &Row, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        match &self.output {
            Output::Whole => out.extend_from_slice(Doc::new(&row.doc).as_bytes()),
            // Made of the key for this very projection.
            Output::Projected { .. } if self.made_to_measure && !row.key.is_empty() => {
                out.extend_from_slice(Doc::new(&row.doc).as_bytes());
            }
            Output::Projected { projection, .. } => {
                projection.apply(Doc::new(&row.doc), row.info, out, self.cx.work())?;
            }
            Output::Key => self.emit_key(row, out),
        }
        if self.show_record_id {
            let mut d = DocBuf::from_bytes_trusted(out.split_off(start));
            d.append("$recordId", self.cx.collection.record_id(&row.record_key));
            out.extend_from_slice(d.as_bytes());
        }
        Ok(())
    }

    /// The key by which the row was found; nothing for what no index was asked for.
    fn emit_key(&self, row: &Row, out: &mut Vec<u8>) {
        if matches!(self.candidate.access, Access::IdHack(_)) {
            let mut d = DocBuf::new();
            d.append_some("_id", Doc::new(&row.doc).get("_id"));
            out.extend_from_slice(d.as_bytes());
        } else if row.bits.is_empty() || matches!(self.candidate.access, Access::Near(_)) {
            // What $near found carries its distance, and no key.
            out.extend_from_slice(Doc::EMPTY.as_bytes());
        } else {
            out.extend_from_slice(Doc::new(&row.bits).as_bytes());
        }
    }

    /// True when `emit` gives the stored document itself.
    pub fn emits_whole(&self) -> bool {
        matches!(self.output, Output::Whole) && !self.show_record_id
    }

    /// The tree as explain shows it, with skip, projection and limit around the stages.
    pub fn explain(&self, exec: bool) -> DocBuf {
        if let Some(d) = self.explain_express(exec.then_some(self.returned), None) {
            return d;
        }
        let mut d = self.root.explain(exec);
        if let Access::Or { rooted: true, .. } = &self.candidate.access {
            d = wrap("SUBPLAN", exec, self.root.stats(), |_| {}, d);
        }
        let stats = |advanced: u64| {
            let mut s = self.root.stats();
            s.works = s.advanced.max(advanced);
            s.advanced = advanced;
            s.eof = self.eof || self.limit_reached();
            s
        };
        if self.skip > 0 && !self.keys_only {
            let skip = self.skip as i64;
            d = wrap(
                "SKIP",
                exec,
                stats(self.returned),
                |d| {
                    d.append("skipAmount", skip);
                },
                d,
            );
        }
        match &self.output {
            Output::Whole => {
                if let (true, Some(needs)) = (self.candidate.covered.is_some(), &self.needs) {
                    let mut source = DocBuf::new();
                    for path in needs.iter() {
                        source.append(path, 1);
                    }
                    if !needs.iter().any(|p| p == "_id") {
                        source.append("_id", 0);
                    }
                    let by = |d: &mut DocBuf| {
                        d.append("transformBy", &source);
                    };
                    d = wrap("PROJECTION_COVERED", exec, stats(self.returned), by, d);
                }
            }
            Output::Projected { source, kind, .. } => {
                let name = match kind {
                    ProjectionKind::Simple if self.candidate.covered.is_some() => {
                        "PROJECTION_COVERED"
                    }
                    ProjectionKind::Simple => "PROJECTION_SIMPLE",
                    ProjectionKind::Default => "PROJECTION_DEFAULT",
                };
                d = wrap(
                    name,
                    exec,
                    stats(self.returned),
                    |d| {
                        d.append("transformBy", source);
                    },
                    d,
                );
            }
            Output::Key => {
                d = wrap("RETURN_KEY", exec, stats(self.returned), |_| {}, d);
            }
        }
        let point = matches!(self.candidate.access, Access::IdHack(_));
        if let Some(limit) = self.limit
            && !self.keys_only
            && !self.candidate.needs_sort
            && !point
        {
            d = wrap(
                "LIMIT",
                exec,
                stats(self.returned),
                |d| {
                    d.append("limitAmount", limit as i64);
                },
                d,
            );
        }
        d
    }

    /// The stage of an express plan, by itself or as the stage `write`; `returned`: with figures of
    /// what it has done. `None` for other plans.
    pub fn explain_express(&self, returned: Option<u64>, write: Option<&str>) -> Option<DocBuf> {
        let mut d = stage_doc(&self.candidate, write)?;
        if let Some(returned) = returned {
            d.append("keysExamined", self.cx.keys as i64);
            d.append("docsExamined", self.cx.docs as i64);
            d.append("nReturned", returned as i64);
        }
        Some(d)
    }

    /// What the top stage has done.
    pub fn stats(&self) -> super::Stats {
        self.root.stats()
    }

    /// Rows given so far.
    pub fn returned(&self) -> u64 {
        self.returned
    }
}

impl Held for Exec {
    fn save(&mut self) {
        Exec::save(self);
    }

    fn flush(&mut self, op: &OpContext) {
        Exec::flush(self, op);
    }
}

impl Drop for Exec {
    /// A reader that needs one row does not ask for a second one, which would book what was examined:
    /// that is done here.
    fn drop(&mut self) {
        self.settle();
    }
}

/// An index scan, whose rows carry what the recipe makes of them.
fn ix_scan(recipe: &Recipe, access: &Arc<IndexAccess>, limits: Option<SortLimits>) -> IxScan {
    IxScan::new(access.clone(), limits).giving_keys(matches!(recipe.output, Output::Key))
}

/// An index scan, with the documents where something is left to be matched on them.
fn scan(recipe: &Recipe, access: &Arc<IndexAccess>, filter: Option<&Filter>) -> Stage {
    let limits = Some(recipe.sort_limits.clone());
    let scan = ix_scan(recipe, access, limits);
    filtered(Stage::IxScan(Box::new(scan)), filter)
}

fn filtered(stage: Stage, filter: Option<&Filter>) -> Stage {
    match filter {
        Some(f) => Stage::Fetch(Box::new(Fetch::new(stage, Some(f.clone()), false))),
        None => stage,
    }
}

/// The stage of an OR; the planner bounds how deep they nest.
fn or(recipe: &Recipe, branches: &Arc<[Branch]>) -> Stage {
    let (of, branches) = (recipe.clone(), branches.clone());
    let inputs = Inputs {
        len: branches.len(),
        make: Box::new(move |i| {
            branches
                .get(i)
                .map_or_else(Stage::nothing, |b| branch(&of, b))
        }),
    };
    Stage::Or(Box::new(Or::new(inputs, recipe.sort_limits.clone())))
}

fn branch(recipe: &Recipe, b: &Branch) -> Stage {
    match &b.access {
        Access::Index(a) => scan(recipe, a, b.filter.as_ref()),
        Access::Or { branches, .. } => filtered(or(recipe, branches), b.filter.as_ref()),
        // Whatever the others need is read above them all.
        Access::Text(a) => Stage::Text(Box::new(TextMatch::new(a.clone(), recipe, Give::Records))),
        _ => Stage::nothing(),
    }
}

/// The stage of a SORT_MERGE.
fn merge(recipe: &Recipe, list: &[MergeInput]) -> Stage {
    let leading = list.iter().map(|i| {
        let fields = i.access.bound.info.fields().iter();
        fields.take(i.leading).map(|(_, d)| *d).collect()
    });
    let backward = list.first().is_some_and(|i| i.access.backward);
    let disjoint = list
        .iter()
        .all(|i| i.disjoint && !i.access.bound.info.repeats());
    let inputs = list.iter().map(|i| {
        // The merge itself leaves out a document that an input finds twice.
        let scan = ix_scan(recipe, &i.access, None);
        filtered(Stage::IxScan(Box::new(scan)), i.filter.as_ref())
    });
    let pattern = recipe
        .sort
        .as_ref()
        .map_or_else(DocBuf::new, |(_, source)| source.clone());
    let seen = match disjoint {
        true => Seen::that_may_forget(recipe.sort_limits.clone()),
        false => Seen::new(recipe.sort_limits.clone()),
    };
    Stage::SortMerge(Box::new(SortMerge::new(
        inputs.collect(),
        leading.collect(),
        backward,
        seen,
        pattern,
    )))
}

/// The document a row stands for with its metadata, for readers that want bytes.
///
/// # Errors
/// Those of [`Exec::emit`].
pub fn into_bytes(exec: &Exec, row: Row) -> Result<Bytes> {
    if exec.emits_whole() {
        return Ok(row.doc);
    }
    let mut out = Vec::new();
    exec.emit(&row, &mut out)?;
    carry(Doc::new(&row.doc), &mut out);
    Ok(Bytes::from(out))
}
