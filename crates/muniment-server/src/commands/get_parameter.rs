//! `getParameter`.

use crate::auth::Needs;
use crate::parameters;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, check_type, opt};
use muniment_value::{Code, Error, Result, Value};

use crate::context::CommandContext;

const FIELDS: &[Field] = &[
    opt("showDetails", Types::SAFE_BOOL),
    opt("allParameters", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getParameter",
    doc: "Values of server parameters: by name, or all with \"*\"",
    admin_only: true,
    open_fields: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::GetParameter]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let (mut all, mut details, mut runtime_only, mut startup_only) = (false, false, false, false);
    match cx.target() {
        Value::String("*") => all = true,
        Value::Document(d) => {
            for e in d {
                match e.name() {
                    "showDetails" => details = e.value().truthy(),
                    name @ "allParameters" => {
                        check_type("getParameter", name, Types::SAFE_BOOL, e.value().ty())?;
                        all = e.value().truthy();
                    }
                    "setAt" => match e.value().as_str() {
                        Some("runtime") => runtime_only = true,
                        Some("startup") => startup_only = true,
                        _ => {
                            return Err(Error::bad_value(format!(
                                "Enumeration value '{}' for field 'getParameter.setAt' is not a \
                                 valid value.",
                                e.value().to_display()
                            )));
                        }
                    },
                    other => {
                        return Err(muniment_value::args::unknown_field("getParameter", other));
                    }
                }
            }
        }
        _ => {}
    }
    all |= cx.args.bool("allParameters", false);
    details |= cx.args.bool("showDetails", false);
    let named = |name: &str| cx.request.body.get_elem(name).is_some();
    let reply = parameters::to_doc(
        cx.server,
        |p| {
            (all || named(p.name))
                && (!runtime_only || p.settable_at_runtime())
                && (!startup_only || p.settable_at_startup())
        },
        details,
    );
    if reply.as_doc().is_empty() {
        return Err(Error::new(Code::InvalidOptions, "no option found to get"));
    }
    cx.reply.elements(reply.as_doc());
    Ok(())
}
