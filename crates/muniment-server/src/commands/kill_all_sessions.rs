//! `killAllSessions`.

use super::kill;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::sessions::digest_of;
use muniment_auth::action::Action;
use muniment_value::args::{Args, Field, Types, check_type, req};
use muniment_value::{Result, Value};

const USER: &[Field] = &[req("user", Types::STRING), req("db", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killAllSessions",
    doc: "Interrupts what runs in all logical sessions",
    kind: Kind::Admin,
    open_fields: true,
    run,
    ..CommandSpec::new(
        Routed::By(crate::router::relay::everywhere),
        Needs::cluster(&[Action::KillAnySession]),
    )
};

/// An empty list of users means the sessions of all users.
fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::Array(list) = cx.typed_target(Types::ARRAY)? else {
        return Ok(());
    };
    let mut users = Vec::new();
    for e in list {
        match e.value() {
            Value::Null => {}
            Value::Document(d) => {
                let a = Args::parse("KillAllSessionsUser", USER, d)?;
                let of = |name| a.str(name).unwrap_or_default();
                users.push(digest_of(of("user"), of("db")));
            }
            v => check_type(cx.spec.name, e.name(), Types::OBJECT, v.ty())?,
        }
    }
    kill(cx, &[], |key| list.is_empty() || users.contains(&key.user));
    Ok(())
}
