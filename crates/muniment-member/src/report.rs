//! What members tell each other of how they are, beside the consensus: positions, state, times. It
//! is what write concerns count by and what `replSetGetStatus` shows of the others.

use crate::role::Role;
use crate::timestamps::{of as times_of, timestamp};
use muniment_consensus::{MemberId, Position};
use muniment_storage::Timestamp;
use muniment_value::{Doc, DocBuf, Value, doc, number};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The member that reports.
    pub from: MemberId,
    /// The newest term it knows.
    pub term: i64,
    /// The term of the last record of its log.
    pub log_term: u64,
    /// How far it is.
    pub position: Position,
    /// The timestamp of what it has applied, with the record's term.
    pub applied_at: (Timestamp, i64),
    /// The same of what is durable.
    pub durable_at: (Timestamp, i64),
    /// The wall clocks of the two, in milliseconds since 1970.
    pub walls: (i64, i64),
    /// `myState`.
    pub state: i32,
    /// The configuration that it has: version and term.
    pub config: (i64, i64),
    /// Since when it is primary: its election's time.
    pub elected_at: Option<Timestamp>,
    /// It follows this member.
    pub follows: Option<MemberId>,
    /// It leads, and nobody waits for what is durable: see `driver::syncs`.
    pub calm: bool,
    /// It has been told not to campaign.
    pub abstains: bool,
    /// Its disk is full.
    pub full: bool,
    /// It has just been reached by the receiver: what it was sent before is lost.
    pub met: bool,
    /// When it was sent, in microseconds of the sender's own clock.
    pub sent: i64,
    /// The newest `sent` of the receiver that the sender had, and how many microseconds ago it came.
    pub echo: Option<(i64, i64)>,
}

impl Report {
    /// As a document.
    pub fn to_doc(&self) -> DocBuf {
        let pair = |(at, term): (Timestamp, i64)| doc! { "ts": timestamp(at), "t": term };
        let mut d = doc! {
            "from": self.from as i64,
            "term": self.term,
            "logTerm": self.log_term as i64,
            "written": self.position.written as i64,
            "applied": self.position.applied as i64,
            "durable": self.position.durable as i64,
            "appliedAt": pair(self.applied_at),
            "durableAt": pair(self.durable_at),
            "appliedWall": self.walls.0,
            "durableWall": self.walls.1,
            "state": self.state,
            "configVersion": self.config.0,
            "configTerm": self.config.1,
            "sent": self.sent,
        };
        d.append_some("electedAt", self.elected_at.map(timestamp));
        for (name, is) in [
            ("calm", self.calm),
            ("abstains", self.abstains),
            ("full", self.full),
            ("met", self.met),
        ] {
            d.append_some(name, is.then_some(true));
        }
        d.append_some("follows", self.follows.map(|id| id as i64));
        if let Some((sent, ago)) = self.echo {
            d.append("echo", sent);
            d.append("ago", ago);
        }
        d
    }

    /// From a document; what is missing is as if nothing were known.
    pub fn parse(d: Doc<'_>) -> Report {
        let int = |d: Doc<'_>, name: &str| d.get(name).and_then(number::to_i64_clamped);
        let number = |name: &str| int(d, name).unwrap_or(0);
        let is = |name: &str| matches!(d.get(name), Some(Value::Bool(true)));
        let place = |name: &str| u64::try_from(number(name)).unwrap_or(0);
        let pair = |name: &str| {
            let d = d.get_doc(name).unwrap_or(Doc::EMPTY);
            let at = d.get("ts").map_or(Timestamp::ZERO, times_of);
            (at, int(d, "t").unwrap_or(0))
        };
        let (applied_at, durable_at) = (pair("appliedAt"), pair("durableAt"));
        // Versions before this one do not tell it.
        let wall = |name: &str, (at, _): (Timestamp, i64)| {
            int(d, name).unwrap_or(i64::from(at.seconds()) * 1000)
        };
        Report {
            from: place("from"),
            term: number("term"),
            log_term: place("logTerm"),
            position: Position {
                written: place("written"),
                applied: place("applied"),
                durable: place("durable"),
            },
            applied_at,
            durable_at,
            walls: (
                wall("appliedWall", applied_at),
                wall("durableWall", durable_at),
            ),
            state: number("state") as i32,
            config: (number("configVersion"), number("configTerm")),
            elected_at: d
                .get("electedAt")
                .filter(|v| matches!(v, Value::Timestamp { .. }))
                .map(times_of),
            follows: int(d, "follows").and_then(|id| u64::try_from(id).ok()),
            calm: is("calm"),
            abstains: is("abstains"),
            full: is("full"),
            met: is("met"),
            sent: number("sent"),
            echo: int(d, "echo").zip(int(d, "ago")),
        }
    }
}

