//! How the log's timestamps are shown to clients and to other members.

use muniment_storage::{Store, Timestamp};
use muniment_value::{DocBuf, Value, doc};

/// A timestamp of the log with its term, as MongoDB writes it (`optime`).
pub fn op_time(at: Timestamp, term: i64) -> DocBuf {
    doc! { "ts": timestamp(at), "t": term }
}

/// As a BSON timestamp.
pub fn timestamp(at: Timestamp) -> Value<'static> {
    Value::Timestamp {
        t: at.seconds(),
        i: at.increment(),
    }
}

/// The second of a timestamp, as a date.
pub fn date_of(at: Timestamp) -> Value<'static> {
    Value::DateTime(i64::from(at.seconds()) * 1000)
}

/// What the wall clock showed at a commit here. From these dates others tell how far behind a member is.
/// Timestamps do not tell that: they may be ahead of the clock, and then they only count up.
pub fn wall_ms(store: &Store, at: Timestamp) -> i64 {
    match at {
        Timestamp::ZERO => 0,
        at => store.wall_of(at),
    }
}

/// A BSON timestamp's number.
pub fn of(v: Value<'_>) -> Timestamp {
    match v {
        Value::Timestamp { t, i } => Timestamp::new(t, i),
        _ => Timestamp::ZERO,
    }
}
