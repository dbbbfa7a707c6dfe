//! The configuration document of a replica set, as far as a set of one member has it.
//!
//! Source: the MongoDB manual, "Replica Set Configuration", and observed replies.

use crate::args::{Args, Field, Types, check_type, opt, req};
use crate::concern::W;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc, number};
use std::net::{ToSocketAddrs, UdpSocket};

/// The port of a host without one.
const DEFAULT_PORT: u16 = 27017;
/// The greatest version and `_id` of a member that there may be.
const MAX_VERSION: i64 = i32::MAX as i64;
const MAX_MEMBER_ID: i64 = 255;
/// The greatest priority.
const MAX_PRIORITY: f64 = 1000.0;

const FIELDS: &[Field] = &[
    req("_id", Types::STRING),
    req("version", Types::NUMBER),
    opt("term", Types::NUMBER),
    opt("configsvr", Types::SAFE_BOOL),
    req("members", Types::ARRAY),
    opt("protocolVersion", Types::NUMBER),
    opt("writeConcernMajorityJournalDefault", Types::SAFE_BOOL),
    opt("settings", Types::OBJECT),
];

const MEMBER: &[Field] = &[
    req("_id", Types::NUMBER),
    req("host", Types::STRING),
    opt("arbiterOnly", Types::SAFE_BOOL),
    opt("buildIndexes", Types::SAFE_BOOL),
    opt("hidden", Types::SAFE_BOOL),
    opt("priority", Types::NUMBER),
    opt("tags", Types::OBJECT),
    opt("secondaryDelaySecs", Types::NUMBER),
    opt("votes", Types::NUMBER),
];

const SETTINGS: &[Field] = &[
    opt("chainingAllowed", Types::SAFE_BOOL),
    opt("heartbeatIntervalMillis", Types::NUMBER),
    opt("heartbeatTimeoutSecs", Types::NUMBER),
    opt("electionTimeoutMillis", Types::NUMBER),
    opt("catchUpTimeoutMillis", Types::NUMBER),
    opt("catchUpTakeoverDelayMillis", Types::NUMBER),
    opt("getLastErrorModes", Types::OBJECT),
    opt("getLastErrorDefaults", Types::OBJECT),
    opt("replicaSetId", Types::ANY),
];

/// A checked configuration of a set of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    /// `_id`: the set's name.
    pub name: String,
    /// `version`.
    pub version: i64,
    /// `term`: of the primary that wrote it; `None` after a forced reconfiguration.
    pub term: Option<i64>,
    /// `members[0]._id`.
    pub member: i32,
    /// `members[0].host`.
    pub host: String,
    /// `members[0].priority`.
    pub priority: f64,
    /// `members[0].tags`.
    pub tags: DocBuf,
    /// `settings.chainingAllowed`.
    pub chaining: bool,
    /// `settings.heartbeatIntervalMillis`.
    pub heartbeat_ms: i64,
    /// `settings.heartbeatTimeoutSecs`.
    pub heartbeat_timeout_secs: i64,
    /// `settings.electionTimeoutMillis`.
    pub election_ms: i64,
    /// `settings.catchUpTimeoutMillis`.
    pub catch_up_ms: i64,
    /// `settings.catchUpTakeoverDelayMillis`.
    pub takeover_ms: i64,
    /// `settings.getLastErrorModes`.
    pub modes: DocBuf,
    /// `settings.replicaSetId`; `None` until it is initiated.
    pub id: Option<[u8; 12]>,
}

/// 93 InvalidReplicaSetConfig.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidReplicaSetConfig, message)
}

impl SetConfig {
    /// What a set is initiated with when nobody says more than its name.
    pub fn default_of(name: &str, host: String) -> SetConfig {
        SetConfig {
            name: name.to_string(),
            version: 1,
            term: None,
            member: 0,
            host,
            priority: 1.0,
            tags: DocBuf::new(),
            chaining: true,
            heartbeat_ms: 2000,
            heartbeat_timeout_secs: 10,
            election_ms: 10_000,
            catch_up_ms: -1,
            takeover_ms: 30_000,
            modes: DocBuf::new(),
            id: None,
        }
    }

