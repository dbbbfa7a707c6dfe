//! `collMod`: changes a collection's options, one of its indexes, or a view.

use super::clustering::{change_expiry, change_time_series};
use super::coll_mod_index::{self, IndexChange};
use super::collection_options::{
    ACTIONS, LEVELS, MAX_CAPPED, capped_size, check_images, check_validator, images, images_doc,
    word,
};
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::{Action, Actions};
use muniment_exec::{Source, View, check_view_pipeline, refuse_generated};
use muniment_storage::{Collection, CollectionOptions};
use muniment_value::args::{Field, Types, opt};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, number};

const FIELDS: &[Field] = &[
    opt("index", Types::OBJECT),
    opt("validator", Types::OBJECT),
    opt("validationLevel", Types::STRING),
    opt("validationAction", Types::STRING),
    opt("viewOn", Types::STRING),
    opt("pipeline", Types::ARRAY),
    opt("cappedSize", Types::NUMBER),
    opt("cappedMax", Types::NUMBER),
    opt("expireAfterSeconds", Types::ANY),
    opt("timeseries", Types::OBJECT),
    // Taken without effect: buckets are made of measurements when they are read, and may always mix types.
    opt("timeseriesBucketsMayHaveMixedSchemaData", Types::SAFE_BOOL),
    opt("changeStreamPreAndPostImages", Types::OBJECT),
    opt("dryRun", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "collMod",
    doc: "Changes a collection's options, an index or a view",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::coll_mod),
        Needs::Of(needs),
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let body = asks.request.body;
    let (on, pipeline) = (body.get_str("viewOn"), body.get_array("pipeline"));
    let is_of_view = on.is_some() || pipeline.is_some();
    // A view is read with its own name's right, so to change it takes the right to read what it shows. If the
    // collection is not named, it is one of the database.
    asks.may_here(Actions::of(&[Action::CollMod]))
        && (!is_of_view
            || asks.may_run_pipeline(asks.request.db, on, pipeline.unwrap_or(Doc::EMPTY)))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidOptions, message)
}

