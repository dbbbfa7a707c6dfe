//! Reads dates from text in people's notations: ISO 8601, `oct 20 2020`, `15-Jan-2020`, `1/31/2020 3:05 pm
//! EST`, `@1234567890`. Words for a distance (`tomorrow`, `+1 day`) are refused, as in MongoDB.
//!
//! Source of the notations: PHP's documentation of date and time formats, which MongoDB's library implements.

use super::format::MONTHS;
use super::zone::{Zone, offset_minutes};
use super::{Civil, DAY_MS, days_from_civil, days_in_month};
use muniment_value::{Code, Error, Result};
use std::ops::RangeInclusive;

/// The parts that were found in a text.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) year: Option<i64>,
    pub(super) month: Option<u32>,
    pub(super) day: Option<u32>,
    /// The hour, minute, second and millisecond.
    pub(super) time: Option<(u32, u32, u32, u32)>,
    pub(super) zone: Option<Zone>,
    /// 1 (Monday) to 7: the date is the next such day.
    weekday: Option<i64>,
}

/// The error for a text that is not a date.
pub(super) fn invalid(text: &str, why: &str) -> Error {
    Error::new(
        Code::ConversionFailure,
        format!("Error parsing date string '{text}'; {why}"),
    )
}

/// Reads a date, as milliseconds since 1970. `zone` is the time zone if the text has none.
///
/// # Errors
/// 241 ConversionFailure.
pub(in crate::expr::ops) fn read(text: &str, zone: &Zone) -> Result<i64> {
    let blank =
        |c: char| c.is_ascii_whitespace() || matches!(c, '\0' | '\u{b}' | '\u{a0}' | '\u{202f}');
    let trimmed = text.trim_matches(blank);
    if trimmed.is_empty() {
        return Err(invalid(text, "Empty string"));
    }
    let mut r = Reader::new(trimmed);
    let mut found = Found::default();
    loop {
        while matches!(r.peek(), Some(b' ' | b'\t' | b',' | b'.' | b';')) {
            r.at += 1;
        }
        match r.peek() {
            None => return found.finish(text, zone),
            Some(b'0'..=b'9') => r.digits(&mut found)?,
            Some(b'+' | b'-') => r.signed(&mut found)?,
            Some(b'@') => r.unix(&mut found)?,
            Some(c) if c.is_ascii_alphabetic() => r.name(&mut found)?,
            Some(_) => return Err(r.fail("Unexpected character")),
        }
    }
}

impl Found {
    /// The fields of the time, which is midnight if there was none.
    pub(super) fn clock(&mut self) -> &mut (u32, u32, u32, u32) {
        self.time.get_or_insert((0, 0, 0, 0))
    }

    fn set_date(&mut self, days: i64) {
        let c = Civil::from_millis(days.saturating_mul(DAY_MS));
        (self.year, self.month, self.day) = (Some(c.year), Some(c.month), Some(c.day));
    }

    /// Sets the date to that of an ISO year, week and day of the week.
    pub(super) fn set_iso_week(&mut self, year: i64, week: u32, day: u32) {
        let fourth = days_from_civil(year, 1, 4);
        let monday = fourth - (fourth + 3).rem_euclid(7);
        self.set_date(monday + (i64::from(week) - 1) * 7 + i64::from(day) - 1);
    }

    /// Sets the date to that of a year and a day in it, from 0.
    pub(super) fn set_day_of_year(&mut self, year: i64, day: i64) {
        self.set_date(days_from_civil(year, 1, 1) + day);
    }

