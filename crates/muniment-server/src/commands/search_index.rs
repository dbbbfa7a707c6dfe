//! The shared parts of the commands on indexes of Atlas Search. As a MongoDB server without a search process
//! does, this one knows the commands and refuses them, after it has checked their arguments.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_exec::search_indexes_refused;
use muniment_value::args::{Types, check_type, missing_field, unknown_field};
use muniment_value::{Doc, Result, Value};

/// A command on search indexes.
pub(super) const REFUSED: CommandSpec = CommandSpec {
    doc: "Refused as by a server without a search process",
    kind: Kind::Ddl,
    target: Target::Collection,
    run,
    // Each command names its own.
    ..CommandSpec::new(Routed::Database, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    // Only createSearchIndexes has them.
    let indexes = cx.request.body.get_array("indexes").unwrap_or(Doc::EMPTY);
    for (i, v) in indexes.values().enumerate() {
        check(i, v)?;
    }
    Err(search_indexes_refused())
}

/// Checks one of the `indexes` of createSearchIndexes.
fn check(i: usize, v: Value<'_>) -> Result<()> {
    const PATH: &str = "createSearchIndexes.indexes";
    check_type(PATH, &i.to_string(), Types::OBJECT, v.ty())?;
    let index = v.as_doc().unwrap_or(Doc::EMPTY);
    for e in index {
        let types = match e.name() {
            "name" | "type" => Types::STRING,
            "definition" => Types::OBJECT,
            other => return Err(unknown_field(PATH, other)),
        };
        check_type(PATH, e.name(), types, e.value().ty())?;
    }
    match index.get("definition") {
        Some(_) => Ok(()),
        None => Err(missing_field(PATH, "definition")),
    }
}
