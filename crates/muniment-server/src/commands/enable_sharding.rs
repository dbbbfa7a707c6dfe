//! `enableSharding`: gives a database a shard, before it has anything.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::CommandSpec;
use crate::router::Router;
use muniment_auth::action::{Action, Actions};
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, Error, Result};

const FIELDS: &[Field] = &[opt("primaryShard", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "enableSharding",
    aliases: &["enablesharding"],
    doc: "Gives a database a shard, before it has anything",
    fields: FIELDS,
    ..CommandSpec::of_cluster(
        run,
        Needs::Of(|asks| {
            let db = asks
                .request
                .body
                .get_str(asks.request.name)
                .unwrap_or_default();
            asks.may_on(db, Actions::of(&[Action::EnableSharding]))
        }),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let db = cx.text_target()?;
    namespace::check_db(db)?;
    if ["admin", "config", "local"].contains(&db) {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("Enabling sharding on the {db} database is not supported"),
        ));
    }
    let wanted = cx.args.str("primaryShard");
    let set = router
        .catalog
        .database(&**cx.op, router, db, Some(wanted))?;
    if let (Some(set), Some(wanted)) = (set, wanted) {
        let other = router.catalog.shard(&**cx.op, router, wanted)?;
        if other.name != set.name {
            return Err(Error::new(
                Code::NamespaceExists,
                format!("the database {db} is on another shard than {wanted}"),
            ));
        }
    }
    Ok(())
}
