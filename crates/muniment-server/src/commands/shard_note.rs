//! `_shardNote`: a router has the shard of a database tell change streams what was done to a collection.

use crate::context::CommandContext;
use crate::registry::{CommandSpec, Target};
use muniment_value::args::{Types, req};
use muniment_value::{Doc, Result, Value, doc};

/// The command: `{_shardNote: <collection>, uuid, o}`, where `o` begins with the name of the client's command. It puts a
/// note into the log that changes nothing.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardNote",
    doc: "Internal: a router has a shard tell change streams what was done to a collection",
    target: Target::Collection,
    write_concern: true,
    fields: &[req("uuid", Types::BINARY), req("o", Types::OBJECT)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let uuid = cx.args.get("uuid").unwrap_or(Value::Null);
    let o = cx.args.doc("o").unwrap_or(Doc::EMPTY);
    let ns = format!("{}.$cmd", cx.db());
    let note = doc! { "op": "c", "ns": ns, "ui": uuid, "o": o };
    let commit = cx.engine().store.note(note.as_doc(), &**cx.op)?;
    cx.note_commit(Some(commit));
    Ok(())
}
