//! Cluster parameters: settings that MongoDB keeps for a whole cluster in `config.clusterParameters`.
//! A standalone is a cluster of one.
//!
//! Invariants: what the collection holds is in force, however it got there ([`settings`]). A parameter is
//! listed here because it has an effect, or because it is about something that no standalone has (change
//! streams, shards): MongoDB's standalone keeps and shows those, too, and their descriptions say so.
//!
//! Source: the MongoDB manual, "Cluster Parameters", and observed replies of MongoDB 8.0.

use crate::settings;
use crate::state::ServerState;
use muniment_exec::{FindRequest, OpContext, UpdateStatement};
use muniment_logger::Severity;
use muniment_storage::CommitId;
use muniment_value::args::{Args, Field, Types, missing_field, opt};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// Where the values are stored.
pub const NAMESPACE: &str = "config.clusterParameters";

/// One cluster parameter.
pub struct ClusterParameter {
    /// Its name.
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    /// Checks a value, and returns it with its defaults.
    parse: fn(Doc<'_>) -> Result<DocBuf>,
    /// The value that is in force if none was set.
    default: fn() -> DocBuf,
    /// Passes a value on to the code that uses it.
    apply: fn(&ClusterParameters, Doc<'_>),
}

/// The values that were set.
#[derive(Default)]
pub struct ClusterParameters {
    values: RwLock<BTreeMap<&'static str, DocBuf>>,
    /// defaultMaxTimeMS.readOperations in milliseconds; 0: none.
    read_limit_ms: AtomicI64,
    /// changeStreamOptions.preAndPostImages.expireAfterSeconds; 0: off.
    image_seconds: Arc<AtomicI64>,
}

/// All of them, sorted by name.
pub const ALL: &[ClusterParameter] = &[
    ClusterParameter {
        name: "changeStreamOptions",
        doc: "How long change streams show documents as they were before a change",
        parse: change_stream_options,
        default: || doc! { "preAndPostImages": doc! { "expireAfterSeconds": "off" } },
        apply: |p, d| {
            let images = d.get_doc("preAndPostImages");
            let seconds = images.and_then(|d| number::to_i64_clamped(d.get("expireAfterSeconds")?));
            p.image_seconds.store(seconds.unwrap_or(0), Relaxed);
        },
    },
    ClusterParameter {
        name: "changeStreams",
        doc: "How long the change collections of serverless clusters are kept (a standalone has none)",
        parse: |d| {
            const FIELDS: &[Field] = &[opt("expireAfterSeconds", Types::NUMBER)];
            let a = Args::parse("changeStreams", FIELDS, d)?;
            let n = a.int("expireAfterSeconds", 1, i64::MAX)?;
            Ok(doc! { "expireAfterSeconds": n.unwrap_or(3600) })
        },
        default: || doc! { "expireAfterSeconds": 3600_i64 },
        apply: |_, _| {},
    },
    ClusterParameter {
        name: "defaultMaxTimeMS",
        doc: "The time limit of reads that bring none, in milliseconds (0: none)",
        parse: |d| {
            const FIELDS: &[Field] = &[opt("readOperations", Types::NUMBER)];
            let a = Args::parse("defaultMaxTimeMS", FIELDS, d)?;
            let n = a.int("readOperations", 0, i64::from(i32::MAX))?;
            Ok(doc! { "readOperations": n.unwrap_or(0) })
        },
        default: || doc! { "readOperations": 0_i64 },
        apply: |p, d| {
            let ms = d.get("readOperations").and_then(|v| v.as_i64_exact());
            p.read_limit_ms.store(ms.unwrap_or(0), Relaxed);
        },
    },
    ClusterParameter {
        name: "pauseMigrationsDuringMultiUpdates",
        doc: "Whether multi-updates hold chunk migrations up (a standalone has none)",
        parse: |d| {
            const FIELDS: &[Field] = &[opt("enabled", Types::BOOL)];
            let a = Args::parse("pauseMigrationsDuringMultiUpdates", FIELDS, d)?;
            Ok(doc! { "enabled": a.bool("enabled", false) })
        },
        default: || doc! { "enabled": false },
        apply: |_, _| {},
    },
];

/// `changeStreamOptions`, whose every error is 2 BadValue.
fn change_stream_options(d: Doc<'_>) -> Result<DocBuf> {
    const PATH: &str = "changeStreamOptions";
    const IMAGES: &str = "changeStreamOptions.preAndPostImages";
    const OPTIONS: &[Field] = &[opt("preAndPostImages", Types::OBJECT)];
    const FIELDS: &[Field] = &[opt("expireAfterSeconds", Types::STRING.or(Types::NUMBER))];
    let parse = || -> Result<DocBuf> {
        let a = Args::parse(PATH, OPTIONS, d)?;
        let images = a
            .doc("preAndPostImages")
            .ok_or_else(|| missing_field(PATH, "preAndPostImages"))?;
        let a = Args::parse(IMAGES, FIELDS, images)?;
        let mut kept = DocBuf::new();
        match a.get("expireAfterSeconds") {
            None => return Err(missing_field(IMAGES, "expireAfterSeconds")),
            Some(Value::String("off")) => kept.append("expireAfterSeconds", "off"),
            Some(Value::String(_)) => {
                return Err(Error::bad_value(
                    "Non-numeric value of 'expireAfterSeconds' should be 'off'",
                ));
            }
            Some(n) => match number::to_i64_clamped(n) {
                Some(n) if n > 0 => kept.append("expireAfterSeconds", n),
                _ => {
                    return Err(Error::bad_value(
                        "Numeric value of 'expireAfterSeconds' should be positive",
                    ));
                }
            },
        };
        Ok(doc! { "preAndPostImages": kept })
    };
    parse().map_err(|e| match e.code() {
        Code::BadValue => e,
        _ => Error::bad_value(format!(
            "Failed parsing new changeStreamOptions value: {}",
            e.message()
        )),
    })
}

/// The parameter with this name.
///
/// # Errors
/// 4 NoSuchKey.
pub fn find(name: &str) -> Result<&'static ClusterParameter> {
    ALL.iter()
        .find(|p| p.name == name)
        .ok_or_else(|| Error::new(Code::NoSuchKey, format!("Unknown server parameter: {name}")))
}

impl ClusterParameters {
    /// Values of which none is set yet. The lifetime of images is published through `image_seconds`.
    pub fn new(image_seconds: Arc<AtomicI64>) -> ClusterParameters {
        ClusterParameters {
            image_seconds,
            ..ClusterParameters::default()
        }
    }

