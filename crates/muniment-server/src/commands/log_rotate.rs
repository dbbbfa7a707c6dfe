//! `logRotate`.

use crate::audit::{self, Logs};
use crate::auth::{self, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::{Code, Error, Result, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "logRotate",
    doc: "Puts the files of the log and of the audit log aside, under names with the time, and begins new ones",
    kind: Kind::Admin,
    admin_only: true,
    run,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::LogRotate]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let logs = match cx.target() {
        Value::String("server") => Logs::Server,
        Value::String("audit") if cx.server.audit.is_some() => Logs::Audit,
        Value::String("audit") => {
            return Err(Error::new(
                Code::NoSuchKey,
                "there is no audit log to rotate: the server was started without --auditDestination",
            ));
        }
        Value::String(other) => {
            return Err(Error::new(
                Code::NoSuchKey,
                format!("Unknown log type for rotate: {other}"),
            ));
        }
        v if v.is_number() => Logs::Both,
        v => {
            return Err(Error::type_mismatch(format!(
                "BSON field 'logRotate.logRotate' is the wrong type '{}', expected types '[string, \
                 int, decimal, double, long]'",
                v.type_name()
            )));
        }
    };
    let context = format!("conn{}", cx.conn.id);
    audit::rotate(cx.server, &auth::who(cx.conn, cx.local), logs, &context)
}
