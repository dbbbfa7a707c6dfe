//! `appendOplogNote`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, req};
use muniment_value::{Code, Doc, Error, MAX_DEPTH, Result, doc, nests_deeper};

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
    runs_on: Some(RunsOn::Primary),
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::AppendOplogNote]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let data = cx.args.doc("data").unwrap_or(Doc::EMPTY);
    if nests_deeper(data, MAX_DEPTH) {
        return Err(Error::new(
            Code::Overflow,
            format!("the note exceeds the maximum nesting depth of {MAX_DEPTH}"),
        ));
    }
    let note = doc! { "op": "n", "ns": "", "o": data };
    let commit = cx.engine().store.note(note.as_doc(), &**cx.op)?;
    cx.note_commit(Some(commit));
    Ok(())
}