    /// Checks a document; a `version` that is missing is 1 where it initiates a set.
    ///
    /// # Errors
    /// 14, 40414, 40415 for its fields; 2 for values out of range; 93 for what contradicts itself,
    /// and for more than one member.
    pub fn parse(d: Doc<'_>) -> Result<SetConfig> {
        let args = Args::parse("ReplSetConfig", FIELDS, d)?;
        let name = args.str("_id").unwrap_or_default();
        if name.is_empty() {
            return Err(invalid(
                "Replica set configuration must have non-empty _id field",
            ));
        }
        let members: Vec<_> = args
            .array("members")
            .unwrap_or(Doc::EMPTY)
            .values()
            .collect();
        let member = match members.as_slice() {
            [] => {
                return Err(invalid(
                    "Number of replica set configuration members must be between 1 and 50, but 0 were \
                 given",
                ));
            }
            [Value::Document(m)] => *m,
            [v] => {
                check_type("ReplSetConfig", "members.0", Types::OBJECT, v.ty())?;
                return Err(Error::internal("a member is no document"));
            }
            more => {
                return Err(invalid(format!(
                    "{} members are given, and a set of one member is all that is supported yet",
                    more.len()
                )));
            }
        };
        let range = |name, least, most| -> Result<Option<i64>> { args.int(name, least, most) };
        let version = range("version", 1, MAX_VERSION)?.unwrap_or(1);
        let term = range("term", -1, i64::MAX)?.filter(|t| *t >= 0);
        if let Some(v) = args.get("protocolVersion")
            && number::to_i64_clamped(v) != Some(1)
        {
            return Err(invalid(
                "Support for replication protocol versions other than 1 was removed in MongoDB 4.0",
            ));
        }
        for (name, wanted) in [
            ("configsvr", false),
            ("writeConcernMajorityJournalDefault", true),
        ] {
            if args.bool(name, wanted) != wanted {
                return Err(invalid(format!("{name}: {} is not supported", !wanted)));
            }
        }
        let mut config = SetConfig {
            version,
            term,
            ..SetConfig::default_of(name, String::new())
        };
        config.take_member(member)?;
        if let Some(settings) = args.doc("settings") {
            config.take_settings(settings)?;
        }
        Ok(config)
    }

    fn take_member(&mut self, d: Doc<'_>) -> Result<()> {
        let args = Args::parse("MemberConfig", MEMBER, d)?;
        self.member = args.int("_id", 0, MAX_MEMBER_ID)?.unwrap_or(0) as i32;
        self.host = HostPort::parse(args.str("host").unwrap_or_default())?.to_string();
        if let Some(v) = args.get("priority") {
            self.priority = number::to_f64(v).unwrap_or(f64::NAN);
            if !(0.0..=MAX_PRIORITY).contains(&self.priority) {
                return Err(Error::bad_value(format!(
                    "priority must be a value between 0 and 1000, but {} was given",
                    v.to_display()
                )));
            }
        }
        let votes = args.int("votes", 0, 1)?.unwrap_or(1);
        let delay = args.int("secondaryDelaySecs", 0, 366 * 24 * 3600)?;
        if self.priority == 0.0 || args.bool("arbiterOnly", false) {
            return Err(invalid(
                "Replica set configuration must contain at least one non-arbiter member with \
                 priority > 0",
            ));
        }
        if votes == 0 {
            return Err(Error::bad_value(
                "priority must be 0 when non-voting (votes:0)",
            ));
        }
        for (wrong, what) in [
            (args.bool("hidden", false), "hidden=true"),
            (delay.unwrap_or(0) > 0, "secondaryDelaySecs is used"),
            (!args.bool("buildIndexes", true), "buildIndexes=false"),
        ] {
            if wrong {
                return Err(Error::bad_value(format!("priority must be 0 when {what}")));
            }
        }
        if let Some(tags) = args.doc("tags") {
            for e in tags {
                if !matches!(e.value(), Value::String(_)) {
                    return Err(Error::type_mismatch(format!(
                        "tags.{} field has non-string value of type {}",
                        e.name(),
                        e.value().type_name()
                    )));
                }
            }
            self.tags = tags.to_buf();
        }
        Ok(())
    }

