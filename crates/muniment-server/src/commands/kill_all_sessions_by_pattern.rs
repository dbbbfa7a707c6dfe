//! `killAllSessionsByPattern`.

use super::kill;
use crate::args::{Args, Field, Types, check_type, opt, req};
use crate::context::CommandContext;
use crate::generic::session_id;
use crate::registry::{CommandSpec, Kind};
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
    ..CommandSpec::DEFAULT
};

/// Without authentication sessions belong to nobody: what names users or roles matches none, and an
/// empty pattern all.
fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::Array(patterns) = cx.typed_target(Types::ARRAY)? else {
        return Ok(());
    };
    let mut all = patterns.is_empty();
    let mut ids = Vec::new();
    for e in patterns {
        let Some(pattern) = e.value().as_doc() else {
            check_type(cx.spec.name, e.name(), Types::OBJECT, e.value().ty())?;
            continue;
        };
        let a = Args::parse("KillAllSessionsByPattern", PATTERN, pattern)?;
        for who in ["users", "roles"] {
            for v in a.array(who).into_iter().flat_map(|all| all.values()) {
                if let Some(d) = v.as_doc() {
                    Args::parse("KillAllSessionsByPattern", WHO, d)?;
                }
            }
        }
        match a.doc("lsid") {
            Some(lsid) => ids.push(session_id(lsid)?),
            None => all |= pattern.is_empty(),
        }
    }
    if all {
        kill(cx, &[])
    } else if ids.is_empty() {
        Ok(())
    } else {
        kill(cx, &ids)
    }
}