    /// The moment, as milliseconds since 1970.
    ///
    /// # Errors
    /// 241 if a part is missing or out of its range, or if both the text and the caller give a time zone.
    pub(super) fn finish(self, text: &str, zone: &Zone) -> Result<i64> {
        let (Some(year), Some(month), Some(day)) = (self.year, self.month, self.day) else {
            return Err(Error::new(
                Code::ConversionFailure,
                format!(
                    "an incomplete date/time string has been found, with elements missing: \"{text}\""
                ),
            ));
        };
        if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
            return Err(invalid(text, "The parsed date was invalid"));
        }
        if self.zone.is_some() && !zone.is_utc() {
            return Err(Error::new(
                Code::ConversionFailure,
                format!(
                    "you cannot pass in a date/time string with time zone information ('{text}') together with a timezone argument"
                ),
            ));
        }
        let mut days = days_from_civil(year, month, day);
        if let Some(weekday) = self.weekday {
            days += (weekday - 1 - (days + 3)).rem_euclid(7);
        }
        let (hour, minute, second, milli) = self.time.unwrap_or_default();
        let seconds = i64::from(hour * 3600 + minute * 60 + second);
        let local = days * DAY_MS + seconds * 1000 + i64::from(milli);
        self.zone
            .as_ref()
            .unwrap_or(zone)
            .to_utc(local)
            .ok_or_else(|| invalid(text, "out of range"))
    }
}

