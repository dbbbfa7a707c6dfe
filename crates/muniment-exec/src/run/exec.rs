//! A running plan: its stages, skip and limit, and the form of its results.

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
use super::{Cx, Row, Stage, Stats, Step};
use crate::operation::OpContext;
use crate::plan::access::{Access, Branch, Candidate, IndexAccess, MergeInput};
use crate::plan::express::stage_doc;
use crate::run::recipe::Output;
use crate::run::recipe::ProjectionKind;
use crate::run::recipe::Recipe;
use crate::run::wrap;
use bytes::Bytes;
use muniment_query::meta::carry;
use muniment_query::split::wire::append_key;
use muniment_query::{Filter, Interrupt, SortSpec};
use muniment_storage::Snapshot;
use muniment_value::{Doc, DocBuf, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Steps between two checks whether the operation may go on.
const BUDGET: i64 = 512;

/// A running plan.
pub(crate) struct Exec {
    /// The context that the stages share.
    pub cx: Cx,
    root: Stage,
    output: Output,
    show_record_id: bool,
    sort_key: bool,
    tailable: bool,
    skip: u64,
    limit: Option<u64>,
    skipped: u64,
    returned: u64,
    buffered: VecDeque<Row>,
    /// How many of the buffered rows come from an earlier snapshot.
    stale: usize,
    /// True if the first buffered row was taken back and has no document.
    unread: bool,
    /// The whole filter.
    filter: Filter,
    eof: bool,
    flushed: (u64, u64),
    candidate: Arc<Candidate>,
    /// The way in which the plan was chosen.
    pub(crate) how: How,
    /// True if the plan was announced as its operation's plan, so that it also reports what it did.
    announced: bool,
    /// True if the documents that a covered plan makes are already the projection's result.
    made_to_measure: bool,
    keys_only: bool,
    needs: Option<Arc<[String]>>,
    metadata: Option<RowMetadata>,
}

impl Exec {
    /// Builds the stages of a candidate.
    pub(crate) fn build(
        recipe: &Recipe,
        candidate: Arc<Candidate>,
        snapshot: Option<Snapshot>,
    ) -> Exec {
        let mut cx = Cx::new(recipe.store.clone(), recipe.collection.clone(), snapshot);
        cx.budget = BUDGET;
        cx.reads(candidate.access.indexes(), recipe.shared.clone());
        let filter = match recipe.want_info {
            true => Some(recipe.filter.clone()),
            false => candidate.filter.clone(),
        };
        let keys_wanted = recipe.keys_only && !candidate.needs_sort;
        let mut root = lowest(recipe, &candidate.access, filter.as_ref(), keys_wanted);
        let fetched = !matches!(
            candidate.access,
            Access::Index(_) | Access::SortMerge(_) | Access::Or { .. }
        );
        // A sort and the key for the router need the documents, whatever is returned.
        let key_output = matches!(recipe.output, Output::Key) && !candidate.needs_sort;
        let keys_suffice = (keys_wanted || key_output && !recipe.sort_key) && filter.is_none();
        let mut skip = recipe.skip;
        let reads = candidate.covered.is_some() || !keys_suffice;
        if skip > 0 && !fetched && !candidate.needs_sort && filter.is_none() && reads {
            root = Stage::Skip(Box::new(Skip::new(root, std::mem::take(&mut skip))));
        }
        if let Some(keys) = &candidate.covered {
            // The rows of a clustered index are documents already.
            if !candidate.clustered() {
                root = Stage::Cover(Box::new(Cover::new(root, keys.clone())));
            }
        } else if !fetched && !keys_suffice {
            root = Stage::Fetch(Box::new(Fetch::new(root, filter, recipe.want_info)));
        }
        if candidate.needs_sort
            && let Some((spec, source)) = &recipe.sort
        {
            root = sorted(recipe, &candidate.access, root, spec, source);
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
            // With returnKey the key is all that is returned.
            show_record_id: recipe.show_record_id && !matches!(recipe.output, Output::Key),
            sort_key: recipe.sort_key,
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
    pub(crate) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Runs a trial: at most `works` steps, or until `rows` rows are buffered.
    ///
    /// # Errors
    /// Those of [`Exec::next_row`].
    pub(crate) fn trial(&mut self, op: &Arc<OpContext>, works: u64, rows: usize) -> Result<()> {
        self.cx.run_by(op);
        let end = self.cx.works + works;
        while !self.eof && self.buffered.len() < rows && self.cx.works < end {
            self.cx.budget = self.cx.budget.max(1).min((end - self.cx.works) as i64);
            match self.root.next(&mut self.cx)? {
                Step::Row(row) => self.buffered.push_back(row),
                // The keys and documents examined are booked only if the plan wins, so they are not
                // flushed here.
                Step::Pause => {
                    op.check()?;
                    self.cx.budget = BUDGET;
                }
                Step::Eof => self.eof = true,
            }
        }
        Ok(())
    }

    /// The number of rows that a trial has buffered.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered.len()
    }

    /// True if the plan has come to its end.
    pub(crate) fn at_eof(&self) -> bool {
        self.eof
    }

    /// Books the keys and documents examined with the operation.
    pub(crate) fn flush(&mut self, op: &OpContext) {
        let (keys, docs) = self.flushed;
        op.counters
            .keys_examined
            .fetch_add(self.cx.keys - keys, Relaxed);
        op.counters
            .docs_examined
            .fetch_add(self.cx.docs - docs, Relaxed);
        self.flushed = (self.cx.keys, self.cx.docs);
    }

    /// Called when the plan has lost its trial. What it examined is booked with no operation, as in
    /// MongoDB.
    pub(crate) fn lose(&mut self) {
        self.cx.op = None;
        self.save();
    }

    /// Announces that this plan finds the operation's documents. What it did is reported when the
    /// plan ends or its cursor idles.
    pub(crate) fn announce(&mut self, op: &Arc<OpContext>) {
        self.announced = true;
        self.cx.run_by(op);
        announce(op, &self.candidate, self.named(), &self.how);
    }

    /// The same for a plan below a stage that reports what both of them did.
    pub(crate) fn announce_below(&self, op: &OpContext) {
        announce(op, &self.candidate, self.named(), &self.how);
    }

    /// True if the plan counts the keys of one range and does nothing else: MongoDB's COUNT_SCAN.
    pub(crate) fn counts_keys(&self) -> bool {
        match &self.root {
            Stage::IxScan(s) => s.counts_keys(),
            _ => false,
        }
    }

    /// The name of the plan's index scan, if it is not IXSCAN.
    fn named(&self) -> Option<&'static str> {
        self.counts_keys().then_some("COUNT_SCAN")
    }

    /// Books what the plan has done with the operation that runs it.
    fn settle(&mut self) {
        let Some(op) = self.cx.op.clone() else {
            return;
        };
        self.flush(&op);
        if self.announced && op.observed() {
            // A getMore is another operation than the one that opened the cursor, so the plan is
            // announced to it too.
            announce(&op, &self.candidate, self.named(), &self.how);
            op.set_exec_stats(|| self.explain(true));
        }
    }

    /// The next row after the skip and within the limit.
    ///
    /// # Errors
    /// Damaged data, the errors of `$expr`, the sort's memory limit, the interruption of `op`.
    pub(crate) fn next_row(&mut self, op: &Arc<OpContext>) -> Result<Option<Row>> {
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
                            // Documents that are inserted later are visible only in a later
                            // snapshot.
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

    /// True if a tailable scan can never give anything, because the collection was empty.
    pub(crate) fn tail_is_dead(&self) -> bool {
        matches!(&self.root, Stage::CollScan(s) if s.saw_nothing())
    }

    /// True if the limit has been reached.
    pub(crate) fn limit_reached(&self) -> bool {
        self.limit.is_some_and(|l| self.returned >= l)
    }

    /// Brings a row of an earlier snapshot up to date. Returns false if it no longer matches.
    fn renew(&mut self, row: &mut Row) -> Result<bool> {
        let keeps = matches!(
            self.candidate.access,
            Access::Near(_) | Access::Text(_) | Access::Eof
        );
        // A sort's rows stay as the sort has read them, and the rows of a count have no document.
        if keeps || self.candidate.needs_sort || row.doc.is_empty() {
            return Ok(true);
        }
        self.read_again(row)
    }

    /// Fetches the row's document again. Returns false if it was deleted or has changed so that it
    /// does not match.
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
            // The row now has the stored document in place of the one made from the key.
            row.key.clear();
        }
        Ok(true)
    }

    /// Takes back the row that was given last, because there was no room for it. Its document is
    /// dropped and fetched when the row is given again. Returns false if the plan cannot do that,
    /// because it cannot read the document again.
    pub(crate) fn take_back(&mut self, mut row: Row) -> bool {
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

    /// Releases the snapshot. The next row is looked for after the last one.
    pub(crate) fn save(&mut self) {
        self.settle();
        self.stale = self.buffered.len();
        self.root.save();
        self.cx.release();
    }

    /// Appends the row in the form that the query asks for, with one copy from the storage's bytes.
    ///
    /// # Errors
    /// The errors of the projection.
    pub(crate) fn emit(&self, row: &Row, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        match &self.output {
            Output::Whole => out.extend_from_slice(Doc::new(&row.doc).as_bytes()),
            // The document was made from the key to be exactly this projection's result.
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
        if self.sort_key {
            let mut d = DocBuf::from_bytes_trusted(out.split_off(start));
            append_key(Doc::new(&row.doc), &mut d)?;
            out.extend_from_slice(d.as_bytes());
        }
        Ok(())
    }

    /// Appends the key by which the row was found, or an empty document if no index gave it.
    fn emit_key(&self, row: &Row, out: &mut Vec<u8>) {
        if matches!(self.candidate.access, Access::IdHack(_)) {
            let mut d = DocBuf::new();
            d.append_some("_id", Doc::new(&row.doc).get("_id"));
            out.extend_from_slice(d.as_bytes());
        } else if row.bits.is_empty() || matches!(self.candidate.access, Access::Near(_)) {
            // A row of $near has its distance in place of a key.
            out.extend_from_slice(Doc::EMPTY.as_bytes());
        } else {
            out.extend_from_slice(Doc::new(&row.bits).as_bytes());
        }
    }

    /// True if `emit` appends the stored document unchanged.
    pub(crate) fn emits_whole(&self) -> bool {
        matches!(self.output, Output::Whole) && !self.show_record_id && !self.sort_key
    }

    /// The plan's tree as explain shows it, with the stages for skip, projection and limit.
    pub(crate) fn explain(&self, exec: bool) -> DocBuf {
        if let Some(d) = self.explain_express(exec.then_some(self.returned), None) {
            return d;
        }
        let mut d = self.root.explain(exec);
        if let Access::Or { rooted: true, .. } = &self.candidate.access {
            d = wrap("SUBPLAN", exec, self.root.stats(), |_| {}, d);
        }
        if self.skip > 0 && !self.keys_only {
            let skip = self.skip as i64;
            let by = |d: &mut DocBuf| {
                d.append("skipAmount", skip);
            };
            d = wrap("SKIP", exec, self.stats_above(), by, d);
        }
        d = self.explain_output(exec, d);
        let point = matches!(self.candidate.access, Access::IdHack(_));
        if let Some(limit) = self.limit
            && !self.keys_only
            && !self.candidate.needs_sort
            && !point
        {
            d = wrap(
                "LIMIT",
                exec,
                self.stats_above(),
                |d| {
                    d.append("limitAmount", limit as i64);
                },
                d,
            );
        }
        d
    }

    /// The figures of the stages above the root.
    fn stats_above(&self) -> Stats {
        let mut s = self.root.stats();
        s.works = s.advanced.max(self.returned);
        s.advanced = self.returned;
        s.eof = self.eof || self.limit_reached();
        s
    }

    /// Puts the stage that gives the results their form above `below`, if there is one.
    fn explain_output(&self, exec: bool, below: DocBuf) -> DocBuf {
        let covered = self.candidate.covered.is_some();
        let projection = |name: &str, source: &DocBuf, below| {
            let by = |d: &mut DocBuf| {
                d.append("transformBy", source);
            };
            wrap(name, exec, self.stats_above(), by, below)
        };
        match &self.output {
            Output::Whole => {
                let Some(needs) = self.needs.as_ref().filter(|_| covered) else {
                    return below;
                };
                let mut source = DocBuf::new();
                for path in needs.iter() {
                    source.append(path, 1);
                }
                if !needs.iter().any(|p| p == "_id") {
                    source.append("_id", 0);
                }
                projection("PROJECTION_COVERED", &source, below)
            }
            Output::Projected { source, kind, .. } => {
                let name = match kind {
                    ProjectionKind::Simple if covered => "PROJECTION_COVERED",
                    ProjectionKind::Simple => "PROJECTION_SIMPLE",
                    ProjectionKind::Default => "PROJECTION_DEFAULT",
                };
                projection(name, source, below)
            }
            Output::Key => wrap("RETURN_KEY", exec, self.stats_above(), |_| {}, below),
        }
    }

    /// The stage of an express plan, under its own name or as the stage `write`. With `returned`,
    /// the figures of what it did are included. `None` for other plans.
    pub(crate) fn explain_express(
        &self,
        returned: Option<u64>,
        write: Option<&str>,
    ) -> Option<DocBuf> {
        let mut d = stage_doc(&self.candidate, write)?;
        if let Some(returned) = returned {
            d.append("keysExamined", self.cx.keys as i64);
            d.append("docsExamined", self.cx.docs as i64);
            d.append("nReturned", returned as i64);
        }
        Some(d)
    }

    /// The figures of the top stage.
    pub(crate) fn stats(&self) -> Stats {
        self.root.stats()
    }

    /// The number of rows given so far.
    pub(crate) fn returned(&self) -> u64 {
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
    /// A reader that needs a single row never asks for the end, at which the figures would be
    /// booked. So they are booked here.
    fn drop(&mut self) {
        self.settle();
    }
}

/// An index scan whose rows have what the recipe's output needs.
fn ix_scan(recipe: &Recipe, access: &Arc<IndexAccess>, limits: Option<SortLimits>) -> IxScan {
    IxScan::new(access.clone(), limits).giving_keys(matches!(recipe.output, Output::Key))
}

/// An index scan, with a fetch above it if the documents have to be matched.
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

/// The stage of an OR. The planner limits how deep they nest, and so this recursion.
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
        // The documents that the other branches need are read above the OR, so this branch gives
        // only records.
        Access::Text(a) => Stage::Text(Box::new(TextMatch::new(a.clone(), recipe, Give::Records))),
        _ => Stage::nothing(),
    }
}

/// The stage that reads what `access` names, below all others.
fn lowest(recipe: &Recipe, access: &Access, filter: Option<&Filter>, keys_wanted: bool) -> Stage {
    match access {
        Access::Eof => Stage::Eof(Stats::default()),
        Access::CollScan { backward } => Stage::CollScan(Box::new(CollScan::new(
            filter.cloned(),
            *backward,
            recipe.want_info,
            recipe.tailable,
        ))),
        Access::IdHack(id) => Stage::IdHack(Box::new(IdHack::new(id.clone()))),
        Access::Index(access) => {
            let limits = Some(recipe.sort_limits.clone());
            Stage::IxScan(Box::new(ix_scan(recipe, access, limits)))
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
        Access::SortMerge(scans) => merge(recipe, scans),
        Access::Or { branches, .. } => or(recipe, branches),
    }
}

/// Sorts the rows of `below`, of which the first that the request needs are kept.
fn sorted(
    recipe: &Recipe,
    access: &Access,
    below: Stage,
    spec: &SortSpec,
    source: &DocBuf,
) -> Stage {
    let limit = recipe
        .limit
        .and_then(|l| usize::try_from(l.saturating_add(recipe.skip)).ok());
    let sort = Stage::Sort(Box::new(Sort::new(
        below,
        spec.clone(),
        source.clone(),
        limit,
        recipe.sort_limits.clone(),
    )));
    match access {
        Access::Text(access) if Load::can(access, spec) => {
            Stage::Load(Box::new(Load::new(sort, access.clone())))
        }
        _ => sort,
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
        // The merge itself drops a document that an input finds twice.
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

/// The row's document with its metadata, for readers that want bytes.
///
/// # Errors
/// Those of [`Exec::emit`].
pub(crate) fn into_bytes(exec: &Exec, row: Row) -> Result<Bytes> {
    if exec.emits_whole() {
        return Ok(row.doc);
    }
    let mut out = Vec::new();
    exec.emit(&row, &mut out)?;
    carry(Doc::new(&row.doc), &mut out);
    Ok(Bytes::from(out))
}
