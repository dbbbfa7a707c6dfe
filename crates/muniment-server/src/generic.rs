//! The arguments that every command takes.

use crate::args::{Args, Field, Types, check_type, opt};
use crate::concern::{ReadsIn, check_read_concern};
use crate::registry::CommandSpec;
use muniment_storage::{SessionKey, Timestamp};
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
    /// The timestamp of `$clusterTime`.
    pub cluster_time: Option<Timestamp>,
    /// `readConcern`.
    pub read_concern: Option<Doc<'a>>,
    /// `writeConcern`.
    pub write_concern: Option<Doc<'a>>,
    /// `maxTimeMS`; `None` and 0 are no limit.
    pub max_time: Option<Duration>,
    /// `maxTimeMS` was given, were it 0.
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
}

const LSID: &[Field] = &[opt("id", Types::BINARY), opt("uid", Types::BINARY)];

impl<'a> Generic<'a> {
    /// Takes `e` if it is a generic argument; false if not.
    ///
    /// # Errors
    /// 14 for wrong types and the arguments' own.
    pub fn take(&mut self, command: &'static str, e: Elem<'a>) -> Result<bool> {
        let typed = |types: Types| -> Result<bool> {
            if matches!(
                e.ty(),
                muniment_value::Type::Null | muniment_value::Type::Undefined
            ) {
                return Ok(false);
            }
            check_type(command, e.name(), types, e.ty())?;
            Ok(true)
        };
        match e.name_bytes() {
            b"$db" => {
                if typed(Types::STRING)? {
                    self.db = e.value().as_str();
                }
            }
            b"lsid" => {
                if typed(Types::OBJECT)? {
                    self.lsid = e.value().as_doc();
                    self.session = self.lsid.map(session_key).transpose()?;
                }
            }
            b"$clusterTime" => {
                if typed(Types::OBJECT)? {
                    let time = e.value().as_doc().map(crate::replica_set::parse_time);
                    self.cluster_time = time.transpose()?;
                }
            }
            b"$readPreference" => {
                if typed(Types::OBJECT)? {
                    check_read_preference(e.value().as_doc().unwrap_or(Doc::EMPTY))?;
                }
            }
            b"readConcern" => {
                if typed(Types::OBJECT)? {
                    self.read_concern = e.value().as_doc();
                }
            }
            b"writeConcern" => {
                if typed(Types::OBJECT)? {
                    self.write_concern = e.value().as_doc();
                }
            }
            b"maxTimeMS" => {
                if typed(Types::NUMBER)? {
                    self.max_time = max_time(e.value())?;
                    self.max_time_given = true;
                }
            }
            b"help" => self.help = e.value().truthy(),
            b"comment" => self.comment = Some(e.value()),
            b"apiVersion" => {
                if typed(Types::STRING)? {
                    match e.value().as_str() {
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
                    }
                }
            }
            b"apiStrict" => {
                if typed(Types::BOOL)? {
                    self.api_strict = e.value().truthy();
                }
            }
            b"apiDeprecationErrors" => {
                typed(Types::BOOL)?;
                self.api_deprecation_errors = true;
            }
            b"txnNumber" => {
                if typed(Types::LONG)? {
                    self.txn_number = number::to_i64_exact(e.value());
                }
            }
            b"autocommit" => {
                if typed(Types::BOOL)? {
                    self.autocommit = Some(e.value().truthy());
                }
            }
            b"startTransaction" => {
                if typed(Types::BOOL)? {
                    self.start_transaction = Some(e.value().truthy());
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// True for a command of a transaction.
    pub fn in_transaction(&self) -> bool {
        self.autocommit.is_some()
    }

    /// What is said first does not depend on the order in which the fields came.
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

    /// Checks that go beyond single arguments. `member`: the server is a member of a set.
    ///
    /// # Errors
    /// 72 for a concern the command does not take; 322, 323 for the Stable API; 2, 9, … of a
    /// read concern.
    pub fn check(&self, spec: &CommandSpec, body: Doc<'_>, member: bool) -> Result<()> {
        self.check_transaction(spec)?;
        (spec.precheck)(body)?;
        if self.write_concern.is_some() && !spec.write_concern {
            return Err(Error::new(
                Code::InvalidOptions,
                format!("Command {} does not support writeConcern", spec.name),
            ));
        }
        if let Some(rc) = self.read_concern {
            let supported = spec.read_concern || self.in_transaction();
            let place = match (self.in_transaction(), member) {
                (true, _) => ReadsIn::Transaction,
                (false, true) => ReadsIn::Set,
                (false, false) => ReadsIn::Standalone,
            };
            check_read_concern(rc, supported, spec.name, place)?;
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

/// The session that `{id: UUID, uid?}` names: without a user, of whoever is logged in, and that is
/// nobody.
///
/// # Errors
/// 14, 16 InvalidLength, 207 InvalidUUID, 40414, 40415.
pub fn session_key(lsid: Doc<'_>) -> Result<SessionKey> {
    let args = Args::parse("OperationSessionInfo.lsid", LSID, lsid)?;
    let id = match args.get("id") {
        Some(Value::Binary { subtype: 4, bytes }) => bytes.try_into().map_err(|_| {
            Error::new(
                Code::InvalidUUID,
                "uuid must be a 16-byte binary field with UUID (4) subtype",
            )
        })?,
        Some(_) => {
            return Err(Error::type_mismatch(
                "BSON field 'OperationSessionInfo.lsid.id' is the wrong binData type, expected \
                 type 'UUID'",
            ));
        }
        None => {
            return Err(crate::args::missing_field(
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

/// A user's digest as `uid` has it.
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

fn check_read_preference(d: Doc<'_>) -> Result<()> {
    match d.get("mode") {
        None => Ok(()),
        Some(Value::String(
            "primary" | "primaryPreferred" | "secondary" | "secondaryPreferred" | "nearest",
        )) => Ok(()),
        Some(Value::String(other)) => Err(Error::failed_to_parse(format!(
            "Could not parse $readPreference mode '{other}'. Only the modes 'primary', \
             'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported."
        ))),
        Some(v) => check_type("$readPreference", "mode", Types::STRING, v.ty()),
    }
}
