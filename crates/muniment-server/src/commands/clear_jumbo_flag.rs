//! `clearJumboFlag`: lets the balancer try again to move a chunk that was too large.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::split::{Named, bounds_of, flag_jumbo};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Error, Result};

const FIELDS: &[Field] = &[opt("bounds", Types::ARRAY), opt("find", Types::OBJECT)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "clearJumboFlag",
    doc: "Lets the balancer try again to move a chunk that was too large",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::ClearJumboFlag)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let named = match (cx.args.doc("find"), cx.args.array("bounds")) {
        (Some(query), None) => Named::Find(query),
        (None, Some(list)) => {
            let (min, max) = bounds_of(list)?;
            Named::Bounds(min, max)
        }
        _ => {
            return Err(Error::bad_value(
                "Must specify either \"bounds\" or \"find\"",
            ));
        }
    };
    flag_jumbo(cx, router, (ns, &named), false)
}
