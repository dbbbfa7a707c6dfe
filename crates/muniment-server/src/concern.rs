//! Write concern and read concern of a standalone and of a set of one member.
//!
//! Source: the MongoDB manual, "Write Concern" and "Read Concern", and observed replies.

use muniment_member::W;
use muniment_value::args::{Args, Field, Types, check_type, opt};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};

/// Where the default concerns are stored: the collection, and the `_id`.
pub const STORED_DEFAULTS: (&str, &str) = ("config.settings", "ReadWriteConcernDefaults");

/// The origin of a concern, as MongoDB names it in replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// The command carried it.
    ClientSupplied,
    /// The concern was set by setDefaultRWConcern.
    CustomDefault,
    /// The concern is the server's own default.
    ImplicitDefault,
}

impl Provenance {
    /// MongoDB's name.
    pub fn name(self) -> &'static str {
        match self {
            Provenance::ClientSupplied => "clientSupplied",
            Provenance::CustomDefault => "customDefault",
            Provenance::ImplicitDefault => "implicitDefault",
        }
    }
}

/// A checked write concern.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteConcern {
    /// The members that have to acknowledge.
    pub w: W,
    /// `j` or `fsync`: acknowledged once the journal is on the disk.
    pub journal: bool,
    /// Milliseconds; 0 waits for ever. Without meaning while `w` ≤ 1.
    pub wtimeout: i32,
    /// The origin of the concern.
    pub provenance: Provenance,
}

const FIELDS: &[Field] = &[
    opt("w", Types::ANY),
    opt("j", Types::ANY),
    opt("fsync", Types::ANY),
    opt("wtimeout", Types::ANY),
    opt("provenance", Types::STRING),
];

impl WriteConcern {
    /// The default of a standalone: the write is visible and in the journal file.
    pub const IMPLICIT: WriteConcern = WriteConcern {
        w: W::Nodes(1),
        journal: false,
        wtimeout: 0,
        provenance: Provenance::ImplicitDefault,
    };

    /// The default of a set, unless it has too many arbiters.
    pub const IMPLICIT_OF_A_SET: WriteConcern = WriteConcern {
        w: W::Majority,
        ..WriteConcern::IMPLICIT
    };

    /// Parses a `writeConcern` document. A concern that a `member` of a set cannot satisfy is not refused
    /// here, but reported after the write.
    ///
    /// # Errors
    /// 2 for a concern that a standalone cannot satisfy, 9 for illegal values, 14, 40415.
    pub fn parse(doc: Doc<'_>, default: WriteConcern, member: bool) -> Result<WriteConcern> {
        let args = Args::parse("writeConcern", FIELDS, doc)?;
        if doc.is_empty() {
            return Ok(default);
        }
        let mut wc = WriteConcern {
            w: default.w,
            journal: false,
            wtimeout: 0,
            provenance: Provenance::ClientSupplied,
        };
        let flag = |name: &str| -> Result<bool> {
            match args.get(name) {
                None | Some(Value::Null | Value::Undefined) => Ok(false),
                Some(v) => {
                    check_type("writeConcern", name, Types::SAFE_BOOL, v.ty())?;
                    Ok(v.truthy())
                }
            }
        };
        let (j, fsync) = (flag("j")?, flag("fsync")?);
        if j && fsync {
            return Err(Error::failed_to_parse(
                "fsync and j options cannot be used together",
            ));
        }
        wc.journal = j || fsync;
        match args.get("w") {
            None => {}
            Some(Value::String("majority")) => wc.w = W::Majority,
            Some(Value::String(mode)) if member => wc.w = W::Mode(mode.into()),
            // A null counts as the mode with an empty name.
            Some(Value::Null | Value::Undefined) if member => wc.w = W::Mode("".into()),
            Some(v @ (Value::String(_) | Value::Null | Value::Undefined)) => {
                return Err(Error::bad_value(format!(
                    "cannot use non-majority 'w' mode \"{}\" when a host is not a member of \
                     a replica set",
                    v.as_str().unwrap_or_default()
                )));
            }
            Some(Value::Document(tags)) => {
                check_tags(tags)?;
                // A standalone ignores the tags, and acknowledges.
                if member {
                    wc.w = W::Tags(tags.to_buf());
                }
            }
            Some(v) if v.is_number() => wc.w = W::Nodes(parse_w(v, member)?),
            Some(v) => {
                return Err(Error::failed_to_parse(format!(
                    "w has to be a number, string, or object; found: {}",
                    v.type_name()
                )));
            }
        }
        match args.get("wtimeout") {
            Some(v) if v.is_number() => {
                let n = number::to_f64(v).unwrap_or(0.0);
                if n > f64::from(i32::MAX) {
                    return Err(Error::failed_to_parse("wtimeout must be a 32-bit integer"));
                }
                wc.wtimeout = n.max(0.0) as i32;
            }
            // As in MongoDB, a value of any other type means no limit.
            _ => {}
        }
        check_provenance("writeConcern", args.str("provenance"))?;
        Ok(wc)
    }

