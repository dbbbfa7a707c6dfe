//! `killAllSessions`.

use super::kill;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Code, Error, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killAllSessions",
    doc: "Interrupts what runs in all logical sessions",
    kind: Kind::Admin,
    run: |cx| match cx.target() {
        Value::Array(users) if users.is_empty() => kill(cx, &[]),
        Value::Array(_) => Err(Error::new(
            Code::NotImplemented,
            "killAllSessions for single users is not supported: there are no users",
        )),
        v => Err(Error::type_mismatch(format!(
            "BSON field 'killAllSessions.killAllSessions' is the wrong type '{}', expected type \
             'array'",
            v.type_name()
        ))),
    },
    ..CommandSpec::DEFAULT
};