/// The checked changes of a collection's options: a field and its new value, or `None` to remove it.
type Changes = Vec<(&'static str, Option<ValueBuf>)>;

/// Field names of the options in the order in which they are shown.
const ORDER: &[&str] = &[
    "capped",
    "size",
    "max",
    "autoIndexId",
    "temp",
    "changeStreamPreAndPostImages",
    "storageEngine",
    "indexOptionDefaults",
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "expireAfterSeconds",
    "clusteredIndex",
    "timeseries",
];

/// mongorestore sets this where a bucket has fields of several types.
const MIXED: &str = "timeseriesBucketsMayHaveMixedSchemaData";

fn changed(old: &CollectionOptions, changes: &Changes) -> CollectionOptions {
    let mut new = old.clone();
    let mut d = DocBuf::new();
    let was = old.document.as_doc();
    let mut put = |name: &str| match changes.iter().find(|(n, _)| *n == name) {
        Some((_, v)) => {
            d.append_some(name, v.as_ref());
        }
        None => {
            d.append_some(name, was.get(name));
        }
    };
    ORDER.iter().for_each(|n| put(n));
    was.iter()
        .map(|e| e.name())
        .filter(|n| !ORDER.contains(n))
        .for_each(&mut put);
    new.document = d;
    new
}

/// Answers a `collMod` on a generated collection, which is made when it is read and so has no option that
/// could be changed. A command that changes nothing is no error.
///
/// # Errors
/// 72 InvalidOptions for a validator, as for every collection of "config" and "local"; 73 InvalidNamespace
/// for any other option.
fn change_generated(cx: &CommandContext<'_>) -> Result<()> {
    if let Some(v) = cx.args.doc("validator") {
        check_validator(cx.db(), cx.collection_name(), v, cx.op)?;
    }
    if cx.args.get("changeStreamPreAndPostImages").is_some() {
        check_images(cx.db())?;
    }
    match FIELDS.iter().any(|f| cx.args.get(f.name).is_some()) {
        true => refuse_generated(cx.ns()),
        false => Ok(()),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let a = &cx.args;
    let size = a.int("cappedSize", 1, MAX_CAPPED)?;
    let max = a.int("cappedMax", i64::MIN, i64::from(i32::MAX))?;
    let level = word(a, "collMod", "validationLevel", LEVELS)?;
    let action = word(a, "collMod", "validationAction", ACTIONS)?;
    let images = a
        .doc("changeStreamPreAndPostImages")
        .map(images)
        .transpose()?;
    let dry_run = a.bool("dryRun", false);
    let index = a.doc("index").map(IndexChange::parse).transpose()?;
    let collection = match cx.source()? {
        Source::Generated(_) => return change_generated(cx),
        Source::View(view) => return change_view(cx, &view),
        // Buckets share the options of their time series.
        Source::Collection(collection) | Source::Buckets(collection) => collection,
        Source::Absent => {
            return Err(Error::new(
                Code::NamespaceNotFound,
                format!("ns does not exist: {}", cx.ns()),
            ));
        }
    };
    check_options_of_others(cx, &collection)?;
    if dry_run && index.as_ref().is_none_or(|i| i.unique.is_none()) {
        return Err(invalid(
            "collMod can only be run in dryRun mode with an index conversion to unique",
        ));
    }
    let mut changes: Changes = Vec::new();
    let mut options = (*collection.options()).clone();
    limit_changes(&collection, (size, max), &mut options, &mut changes)?;
    if let Some(v) = cx.args.doc("validator") {
        check_validator(cx.db(), cx.collection_name(), v, cx.op)?;
        let new = (!v.is_empty()).then(|| ValueBuf::new(v));
        changes.push(("validator", new));
    }
    if let Some(w) = level {
        changes.push(("validationLevel", Some(ValueBuf::new(w))));
    }
    if let Some(w) = action {
        changes.push(("validationAction", Some(ValueBuf::new(w))));
    }
    if let Some(on) = images {
        check_images(cx.db())?;
        let shown = on.then(|| ValueBuf::new(images_doc(true)));
        changes.push(("changeStreamPreAndPostImages", shown));
    }
    cluster_changes(cx, &collection, &mut changes)?;
    // The index is looked up before anything is changed.
    let plan = match index {
        Some(change) => Some(coll_mod_index::plan(cx, &collection, change)?),
        None => None,
    };
    if !changes.is_empty() {
        apply(cx, &collection, &options, &changes)?;
    } else if plan.is_none() {
        note_no_change(cx, &collection, &options)?;
    }
    if let Some(plan) = plan {
        plan.run(cx, &collection, dry_run)?;
    }
    Ok(())
}

/// Refuses options of views, and of time series if the collection is none.
///
/// # Errors
/// 72 InvalidOptions.
fn check_options_of_others(cx: &CommandContext<'_>, collection: &Collection) -> Result<()> {
    for option in ["viewOn", "pipeline"] {
        if cx.args.get(option).is_some() {
            return Err(invalid(format!(
                "'{option}' option only supported on a view"
            )));
        }
    }
    match cx.args.get(MIXED) {
        Some(_) if !collection.is_time_series() => Err(invalid(format!(
            "option only supported on a time-series collection: {MIXED}"
        ))),
        Some(v) if !v.truthy() => Err(invalid(format!("Cannot set {MIXED} to false"))),
        _ => Ok(()),
    }
}

/// The new `size` and `max` of a capped collection. MongoDB accepts them for a time-series collection as well,
/// without effect.
///
/// # Errors
/// 72 InvalidOptions if the collection is not capped.
fn limit_changes(
    collection: &Collection,
    (size, max): (Option<i64>, Option<i64>),
    options: &mut CollectionOptions,
    changes: &mut Changes,
) -> Result<()> {
    if (size.is_none() && max.is_none()) || collection.is_time_series() {
        return Ok(());
    }
    if !collection.is_capped() {
        return Err(invalid("isn't a capped collection"));
    }
    if let Some(n) = size {
        let n = capped_size(n);
        options.capped_size = Some(n);
        changes.push(("size", Some(ValueBuf::new(number::narrow(n as i64)))));
    }
    if let Some(n) = max {
        options.capped_max = (n > 0).then_some(n as u64);
        let shown = (n > 0).then(|| ValueBuf::new(number::narrow(n)));
        changes.push(("max", shown));
    }
    Ok(())
}

/// Writes the event of a command that changes nothing, which change streams get all the same, as in MongoDB.
fn note_no_change(
    cx: &mut CommandContext<'_>,
    collection: &Collection,
    options: &CollectionOptions,
) -> Result<()> {
    let uuid = collection.uuid();
    let note = doc! {
        "op": "c",
        "ns": format!("{}.$cmd", cx.db()),
        "ui": Value::Binary { subtype: 4, bytes: &uuid },
        "o": doc! { "collMod": cx.collection_name() },
        "o2": doc! { "collectionOptions_old": &options.document },
    };
    let commit = cx.engine().store.note(note.as_doc(), &**cx.op)?;
    cx.note_commit(Some(commit));
    Ok(())
}

/// `expireAfterSeconds` and `timeseries`.
fn cluster_changes(
    cx: &CommandContext<'_>,
    collection: &Collection,
    changes: &mut Changes,
) -> Result<()> {
    let old = collection.options();
    let old = old.document.as_doc();
    if let Some(d) = cx.args.doc("timeseries") {
        let Some(was) = old.get_doc("timeseries") else {
            return Err(invalid(
                "option only supported on a time-series collection: timeseries",
            ));
        };
        let new = change_time_series(d, was)?;
        changes.push(("timeseries", Some(ValueBuf::new(new))));
    }
    if collection.is_time_series() {
        for option in [
            "validator",
            "validationLevel",
            "validationAction",
            "changeStreamPreAndPostImages",
        ] {
            if cx.args.get(option).is_some() {
                return Err(invalid(format!(
                    "option not supported on a time-series collection: {option}"
                )));
            }
        }
    }
    if let Some(v) = cx.args.get("expireAfterSeconds") {
        let new = change_expiry(v)?;
        if old.get("timeseries").is_none() && old.get("clusteredIndex").is_none() {
            return Err(invalid(
                "'expireAfterSeconds' option is only supported on collections clustered by _id",
            ));
        }
        changes.push(("expireAfterSeconds", new.map(ValueBuf::new)));
    }
    Ok(())
}

fn apply(
    cx: &mut CommandContext<'_>,
    collection: &std::sync::Arc<Collection>,
    options: &CollectionOptions,
    changes: &Changes,
) -> Result<()> {
    let new = changed(options, changes);
    if new != *collection.options() {
        cx.engine()
            .store
            .modify_options(collection, new, &**cx.op)?;
        cx.note_write();
        if collection.is_time_series() {
            cx.engine().settle_series(cx.op, cx.db())?;
        }
    }
    Ok(())
}

/// Refuses an invalid name of the collection below a view. The length of the name does not matter.
///
/// # Errors
/// 2 BadValue when empty, 73 InvalidNamespace.
fn check_view_on(db: &str, on: &str) -> Result<()> {
    if on.is_empty() {
        return Err(Error::bad_value("'viewOn' option cannot be empty"));
    }
    if on.starts_with(['$', '.']) || on.contains('\0') {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid namespace specified '{db}.{on}'"),
        ));
    }
    Ok(())
}

