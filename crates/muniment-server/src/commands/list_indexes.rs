//! `listIndexes`.

use super::cursor_reply::answer;
use crate::args::{Field, Types, idle, opt};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Target};
use muniment_value::{Code, Error, Result};

const FIELDS: &[Field] = &[
    opt("cursor", Types::OBJECT),
    idle(
        "includeBuildUUIDs",
        Types::SAFE_BOOL,
        "builds that run are not listed",
    ),
    idle(
        "includeIndexBuildInfo",
        Types::SAFE_BOOL,
        "builds that run are not listed",
    ),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listIndexes",
    doc: "The indexes of a collection",
    target: Target::Collection,
    read_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.engine().refuse_view(cx.ns())?;
    let collection = cx.engine().store.collection(cx.ns()).ok_or_else(|| {
        Error::new(
            Code::NamespaceNotFound,
            format!("ns does not exist: {}", cx.ns()),
        )
    })?;
    let all = collection
        .indexes()
        .iter()
        .map(|i| i.spec().document.clone())
        .collect();
    answer(cx, cx.ns(), all)
}
