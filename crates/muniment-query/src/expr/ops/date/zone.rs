//! Time zones: fixed offsets from UTC, and the names of the IANA database. The database is part of the
//! binary, so that results do not depend on the host.
//!
//! Invariant: every moment has an offset. The rules are known only from year -9999 to 9999. Later moments are
//! looked up in the cycle of 400 years that has the same weekdays, and earlier ones have the zone's first
//! offset.

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use muniment_value::{Error, Result};
use std::cell::RefCell;
use std::sync::OnceLock;

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// A constant offset of this many milliseconds east of UTC.
    Fixed(i64),
    /// A zone of the IANA database.
    Named(TimeZone),
}

/// The seconds of 400 years.
const CYCLE: i64 = 146_097 * 86_400;
/// The last second whose offset is looked up directly, in the year 8307.
const LAST: i64 = 200_000_000_000;
/// The first such second, in the year -7536.
const FIRST: i64 = -300_000_000_000;

fn in_range(seconds: i64) -> i64 {
    if seconds > LAST {
        LAST + (seconds - LAST).rem_euclid(CYCLE)
    } else {
        seconds.max(FIRST)
    }
}

impl Zone {
    /// Universal time.
    pub(crate) const UTC: Zone = Zone::Fixed(0);

    /// Finds the zone with this name: `Europe/Paris`, `UTC`, `+05:30`, `-0530`, `+03`. Case matters.
    ///
    /// # Errors
    /// 40485.
    pub(crate) fn find(id: &str) -> Result<Zone> {
        if id == "UTC" {
            return Ok(Zone::UTC);
        }
        if let Some(minutes) = offset_minutes(id) {
            return Ok(Zone::Fixed(minutes * 60_000));
        }
        named(id).ok_or_else(|| {
            Error::location(
                40485,
                format!("unrecognized time zone identifier: \"{id}\""),
            )
        })
    }

    /// True for UTC and an offset of zero.
    pub(crate) fn is_utc(&self) -> bool {
        matches!(self, Zone::Fixed(0))
    }

    /// The zone's offset at a moment in milliseconds since 1970, in milliseconds east of UTC.
    pub(crate) fn offset_at(&self, utc_ms: i64) -> i64 {
        match self {
            Zone::Fixed(ms) => *ms,
            Zone::Named(tz) => Timestamp::from_second(in_range(utc_ms.div_euclid(1000)))
                .map_or(0, |t| i64::from(tz.to_offset(t).seconds()) * 1000),
        }
    }

    /// The wall clock at a moment, as if it were UTC.
    pub(crate) fn to_local(&self, utc_ms: i64) -> i64 {
        utc_ms.saturating_add(self.offset_at(utc_ms))
    }

    /// The moment at which the wall clock shows this time. A time that a clock change skips is read with the
    /// offset before the change, as is a time that occurs twice.
    pub(crate) fn to_utc(&self, local_ms: i64) -> Option<i64> {
        let offset = match self {
            Zone::Fixed(ms) => *ms,
            Zone::Named(tz) => {
                let t = Timestamp::from_second(in_range(local_ms.div_euclid(1000))).ok()?;
                let clock = Offset::UTC.to_datetime(t);
                let offset = match tz.to_ambiguous_timestamp(clock).offset() {
                    AmbiguousOffset::Unambiguous { offset } => offset,
                    AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => {
                        before
                    }
                };
                i64::from(offset.seconds()) * 1000
            }
        };
        local_ms.checked_sub(offset)
    }
}

/// Looks up a name. The thread remembers the last one, because a query uses the same zone for every document.
fn named(id: &str) -> Option<Zone> {
    thread_local! {
        static LAST: RefCell<Option<(String, TimeZone)>> = const { RefCell::new(None) };
    }
    static DATABASE: OnceLock<TimeZoneDatabase> = OnceLock::new();
    LAST.with_borrow_mut(|last| {
        if let Some((name, tz)) = last
            && name == id
        {
            return Some(Zone::Named(tz.clone()));
        }
        let tz = DATABASE
            .get_or_init(TimeZoneDatabase::bundled)
            .get(id)
            .ok()
            // The database ignores case, but MongoDB does not.
            .filter(|tz| tz.iana_name() == Some(id))?;
        *last = Some((id.to_string(), tz.clone()));
        Some(Zone::Named(tz))
    })
}

/// The minutes east of UTC of `±hh`, `±hhmm` or `±hh:mm`.
pub(super) fn offset_minutes(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (rest, "00"),
        4 => rest.split_at_checked(2)?,
        5 => rest.split_once(':')?,
        _ => return None,
    };
    let number = |s: &str| -> Option<i64> {
        (s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit()))
            .then(|| s.parse().ok())
            .flatten()
    };
    // MongoDB also accepts +25:70.
    Some(sign * (number(hours)? * 60 + number(minutes)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn names_and_offsets() {
        for (id, want) in [
            ("UTC", 0),
            ("GMT", 0),
            ("+00", 0),
            ("-0530", -330),
            ("+05:45", 345),
            ("+99:99", 99 * 60 + 99),
            ("EST", -300),
            ("Asia/Kolkata", 330),
        ] {
            let zone = Zone::find(id).unwrap();
            assert_eq!(zone.offset_at(1_577_836_800_000), want * 60_000, "{id}");
        }
        for id in [
            "",
            "Z",
            "EDT",
            "+1",
            "+100:00",
            "+1:000",
            "america/new_york",
            "25:00",
            "+é1",
        ] {
            assert_eq!(Zone::find(id).unwrap_err().code().0, 40485, "{id}");
        }
    }

    #[test]
    fn clock_changes() {
        let zone = Zone::find("America/New_York").unwrap();
        // 2021-03-14T02:30 does not exist, and 2021-11-07T01:30 occurs twice.
        let spring = 1_615_689_000_000;
        assert_eq!(zone.to_utc(spring), Some(spring + 5 * HOUR));
        let autumn = 1_636_248_600_000;
        assert_eq!(zone.to_utc(autumn), Some(autumn + 4 * HOUR));
        assert_eq!(zone.to_local(autumn + 4 * HOUR), autumn);
        assert_eq!(zone.to_local(autumn + 5 * HOUR), autumn);
    }

    #[test]
    fn far_away_moments_have_offsets() {
        let zone = Zone::find("Europe/Paris").unwrap();
        for ms in [i64::MIN, i64::MIN / 2, -1, 0, 1 << 60, i64::MAX] {
            assert!(zone.offset_at(ms).abs() < 15 * HOUR, "{ms}");
            let _ = zone.to_utc(ms);
        }
        // July of the years 2000 and 200000, which are the same in the cycle.
        let july = 962_409_600_000;
        assert_eq!(zone.offset_at(july), 2 * HOUR);
        assert_eq!(zone.offset_at(july + CYCLE * 1000 * 495), 2 * HOUR);
    }
}
