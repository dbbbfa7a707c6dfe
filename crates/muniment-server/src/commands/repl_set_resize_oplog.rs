//! `replSetResizeOplog`.

use crate::args::{Field, Types, opt};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Code, Error, Result, Value, number};
use std::time::Duration;

const FIELDS: &[Field] = &[
    opt("size", Types::NUMBER),
    opt("minRetentionHours", Types::NUMBER),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetResizeOplog",
    doc: "How much of the oplog is kept, until the next start",
    kind: Kind::Admin,
    admin_only: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

/// MB: what MongoDB takes as `size`.
const SIZES: std::ops::RangeInclusive<f64> = 990.0..=1_073_741_824.0;

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let store = &cx.engine().store;
    let (mut bytes, mut time) = store.log_window();
    let (size, hours) = (cx.args.get("size"), cx.args.get("minRetentionHours"));
    if size.is_none() && hours.is_none() {
        return Err(Error::new(
            Code::InvalidOptions,
            "replSetResizeOplog must have size or minRetentionHours",
        ));
    }
    if let Some(v) = size {
        let (mb, shown) = read(v);
        if !mb.ge(SIZES.start()) {
            return Err(out_of_range("size", ">=", *SIZES.start(), &shown));
        }
        if !mb.le(SIZES.end()) {
            return Err(out_of_range("size", "<=", *SIZES.end(), &shown));
        }
        bytes = (mb * f64::from(1 << 20)) as u64;
    }
    if let Some(v) = hours {
        let (hours, shown) = read(v);
        // Too long for a number of nanoseconds is for ever.
        time = match Duration::try_from_secs_f64(hours * 3600.0) {
            Ok(time) => time,
            Err(_) if hours > 0.0 => Duration::MAX,
            Err(_) => return Err(out_of_range("minRetentionHours", ">=", 0.0, &shown)),
        };
    }
    store.keep_log(bytes, time);
    Ok(())
}

fn read(v: Value<'_>) -> (f64, String) {
    (number::to_f64(v).unwrap_or(f64::NAN), v.to_display())
}

fn out_of_range(field: &str, must: &str, limit: f64, value: &str) -> Error {
    Error::bad_value(format!(
        "BSON field '{field}' value must be {must} {limit}, actual value '{value}'"
    ))
}
