//! `$merge`: writes documents into a collection, depending on what is there already.
//!
//! Documents are collected in batches. Each document of a batch is written by itself, and the first
//! error is raised after the whole batch, as MongoDB's unordered writes do.

use super::batch::Batch;
use super::bulk::{Statement, Target};
use super::insert::InsertOptions;
use crate::context::query_context;
use crate::database::Database;
use crate::operation::OpContext;
use crate::run::current::CurrentOp;
use crate::source::Source;
use crate::verbs::aggregate::AggregateRequest;
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
    /// True if documents are identified by `_id` alone, or by the shard key and `_id`.
    by_id: bool,
    /// True if the unique index on the `on` fields is sparse, so that it does not hold documents
    /// without them.
    sparse: bool,
    batch: Batch,
}

impl MergeWriter {
    /// Opens the target. With `by_key`, a router has chosen the fields of the shard key and `_id` to identify documents,
    /// for which there is no index.
    ///
    /// # Errors
    /// Those of [`muniment_query::stage::host::Host::merge`].
    pub(crate) fn new(
        link: Link,
        spec: &MergeSpec,
        ctx: &QueryContext,
        by_key: bool,
    ) -> Result<MergeWriter> {
        let namespace = format!("{}.{}", spec.db, spec.collection);
        let target = Source::now(&link.engine.store, &namespace)?;
        let held = target.stored().map(|c| &**c);
        link.op.get().check_placement(&namespace, held)?;
        target.refuse_view_like(&namespace)?;
        let sparse = !by_key && check_unique(&target, spec, &ctx.collation)?;
        let on = match spec.on.as_slice() {
            [] => vec![Path::new("_id")],
            on => on.to_vec(),
        };
        Ok(MergeWriter {
            by_id: by_key || matches!(on.as_slice(), [p] if p.as_str() == "_id"),
            on,
            link,
            spec: spec.clone(),
            ctx: ctx.clone(),
            namespace,
            sparse,
            batch: Batch::new(BATCH_BYTES),
        })
    }

    /// A filter for the target document with the same values in the `on` fields, which were checked.
    fn identity(&self, doc: Doc<'_>) -> Filter {
        let nodes = self.on.iter().map(|path| Node::Field {
            path: path.clone(),
            pred: Pred::Eq(ValueBuf::new(path.get_exact(doc).unwrap_or(Value::Null))),
        });
        let mut nodes: Vec<Node> = nodes.collect();
        let root = match nodes.len() {
            1 => nodes.swap_remove(0),
            _ => Node::And(nodes),
        };
        Filter::from_root(root, &self.ctx.collation)
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
        let first = self.write_all(&docs).into_iter().next();
        first.map_or(Ok(()), |(_, e)| Err(e))
    }

    /// Writes documents. Returns those that were not written by their places, with the errors; the first one counts.
    fn write_all(&self, docs: &[Bytes]) -> Vec<(usize, Error)> {
        if self.spec.when_matched == WhenMatched::Fail {
            return self.insert(docs);
        }
        if let WhenMatched::Pipeline(stages) = &self.spec.when_matched {
            return self.update_by_pipeline(docs, stages.as_doc());
        }
        let all = || docs.iter().cloned().enumerate();
        // Documents that are not there yet are inserted together, which spares each a commit of its
        // own.
        let collection = self.link.engine.store.collection(&self.namespace);
        let appends = self.by_id
            && self.spec.when_not_matched == WhenNotMatched::Insert
            && collection
                .as_ref()
                .is_none_or(|c| c.finds_by_id() && *c.collation() == self.ctx.collation);
        if !appends {
            return self.upsert(&all().collect::<Vec<_>>());
        }
        let (mut inserts, mut places) = (Vec::new(), Vec::new());
        let mut updates = Vec::new();
        for (place, d) in all() {
            match self.is_new(collection.as_ref(), Doc::new(&d)) {
                Err(e) => return vec![(place, e)],
                Ok(false) => updates.push((place, d)),
                Ok(true) => {
                    // An update with operators would set the fields in the order of their names, and an
                    // insert has to store the same.
                    let replaces = self.spec.when_matched == WhenMatched::Replace;
                    inserts.push(if replaces { d } else { by_name(Doc::new(&d)) });
                    places.push(place);
                }
            }
        }
        if let Some((at, e)) = self.insert(&inserts).into_iter().next() {
            let rest = places.into_iter().zip(inserts).skip(at);
            if e.code() != Code::DuplicateKey {
                // Nothing after it was tried.
                let rest = rest.map(|(place, _)| place);
                let left = rest.chain(updates.iter().map(|(place, _)| *place));
                return left.map(|place| (place, e.clone())).collect();
            }
            // The `_id` is in the batch twice, or another operation inserted it meanwhile.
            updates.extend(rest);
        }
        self.upsert(&updates)
    }

    /// Inserts the documents. Returns the errors with the places of their documents: all of them if documents that
    /// exist are errors, otherwise the first one, after which nothing was tried.
    fn insert(&self, docs: &[Bytes]) -> Vec<(usize, Error)> {
        if docs.is_empty() {
            return Vec::new();
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
            Ok(o) => o.errors.into_iter().map(|e| (e.index, e.error)).collect(),
            Err(e) => (0..docs.len()).map(|place| (place, e.clone())).collect(),
        }
    }

