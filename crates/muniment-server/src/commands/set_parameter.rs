//! `setParameter`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::generic::Generic;
use crate::parameters;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::{Code, DocBuf, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "setParameter",
    doc: "Changes server parameters at run time",
    admin_only: true,
    open_fields: true,
    run,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::SetParameter]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let mut was = DocBuf::new();
    for e in cx.request.body.iter().skip(1) {
        if Generic::default().take("setParameter", e)? {
            continue;
        }
        let before = parameters::set(cx.server, e.name(), e.value())?;
        was.append(e.name(), before);
    }
    // As in MongoDB, the reply has the old value of the last parameter that was changed.
    let Some(last) = was.as_doc().iter().last() else {
        return Err(Error::new(Code::InvalidOptions, "no option found to set"));
    };
    cx.reply.field("was", last);
    Ok(())
}
