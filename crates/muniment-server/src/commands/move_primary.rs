//! `movePrimary`: moves a database to another shard.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::move_primary::move_primary;
use muniment_auth::action::Action;
use muniment_auth::resource::Target as On;
use muniment_value::args::{Field, Types, req};
use muniment_value::{Code, Error, Result};

const FIELDS: &[Field] = &[req("to", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "movePrimary",
    aliases: &["moveprimary"],
    doc: "Moves the collections of a database that are not divided to another shard",
    fields: FIELDS,
    ..CommandSpec::of_cluster(
        run,
        Needs::Of(|asks| {
            let db = asks.request.body.get_str(asks.request.name);
            asks.may_one(On::Database(db.unwrap_or_default()), Action::MoveChunk)
        }),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let db = cx.text_target()?;
    if db.is_empty() || db.contains('.') {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("invalid db name specified: {db}"),
        ));
    }
    if ["admin", "config", "local"].contains(&db) {
        return Err(Error::new(
            Code::InvalidOptions,
            format!("Can't move primary for {db} database"),
        ));
    }
    move_primary(cx, router, db, cx.args.str("to").unwrap_or_default())
}
