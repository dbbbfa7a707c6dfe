//! `getCmdLineOpts`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::ArrayBuf;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getCmdLineOpts",
    doc: "The arguments and options that the server was started with",
    admin_only: true,
    run: |cx| {
        let o = &cx.server.options;
        cx.reply.field("argv", o.argv.iter().collect::<ArrayBuf>());
        cx.reply.field("parsed", &o.parsed);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::GetCmdLineOpts]))
};
