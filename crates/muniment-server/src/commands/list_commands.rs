//! `listCommands`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed, registry};
use muniment_value::{ArrayBuf, DocBuf, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listCommands",
    doc: "The commands there are",
    open_fields: true,
    run: |cx| {
        let mut all = DocBuf::with_capacity(8192);
        for c in registry().iter().filter(|c| c.is_of(cx.server)) {
            all.append(
                c.name,
                doc! {
                    "help": c.doc,
                    "requiresAuth": !matches!(c.needs, Needs::Nothing),
                    "secondaryOk": !c.write_concern,
                    "adminOnly": c.admin_only,
                    "apiVersions": if c.api_v1 { ["1"].iter().collect() } else { ArrayBuf::new() },
                    "deprecatedApiVersions": ArrayBuf::new(),
                    "aliases": c.aliases.iter().collect::<ArrayBuf>(),
                },
            );
        }
        cx.reply.field("commands", all);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};
