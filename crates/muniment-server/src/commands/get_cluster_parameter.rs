//! `getClusterParameter`.

use crate::auth::Needs;
use crate::cluster_parameters::{self, ALL};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::args::missing_field;
use muniment_value::{ArrayBuf, Error, Result, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getClusterParameter",
    doc: "Values of cluster parameters: one, several, or all with \"*\"",
    admin_only: true,
    open_fields: true,
    run,
    ..CommandSpec::new(
        Routed::Config,
        Needs::cluster(&[Action::GetClusterParameter]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let held = &cx.server.settings.cluster;
    let mut found = ArrayBuf::new();
    match cx.target() {
        Value::String("*") => {
            for p in ALL {
                found.push(held.show(p));
            }
        }
        Value::String(name) => {
            found.push(held.show(cluster_parameters::find(name)?));
        }
        Value::Array(names) => {
            if names.is_empty() {
                return Err(Error::bad_value(
                    "Must supply at least one cluster server parameter name to getClusterParameter",
                ));
            }
            // All names must be strings before the first parameter is looked up.
            for e in names {
                if e.value().as_str().is_none() {
                    return Err(wrong_type(&format!(".{}", e.name()), e.value(), "'string'"));
                }
            }
            for name in names.values().filter_map(|v| v.as_str()) {
                found.push(held.show(cluster_parameters::find(name)?));
            }
        }
        Value::Undefined => return Err(missing_field(cx.spec.name, cx.spec.name)),
        v => return Err(wrong_type("", v, "types '[string, array]'")),
    }
    cx.reply.field("clusterParameters", found);
    Ok(())
}

fn wrong_type(element: &str, v: Value<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field 'getClusterParameter.getClusterParameter{element}' is the wrong type '{}', \
         expected type {expected}",
        v.type_name()
    ))
}
