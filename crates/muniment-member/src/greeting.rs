//! What a member says of itself when it opens a connection to another one, and what it hears.
//!
//! Members of different versions of this program work together in one set. So each says which
//! versions of the members' protocol it can speak, from [`LEAST`] to [`NEWEST`], and the called member
//! refuses a caller with which it has none in common. A member ignores fields that it does not know: a
//! message has to make sense without what a version adds, or be sent only to a member that says that it
//! knows the version. The answer says the same of the called member.
//!
//! A member is identified by its number. It says where it is, too: the address that a configuration has
//! for it and that is one of its own server. That tells two processes with copies of one directory apart,
//! since a configuration has one address for each number. A server that finds none of its own addresses
//! may be called, and no member accepts its calls.
//!
//! Must not trust what it hears.

use super::SetConfig;
use super::host_port::HostPort;
use muniment_consensus::{Config, InForce, Member, MemberId};
use muniment_logger::hostname;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};

/// The least version that this program speaks.
pub const LEAST: i64 = 1;
/// The newest one. It is raised when what members say to each other changes.
pub const NEWEST: i64 = 1;

/// The field of a command between members that has the greeting in it.
pub const FIELD: &str = "greeting";
/// The field of a refusal with the configuration that the refusing member goes by.
const IN_FORCE: &str = "inForce";
/// Numbers of members, which are never used again, stay below this.
const MOST_NUMBERS: MemberId = 1 << 62;

/// See the module's head.
#[derive(Clone, Debug, PartialEq)]
pub struct Greeting {
    /// `settings.replicaSetId` of the set.
    pub set: Option<[u8; 12]>,
    /// The caller's number.
    pub from: MemberId,
    /// The number of the member that it means.
    pub to: MemberId,
    /// Where the caller is; `None`: the configuration has no address for it that is its own.
    pub host: Option<String>,
    /// The configuration that the caller goes by.
    pub in_force: InForce,
}

/// Which versions this program speaks, in a greeting and in the answer to one.
fn versions() -> DocBuf {
    doc! { "least": LEAST, "newest": NEWEST }
}

/// What the called member answers to a greeting.
pub fn answer() -> DocBuf {
    versions()
}

impl Greeting {
    /// As a field of a command.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = versions();
        d.append("from", self.from as i64);
        d.append("to", self.to as i64);
        d.append_some("host", self.host.as_deref());
        let bytes = &self.in_force.to_bytes();
        d.append(IN_FORCE, Value::Binary { subtype: 0, bytes });
        d.append_some("setId", self.set.map(Value::ObjectId));
        d
    }

    /// From the command that has it.
    ///
    /// # Errors
    /// 188 where the two have no version in common; 9 for one that is none.
    pub fn of(command: Doc<'_>) -> Result<Greeting> {
        let d = command.get_doc(FIELD).unwrap_or(Doc::EMPTY);
        let int = |name: &str| d.get(name).and_then(number::to_i64_exact);
        let (least, newest) = (int("least").unwrap_or(0), int("newest").unwrap_or(0));
        if least > NEWEST || newest < LEAST {
            return Err(Error::new(
                Code::IncompatibleServerVersion,
                format!(
                    "the members have no version of what they say to each other in common: this one \
                     speaks {LEAST} to {NEWEST}, the caller {least} to {newest}. Upgrade by one release \
                     at a time"
                ),
            ));
        }
        let place = |name: &str| {
            let n = int(name).and_then(|n| u64::try_from(n).ok());
            n.filter(|n| *n > 0)
        };
        let (Some(from), Some(to), Some(in_force)) = (place("from"), place("to"), in_force_of(d))
        else {
            return Err(Error::failed_to_parse(
                "greeting: from, to and inForce have to be given",
            ));
        };
        if from == to {
            return Err(Error::failed_to_parse("greeting: from this server itself"));
        }
        Ok(Greeting {
            set: match d.get("setId") {
                Some(Value::ObjectId(id)) => Some(id),
                _ => None,
            },
            from,
            to,
            host: d.get_str("host").map(str::to_string),
            in_force,
        })
    }

    /// Checks that the caller is the member that it says it is, by the newer of its configuration and
    /// `mine`. One that is to go and still votes has an address in neither: its own acknowledgement may
    /// be what its going waits for.
    ///
    /// # Errors
    /// 74 if it is no member, or that member is elsewhere.
    pub fn check(&self, mine: &InForce) -> Result<()> {
        let theirs = &self.in_force;
        let newer = match theirs.config.version > mine.config.version {
            true => &theirs.config,
            false => &mine.config,
        };
        match is_at(newer, self.from, self.host.as_deref()) {
            Err(_) if is_going(mine, self.from) => Ok(()),
            Ok(()) => Ok(()),
            Err(e) => Err(with_config(e, mine)),
        }
    }
}

