//! The read preference of a command (`$readPreference`): which members of a set may answer it.
//!
//! A member is chosen as the drivers' specification of server selection says: from those of the mode that are not too
//! stale, those of the first tag set that any of them has, and of these one that is about as near as the nearest.

use muniment_value::args::{Types, check_type};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use std::time::Duration;

/// The least value of `maxStalenessSeconds`.
const LEAST_STALENESS: f64 = 90.0;
/// A member is about as near as another if its answers take at most so much longer.
const NEAR: Duration = Duration::from_millis(15);

/// The mode of a read preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The primary only.
    Primary,
    /// The primary, or a secondary if there is none.
    PrimaryPreferred,
    /// A secondary only.
    Secondary,
    /// A secondary, or the primary if there is none.
    SecondaryPreferred,
    /// Any member.
    Nearest,
}

impl Mode {
    /// Its name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Primary => "primary",
            Mode::PrimaryPreferred => "primaryPreferred",
            Mode::Secondary => "secondary",
            Mode::SecondaryPreferred => "secondaryPreferred",
            Mode::Nearest => "nearest",
        }
    }

    fn parse(name: &str) -> Result<Mode> {
        use Mode::{Nearest, Primary, PrimaryPreferred, Secondary, SecondaryPreferred};
        let all = [
            Primary,
            PrimaryPreferred,
            Secondary,
            SecondaryPreferred,
            Nearest,
        ];
        let found = all.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| {
            Error::failed_to_parse(format!(
                "Could not parse $readPreference mode '{name}'. Only the modes 'primary', \
                 'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported."
            ))
        })
    }
}

/// A read preference.
#[derive(Clone, Copy, Debug)]
pub struct ReadPreference<'d> {
    /// Which members may be asked.
    pub mode: Mode,
    /// The tag sets, the most wanted first: an array of documents. Empty if all members will do.
    tags: Doc<'d>,
    /// How far the writes of a secondary may lag.
    max_staleness: Option<Duration>,
}

/// What is known of a member that could be chosen.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// Its address.
    pub host: String,
    /// Its tags.
    pub tags: DocBuf,
    /// By how many milliseconds its last write was earlier than the time at which it told of it.
    pub lag_ms: i64,
    /// How long its answer took.
    pub takes: Duration,
}

