//! `$merge`: writes documents into a collection, depending on what is there already.
//!
//! Documents are collected in batches. Each document of a batch is written by itself, and the first
//! error is raised after the whole batch, as MongoDB's unordered writes do.

use super::batch::Batch;
use super::bulk::{Statement, Target};
use super::insert::InsertOptions;
use crate::operation::OpContext;
use crate::source::Source;
use crate::verbs::aggregate::link::Link;
use crate::verbs::write::bulk::run_statements;
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Done;
use crate::verbs::write::change::Write;
use crate::verbs::write::insert::insert_many;
use crate::verbs::write::perform::perform;
use bytes::Bytes;
use muniment_query::expr::arena::Arena;
use muniment_query::expr::{EvalContext, Expr};
use muniment_query::filter::{Node, Pred};
use muniment_query::stage::host::Writer;
use muniment_query::stage::merge::{MergeSpec, WhenMatched, WhenNotMatched};
use muniment_query::{Filter, Interrupt, MetaSet, QueryContext, Update};
use muniment_storage::Collection;
use muniment_value::path::Path;
use muniment_value::{
    Code, Collation, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, new_object_id,
};
use std::sync::Arc;

/// A batch is written when it reaches this many bytes.
const BATCH_BYTES: usize = 16 << 20;

pub(crate) struct MergeWriter {
    link: Link,
    spec: MergeSpec,
    ctx: QueryContext,
    namespace: String,
    on: Vec<Path>,
    /// True if documents are identified by `_id` alone.
    by_id: bool,
    /// True if the unique index on the `on` fields is sparse, so that it does not hold documents
    /// without them.
    sparse: bool,
    batch: Batch,
}

impl MergeWriter {
    pub(crate) fn new(link: Link, spec: &MergeSpec, ctx: &QueryContext) -> Result<MergeWriter> {
        let namespace = format!("{}.{}", spec.db, spec.collection);
        let target = Source::now(&link.engine.store, &namespace)?;
        let held = target.stored().map(|c| &**c);
        link.op.get().check_placement(&namespace, held)?;
        target.refuse_view_like(&namespace)?;
        let sparse = check_unique(&target, spec, &ctx.collation)?;
        let on = match spec.on.as_slice() {
            [] => vec![Path::new("_id")],
            on => on.to_vec(),
        };
        Ok(MergeWriter {
            by_id: matches!(on.as_slice(), [p] if p.as_str() == "_id"),
            on,
            link,
            spec: spec.clone(),
            ctx: ctx.clone(),
            namespace,
            sparse,
            batch: Batch::new(BATCH_BYTES),
        })
    }

    /// A filter for the target document with the same values in the `on` fields.
    fn identity(&self, doc: Doc<'_>) -> Result<Filter> {
        let mut nodes = Vec::with_capacity(self.on.len());
        for path in &self.on {
            let value = path.get_exact(doc).unwrap_or(Value::Null);
            match value {
                Value::Array(_) => {
                    return Err(Error::location(
                        51185,
                        format!(
                            "$merge write error: 'on' field '{}' cannot be an array",
                            path.as_str()
                        ),
                    ));
                }
                v if v.is_nullish() && self.sparse => {
                    return Err(Error::location(
                        51132,
                        format!(
                            "$merge write error: 'on' field '{}' cannot be missing, null or \
                             undefined if supporting index is sparse",
                            path.as_str()
                        ),
                    ));
                }
                _ => {}
            }
            if path_crosses_array(doc, path) {
                return Err(Error::location(
                    51132,
                    format!(
                        "$merge write error: 'on' field '{}' cannot go through an array",
                        path.as_str()
                    ),
                ));
            }
            nodes.push(Node::Field {
                path: path.clone(),
                pred: Pred::Eq(ValueBuf::new(value)),
            });
        }
        let root = match nodes.len() {
            1 => nodes.swap_remove(0),
            _ => Node::And(nodes),
        };
        Ok(Filter::from_root(root, &self.ctx.collation))
    }

    /// The pipeline's context for one new document: its `let` variables and `$$new`.
    fn variables(&self, new: Doc<'_>) -> Result<QueryContext> {
        let mut ctx = self.ctx.clone();
        let mut vars = DocBuf::new();
        ctx.missing.clear();
        let arena = Arena::new(self.ctx.task.work());
        let eval = EvalContext::new(new, &arena);
        for (name, expr) in &self.spec.let_ {
            // A variable whose expression gives no value stays undefined.
            if let Some(v) = Expr::eval(expr, &eval)? {
                vars.append(name, v);
            }
        }
        if vars.as_doc().get("new").is_none() {
            vars.append("new", new);
        }
        for e in self.ctx.variables.as_doc() {
            let own = e.name() == "new" || self.spec.let_.iter().any(|(n, _)| n == e.name());
            if !own {
                vars.append_elem(e);
            }
        }
        ctx.variables = vars;
        Ok(ctx)
    }

