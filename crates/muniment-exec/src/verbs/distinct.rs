//! The `distinct` command. If an index fits, only one key per distinct value is read.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::access::{Access, Candidate, IndexAccess};
use crate::plan::candidate::{candidates, unbounded};
use crate::plan::hint::Hint;
use crate::plan::query::{Query, Told};
use crate::plan::ranges::Checked;
use crate::plan::shape::of_command;
use crate::plan::text::{bind_text, refuse_text};
use crate::run::announce::{How, announce};
use crate::run::choose::{Asked, Choice};
use crate::run::exec::Exec;
use crate::run::recipe::Recipe;
use crate::run::wrap;
use crate::run::{Stats, still_there};
use crate::source::Source;
use crate::verbs::head::Head;
use crate::verbs::planning::{is_filtered, plan, query};
use crate::view::Resolved;
use muniment_query::filter::Node;
use muniment_query::running::Work;
use muniment_query::{Clocks, Filter, Interrupt};
use muniment_storage::{Collection, Direction, IndexEntry};
use muniment_value::path::{Path, visit};
use muniment_value::{
    ArrayBuf, Collation, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, keyenc,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The name of the stage that jumps from value to value.
const DISTINCT_SCAN: &str = "DISTINCT_SCAN";

/// The largest reply in bytes: it has to fit into one document.
const MAX_REPLY: usize = 16 << 20;

/// MongoDB's prefix for an error that the plan raises.
const FAILED: &str = "Executor error during distinct command :: caused by :: ";

fn plan_failed(e: Error) -> Error {
    e.context(FAILED)
}

/// The fields of a `distinct` command.
#[derive(Clone, Debug)]
pub struct DistinctRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// The dotted path.
    pub key: &'a str,
    /// `query`.
    pub filter: Doc<'a>,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// The command's `let`; empty for none.
    pub let_: Doc<'a>,
    /// How strings compare; `None` means by the collection's collation.
    pub collation: Option<Collation>,
}

impl DistinctRequest<'_> {
    /// The part of the request that all queries have.
    pub(crate) fn head(&self) -> Head<'_> {
        Head {
            namespace: self.namespace,
            filter: self.filter,
            hint: self.hint,
            let_: self.let_,
            collation: self.collation.as_ref(),
        }
    }
}

/// Implements [`Database::distinct`].
pub(crate) fn distinct(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &DistinctRequest<'_>,
) -> Result<ArrayBuf> {
    let (source, ctx) = request.head().resolve(engine, op)?;
    let ctx = ctx.with_clocks(Clocks::None);
    let filter = Filter::parse_query(request.filter, &ctx)?;
    let Source::Collection(collection) = source else {
        return match source.as_view(&engine.store, request.namespace)? {
            Some(view) => distinct_view(engine, op, &view, request),
            None => refuse_text(request.namespace, &filter).map(|()| ArrayBuf::new()),
        };
    };
    let filter = bind_text(&collection, &filter)?;
    let path = Path::new(request.key);
    let mut found = DistinctValues::new(&ctx.collation);
    if !is_filtered(engine, &collection, &filter, Doc::EMPTY, Doc::EMPTY)
        && let Some(scan) = distinct_scan(&collection, request, &filter, op.work())?
    {
        announce(op, &scan.candidate, Some(DISTINCT_SCAN), &How::default());
        scan.candidate.note_use();
        let keys = scan
            .run(op, engine, &collection, &path, &mut found)
            .map_err(plan_failed)?;
        let values = found.sorted();
        op.set_exec_stats(|| {
            let recipe = engine.recipe(&collection, &filter);
            let values = values.as_doc().count() as u64;
            scan.explain(
                &recipe,
                request.key,
                Some(scan.ran(values, keys, Duration::ZERO)),
            )
        });
        return Ok(values);
    }
    let choice = plan_distinct(engine, op, &collection, request, &filter, false);
    let mut exec = choice.map_err(|e| e.executing_context(FAILED))?.exec;
    exec.announce(op);
    while let Some(row) = exec.next_row(op).map_err(plan_failed)? {
        found
            .add_path(Doc::new(&row.doc), &path)
            .map_err(plan_failed)?;
    }
    Ok(found.sorted())
}

/// The aggregation stages that select the documents of this distinct, for a view.
pub(crate) fn distinct_stages(r: &DistinctRequest<'_>) -> ArrayBuf {
    r.head().stages(Doc::EMPTY, 0, 0)
}

