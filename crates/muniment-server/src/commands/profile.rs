//! `profile`.

use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::profiler;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_auth::resource::Target as On;
use muniment_query::QueryContext;
use muniment_query::filter::Filter;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, Error, Result, Value, number};
use std::sync::atomic::Ordering::Relaxed;

const FIELDS: &[Field] = &[
    opt("slowms", Types::NUMBER),
    opt("sampleRate", Types::NUMBER),
    // A document or the text "unset". Of any type, since a wrong one is reported as 2 BadValue and not as 14.
    opt("filter", Types::ANY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "profile",
    doc: "Records a database's operations in system.profile",
    kind: Kind::Admin,
    fields: FIELDS,
    run,
    profiled: false,
    ..CommandSpec::new(Routed::By(|cx, _| run(cx)), Needs::Of(needs))
};

/// What is recorded may be seen by users who may read the records.
fn needs(asks: &Asks<'_>) -> bool {
    let db = asks.request.db;
    let changes = ["slowms", "sampleRate", "filter"];
    let only_asks = number::to_i64_exact(asks.target()) == Some(-1)
        && changes.iter().all(|f| asks.request.body.get(f).is_none());
    asks.may_one(On::Database(db), Action::EnableProfiler)
        || (only_asks && asks.may_one(On::Collection(db, "system.profile"), Action::Find))
}

/// Fails at a router for a level at which operations are recorded.
fn check_records(cx: &CommandContext<'_>, level: i64) -> Result<()> {
    match cx.server.router.is_some() && (1..=2).contains(&level) {
        false => Ok(()),
        true => Err(Error::bad_value(
            "a router records no operations: the level of profiling has to be 0 there. Its log tells of slow \
             operations, see slowms, sampleRate and filter",
        )),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let level = cx.typed_target(Types::NUMBER)?;
    let level = number::to_i64_clamped(level).unwrap_or(-1);
    check_records(cx, level)?;
    let before = cx.server.profiling.of(cx.db());
    let parameters = &cx.server.parameters;
    let slow_ms = parameters.slow_ms.load(Relaxed);
    let sample_rate = f64::from_bits(parameters.sample_rate.load(Relaxed));

    let mut new = before.clone();
    // Any level below 0 or above 2 changes nothing: the command only reports the current one.
    if (0..=2).contains(&level) {
        new.level = level as i32;
    }
    match cx.args.get("filter") {
        None => {}
        Some(Value::String("unset")) => new.filter = None,
        Some(Value::Document(d)) => {
            new.filter = Some(Filter::parse(
                d,
                &QueryContext::new().with_operation(cx.op.clone()),
            )?);
        }
        Some(_) => {
            return Err(Error::bad_value(
                "Expected an object, or the string 'unset'.",
            ));
        }
    }
    let new_slow_ms = cx.args.int("slowms", i64::MIN, i64::MAX / 2000)?;
    let rate = cx.args.get("sampleRate").and_then(number::to_f64);
    if let Some(rate) = rate
        && !(0.0..=1.0).contains(&rate)
    {
        return Err(Error::bad_value(
            "'sampleRate' must be between 0.0 and 1.0 inclusive",
        ));
    }
    if new.level > before.level && !cx.server.is_writable() {
        return Err(Error::new(
            Code::IllegalOperation,
            "only a primary records operations in system.profile, since what members store is the same on \
             all of them. This member tells of its slow operations in its log: see level 0 with slowms, \
             sampleRate and filter",
        ));
    }
    profiler::set(cx.server, cx.db(), new, &**cx.op)?;
    if let Some(n) = new_slow_ms {
        parameters.slow_ms.store(n, Relaxed);
    }
    if let Some(rate) = rate {
        parameters.sample_rate.store(rate.to_bits(), Relaxed);
    }

    let w = &mut cx.reply;
    w.field("was", before.level);
    w.field("slowms", slow_ms as i32);
    w.field("sampleRate", sample_rate);
    if let Some(filter) = &before.filter {
        w.field("filter", filter.to_doc());
        w.field(
            "note",
            "When a filter expression is set, slowms and sampleRate are not used for profiling \
             and slow-query log lines.",
        );
    }
    Ok(())
}