    fn take_settings(&mut self, d: Doc<'_>) -> Result<()> {
        let args = Args::parse("ReplSetConfig.settings", SETTINGS, d)?;
        let most = i64::from(i32::MAX);
        self.chaining = args.bool("chainingAllowed", self.chaining);
        for (name, least, at) in [
            ("heartbeatIntervalMillis", 1, &mut self.heartbeat_ms),
            ("heartbeatTimeoutSecs", 1, &mut self.heartbeat_timeout_secs),
            ("electionTimeoutMillis", 1, &mut self.election_ms),
            ("catchUpTimeoutMillis", -1, &mut self.catch_up_ms),
            ("catchUpTakeoverDelayMillis", -1, &mut self.takeover_ms),
        ] {
            if let Some(n) = args.int(name, least, most)? {
                *at = n;
            }
        }
        if let Some(defaults) = args.doc("getLastErrorDefaults") {
            let as_ever = defaults.iter().all(|e| {
                let n = number::to_i64_clamped(e.value());
                matches!((e.name(), n), ("w", Some(1)) | ("wtimeout", Some(0)))
            });
            if !as_ever {
                return Err(Error::location(
                    5_624_101,
                    "getLastErrorDefaults other than {w: 1, wtimeout: 0} are no longer \
                     supported: use setDefaultRWConcern",
                ));
            }
        }
        if let Some(modes) = args.doc("getLastErrorModes") {
            self.check_modes(modes)?;
            self.modes = modes.to_buf();
        }
        self.id = match args.get("replicaSetId") {
            None => None,
            Some(Value::ObjectId(id)) => Some(id),
            Some(v) => {
                return Err(Error::type_mismatch(format!(
                    "BSON field 'ReplSetConfig.settings.replicaSetId' is the wrong type '{}', \
                     expected type 'objectId'",
                    v.type_name()
                )));
            }
        };
        Ok(())
    }