fn change_view(cx: &mut CommandContext<'_>, old: &View) -> Result<()> {
    for f in FIELDS {
        let fits = matches!(f.name, "viewOn" | "pipeline" | "dryRun");
        if !fits && cx.args.get(f.name).is_some() {
            return Err(invalid(format!(
                "option not supported on a view: {}",
                f.name
            )));
        }
    }
    let on = cx.args.str("viewOn");
    if let Some(on) = on {
        check_view_on(cx.db(), on)?;
    }
    let pipeline = match cx.args.array("pipeline") {
        Some(p) => {
            let member = cx.server.replica_set.is_some();
            Some(check_view_pipeline(cx.ns(), p, member, cx.op)?)
        }
        None => None,
    };
    let same_pipeline = |p: &ArrayBuf| p.as_doc().as_bytes() == old.pipeline.as_doc().as_bytes();
    let unchanged = on.is_none_or(|on| on == old.on) && pipeline.as_ref().is_none_or(same_pipeline);
    if !unchanged {
        cx.engine().modify_view(cx.op, cx.ns(), on, pipeline)?;
        cx.note_write();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::doc;

    #[test]
    fn options_keep_their_order() {
        let old = CollectionOptions {
            document: doc! { "capped": true, "size": 256, "collation": doc! { "locale": "de" } },
            ..CollectionOptions::default()
        };
        let new = changed(
            &old,
            &vec![
                ("validator", Some(ValueBuf::new(doc! { "a": 1 }))),
                ("size", Some(ValueBuf::new(512))),
                ("max", None),
            ],
        );
        assert_eq!(
            new.document,
            doc! {
                "capped": true, "size": 512, "validator": doc! { "a": 1 },
                "collation": doc! { "locale": "de" },
            }
        );
    }

    #[test]
    fn names_below_a_view() {
        for (name, code) in [
            ("a.b", 0),
            (" ", 0),
            ("", 2),
            ("$x", 73),
            (".x", 73),
            ("a\0", 73),
        ] {
            let got = check_view_on("d", name).map_or_else(|e| e.code().0, |()| 0);
            assert_eq!(got, code, "{name:?}");
        }
    }
}