pub(crate) fn distinct_view(
    engine: &Database,
    op: &Arc<OpContext>,
    view: &Resolved,
    r: &DistinctRequest<'_>,
) -> Result<ArrayBuf> {
    let stages = distinct_stages(r);
    let mut cursor = r.head().on_view(engine, op, view, &stages, None)?;
    let path = Path::new(r.key);
    let mut found = DistinctValues::new(r.collation.as_ref().unwrap_or(&view.collation));
    while let Some(d) = cursor.next_doc(op)? {
        op.check()?;
        found.add_path(Doc::new(&d), &path)?;
    }
    Ok(found.sorted())
}

/// Plans a distinct that cannot jump from value to value. If an index covers it, the plan reads
/// keys only.
pub(crate) fn plan_distinct(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    request: &DistinctRequest<'_>,
    filter: &Filter,
    explain: bool,
) -> Result<Choice> {
    let needs: Arc<[String]> = Arc::new([request.key.to_string()]);
    let query = Query {
        hint: request.hint,
        needs: Some(&needs),
        ..query(engine, collection, filter, Told::default())
    };
    let recipe = Recipe {
        needs: Some(needs.clone()),
        ..engine.recipe(collection, filter)
    };
    plan(
        engine,
        op,
        &query,
        &recipe,
        || Asked {
            shape: of_command(filter, "distinct ") + request.key,
            filter: Some(request.filter),
        },
        explain,
    )
}

/// DISTINCT_SCAN: an index scan that jumps from each value to the next.
pub(crate) struct DistinctScan {
    /// The index scan, whose bounds answer the whole filter.
    pub candidate: Arc<Candidate>,
    access: Arc<IndexAccess>,
    /// The place of the distinct field in the index.
    field: usize,
}

/// The scan that answers a distinct without reading every key, if there is one. Its index has to
/// hold the field without arrays, to bound every field before it to one value, and to answer the
/// filter at least as well as any other plan does.
///
/// # Errors
/// Those of [`candidates`].
pub(crate) fn distinct_scan(
    collection: &Collection,
    request: &DistinctRequest<'_>,
    filter: &Filter,
    work: Work<'_>,
) -> Result<Option<DistinctScan>> {
    let query = Query {
        hint: request.hint,
        ..Query::of(filter)
    };
    let everything = matches!(filter.root(), Node::True);
    let mut all = candidates(collection, &query, work)?;
    let best = all.iter().map(|c| c.rank).min().unwrap_or(usize::MAX);
    if request.hint.is_none() {
        // To a filter, an index without bounds is no better than a collection scan; a jump over its
        // keys may still be.
        all.extend(unbounded(collection, &query));
    }
    let scans = all.into_iter().filter_map(|candidate| {
        let Access::Index(access) = candidate.access.clone() else {
            return None;
        };
        let bound = &access.bound;
        let field = bound
            .info
            .fields()
            .iter()
            .position(|(p, _)| p.as_str() == request.key)?;
        let usable = candidate.filter.is_none()
            && access.key_filter.is_none()
            && !bound.info.clustered
            && bound.info.holds_value(field)
            && (0..field).all(|i| bound.single_point(i))
            && (everything || candidate.rank <= best);
        usable.then(|| DistinctScan {
            access,
            field,
            candidate: Arc::new(candidate),
        })
    });
    Ok(scans.min_by_key(|s| (s.candidate.rank, s.access.bound.fields.len())))
}

impl DistinctScan {
    /// The scan's figures, and the keys that it read, after it gave `values` values and read `keys`
    /// keys.
    pub(crate) fn ran(&self, values: u64, keys: u64, time: Duration) -> (Stats, u64) {
        let stats = Stats {
            works: keys.max(values),
            advanced: values,
            eof: true,
            time,
            ..Stats::default()
        };
        (stats, keys)
    }

    /// The stages as explain shows them. `ran` has the figures and the number of keys if the scan
    /// has run.
    pub(crate) fn explain(&self, recipe: &Recipe, key: &str, ran: Option<(Stats, u64)>) -> DocBuf {
        let recipe = Recipe {
            keys_only: true,
            ..recipe.clone()
        };
        let plan = Exec::build(&recipe, self.candidate.clone(), None).explain(false);
        let mut scan = doc! { "stage": DISTINCT_SCAN };
        if let Some((stats, _)) = &ran {
            stats.append(&mut scan);
        }
        for e in plan.as_doc().iter().filter(|e| e.name() != "stage") {
            scan.append_elem(e);
        }
        if let Some((_, keys)) = &ran {
            scan.append("keysExamined", *keys as i64);
        }
        let mut value = doc! { "_id": 0 };
        value.append(key, 1);
        let by = |d: &mut DocBuf| {
            d.append("transformBy", &value);
        };
        let stats = ran.map(|(stats, _)| stats);
        wrap(
            "PROJECTION_COVERED",
            stats.is_some(),
            stats.unwrap_or_default(),
            by,
            scan,
        )
    }

