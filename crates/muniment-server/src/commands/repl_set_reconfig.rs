//! `replSetReconfig`.

use super::repl_set::set_of;
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_member::SetConfig;
use muniment_value::args::{Types, opt};
use muniment_value::{Code, Error, Result, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetReconfig",
    doc: "Replaces the configuration of the replica set",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt("force", Types::ANY)],
    audits: Some(Audits::each("replSetReconfig", audit::reconfigured)),
    run,
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::ReplSetConfigure]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    set.initialized()?;
    let Value::Document(given) = cx.target() else {
        return Err(Error::new(Code::UnknownError, "no configuration specified"));
    };
    let config = SetConfig::parse(given)
        .map_err(|e| Error::new(Code::InvalidReplicaSetConfig, e.message()))?;
    let force = cx.args.get("force").is_some_and(|v| v.truthy());
    let concern_is_set = cx.server.settings.default_concern.read().write.is_some();
    set.reconfigure(&**cx.op, config, force, concern_is_set)
}
