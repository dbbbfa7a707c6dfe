//! `createIndexes`.

use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::Action;
use muniment_exec::{BUCKETS, CatalogChange, Source, TimeSeries};
use muniment_op::Interrupt;
use muniment_storage::{Collection, CollectionOptions, IndexSpec};
use muniment_value::args::{Field, Types, opt, req};
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, uuid_text};
use std::sync::Arc;

const FIELDS: &[Field] = &[
    req("indexes", Types::ARRAY),
    opt("ignoreUnknownIndexOptions", Types::SAFE_BOOL),
    opt("commitQuorum", Types::ANY),
];

/// The known options of an index; with `ignoreUnknownIndexOptions` all others are ignored.
const KNOWN: [&str; 28] = [
    "v",
    "key",
    "name",
    "ns",
    "unique",
    "sparse",
    "hidden",
    "prepareUnique",
    "background",
    "dropDups",
    "storageEngine",
    "originalSpec",
    "bucketSize",
    "_id",
    "expireAfterSeconds",
    "partialFilterExpression",
    "collation",
    "wildcardProjection",
    "weights",
    "default_language",
    "language_override",
    "textIndexVersion",
    "2dsphereIndexVersion",
    "coarsestIndexedLevel",
    "finestIndexedLevel",
    "bits",
    "min",
    "max",
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "createIndexes",
    doc: "Builds indexes",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    audits: Some(Audits::changes("createIndex", audit::new_index)),
    run,
    makes_collections: true,
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::create_indexes),
        Needs::collection(&[Action::CreateIndex]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    namespace::check_create(cx.db(), cx.collection_name())?;
    let source = cx.source()?;
    if let Source::Generated(_) = source {
        return Err(Error::new(
            Code::CannotCreateIndex,
            format!(
                "cannot have an index on {}: it is made when it is read",
                cx.ns()
            ),
        ));
    }
    let default = source.stored().map(|c| c.collation().clone());
    let buckets = source.buckets().cloned();
    let specs = parse(cx, &default.unwrap_or_default(), buckets.as_deref())?;
    check_commit_quorum(cx)?;
    let (collection, created_collection) = find_or_create(cx, buckets)?;
    for spec in &specs {
        super::time_series_index::check(collection.options().document.as_doc(), spec, cx.op)?;
    }
    let before = counted(&collection);
    let new = missing(&collection, specs, &**cx.op)?;
    let store = &cx.engine().store;
    if !new.is_empty() {
        let interrupt = &**cx.op;
        let noted = cx.op.is_audited().then(|| new.clone());
        // A command builds all of its indexes or none of them.
        let built = match cx.op.transaction() {
            Some(t) => store.create_indexes_in(t, &collection, new, interrupt),
            None => store.create_indexes(&collection, new, interrupt),
        };
        built.map_err(|e| build_failed(&collection, e))?;
        for spec in noted.into_iter().flatten() {
            cx.op.note_change(|| CatalogChange::CreatedIndex {
                namespace: collection.namespace(),
                name: spec.name,
                spec: spec.document,
            });
        }
    }
    if let Some(transaction) = cx.op.transaction() {
        transaction.knows_indexes(&collection);
    }
    // Indexes that another operation has built at the same time may not be on disk yet.
    store.wait_settled(&collection, &**cx.op)?;
    // A range that has moved meanwhile may have come to a shard that the router has not told of the index.
    match collection.is_time_series() {
        true => cx
            .op
            .check_placement(&collection.name(), Some(&collection))?,
        false => cx.op.check_placement(cx.ns(), Some(&collection))?,
    }
    let after = counted(&collection);
    if created_collection || after != before {
        cx.note_write();
    }
    let w = &mut cx.reply;
    w.field("numIndexesBefore", before as i32);
    w.field("numIndexesAfter", after as i32);
    w.field("createdCollectionAutomatically", created_collection);
    if after == before {
        w.field("note", "all indexes already exist");
    }
    Ok(())
}

fn check_commit_quorum(cx: &CommandContext<'_>) -> Result<()> {
    let Some(quorum) = cx.args.get("commitQuorum") else {
        return Ok(());
    };
    // A standalone has no members that could vote for the build.
    let Some(set) = &cx.server.replica_set else {
        return Err(Error::bad_value("Standalones can't specify commitQuorum"));
    };
    let (_, config) = set.initialized()?;
    config.check_commit_quorum(quorum)
}

