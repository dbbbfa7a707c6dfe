//! `validate`.

use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, RunsOn, Target};
use muniment_exec::Source;
use muniment_value::{Code, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "validate",
    doc: "Checks a collection and its indexes",
    kind: Kind::Read,
    target: Target::Collection,
    open_fields: true,
    run,
    runs_on: Some(RunsOn::Data),
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    // As in MongoDB, any value but false, null and zero counts as true.
    let body = cx.request.body;
    let on = |name: &str| body.get(name).is_some_and(|v| v.truthy());
    let (full, metadata) = (on("full"), on("metadata"));
    let (repair, multikey) = (on("repair"), on("fixMultikey"));
    let conformance = on("checkBSONConformance");
    let background = on("background");
    for (both, message) in [
        (
            background && full,
            "Running the validate command with both { background: true } and { full: true } is not \
             supported.",
        ),
        (
            background && on("enforceFastCount"),
            "Running the validate command with both { background: true } and { enforceFastCount: \
             true } is not supported.",
        ),
        (
            background && repair,
            "Running the validate command with both { background: true } and { repair: true } is \
             not supported.",
        ),
        (
            metadata && (full || repair || multikey || conformance || background),
            "{ metadata: true } is not supported with any other options",
        ),
        (
            conformance && repair,
            "Running the validate command with { repair: true } and { checkBSONConformance: true \
             } is not supported",
        ),
    ] {
        if both {
            return Err(Error::new(Code::InvalidOptions, message));
        }
    }
    // MongoDB checks in the background only on a member of a set, which has views of the past. Here every
    // server has views, so on a member the check simply runs like any other.
    if background && cx.server.replica_set.is_none() {
        return Err(Error::new(
            Code::CommandNotSupported,
            "Running validate command with { background: true } is not supported on standalones",
        ));
    }
    let source = cx.source()?;
    source.refuse_view(cx.ns())?;
    if let Source::Generated(_) = source {
        return Err(Error::new(
            Code::CommandNotSupported,
            format!(
                "Cannot validate {}: it is made of the log when it is read, and the log is checked \
                 whenever it is",
                cx.ns()
            ),
        ));
    }
    let store = &cx.engine().store;
    let collection = source.stored().ok_or_else(|| {
        Error::new(
            Code::NamespaceNotFound,
            format!("Collection '{}' does not exist to validate.", cx.ns()),
        )
    })?;
    let report = store.validate(collection, !metadata, &**cx.op)?;
    let report = report.as_doc();
    if repair && report.get("valid").is_some_and(|v| !v.truthy()) {
        return Err(Error::new(
            Code::NotImplemented,
            "{ repair: true } is not supported: the collection is damaged; see validate without \
             it, and drop and build again the indexes that it names",
        ));
    }
    if report.get("ns").is_none() {
        cx.reply.field("ns", cx.ns());
    }
    let documents = ["nInvalidDocuments", "nNonCompliantDocuments", "nrecords"];
    for e in report {
        if metadata && documents.contains(&e.name()) {
            continue;
        }
        cx.reply.field(e.name(), e.value());
        if e.name() == "valid" {
            let mode = match (repair, multikey) {
                (true, _) => "FixErrors",
                (false, true) => "AdjustMultikey",
                (false, false) => "None",
            };
            cx.reply.field("repairMode", mode);
        }
    }
    Ok(())
}
