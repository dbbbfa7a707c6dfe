//! `setFeatureCompatibilityVersion`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use muniment_auth::action::Action;
use muniment_value::args::{Types, opt};
use muniment_value::{Code, Error, Result, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "setFeatureCompatibilityVersion",
    doc: "Accepts 8.0, the only one there is",
    kind: Kind::Admin,
    admin_only: true,
    write_concern: true,
    fields: &[opt("confirm", Types::SAFE_BOOL)],
    run,
    runs_on: Some(RunsOn::Primary),
    ..CommandSpec::new(
        Routed::Config,
        Needs::cluster(&[Action::SetFeatureCompatibilityVersion]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let version = match cx.target() {
        Value::String(v) => v,
        v => {
            return Err(Error::type_mismatch(format!(
                "BSON field 'setFeatureCompatibilityVersion.setFeatureCompatibilityVersion' is \
                 the wrong type '{}', expected type 'string'",
                v.type_name()
            )));
        }
    };
    if version != "8.0" {
        return Err(Error::new(
            if version == "7.0" {
                Code::CannotDowngrade
            } else {
                Code::BadValue
            },
            format!("Invalid feature compatibility version '{version}'; expected '8.0'"),
        ));
    }
    if !cx.args.bool("confirm", false) {
        return Err(Error::location(
            7_369_100,
            "Once you have upgraded to 8.0, you will not be able to downgrade FCV and binary \
             version without support assistance. Please re-run this command with 'confirm: true' \
             to acknowledge this and continue with the FCV upgrade.",
        ));
    }
    Ok(())
}