/// The collection that the indexes are for, and whether this command created it.
///
/// # Errors
/// 20 IllegalOperation for buckets without a time series, 166 for a view; those of creating a collection.
fn find_or_create(
    cx: &CommandContext<'_>,
    buckets: Option<Arc<Collection>>,
) -> Result<(Arc<Collection>, bool)> {
    if let Some(buckets) = buckets {
        return Ok((buckets, false));
    }
    let engine = cx.engine();
    loop {
        if let Some(there) = engine.store.collection(cx.ns()) {
            return Ok((there, false));
        }
        if cx.collection_name().starts_with(BUCKETS) {
            return Err(super::create::no_series(cx.ns()));
        }
        cx.source()?.refuse_view(cx.ns())?;
        match engine.create_collection(cx.ns(), CollectionOptions::default(), cx.op) {
            // Another operation created the collection first, and may have dropped it since: look again.
            Err(e) if e.code() == Code::NamespaceExists => cx.op.check()?,
            created => return Ok((created?, true)),
        }
    }
}

/// Those of the indexes that the collection does not have.
///
/// # Errors
/// 68 IndexAlreadyExists if the command names one twice; those of [`conflict`].
fn missing(
    collection: &Collection,
    specs: Vec<IndexSpec>,
    operation: &dyn Interrupt,
) -> Result<Vec<IndexSpec>> {
    let mut there: Vec<Arc<IndexSpec>> = collection.indexes().iter().map(|i| i.spec()).collect();
    let mut new: Vec<IndexSpec> = Vec::new();
    for spec in specs {
        match conflict(&there, &spec, operation)? {
            true if new.iter().any(|n| n.name == spec.name) => {
                return Err(Error::new(
                    Code::IndexAlreadyExists,
                    format!("Identical index already exists: {}", spec.name),
                ));
            }
            true => {}
            false => {
                there.push(Arc::new(spec.clone()));
                new.push(spec);
            }
        }
    }
    Ok(new)
}

/// Adds to an error that a document caused: the index build failed, and on which collection.
fn build_failed(collection: &Collection, e: Error) -> Error {
    if !matches!(
        e.code(),
        Code::DuplicateKey | Code::CannotIndexParallelArrays
    ) {
        return e;
    }
    e.context(&format!(
        "Index build failed: {}: Collection {} ( {} ) :: caused by :: ",
        uuid_text(&super::random_uuid()),
        collection.namespace(),
        uuid_text(&collection.uuid())
    ))
}

/// How many indexes a collection has, without the index on `_id` of a clustered one.
pub(super) fn counted(collection: &Collection) -> usize {
    let not_counted = usize::from(collection.is_keyed_by_id());
    collection.indexes().len().saturating_sub(not_counted)
}

fn parse(
    cx: &CommandContext<'_>,
    default: &Collation,
    buckets: Option<&Collection>,
) -> Result<Vec<IndexSpec>> {
    let series = buckets.and_then(TimeSeries::of);
    let ignore_unknown = cx.args.bool("ignoreUnknownIndexOptions", false);
    let mut specs = Vec::new();
    for e in cx.args.array("indexes").into_iter().flatten() {
        let Some(d) = e.value().as_doc() else {
            return Err(Error::type_mismatch(format!(
                "BSON field 'createIndexes.indexes.{}' is the wrong type '{}', expected type \
                 'object'",
                e.name(),
                e.value().type_name()
            )));
        };
        let cleaned;
        let d = if ignore_unknown {
            cleaned = without_unknown(d);
            cleaned.as_doc()
        } else {
            d
        };
        let of_series;
        let d = match &series {
            // An index of a bucket collection is translated into one of the measurements.
            Some(s) => {
                of_series = s.index_of_series(d).ok_or_else(|| {
                    Error::new(
                        Code::CannotCreateIndex,
                        format!(
                            "No index of the measurements is the index {} of their buckets",
                            muniment_value::Value::Document(d).to_display()
                        ),
                    )
                })?;
                of_series.as_doc()
            }
            None => d,
        };
        let parsed = checked(cx, d, default).map_err(|e| {
            let spec = muniment_value::Value::Document(d).to_display();
            e.context(&format!("Error in specification {spec} :: caused by :: "))
        })?;
        specs.push(parsed);
    }
    if specs.is_empty() {
        return Err(Error::bad_value(
            "Must specify at least one index to create",
        ));
    }
    Ok(specs)
}

