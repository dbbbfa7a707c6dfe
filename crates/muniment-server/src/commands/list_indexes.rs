//! `listIndexes`.

use super::cursor_reply::answer;
use crate::args::{Field, Types, idle, opt};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Target};
use muniment_storage::Collection;
use muniment_value::{Code, DocBuf, Error, Result};

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

/// The `_id` index of a clustered collection as it is listed.
fn clustered_id(collection: &Collection) -> Option<DocBuf> {
    let options = collection.options();
    let listed = options.document.as_doc().get_doc("clusteredIndex")?;
    let mut d = listed.to_buf();
    d.append("clustered", true);
    Some(d)
}

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
        .map(|i| match clustered_id(&collection).filter(|_| i.is_id()) {
            Some(clustered) => clustered,
            None => i.spec().document.clone(),
        })
        .collect();
    answer(cx, cx.ns(), all)
}
