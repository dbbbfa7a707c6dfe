//! The arguments that every command takes.

use crate::concern::{Levels, ReadsIn, check_read_concern};
use crate::read_preference::ReadPreference;
use crate::registry::CommandSpec;
use muniment_member::ClusterTime;
use muniment_storage::SessionKey;
use muniment_value::args::{Args, Field, Types, check_type, duplicate_field, idle, opt, uuid};
use muniment_value::{Code, Doc, Elem, Error, Result, Value, number};
use std::time::Duration;

/// The generic arguments of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Generic<'a> {
    /// `$db`.
    pub db: Option<&'a str>,
    /// `lsid` as it came.
    pub lsid: Option<Doc<'a>>,
    /// The session that `lsid` names.
    pub session: Option<SessionKey>,
    /// `$clusterTime`.
    pub cluster_time: Option<ClusterTime>,
    /// `readConcern`.
    pub read_concern: Option<Doc<'a>>,
    /// `writeConcern`.
    pub write_concern: Option<Doc<'a>>,
    /// `maxTimeMS`; `None` and 0 are no limit.
    pub max_time: Option<Duration>,
    /// Whether `maxTimeMS` was given, even as 0.
    pub max_time_given: bool,
    /// `help` asks what the command does.
    pub help: bool,
    /// `comment`.
    pub comment: Option<Value<'a>>,
    /// `apiVersion` was given.
    pub api_version: bool,
    /// `apiStrict`.
    pub api_strict: bool,
    /// `apiDeprecationErrors` was given.
    pub api_deprecation_errors: bool,
    /// `txnNumber`.
    pub txn_number: Option<i64>,
    /// `autocommit`.
    pub autocommit: Option<bool>,
    /// `startTransaction`.
    pub start_transaction: Option<bool>,
    /// Where the command may read: that of `$readPreference`.
    pub read_preference: Option<ReadPreference<'a>>,
    /// `txnRetryCounter`.
    txn_retry_counter: Option<i64>,
    /// `startOrContinueTransaction`.
    start_or_continue: bool,
    /// `maxTimeMSOpOnly` was given.
    max_time_inside: bool,
    /// `shardVersion`: what a router of this cluster expects (see [`crate::placement`]).
    pub shard_version: Option<Doc<'a>>,
    /// `databaseVersion`, which no router of this cluster sends, was given.
    database_version: bool,
    /// Which of [`ARGUMENTS`] were given, one bit each.
    given: u64,
}

const LSID: &[Field] = &[opt("id", Types::BINARY), opt("uid", Types::BINARY)];

/// One of the arguments that every command takes.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name, its types, and what becomes of it.
    pub field: Field,
    /// Whether a member that forwards a command to another member sends this argument with it. MongoDB's
    /// routers keep back the arguments of the Stable API, too; here the other member checks them itself.
    pub forwarded: bool,
}

const fn passed_on(field: Field) -> Argument {
    Argument {
        field,
        forwarded: true,
    }
}

const fn kept(field: Field) -> Argument {
    Argument {
        field,
        forwarded: false,
    }
}

