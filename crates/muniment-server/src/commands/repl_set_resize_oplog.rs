//! `replSetResizeOplog`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::oplog_window;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, Error, Result, Value, number};

const FIELDS: &[Field] = &[
    opt("size", Types::NUMBER),
    opt("minRetentionHours", Types::NUMBER),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetResizeOplog",
    doc: "How much of the oplog this server keeps, from then on",
    kind: Kind::Admin,
    admin_only: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(
        Routed::Refused,
        Needs::cluster(&[Action::ReplSetResizeOplog]),
    )
};

/// The range of `size` that MongoDB accepts, in MB.
const SIZES: std::ops::RangeInclusive<f64> = 990.0..=1_073_741_824.0;

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let (mut bytes, mut time) = (None, None);
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
        bytes = Some((mb * f64::from(1 << 20)) as u64);
    }
    if let Some(v) = hours {
        let (hours, shown) = read(v);
        let Some(of) = oplog_window::time_of(hours) else {
            return Err(out_of_range("minRetentionHours", ">=", 0.0, &shown));
        };
        time = Some((hours, of));
    }
    oplog_window::store(cx.server, bytes, time)
}

fn read(v: Value<'_>) -> (f64, String) {
    (number::to_f64(v).unwrap_or(f64::NAN), v.to_display())
}

fn out_of_range(field: &str, must: &str, limit: f64, value: &str) -> Error {
    Error::bad_value(format!(
        "BSON field '{field}' value must be {must} {limit}, actual value '{value}'"
    ))
}
