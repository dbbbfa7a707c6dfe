//! `dataSize`: of a collection, or of the documents in a range of an index.

use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use muniment_auth::action::{Action, Actions};
use muniment_exec::{FindRequest, Hint, Source};
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, Error, Result, Value, cmp_values};
use std::cmp::Ordering;
use std::time::Instant;

const FIELDS: &[Field] = &[
    opt("keyPattern", Types::OBJECT),
    opt("min", Types::OBJECT),
    opt("max", Types::OBJECT),
    opt("estimate", Types::SAFE_BOOL),
    opt("maxSize", Types::NUMBER),
    opt("maxObjects", Types::NUMBER),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dataSize",
    aliases: &["datasize"],
    doc: "Size of a collection's documents, or of those in an index range",
    kind: Kind::Read,
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Data),
    ..CommandSpec::new(
        Routed::By(crate::router::sharded::stats::data_size),
        Needs::Of(needs),
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let ns = asks.target().as_str().unwrap_or_default();
    asks.may_on(ns, Actions::of(&[Action::Find]))
}

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
    let source = cx.engine().source(ns)?;
    source.refuse_view_like(ns)?;
    let most = Most {
        size: cx
            .args
            .int("maxSize", i64::MIN, i64::MAX)?
            .filter(|n| *n != 0),
        objects: cx
            .args
            .int("maxObjects", i64::MIN, i64::MAX)?
            .filter(|n| *n != 0),
    };
    let estimate = cx.args.bool("estimate", false);
    let mut reached = false;
    let (size, objects) = match (source, min, max, pattern) {
        (Source::Buckets(_) | Source::Generated(_), ..) => {
            measure(cx, &FindRequest::new(ns), &most, &mut reached)?
        }
        (Source::Absent | Source::View(_), ..) => (0, 0),
        (Source::Collection(_), Some(min), Some(max), Some(pattern)) => {
            if cmp_values(Value::Document(min), Value::Document(max)) != Ordering::Less {
                (0, 0)
            } else {
                let request = FindRequest {
                    hint: Some(Hint::Pattern(pattern)),
                    min,
                    max,
                    ..FindRequest::new(ns)
                };
                measure(cx, &request, &most, &mut reached)?
            }
        }
        (Source::Collection(_), ..) if !estimate && most.is_given() => {
            measure(cx, &FindRequest::new(ns), &most, &mut reached)?
        }
        // The size of a whole collection is always exact, even if the client asks for an estimate.
        (Source::Collection(c), ..) => (c.data_bytes() as i64, c.count() as i64),
    };
    let w = &mut cx.reply;
    w.field("estimate", estimate);
    w.field("size", size);
    w.field("numObjects", objects);
    if reached {
        w.field("maxReached", true);
    }
    w.field("millis", began.elapsed().as_millis() as i32);
    Ok(())
}

/// The limits at which counting ends.
struct Most {
    size: Option<i64>,
    objects: Option<i64>,
}

impl Most {
    fn is_given(&self) -> bool {
        self.size.is_some() || self.objects.is_some()
    }
}

/// Bytes and number of the documents that are found, up to and including the first that exceeds a limit.
fn measure(
    cx: &CommandContext<'_>,
    request: &FindRequest<'_>,
    most: &Most,
    reached: &mut bool,
) -> Result<(i64, i64)> {
    let mut cursor = cx.engine().find(cx.op, request)?;
    let (mut size, mut objects) = (0, 0);
    while let Some(d) = cursor.next_doc(cx.op)? {
        size += d.len() as i64;
        objects += 1;
        if most.size.is_some_and(|n| size > n) || most.objects.is_some_and(|n| objects > n) {
            *reached = true;
            break;
        }
    }
    Ok((size, objects))
}
