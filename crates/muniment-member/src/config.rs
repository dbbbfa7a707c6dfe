//! The configuration document of a replica set.
//!
//! Source: the MongoDB manual, "Replica Set Configuration", and observed replies.

use super::host_port::HostPort;
use super::member_config::{MemberConfig, invalid};
use crate::concern::W;
use muniment_value::args::{Args, Field, Types, check_type, opt, req};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc, number};
use std::collections::{BTreeMap, HashSet};

/// The collection in which MongoDB, and a version of this program before sets, stores a configuration.
pub const COLLECTION: &str = "local.system.replset";
/// The greatest version that there may be.
pub const MAX_VERSION: i64 = i32::MAX as i64;
/// Most members of a set, and most that vote.
const MAX_MEMBERS: usize = 50;
const MAX_VOTERS: usize = 7;

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

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    /// `_id`: the set's name.
    pub name: String,
    /// `version`.
    pub version: i64,
    /// `term`: of the primary that wrote it; `None` after a forced reconfiguration.
    pub term: Option<i64>,
    /// `members`, at least one.
    pub members: Vec<MemberConfig>,
    /// `configsvr`: the set holds the configuration of a cluster of shards.
    pub of_config: bool,
    /// `settings.heartbeatIntervalMillis`.
    pub heartbeat_ms: i64,
    /// `settings.heartbeatTimeoutSecs`.
    pub heartbeat_timeout_secs: i64,
    /// `settings.electionTimeoutMillis`.
    pub election_ms: i64,
    /// `settings.getLastErrorModes`.
    pub modes: DocBuf,
    /// `settings.replicaSetId`; `None` until it is initiated.
    pub id: Option<[u8; 12]>,
}

/// `settings.catchUpTimeoutMillis` and `settings.catchUpTakeoverDelayMillis`, which nothing here goes by.
const CATCH_UP_MS: i32 = -1;
const TAKEOVER_MS: i32 = 30_000;

impl SetConfig {
    /// The configuration of a set with this name and one member at this address, all else being the default.
    pub fn default_of(name: &str, host: String) -> SetConfig {
        SetConfig {
            members: vec![MemberConfig::new(0, host)],
            ..SetConfig::without_members(name)
        }
    }

    fn without_members(name: &str) -> SetConfig {
        SetConfig {
            name: name.to_string(),
            version: 1,
            term: None,
            members: Vec::new(),
            of_config: false,
            heartbeat_ms: 2000,
            heartbeat_timeout_secs: 10,
            election_ms: 10_000,
            modes: DocBuf::new(),
            id: None,
        }
    }

    /// Checks a document.
    ///
    /// # Errors
    /// 14, 40414, 40415 for its fields; 2 for values out of range; 93 for what contradicts itself or
    /// is not supported.
    pub fn parse(d: Doc<'_>) -> Result<SetConfig> {
        let args = Args::parse("ReplSetConfig", FIELDS, d)?;
        let name = args.str("_id").unwrap_or_default();
        if name.is_empty() {
            return Err(invalid(
                "Replica set configuration must have non-empty _id field",
            ));
        }
        let version = args.int("version", 1, MAX_VERSION)?.unwrap_or(1);
        let term = args.int("term", -1, i64::MAX)?.filter(|t| *t >= 0);
        if let Some(v) = args.get("protocolVersion")
            && number::to_i64_clamped(v) != Some(1)
        {
            return Err(invalid(
                "Support for replication protocol versions other than 1 was removed in MongoDB 4.0",
            ));
        }
        if !args.bool("writeConcernMajorityJournalDefault", true) {
            return Err(invalid(
                "writeConcernMajorityJournalDefault: false is not supported",
            ));
        }
        let mut config = SetConfig {
            version,
            term,
            of_config: args.bool("configsvr", false),
            ..SetConfig::without_members(name)
        };
        for (i, v) in args
            .array("members")
            .unwrap_or(Doc::EMPTY)
            .values()
            .enumerate()
        {
            check_type(
                "ReplSetConfig",
                &format!("members.{i}"),
                Types::OBJECT,
                v.ty(),
            )?;
            let member = MemberConfig::parse(v.as_doc().unwrap_or(Doc::EMPTY))?;
            config.members.push(member);
        }
        config.check_members()?;
        if let Some(settings) = args.doc("settings") {
            config.take_settings(settings)?;
        }
        Ok(config)
    }

