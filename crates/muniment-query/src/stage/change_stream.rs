//! `$changeStream`: its options. The events themselves come from the executor, which opens a pipeline that
//! begins with this stage.
//!
//! Source: the MongoDB manual, "$changeStream (aggregation)", and observed replies of MongoDB 8.0.

use super::Stage;
use super::idl::{boolean, document, only, string, wrong_type};
use super::registry::{Input, Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use crate::context::QueryContext;
use muniment_value::{Code, Doc, Elem, Error, Result, Value};

/// The name.
pub const NAME: &str = "$changeStream";
/// The stage that splits large events; it comes after all others.
pub const SPLIT: &str = "$changeStreamSplitLargeEvent";

pub(crate) const SPEC: Spec = Spec {
    name: NAME,
    doc: "The changes of a collection, a database or all of them, as they happen.",
    place: Place::CHANGES.needs(Input::Any),
    spread: Spread::Alone,
    rights: Rights::Instead(|_, right| {
        right(Right::Collection("find"));
        right(Right::Collection("changeStream"));
    }),
    parse,
};

/// Stages that may stand after `$changeStream`.
const BEHIND: [&str; 10] = [
    "$_internalInhibitOptimization",
    "$addFields",
    "$match",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$set",
    "$unset",
    SPLIT,
];

/// The names of the options.
const OPTIONS: [&str; 13] = [
    "allChangesForCluster",
    "allowToRunOnConfigDB",
    "allowToRunOnSystemNS",
    "fullDocument",
    "fullDocumentBeforeChange",
    "resumeAfter",
    SHARD,
    "showExpandedEvents",
    "showMigrationEvents",
    "showRawUpdateDescription",
    "showSystemEvents",
    "startAfter",
    "startAtOperationTime",
];

/// The option by which a router opens the part of a stream that a shard has: the shard's name, which
/// the tokens of its events then bear. Only members of the cluster may set it.
pub const SHARD: &str = "$shard";

/// The options that are for a cluster's own members, and are not there.
const INTERNAL: [&str; 5] = [
    "allowToRunOnConfigDB",
    "allowToRunOnSystemNS",
    "showMigrationEvents",
    "showRawUpdateDescription",
    "showSystemEvents",
];

/// The options of the stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeStreamSpec<'a> {
    /// `fullDocument`: `default`, `updateLookup`, `whenAvailable` or `required`.
    pub full_document: Option<&'a str>,
    /// `fullDocumentBeforeChange`: `off`, `whenAvailable` or `required`.
    pub before_change: Option<&'a str>,
    /// `resumeAfter`: a token.
    pub resume_after: Option<Doc<'a>>,
    /// `startAfter`: a token.
    pub start_after: Option<Doc<'a>>,
    /// `startAtOperationTime`.
    pub start_at: Option<u64>,
    /// `allChangesForCluster`.
    pub all: bool,
    /// `showExpandedEvents`.
    pub expanded: bool,
    /// See [`SHARD`].
    pub shard: Option<&'a str>,
}

/// Reads a field that must have one of these values.
fn one_of<'a>(d: Doc<'a>, field: &str, known: &[&str]) -> Result<Option<&'a str>> {
    if d.get(field).is_some_and(|v| v.is_nullish()) {
        return Ok(None);
    }
    match string(NAME, d, field)? {
        Some(s) if !known.contains(&s) => Err(Error::bad_value(format!(
            "Enumeration value '{s}' for field '{NAME}.{field}' is not a valid value."
        ))),
        other => Ok(other),
    }
}

