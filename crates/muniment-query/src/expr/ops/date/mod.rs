//! The date operators, with one file each, and the calendar arithmetic that they and the conversions use.
//!
//! Invariants: arithmetic uses milliseconds since 1970 in an int64, and never overflows silently; a wall
//! clock is represented as if it were UTC ([`Zone::to_local`]).
//!
//! Source of the day count ↔ civil date formulas: Howard Hinnant, "chrono-Compatible Low-Level
//! Date Algorithms".

pub(crate) mod add;
pub(crate) mod args;
pub(super) mod diff;
pub(super) mod format;
pub(super) mod from_parts;
pub(super) mod from_string;
pub(super) mod parts;
mod read;
pub(super) mod to_parts;
pub(super) mod trunc;
mod zone;

pub(super) use read::read;
pub(crate) use zone::Zone;

use std::fmt::Write;

/// The milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A moment's parts in the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: u32,
    /// 1 to 31.
    pub(super) day: u32,
    pub(super) hour: u32,
    pub(super) minute: u32,
    pub(super) second: u32,
    pub(super) milli: u32,
    /// The days since 1970-01-01.
    days: i64,
}

/// The days from 1970-01-01 to a civil date.
pub(super) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = i64::from((month + 9) % 12);
    let doy = (153 * mp + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

/// The number of days of a month (1 to 12).
fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Civil {
    /// The parts of a moment in milliseconds since 1970.
    pub(super) fn from_millis(ms: i64) -> Civil {
        let days = ms.div_euclid(DAY_MS);
        let rest = ms.rem_euclid(DAY_MS) as u32;
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let month = ((mp + 2) % 12 + 1) as u32;
        Civil {
            year: yoe + era * 400 + i64::from(month <= 2),
            month,
            day: (doy - (153 * mp + 2) / 5 + 1) as u32,
            hour: rest / 3_600_000,
            minute: rest / 60_000 % 60,
            second: rest / 1000 % 60,
            milli: rest % 1000,
            days,
        }
    }

    /// The day of the week, 1 (Sunday) to 7.
    pub(super) fn day_of_week(&self) -> i64 {
        (self.days + 4).rem_euclid(7) + 1
    }

    /// The day of the week, 1 (Monday) to 7.
    pub(super) fn iso_day_of_week(&self) -> i64 {
        (self.days + 3).rem_euclid(7) + 1
    }

    /// The day of the year, 1 to 366.
    pub(super) fn day_of_year(&self) -> i64 {
        self.days - days_from_civil(self.year, 1, 1) + 1
    }

    /// The week of the year, 0 to 53. Weeks begin on Sunday, and week 1 with the year's first Sunday.
    pub(super) fn week(&self) -> i64 {
        (self.day_of_year() + 7 - self.day_of_week()) / 7
    }

    /// The week by ISO 8601, and its year.
    pub(super) fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days - self.iso_day_of_week() + 4;
        let year = Civil::from_millis(thursday.saturating_mul(DAY_MS)).year;
        (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
    }

    /// The form `2018-03-27T16:58:51.538Z`.
    pub(super) fn iso(&self) -> String {
        let mut out = String::with_capacity(24);
        let _ = write!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.milli
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_round_trip() {
        for ms in [
            0,
            -1,
            1_522_169_931_538,
            -62_135_596_800_000,
            951_782_400_000,
            4_102_444_799_999,
        ] {
            let c = Civil::from_millis(ms);
            assert_eq!(read(&c.iso(), &Zone::UTC).ok(), Some(ms), "{}", c.iso());
        }
        assert_eq!(
            Civil::from_millis(1_522_169_931_538).iso(),
            "2018-03-27T16:58:51.538Z"
        );
        assert_eq!(Civil::from_millis(i64::MAX).month, 8);
        assert_eq!(Civil::from_millis(i64::MIN).milli, 192);
    }

    #[test]
    fn weeks() {
        // 2016-01-01 was a Friday of ISO week 53 of 2015.
        let c = Civil::from_millis(days_from_civil(2016, 1, 1) * DAY_MS);
        assert_eq!(
            (
                c.day_of_week(),
                c.iso_day_of_week(),
                c.week(),
                c.iso_week(),
                c.day_of_year()
            ),
            (6, 5, 0, (2015, 53), 1)
        );
        let c = Civil::from_millis(days_from_civil(2016, 12, 31) * DAY_MS);
        assert_eq!(
            (c.day_of_week(), c.week(), c.iso_week(), c.day_of_year()),
            (7, 52, (2016, 52), 366)
        );
        let c = Civil::from_millis(days_from_civil(2017, 1, 1) * DAY_MS);
        assert_eq!(
            (c.day_of_week(), c.week(), c.iso_week()),
            (1, 1, (2016, 52))
        );
    }
}