    /// True if the target has no document with this `_id` at the moment. Another operation may
    /// insert one right after.
    fn is_new(&self, collection: Option<&Arc<Collection>>, doc: Doc<'_>) -> Result<bool> {
        let Some(c) = collection else { return Ok(true) };
        let Some(id) = doc.get("_id") else {
            return Ok(true);
        };
        let snapshot = self.link.engine.store.snapshot();
        Ok(snapshot.find_by_id(c, id)?.is_none())
    }

    fn flush(&mut self) -> Result<()> {
        let docs = self.batch.take();
        if docs.is_empty() {
            return Ok(());
        }
        self.link.op.check()?;
        if self.spec.when_matched == WhenMatched::Fail {
            return self.insert(&docs).map_or(Ok(()), |(_, e)| Err(e));
        }
        if let WhenMatched::Pipeline(stages) = &self.spec.when_matched {
            return self.update_by_pipeline(&docs, stages.as_doc());
        }
        // Documents that are not there yet are inserted together, which spares each a commit of its
        // own.
        let collection = self.link.engine.store.collection(&self.namespace);
        let appends = self.by_id
            && self.spec.when_not_matched == WhenNotMatched::Insert
            && collection
                .as_ref()
                .is_none_or(|c| c.finds_by_id() && *c.collation() == self.ctx.collation);
        if !appends {
            return self.upsert(&docs);
        }
        let mut inserts = Vec::new();
        let mut updates = Vec::new();
        for d in docs {
            match self.is_new(collection.as_ref(), Doc::new(&d))? {
                true if self.spec.when_matched == WhenMatched::Replace => inserts.push(d),
                // An update with operators would set the fields in the order of their names, and an
                // insert has to store the same.
                true => inserts.push(by_name(Doc::new(&d))),
                false => updates.push(d),
            }
        }
        if let Some((at, e)) = self.insert(&inserts) {
            if e.code() != Code::DuplicateKey {
                return Err(e);
            }
            // The `_id` is in the batch twice, or another operation inserted it meanwhile.
            updates.extend(inserts.split_off(at));
        }
        self.upsert(&updates)
    }

    /// Inserts the documents. Returns the first error with the place of its document.
    fn insert(&self, docs: &[Bytes]) -> Option<(usize, Error)> {
        if docs.is_empty() {
            return None;
        }
        let outcome = insert_many(
            &self.link.engine,
            &self.link.op.get(),
            &self.namespace,
            &|| Box::new(docs.iter().map(|d| Doc::new(d))),
            InsertOptions {
                ordered: self.spec.when_matched != WhenMatched::Fail,
                bypass_document_validation: self.link.bypass_validation,
                // MongoDB fills in empty timestamps only for replacements and plain inserts.
                bypass_empty_ts_replacement: !matches!(
                    self.spec.when_matched,
                    WhenMatched::Replace | WhenMatched::Fail
                ),
                ..InsertOptions::default()
            },
        );
        match outcome {
            Ok(o) => o.errors.into_iter().next().map(|e| (e.index, e.error)),
            Err(e) => Some((0, e)),
        }
    }

    fn upsert(&self, docs: &[Bytes]) -> Result<()> {
        let op = self.link.op.get();
        let upsert = self.spec.when_not_matched == WhenNotMatched::Insert;
        let mut statements = docs.iter().map(|bytes| {
            Ok(Merging {
                writer: self,
                doc: Doc::new(bytes),
                upsert,
            })
        });
        let engine = &self.link.engine;
        let outcome = run_statements(engine, &op, &self.namespace, &mut statements, false);
        if let Some(e) = outcome.errors.into_iter().next() {
            return Err(immutable(e.error));
        }
        let fails = self.spec.when_not_matched == WhenNotMatched::Fail;
        if fails && outcome.n < docs.len() as u64 {
            return Err(not_found());
        }
        Ok(())
    }

