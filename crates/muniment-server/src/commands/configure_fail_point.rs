//! `configureFailPoint`: only with the parameter enableTestCommands.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt, req};
use muniment_value::{Code, Doc, Error, Result, Value};
use std::sync::atomic::Ordering;

const FIELDS: &[Field] = &[
    req("mode", Types::STRING.or(Types::OBJECT)),
    opt("data", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "configureFailPoint",
    doc: "Makes commands fail, for tests",
    kind: Kind::Admin,
    admin_only: true,
    fields: FIELDS,
    run,
    can_be_failed: false,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::SetParameter]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    if !cx.server.parameters.test_commands.load(Ordering::Relaxed) {
        return Err(Error::new(
            Code::CommandNotFound,
            "no such command: 'configureFailPoint'",
        ));
    }
    let Value::String(name) = cx.target() else {
        return Err(Error::type_mismatch(format!(
            "BSON field 'configureFailPoint.configureFailPoint' is the wrong type '{}', expected \
             type 'string'",
            cx.target().type_name()
        )));
    };
    let mode = cx.args.get("mode").unwrap_or(Value::Null);
    let data = cx.args.doc("data").unwrap_or(Doc::EMPTY);
    let count = cx.server.failpoints.configure(name, mode, data)?;
    cx.reply.field("count", count as i64);
    Ok(())
}
