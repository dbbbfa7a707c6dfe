//! `profile`.

use crate::args::{Field, Types, opt, refused};
use crate::context::CommandContext;
use crate::profiler;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Error, Result, number};
use std::sync::atomic::Ordering;

const FIELDS: &[Field] = &[
    opt("slowms", Types::NUMBER),
    opt("sampleRate", Types::NUMBER),
    refused("filter", Types::OBJECT.or(Types::STRING)),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "profile",
    doc: "Records a database's operations in system.profile",
    kind: Kind::Admin,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let level = cx
        .target()
        .as_i64_exact()
        .ok_or_else(|| {
            Error::type_mismatch(format!(
                "BSON field 'profile.profile' is the wrong type '{}', expected types '[long, int, \
                 decimal, double]'",
                cx.target().type_name()
            ))
        })?;
    let before = profiler::level(cx.server, cx.db());
    let mut new = before;
    // Any level below 0 or above 2 only reads.
    if (0..=2).contains(&level) {
        new.level = level as i32;
    }
    if let Some(n) = cx.args.int("slowms", i64::MIN, i64::MAX / 2000)? {
        new.slow_ms = n;
        cx.server.parameters.slow_ms.store(n, Ordering::Relaxed);
    }
    if let Some(v) = cx.args.get("sampleRate") {
        let rate = number::to_f64(v).unwrap_or(f64::NAN);
        if rate != 1.0 {
            return Err(Error::bad_value(
                "'sampleRate' other than 1 is not supported",
            ));
        }
        new.sample_rate = rate;
    }
    if new != before {
        profiler::set_level(cx.server, cx.db(), new);
    }
    let w = &mut cx.reply;
    w.field("was", before.level);
    w.field("slowms", before.slow_ms as i32);
    w.field("sampleRate", before.sample_rate);
    Ok(())
}
