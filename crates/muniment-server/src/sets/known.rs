//! What is known of the members of a set, and which of them is asked.

use crate::read_preference::{Candidate, Mode, ReadPreference};
use muniment_value::{Code, Doc, Error, Result, Value};
use std::time::{Duration, Instant};

/// All members are asked again after this time, for reads of secondaries.
const ALL_EVERY: Duration = Duration::from_secs(10);

/// The member that is asked.
#[derive(Clone, Copy, Debug)]
pub enum Reach<'h> {
    /// The primary.
    Primary,
    /// One that this allows.
    By(ReadPreference<'h>),
    /// This one, as a cursor needs.
    Host(&'h str),
}

impl<'h> Reach<'h> {
    /// The members that a command with this preference may go to.
    pub fn of(preference: Option<ReadPreference<'h>>) -> Reach<'h> {
        match preference {
            Some(preference) if preference.mode != Mode::Primary => Reach::By(preference),
            _ => Reach::Primary,
        }
    }
}

/// What is known of the members of a set.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// All members.
    pub hosts: Vec<String>,
    /// The one that leads.
    pub primary: Option<Candidate>,
    /// The newest election that a primary told of.
    pub election: [u8; 12],
    /// Those that follow.
    pub secondaries: Vec<Candidate>,
    /// Counts the choices among the secondaries.
    pub turn: usize,
    /// When all members were last asked.
    pub looked: Option<Instant>,
}

impl Known {
    /// Whether the members are to be asked again before one is chosen.
    pub fn is_old(&self, reach: Reach<'_>) -> bool {
        let first = [Mode::Primary, Mode::PrimaryPreferred];
        let wants_all = matches!(reach, Reach::By(p) if !first.contains(&p.mode));
        wants_all
            && self
                .looked
                .is_none_or(|at| muniment_op::since(at) > ALL_EVERY)
    }

    /// The member that is asked, if one is known that may be.
    pub fn pick(&mut self, reach: Reach<'_>) -> Option<String> {
        let primary = self.primary.as_ref();
        let chosen = match reach {
            Reach::Host(host) => return Some(host.to_string()),
            Reach::Primary => primary,
            Reach::By(preference) => {
                self.turn = self.turn.wrapping_add(1);
                preference.choose(primary, &self.secondaries, self.turn, ALL_EVERY)
            }
        };
        chosen.map(|c| c.host.clone())
    }

    /// Takes what a member says of its set.
    ///
    /// # Errors
    /// 94 NotYetInitialized if it is of another set, or of none.
    pub fn learn(
        &mut self,
        set: &str,
        (host, hello): (&str, Doc<'_>),
        takes: Duration,
    ) -> Result<()> {
        let name = hello.get_str("setName");
        if name != Some(set) {
            return Err(Error::new(
                Code::NotYetInitialized,
                format!(
                    "{host} is {} and not of the set {}",
                    name.map_or("of no set yet".to_string(), |n| format!("of the set {n}")),
                    set
                ),
            ));
        }
        let hosts = hello.get_array("hosts").unwrap_or(Doc::EMPTY);
        let hosts: Vec<String> = (hosts.values())
            .filter_map(|h| h.as_str().map(str::to_string))
            .collect();
        let is = |field| hello.get(field).is_some_and(|v| v.truthy());
        let me = hello.get_str("me").unwrap_or(host);
        let written = hello
            .get_doc("lastWrite")
            .and_then(|d| d.get("lastWriteDate"));
        let lag_ms = match written {
            Some(Value::DateTime(at)) => muniment_op::wall_ms().saturating_sub(at),
            _ => 0,
        };
        // A longer time counts little, since a machine may have been busy once.
        let before = self.primary.iter().chain(&self.secondaries);
        let before = before.filter(|c| c.host == me).map(|c| c.takes).next();
        let takes = match before {
            Some(before) if before < takes => before + (takes - before) / 5,
            _ => takes,
        };
        let told = Candidate {
            host: me.to_string(),
            tags: hello.get_doc("tags").unwrap_or(Doc::EMPTY).to_buf(),
            lag_ms,
            takes,
        };
        let election = match hello.get("electionId") {
            Some(Value::ObjectId(id)) => id,
            _ => [0; 12],
        };
        // One that was parted from the others may not know yet that it leads no more.
        if is("isWritablePrimary") && election >= self.election {
            self.election = election;
            self.primary = Some(told);
            self.secondaries.retain(|c| c.host != me);
            self.hosts = hosts;
        } else {
            if self.primary.as_ref().is_some_and(|p| p.host == me) {
                self.primary = None;
            }
            for host in hosts {
                if !self.hosts.contains(&host) {
                    self.hosts.push(host);
                }
            }
            self.secondaries.retain(|c| c.host != me);
            if is("secondary") {
                self.secondaries.push(told);
            }
        }
        Ok(())
    }

    /// Forgets what is known of a member.
    pub fn forget(&mut self, host: &str) {
        if self.primary.as_ref().is_some_and(|p| p.host == host) {
            self.primary = None;
        }
        self.secondaries.retain(|c| c.host != host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_chosen_as_the_read_preference_says() {
        let member = |host: &str| Candidate {
            host: host.into(),
            ..Candidate::default()
        };
        let mut known = Known {
            primary: Some(member("p:1")),
            secondaries: vec![member("s:1"), member("s:2")],
            ..Known::default()
        };
        let by = |mode| Reach::By(ReadPreference::of(mode));
        assert_eq!(known.pick(Reach::Primary).as_deref(), Some("p:1"));
        assert_eq!(
            known.pick(by(Mode::PrimaryPreferred)).as_deref(),
            Some("p:1")
        );
        let turns = [0; 4].map(|_| known.pick(by(Mode::Secondary)));
        assert_ne!(turns[0], turns[1]);
        assert_eq!(turns[0], turns[2]);
        known.primary = None;
        assert_eq!(
            known.pick(by(Mode::PrimaryPreferred)).as_deref(),
            Some("s:1")
        );
        assert_eq!(known.pick(Reach::Primary), None);
        known = Known {
            primary: Some(member("p:1")),
            ..Known::default()
        };
        assert_eq!(known.pick(by(Mode::Secondary)), None);
        assert_eq!(
            known.pick(by(Mode::SecondaryPreferred)).as_deref(),
            Some("p:1")
        );
        assert_eq!(known.pick(Reach::Host("h:1")).as_deref(), Some("h:1"));
    }
}