impl<'a> ChangeStreamSpec<'a> {
    /// Parses the stage.
    ///
    /// # Errors
    /// 6188500 for an operand that is not a document; 40415 for an unknown field, 14 for one of the wrong
    /// type, 2 for an unknown word; 50865 and 40674 for two places to begin at.
    pub fn parse(e: Elem<'a>) -> Result<ChangeStreamSpec<'a>> {
        let Value::Document(d) = e.value() else {
            return Err(Error::location(
                6_188_500,
                format!(
                    "{NAME} must take a nested object but found: {}",
                    crate::bytes::show(e)
                ),
            ));
        };
        // Null counts as absent.
        let given = |field: &str| d.get(field).filter(|v| !v.is_nullish());
        only(NAME, d, &OPTIONS)?;
        check_internal(d)?;
        let spec = ChangeStreamSpec {
            full_document: one_of(
                d,
                "fullDocument",
                &["default", "updateLookup", "whenAvailable", "required"],
            )?,
            before_change: one_of(
                d,
                "fullDocumentBeforeChange",
                &["off", "whenAvailable", "required"],
            )?,
            resume_after: match given("resumeAfter") {
                Some(_) => document(NAME, d, "resumeAfter")?,
                None => None,
            },
            start_after: match given("startAfter") {
                Some(_) => document(NAME, d, "startAfter")?,
                None => None,
            },
            start_at: match given("startAtOperationTime") {
                None => None,
                Some(Value::Timestamp { t, i }) => Some(u64::from(t) << 32 | u64::from(i)),
                Some(v) => return Err(wrong_type(NAME, "startAtOperationTime", v, "timestamp")),
            },
            all: boolean(NAME, d, "allChangesForCluster")?.unwrap_or(false),
            expanded: boolean(NAME, d, "showExpandedEvents")?.unwrap_or(false),
            shard: string(NAME, d, SHARD)?,
        };
        spec.check_start()?;
        Ok(spec)
    }

    /// Fails if the stream is to begin at more than one place.
    fn check_start(&self) -> Result<()> {
        if self.resume_after.is_some() && self.start_after.is_some() {
            return Err(Error::location(
                50_865,
                "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage",
            ));
        }
        if self.start_at.is_some() && (self.resume_after.is_some() || self.start_after.is_some()) {
            return Err(Error::location(
                40_674,
                "Only one type of resume option is allowed, but multiple were found.",
            ));
        }
        Ok(())
    }
}

/// Fails if an option is set that only a cluster's own members may set.
fn check_internal(d: Doc<'_>) -> Result<()> {
    for internal in INTERNAL {
        let given = d.get(internal).is_some_and(|v| !v.is_nullish());
        if given && boolean(NAME, d, internal)? == Some(true) {
            return Err(Error::new(
                Code::InvalidOptions,
                format!("{NAME}.{internal} is for a cluster's own members"),
            ));
        }
    }
    Ok(())
}

/// The `$changeStream` stage of a pipeline that begins with it.
pub fn at_front(stages: Doc<'_>) -> Option<Elem<'_>> {
    let first = stages.values().next()?.as_doc()?.first()?;
    (first.name() == NAME).then_some(first)
}

/// Checks the stages after the first one.
///
/// # Errors
/// 20 IllegalOperation for one that is not allowed; 40602 for a second `$changeStream`; 7182802 if the stage
/// that splits events is not the last.
pub fn check_behind(stages: Doc<'_>) -> Result<()> {
    let stages = stages.values().skip(1).filter_map(|v| v.as_doc()?.first());
    let stages: Vec<Elem<'_>> = stages.collect();
    for (n, stage) in stages.iter().enumerate() {
        let name = stage.name();
        if name == NAME {
            return Err(Error::location(
                40_602,
                format!("{NAME} is only valid as the first stage in a pipeline"),
            ));
        }
        if name == SPLIT && n + 1 < stages.len() {
            return Err(Error::location(
                7_182_802,
                format!("{SPLIT} must be the last stage in the pipeline"),
            ));
        }
        let may = BEHIND.contains(&name) || (name == "$fill" && fills_with_constants(*stage));
        if !may && super::registry::place(name).is_some() {
            return Err(Error::new(
                Code::IllegalOperation,
                format!("{name} is not permitted in a {NAME} pipeline"),
            ));
        }
    }
    Ok(())
}

/// True for a `$fill` that works like `$addFields`: no document depends on another one.
fn fills_with_constants(stage: Elem<'_>) -> bool {
    let spec = stage.value().as_doc().unwrap_or(Doc::EMPTY);
    let output = spec.get_doc("output").unwrap_or(Doc::EMPTY);
    let alone = |v: Value<'_>| v.as_doc().is_some_and(|d| d.get("value").is_some());
    spec.get("sortBy").is_none() && output.values().all(alone)
}

fn parse(e: Elem<'_>, _: &QueryContext, _: &mut Vec<Stage>) -> Result<()> {
    ChangeStreamSpec::parse(e).map(drop)
}

/// The error of explain for a change stream.
pub fn not_explained() -> Error {
    Error::new(
        Code::IllegalOperation,
        format!("{NAME} cannot be explained: it reads the log, without a plan"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn wrong_options_are_refused() {
        let t = doc! { "_data": "82" };
        for (spec, code) in [
            (doc! { "fullDocument": "often" }, 2),
            (doc! { "fullDocument": 1 }, 14),
            (doc! { "full": "x" }, 40_415),
            (doc! { "resumeAfter": "82" }, 14),
            (doc! { "resumeAfter": &t, "startAfter": &t }, 50_865),
            (
                doc! { "resumeAfter": &t, "startAtOperationTime": Value::Timestamp { t: 5, i: 1 } },
                40_674,
            ),
            (doc! { "startAtOperationTime": 5 }, 14),
            (doc! { "showMigrationEvents": true }, 72),
        ] {
            let stage = doc! { "$changeStream": &spec };
            let e = ChangeStreamSpec::parse(stage.as_doc().first().unwrap()).unwrap_err();
            assert_eq!(e.code().0, code, "{spec:?} {e}");
        }
        for (behind, code) in [
            (array![doc! { "$limit": 1 }], 20),
            (array![doc! { "$group": doc! { "_id": 1 } }], 20),
            (array![doc! { "$changeStream": doc! {} }], 40_602),
            (
                array![
                    doc! { "$changeStreamSplitLargeEvent": doc! {} },
                    doc! { "$match": doc! {} }
                ],
                7_182_802,
            ),
        ] {
            let mut stages = array![doc! { "$changeStream": doc! {} }];
            for v in behind.as_doc().values() {
                stages.push(v);
            }
            assert!(at_front(stages.as_doc()).is_some());
            assert_eq!(check_behind(stages.as_doc()).unwrap_err().code().0, code);
        }
        let good = array![
            doc! { "$changeStream": doc! {} },
            doc! { "$match": doc! {} },
            doc! { "$changeStreamSplitLargeEvent": doc! {} },
        ];
        check_behind(good.as_doc()).unwrap();
    }
}