/// Checks a configuration that another server tells of, before this one goes by it: no start could take
/// up what is not one of the set `name`, or what nobody votes in.
///
/// # Errors
/// 93; what [`SetConfig::parse`] raises for its document.
pub fn check_config(config: &Config, name: &str) -> Result<()> {
    let document = SetConfig::parse(Doc::new(&config.document))?;
    let core = document.to_core();
    let same = |(a, b): (&Member, &Member)| {
        Member {
            id: b.id,
            ..a.clone()
        } == *b
    };
    let members = config.members.len() == core.members.len()
        && core.members.iter().zip(&config.members).all(same);
    let forced = config.forced_voters().unwrap_or_default();
    let votes = |id: &MemberId| config.member(*id).is_some_and(|m| m.votes);
    let stores = |id: &MemberId| !config.is_arbiter(*id);
    let why = match () {
        () if document.name != name => "it is that of another set",
        () if core.version != config.version || core.modes != config.modes || !members => {
            "it contradicts its document"
        }
        () if !config.wanted_voters().iter().any(stores) => "nobody votes in it",
        () if !(forced.is_empty() || forced.iter().all(votes) && forced.iter().any(stores)) => {
            "those are to vote that cannot"
        }
        () if config.next_id > MOST_NUMBERS => "its numbers leave none for new members",
        () => return Ok(()),
    };
    let told = format!("the configuration that another member tells of cannot be used: {why}");
    Err(Error::new(Code::InvalidReplicaSetConfig, told))
}

/// Whether the member is to go, and votes until that is committed.
pub fn is_going(in_force: &InForce, member: MemberId) -> bool {
    in_force.voters.contains(&member) && in_force.config.member(member).is_none()
}

/// Whether the configuration has this address for the member.
///
/// # Errors
/// 74 if it has another one, or no such member.
pub fn is_at(config: &Config, member: MemberId, host: Option<&str>) -> Result<()> {
    let refused = |why: String| Err(Error::new(Code::NodeNotFound, why));
    match (config.member(member), host) {
        (None, _) => refused(format!(
            "number {member} is no member of the replica set any more (configuration {})",
            config.version
        )),
        (Some(m), Some(host)) if m.host == host => Ok(()),
        (Some(m), host) => refused(format!(
            "member number {member} is at {} in configuration {}, and the caller is {}",
            m.host,
            config.version,
            host.map_or("at none of its addresses".to_string(), |h| format!(
                "at {h}"
            )),
        )),
    }
}

/// A refusal that says what the configuration is meanwhile.
pub fn with_config(e: Error, in_force: &InForce) -> Error {
    let bytes = &in_force.to_bytes();
    e.with_extra(doc! { "inForce": Value::Binary { subtype: 0, bytes } })
}

/// The configuration that a refusal has told of.
pub fn config_of(refusal: &Error) -> Option<InForce> {
    in_force_of(refusal.extra().as_doc())
}

