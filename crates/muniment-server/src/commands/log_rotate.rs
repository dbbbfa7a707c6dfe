//! `logRotate`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use muniment_auth::action::Action;
use muniment_value::{Code, Error, Result, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "logRotate",
    doc: "Puts the log's file aside, under a name with the time, and begins a new one",
    kind: Kind::Admin,
    admin_only: true,
    run,
    ..CommandSpec::needing(Needs::cluster(&[Action::LogRotate]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    match cx.target() {
        Value::String("server") => {}
        Value::String(other) => {
            return Err(Error::new(
                Code::NoSuchKey,
                format!("Unknown log type for rotate: {other}"),
            ));
        }
        v if v.is_number() => {}
        v => {
            return Err(Error::type_mismatch(format!(
                "BSON field 'logRotate.logRotate' is the wrong type '{}', expected types '[string, \
                 int, decimal, double, long]'",
                v.type_name()
            )));
        }
    }
    cx.server
        .log
        .rotate(&format!("conn{}", cx.conn.id))
        .map_err(|e| Error::from(e).context("Log rotation failed: "))
}
