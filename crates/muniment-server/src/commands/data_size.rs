//! `dataSize`: of a collection, or of the documents in a range of an index.

use crate::args::{Field, Types, opt};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind};
use muniment_exec::{FindRequest, Hint};
use muniment_value::{Code, Doc, Error, Result, Value, cmp_values};
use std::cmp::Ordering;
use std::time::Instant;

const FIELDS: &[Field] = &[
    opt("keyPattern", Types::OBJECT),
    opt("min", Types::OBJECT),
    opt("max", Types::OBJECT),
    opt("estimate", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dataSize",
    aliases: &["datasize"],
    doc: "Size of a collection's documents, or of those in an index range",
    kind: Kind::Read,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let began = Instant::now();
    let Value::String(ns) = cx.typed_target(Types::STRING)? else {
        return Err(Error::internal("a namespace that is no string"));
    };
    namespace::split(ns)?;
    let (pattern, min, max) = (
        cx.args.doc("keyPattern"),
        cx.args.doc("min"),
        cx.args.doc("max"),
    );
    if min.is_some() != max.is_some() {
        return Err(Error::bad_value(
            "min or max must be both set or both unset",
        ));
    }
    if min.is_some() && pattern.is_none() {
        return Err(Error::new(
            Code::OperationFailed,
            "couldn't find valid index containing key pattern",
        ));
    }
    cx.engine().refuse_view_like(ns)?;
    let (size, objects) = match (cx.engine().store.collection(ns), min, max, pattern) {
        (None, ..) => (0, 0),
        // The size of a whole collection is always exact, an estimate or not.
        (Some(c), Some(min), Some(max), Some(pattern)) => {
            drop(c);
            range(cx, ns, pattern, min, max)?
        }
        (Some(c), ..) => (c.data_bytes() as i64, c.count() as i64),
    };
    let w = &mut cx.reply;
    w.field("estimate", cx.args.bool("estimate", false));
    w.field("size", size);
    w.field("numObjects", objects);
    w.field("millis", began.elapsed().as_millis() as i32);
    Ok(())
}

/// Bytes and number of the documents whose keys are at least `min` and below `max`.
fn range(
    cx: &CommandContext<'_>,
    ns: &str,
    pattern: Doc<'_>,
    min: Doc<'_>,
    max: Doc<'_>,
) -> Result<(i64, i64)> {
    if cmp_values(Value::Document(min), Value::Document(max)) != Ordering::Less {
        return Ok((0, 0));
    }
    let request = FindRequest {
        hint: Some(Hint::Pattern(pattern)),
        min,
        max,
        ..FindRequest::new(ns)
    };
    let mut cursor = cx.engine().find(cx.op, &request)?;
    let (mut size, mut objects) = (0, 0);
    while let Some(d) = cursor.next_doc(cx.op)? {
        size += d.len() as i64;
        objects += 1;
    }
    Ok((size, objects))
}
