//! `renameCollection`.

use crate::args::{Types, opt, req};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Code, Error, Result, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "renameCollection",
    doc: "Renames a collection",
    kind: Kind::Ddl,
    admin_only: true,
    write_concern: true,
    fields: &[
        req("to", Types::STRING),
        opt("dropTarget", Types::SAFE_BOOL.or(Types::BINARY)),
    ],
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::String(from) = cx.target() else {
        return Err(Error::new(
            Code::TypeMismatch,
            format!(
                "BSON field 'renameCollection.renameCollection' is the wrong type '{}', expected \
                 type 'string'",
                cx.target().type_name()
            ),
        ));
    };
    let to = cx.args.str("to").unwrap_or_default();
    namespace::split(from)?;
    let (db, collection) = namespace::split(to)?;
    namespace::check_create(db, collection)?;
    if from == to {
        return Err(Error::new(
            Code::IllegalOperation,
            "Can't rename a collection to itself",
        ));
    }
    cx.engine().refuse_view(from)?;
    if cx.engine().view(to)?.is_some() {
        return Err(Error::new(
            Code::NamespaceExists,
            format!("a view already exists with that name: {to}"),
        ));
    }
    let store = &cx.engine().store;
    store.rename_collection(from, to, cx.args.bool("dropTarget", false))?;
    for ns in [from, to] {
        cx.engine().cursors.invalidate(ns, "collection renamed");
        cx.server.metrics.top_forget(ns);
    }
    cx.note_write();
    Ok(())
}
