//! `checkMetadataConsistency`: whether the shards have what the configuration says.

use super::cursor_reply::answer;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use crate::router::Router;
use crate::router::consistency::{check, scope_of};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Result, Value};

const FIELDS: &[Field] = &[
    opt("checkIndexes", Types::SAFE_BOOL),
    opt("cursor", Types::OBJECT),
];

/// The command: `{checkMetadataConsistency: 1 | <collection>, checkIndexes?, cursor?}`; in `admin`, `1` means all
/// databases. What does not agree comes in a cursor.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "checkMetadataConsistency",
    doc: "Tells where shards and configuration do not agree",
    kind: Kind::Admin,
    target: Target::CollectionOrDatabase,
    of_router: true,
    fields: FIELDS,
    ..CommandSpec::new(
        Routed::By(run),
        Needs::cluster(&[Action::CheckMetadataConsistency]),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let target = cx.request.body.first().map_or(Value::Null, |e| e.value());
    let scope = scope_of(cx.db(), target, cx.args.bool("checkIndexes", false))?;
    let found = check(cx, router, &scope)?;
    answer(cx, cx.ns(), found)
}
