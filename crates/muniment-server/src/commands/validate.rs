//! `validate`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn, Target};
use muniment_auth::action::Action;
use muniment_exec::Source;
use muniment_value::{Code, Doc, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "validate",
    doc: "Checks a collection and its indexes",
    kind: Kind::Read,
    target: Target::Collection,
    open_fields: true,
    run,
    runs_on: Some(RunsOn::Data),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::stats::validate),
        Needs::collection(&[Action::Validate]),
    )
};

/// The options of the command. As in MongoDB, any value but false, null and zero counts as true.
struct Options {
    full: bool,
    metadata: bool,
    repair: bool,
    fix_multikey: bool,
    conformance: bool,
    background: bool,
    fast_count: bool,
}

impl Options {
    fn of(body: Doc<'_>) -> Options {
        let on = |name: &str| body.get(name).is_some_and(|v| v.truthy());
        Options {
            full: on("full"),
            metadata: on("metadata"),
            repair: on("repair"),
            fix_multikey: on("fixMultikey"),
            conformance: on("checkBSONConformance"),
            background: on("background"),
            fast_count: on("enforceFastCount"),
        }
    }

    /// Refuses options that exclude each other.
    ///
    /// # Errors
    /// 72 InvalidOptions.
    fn check(&self) -> Result<()> {
        let beside_metadata =
            self.full || self.repair || self.fix_multikey || self.conformance || self.background;
        let message = if self.background && self.full {
            "Running the validate command with both { background: true } and { full: true } is not \
             supported."
        } else if self.background && self.fast_count {
            "Running the validate command with both { background: true } and { enforceFastCount: \
             true } is not supported."
        } else if self.background && self.repair {
            "Running the validate command with both { background: true } and { repair: true } is \
             not supported."
        } else if self.metadata && beside_metadata {
            "{ metadata: true } is not supported with any other options"
        } else if self.conformance && self.repair {
            "Running the validate command with { repair: true } and { checkBSONConformance: true \
             } is not supported"
        } else {
            return Ok(());
        };
        Err(Error::new(Code::InvalidOptions, message))
    }

    /// What the reply says about repairs.
    fn repair_mode(&self) -> &'static str {
        match (self.repair, self.fix_multikey) {
            (true, _) => "FixErrors",
            (false, true) => "AdjustMultikey",
            (false, false) => "None",
        }
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let options = Options::of(cx.request.body);
    options.check()?;
    // MongoDB checks in the background only on a member of a set, which has views of the past. Here every
    // server has views, so on a member the check simply runs like any other.
    if options.background && cx.server.replica_set.is_none() {
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
    let report = store.validate(collection, !options.metadata, &**cx.op)?;
    let report = report.as_doc();
    if options.repair && report.get("valid").is_some_and(|v| !v.truthy()) {
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
        if options.metadata && documents.contains(&e.name()) {
            continue;
        }
        cx.reply.field(e.name(), e.value());
        if e.name() == "valid" {
            cx.reply.field("repairMode", options.repair_mode());
        }
    }
    Ok(())
}