    /// What the members are together.
    fn check_members(&self) -> Result<()> {
        let members = &self.members;
        if !(1..=MAX_MEMBERS).contains(&members.len()) {
            return Err(invalid(format!(
                "Replica set configuration contains {} members, but must have at least 1 and no more \
                 than {MAX_MEMBERS} members",
                members.len()
            )));
        }
        for (j, b) in members.iter().enumerate() {
            for (i, a) in members.iter().enumerate().take(j) {
                let same = |field: &str, of: &str| {
                    Error::bad_value(format!(
                        "Found two member configurations with same {field} field, \
                         members.{i}.{field} == members.{j}.{field} == {of}"
                    ))
                };
                if a.id == b.id {
                    return Err(same("_id", &a.id.to_string()));
                }
                if a.host == b.host {
                    return Err(same("host", &a.host));
                }
            }
        }
        let is_local = |m: &&MemberConfig| HostPort::parse(&m.host).is_ok_and(|h| h.is_local());
        let local = members.iter().filter(is_local).count();
        if local > 0 && local < members.len() {
            return Err(Error::bad_value(format!(
                "Either all host names in a replica set configuration must be localhost references, or \
                 none must be; found {local} out of {}",
                members.len()
            )));
        }
        let voters = self.voters().count();
        if !(1..=MAX_VOTERS).contains(&voters) {
            return Err(Error::bad_value(format!(
                "Replica set configuration contains {voters} voting members, but must be at least 1 \
                 and no more than {MAX_VOTERS}"
            )));
        }
        if !members.iter().any(MemberConfig::electable) {
            return Err(invalid(
                "Replica set configuration must contain at least one non-arbiter member with \
                 priority > 0",
            ));
        }
        Ok(())
    }