fn in_force_of(d: Doc<'_>) -> Option<InForce> {
    match d.get(IN_FORCE) {
        Some(Value::Binary { bytes, .. }) => InForce::of_bytes(bytes),
        _ => None,
    }
}

/// Whether the configuration has the member at an address of this server, which listens on this port.
pub fn is_here(port: u16, config: &Config, member: MemberId) -> bool {
    let found = config.member(member);
    let host = found.and_then(|m| HostPort::parse(&m.host).ok());
    host.is_some_and(|h| h.is_own(port, &hostname()))
}

/// The address that the configuration has for the member, if it is one of this server, which listens on this
/// port.
pub fn own_address(port: u16, config: &Config, member: MemberId) -> Option<String> {
    let here = is_here(port, config, member);
    Some(config.member(member).filter(|_| here)?.host.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn in_force(version: u64, hosts: &[&str]) -> InForce {
        let members = hosts.iter().enumerate().map(|(i, host)| Member {
            id: i as u64 + 1,
            key: i as i32,
            host: (*host).to_string(),
            votes: true,
            priority: 1000,
            arbiter: false,
            tags: Default::default(),
        });
        InForce {
            config: Config {
                version,
                next_id: 9,
                members: members.collect(),
                ..Config::default()
            },
            ..InForce::default()
        }
    }

    fn greeting() -> Greeting {
        Greeting {
            set: Some([7; 12]),
            from: 1,
            to: 2,
            host: Some("a:1".to_string()),
            in_force: in_force(3, &["a:1", "b:1"]),
        }
    }

    fn of(greeting: DocBuf) -> Result<Greeting> {
        Greeting::of(doc! { "_replSetStream": "rs", "greeting": greeting }.as_doc())
    }

    fn with(versions: DocBuf) -> DocBuf {
        let mut d = versions;
        for e in greeting().to_doc().as_doc() {
            if !matches!(e.name(), "least" | "newest") {
                d.append_elem(e);
            }
        }
        d
    }

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        assert_eq!(of(greeting().to_doc()).unwrap(), greeting());
        let unnamed = Greeting {
            host: None,
            set: None,
            ..greeting()
        };
        assert_eq!(of(unnamed.to_doc()).unwrap(), unnamed);
        // What a later version adds.
        let mut more = greeting().to_doc();
        more.append("flags", doc! { "a": 1 });
        assert_eq!(of(more).unwrap(), greeting());
    }

    #[test]
    fn versions_that_do_not_fit_are_refused() {
        for (least, newest, code) in [
            (LEAST, NEWEST, 0),
            (NEWEST, NEWEST + 5, 0),
            (0, LEAST, 0),
            (NEWEST + 1, NEWEST + 5, 188),
            (0, LEAST - 1, 188),
        ] {
            let read = of(with(doc! { "least": least, "newest": newest }));
            let found = read.map_or_else(|e| e.code().0, |_| 0);
            assert_eq!(found, code, "{least} to {newest}");
        }
        assert_eq!(of(doc! {}).unwrap_err().code().0, 188);
        assert_eq!(of(answer()).unwrap_err().code().0, 9);
    }

    /// A number is one member's, at one address, by the newer of the two configurations.
    #[test]
    fn who_calls_is_the_member_that_it_says_it_is() {
        for (mine, code) in [
            (in_force(3, &["a:1", "b:1"]), 0),
            (in_force(2, &["x:1", "b:1"]), 0),
            (in_force(4, &["x:1", "b:1"]), 74),
            (in_force(4, &[]), 74),
        ] {
            let checked = greeting().check(&mine);
            assert_eq!(checked.as_ref().map_or_else(|e| e.code().0, |()| 0), code);
            if let Err(e) = checked {
                assert_eq!(config_of(&e), Some(mine));
            }
        }
        let unnamed = Greeting {
            host: None,
            ..greeting()
        };
        assert!(unnamed.check(&in_force(2, &["a:1"])).is_err());
    }
}
