//! One member in the configuration document of a replica set.
//!
//! Source: the MongoDB manual, "Replica Set Configuration", and observed replies.

use super::host_port::HostPort;
use muniment_value::args::{Args, Field, Types, opt, req};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};

/// The greatest `_id` of a member that there may be.
const MAX_MEMBER_ID: i64 = 255;
/// The greatest priority.
const MAX_PRIORITY: f64 = 1000.0;
/// The longest delay, in seconds.
const MAX_DELAY: i64 = 366 * 24 * 3600;

const FIELDS: &[Field] = &[
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

/// A checked member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberConfig {
    /// `_id`.
    pub id: i32,
    /// `host`, always with its port.
    pub host: String,
    /// `hidden`: `hello` does not tell of it.
    pub hidden: bool,
    /// `priority`; 0: it is never primary.
    pub priority: f64,
    /// `tags`.
    pub tags: DocBuf,
    /// `votes` is 1.
    pub votes: bool,
    /// `arbiterOnly`: it votes and stores nothing.
    pub arbiter: bool,
    /// `secondaryDelaySecs`: it gets the log so many seconds after the others.
    pub delay_secs: u32,
}

impl MemberConfig {
    /// A member at this address, everything else about it being the default.
    pub fn new(id: i32, host: String) -> MemberConfig {
        MemberConfig {
            id,
            host,
            hidden: false,
            priority: 1.0,
            tags: DocBuf::new(),
            votes: true,
            arbiter: false,
            delay_secs: 0,
        }
    }

    /// Checks a member's document.
    ///
    /// # Errors
    /// 14, 40414, 40415 for its fields; 2 for values out of range and for what contradicts itself;
    /// 9 for a host that is none; 93 for what is not supported.
    pub fn parse(d: Doc<'_>) -> Result<MemberConfig> {
        let args = Args::parse("MemberConfig", FIELDS, d)?;
        let id = args.int("_id", 0, MAX_MEMBER_ID)?.unwrap_or(0) as i32;
        let host = HostPort::parse(args.str("host").unwrap_or_default())?.to_string();
        let mut member = MemberConfig {
            hidden: args.bool("hidden", false),
            votes: args.int("votes", 0, 1)?.unwrap_or(1) == 1,
            ..MemberConfig::new(id, host)
        };
        member.arbiter = args.bool("arbiterOnly", false);
        if !args.bool("buildIndexes", true) {
            return Err(invalid(format!(
                "buildIndexes: false is not supported: every member applies the same log, which has \
                 what index builds found (member {id})"
            )));
        }
        let delay = args.int("secondaryDelaySecs", 0, MAX_DELAY)?.unwrap_or(0);
        member.delay_secs = u32::try_from(delay).unwrap_or(0);
        if let Some(v) = args.get("priority") {
            member.priority = number::to_f64(v).unwrap_or(f64::NAN);
            if !(0.0..=MAX_PRIORITY).contains(&member.priority) {
                return Err(Error::bad_value(format!(
                    "priority must be a value between 0 and 1000, but {} was given",
                    v.to_display()
                )));
            }
        }
        if member.arbiter {
            member.check_arbiter(args.doc("tags").unwrap_or(Doc::EMPTY))?;
            member.priority = 0.0;
        }
        for (wrong, what) in [
            (!member.votes, "non-voting (votes:0)"),
            (member.hidden, "hidden=true"),
            (member.delay_secs > 0, "secondaryDelaySecs is used"),
        ] {
            if wrong && member.priority != 0.0 {
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
            member.tags = tags.to_buf();
        }
        Ok(member)
    }

    /// What an arbiter cannot be beside that.
    fn check_arbiter(&self, tags: Doc<'_>) -> Result<()> {
        let wrong = match () {
            () if !self.votes => "Arbiter must vote (cannot have 0 votes)",
            () if !tags.is_empty() => "Cannot set tags on arbiters.",
            () if self.delay_secs > 0 => {
                "secondaryDelaySecs cannot be set on arbiters: they get nothing that could be delayed"
            }
            () => return Ok(()),
        };
        Err(Error::bad_value(wrong))
    }

    /// Whether it may ever be primary.
    pub fn electable(&self) -> bool {
        self.priority > 0.0
    }

    /// The value of a tag.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.as_doc().get_str(name)
    }

    /// What of it the consensus needs; it has no number yet.
    pub fn to_core(&self) -> muniment_consensus::Member {
        let tags = self.tags.as_doc();
        let text = tags.iter().filter_map(|e| match e.value() {
            Value::String(s) => Some((e.name().to_string(), s.to_string())),
            _ => None,
        });
        muniment_consensus::Member {
            id: 0,
            key: self.id,
            host: self.host.clone(),
            votes: self.votes,
            arbiter: self.arbiter,
            priority: (self.priority * 1000.0).ceil() as u32,
            tags: text.collect(),
        }
    }

    /// The document, as MongoDB stores and shows it.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "_id": self.id,
            "host": self.host.as_str(),
            "arbiterOnly": self.arbiter,
            "buildIndexes": true,
            "hidden": self.hidden,
            "priority": whole_or_fraction(self.priority),
            "tags": &self.tags,
            "secondaryDelaySecs": i64::from(self.delay_secs),
            "votes": i32::from(self.votes),
        }
    }
}

/// 93 InvalidReplicaSetConfig.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidReplicaSetConfig, message)
}

/// MongoDB shows a whole priority as one.
pub fn whole_or_fraction(n: f64) -> Value<'static> {
    match n.fract() == 0.0 {
        true => Value::Int32(n as i32),
        false => Value::Double(n),
    }
}
