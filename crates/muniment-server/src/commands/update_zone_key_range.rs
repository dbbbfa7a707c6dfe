//! `updateZoneKeyRange`: gives a range of keys to a zone, or takes it from its zone.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::zones::assign;
use muniment_auth::action::{Action, Actions};
use muniment_value::args::{Field, Types, check_type, missing_field, opt, req};
use muniment_value::{Doc, Result, Value};

const FIELDS: &[Field] = &[
    req("min", Types::OBJECT),
    req("max", Types::OBJECT),
    // Null takes the range from its zone, so it must not count as absent.
    opt("zone", Types::ANY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "updateZoneKeyRange",
    doc: "Gives a range of keys to a zone, or takes it from its zone",
    fields: FIELDS,
    ..CommandSpec::of_cluster(
        run,
        Needs::Of(|asks| {
            let actions = Actions::of(&[Action::Find, Action::Update, Action::Remove]);
            asks.may_on("config.tags", actions)
        }),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ns = cx.text_target()?;
    namespace::split(ns)?;
    let bound = |name: &str| cx.args.doc(name).unwrap_or(Doc::EMPTY);
    let zone = match cx.request.body.get("zone") {
        None => return Err(missing_field(cx.spec.name, "zone")),
        Some(Value::Null) => None,
        Some(v) => {
            check_type(cx.spec.name, "zone", Types::STRING, v.ty())?;
            v.as_str()
        }
    };
    assign(cx, router, ns, (bound("min"), bound("max")), zone)
}