/// A position in a text.
pub(super) struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Reader<'t> {
        Reader { text, at: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.peek().is_none()
    }

    pub(super) fn fail(&self, why: &str) -> Error {
        invalid(self.text, &format!("{why} at position {}", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.byte(0)
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    /// How many bytes from `ahead` on satisfy `is`.
    fn run(&self, ahead: usize, is: impl Fn(u8) -> bool) -> usize {
        let rest = self.text.as_bytes().get(self.at + ahead..);
        rest.unwrap_or_default()
            .iter()
            .take_while(|b| is(**b))
            .count()
    }

    fn digit_count(&self) -> usize {
        self.run(0, |b| b.is_ascii_digit())
    }

    /// Takes this many bytes, which are ASCII.
    fn take(&mut self, n: usize) -> &'t str {
        let s = self.text.get(self.at..self.at + n).unwrap_or_default();
        self.at += n;
        s
    }

    /// Takes a number with at least `least` and at most `most` digits (up to 9).
    pub(super) fn number(&mut self, least: usize, most: usize) -> Result<u32> {
        let n = self.digit_count().min(most);
        if n < least || n == 0 {
            return Err(self.fail("A number could not be found"));
        }
        self.take(n)
            .parse()
            .map_err(|_| self.fail("A number could not be found"))
    }

    /// Takes up to three digits as a fraction of a second.
    pub(super) fn millis(&mut self) -> Result<u32> {
        let n = self.digit_count().min(3);
        Ok(self.number(1, 3)? * [1, 100, 10, 1].get(n).copied().unwrap_or(1))
    }

    /// Takes a run of letters.
    pub(super) fn word(&mut self) -> &'t str {
        let n = self.run(0, |b| b.is_ascii_alphabetic());
        self.take(n)
    }

    /// Takes this character.
    pub(super) fn literal(&mut self, c: char) -> Result<()> {
        match self.text.get(self.at..) {
            Some(rest) if rest.starts_with(c) => {
                self.at += c.len_utf8();
                Ok(())
            }
            _ => Err(self.fail("The format's separator does not match")),
        }
    }

    /// Skips one of these bytes if it is next.
    fn skip(&mut self, any: &[u8]) -> bool {
        let hit = self.peek().is_some_and(|b| any.contains(&b));
        self.at += usize::from(hit);
        hit
    }

    /// Takes an offset in minutes, `+330`.
    pub(super) fn minutes_zone(&mut self) -> Result<Zone> {
        let negative = self.peek() == Some(b'-');
        self.skip(b"+-");
        let n = i64::from(self.number(1, 4)?) * 60_000;
        Ok(Zone::Fixed(if negative { -n } else { n }))
    }

    /// Takes an offset (`+h`, `+hh`, `+hmm`, `+hhmm`, `+hh:mm`) or the name of a zone.
    pub(super) fn zone(&mut self) -> Result<Zone> {
        if !matches!(self.peek(), Some(b'+' | b'-')) {
            let n = self.run(0, |b| {
                b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+')
            });
            let name = self.text.get(self.at..self.at + n).unwrap_or_default();
            let letters = self.run(0, |b| b.is_ascii_alphabetic());
            if let Some(zone) = abbreviation(name.get(..letters).unwrap_or_default()) {
                self.at += letters;
                // This is the case in "GMT+2" and "UTC-05:00".
                if zone.is_utc() && matches!(self.peek(), Some(b'+' | b'-')) {
                    return self.zone();
                }
                return Ok(zone);
            }
            return match Zone::find(name) {
                Ok(zone) if !name.is_empty() => {
                    self.at += n;
                    Ok(zone)
                }
                _ => Err(self.fail("The timezone could not be found in the database")),
            };
        }
        let negative = self.take(1) == "-";
        let n = self.digit_count();
        let (hours, minutes) = match n {
            1 | 2 => {
                let hours = self.number(1, 2)?;
                let minutes = match self.peek() {
                    Some(b':') => {
                        self.at += 1;
                        self.number(2, 2)?
                    }
                    _ => 0,
                };
                (hours, minutes)
            }
            3 | 4 => (self.number(1, n - 2)?, self.number(2, 2)?),
            _ => return Err(self.fail("The timezone could not be found in the database")),
        };
        let ms = i64::from(hours * 60 + minutes) * 60_000;
        Ok(Zone::Fixed(if negative { -ms } else { ms }))
    }

    /// Reads something that begins with a digit.
    fn digits(&mut self, found: &mut Found) -> Result<()> {
        let n = self.digit_count();
        let next = self.byte(n);
        match (n, next) {
            (1 | 2, Some(b':')) => self.time(found),
            (4, Some(b'-')) if found.month.is_none() => self.after_year(found, 1),
            (4, Some(b'/')) if found.month.is_none() => {
                let year = self.number(4, 4)?;
                self.at += 1;
                let month = self.number(1, 2)?;
                self.literal('/')?;
                let day = self.number(1, 2)?;
                self.date(found, year.into(), month, day)
            }
            (1 | 2, Some(b'/')) => {
                let month = self.number(1, 2)?;
                self.at += 1;
                let day = self.number(1, 2)?;
                self.literal('/')?;
                let year = self.year()?;
                self.date(found, year, month, day)
            }
            (1..=3, Some(b'-')) if self.is_year_first(n) => {
                let year = match i64::from(self.number(1, 3)?) {
                    n @ 0..70 => n + 2000,
                    n @ 70..100 => n + 1900,
                    n => n,
                };
                self.at += 1;
                let month = self.number(1, 2)?;
                self.literal('-')?;
                let day = self.number(1, 2)?;
                self.date(found, year, month, day)
            }
            (1 | 2, Some(b'.' | b'-')) if self.byte(n + 1).is_some_and(|b| b.is_ascii_digit()) => {
                let day = self.number(1, 2)?;
                self.at += 1;
                let month = self.number(1, 2)?;
                if !self.skip(b".-") {
                    return Err(self.fail("Unexpected character"));
                }
                let year = self.year()?;
                self.date(found, year, month, day)
            }
            (1 | 2, _) => self.day_first(found),
            (7, _) if self.in_ranges(&[(4, 3, 1..=366)]) => {
                let year = self.number(4, 4)?;
                let day = self.number(3, 3)?;
                self.day_of_year(found, year.into(), day)
            }
            (8 | 14, _)
                if self.in_ranges(&[(4, 2, 1..=12), (6, 2, 1..=31)])
                    && (n == 8
                        || self.in_ranges(&[(8, 2, 0..=24), (10, 2, 0..=59), (12, 2, 0..=60)])) =>
            {
                let year = self.number(4, 4)?;
                let (month, day) = (self.number(2, 2)?, self.number(2, 2)?);
                self.date(found, year.into(), month, day)?;
                if n == 14 {
                    self.compact_time(found)
                } else {
                    Ok(())
                }
            }
            // Four digits are a time if they can be one and there is none yet, otherwise a year. The rest is
            // read by itself. So MongoDB reads "20609-01-01" as 2060, and then as 9-01-01.
            (4.., _) => {
                let (hour, minute) = (self.number(2, 2)?, self.number(2, 2)?);
                if hour <= 24 && minute < 60 && found.time.is_none() {
                    return self.set_time(found, (hour, minute, 0, 0), None);
                }
                if found.month.is_none() || found.year.is_none() {
                    found.year = Some(i64::from(hour * 100 + minute));
                    return Ok(());
                }
                Err(self.fail("Double time specification"))
            }
            _ => Err(self.fail("Unexpected character")),
        }
    }

    /// Whether each of these groups of digits is a number within its range.
    fn in_ranges(&self, places: &[(usize, usize, RangeInclusive<u32>)]) -> bool {
        places.iter().all(|(at, n, range)| {
            self.text
                .get(self.at + at..self.at + at + n)
                .and_then(|s| s.parse().ok())
                .is_some_and(|n: u32| range.contains(&n))
        })
    }

    /// Whether `n` digits, "-", and the following text are year, month and day: the day has one or two
    /// digits.
    fn is_year_first(&self, n: usize) -> bool {
        let digits = |at| self.run(at, |b| b.is_ascii_digit());
        let month = digits(n + 1);
        let day = n + 2 + month;
        matches!(month, 1 | 2)
            && self.byte(n + 1 + month) == Some(b'-')
            && matches!(digits(day), 1 | 2)
    }

    fn date(&mut self, found: &mut Found, year: i64, month: u32, day: u32) -> Result<()> {
        if found.month.is_some() {
            return Err(self.fail("Double date specification"));
        }
        (found.year, found.month, found.day) = (Some(year), Some(month), Some(day));
        Ok(())
    }

    fn day_of_year(&mut self, found: &mut Found, year: i64, day: u32) -> Result<()> {
        if found.year.is_some() || !(1..=366).contains(&day) {
            return Err(self.fail("Unexpected character"));
        }
        found.set_day_of_year(year, i64::from(day) - 1);
        Ok(())
    }

    /// A year with four digits, or with two, of which 70 to 99 belong to the last century.
    fn year(&mut self) -> Result<i64> {
        Ok(match self.digit_count() {
            4 => self.number(4, 4)?.into(),
            2 => match self.number(2, 2)? {
                n if n < 70 => i64::from(n) + 2000,
                n => i64::from(n) + 1900,
            },
            _ => return Err(self.fail("Unexpected character")),
        })
    }

    /// Reads `2020-01-15`, `2020-1`, `2020-W05-3`, `2020-123` or `2020-Jan-15`. The year's sign was already
    /// taken.
    fn after_year(&mut self, found: &mut Found, sign: i64) -> Result<()> {
        let year = sign * i64::from(self.number(4, 4)?);
        self.literal('-')?;
        if self.skip(b"Ww") {
            let week = self.number(2, 2)?;
            self.skip(b"-");
            let day = if self.digit_count() == 1 {
                self.number(1, 1)?
            } else {
                1
            };
            if !(1..=53).contains(&week) || day > 7 || found.month.is_some() {
                return Err(self.fail("Unexpected character"));
            }
            found.set_iso_week(year, week, day);
            return Ok(());
        }
        if self.peek().is_some_and(|b| b.is_ascii_alphabetic()) {
            found.year = Some(year);
            return Ok(());
        }
        if self.digit_count() == 3 {
            let day = self.number(3, 3)?;
            return self.day_of_year(found, year, day);
        }
        let month = self.number(1, 2)?;
        let day = if self.skip(b"-") {
            self.number(1, 2)?
        } else {
            1
        };
        if self.digit_count() > 0 {
            return Err(self.fail("Unexpected character"));
        }
        self.date(found, year, month, day)
    }

    /// Reads `15 Jan 2020`, `3pm`, `15th of` …: a day before its month, or an hour.
    fn day_first(&mut self, found: &mut Found) -> Result<()> {
        let n = self.number(1, 2)?;
        if let Some(afternoon) = self.meridian() {
            return self.set_time(found, (n, 0, 0, 0), Some(afternoon));
        }
        self.ordinal();
        let blanks = self.run(0, |b| matches!(b, b' ' | b'\t' | b'.' | b'-'));
        self.at += blanks;
        let letters = self.run(0, |b| b.is_ascii_alphabetic());
        let word = self.text.get(self.at..self.at + letters);
        match month_of(word.unwrap_or_default()) {
            Some(month) if found.month.is_none() && found.day.is_none() => {
                self.at += letters;
                found.month = Some(month);
                found.day = Some(n);
                self.year_behind(found);
                Ok(())
            }
            _ => Err(self.fail("Unexpected character")),
        }
    }

    /// Skips "st", "nd", "rd", "th".
    fn ordinal(&mut self) {
        let suffix = self.text.get(self.at..self.at + 2).unwrap_or_default();
        if ["st", "nd", "rd", "th"]
            .iter()
            .any(|s| s.eq_ignore_ascii_case(suffix))
        {
            self.at += 2;
        }
    }

    /// Takes a year of four digits after a month and a day, if there is one.
    fn year_behind(&mut self, found: &mut Found) {
        let blanks = self.run(0, |b| matches!(b, b' ' | b'\t' | b'.' | b',' | b'-'));
        let digits = self.run(blanks, |b| b.is_ascii_digit());
        if found.year.is_none() && digits == 4 && self.byte(blanks + 4) != Some(b':') {
            self.at += blanks;
            found.year = self.number(4, 4).ok().map(i64::from);
        }
    }

    /// Reads `am`, `p.m.` and the like, with or without a blank before it. True for the afternoon.
    fn meridian(&mut self) -> Option<bool> {
        let blanks = self.run(0, |b| matches!(b, b' ' | b'\t'));
        let letters = self.run(blanks, |b| b.is_ascii_alphabetic() || b == b'.');
        let start = self.at + blanks;
        let word: String = self
            .text
            .get(start..start + letters)?
            .chars()
            .filter(|c| *c != '.')
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let afternoon = match word.as_str() {
            "am" => false,
            "pm" => true,
            _ => return None,
        };
        self.at = start + letters;
        Some(afternoon)
    }

    /// Reads `16:58`, `16:58:51`, `16:58:51.538`, `4:58 pm`, also with points instead of colons: `16:58.51`.
    fn time(&mut self, found: &mut Found) -> Result<()> {
        let hour = self.number(1, 2)?;
        if !self.skip(b":.") {
            return Err(self.fail("Unexpected character"));
        }
        let minute = self.number(1, 2)?;
        let (mut second, mut milli) = (0, 0);
        let more = self.byte(1).is_some_and(|b| b.is_ascii_digit());
        if self.skip(b":") || (more && self.skip(b".")) {
            second = self.number(1, 2)?;
            milli = self.fraction()?;
        }
        let afternoon = self.meridian();
        self.set_time(found, (hour, minute, second, milli), afternoon)
    }

    fn fraction(&mut self) -> Result<u32> {
        if matches!(self.peek(), Some(b'.' | b','))
            && self.byte(1).is_some_and(|b| b.is_ascii_digit())
        {
            self.at += 1;
            let milli = self.millis()?;
            self.at += self.digit_count();
            return Ok(milli);
        }
        Ok(0)
    }

    /// Reads `165851` or `1658`, with an optional fraction.
    fn compact_time(&mut self, found: &mut Found) -> Result<()> {
        let n = self.digit_count();
        let hour = self.number(2, 2)?;
        let (mut minute, mut second) = (0, 0);
        match n {
            2 => {}
            4 => minute = self.number(2, 2)?,
            6 => (minute, second) = (self.number(2, 2)?, self.number(2, 2)?),
            _ => return Err(self.fail("Unexpected character")),
        }
        let milli = self.fraction()?;
        self.set_time(found, (hour, minute, second, milli), None)
    }

    fn set_time(
        &mut self,
        found: &mut Found,
        (mut hour, minute, second, milli): (u32, u32, u32, u32),
        afternoon: Option<bool>,
    ) -> Result<()> {
        if found.time.is_some() {
            return Err(self.fail("Double time specification"));
        }
        let most = match afternoon {
            Some(_) if hour == 0 => return Err(self.fail("Unexpected character")),
            Some(_) => 12,
            None => 24,
        };
        if hour > most || minute > 59 || second > 60 {
            return Err(self.fail("Unexpected character"));
        }
        if let Some(afternoon) = afternoon {
            hour = hour % 12 + if afternoon { 12 } else { 0 };
        }
        found.time = Some((hour, minute, second, milli));
        Ok(())
    }

    /// Reads a sign, which belongs to a year, or to the offset after a time.
    fn signed(&mut self, found: &mut Found) -> Result<()> {
        if found.year.is_none() && found.time.is_none() {
            let sign = if self.take(1) == "-" { -1 } else { 1 };
            if self.digit_count() == 4 {
                return self.after_year(found, sign);
            }
            return Err(self.fail("Unexpected character"));
        }
        self.set_zone(found)
    }

    fn set_zone(&mut self, found: &mut Found) -> Result<()> {
        if found.zone.is_some() {
            return Err(self.fail("Double timezone specification"));
        }
        found.zone = Some(self.zone()?);
        Ok(())
    }

    /// Reads `@` and seconds since 1970.
    fn unix(&mut self, found: &mut Found) -> Result<()> {
        self.at += 1;
        let negative = self.skip(b"-");
        let n = self.digit_count();
        let seconds: i64 = self
            .take(n)
            .parse()
            .ok()
            .filter(|s| *s < 1 << 40)
            .ok_or_else(|| self.fail("Unexpected character"))?;
        let seconds = if negative { -seconds } else { seconds };
        if found.year.is_some() || found.time.is_some() || found.zone.is_some() {
            return Err(self.fail("Double date specification"));
        }
        found.set_date(seconds.div_euclid(86_400));
        let rest = seconds.rem_euclid(86_400) as u32;
        found.time = Some((rest / 3600, rest / 60 % 60, rest % 60, 0));
        found.zone = Some(Zone::UTC);
        Ok(())
    }

    /// Reads something that begins with a letter.
    fn name(&mut self, found: &mut Found) -> Result<()> {
        let letters = self.run(0, |b| b.is_ascii_alphabetic());
        let word = self
            .text
            .get(self.at..self.at + letters)
            .unwrap_or_default();
        if word.eq_ignore_ascii_case("t") && self.byte(1).is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
            return match (self.digit_count(), self.byte(self.digit_count())) {
                (1 | 2, Some(b':' | b'.')) => self.time(found),
                _ => self.compact_time(found),
            };
        }
        if let Some(month) = month_of(word) {
            if found.month.is_some() {
                return Err(self.fail("Double date specification"));
            }
            self.at += letters;
            found.month = Some(month);
            return self.after_month(found);
        }
        if let Some(day) = weekday_of(word)
            && found.weekday.is_none()
        {
            self.at += letters;
            found.weekday = Some(day);
            return Ok(());
        }
        self.set_zone(found)
    }

    /// Reads the day and the year after a month's name; or only the year, which means the first day.
    fn after_month(&mut self, found: &mut Found) -> Result<()> {
        let blanks = self.run(0, |b| matches!(b, b' ' | b'\t' | b'.' | b'-'));
        let digits = self.run(blanks, |b| b.is_ascii_digit());
        let next = self.byte(blanks + digits);
        match digits {
            4 if found.year.is_none() && next != Some(b':') => {
                self.at += blanks;
                found.year = Some(self.number(4, 4)?.into());
                found.day = Some(1);
            }
            1 | 2 if next != Some(b':') => {
                self.at += blanks;
                found.day = Some(self.number(1, 2)?);
                self.ordinal();
                self.year_behind(found);
            }
            _ => {}
        }
        Ok(())
    }
}

