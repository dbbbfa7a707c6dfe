//! `killSessions`.

use super::{kill, sessions_of};
use crate::registry::{CommandSpec, Kind};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killSessions",
    doc: "Interrupts what runs in logical sessions; an empty list: in all",
    open_fields: true,
    kind: Kind::Admin,
    run: |cx| {
        let named = sessions_of(cx)?;
        kill(cx, &named, |_| named.is_empty());
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
