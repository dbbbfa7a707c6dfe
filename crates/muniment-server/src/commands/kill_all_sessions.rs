//! `killAllSessions`.

use super::kill;
use crate::args::{Args, Field, Types, check_type, req};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Result, Value};

const USER: &[Field] = &[req("user", Types::STRING), req("db", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killAllSessions",
    doc: "Interrupts what runs in all logical sessions",
    kind: Kind::Admin,
    open_fields: true,
    run,
    ..CommandSpec::DEFAULT
};

/// Sessions belong to nobody without authentication: a list of users names none of them, an empty
/// list all.
fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::Array(users) = cx.typed_target(Types::ARRAY)? else {
        return Ok(());
    };
    for e in users {
        match e.value() {
            Value::Null => {}
            Value::Document(d) => {
                Args::parse("KillAllSessionsUser", USER, d)?;
            }
            v => check_type(cx.spec.name, e.name(), Types::OBJECT, v.ty())?,
        }
    }
    if users.is_empty() {
        kill(cx, &[])?;
    }
    Ok(())
}