fn month_of(word: &str) -> Option<u32> {
    let i = MONTHS.iter().position(|m| {
        m.eq_ignore_ascii_case(word) || m.get(..3).is_some_and(|m| m.eq_ignore_ascii_case(word))
    });
    match i {
        Some(i) => Some(i as u32 + 1),
        None if word.eq_ignore_ascii_case("sept") => Some(9),
        None => None,
    }
}

fn weekday_of(word: &str) -> Option<i64> {
    const DAYS: [&[&str]; 7] = [
        &["mon", "monday"],
        &["tue", "tues", "tuesday"],
        &["wed", "wednesday"],
        &["thu", "thur", "thurs", "thursday"],
        &["fri", "friday"],
        &["sat", "saturday"],
        &["sun", "sunday"],
    ];
    DAYS.iter()
        .position(|names| names.iter().any(|n| n.eq_ignore_ascii_case(word)))
        .map(|i| i as i64 + 1)
}

/// The offset of an abbreviation of a time zone, if it has a single meaning.
fn abbreviation(word: &str) -> Option<Zone> {
    let offset = match word.to_ascii_uppercase().as_str() {
        "Z" | "UTC" | "GMT" | "UT" | "WET" => "+00",
        "CET" | "BST" | "WEST" => "+01",
        "CEST" | "EET" => "+02",
        "EEST" | "MSK" => "+03",
        "JST" | "KST" => "+09",
        "AST" | "EDT" => "-04",
        "EST" | "CDT" => "-05",
        "CST" | "MDT" => "-06",
        "MST" | "PDT" => "-07",
        "PST" | "AKDT" => "-08",
        "AKST" => "-09",
        "HST" => "-10",
        _ => return None,
    };
    offset_minutes(offset).map(|m| Zone::Fixed(m * 60_000))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn forms() {
        for (text, want) in [
            ("1970-01-01", "1970-01-01T00:00:00.000Z"),
            ("1970-01-01T00:00:01Z", "1970-01-01T00:00:01.000Z"),
            ("1970-01-01 01:00:00+01:00", "1970-01-01T00:00:00.000Z"),
            ("2017-07-04T11:56.02", "2017-07-04T11:56:02.000Z"),
            ("2017-07-04T11:56.02.813", "2017-07-04T11:56:02.813Z"),
            ("2017-07-04T11.56.02.8", "2017-07-04T11:56:02.800Z"),
            ("2017-07-04 11:56.02 Z", "2017-07-04T11:56:02.000Z"),
            ("1970-01-01T00:00:00.5", "1970-01-01T00:00:00.500Z"),
            ("1970-01-01T00:00-0030", "1970-01-01T00:30:00.000Z"),
            ("\t1970-01-01\t00:00:01 +0000\0", "1970-01-01T00:00:01.000Z"),
            ("\u{a0}2024-06-15T12:30:45 Z", "2024-06-15T12:30:45.000Z"),
            ("2024-06-15T24:00", "2024-06-16T00:00:00.000Z"),
            ("20240615T123045.678+02", "2024-06-15T10:30:45.678Z"),
            ("20240615123045", "2024-06-15T12:30:45.000Z"),
            ("2024/6/5", "2024-06-05T00:00:00.000Z"),
            ("2024-6", "2024-06-01T00:00:00.000Z"),
            ("2024-W24-6", "2024-06-15T00:00:00.000Z"),
            ("2024-167", "2024-06-15T00:00:00.000Z"),
            ("2024167", "2024-06-15T00:00:00.000Z"),
            ("6/15/2024 3:05 pm EST", "2024-06-15T20:05:00.000Z"),
            ("6/15/24 12am", "2024-06-15T00:00:00.000Z"),
            ("15.06.2024", "2024-06-15T00:00:00.000Z"),
            ("15-06-2024", "2024-06-15T00:00:00.000Z"),
            ("15-Jun-2024", "2024-06-15T00:00:00.000Z"),
            ("15th June, 2024 10:00", "2024-06-15T10:00:00.000Z"),
            ("2024-Jun-15", "2024-06-15T00:00:00.000Z"),
            ("oct 20 2020", "2020-10-20T00:00:00.000Z"),
            ("October 20th, 2020 5:06:07", "2020-10-20T05:06:07.000Z"),
            ("October 2020", "2020-10-01T00:00:00.000Z"),
            (
                "WED jan 31 12:05:28 +03:30 1996",
                "1996-01-31T08:35:28.000Z",
            ),
            // This is the next Friday from that day on.
            ("Fri, 01 Feb 2024 00:00:00 GMT", "2024-02-02T00:00:00.000Z"),
            ("2024-06-15 10:00 GMT+2", "2024-06-15T08:00:00.000Z"),
            ("2024-06-15 10:00 Europe/Paris", "2024-06-15T08:00:00.000Z"),
            ("@1234567890", "2009-02-13T23:31:30.000Z"),
            ("@-1", "1969-12-31T23:59:59.000Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"),
            ("24-06-15", "2024-06-15T00:00:00.000Z"),
            ("oct 20 2020 1530", "2020-10-20T15:30:00.000Z"),
            ("20609-01-01T00:00:00Z", "2009-01-01T00:00:00.000Z"),
            ("99999999999999-01-01", "1999-01-01T00:00:00.000Z"),
        ] {
            let got = read(text, &Zone::UTC).map(|ms| Civil::from_millis(ms).iso());
            assert_eq!(got.as_deref().ok(), Some(want), "{text}: {got:?}");
        }
        let c = Civil::from_millis(read("-0001-01-01T00:00:00Z", &Zone::UTC).unwrap());
        assert_eq!((c.year, c.month, c.day), (-1, 1, 1));
    }

    proptest::proptest! {
        /// Any text is read without a panic, and the texts of a moment are read as that moment.
        #[test]
        fn texts_of_dates_are_read_back(
            ms in -62_135_596_800_000_i64..253_402_300_800_000,
            noise in "[-0-9a-zA-Z:+./ ,@é]{0,12}",
        ) {
            let text = Civil::from_millis(ms).iso();
            proptest::prop_assert_eq!(read(&text, &Zone::UTC).ok(), Some(ms));
            for at in 0..=text.len() {
                let (head, tail) = text.split_at(at);
                let _ = read(&format!("{head}{noise}{tail}"), &Zone::UTC);
                let _ = read(&format!("{head}{noise}"), &Zone::UTC);
            }
        }
    }

    #[test]
    fn texts_that_are_no_date() {
        for text in [
            "",
            " ",
            "x",
            "Friday",
            "now",
            "tomorrow",
            "2024",
            "12:30",
            "jan 31",
            "1970-02-30",
            "1970-13-01",
            "10000-01-01T00:00:00Z",
            "20599-01-01T00:00:00Z",
            "\u{2000}2024-06-15",
            "1970-01-01T25:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01 13pm",
            "1970-01-01T00:00:00 Mars/Olympus",
            "1970-01-01T00:00:00Z EST",
            "1970-01-01 2020-01-01",
            "1970-01-01 +1 day",
            "2020-01-01é",
            "@",
            "@99999999999999999999",
        ] {
            let got = read(text, &Zone::UTC);
            assert_eq!(
                got.as_ref().map_err(|e| e.code()).err(),
                Some(Code::ConversionFailure),
                "{text}: {got:?}"
            );
        }
    }
}