    /// A mode asks for a number of different values of tags; one member has one of each.
    fn check_modes(&self, modes: Doc<'_>) -> Result<()> {
        for mode in modes {
            let Value::Document(tags) = mode.value() else {
                return Err(Error::type_mismatch(format!(
                    "Expected getLastErrorModes.{} to be an Object, not {}",
                    mode.name(),
                    mode.value().type_name()
                )));
            };
            for tag in tags {
                let place = format!("getLastErrorModes.{}.{}", mode.name(), tag.name());
                if !tag.value().is_number() {
                    return Err(Error::type_mismatch(format!(
                        "Expected {place} to be a number, not {}",
                        tag.value().type_name()
                    )));
                }
                let n = number::to_i64_clamped(tag.value()).unwrap_or(0);
                if n <= 0 {
                    return Err(Error::bad_value(format!(
                        "Value of {place} must be positive, but found {n}"
                    )));
                }
                if self.tags.as_doc().get(tag.name()).is_none() {
                    return Err(Error::new(
                        Code::NoSuchKey,
                        format!("No replica set member has the tag that {place} names"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// The document, as MongoDB stores and shows it.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = doc! { "_id": self.name.as_str(), "version": self.version as i32 };
        d.append_some("term", self.term);
        let member = doc! {
            "_id": self.member,
            "host": self.host.as_str(),
            "arbiterOnly": false,
            "buildIndexes": true,
            "hidden": false,
            "priority": whole_or_fraction(self.priority),
            "tags": &self.tags,
            "secondaryDelaySecs": 0_i64,
            "votes": 1,
        };
        d.append("members", [member].iter().collect::<ArrayBuf>());
        d.append("protocolVersion", 1_i64);
        d.append("writeConcernMajorityJournalDefault", true);
        let mut settings = doc! {
            "chainingAllowed": self.chaining,
            "heartbeatIntervalMillis": self.heartbeat_ms as i32,
            "heartbeatTimeoutSecs": self.heartbeat_timeout_secs as i32,
            "electionTimeoutMillis": self.election_ms as i32,
            "catchUpTimeoutMillis": self.catch_up_ms as i32,
            "catchUpTakeoverDelayMillis": self.takeover_ms as i32,
            "getLastErrorModes": &self.modes,
            "getLastErrorDefaults": doc! { "w": 1, "wtimeout": 0 },
        };
        settings.append_some("replicaSetId", self.id.map(Value::ObjectId));
        d.append("settings", settings);
        d
    }

    /// Checks the `commitQuorum` of an index build. The one member votes for what it has built, so a
    /// quorum that can be satisfied is.
    ///
    /// # Errors
    /// 9 FailedToParse; 79 for an unknown mode; 278 UnsatisfiableCommitQuorum.
    pub fn check_commit_quorum(&self, quorum: Value<'_>) -> Result<()> {
        let w = match quorum {
            Value::String("majority" | "votingMembers") => return Ok(()),
            Value::String(mode) => W::Mode(mode.into()),
            v if v.is_number() => match number::to_i64_clamped(v) {
                Some(n @ 0..=MAX_MEMBERS) => W::Nodes(n as i32),
                _ => {
                    return Err(Error::failed_to_parse(format!(
                        "commitQuorum has to be a non-negative number and not greater than \
                         {MAX_MEMBERS}"
                    )));
                }
            },
            _ => {
                return Err(Error::failed_to_parse(
                    "commitQuorum has to be a number or a string",
                ));
            }
        };
        match self.unsatisfiable(&w) {
            None => Ok(()),
            Some(e) if e.code() == Code::UnknownReplWriteConcern => Err(e),
            Some(_) => Err(Error::new(
                Code::UnsatisfiableCommitQuorum,
                "Commit quorum cannot be satisfied with the current replica set configuration",
            )),
        }
    }

    /// Why a set of one member can never acknowledge as `w` asks; `None`: it can.
    pub fn unsatisfiable(&self, w: &W) -> Option<Error> {
        let too_few = || {
            Error::new(
                Code::UnsatisfiableWriteConcern,
                "Not enough data-bearing nodes",
            )
        };
        let fits = |tags: Doc<'_>| {
            tags.iter().all(|e| {
                let n = number::to_i64_clamped(e.value()).unwrap_or(0);
                n <= 0 || n == 1 && self.tags.as_doc().get(e.name()).is_some()
            })
        };
        match w {
            W::Majority | W::Nodes(..=1) => None,
            W::Nodes(_) => Some(too_few()),
            W::Tags(tags) => (!fits(tags.as_doc())).then(too_few),
            W::Mode(mode) => match self.modes.as_doc().get_doc(mode) {
                Some(tags) => (!fits(tags)).then(too_few),
                None => Some(Error::new(
                    Code::UnknownReplWriteConcern,
                    format!(
                        "No write concern mode named '{mode}' found in replica set configuration"
                    ),
                )),
            },
        }
    }
}

/// Most members of a set in MongoDB.
const MAX_MEMBERS: i64 = 50;

/// MongoDB shows a whole priority as one.
fn whole_or_fraction(n: f64) -> Value<'static> {
    match n.fract() == 0.0 {
        true => Value::Int32(n as i32),
        false => Value::Double(n),
    }
}

/// A member's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// `host`, `host:port` or `[ipv6]:port`.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn parse(text: &str) -> Result<HostPort> {
        let wrong = |why: &str| {
            Error::failed_to_parse(format!("{why} parsing HostAndPort from \"{text}\""))
        };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or_else(|| wrong("Missing ']'"))?;
                match behind.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if behind.is_empty() => (host, None),
                    None => return Err(wrong("Extraneous characters after ']'")),
                }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("Empty host component"));
        }
        let port = match port.map(str::parse::<u16>) {
            None => DEFAULT_PORT,
            Some(Ok(n)) if n > 0 => n,
            Some(_) => return Err(wrong("Port number is out of range")),
        };
        Ok(HostPort {
            host: host.to_string(),
            port,
        })
    }

    /// The address of a server that listens on `port` of these addresses, as MongoDB chooses it: the
    /// first that others can reach, the machine's name where it listens on all, else the first one.
    pub fn of_listener(bind_ip: &[String], port: u16, machine: &str) -> HostPort {
        let mut addresses = bind_ip.iter().filter(|a| !a.contains('/'));
        let mut all = false;
        for a in addresses.clone() {
            let name = if a == "*" { "0.0.0.0" } else { a };
            for found in (name, port).to_socket_addrs().into_iter().flatten() {
                if found.ip().is_unspecified() {
                    all = true;
                } else if !found.ip().is_loopback() {
                    let host = a.clone();
                    return HostPort { host, port };
                }
            }
        }
        let host = match all {
            true => machine.to_string(),
            false => addresses
                .next()
                .map_or_else(|| "localhost".to_string(), Clone::clone),
        };
        HostPort { host, port }
    }

    /// Whether it leads to a server of this machine that listens on `port`.
    pub fn is_own(&self, port: u16, machine: &str) -> bool {
        if self.port != port {
            return false;
        }
        if self.host == machine || self.host == "localhost" {
            return true;
        }
        let found = (self.host.as_str(), port).to_socket_addrs();
        // Only what is an address of this machine can be bound.
        found.into_iter().flatten().any(|a| {
            !a.ip().is_unspecified()
                && (a.ip().is_loopback() || UdpSocket::bind((a.ip(), 0)).is_ok())
        })
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::array;

    fn of(member: DocBuf) -> Result<SetConfig> {
        SetConfig::parse(doc! { "_id": "rs", "version": 1, "members": array![member] }.as_doc())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut c = SetConfig::default_of("rs", "h:1".to_string());
        c.tags = doc! { "dc": "x" };
        c.modes = doc! { "m": doc! { "dc": 1 } };
        (c.priority, c.term, c.id) = (2.5, Some(3), Some([7; 12]));
        assert_eq!(SetConfig::parse(c.to_doc().as_doc()).unwrap(), c);
    }

    #[test]
    fn illegal_configurations() {
        let member = || doc! { "_id": 0, "host": "h:1" };
        let with = |name: &str, v: Value<'_>| {
            let mut m = member();
            m.append(name, v);
            of(m).unwrap_err().code().0
        };
        assert_eq!(of(member()).unwrap().host, "h:1");
        for (name, v, code) in [
            ("priority", Value::Int32(0), 93),
            ("priority", Value::Int32(1001), 2),
            ("priority", Value::String("1"), 14),
            ("arbiterOnly", Value::Bool(true), 93),
            ("votes", Value::Int32(0), 2),
            ("votes", Value::Int32(2), 2),
            ("hidden", Value::Bool(true), 2),
            ("buildIndexes", Value::Bool(false), 2),
            ("secondaryDelaySecs", Value::Int32(1), 2),
            ("slaveDelay", Value::Int32(1), 40415),
            ("foo", Value::Int32(1), 40415),
            ("tags", Value::Document(doc! { "a": 1 }.as_doc()), 14),
        ] {
            assert_eq!(with(name, v), code, "{name}");
        }
        for (d, code) in [
            (doc! { "version": 1, "members": array![member()] }, 40414),
            (doc! { "_id": "rs", "members": array![member()] }, 40414),
            (doc! { "_id": "rs", "version": 1 }, 40414),
            (
                doc! { "_id": "", "version": 1, "members": array![member()] },
                93,
            ),
            (doc! { "_id": "rs", "version": 1, "members": array![] }, 93),
            (doc! { "_id": "rs", "version": 1, "members": array![1] }, 14),
            (
                doc! { "_id": "rs", "version": 1, "members": array![member(), member()] },
                93,
            ),
            (
                doc! { "_id": "rs", "version": 1, "members": array![member()], "protocolVersion": 0 },
                93,
            ),
            (
                doc! { "_id": "rs", "version": 1, "members": array![member()], "configsvr": true },
                93,
            ),
            (
                doc! { "_id": "rs", "version": 1, "members": array![member()],
                "settings": doc! { "getLastErrorModes": doc! { "m": doc! { "dc": 1 } } } },
                4,
            ),
            (
                doc! { "_id": "rs", "version": 1, "members": array![member()],
                "settings": doc! { "getLastErrorDefaults": doc! { "w": 2 } } },
                5_624_101,
            ),
        ] {
            let e = SetConfig::parse(d.as_doc()).unwrap_err();
            assert_eq!(e.code().0, code, "{d:?}: {e}");
        }
    }

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("h", "h:27017"),
            ("h:1", "h:1"),
            ("[::1]:2", "[::1]:2"),
            ("[::1]", "[::1]:27017"),
        ] {
            assert_eq!(HostPort::parse(text).unwrap().to_string(), shown);
        }
        for text in ["", ":1", "h:", "h:0", "h:70000", "h:x", "[::1", "[::1]x"] {
            assert_eq!(
                HostPort::parse(text).unwrap_err().code(),
                Code::FailedToParse
            );
        }
        let own = |text: &str| HostPort::parse(text).unwrap().is_own(7, "machine");
        assert!(own("127.0.0.1:7") && own("localhost:7") && own("machine:7") && own("[::1]:7"));
        assert!(
            !own("127.0.0.1:8") && !own("machine:8") && !own("0.0.0.0:7") && !own("192.0.2.1:7")
        );
        let chosen = |all: &[&str]| {
            let all: Vec<_> = all.iter().map(|s| (*s).to_string()).collect();
            HostPort::of_listener(&all, 7, "machine").to_string()
        };
        assert_eq!(chosen(&["127.0.0.1", "::1"]), "127.0.0.1:7");
        assert_eq!(chosen(&["/tmp/x.sock"]), "localhost:7");
        assert_eq!(chosen(&["127.0.0.1", "192.0.2.1"]), "192.0.2.1:7");
        assert_eq!(chosen(&["0.0.0.0"]), "machine:7");
    }

    #[test]
    fn who_can_acknowledge() {
        let mut c = SetConfig::default_of("rs", "h:1".to_string());
        c.tags = doc! { "dc": "x" };
        c.modes = doc! { "one": doc! { "dc": 1 }, "two": doc! { "dc": 2 } };
        let code = |w: W| c.unsatisfiable(&w).map_or(0, |e| e.code().0);
        assert_eq!(
            [code(W::Majority), code(W::Nodes(0)), code(W::Nodes(1))],
            [0; 3]
        );
        assert_eq!([code(W::Nodes(2)), code(W::Nodes(50))], [100; 2]);
        assert_eq!(code(W::Mode("one".into())), 0);
        assert_eq!(code(W::Mode("two".into())), 100);
        assert_eq!(code(W::Mode("three".into())), 79);
        assert_eq!(code(W::Tags(doc! { "dc": 1 })), 0);
        assert_eq!(code(W::Tags(doc! { "dc": 2 })), 100);
        assert_eq!(code(W::Tags(doc! { "rack": 1 })), 100);

        let code = |v: Value<'_>| c.check_commit_quorum(v).map_or_else(|e| e.code().0, |()| 0);
        for (quorum, want) in [
            (Value::String("majority"), 0),
            (Value::String("votingMembers"), 0),
            (Value::String("one"), 0),
            (Value::String("two"), 278),
            (Value::String("three"), 79),
            (Value::Int32(0), 0),
            (Value::Int64(1), 0),
            (Value::Double(2.0), 278),
            (Value::Int32(50), 278),
            (Value::Int32(51), 9),
            (Value::Int32(-1), 9),
            (Value::Bool(true), 9),
        ] {
            assert_eq!(code(quorum), want, "{quorum:?}");
        }
    }
}
