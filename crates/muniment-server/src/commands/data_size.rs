//! `dataSize`.

use crate::args::{Field, Types, idle, refused};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Error, Result, Value, number};
use std::time::Instant;

const FIELDS: &[Field] = &[
    refused("keyPattern", Types::OBJECT),
    refused("min", Types::OBJECT),
    refused("max", Types::OBJECT),
    idle(
        "estimate",
        Types::SAFE_BOOL,
        "the size of a whole collection is always exact",
    ),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dataSize",
    aliases: &["datasize"],
    doc: "Size of a collection's documents",
    kind: Kind::Diagnostic,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let began = Instant::now();
    let Value::String(ns) = cx.target() else {
        return Err(Error::type_mismatch(format!(
            "BSON field 'dataSize.dataSize' is the wrong type '{}', expected type 'string'",
            cx.target().type_name()
        )));
    };
    namespace::split(ns)?;
    let collection = cx.engine().store.collection(ns);
    let (size, objects) = collection.map_or((0, 0), |c| (c.data_bytes(), c.count()));
    let w = &mut cx.reply;
    w.field("estimate", false);
    w.field("size", number::narrow(size as i64));
    w.field("numObjects", number::narrow(objects as i64));
    w.field("millis", began.elapsed().as_millis() as i32);
    Ok(())
}