    /// Writes documents that stand at these places of the batch.
    fn upsert(&self, docs: &[(usize, Bytes)]) -> Vec<(usize, Error)> {
        let op = self.link.op.get();
        let upsert = self.spec.when_not_matched == WhenNotMatched::Insert;
        let mut statements = docs.iter().map(|(_, bytes)| {
            Ok(Merging {
                writer: self,
                doc: Doc::new(bytes),
                upsert,
            })
        });
        let engine = &self.link.engine;
        let outcome = run_statements(engine, &op, &self.namespace, &mut statements, false);
        let place = |i: usize| docs.get(i).map_or(i, |(place, _)| *place);
        let done = outcome.n + outcome.errors.len() as u64;
        let errors = outcome.errors.into_iter();
        let mut failed: Vec<_> = errors
            .map(|e| (place(e.index), immutable(e.error)))
            .collect();
        if self.spec.when_not_matched == WhenNotMatched::Fail && done < docs.len() as u64 {
            // Which of them it was is not known.
            failed.push((docs.len(), not_found()));
        }
        failed
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

    fn update_by_pipeline(&self, docs: &[Bytes], stages: Doc<'_>) -> Vec<(usize, Error)> {
        let one = |(place, bytes)| {
            let done = self.link.op.check();
            let done = done.and_then(|()| self.update_one(bytes, stages));
            done.err().map(|e| (place, e))
        };
        docs.iter().enumerate().filter_map(one).collect()
    }

    fn update_one(&self, bytes: &Bytes, stages: Doc<'_>) -> Result<()> {
        let doc = Doc::new(bytes);
        let op = self.link.op.get();
        let ctx = self.variables(doc)?;
        let update = Update::parse(Value::Array(stages), Doc::EMPTY, &ctx)?;
        let write = self.statement(self.identity(doc), &update, false);
        let engine = &self.link.engine;
        let mut done = Done::default();
        perform(engine, &op, &self.namespace, &write, &mut done).map_err(immutable)?;
        if done.matched > 0 {
            return Ok(());
        }
        match self.spec.when_not_matched {
            WhenNotMatched::Discard => Ok(()),
            WhenNotMatched::Fail => Err(not_found()),
            WhenNotMatched::Insert => match self.insert(std::slice::from_ref(bytes)).pop() {
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

/// Documents that a router has a shard merge into a collection.
#[derive(Debug)]
pub struct MergeRequest<'a> {
    /// The operand of `$merge`.
    pub operand: Doc<'a>,
    /// The target's database.
    pub db: &'a str,
    /// Documents are identified by the shard key and `_id`, which the router has chosen itself.
    pub by_key: bool,
    /// The documents.
    pub docs: Vec<Doc<'a>>,
    /// The command's `let`.
    pub let_: Doc<'a>,
    /// How strings compare.
    pub collation: Collation,
    /// `$$NOW`, if the command began earlier.
    pub now_ms: Option<i64>,
    /// The target's validator is skipped.
    pub bypass_document_validation: bool,
}

/// What became of a [`MergeRequest`].
#[derive(Debug, Default)]
pub struct Merged {
    /// Documents that were not written, by their places, with the errors; the first one counts.
    pub failed: Vec<(usize, Error)>,
    /// Documents without the fields that identify them are refused, since the index does not hold them.
    pub sparse: bool,
}

/// Implements [`Database::merge`].
pub(crate) fn merge(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &MergeRequest<'_>,
) -> Result<Merged> {
    let current = CurrentOp::new(op);
    let mut ctx = query_context(op, request.let_, request.collation.clone())?;
    ctx.now_ms = request.now_ms.unwrap_or(ctx.now_ms);
    ctx.db = request.db.to_string();
    let spec = MergeSpec::parse(Value::Document(request.operand), &ctx)?;
    let link = AggregateRequest {
        bypass_document_validation: request.bypass_document_validation,
        ..AggregateRequest::new(request.db, Doc::EMPTY, request.let_)
    };
    let link = Link::new(engine, &current, &link)?;
    let writer = MergeWriter::new(link, &spec, &ctx, request.by_key)?;
    let docs = request.docs.iter();
    let docs: Vec<Bytes> = docs.map(|d| Bytes::copy_from_slice(d.as_bytes())).collect();
    for d in &docs {
        check_on(Doc::new(d), &writer.on, writer.sparse)?;
    }
    Ok(Merged {
        failed: match docs.is_empty() {
            true => Vec::new(),
            false => writer.write_all(&docs),
        },
        sparse: writer.sparse,
    })
}

impl Writer for MergeWriter {
    fn write(&mut self, doc: Bytes) -> Result<()> {
        let doc = with_id(doc, &self.on);
        // An error in the document itself ends the stage at once instead of after the batch.
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

/// The document, with an `_id` of its own if `on` names that and it has none.
pub fn with_id(doc: Bytes, on: &[Path]) -> Bytes {
    if Doc::new(&doc).get("_id").is_some() || !on.iter().any(|p| p.as_str() == "_id") {
        return doc;
    }
    let mut with_id = doc! { "_id": Value::ObjectId(new_object_id()) };
    with_id.append_all(Doc::new(&doc));
    Bytes::from(with_id.into_bytes())
}

/// Checks the fields that identify a document. With `sparse`, they have to be there.
///
/// # Errors
/// 51185 for an array, 51132 for a path through one, or for a field that has to be there.
pub fn check_on(doc: Doc<'_>, on: &[Path], sparse: bool) -> Result<()> {
    for path in on {
        let field = path.as_str();
        let wrong = |code, why: &str| {
            let why = format!("$merge write error: 'on' field '{field}' cannot {why}");
            Err(Error::location(code, why))
        };
        match path.get_exact(doc).unwrap_or(Value::Null) {
            Value::Array(_) => return wrong(51185, "be an array"),
            v if v.is_nullish() && sparse => {
                let why = "be missing, null or undefined if supporting index is sparse";
                return wrong(51132, why);
            }
            _ => {}
        }
        if path_crosses_array(doc, path) {
            return wrong(51132, "go through an array");
        }
    }
    Ok(())
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
        let filter = self.writer.identity(doc);
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