/// Every generic argument of MongoDB 8.0. Those that nearly every command has come first, to be found fast.
/// Applications send the first part; routers, members of sets and MongoDB's own tests send the rest.
///
/// Source: MongoDB's `generic_argument.idl`, names and types.
pub const ARGUMENTS: &[Argument] = &[
    kept(opt("$db", Types::STRING)),
    passed_on(opt("lsid", Types::OBJECT)),
    kept(opt("$clusterTime", Types::OBJECT)),
    passed_on(opt("txnNumber", Types::LONG)),
    kept(opt("$readPreference", Types::OBJECT)),
    passed_on(opt("readConcern", Types::OBJECT)),
    passed_on(opt("writeConcern", Types::OBJECT)),
    passed_on(opt("maxTimeMS", Types::NUMBER)),
    passed_on(opt("comment", Types::ANY)),
    passed_on(opt("autocommit", Types::BOOL)),
    passed_on(opt("startTransaction", Types::BOOL)),
    passed_on(opt("apiVersion", Types::STRING)),
    passed_on(opt("apiStrict", Types::BOOL)),
    passed_on(opt("apiDeprecationErrors", Types::BOOL)),
    passed_on(opt("help", Types::ANY)),
    // The form of `$readPreference` before OP_MSG.
    passed_on(opt("$queryOptions", Types::OBJECT)),
    passed_on(idle(
        "stmtId",
        Types::INT,
        "only retryable writes count their statements, and they declare it themselves",
    )),
    passed_on(idle(
        "clientOperationKey",
        Types::BINARY,
        "a router names its parts of an operation by it, to end them",
    )),
    // Refused with 72. It is for clients that are members of a cluster.
    kept(opt("maxTimeMSOpOnly", Types::NUMBER)),
    // Refused with 72.
    passed_on(opt("txnRetryCounter", Types::INT)),
    // Refused with 72. A shard sends it to another shard.
    passed_on(opt("startOrContinueTransaction", Types::BOOL)),
    // Refused with 203.
    kept(opt("databaseVersion", Types::OBJECT)),
    // Refused with 203, except on a shard.
    kept(opt("shardVersion", Types::OBJECT)),
    passed_on(idle(
        "coordinator",
        Types::BOOL,
        "a transaction that no other shard takes part in has nothing to coordinate",
    )),
    kept(idle(
        "$audit",
        Types::OBJECT,
        "a router tells by it who is logged in there",
    )),
    kept(idle(
        "$client",
        Types::OBJECT,
        "a router tells by it of the client it works for",
    )),
    kept(idle("$configServerState", Types::OBJECT, NO_CLUSTER)),
    kept(idle("$configTime", Types::TIMESTAMP, NO_CLUSTER)),
    kept(idle("$topologyTime", Types::TIMESTAMP, NO_CLUSTER)),
    kept(idle("$oplogQueryData", Types::ANY, OWN_PROTOCOL)),
    kept(idle("$replData", Types::ANY, OWN_PROTOCOL)),
    kept(idle(
        "allowImplicitCollectionCreation",
        Types::BOOL,
        "MongoDB has not read it since 5.0",
    )),
    kept(idle("tracking_info", Types::OBJECT, NO_CLUSTER)),
    passed_on(idle(
        "mayBypassWriteBlocking",
        Types::BOOL,
        "no writes are blocked here",
    )),
    kept(idle(
        "expectPrefix",
        Types::BOOL,
        "names have no tenant's prefix here",
    )),
    kept(idle("requestGossipRoutingCache", Types::ARRAY, NO_CLUSTER)),
];

const NO_CLUSTER: &str = "it is about a sharded cluster, which this server is no part of";
const OWN_PROTOCOL: &str = "members of a set follow each other by a protocol of their own";

/// Whether an element is sent with a command that is forwarded to another member.
pub fn is_forwarded(name: &str) -> bool {
    let argument = ARGUMENTS.iter().find(|a| a.field.name == name);
    argument.is_none_or(|a| a.forwarded)
}

impl<'a> Generic<'a> {
    /// Takes `e` if it is a generic argument. Returns false if it is not.
    ///
    /// # Errors
    /// 14 for wrong types, 40413 for an argument that came before, and the arguments' own.
    pub fn take(&mut self, command: &'static str, e: Elem<'a>) -> Result<bool> {
        let Some(at) = ARGUMENTS.iter().position(|a| e.is_named(a.field.name)) else {
            return Ok(false);
        };
        let Field { name, types, .. } = ARGUMENTS[at].field;
        let bit = 1_u64 << at;
        if self.given & bit != 0 {
            return Err(duplicate_field(command, name));
        }
        self.given |= bit;
        let v = e.value();
        if types != Types::ANY {
            if v.is_nullish() {
                return Ok(true);
            }
            check_type(command, name, types, e.ty())?;
        }
        self.set(command, name, v)?;
        Ok(true)
    }