/// What was heard of one other member.
#[derive(Clone, Debug)]
pub struct HeardOf {
    /// Its newest report.
    pub report: Report,
    /// When that came.
    pub at: Instant,
    /// The same in milliseconds since 1970.
    pub at_ms: i64,
    /// How long a report and its answer took, about.
    pub ping: Option<Duration>,
    /// Since when it has been heard of without a break.
    pub since: Instant,
}

impl HeardOf {
    /// Whether the member is on its way into the set.
    pub fn joins(&self) -> bool {
        [Role::Startup, Role::Startup2]
            .map(|r| r.state().0)
            .contains(&self.report.state)
    }
}

/// What was heard of the other members.
#[derive(Clone, Debug, Default)]
pub struct Heard(BTreeMap<MemberId, HeardOf>);

impl Heard {
    /// A report came `now`. `clock`: microseconds of this member's clock; `patience`: a member that was
    /// silent for longer counts as gone in between.
    pub fn note(
        &mut self,
        report: Report,
        now: Instant,
        clock: i64,
        now_ms: i64,
        patience: Duration,
    ) {
        let round = report.echo.map(|(sent, ago)| clock - sent - ago);
        let round = round.and_then(|us| u64::try_from(us).ok());
        let before = self.0.get(&report.from);
        let since = before
            .filter(|b| now.saturating_duration_since(b.at) < patience)
            .map_or(now, |b| b.since);
        // The time is smoothed, as a single one tells little.
        let ping = match (round, before.and_then(|b| b.ping)) {
            (Some(us), Some(old)) => Some((old * 4 + Duration::from_micros(us)) / 5),
            (Some(us), None) => Some(Duration::from_micros(us)),
            (None, old) => old,
        };
        let heard = HeardOf {
            at: now,
            at_ms: now_ms,
            ping,
            since,
            report,
        };
        self.0.insert(heard.report.from, heard);
    }

    /// What was heard of a member.
    pub fn of(&self, id: MemberId) -> Option<&HeardOf> {
        self.0.get(&id)
    }

    /// What to answer a member's newest report with: see [`Report::echo`].
    pub fn echo(&self, id: MemberId, now: Instant) -> Option<(i64, i64)> {
        let heard = self.0.get(&id)?;
        let ago = now.saturating_duration_since(heard.at).as_micros();
        let ago = i64::try_from(ago).unwrap_or(i64::MAX);
        Some((heard.report.sent, ago))
    }

    /// Forgets those that are no longer members.
    pub fn retain(&mut self, is_member: impl Fn(MemberId) -> bool) {
        self.0.retain(|id, _| is_member(*id));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report() -> Report {
        Report {
            from: 3,
            term: 9,
            log_term: 8,
            position: Position {
                written: 7,
                applied: 6,
                durable: 5,
            },
            applied_at: (Timestamp::new(8, 2), 9),
            durable_at: (Timestamp::new(8, 1), 8),
            walls: (7_900, 7_100),
            state: 2,
            config: (4, 9),
            elected_at: Some(Timestamp::new(5, 1)),
            follows: Some(1),
            calm: true,
            abstains: true,
            full: true,
            met: true,
            sent: 1000,
            echo: Some((500, 20)),
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        assert_eq!(Report::parse(report().to_doc().as_doc()), report());
        assert_eq!(Report::parse(Doc::EMPTY), Report::default());
        let of_older = doc! { "appliedAt": doc! { "ts": Value::Timestamp { t: 8, i: 2 } } };
        assert_eq!(Report::parse(of_older.as_doc()).walls, (8_000, 0));
    }

    #[test]
    fn pings_are_the_way_there_and_back() {
        let mut heard = Heard::default();
        let patience = Duration::from_secs(10);
        let now = Instant::now();
        heard.note(report(), now, 2520, 77, patience);
        let of = heard.of(3).unwrap();
        assert_eq!((of.ping, of.at_ms), (Some(Duration::from_micros(2000)), 77));
        let since = of.since;
        let soon = now + Duration::from_micros(30);
        heard.note(report(), soon, 520, 78, patience);
        let of = heard.of(3).unwrap();
        assert_eq!(of.ping, Some(Duration::from_micros(1600)));
        assert_eq!(of.since, since);
        let later = soon + Duration::from_micros(40);
        assert_eq!(heard.echo(3, later), Some((1000, 40)));
        heard.note(report(), later, 520, 79, Duration::ZERO);
        assert!(heard.of(3).unwrap().since > since);
        heard.retain(|id| id != 3);
        assert!(heard.of(3).is_none() && heard.echo(3, later).is_none());
    }
}
