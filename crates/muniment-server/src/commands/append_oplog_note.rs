//! `appendOplogNote`.

use crate::args::{Field, Types, req};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Doc, Result, doc};

const FIELDS: &[Field] = &[req("data", Types::OBJECT)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "appendOplogNote",
    doc: "Puts an entry into the oplog that changes nothing",
    kind: Kind::Admin,
    admin_only: true,
    write_concern: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let data = cx.args.doc("data").unwrap_or(Doc::EMPTY);
    let note = doc! { "op": "n", "ns": "", "o": data };
    let commit = cx.engine().store.note(note.as_doc(), &**cx.op)?;
    cx.note_commit(Some(commit));
    Ok(())
}
