//! Decides whether a write concern is satisfied: pure functions of how far the members are.
//!
//! `w: N` counts the members that have applied the write (with `j: true`: and have made it durable). A
//! majority is raft's: the commit point, for which only durable records count; a member that reads at the
//! commit point reads what it has applied. A mode counts the different values of tags among the members that
//! `w: N` counts.
//!
//! Before a write, the check answers as MongoDB does: it refuses at once a concern that no set of these
//! members could ever satisfy.

use crate::config::{MemberId, majority};
use crate::position::Members;
use muniment_value::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// How many members have to acknowledge, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum W {
    /// This many members.
    Members(u32),
    /// A majority of the voters.
    Majority,
    /// A mode of the configuration, by name.
    Mode(String),
    /// This many different values for each of these tags.
    Tags(BTreeMap<String, u32>),
}

/// The acknowledgements that a client waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// How many members have to acknowledge, or which.
    pub w: W,
    /// A member counts only when the write is durable there.
    pub journaled: bool,
}

/// How far the set is, as the primary knows it.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The members.
    pub members: &'a Members,
    /// The commit point.
    pub committed: u64,
}

impl Concern {
    /// Whether the set can satisfy the concern, however long the client waits.
    ///
    /// # Errors
    /// 79 for a mode that the configuration does not have, 100 if there are too few members.
    pub fn check(&self, members: &Members) -> Result<()> {
        let all = || {
            let all = members.in_force().config.members.iter();
            all.filter(|m| !m.arbiter)
        };
        let enough = match &self.w {
            W::Majority => true,
            W::Members(n) => *n as usize <= all().count(),
            W::Mode(name) => match members.in_force().config.modes.get(name) {
                Some(tags) => values(tags, all().map(|m| &m.tags)),
                None => {
                    let message = format!(
                        "No write concern mode named '{name}' found in replica set configuration"
                    );
                    return Err(Error::new(Code::UnknownReplWriteConcern, message));
                }
            },
            W::Tags(tags) => values(tags, all().map(|m| &m.tags)),
        };
        match enough {
            true => Ok(()),
            false => Err(Error::new(
                Code::UnsatisfiableWriteConcern,
                "Not enough data-bearing nodes",
            )),
        }
    }

    /// Whether the concern needs other members to sync their logs.
    pub fn waits_for_disks(&self) -> bool {
        match self.w {
            W::Majority => true,
            W::Members(n) => self.journaled && n > 1,
            W::Mode(_) | W::Tags(_) => self.journaled,
        }
    }

    /// Whether the concern could be satisfied if none of those members ever took part.
    pub fn can_do_without(&self, members: &Members, those: impl Fn(MemberId) -> bool) -> bool {
        let now = members.in_force();
        let others = || members.counted().filter(|(m, _)| !those(m.id));
        let tags_of = || others().map(|(m, _)| &m.tags);
        match &self.w {
            W::Majority => [&now.voters, &now.acknowledging()].iter().all(|voters| {
                let has_data = |id| !now.config.is_arbiter(id);
                let left = voters.iter().filter(|id| !those(**id) && has_data(**id));
                left.count() >= majority(voters.len())
            }),
            W::Members(n) => others().count() >= *n as usize,
            W::Mode(name) => {
                let tags = now.config.modes.get(name);
                tags.is_some_and(|tags| values(tags, tags_of()))
            }
            W::Tags(tags) => values(tags, tags_of()),
        }
    }

    /// Whether the concern is satisfied for the write at this place of the log.
    pub fn is_satisfied(&self, index: u64, progress: Progress<'_>) -> bool {
        let members = progress.members;
        let has = || {
            let counted = members.counted();
            counted.filter(|(_, at)| at.counts(self.journaled) >= index)
        };
        match &self.w {
            W::Majority => progress.committed >= index && wanted_majority_has(members, index),
            W::Members(n) => has().count() >= *n as usize,
            W::Mode(name) => {
                let tags = members.in_force().config.modes.get(name);
                tags.is_some_and(|tags| values(tags, has().map(|(m, _)| &m.tags)))
            }
            W::Tags(tags) => values(tags, has().map(|(m, _)| &m.tags)),
        }
    }
}

/// Whether a majority of the members that count for a write have it durably. While the members of a new set
/// catch up, fewer of them may vote yet, and a client was promised more than a commit by those alone.
fn wanted_majority_has(members: &Members, index: u64) -> bool {
    if members.all_voted_at(index) {
        return true;
    }
    let wanted = members.in_force().acknowledging();
    let has = members
        .counted()
        .filter(|(m, at)| wanted.contains(&m.id) && at.counts(true) >= index);
    has.count() >= majority(wanted.len())
}

/// Whether these members have this many different values for each tag.
fn values<'m>(
    wanted: &BTreeMap<String, u32>,
    members: impl Iterator<Item = &'m BTreeMap<String, String>> + Clone,
) -> bool {
    wanted.iter().all(|(tag, n)| {
        let different: BTreeSet<&str> = members
            .clone()
            .filter_map(|tags| tags.get(tag))
            .map(String::as_str)
            .collect();
        different.len() >= *n as usize
    })
}
