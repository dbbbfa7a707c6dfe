//! `listCollections`.

use super::cursor_reply::{answer, filter};
use crate::auth::{self, Asks, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target as On;
use muniment_exec::{BUCKETS, OPLOG, View, buckets_options, generated_in};
use muniment_storage::{Collection, IndexSpec};
use muniment_value::args::{Field, Types, opt};
use muniment_value::{DocBuf, Result, Value, doc};
use std::sync::Arc;

const FIELDS: &[Field] = &[
    opt("filter", Types::OBJECT),
    opt("nameOnly", Types::BOOL),
    opt("cursor", Types::OBJECT),
    opt("authorizedCollections", Types::BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listCollections",
    doc: "The collections of a database",
    kind: Kind::Diagnostic,
    api_v1: true,
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Readable),
    ..CommandSpec::new(
        Routed::By(crate::router::databases::list_collections),
        Needs::Of(needs),
    )
};

/// A user may see the names of those collections on which the user may do anything.
fn needs(asks: &Asks<'_>) -> bool {
    (asks.has("nameOnly") && asks.has("authorizedCollections"))
        || asks.may_one(On::Database(asks.request.db), Action::ListCollections)
}

/// The documents that the filter is applied to and that the reply shows; with `name_only`, only names and
/// kinds.
pub(crate) fn entries(c: &Collection, name: &str, name_only: bool) -> Vec<DocBuf> {
    let uuid = c.uuid();
    let info = doc! { "readOnly": false, "uuid": Value::Binary { subtype: 4, bytes: &uuid } };
    let options = c.options();
    let kind = if c.is_time_series() {
        "timeseries"
    } else {
        "collection"
    };
    let mut d = doc! { "name": name, "type": kind };
    if !name_only {
        d.append("options", &options.document);
        if c.is_time_series() {
            d.append("info", doc! { "readOnly": false });
        } else {
            d.append("info", &info);
            // The profiler's collection has no index on `_id`.
            if c.finds_by_id() && !c.is_keyed_by_id() {
                d.append("idIndex", IndexSpec::id_index(c.collation()).document);
            }
        }
    }
    if !c.is_time_series() {
        return vec![d];
    }
    let buckets = format!("{BUCKETS}{name}");
    let mut b = doc! { "name": buckets.as_str(), "type": "collection" };
    if !name_only {
        b.append("options", buckets_options(options.document.as_doc()));
        b.append("info", info);
    }
    vec![d, b]
}

/// The entry of a generated collection, which is made when it is read. The oplog is shown as capped.
fn generated_entry(cx: &CommandContext<'_>, name: &str, name_only: bool) -> Result<DocBuf> {
    let mut d = doc! { "name": name, "type": "collection" };
    if !name_only {
        let mut options = DocBuf::new();
        if format!("{}.{name}", cx.db()) == OPLOG {
            let (_, max) = cx.engine().store.log_size()?;
            options.append("capped", true);
            options.append("size", max as i64);
            options.append("autoIndexId", false);
        }
        d.append("options", options);
        d.append("info", doc! { "readOnly": false });
    }
    Ok(d)
}

fn view_entry(view: &View, name: &str, name_only: bool) -> DocBuf {
    let mut d = doc! { "name": name, "type": "view" };
    if !name_only {
        let mut options = doc! { "viewOn": view.on.as_str(), "pipeline": &view.pipeline };
        options.append_some("collation", view.collation.spec());
        d.append("options", options);
        d.append("info", doc! { "readOnly": true });
    }
    d
}

/// The collections that may match the filter. Drivers ask for a collection by its name before they create it;
/// in that case only that one is looked up.
fn asked_for(cx: &CommandContext<'_>) -> Vec<Arc<Collection>> {
    let (store, db) = (&cx.engine().store, cx.db());
    match cx.args.doc("filter").and_then(|f| f.get_str("name")) {
        // A bucket collection is listed because its time series is stored.
        Some(name) => {
            let stored = name.strip_prefix(BUCKETS);
            let names = [name].into_iter().chain(stored);
            names
                .filter_map(|name| store.collection(&format!("{db}.{name}")))
                .collect()
        }
        None => store.collections(db),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = filter(cx.args.doc("filter"), cx.op)?;
    let name_only = cx.args.bool("nameOnly", false);
    let mut all = Vec::new();
    let user = auth::user_of(cx.server, cx.local);
    let user = user.filter(|_| cx.args.bool("authorizedCollections", false));
    let mut add = |d: DocBuf| -> Result<()> {
        let on = On::Collection(cx.db(), d.as_doc().get_str("name").unwrap_or_default());
        if user
            .as_ref()
            .is_some_and(|u| !u.privileges.allows_any_of(&on, &Actions::ALL))
        {
            return Ok(());
        }
        match &wanted {
            Some(f) if !f.matches(d.as_doc(), cx.op.work())? => {}
            _ => all.push(d),
        }
        Ok(())
    };
    for c in asked_for(cx) {
        if c.is_pending() {
            continue;
        }
        let ns = c.namespace();
        if let Some((_, name)) = ns.split_once('.') {
            for d in entries(&c, name, name_only) {
                add(d)?;
            }
        }
    }
    // Drivers of replica sets look for the oplog. A MongoDB standalone has none of these collections.
    if cx.server.replica_set.is_some() {
        for name in generated_in(cx.db()) {
            add(generated_entry(cx, name, name_only)?)?;
        }
    }
    for (ns, view) in cx.engine().views(cx.db(), &**cx.op)? {
        if let Some((_, name)) = ns.split_once('.') {
            add(view_entry(&view, name, name_only))?;
        }
    }
    let ns = format!("{}.$cmd.listCollections", cx.db());
    answer(cx, &ns, all)
}
