//! `top`.

use crate::auth::Needs;
use crate::metrics::TOP_NAMES;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::{DocBuf, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "top",
    doc: "Time spent on each collection",
    open_fields: true,
    admin_only: true,
    run: |cx| {
        let mut totals = doc! { "note": "all times in microseconds" };
        for (ns, entry) in cx.server.metrics.top_all() {
            if ns.contains(".$cmd") {
                continue;
            }
            let mut d = DocBuf::new();
            for (name, (time, count)) in TOP_NAMES.iter().zip(entry.figures()) {
                d.append(name, doc! { "time": time as i64, "count": count as i64 });
            }
            totals.append(&ns, d);
        }
        cx.reply.field("totals", totals);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::Top]))
};
