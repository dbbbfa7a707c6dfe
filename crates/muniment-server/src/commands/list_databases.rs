//! `listDatabases`.

use super::cursor_reply::filter;
use crate::auth::{self, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed, RunsOn};
use muniment_auth::action::Actions;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{ArrayBuf, Result, doc};

const FIELDS: &[Field] = &[
    opt("filter", Types::OBJECT),
    opt("nameOnly", Types::SAFE_BOOL),
    opt("authorizedDatabases", Types::BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listDatabases",
    doc: "The databases and their sizes",
    admin_only: true,
    api_v1: true,
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Readable),
    ..CommandSpec::new(Routed::By(crate::router::databases::list), Needs::Login)
};

/// Bytes of a block of the file system.
const BLOCK: u64 = 4096;

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = filter(cx.args.doc("filter"), cx.op)?;
    let name_only = cx.args.bool("nameOnly", false);
    let seen = auth::seen(cx)?;
    let store = &cx.engine().store;
    let (mut all, mut total) = (ArrayBuf::new(), 0_u64);
    for db in store.databases() {
        if seen
            .as_ref()
            .is_some_and(|user| !user.privileges.allows_within(&db, &Actions::ALL))
        {
            continue;
        }
        let mut size = 0;
        let mut d = doc! { "name": db.as_str() };
        if !name_only {
            // A file takes whole blocks of the file system.
            size = store.database_bytes(&db, &**cx.op)?.next_multiple_of(BLOCK);
            d.append("sizeOnDisk", size as i64);
            d.append("empty", store.kinds(&db).all == 0);
        }
        if let Some(f) = &wanted
            && !f.matches(d.as_doc(), cx.op.work())?
        {
            continue;
        }
        total += size;
        all.push(d);
    }
    cx.reply.field("databases", all);
    if !name_only {
        cx.reply.field("totalSize", total as i64);
        cx.reply.field("totalSizeMb", (total >> 20) as i64);
    }
    Ok(())
}
