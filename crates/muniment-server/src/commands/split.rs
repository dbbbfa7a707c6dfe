//! `split`: divides a chunk into two.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::split::{At, Named, bounds_of, split};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Doc, Error, Result};

const FIELDS: &[Field] = &[
    opt("find", Types::OBJECT),
    opt("bounds", Types::ARRAY),
    opt("middle", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "split",
    doc: "Divides a chunk into two, at a key or in its middle",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::SplitChunk)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let given = |d: &Doc<'_>| !d.is_empty();
    let find = cx.args.doc("find").filter(given);
    let bounds = cx.args.array("bounds").filter(given);
    let middle = cx.args.doc("middle").filter(given);
    let at = match (find, bounds, middle) {
        (Some(query), None, None) => At::Median(Named::Find(query)),
        (None, Some(list), None) => {
            let (min, max) = bounds_of(list)?;
            At::Median(Named::Bounds(min, max))
        }
        (None, None, Some(key)) => At::Key(key),
        (None, None, None) => {
            return Err(Error::bad_value("need to specify find, bounds or middle"));
        }
        _ => {
            return Err(Error::bad_value(
                "only one of find, bounds and middle can be specified",
            ));
        }
    };
    split(cx, router, ns, &at)
}