    /// Reads one key per value: after each key it jumps past all that begin with the same values up
    /// to the distinct field. Returns how many keys were read.
    fn run(
        &self,
        op: &OpContext,
        engine: &Database,
        collection: &Collection,
        path: &Path,
        found: &mut DistinctValues,
    ) -> Result<u64> {
        let index = &self.access.bound.info.index;
        let compiled = self.access.ranges();
        let snapshot = op.view(&engine.store, collection)?;
        still_there(snapshot.timestamp(), collection, [index])?;
        let mut steps = 0_u64;
        for range in (0..compiled.len()).filter_map(|n| compiled.get(n)) {
            let mut cursor = snapshot.entries(collection, index, &range, Direction::Forward);
            while let Some(e) = cursor.next(op)? {
                steps += 1;
                op.counters.keys_examined.fetch_add(1, Relaxed);
                if steps.is_multiple_of(64) {
                    op.check()?;
                }
                match compiled.check.as_ref().map(|c| c.check(&e.key)) {
                    None => {}
                    Some(checked) => match checked? {
                        Checked::Yes => {}
                        Checked::End => break,
                        Checked::SeekTo(key) => {
                            cursor.seek(&key);
                            continue;
                        }
                    },
                }
                let (value, len) = self.value(&e)?;
                if value.as_value().is_nullish() {
                    // A missing field has the same key as null, so the document has to be read to
                    // tell the two apart.
                    if !found.has(Value::Null)
                        && let Some(doc) = snapshot.get(collection, &e.record_key)?
                    {
                        op.counters.docs_examined.fetch_add(1, Relaxed);
                        found.add_path(Doc::new(&doc), path)?;
                    }
                    if !found.has(Value::Null) {
                        continue;
                    }
                } else {
                    found.add(value.as_value())?;
                }
                match keyenc::prefix_end(e.key.get(..len).unwrap_or_default()) {
                    Some(end) => cursor.seek(&end),
                    None => break,
                }
            }
        }
        Ok(steps)
    }

    /// The value of the distinct field in an index entry, and the length of the key up to its end.
    fn value(&self, e: &IndexEntry) -> Result<(ValueBuf, usize)> {
        let mut bits: &[u8] = &e.type_bits;
        let mut rest: &[u8] = &e.key;
        let mut value = ValueBuf::new(Value::Null);
        let fields = self.access.bound.info.fields();
        for (_, descending) in fields.iter().take(self.field + 1) {
            (value, rest) = keyenc::decode(rest, *descending, &mut bits)?;
        }
        Ok((value, e.key.len() - rest.len()))
    }
}

/// Distinct values in the order they were found.
pub struct DistinctValues {
    seen: HashSet<Vec<u8>>,
    pub(crate) values: ArrayBuf,
    key: Vec<u8>,
    collation: Collation,
}

impl DistinctValues {
    /// No values yet. `collation` decides which strings are the same value.
    pub fn new(collation: &Collation) -> DistinctValues {
        DistinctValues {
            seen: HashSet::new(),
            values: ArrayBuf::new(),
            key: Vec::new(),
            collation: collation.clone(),
        }
    }

    /// The values in canonical order.
    pub fn sorted(&self) -> ArrayBuf {
        let mut values: Vec<Value<'_>> = self.values.as_doc().values().collect();
        values.sort_by(|a, b| self.collation.cmp(*a, *b));
        values.into_iter().collect()
    }

    fn has(&mut self, value: Value<'_>) -> bool {
        self.key.clear();
        self.collation.encode(value, false, &mut self.key);
        self.seen.contains(&self.key)
    }

    fn add(&mut self, value: Value<'_>) -> Result<()> {
        if !self.has(value) {
            self.seen.insert(self.key.clone());
            self.values.push(value);
            if self.values.as_doc().byte_len() > MAX_REPLY {
                return Err(Error::location(17217, "distinct too big, 16mb cap"));
            }
        }
        Ok(())
    }

    /// Adds the values of a document at a path; those of an array one by one.
    ///
    /// # Errors
    /// 17217 for more than fit into a reply.
    pub fn add_path(&mut self, doc: Doc<'_>, path: &Path) -> Result<()> {
        let mut result = Ok(());
        visit(doc, path.parts(), &mut |value, _| {
            result = match value {
                None => Ok(()),
                Some(Value::Array(a)) => a.values().try_for_each(|v| self.add(v)),
                Some(v) => self.add(v),
            };
            result.is_err()
        });
        result
    }
}
