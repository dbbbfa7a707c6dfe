//! How often the driver looks at the time, and how long members wait for each other.
//!
//! The core counts milliseconds. The election timeout says when a leader that is silent has lost its
//! place, and nothing else: with a timeout of a day members look at the time, tell each other that they are
//! there, and give up what is not answered as often as with a timeout of some seconds.

use crate::config::SetConfig;
use muniment_consensus::Times;
use std::time::Duration;

/// The driver looks at the time at least this often.
pub(super) const LONGEST_TICK: Duration = Duration::from_millis(100);
/// The driver also looks at the time at least so many times in an election timeout.
pub(super) const TICKS: u64 = 20;
/// A leader's heartbeats: so many in an election timeout, at least.
const HEARTBEATS: u64 = 10;
/// A leader's heartbeats are at most so many milliseconds apart, whatever the configuration says: they make
/// the leader send again what a member has lost.
const LONGEST_BEAT: u64 = 5_000;
/// No election timeout is shorter, in milliseconds: a set that holds an election before anybody has
/// answered could not be told of a longer one any more.
const SHORTEST: u64 = 10;
/// A member that does not answer within this time, in milliseconds, is not waited for.
const ANSWER: u64 = 10_000;
/// The first campaign when the leader's process is gone, in milliseconds; see [`Times::soon`].
const SOON: u64 = 150;

/// How long the members of a configuration wait for each other, in milliseconds.
pub fn times_of(config: &SetConfig) -> Times {
    let positive = |ms: i64| u64::try_from(ms).unwrap_or(1).max(1);
    let election = positive(config.election_ms).max(SHORTEST);
    let heartbeat = positive(config.heartbeat_ms).min(LONGEST_BEAT);
    Times {
        election,
        heartbeat: heartbeat.min(election / HEARTBEATS).max(1),
        answer: election.min(ANSWER),
        soon: SOON.min(election / TICKS).max(1),
    }
}

/// A time in the core's milliseconds; 0 only for no time at all. The core's clock may lag by one tick, so
/// the longest tick is added: the time must not be over too soon.
pub fn ticks(time: Duration) -> u64 {
    match time.is_zero() {
        true => 0,
        false => {
            let whole = time.saturating_add(LONGEST_TICK).as_millis();
            u64::try_from(whole).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(election: i64, heartbeat: i64) -> Times {
        let mut config = SetConfig::default_of("r", "localhost:1".into());
        (config.election_ms, config.heartbeat_ms) = (election, heartbeat);
        times_of(&config)
    }

    #[test]
    fn a_long_election_timeout_makes_nothing_else_slow() {
        let day = times(86_400_000, 2_000);
        assert_eq!(
            (day.election, day.heartbeat, day.answer, day.soon),
            (86_400_000, 2_000, 10_000, 150)
        );
        assert_eq!(times(86_400_000, 86_400_000).heartbeat, 5_000);
        let usual = times(10_000, 2_000);
        assert_eq!(
            (usual.heartbeat, usual.answer, usual.soon),
            (1_000, 10_000, 150)
        );
        let short = times(500, 2_000);
        assert_eq!((short.heartbeat, short.answer, short.soon), (50, 500, 25));
        assert_eq!(times(10_000, 100).heartbeat, 100);
        let least = times(1, 1);
        assert!([least.election, least.heartbeat, least.answer, least.soon] == [10, 1, 10, 1]);
    }

    #[test]
    fn no_time_is_over_too_soon() {
        assert_eq!(ticks(Duration::ZERO), 0);
        assert_eq!(ticks(Duration::from_millis(1)), 101);
        assert_eq!(ticks(Duration::MAX), u64::MAX);
    }
}