    /// True when the client waits for no answer.
    pub fn unacknowledged(&self) -> bool {
        self.w == W::Nodes(0) && !self.journal
    }

    /// True when the acknowledgement waits for the journal: `j`, `fsync`, or "majority" (as
    /// writeConcernMajorityJournalDefault).
    pub fn waits_for_journal(&self) -> bool {
        self.journal || self.w == W::Majority
    }

    /// The concern as replies show it: `{w, wtimeout}`, and `j` if it was asked for.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = match &self.w {
            W::Nodes(n) => doc! { "w": *n },
            W::Majority => doc! { "w": "majority" },
            W::Mode(mode) => doc! { "w": &**mode },
            W::Tags(tags) => doc! { "w": tags },
        };
        if self.journal {
            d.append("j", true);
        }
        d.append("wtimeout", self.wtimeout);
        d
    }
}

fn check_tags(tags: Doc<'_>) -> Result<()> {
    if tags.is_empty() {
        return Err(Error::failed_to_parse(
            "tagged write concern must have tags",
        ));
    }
    for e in tags {
        if !e.value().is_number() {
            return Err(Error::failed_to_parse(format!(
                "tags must be a single level document with only number values; found: {}",
                e.value().type_name()
            )));
        }
    }
    Ok(())
}

fn check_provenance(of: &str, provenance: Option<&str>) -> Result<()> {
    match provenance {
        None
        | Some("clientSupplied" | "implicitDefault" | "customDefault" | "getLastErrorDefaults") => {
            Ok(())
        }
        Some(other) => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field '{of}.provenance' is not a valid value."
        ))),
    }
}

fn parse_w(v: Value<'_>, member: bool) -> Result<i32> {
    let whole = number::to_i64_clamped(v).unwrap_or(-1);
    let n = number::to_f64(v).unwrap_or(f64::NAN);
    if n.is_nan() || !(0..=50).contains(&whole) {
        return Err(Error::failed_to_parse(format!(
            "w has to be a non-negative number and not greater than 50; found: {}",
            whole
        )));
    }
    if whole > 1 && !member {
        return Err(Error::bad_value(
            "cannot use 'w' > 1 when a host is not replicated",
        ));
    }
    Ok(whole as i32)
}

const READ_FIELDS: &[Field] = &[
    opt("level", Types::STRING),
    opt("afterClusterTime", Types::ANY),
    opt("atClusterTime", Types::ANY),
    opt("provenance", Types::STRING),
];

/// The place that a read concern is used in, which decides which levels are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadsIn {
    /// Outside of a replica set.
    Standalone,
    /// On a member of a replica set.
    Set,
    /// In a transaction, wherever that is.
    Transaction,
}

/// The levels that a command accepts.
#[derive(Clone, Copy, Debug)]
pub struct Levels<'c> {
    /// The command's name.
    pub command: &'c str,
    /// The command also accepts other levels than "local".
    pub others: bool,
    /// The command also accepts "snapshot" outside of a transaction.
    pub snapshots: bool,
}