    /// Keeps the parts of a correctly typed argument that the rest of the request needs.
    fn set(&mut self, command: &'static str, name: &'static str, v: Value<'a>) -> Result<()> {
        let truthy = v.truthy();
        match name {
            "$db" => self.db = v.as_str(),
            "lsid" => {
                self.lsid = v.as_doc();
                self.session = self.lsid.map(session_key).transpose()?;
            }
            "$clusterTime" => {
                let time = v.as_doc().map(muniment_member::parse_time);
                self.cluster_time = time.transpose()?;
            }
            "$readPreference" => {
                self.read_preference =
                    Some(ReadPreference::parse(v.as_doc().unwrap_or(Doc::EMPTY))?);
            }
            "$queryOptions" => {
                // A `$readPreference` beside the command takes precedence over this one.
                let within = v.as_doc().and_then(|d| d.get_doc("$readPreference"));
                let within = within.map(ReadPreference::parse).transpose()?;
                self.read_preference = self.read_preference.or(within);
            }
            "readConcern" => self.read_concern = v.as_doc(),
            "writeConcern" => self.write_concern = v.as_doc(),
            "maxTimeMS" => {
                self.max_time = max_time(v)?;
                self.max_time_given = true;
            }
            "help" => self.help = truthy,
            "comment" => self.comment = Some(v),
            "apiVersion" => match v.as_str() {
                Some("1") => self.api_version = true,
                other => {
                    return Err(Error::new(
                        Code::APIVersionError,
                        format!(
                            "API version must be \"1\", got: {}",
                            other.unwrap_or_default()
                        ),
                    ));
                }
            },
            "apiStrict" => self.api_strict = truthy,
            "apiDeprecationErrors" => self.api_deprecation_errors = true,
            "txnNumber" => self.txn_number = number::to_i64_exact(v),
            "autocommit" => self.autocommit = Some(truthy),
            "startTransaction" => self.start_transaction = Some(truthy),
            "txnRetryCounter" => self.txn_retry_counter = number::to_i64_exact(v),
            "startOrContinueTransaction" => self.start_or_continue = truthy,
            "maxTimeMSOpOnly" => self.max_time_inside = true,
            "databaseVersion" => self.database_version = true,
            "shardVersion" => self.shard_version = v.as_doc(),
            "clientOperationKey" => {
                uuid(command, name, v)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// True for a command of a transaction.
    pub fn in_transaction(&self) -> bool {
        self.autocommit.is_some()
    }

    /// Checks the arguments of transactions together, so that the error does not depend on the fields' order.
    fn check_transaction(&self, spec: &CommandSpec) -> Result<()> {
        let message = match (self.txn_number, self.autocommit, self.start_transaction) {
            (None, None, None) => return Ok(()),
            (Some(_), _, _) if self.session.is_none() => {
                "Transaction number requires a session ID to also be specified"
            }
            (Some(n), _, _) if n < 0 => "Transaction number cannot be negative",
            (None, Some(_), _) => {
                "'autocommit' field requires a transaction number to also be specified"
            }
            (_, Some(true), _) => "Specifying autocommit=true is not allowed.",
            (_, None, Some(_)) => {
                "'startTransaction' field requires 'autocommit' field to also be specified"
            }
            (_, _, Some(false)) => "Specifying startTransaction=false is not allowed.",
            (Some(_), None, None) if spec.retryable_write => return Ok(()),
            (Some(_), None, None) => {
                return Err(Error::location(
                    50768,
                    format!(
                        "txnNumber may only be provided for multi-document transactions and \
                         retryable write commands. autocommit:false was not provided, and {} is \
                         not a retryable write command.",
                        spec.name
                    ),
                ));
            }
            (Some(_), Some(false), None | Some(true)) => return Ok(()),
        };
        Err(Error::new(Code::InvalidOptions, message))
    }

    /// Refuses arguments that only routers and shards of a cluster may send.
    fn check_cluster(&self, shard: bool) -> Result<()> {
        let retries = match (self.txn_number, self.autocommit, self.txn_retry_counter) {
            (None, ..) | (.., None) => None,
            (_, None, _) => Some("Cannot specify txnRetryCounter for a retryable write"),
            (.., Some(n)) if n < 0 => Some("txnRetryCounter cannot be negative"),
            _ => Some("txnRetryCounter is only supported in sharded clusters"),
        };
        let continues = "startOrContinueTransaction is only supported in sharded clusters";
        let inside = "Can not specify maxTimeMSOpOnly for non internal clients";
        let refused = retries
            .or(self.start_or_continue.then_some(continues))
            .or(self.max_time_inside.then_some(inside));
        if let Some(message) = refused {
            return Err(Error::new(Code::InvalidOptions, message));
        }
        if self.database_version || (self.shard_version.is_some() && !shard) {
            return Err(Error::new(
                Code::ShardingStateNotInitialized,
                "Cannot accept sharding commands if sharding state has not been initialized with a \
                 shardIdentity document",
            ));
        }
        Ok(())
    }

    /// The checks that need more than one argument. `member` tells whether the server is a member of a set, and
    /// `shard` whether it is a shard or the configuration.
    ///
    /// # Errors
    /// 72 for a concern that the command does not take and for arguments that only a member of a cluster may
    /// send, 203 for a router's versions; 322, 323 for the Stable API; 2, 9, … of a read concern.
    pub fn check(
        &self,
        spec: &CommandSpec,
        body: Doc<'_>,
        member: bool,
        shard: bool,
    ) -> Result<()> {
        self.check_transaction(spec)?;
        (spec.precheck)(body)?;
        self.check_cluster(shard)?;
        if self.write_concern.is_some() && !spec.write_concern {
            return Err(Error::new(
                Code::InvalidOptions,
                format!("Command {} does not support writeConcern", spec.name),
            ));
        }
        if let Some(rc) = self.read_concern {
            let levels = Levels {
                command: spec.name,
                others: spec.read_concern || self.in_transaction(),
                snapshots: spec.snapshot_reads,
            };
            let place = match (self.in_transaction(), member) {
                (true, _) => ReadsIn::Transaction,
                (false, true) => ReadsIn::Set,
                (false, false) => ReadsIn::Standalone,
            };
            check_read_concern(rc, levels, place)?;
        }
        if !self.api_version && (self.api_strict || self.api_deprecation_errors) {
            return Err(Error::location(
                4_886_600,
                "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
            ));
        }
        if self.api_strict && !spec.api_v1 {
            return Err(Error::new(
                Code::APIStrictError,
                format!(
                    "Provided apiStrict:true, but the command {} is not in API Version 1",
                    spec.name
                ),
            ));
        }
        Ok(())
    }
}

/// `maxTimeMS`.
///
/// # Errors
/// 2 BadValue outside 0 … 2^31−1, 9 FailedToParse for a fraction.
pub fn max_time(v: Value<'_>) -> Result<Option<Duration>> {
    let Some(n) = number::to_i64_exact(v) else {
        return Err(Error::failed_to_parse("maxTimeMS has non-integral value"));
    };
    if n < 0 || n > i64::from(i32::MAX) {
        return Err(Error::bad_value(format!(
            "{n} value for maxTimeMS is out of range [0, {}]",
            i32::MAX
        )));
    }
    Ok((n > 0).then(|| Duration::from_millis(n as u64)))
}

/// The session that `{id: UUID, uid?}` names. Without a `uid` it has no user, and `auth::own_session` makes it
/// that of the logged-in user.
///
/// # Errors
/// 14, 16 InvalidLength, 207 InvalidUUID, 40414, 40415.
pub fn session_key(lsid: Doc<'_>) -> Result<SessionKey> {
    let args = Args::parse("OperationSessionInfo.lsid", LSID, lsid)?;
    let id = match args.get("id") {
        Some(v) => uuid("OperationSessionInfo.lsid", "id", v)?,
        None => {
            return Err(muniment_value::args::missing_field(
                "OperationSessionInfo.lsid",
                "id",
            ));
        }
    };
    Ok(match args.get("uid") {
        Some(uid) => SessionKey {
            id,
            user: user_digest(uid)?,
        },
        None => SessionKey::of_nobody(id),
    })
}

/// The digest of a user, which `uid` gives.
///
/// # Errors
/// 16 InvalidLength.
pub fn user_digest(uid: Value<'_>) -> Result<[u8; 32]> {
    let bytes = match uid {
        Value::Binary { bytes, .. } => bytes,
        _ => &[],
    };
    bytes.try_into().map_err(|_| {
        Error::new(
            Code::InvalidLength,
            format!("Unsupported SHA-256 hash length: {}", bytes.len()),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{ArrayBuf, DocBuf, doc};

    /// The result of `count` with one argument: 0 or an error's code.
    fn said(d: &DocBuf) -> i32 {
        let spec = crate::registry::find("count").unwrap();
        let mut generic = Generic::default();
        let taken = d.as_doc().iter().try_for_each(|e| {
            assert!(generic.take("count", e)?, "{d:?} is not known");
            Ok(())
        });
        let checked = taken.and_then(|()| generic.check(spec, d.as_doc(), true, false));
        checked.err().map_or(0, |e: Error| e.code().0)
    }

    fn one(name: &str, v: Value<'_>) -> DocBuf {
        let mut d = DocBuf::new();
        d.append(name, v);
        d
    }

    #[test]
    fn every_generic_argument_of_mongodb_is_known() {
        let uuid = Value::Binary {
            subtype: 4,
            bytes: &[7; 16],
        };
        let at = Value::Timestamp { t: 1, i: 1 };
        let (object, long) = (Value::Document(Doc::EMPTY), Value::Int64(1));
        let array = ArrayBuf::new();
        let (yes, int, text) = (Value::Bool(true), Value::Int32(1), Value::String("1"));
        // For each argument, in the order of MongoDB's own list: a value of its type, the code with which a
        // reading command answers it, and whether it is forwarded.
        let table = [
            ("apiVersion", text, 0, true),
            ("apiStrict", yes, 4_886_600, true),
            ("apiDeprecationErrors", yes, 4_886_600, true),
            ("$db", text, 0, false),
            ("maxTimeMS", int, 0, true),
            ("readConcern", object, 0, true),
            ("writeConcern", object, 72, true),
            ("lsid", object, 40_414, true),
            ("clientOperationKey", uuid, 0, true),
            ("txnNumber", long, 72, true),
            ("autocommit", yes, 72, true),
            ("startTransaction", yes, 72, true),
            ("stmtId", int, 0, true),
            ("comment", int, 0, true),
            ("$readPreference", object, 0, false),
            ("$clusterTime", object, 40_414, false),
            ("$audit", object, 0, false),
            ("$client", object, 0, false),
            ("$configServerState", object, 0, false),
            ("allowImplicitCollectionCreation", yes, 0, false),
            ("$oplogQueryData", int, 0, false),
            ("$queryOptions", object, 0, true),
            ("$replData", int, 0, false),
            ("databaseVersion", object, 203, false),
            ("help", yes, 0, true),
            ("shardVersion", object, 203, false),
            ("tracking_info", object, 0, false),
            ("coordinator", yes, 0, true),
            ("maxTimeMSOpOnly", int, 72, false),
            ("startOrContinueTransaction", yes, 72, true),
            ("$configTime", at, 0, false),
            ("$topologyTime", at, 0, false),
            ("txnRetryCounter", int, 0, true),
            ("mayBypassWriteBlocking", yes, 0, true),
            ("expectPrefix", yes, 0, false),
            (
                "requestGossipRoutingCache",
                Value::Array(array.as_doc()),
                0,
                false,
            ),
        ];
        for (name, v, wanted, forwarded) in table {
            let d = one(name, v);
            assert_eq!(said(&d), wanted, "{name}");
            assert_eq!(is_forwarded(name), forwarded, "{name}");
            let mut twice = d.clone();
            twice.append(name, v);
            let doubled = match wanted {
                40_414 => wanted,
                _ => 40_413,
            };
            assert_eq!(said(&twice), doubled, "{name} twice");
            let types = ARGUMENTS.iter().find(|a| a.field.name == name).unwrap();
            if types.field.types != Types::ANY {
                assert_eq!(
                    said(&one(name, Value::MinKey)),
                    14,
                    "{name} of another type"
                );
                assert_eq!(said(&one(name, Value::Null)), 0, "{name} of null");
            }
        }
        let mut names: Vec<_> = table.iter().map(|t| t.0).collect();
        let mut known: Vec<_> = ARGUMENTS.iter().map(|a| a.field.name).collect();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn arguments_of_a_cluster_are_refused() {
        let lsid = doc! { "id": Value::Binary { subtype: 4, bytes: &[7; 16] } };
        let with = |more: DocBuf| {
            let mut d = doc! { "lsid": &lsid, "txnNumber": 1_i64 };
            for e in more.as_doc() {
                d.append_elem(e);
            }
            d
        };
        for (d, wanted) in [
            (with(doc! { "txnRetryCounter": 0 }), 50_768),
            (with(doc! { "txnRetryCounter": 0, "autocommit": false }), 72),
            (
                with(doc! { "txnRetryCounter": -1, "autocommit": false }),
                72,
            ),
            (
                with(doc! { "startOrContinueTransaction": true, "autocommit": false }),
                72,
            ),
            (
                with(doc! { "startOrContinueTransaction": false, "autocommit": false }),
                0,
            ),
            (
                doc! { "clientOperationKey": Value::Binary { subtype: 0, bytes: &[7; 16] } },
                14,
            ),
            (
                doc! { "clientOperationKey": Value::Binary { subtype: 4, bytes: &[7; 15] } },
                207,
            ),
            (
                doc! { "$queryOptions": doc! { "$readPreference": doc! { "mode": "x" } } },
                9,
            ),
        ] {
            assert_eq!(said(&d), wanted, "{d:?}");
        }
    }

    #[test]
    fn a_read_preference_may_stand_in_the_query_options() {
        let secondary = doc! { "$readPreference": doc! { "mode": "secondary" } };
        let nearest = doc! { "$readPreference": doc! { "mode": "nearest" } };
        let within = doc! { "$queryOptions": &secondary };
        let mut both = within.clone();
        both.append_elem(nearest.as_doc().first().unwrap());
        for (d, wanted) in [
            (&secondary, "secondary"),
            (&within, "secondary"),
            (&both, "nearest"),
        ] {
            let mut generic = Generic::default();
            for e in d.as_doc() {
                assert!(generic.take("find", e).unwrap());
            }
            let mode = generic.read_preference.map(|p| p.mode.name());
            assert_eq!(mode, Some(wanted), "{d:?}");
        }
    }
}