impl<'d> ReadPreference<'d> {
    /// One without tags.
    pub const fn of(mode: Mode) -> ReadPreference<'static> {
        ReadPreference {
            mode,
            tags: Doc::EMPTY,
            max_staleness: None,
        }
    }

    /// Reads a `$readPreference`.
    ///
    /// # Errors
    /// 9 FailedToParse for an unknown mode; 14 TypeMismatch; 2 BadValue for tags or a staleness with the mode
    /// `primary`; 160 MaxStalenessOutOfRange.
    pub fn parse(d: Doc<'d>) -> Result<ReadPreference<'d>> {
        let typed = |name: &'static str, types: Types| {
            let found = d.get(name).filter(|v| !matches!(v, Value::Null));
            let check =
                |v: Value<'d>| check_type("$readPreference", name, types, v.ty()).map(|()| v);
            found.map(check).transpose()
        };
        let mode = typed("mode", Types::STRING)?;
        let mode = mode.and_then(|v| v.as_str()).map(Mode::parse);
        let mode = mode.transpose()?.unwrap_or(Mode::Primary);
        let tags = typed("tags", Types::ARRAY)?;
        let tags = tags.and_then(|v| v.as_array()).unwrap_or(Doc::EMPTY);
        let seconds = typed("maxStalenessSeconds", Types::NUMBER)?;
        let seconds = seconds
            .and_then(|v| muniment_value::number::to_f64(v))
            .filter(|s| *s > 0.0);
        if mode == Mode::Primary {
            if tags
                .values()
                .any(|v| v.as_doc().is_none_or(|d| !d.is_empty()))
            {
                return Err(Error::bad_value(
                    "Only empty tags are allowed with primary read preference",
                ));
            }
            if seconds.is_some() {
                return Err(Error::bad_value(
                    "$maxStalenessSeconds can not be set for the primary mode",
                ));
            }
        }
        if let Some(e) = tags.values().find(|v| v.as_doc().is_none()) {
            return Err(Error::type_mismatch(format!(
                "the tags of a read preference have to be documents, and not of the type {}",
                e.type_name()
            )));
        }
        if seconds.is_some_and(|s| s < LEAST_STALENESS) {
            return Err(Error::new(
                Code::MaxStalenessOutOfRange,
                "maxStalenessSeconds value can not be less than 90",
            ));
        }
        Ok(ReadPreference {
            mode,
            tags,
            max_staleness: seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()),
        })
    }

    /// It as a document that [`ReadPreference::parse`] reads.
    pub fn to_doc(self) -> DocBuf {
        let mut d = doc! { "mode": self.mode.name(), "tags": Value::Array(self.tags) };
        let seconds = self.max_staleness.map(|most| most.as_secs_f64());
        d.append_some("maxStalenessSeconds", seconds);
        d
    }

    /// What is shown of it in messages.
    pub fn show(&self) -> String {
        let mut shown = format!("mode: \"{}\"", self.mode.name());
        if !self.tags.is_empty() {
            shown += &format!(", tags: {}", Value::Array(self.tags).to_display());
        }
        if let Some(most) = self.max_staleness {
            shown += &format!(", maxStalenessSeconds: {}", most.as_secs());
        }
        format!("{{ {shown} }}")
    }

    /// The member to ask. `turn` counts the choices, so that members take turns; what is known of members is as old as
    /// `age` at most.
    pub fn choose<'c>(
        &self,
        primary: Option<&'c Candidate>,
        secondaries: &'c [Candidate],
        turn: usize,
        age: Duration,
    ) -> Option<&'c Candidate> {
        // Without a primary it is compared with the secondary that lags least.
        let best = primary.map(|p| p.lag_ms);
        let best = best.or_else(|| secondaries.iter().map(|s| s.lag_ms).min());
        let is_fresh = |s: &&Candidate| {
            let most = self.max_staleness.map(|most| most.as_millis());
            let lag = (s.lag_ms - best.unwrap_or(0)).max(0);
            let lag = u128::from(lag.unsigned_abs()) + age.as_millis();
            most.is_none_or(|most| lag <= most)
        };
        let fresh: Vec<&Candidate> = secondaries.iter().filter(is_fresh).collect();
        let secondary = || self.tagged(&fresh, turn);
        match self.mode {
            Mode::Primary => primary,
            Mode::PrimaryPreferred => primary.or_else(secondary),
            Mode::Secondary => secondary(),
            Mode::SecondaryPreferred => secondary().or(primary),
            Mode::Nearest => {
                let all: Vec<&Candidate> = fresh.iter().copied().chain(primary).collect();
                self.tagged(&all, turn)
            }
        }
    }

    /// One of those that have the first tag set that any of them has.
    fn tagged<'c>(&self, all: &[&'c Candidate], turn: usize) -> Option<&'c Candidate> {
        let have = |set: Doc<'_>| -> Vec<&'c Candidate> {
            // The tags of a set's members are strings.
            let is_so = |c: &Candidate, name: &str, v: Value<'_>| {
                v.as_str().is_some() && c.tags.as_doc().get_str(name) == v.as_str()
            };
            let has = |c: &Candidate| set.iter().all(|e| is_so(c, e.name(), e.value()));
            all.iter().copied().filter(|c| has(c)).collect()
        };
        let sets = self.tags.values().filter_map(|v| v.as_doc());
        let mut found = match self.tags.is_empty() {
            true => all.to_vec(),
            false => sets.map(have).find(|found| !found.is_empty())?,
        };
        let nearest = found.iter().map(|c| c.takes).min()?;
        found.retain(|c| c.takes <= nearest + NEAR);
        found.get(turn % found.len()).copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::array;

    fn member(host: &str, tags: DocBuf, lag_ms: i64, takes_ms: u64) -> Candidate {
        Candidate {
            host: host.into(),
            tags,
            lag_ms,
            takes: Duration::from_millis(takes_ms),
        }
    }

    /// All hosts that are chosen in turns, sorted.
    fn chosen(d: &DocBuf, primary: Option<&Candidate>, secondaries: &[Candidate]) -> String {
        let preference = ReadPreference::parse(d.as_doc()).unwrap();
        let one = |turn| preference.choose(primary, secondaries, turn, Duration::from_secs(10));
        let mut hosts: Vec<&str> = (0..12).filter_map(one).map(|c| c.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.concat()
    }

    #[test]
    fn members_are_chosen_by_mode_tags_staleness_and_distance() {
        let p = member("p", doc! { "dc": "east" }, 1_000, 0);
        let a = member("a", doc! { "dc": "east", "use": "reports" }, 2_000, 1);
        let b = member("b", doc! { "dc": "west" }, 100_000, 2);
        let far = member("f", doc! { "dc": "moon" }, 1_000, 400);
        let all = [a.clone(), b.clone(), far];
        let of = |mode: &str| doc! { "mode": mode };
        let with = |mode: &str, tags: DocBuf| doc! { "mode": mode, "tags": array![tags] };
        for (d, with_primary, without) in [
            (of("primary"), "p", ""),
            (of("primaryPreferred"), "p", "ab"),
            (of("secondary"), "ab", "ab"),
            (of("secondaryPreferred"), "ab", "ab"),
            (of("nearest"), "abp", "ab"),
            (with("secondary", doc! { "dc": "west" }), "b", "b"),
            (with("secondary", doc! { "dc": "moon" }), "f", "f"),
            (with("secondary", doc! { "dc": "mars" }), "", ""),
            (with("secondaryPreferred", doc! { "dc": "mars" }), "p", ""),
            (with("primaryPreferred", doc! { "dc": "west" }), "p", "b"),
            (with("nearest", doc! { "dc": "east" }), "ap", "a"),
            (
                with("nearest", doc! { "dc": "east", "use": "reports" }),
                "a",
                "a",
            ),
            (
                doc! { "mode": "secondary", "tags": array![doc! { "dc": "mars" }, doc! {}] },
                "ab",
                "ab",
            ),
            (
                doc! { "mode": "secondary", "maxStalenessSeconds": 90 },
                "a",
                "a",
            ),
            (
                doc! { "mode": "secondary", "maxStalenessSeconds": 120.5 },
                "ab",
                "ab",
            ),
        ] {
            assert_eq!(chosen(&d, Some(&p), &all), with_primary, "{d:?}");
            assert_eq!(chosen(&d, None, &all), without, "{d:?} without a primary");
        }
        assert_eq!(chosen(&of("secondaryPreferred"), Some(&p), &[]), "p");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let code = |d: DocBuf| ReadPreference::parse(d.as_doc()).unwrap_err().code().0;
        assert_eq!(code(doc! { "mode": "fastest" }), 9);
        assert_eq!(code(doc! { "mode": 1 }), 14);
        assert_eq!(code(doc! { "mode": "secondary", "tags": 1 }), 14);
        assert_eq!(code(doc! { "mode": "secondary", "tags": array![1] }), 14);
        assert_eq!(code(doc! { "tags": array![doc! { "a": "b" }] }), 2);
        assert_eq!(code(doc! { "maxStalenessSeconds": 100 }), 2);
        assert_eq!(
            code(doc! { "mode": "nearest", "maxStalenessSeconds": 89 }),
            160
        );
        let all = doc! { "mode": "primary", "tags": array![doc! {}], "maxStalenessSeconds": -1 };
        assert!(ReadPreference::parse(all.as_doc()).is_ok());
    }
}