/// Parses and checks the specification of one index.
///
/// # Errors
/// Those of an invalid specification.
fn checked(cx: &CommandContext<'_>, d: Doc<'_>, default: &Collation) -> Result<IndexSpec> {
    let spec = IndexSpec::parse_for(d, default)?;
    spec.check_new(&**cx.op)?;
    if spec.name == "_id_" && spec.collation != *default {
        return Err(Error::bad_value(
            "The _id index must have the same collation as the collection",
        ));
    }
    if let Some(settings) = spec.kept.as_doc().get_doc("storageEngine") {
        super::collection_options::storage_engine(settings)?;
    }
    if spec.hidden && cx.collection_name().starts_with("system.") {
        return Err(Error::bad_value("can't hide index on system collection"));
    }
    Ok(spec)
}

fn without_unknown(d: Doc<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    for e in d.iter().filter(|e| KNOWN.contains(&e.name())) {
        out.append_elem(e);
    }
    out
}

/// True for two specifications of the same index, whatever their names.
///
/// # Errors
/// What stops `operation`.
fn same_signature(a: &IndexSpec, b: &IndexSpec, operation: &dyn Interrupt) -> Result<bool> {
    let same = a.key == b.key
        && a.unique == b.unique
        && a.sparse == b.sparse
        && a.collation == b.collation
        && a.options == b.options;
    Ok(same && a.same_partial_filter(b, operation)?)
}

/// True for two specifications with the same signature that also agree in all other options.
fn same_beside(a: &IndexSpec, b: &IndexSpec) -> bool {
    let (kept, other) = (a.kept.as_doc(), b.kept.as_doc());
    let same_kept = kept.count() == other.count()
        && kept.iter().all(|e| {
            let same = other.get_elem(e.name());
            same.is_some_and(|o| o.as_bytes() == e.as_bytes())
        });
    a.expire_after_seconds == b.expire_after_seconds && a.hidden == b.hidden && same_kept
}

/// Refuses a second text index on a collection. If both have the same key pattern, the error says that an
/// equivalent index exists.
///
/// # Errors
/// 67 CannotCreateIndex, 85 IndexOptionsConflict; what stops `operation`.
fn second_text(old: &IndexSpec, new: &IndexSpec, operation: &dyn Interrupt) -> Result<()> {
    let is_text = |s: &IndexSpec| s.key.as_doc().get_str("_fts").is_some();
    if !is_text(old) || !is_text(new) || same_signature(old, new, operation)? {
        return Ok(());
    }
    let show = |s: &IndexSpec| muniment_value::Value::Document(s.document.as_doc()).to_display();
    if old.key == new.key {
        return Err(Error::new(
            Code::IndexOptionsConflict,
            format!(
                "An equivalent index already exists with a different name and options. Requested \
                 index: {}, existing index: {}",
                show(new),
                show(old)
            ),
        ));
    }
    Err(Error::new(
        Code::CannotCreateIndex,
        format!(
            "only one text index per collection allowed, found existing text index \"{}\"",
            old.name
        ),
    ))
}

/// True if the index already exists.
///
/// # Errors
/// 85 IndexOptionsConflict, 86 IndexKeySpecsConflict; what stops `operation`.
fn conflict(there: &[Arc<IndexSpec>], new: &IndexSpec, operation: &dyn Interrupt) -> Result<bool> {
    let show = |s: &IndexSpec| muniment_value::Value::Document(s.document.as_doc()).to_display();
    for old in there {
        second_text(old, new, operation)?;
    }
    if let Some(old) = there.iter().find(|s| s.name == new.name) {
        if !same_signature(old, new, operation)? {
            return Err(Error::new(
                Code::IndexKeySpecsConflict,
                format!(
                    "An existing index has the same name as the requested index. When index \
                     names are not specified, they are auto generated and can cause conflicts. \
                     Please refer to our documentation. Requested index: {}, existing index: {}",
                    show(new),
                    show(old)
                ),
            ));
        }
        if !same_beside(old, new) {
            return Err(Error::new(
                Code::IndexOptionsConflict,
                format!(
                    "An equivalent index already exists with the same name but different \
                     options. Requested index: {}, existing index: {}",
                    show(new),
                    show(old)
                ),
            ));
        }
        return Ok(true);
    }
    for old in there {
        if !same_signature(old, new, operation)? {
            continue;
        }
        let message = if same_beside(old, new) {
            format!("Index already exists with a different name: {}", old.name)
        } else {
            format!(
                "An equivalent index already exists with a different name and options. Requested \
                 index: {}, existing index: {}",
                show(new),
                show(old)
            )
        };
        return Err(Error::new(Code::IndexOptionsConflict, message));
    }
    Ok(false)
}
