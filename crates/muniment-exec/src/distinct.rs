//! `distinct`.

use crate::engine::Engine;
use crate::find::Hint;
use crate::operation::OpContext;
use crate::plan::candidate::{Query, candidates};
use crate::plan::choose::{Choice, choose};
use crate::plan::shape::shape;
use muniment_query::filter::Node;
use muniment_query::{Filter, Interrupt};
use muniment_storage::{Collection, Direction, Index, KeyRange};
use muniment_value::path::{Path, visit};
use muniment_value::{ArrayBuf, Doc, Error, Result, Value, keyenc};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The largest reply.
const MAX_REPLY: usize = 16 << 20;

/// A `distinct` command's content.
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
}

impl Engine {
    /// The distinct values at a path: arrays count by their elements, numbers by value.
    ///
    /// # Errors
    /// As [`Engine::find`]; 17217 "distinct too big, 16mb cap".
    pub fn distinct(&self, op: &Arc<OpContext>, request: &DistinctRequest<'_>) -> Result<ArrayBuf> {
        let ctx = self.query_context(request.let_)?;
        let filter = Arc::new(Filter::parse(request.filter, &ctx)?);
        let Some(collection) = self.store.collection(request.namespace) else {
            return Ok(ArrayBuf::new());
        };
        let path = Path::new(request.key);
        let mut found = Found::default();
        if let Some((index, descending)) = distinct_index(&collection, request, &filter) {
            scan_index(op, self, &collection, &index, descending, &path, &mut found)?;
            return Ok(found.values);
        }
        let mut exec = self
            .plan_distinct(op, &collection, request, &filter, false)?
            .exec;
        op.set_plan_summary(exec.candidate());
        while let Some(row) = exec.next_row(op)? {
            found.add_path(Doc::new(&row.doc), &path)?;
        }
        Ok(found.values)
    }

    /// The plan of a distinct that no index answers alone.
    pub(crate) fn plan_distinct(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        request: &DistinctRequest<'_>,
        filter: &Arc<Filter>,
        explain: bool,
    ) -> Result<Choice> {
        let query = Query {
            hint: request.hint,
            ..Query::of(filter)
        };
        choose(
            &self.plans,
            op,
            &self.recipe(collection, filter),
            candidates(collection, &query)?,
            || shape(filter.root(), Doc::EMPTY, Doc::EMPTY),
            explain,
        )
    }
}

/// The index whose keys are the values: for a distinct of everything, on a path without arrays.
pub(crate) fn distinct_index(
    collection: &Collection,
    request: &DistinctRequest<'_>,
    filter: &Filter,
) -> Option<(Arc<Index>, bool)> {
    if !matches!(filter.root(), Node::True) || request.hint.is_some() {
        return None;
    }
    collection
        .indexes()
        .iter()
        .find(|i| {
            let spec = i.spec();
            !spec.hidden
                && !spec.sparse
                && spec.partial_filter.is_none()
                && !i.is_id()
                && i.kind().is_none()
                && !i.is_multikey()
                && i.multikey_paths().iter().all(|&m| m == 0)
                && i.fields()
                    .first()
                    .is_some_and(|(p, _)| p.as_str() == request.key)
        })
        .and_then(|i| i.fields().first().map(|(_, d)| (i.clone(), *d)))
}

/// One key per value: reads a key, then jumps behind all that begin with it.
fn scan_index(
    op: &OpContext,
    engine: &Engine,
    collection: &Collection,
    index: &Index,
    descending: bool,
    path: &Path,
    found: &mut Found,
) -> Result<()> {
    index.note_use();
    let snapshot = engine.store.snapshot();
    let mut cursor = snapshot.entries(collection, index, &KeyRange::all(), Direction::Forward);
    let mut steps = 0_u32;
    while let Some(e) = cursor.next()? {
        steps += 1;
        op.counters.keys_examined.fetch_add(1, Relaxed);
        if steps.is_multiple_of(256) {
            op.check()?;
        }
        let mut bits: &[u8] = &e.type_bits;
        let (value, rest) = keyenc::decode(&e.key, descending, &mut bits)?;
        if value.as_value().is_nullish() {
            // A missing field has a null key too: the document tells.
            if found.has(Value::Null) {
                continue;
            }
            if let Some(doc) = snapshot.get(collection, &e.record_key)? {
                found.add_path(Doc::new(&doc), path)?;
            }
            continue;
        }
        found.add(value.as_value())?;
        let prefix = e.key.get(..e.key.len() - rest.len()).unwrap_or_default();
        match keyenc::prefix_end(prefix) {
            Some(end) => cursor.seek(&end),
            None => break,
        }
    }
    Ok(())
}

/// Distinct values in the order they were found.
#[derive(Default)]
struct Found {
    seen: HashSet<Vec<u8>>,
    values: ArrayBuf,
    key: Vec<u8>,
}

impl Found {
    fn has(&mut self, value: Value<'_>) -> bool {
        self.key.clear();
        keyenc::encode(value, false, &mut self.key);
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

    fn add_path(&mut self, doc: Doc<'_>, path: &Path) -> Result<()> {
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
