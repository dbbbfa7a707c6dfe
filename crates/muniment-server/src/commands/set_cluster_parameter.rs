//! `setClusterParameter`: the value is stored in `config.clusterParameters`, so that a restart keeps it.

use crate::auth::Needs;
use crate::cluster_parameters;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use crate::replica_set::of_majority;
use muniment_auth::action::Action;
use muniment_value::args::Types;
use muniment_value::{Code, Doc, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "setClusterParameter",
    doc: "Sets a cluster parameter, for good",
    kind: Kind::Admin,
    admin_only: true,
    open_fields: true,
    run,
    runs_on: Some(RunsOn::Primary),
    ..CommandSpec::new(
        Routed::Everywhere,
        Needs::cluster(&[Action::SetClusterParameter]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = cx.typed_target(Types::OBJECT)?.as_doc();
    let mut wanted = wanted.unwrap_or(Doc::EMPTY).iter();
    let Some(first) = wanted.next() else {
        // As in MongoDB, a missing name counts as an empty one.
        return cluster_parameters::find("").map(|_| ());
    };
    if wanted.next().is_some() {
        return Err(Error::new(
            Code::InvalidOptions,
            "setClusterParameter only supports setting exactly one parameter",
        ));
    }
    let parameter = cluster_parameters::find(first.name())?;
    let commit = cluster_parameters::set(cx.server, cx.op, parameter, first.value())?;
    match commit {
        Some(commit) => of_majority(cx.server, commit, &**cx.op),
        None => Ok(()),
    }
}