    fn take_settings(&mut self, d: Doc<'_>) -> Result<()> {
        let args = Args::parse("ReplSetConfig.settings", SETTINGS, d)?;
        let most = i64::from(i32::MAX);
        for (name, least, at) in [
            ("heartbeatIntervalMillis", 1, &mut self.heartbeat_ms),
            ("heartbeatTimeoutSecs", 1, &mut self.heartbeat_timeout_secs),
            ("electionTimeoutMillis", 1, &mut self.election_ms),
        ] {
            if let Some(n) = args.int(name, least, most)? {
                *at = n;
            }
        }
        for (name, usual) in [
            ("catchUpTimeoutMillis", CATCH_UP_MS),
            ("catchUpTakeoverDelayMillis", TAKEOVER_MS),
        ] {
            if args
                .int(name, -1, most)?
                .is_some_and(|n| n != i64::from(usual))
            {
                return Err(invalid(format!(
                    "{name} other than {usual} is not supported: who is elected has everything that \
                     was committed, and catches up with nobody"
                )));
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

    /// A mode asks for a number of different values of tags, which some member has to have.
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
                if self.members.iter().all(|m| m.tag(tag.name()).is_none()) {
                    return Err(Error::new(
                        Code::NoSuchKey,
                        format!("No replica set member has the tag that {place} names"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// The member with this `_id`.
    pub fn member(&self, id: i32) -> Option<&MemberConfig> {
        self.members.iter().find(|m| m.id == id)
    }

    /// What of it the consensus needs; the members have no numbers yet.
    pub fn to_core(&self) -> muniment_consensus::Config {
        let modes = self.modes.as_doc();
        muniment_consensus::Config {
            version: self.version as u64,
            next_id: 0,
            members: self.members.iter().map(MemberConfig::to_core).collect(),
            modes: modes
                .iter()
                .filter_map(|e| Some((e.name().to_string(), counts(e.value().as_doc()?))))
                .collect(),
            document: self.to_doc().into_bytes(),
            more: BTreeMap::new(),
        }
    }

    /// Checks that there may be such a version.
    ///
    /// # Errors
    /// 103.
    pub fn check_version(&self) -> Result<()> {
        match self.version <= MAX_VERSION {
            true => Ok(()),
            false => Err(Error::new(
                Code::NewReplicaSetConfigurationIncompatible,
                "there is no version after that of the configuration in force",
            )),
        }
    }

    /// Those that vote.
    pub fn voters(&self) -> impl Iterator<Item = &MemberConfig> {
        self.members.iter().filter(|m| m.votes)
    }

    /// Votes that elect a primary.
    fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// Those that store data.
    pub fn with_data(&self) -> impl Iterator<Item = &MemberConfig> + Clone {
        self.members.iter().filter(|m| !m.arbiter)
    }

    /// `writableVotingMembersCount`: those that vote and store data.
    pub fn writable_voters(&self) -> usize {
        self.voters().filter(|m| !m.arbiter).count()
    }

    /// Whether a write that names no write concern waits for a majority. With arbiters a primary may stay
    /// primary while no majority can acknowledge anything, if all members with data are needed for that; then
    /// such writes do not wait.
    pub fn implies_majority(&self) -> bool {
        let arbiters = self.members.len() - self.with_data().count();
        arbiters == 0 || self.writable_voters() > self.majority()
    }

    /// Checks the arbiters of a configuration by which a set is initiated or changed. A set that has more
    /// already stays as it is.
    ///
    /// # Errors
    /// 93 for more than one arbiter unless `many_arbiters`.
    pub fn check_arbiters(&self, many_arbiters: bool) -> Result<()> {
        let arbiters = self.members.len() - self.with_data().count();
        match arbiters > 1 && !many_arbiters {
            false => Ok(()),
            true => Err(invalid(
                "Multiple arbiters are not allowed unless all nodes were started with \
                 --setParameter 'allowMultipleArbiters=true'",
            )),
        }
    }

    /// The member that this server is, listening on `port` of a machine of this name.
    pub fn own(&self, port: u16, machine: &str) -> Option<&MemberConfig> {
        let is_own = |m: &&MemberConfig| {
            HostPort::parse(&m.host).is_ok_and(|host| host.is_own(port, machine))
        };
        self.members.iter().find(is_own)
    }

    /// # Errors
    /// 103 if one is of a set that holds the configuration of a cluster, and the other is not.
    fn check_kind(&self, old: &SetConfig) -> Result<()> {
        match self.of_config == old.of_config {
            true => Ok(()),
            false => Err(Error::new(
                Code::NewReplicaSetConfigurationIncompatible,
                "New and old configurations differ in configsvr: a set holds the configuration of a \
                 cluster, or it does not",
            )),
        }
    }

    /// Checks that it may follow on `old`.
    ///
    /// # Errors
    /// 103 NewReplicaSetConfigurationIncompatible.
    pub fn check_follows(&self, old: &SetConfig, force: bool) -> Result<()> {
        let differs = |what: String| Error::new(Code::NewReplicaSetConfigurationIncompatible, what);
        self.check_kind(old)?;
        if self.name != old.name {
            return Err(differs(format!(
                "New and old configurations differ in replica set name; old was {}, and new is {}",
                old.name, self.name
            )));
        }
        if self.id.is_some() && self.id != old.id {
            return Err(differs(
                "New and old configurations differ in replica set ID".to_string(),
            ));
        }
        for m in &self.members {
            if let Some(o) = old
                .members
                .iter()
                .find(|o| o.host == m.host && o.id != m.id)
            {
                return Err(differs(format!(
                    "New and old configurations both have members with host of {} but in the new \
                     configuration the _id field is {} and in the old configuration it is {} for \
                     replica set {}",
                    m.host, m.id, o.id, old.name
                )));
            }
        }
        for m in &self.members {
            if old.member(m.id).is_some_and(|o| o.arbiter != m.arbiter) {
                return Err(differs(format!(
                    "New and old configurations differ in the setting of the arbiterOnly field for \
                     member {}; to make this change, remove then re-add the member",
                    m.host
                )));
            }
        }
        // A member has to catch up before it votes, and so would lose its delay.
        let late = |m: &&MemberConfig| m.votes && m.delay_secs > 0;
        for m in self.members.iter().filter(late) {
            let before = old.member(m.id).filter(|o| o.host == m.host);
            if before.is_some_and(|o| !o.votes && o.delay_secs > 0) {
                return Err(differs(format!(
                    "the delayed member {} cannot be given a vote: take its secondaryDelaySecs away, or \
                     add it anew",
                    m.host
                )));
            }
        }
        if force {
            return Ok(());
        }
        if self.version <= old.version {
            return Err(differs(format!(
                "New replica set configuration version must be greater than old, but {} is not \
                 greater than {} for replica set {}",
                self.version, old.version, old.name
            )));
        }
        let voters = |c: &SetConfig| -> HashSet<i32> { c.voters().map(|m| m.id).collect() };
        let (before, after) = (voters(old), voters(self));
        if before.symmetric_difference(&after).count() > 1 {
            return Err(differs(
                "Non force replica set reconfig can only add or remove at most 1 voting member."
                    .to_string(),
            ));
        }
        Ok(())
    }

    /// The document, as MongoDB stores and shows it.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = doc! { "_id": self.name.as_str(), "version": self.version as i32 };
        d.append_some("term", self.term);
        d.append_some("configsvr", self.of_config.then_some(true));
        let members: ArrayBuf = self.members.iter().map(MemberConfig::to_doc).collect();
        d.append("members", members);
        d.append("protocolVersion", 1_i64);
        d.append("writeConcernMajorityJournalDefault", true);
        let mut settings = doc! {
            // This holds whatever the document says: every member gets the log from the primary.
            "chainingAllowed": false,
            "heartbeatIntervalMillis": self.heartbeat_ms as i32,
            "heartbeatTimeoutSecs": self.heartbeat_timeout_secs as i32,
            "electionTimeoutMillis": self.election_ms as i32,
            "catchUpTimeoutMillis": CATCH_UP_MS,
            "catchUpTakeoverDelayMillis": TAKEOVER_MS,
            "getLastErrorModes": &self.modes,
            "getLastErrorDefaults": doc! { "w": 1, "wtimeout": 0 },
        };
        settings.append_some("replicaSetId", self.id.map(Value::ObjectId));
        d.append("settings", settings);
        d
    }

    /// Checks the `commitQuorum` of an index build. The log has what a build has found, so every member has
    /// built the index when it has the log's entry: a quorum that can be satisfied will be.
    ///
    /// # Errors
    /// 9 FailedToParse; 79 for an unknown mode; 278 UnsatisfiableCommitQuorum.
    pub fn check_commit_quorum(&self, quorum: Value<'_>) -> Result<()> {
        let w = match quorum {
            Value::String("majority" | "votingMembers") => return Ok(()),
            Value::String(mode) => W::Mode(mode.into()),
            v if v.is_number() => match number::to_i64_clamped(v) {
                Some(n) if (0..=MAX_MEMBERS as i64).contains(&n) => W::Nodes(n as i32),
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

    /// Why the set can never acknowledge as `w` asks; `None`: it can.
    pub fn unsatisfiable(&self, w: &W) -> Option<Error> {
        let too_few = || {
            Error::new(
                Code::UnsatisfiableWriteConcern,
                "Not enough data-bearing nodes",
            )
        };
        let values = |tag: &str| {
            let all = self.members.iter().filter_map(|m| m.tag(tag));
            all.collect::<HashSet<_>>().len() as i64
        };
        let fits = |tags: Doc<'_>| {
            tags.iter().all(|e| {
                let n = number::to_i64_clamped(e.value()).unwrap_or(0);
                n <= values(e.name())
            })
        };
        match w {
            W::Majority => None,
            W::Nodes(n) => (*n > 1 && *n as usize > self.with_data().count()).then(too_few),
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

/// Numbers by name; what is none is left out.
pub fn counts(d: Doc<'_>) -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    for e in d {
        let n = number::to_i64_clamped(e.value()).and_then(|n| u32::try_from(n).ok());
        if let Some(n) = n {
            all.insert(e.name().to_string(), n);
        }
    }
    all
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
        c.members[0].tags = doc! { "dc": "x" };
        c.members[0].priority = 2.5;
        c.members.push(MemberConfig {
            hidden: true,
            priority: 0.0,
            votes: false,
            delay_secs: 3600,
            ..MemberConfig::new(7, "h:2".to_string())
        });
        c.modes = doc! { "m": doc! { "dc": 1 } };
        (c.term, c.id) = (Some(3), Some([7; 12]));
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
        assert_eq!(of(member()).unwrap().members[0].host, "h:1");
        for (name, v, code) in [
            ("priority", Value::Int32(0), 93),
            ("priority", Value::Int32(1001), 2),
            ("priority", Value::String("1"), 14),
            ("arbiterOnly", Value::Bool(true), 93),
            ("votes", Value::Int32(0), 2),
            ("votes", Value::Int32(2), 2),
            ("hidden", Value::Bool(true), 2),
            ("buildIndexes", Value::Bool(false), 93),
            ("secondaryDelaySecs", Value::Int32(1), 2),
            ("secondaryDelaySecs", Value::Int32(-1), 2),
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
                2,
            ),
            (
                doc! { "_id": "rs", "version": 1, "members": array![member()], "protocolVersion": 0 },
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
            (
                doc! { "_id": "rs", "version": 1, "members": array![member()],
                "settings": doc! { "catchUpTimeoutMillis": 0 } },
                93,
            ),
        ] {
            let e = SetConfig::parse(d.as_doc()).unwrap_err();
            assert_eq!(e.code().0, code, "{d:?}: {e}");
        }
    }

    fn with_arbiters(data: i32, arbiters: i32) -> SetConfig {
        let member = |id: i32| MemberConfig {
            arbiter: id >= data,
            priority: if id >= data { 0.0 } else { 1.0 },
            ..MemberConfig::new(id, format!("h:{}", id + 1))
        };
        SetConfig {
            members: (0..data + arbiters).map(member).collect(),
            ..SetConfig::without_members("rs")
        }
    }

    #[test]
    fn arbiters_are_members_that_only_vote() {
        let arbiter = |more: DocBuf| {
            let mut d = doc! { "_id": 1, "host": "h:2", "arbiterOnly": true };
            d.append_all(more.as_doc());
            let members = array![doc! { "_id": 0, "host": "h:1" }, d];
            SetConfig::parse(doc! { "_id": "rs", "version": 1, "members": members }.as_doc())
        };
        for more in [
            doc! {},
            doc! { "priority": 1 },
            doc! { "priority": 0, "hidden": true },
        ] {
            let config = arbiter(more).unwrap();
            let m = &config.members[1];
            assert!(m.arbiter && m.votes && m.priority == 0.0 && !m.electable());
            assert_eq!(SetConfig::parse(config.to_doc().as_doc()).unwrap(), config);
        }
        for (more, message) in [
            (
                doc! { "votes": 0 },
                "Arbiter must vote (cannot have 0 votes)",
            ),
            (
                doc! { "tags": doc! { "dc": "x" } },
                "Cannot set tags on arbiters.",
            ),
            (
                doc! { "secondaryDelaySecs": 5 },
                "secondaryDelaySecs cannot be set on arbiters: they get nothing that could be delayed",
            ),
        ] {
            let e = arbiter(more).unwrap_err();
            assert_eq!((e.code().0, e.message()), (2, message));
        }
        let alone = of(doc! { "_id": 0, "host": "h:1", "arbiterOnly": true });
        assert_eq!(alone.unwrap_err().code().0, 93);
    }

    #[test]
    fn what_arbiters_change() {
        for (data, arbiters, majority, implied) in [
            (3, 0, 2, true),
            (2, 1, 2, false),
            (3, 1, 3, false),
            (4, 1, 3, true),
            (1, 1, 2, false),
            (3, 2, 3, false),
        ] {
            let c = with_arbiters(data, arbiters);
            let found = (c.majority(), c.implies_majority());
            assert_eq!(found, (majority, implied), "{data} {arbiters}");
            let most = data as usize;
            assert_eq!(c.writable_voters(), most);
            assert!(c.unsatisfiable(&W::Nodes(data)).is_none());
            assert_eq!(c.unsatisfiable(&W::Nodes(data + 1)).unwrap().code().0, 100);
            let code = c.check_arbiters(false).map_or_else(|e| e.code().0, |()| 0);
            assert_eq!(code, if arbiters > 1 { 93 } else { 0 });
            assert!(c.check_arbiters(true).is_ok());
        }
        let (old, mut new) = (with_arbiters(2, 1), with_arbiters(3, 0));
        new.version = 2;
        for force in [false, true] {
            let e = new.check_follows(&old, force).unwrap_err();
            assert_eq!(e.code().0, 103);
            assert!(
                e.message().contains("arbiterOnly field for member h:3"),
                "{e}"
            );
        }
    }

    #[test]
    fn a_delayed_member_gets_no_vote() {
        let of = |votes: bool, delay_secs: u32, version: i64| {
            let mut c = SetConfig::default_of("rs", "h:1".to_string());
            c.version = version;
            c.members.push(MemberConfig {
                votes,
                delay_secs,
                priority: 0.0,
                ..MemberConfig::new(7, "h:2".to_string())
            });
            c
        };
        for (old, new, code) in [
            ((false, 60), (true, 60), 103),
            ((false, 60), (true, 0), 0),
            ((false, 0), (true, 60), 0),
            ((true, 60), (true, 90), 0),
        ] {
            let (old, new) = (of(old.0, old.1, 1), of(new.0, new.1, 2));
            let found = new
                .check_follows(&old, false)
                .map_or_else(|e| e.code().0, |()| 0);
            assert_eq!(found, code);
        }
    }

    #[test]
    fn who_can_acknowledge() {
        let mut c = SetConfig::default_of("rs", "h:1".to_string());
        c.members[0].tags = doc! { "dc": "x" };
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
