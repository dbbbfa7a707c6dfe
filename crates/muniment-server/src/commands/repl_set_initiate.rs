//! `replSetInitiate`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::replica_set::host_of;
use muniment_auth::action::Action;
use muniment_logger::hostname;
use muniment_member::{HostPort, SetConfig, initiate};
use muniment_value::{Code, Doc, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetInitiate",
    doc: "Initiates the replica set over what this server has",
    kind: Kind::Admin,
    admin_only: true,
    run,
    before_first_user: |_| true,
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::ReplSetConfigure]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx).map_err(|_| {
        Error::new(
            Code::NoReplicationEnabled,
            "This node was not started with replication enabled.",
        )
    })?;
    let given = cx.target().as_doc().unwrap_or(Doc::EMPTY);
    let config = if given.is_empty() {
        let options = &cx.server.options;
        let me = HostPort::of_listener(&options.bind_ip, cx.server.address.port, &hostname())
            .to_string();
        cx.reply.field(
            "info2",
            "no configuration specified. Using a default configuration for the set",
        );
        cx.reply.field("me", me.as_str());
        let mut config = SetConfig::default_of(set.name(), me);
        config.of_config = set.home.of_config;
        config
    } else {
        let mut given = given.to_buf();
        if given.as_doc().get("version").is_none() {
            given.append("version", 1);
        }
        // As MongoDB does for those that do not say it, such as mlaunch.
        if set.home.of_config && given.as_doc().get("configsvr").is_none() {
            given.append("configsvr", true);
        }
        SetConfig::parse(given.as_doc())
            .map_err(|e| Error::new(Code::InvalidReplicaSetConfig, e.message()))?
    };
    if config.of_config != set.home.of_config {
        return Err(Error::new(
            Code::InvalidReplicaSetConfig,
            match set.home.of_config {
                true => {
                    "Nodes started with the --configsvr flag must have configsvr:true in their config"
                }
                false => {
                    "Nodes being used for config servers must be started with the --configsvr flag"
                }
            },
        ));
    }
    initiate(set, &host_of(cx.server), config, &**cx.op)
}
