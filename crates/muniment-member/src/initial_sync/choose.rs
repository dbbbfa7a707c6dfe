//! Which member a copy is made of: the nearest by default, so that the primary does not bear the load of all
//! members that join.
//!
//! Every member with data is as good a source as the leader, as what is copied is committed; it only has
//! to have as much as the copy has to contain, which the source itself waits for. A member of which
//! nothing is heard, one that is delayed or hidden, and one from which a copy has just failed are no
//! sources. If there is no other source the leader is taken.

use super::super::role::Role;
use muniment_consensus::MemberId;
use muniment_value::{Error, Result};
use std::time::Duration;

/// A member that is at most so much further away than the nearest counts as equally near.
const NEAR: Duration = Duration::from_millis(15);

/// `initialSyncSourceReadPreference`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The primary alone.
    Primary,
    /// The primary if it can be, else the nearest.
    PrimaryPreferred,
    /// A secondary alone.
    Secondary,
    /// A secondary if there is one, else the primary.
    SecondaryPreferred,
    /// Whichever is nearest; of those that are about as near a secondary.
    #[default]
    Nearest,
}

const NAMES: [(&str, Preference); 5] = [
    ("primary", Preference::Primary),
    ("primaryPreferred", Preference::PrimaryPreferred),
    ("secondary", Preference::Secondary),
    ("secondaryPreferred", Preference::SecondaryPreferred),
    ("nearest", Preference::Nearest),
];

impl Preference {
    /// By its name.
    ///
    /// # Errors
    /// 2 BadValue for another one.
    pub fn parse(name: &str) -> Result<Preference> {
        let found = NAMES.iter().find(|(n, _)| *n == name);
        found.map(|(_, p)| *p).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
            Error::bad_value(format!(
                "initialSyncSourceReadPreference has to be one of {}, and not '{name}'",
                names.join(", ")
            ))
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, p)| *p == self);
        found.map_or("nearest", |(n, _)| *n)
    }
}

/// A member that may be a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub id: MemberId,
    /// What it says that it is.
    pub role: Role,
    /// How far away it is.
    pub ping: Duration,
}

/// The sources in the order in which they are to be tried, at most two: the best, and the leader after
/// another one. None only if a secondary is wanted and there is none.
pub fn choose(preference: Preference, leader: MemberId, all: &[Candidate]) -> Vec<MemberId> {
    let secondaries = || {
        all.iter()
            .filter(|c| c.role == Role::Secondary && c.id != leader)
    };
    let nearest = secondaries().min_by_key(|c| (c.ping, c.id));
    let own = all.iter().find(|c| c.id == leader).map(|c| c.ping);
    let first = match preference {
        Preference::Primary => return vec![leader],
        Preference::PrimaryPreferred => {
            return [Some(leader), nearest.map(|c| c.id)]
                .into_iter()
                .flatten()
                .collect();
        }
        Preference::Secondary => return nearest.map(|c| c.id).into_iter().collect(),
        Preference::SecondaryPreferred => nearest,
        Preference::Nearest => nearest.filter(|c| own.is_none_or(|own| c.ping <= own + NEAR)),
    };
    first.map(|c| c.id).into_iter().chain([leader]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_nearest_is_the_source_and_the_leader_the_last_resort() {
        let member = |id, role, ms| Candidate {
            id,
            role,
            ping: Duration::from_millis(ms),
        };
        let (p, near, far) = (
            member(1, Role::Primary, 20),
            member(2, Role::Secondary, 30),
            member(3, Role::Secondary, 80),
        );
        let all = [p, far, near];
        for (preference, all, wanted) in [
            ("primary", &all[..], vec![1]),
            ("primaryPreferred", &all, vec![1, 2]),
            ("secondary", &all, vec![2]),
            ("secondaryPreferred", &all, vec![2, 1]),
            ("nearest", &all, vec![2, 1]),
            // The primary is much nearer.
            ("nearest", &[p, far], vec![1]),
            ("secondaryPreferred", &[p, far], vec![3, 1]),
            // Nobody has heard of the leader yet.
            ("nearest", &[far], vec![3, 1]),
            ("nearest", &[], vec![1]),
            ("secondary", &[p], vec![]),
            ("primaryPreferred", &[p], vec![1]),
        ] {
            let parsed = Preference::parse(preference).unwrap();
            assert_eq!(parsed.name(), preference);
            assert_eq!(choose(parsed, 1, all), wanted, "{preference} {all:?}");
        }
        assert_eq!(Preference::parse("any").unwrap_err().code().0, 2);
        assert_eq!(Preference::default().name(), "nearest");
    }
}