    /// The parameter as getClusterParameter shows it, without the time of its change, which a standalone of
    /// MongoDB leaves out, too.
    pub fn show(&self, parameter: &ClusterParameter) -> DocBuf {
        let mut d = doc! { "_id": parameter.name };
        match self.values.read().get(parameter.name) {
            Some(value) => d.append_all(value.as_doc()),
            None => d.append_all((parameter.default)().as_doc()),
        };
        d
    }

    /// The time limit of reads that have no `maxTimeMS`.
    pub fn read_limit(&self) -> Option<Duration> {
        match self.read_limit_ms.load(Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms as u64)),
        }
    }

    fn put(&self, parameter: &'static ClusterParameter, value: DocBuf) {
        (parameter.apply)(self, value.as_doc());
        self.values.write().insert(parameter.name, value);
    }
}

/// Checks a value, stores it, puts it in force and waits until it is durable.
///
/// # Errors
/// 2 BadValue, 14, 40415 of the value; 52 for a field that begins with a dollar; the errors of storing.
pub fn set(
    server: &ServerState,
    op: &Arc<OpContext>,
    parameter: &'static ClusterParameter,
    value: Value<'_>,
) -> Result<Option<CommitId>> {
    let Value::Document(given) = value else {
        return Err(Error::bad_value(
            "Cluster parameter value must be an object",
        ));
    };
    let seconds = muniment_logger::now_ms() / 1000;
    let mut stored = doc! {
        "_id": parameter.name,
        "clusterParameterTime": Value::Timestamp { t: seconds as u32, i: 1 },
    };
    stored.append_all(given);
    // As in MongoDB, field names are checked before the value, since MongoDB checks the document that it
    // stores.
    if let Some(e) = given.iter().find(|e| e.name().starts_with('$')) {
        return Err(Error::new(
            Code::DollarPrefixedFieldName,
            format!(
                "The dollar ($) prefixed field '{0}' in '{0}' is not allowed in the context of an \
                 update's replacement document. Consider using an aggregation pipeline with \
                 $replaceWith.",
                e.name()
            ),
        ));
    }
    let parsed = (parameter.parse)(given)?;
    let filter = doc! { "_id": parameter.name };
    let statement = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(filter.as_doc(), Value::Document(stored.as_doc()))
    };
    let outcome = settings::change(server, || {
        let outcome = server.engine.update(op, NAMESPACE, &statement)?;
        server.settings.cluster.put(parameter, parsed);
        Ok(outcome)
    })?;
    if let Some(commit) = outcome.commit {
        server.engine.store.wait_journaled(commit, &**op)?;
    }
    Ok(outcome.commit)
}

/// Puts in force what the collection holds, for [`settings::take`]. A value that cannot be parsed is logged
/// as a warning, and the default is in force instead.
pub fn load(server: &ServerState) {
    let op = OpContext::internal("getClusterParameter");
    for parameter in ALL {
        let stored = match stored(server, &op, parameter.name) {
            Ok(stored) => stored,
            Err(e) => {
                // The error says nothing about the value, so the one in force stays.
                warn(server, parameter.name, "read", &e);
                continue;
            }
        };
        let parsed = stored.map(|d| {
            let mut value = DocBuf::new();
            for e in Doc::new(&d).iter() {
                if !matches!(e.name(), "_id" | "clusterParameterTime") {
                    value.append_elem(e);
                }
            }
            (parameter.parse)(value.as_doc())
        });
        let value = match parsed {
            Some(Ok(value)) => value,
            Some(Err(e)) => {
                warn(server, parameter.name, "used", &e);
                (parameter.default)()
            }
            None => (parameter.default)(),
        };
        server.settings.cluster.put(parameter, value);
    }
}

/// Warns that a stored parameter cannot be `done`, such as read.
fn warn(server: &ServerState, name: &str, done: &str, error: &Error) {
    let attr = doc! { "parameter": name, "error": server.log.error(error) };
    let message = format!("A stored cluster parameter cannot be {done}");
    server.log.log(
        Severity::Warning,
        "CONTROL",
        6_226_301,
        "clusterParameters",
        &message,
        Some(&attr),
    );
}

fn stored(server: &ServerState, op: &Arc<OpContext>, name: &str) -> Result<Option<bytes::Bytes>> {
    if server.engine.store.collection(NAMESPACE).is_none() {
        return Ok(None);
    }
    let filter = doc! { "_id": name };
    let request = FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(NAMESPACE)
    };
    server.engine.find(op, &request)?.next_doc(op)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn sorted_described_and_their_defaults_are_values() {
        assert!(ALL.is_sorted_by(|a, b| a.name < b.name));
        for p in ALL {
            assert!(!p.doc.is_empty() && !p.doc.ends_with('.'), "{}", p.name);
            let default = (p.default)();
            assert_eq!((p.parse)(default.as_doc()).unwrap(), default, "{}", p.name);
        }
    }
}
