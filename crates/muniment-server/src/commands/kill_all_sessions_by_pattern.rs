//! `killAllSessionsByPattern`.

use super::kill;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::generic::{session_key, user_digest};
use crate::registry::{CommandSpec, Kind, Routed};
use crate::sessions::digest_of;
use muniment_auth::action::Action;
use muniment_value::args::{Args, Field, Types, check_type, opt, req};
use muniment_value::{Result, Value};

const PATTERN: &[Field] = &[
    opt("lsid", Types::OBJECT),
    opt("uid", Types::BINARY),
    opt("users", Types::ARRAY),
    opt("roles", Types::ARRAY),
];

const WHO: &[Field] = &[
    opt("user", Types::STRING),
    opt("role", Types::STRING),
    req("db", Types::STRING),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killAllSessionsByPattern",
    doc: "Interrupts what runs in the logical sessions that match a pattern; an empty list: in all",
    kind: Kind::Admin,
    open_fields: true,
    run,
    ..CommandSpec::new(
        Routed::By(crate::router::relay::everywhere),
        Needs::cluster(&[Action::KillAnySession]),
    )
};

/// A pattern that names only roles matches no session, because no user has a role.
fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::Array(patterns) = cx.typed_target(Types::ARRAY)? else {
        return Ok(());
    };
    let mut all = patterns.is_empty();
    let (mut named, mut users) = (Vec::new(), Vec::new());
    for e in patterns {
        let Some(pattern) = e.value().as_doc() else {
            check_type(cx.spec.name, e.name(), Types::OBJECT, e.value().ty())?;
            continue;
        };
        let a = Args::parse("KillAllSessionsByPattern", PATTERN, pattern)?;
        let who = |field: &str| {
            let listed = a.array(field).into_iter().flat_map(|all| all.values());
            let each = listed.filter_map(|v| v.as_doc());
            let parsed = each.map(|d| Args::parse("KillAllSessionsByPattern", WHO, d));
            parsed.collect::<Result<Vec<_>>>()
        };
        who("roles")?;
        for user in who("users")? {
            let of = |name| user.str(name).unwrap_or_default();
            users.push(digest_of(of("user"), of("db")));
        }
        match (a.get("uid"), a.doc("lsid")) {
            (Some(uid), _) => users.push(user_digest(uid)?),
            (None, Some(lsid)) => named.push(session_key(lsid)?),
            (None, None) => all |= pattern.is_empty(),
        }
    }
    kill(cx, &named, |key| all || users.contains(&key.user));
    Ok(())
}