/// Checks a `readConcern` document. "local", "available", "majority" and "linearizable" read the same
/// here: a consistent snapshot of everything that is visible. A standalone takes "linearizable" and
/// "snapshot" as the only member of a set does, where MongoDB's answers 123 NotAReplicaSet: nothing
/// about them needs a set.
///
/// # Errors
/// 2 for an unknown level, 14, 40415; 20 and 72 for fields that only a replica set has; 72 for a level that
/// the command does not accept.
pub fn check_read_concern(doc: Doc<'_>, levels: Levels<'_>, place: ReadsIn) -> Result<()> {
    let (member, command) = (place != ReadsIn::Standalone, levels.command);
    let args = Args::parse("readConcern", READ_FIELDS, doc)?;
    for name in ["afterClusterTime", "atClusterTime"] {
        // A null is refused as no timestamp, and does not count as missing.
        if let Some(v) = args.get(name) {
            check_type("readConcern", name, Types::TIMESTAMP, v.ty())?;
            if matches!(v, Value::Timestamp { t: 0, .. }) {
                return Err(Error::new(
                    Code::InvalidOptions,
                    format!("{name} cannot be a null timestamp"),
                ));
            }
        }
    }
    check_provenance("readConcern", args.str("provenance"))?;
    let level = args.str("level");
    let known = matches!(
        level,
        None | Some("local" | "available" | "majority" | "linearizable" | "snapshot")
    );
    if known && args.get("atClusterTime").is_some() && level != Some("snapshot") {
        return Err(Error::new(
            Code::InvalidOptions,
            "readConcern.atClusterTime is only allowed with level \"snapshot\"",
        ));
    }
    let other_level = matches!(level, Some("available" | "linearizable"));
    if member && other_level && args.get("afterClusterTime").is_some() {
        return Err(Error::new(
            Code::InvalidOptions,
            "afterClusterTime field can be set only if level is equal to majority, local, or \
             snapshot",
        ));
    }
    if known && !member && args.get("afterClusterTime").is_some() {
        return Err(Error::new(
            Code::IllegalOperation,
            "Cannot specify afterClusterTime readConcern without replication enabled",
        ));
    }
    if known && !levels.others && !matches!(level, None | Some("local")) {
        return Err(Error::new(
            Code::InvalidOptions,
            format!(
                "Command {command} does not support {{ readConcern: {{ level: \"{}\" }} }}",
                level.unwrap_or_default()
            ),
        ));
    }
    if level == Some("snapshot") && place != ReadsIn::Transaction && !levels.snapshots {
        return Err(Error::new(
            Code::InvalidOptions,
            format!(
                "Command {command} does not support {{ readConcern: {{ level: \"snapshot\" }} }} \
                 :: caused by :: read concern snapshot not supported"
            ),
        ));
    }
    match level {
        Some(other) if !known => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn parse(d: DocBuf) -> Result<WriteConcern> {
        WriteConcern::parse(d.as_doc(), WriteConcern::IMPLICIT, false)
    }

    #[test]
    fn legal_concerns() {
        let wc = |d| parse(d).unwrap();
        assert_eq!(wc(doc! {}), WriteConcern::IMPLICIT);
        assert!(wc(doc! { "w": 0 }).unacknowledged());
        assert_eq!(
            wc(doc! { "w": doc! { "dc": 1 }, "wtimeout": "x" }).w,
            W::Nodes(1)
        );
        assert!(wc(doc! { "w": -0.5 }).unacknowledged());
        assert!(!wc(doc! { "w": 0, "j": true }).unacknowledged());
        assert!(wc(doc! { "w": "majority" }).waits_for_journal());
        assert!(wc(doc! { "fsync": 1 }).waits_for_journal());
        assert!(!wc(doc! { "w": 1.9_f64, "j": false }).waits_for_journal());
        assert_eq!(wc(doc! { "wtimeout": -7 }).wtimeout, 0);
        assert_eq!(wc(doc! { "w": 1, "wtimeout": 5_i64 }).wtimeout, 5);
    }

    #[test]
    fn illegal_concerns() {
        for (d, code) in [
            (doc! { "w": 2 }, 2),
            (doc! { "w": 50 }, 2),
            (doc! { "w": 51 }, 9),
            (doc! { "w": -1 }, 9),
            (doc! { "w": f64::NAN }, 9),
            (doc! { "w": f64::INFINITY }, 9),
            (doc! { "w": "Majority" }, 2),
            (doc! { "w": true }, 9),
            (doc! { "w": 1, "j": "x" }, 14),
            (doc! { "j": true, "fsync": true }, 9),
            (doc! { "wtimeout": 2_147_483_648_i64 }, 9),
            (doc! { "wtimeout": f64::INFINITY }, 9),
            (doc! { "w": doc! {} }, 9),
            (doc! { "w": doc! { "dc": "x" } }, 9),
            (doc! { "w": None::<i32> }, 2),
            (doc! { "w": 1, "provenance": "x" }, 2),
            (doc! { "w": 1, "foo": 1 }, 40415),
        ] {
            let e = parse(d.clone()).err().unwrap_or_else(|| panic!("{d:?}"));
            assert_eq!(e.code().0, code, "{d:?}: {e}");
        }
    }

    #[test]
    fn concerns_of_a_member() {
        let wc = |d: DocBuf| {
            WriteConcern::parse(d.as_doc(), WriteConcern::IMPLICIT_OF_A_SET, true).unwrap()
        };
        assert_eq!(wc(doc! { "w": 2 }).w, W::Nodes(2));
        assert_eq!(wc(doc! { "w": "x" }).w, W::Mode("x".into()));
        assert_eq!(
            wc(doc! { "w": doc! { "dc": 1 } }).w,
            W::Tags(doc! { "dc": 1 })
        );
        assert_eq!(wc(doc! { "j": false }).w, W::Majority);
        assert!(wc(doc! {}).waits_for_journal());
        assert!(!wc(doc! { "w": 1 }).waits_for_journal());
        let after = Value::Timestamp { t: 1, i: 1 };
        for (d, code) in [
            (doc! { "level": "linearizable" }, 0),
            (doc! { "afterClusterTime": after }, 0),
            (doc! { "level": "majority", "afterClusterTime": after }, 0),
            (doc! { "level": "available", "afterClusterTime": after }, 72),
            (
                doc! { "level": "linearizable", "afterClusterTime": after },
                72,
            ),
            (
                doc! { "afterClusterTime": Value::Timestamp { t: 0, i: 0 } },
                72,
            ),
            (doc! { "level": "local", "atClusterTime": after }, 72),
        ] {
            let got = check_read_concern(d.as_doc(), of("find", true, true), ReadsIn::Set);
            assert_eq!(got.map_or_else(|e| e.code().0, |()| 0), code, "{d:?}");
        }
    }

    fn of(command: &str, others: bool, snapshots: bool) -> Levels<'_> {
        Levels {
            command,
            others,
            snapshots,
        }
    }

    #[test]
    fn read_concerns() {
        for (d, code) in [
            (doc! { "level": "local" }, 0),
            (doc! { "level": "majority" }, 0),
            (doc! {}, 0),
            (doc! { "level": "snapshot" }, 0),
            (doc! { "level": "linearizable" }, 0),
            (doc! { "level": "Local" }, 2),
            (doc! { "level": 1 }, 14),
            (doc! { "afterClusterTime": 1 }, 14),
            (doc! { "afterClusterTime": None::<i32> }, 14),
            (
                doc! { "afterClusterTime": Value::Timestamp { t: 1, i: 1 } },
                20,
            ),
            (
                doc! { "atClusterTime": Value::Timestamp { t: 1, i: 1 } },
                72,
            ),
            (
                doc! { "afterClusterTime": Value::Timestamp { t: 0, i: 0 } },
                72,
            ),
            (
                doc! { "level": "snapshot", "atClusterTime": Value::Timestamp { t: 0, i: 1 } },
                72,
            ),
            (doc! { "provenance": "x" }, 2),
            (doc! { "foo": 1 }, 40415),
        ] {
            let got = check_read_concern(d.as_doc(), of("find", true, true), ReadsIn::Standalone)
                .map_or_else(|e| e.code().0, |()| 0);
            assert_eq!(got, code, "{d:?}");
        }
        let unsupported = |d: DocBuf| {
            check_read_concern(d.as_doc(), of("drop", false, false), ReadsIn::Standalone)
        };
        assert!(unsupported(doc! { "level": "local" }).is_ok());
        let e = unsupported(doc! { "level": "majority" }).unwrap_err();
        assert_eq!(e.code(), Code::InvalidOptions);
        let snapshot = doc! { "level": "snapshot" };
        let e = check_read_concern(
            snapshot.as_doc(),
            of("count", true, false),
            ReadsIn::Standalone,
        )
        .unwrap_err();
        assert_eq!(e.code(), Code::InvalidOptions);
    }
}
