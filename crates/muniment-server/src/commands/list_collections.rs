//! `listCollections`.

use super::cursor_reply::{answer, filter};
use crate::args::{Field, Types, idle, opt};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use muniment_exec::View;
use muniment_storage::{Collection, IndexSpec};
use muniment_value::{DocBuf, Result, Value, doc};

const FIELDS: &[Field] = &[
    opt("filter", Types::OBJECT),
    opt("nameOnly", Types::SAFE_BOOL),
    opt("cursor", Types::OBJECT),
    idle(
        "authorizedCollections",
        Types::SAFE_BOOL,
        "everybody may see everything",
    ),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listCollections",
    doc: "The collections of a database",
    kind: Kind::Diagnostic,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

/// A collection's entry.
pub(crate) fn entry(c: &Collection, name: &str, name_only: bool) -> DocBuf {
    let mut d = doc! { "name": name, "type": "collection" };
    if !name_only {
        d.append("options", &c.options().document);
        let uuid = c.uuid();
        d.append(
            "info",
            doc! { "readOnly": false, "uuid": Value::Binary { subtype: 4, bytes: &uuid } },
        );
        d.append("idIndex", IndexSpec::id_index().document);
    }
    d
}

fn view_entry(view: &View, name: &str, name_only: bool) -> DocBuf {
    let mut d = doc! { "name": name, "type": "view" };
    if !name_only {
        let mut options = doc! { "viewOn": view.on.as_str(), "pipeline": &view.pipeline };
        options.append_some("collation", view.collation.as_ref());
        d.append("options", options);
        d.append("info", doc! { "readOnly": true });
    }
    d
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = filter(cx.args.doc("filter"))?;
    let name_only = cx.args.bool("nameOnly", false);
    let mut all = Vec::new();
    for c in cx.engine().store.collections(cx.db()) {
        let ns = c.namespace();
        let Some((_, name)) = ns.split_once('.') else {
            continue;
        };
        // The filter sees the whole entry, also when only names are asked for.
        if let Some(f) = &wanted
            && !f.matches(entry(&c, name, false).as_doc())?
        {
            continue;
        }
        all.push(entry(&c, name, name_only));
    }
    for (ns, view) in cx.engine().views(cx.db())? {
        let Some((_, name)) = ns.split_once('.') else {
            continue;
        };
        if let Some(f) = &wanted
            && !f.matches(view_entry(&view, name, false).as_doc())?
        {
            continue;
        }
        all.push(view_entry(&view, name, name_only));
    }
    let ns = format!("{}.$cmd.listCollections", cx.db());
    answer(cx, &ns, all)
}
