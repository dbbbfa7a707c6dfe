//! The arguments that every command takes.

use crate::args::{Args, Field, Types, check_type, opt};
use crate::registry::CommandSpec;
use muniment_value::{Code, Doc, Elem, Error, Result, Value, number};
use std::time::Duration;

/// The generic arguments of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Generic<'a> {
    /// `$db`.
    pub db: Option<&'a str>,
    /// `lsid` as it came.
    pub lsid: Option<Doc<'a>>,
    /// `lsid.id`.
    pub session: Option<[u8; 16]>,
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
    /// `txnNumber` was given.
    pub txn_number: bool,
    /// `autocommit` was given.
    pub autocommit: bool,
    /// `startTransaction` was given.
    pub start_transaction: bool,
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
                    self.session = self.lsid.map(session_id).transpose()?;
                }
            }
            // A standalone has no cluster time to compare it with.
            b"$clusterTime" => {
                typed(Types::OBJECT)?;
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
            b"txnNumber" => self.txn_number = typed(Types::LONG)?,
            b"autocommit" => self.autocommit = typed(Types::BOOL)?,
            b"startTransaction" => self.start_transaction = typed(Types::BOOL)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A standalone has no transactions. What is said first does not depend on the order in which
    /// the fields came.
    fn check_transaction(&self) -> Result<()> {
        let message = if self.txn_number && self.session.is_some() {
            return Err(Error::new(
                Code::IllegalOperation,
                "Transaction numbers are only allowed on a replica set member or mongos",
            ));
        } else if self.txn_number {
            "Transaction number requires a session ID to also be specified"
        } else if self.autocommit {
            "'autocommit' field requires a transaction number to also be specified"
        } else if self.start_transaction {
            "'startTransaction' field requires 'autocommit' field to also be specified"
        } else {
            return Ok(());
        };
        Err(Error::new(Code::InvalidOptions, message))
    }

    /// Checks that go beyond single arguments.
    ///
    /// # Errors
    /// 72 for a concern the command does not take; 322, 323 for the Stable API; 2, 9, … of a
    /// read concern.
    pub fn check(&self, spec: &CommandSpec, body: Doc<'_>) -> Result<()> {
        self.check_transaction()?;
        (spec.precheck)(body)?;
        if self.write_concern.is_some() && !spec.write_concern {
            return Err(Error::new(
                Code::InvalidOptions,
                format!("Command {} does not support writeConcern", spec.name),
            ));
        }
        if let Some(rc) = self.read_concern {
            crate::concern::check_read_concern(rc, spec.read_concern, spec.name)?;
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

/// The UUID of a session document `{id: UUID}`.
///
/// # Errors
/// 14, 207 InvalidUUID, 40414, 40415.
pub fn session_id(lsid: Doc<'_>) -> Result<[u8; 16]> {
    let args = Args::parse("OperationSessionInfo.lsid", LSID, lsid)?;
    match args.get("id") {
        Some(Value::Binary { subtype: 4, bytes }) => bytes.try_into().ok(),
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
    }
    .ok_or_else(|| {
        Error::new(
            Code::InvalidUUID,
            "uuid must be a 16-byte binary field with UUID (4) subtype",
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
