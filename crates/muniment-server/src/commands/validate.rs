//! `validate`.

use crate::args::{Field, Types, idle, opt, refused};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_value::{Code, Error, Result};

const FIELDS: &[Field] = &[
    opt("full", Types::SAFE_BOOL),
    opt("metadata", Types::SAFE_BOOL),
    idle(
        "background",
        Types::SAFE_BOOL,
        "a check never blocks anybody",
    ),
    idle(
        "checkBSONConformance",
        Types::SAFE_BOOL,
        "every document is parsed in any case",
    ),
    refused("repair", Types::SAFE_BOOL),
    refused("fixMultikey", Types::SAFE_BOOL),
    refused("enforceFastCount", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "validate",
    doc: "Checks a collection and its indexes",
    kind: Kind::Read,
    target: Target::Collection,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let store = &cx.engine().store;
    cx.engine().refuse_view(cx.ns())?;
    let collection = store.collection(cx.ns()).ok_or_else(|| {
        Error::new(
            Code::NamespaceNotFound,
            format!("Collection '{}' does not exist to validate.", cx.ns()),
        )
    })?;
    let full = cx.args.bool("full", false) || !cx.args.bool("metadata", false);
    let report = store.validate(&collection, full, &**cx.op)?;
    if report.as_doc().get("ns").is_none() {
        cx.reply.field("ns", cx.ns());
    }
    cx.reply.elements(report.as_doc());
    Ok(())
}