    fn statement<'w>(&self, filter: Filter, update: &'w Update, upsert: bool) -> Write<'w> {
        Write {
            filter,
            source: None,
            sort: None,
            natural: None,
            hint: None,
            multi: false,
            metadata: MetaSet::NONE,
            returns_fields: false,
            turn: None,
            change: Change::Update {
                update,
                upsert,
                bypass_validation: self.link.bypass_validation,
            },
        }
    }

    fn update_by_pipeline(&self, docs: &[Bytes], stages: Doc<'_>) -> Result<()> {
        let op = self.link.op.get();
        let mut first = None;
        for bytes in docs {
            op.check()?;
            if let Err(e) = self.update_one(bytes, stages) {
                first.get_or_insert(e);
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn update_one(&self, bytes: &Bytes, stages: Doc<'_>) -> Result<()> {
        let doc = Doc::new(bytes);
        let op = self.link.op.get();
        let ctx = self.variables(doc)?;
        let update = Update::parse(Value::Array(stages), Doc::EMPTY, &ctx)?;
        let write = self.statement(self.identity(doc)?, &update, false);
        let engine = &self.link.engine;
        let mut done = Done::default();
        perform(engine, &op, &self.namespace, &write, &mut done).map_err(immutable)?;
        if done.matched > 0 {
            return Ok(());
        }
        match self.spec.when_not_matched {
            WhenNotMatched::Discard => Ok(()),
            WhenNotMatched::Fail => Err(not_found()),
            WhenNotMatched::Insert => match self.insert(std::slice::from_ref(bytes)) {
                None => Ok(()),
                Some((_, e)) if e.code() == Code::DuplicateKey => {
                    // Another operation inserted the document meanwhile, or another unique index
                    // refuses it. The update tells which.
                    perform(engine, &op, &self.namespace, &write, &mut done).map_err(immutable)?;
                    if done.matched > 0 { Ok(()) } else { Err(e) }
                }
                Some((_, e)) => Err(e),
            },
        }
    }
}

impl Writer for MergeWriter {
    fn write(&mut self, doc: Bytes) -> Result<()> {
        let doc = match Doc::new(&doc).get("_id") {
            None if self.on.iter().any(|p| p.as_str() == "_id") => {
                let mut with_id = doc! { "_id": Value::ObjectId(new_object_id()) };
                with_id.append_all(Doc::new(&doc));
                Bytes::from(with_id.into_bytes())
            }
            _ => doc,
        };
        // An error in the document itself ends the stage at once instead of after the batch.
        self.identity(Doc::new(&doc))?;
        match self.batch.push(doc) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()
    }
}

/// The document with its fields in the order of their names, `_id` first.
fn by_name(doc: Doc<'_>) -> Bytes {
    let mut fields: Vec<_> = doc.iter().collect();
    fields.sort_by_key(|e| (e.name() != "_id", e.name()));
    let mut out = DocBuf::new();
    for e in fields {
        out.append_elem(e);
    }
    Bytes::from(out.into_bytes())
}

/// A document of the batch in the form of an update statement.
struct Merging<'m> {
    writer: &'m MergeWriter,
    doc: Doc<'m>,
    upsert: bool,
}

impl Statement for Merging<'_> {
    fn with_write<R>(
        &self,
        _: &Arc<OpContext>,
        _: &Target<'_>,
        run: impl FnOnce(&Write<'_>) -> Result<R>,
    ) -> Result<R> {
        let doc = self.doc;
        let change = match self.writer.spec.when_matched {
            WhenMatched::Replace => doc.to_buf(),
            WhenMatched::KeepExisting => doc! { "$setOnInsert": doc },
            _ => doc! { "$set": doc },
        };
        let change = Value::Document(change.as_doc());
        let update = Update::parse(change, Doc::EMPTY, &self.writer.ctx)?;
        let filter = self.writer.identity(doc)?;
        run(&self.writer.statement(filter, &update, self.upsert))
    }
}

fn not_found() -> Error {
    Error::location(
        13113,
        "$merge could not find a matching document in the target collection for at least one \
         document in the source collection",
    )
}

/// Adds MongoDB's explanation to an error about a changed `_id`.
fn immutable(e: Error) -> Error {
    if e.code() == Code::ImmutableField {
        return e.context(
            "$merge failed to update the matching document, did you attempt to modify the _id or \
             the shard key? :: caused by :: ",
        );
    }
    e
}

fn path_crosses_array(doc: Doc<'_>, path: &Path) -> bool {
    let mut at = doc;
    for part in path.parts() {
        match at.get(part) {
            Some(Value::Document(d)) => at = d,
            Some(Value::Array(_)) => return true,
            _ => return false,
        }
    }
    false
}

/// Looks for the unique index on exactly the `on` fields; true when it is sparse.
fn check_unique(target: &Source, spec: &MergeSpec, collation: &Collation) -> Result<bool> {
    let mut wanted: Vec<&str> = spec.on.iter().map(Path::as_str).collect();
    wanted.sort_unstable();
    if wanted.is_empty() || wanted == ["_id"] {
        return Ok(false);
    }
    let missing = || {
        Error::location(
            51183,
            "Cannot find index to verify that join fields will be unique",
        )
    };
    let Source::Collection(collection) = target else {
        return Err(missing());
    };
    let mut sparse = None;
    for index in collection.indexes().iter() {
        let index_spec = index.spec();
        let plain = index_spec
            .key
            .as_doc()
            .iter()
            .all(|e| e.value().is_number());
        let mut fields: Vec<&str> = index.fields().iter().map(|(p, _)| p.as_str()).collect();
        fields.sort_unstable();
        if index.unique()
            && plain
            && index.collation() == collation
            && index.partial_filter().is_none()
            && fields == wanted
        {
            sparse = Some(sparse.unwrap_or(true) && index_spec.sparse);
        }
    }
    sparse.ok_or_else(missing)
}
