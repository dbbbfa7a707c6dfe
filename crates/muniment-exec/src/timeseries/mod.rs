//! Time-series collections.
//!
//! A measurement is one document, keyed by its time: the natural order is the order of time, and
//! old measurements are deleted by a range. No buckets are stored. The names and options of
//! MongoDB's buckets are shown where MongoDB shows them, and `system.buckets.NAME` is made from the
//! measurements when it is read ([`render`]) and taken apart when it is written ([`restore`]), so
//! that dumps work in both directions. Invariants: every measurement has a date in the time field;
//! updates change only the meta field, and of all measurements that match; a bucket is written as a
//! whole or not at all.

pub(crate) mod catalog;
mod fields;
mod keys;
pub(crate) mod read;
pub(crate) mod render;
pub(crate) mod restore;
mod unpack;

pub use catalog::series_view;
pub use read::BucketFigures;

use muniment_query::Interrupt;
use muniment_storage::{Collection, IndexSpec, Store};
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, doc, number};
use std::sync::Arc;

/// The prefix that makes the name of the buckets from a time-series collection's name.
pub const BUCKETS: &str = "system.buckets.";

/// The options with which a time-series collection was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeSeries {
    /// The field with the date.
    pub time_field: String,
    /// The field that labels a series.
    pub meta_field: Option<String>,
    /// The longest time that a bucket spans, in ms.
    pub span_ms: i64,
    /// The unit to which the time of a bucket is rounded down, in ms.
    pub rounding_ms: i64,
    /// The collation of the collection.
    pub collation: Collation,
}

impl TimeSeries {
    /// The time series that a collection is; `None` if it is none.
    pub fn of(collection: &Collection) -> Option<TimeSeries> {
        if !collection.is_time_series() {
            return None;
        }
        let options = collection.options();
        let fields = options.document.as_doc().get_doc("timeseries")?;
        TimeSeries::of_fields(fields, collection.collation().clone())
    }

    /// The time series with these options, which are those that [`series_options`] makes.
    pub fn of_fields(d: Doc<'_>, collation: Collation) -> Option<TimeSeries> {
        let seconds = |name: &str| d.get(name).and_then(number::to_i64_clamped);
        let granularity = d.get_str("granularity").unwrap_or("seconds");
        let span = seconds("bucketMaxSpanSeconds").or_else(|| granularity_span(granularity));
        let rounding = seconds("bucketRoundingSeconds").unwrap_or(match granularity {
            "hours" => 86_400,
            "minutes" => 3600,
            _ => 60,
        });
        Some(TimeSeries {
            time_field: d.get_str("timeField")?.to_string(),
            meta_field: d.get_str("metaField").map(str::to_string),
            span_ms: span.unwrap_or(3600).saturating_mul(1000),
            rounding_ms: rounding.saturating_mul(1000),
            collation,
        })
    }

    /// Checks a measurement that is about to be inserted.
    ///
    /// # Errors
    /// 2 BadValue if the time field has no date.
    pub fn check_measurement(&self, measurement: Doc<'_>) -> Result<()> {
        match measurement.get(&self.time_field) {
            Some(Value::DateTime(_)) => Ok(()),
            _ => Err(Error::bad_value(format!(
                "'{}' must be present and contain a valid BSON UTC datetime value",
                self.time_field
            ))),
        }
    }

    /// Checks an update: it must change all that match, have only operators, touch only the meta
    /// field, and not upsert.
    ///
    /// # Errors
    /// 72 InvalidOptions.
    pub fn check_update(&self, update: Value<'_>, multi: bool, upsert: bool) -> Result<()> {
        let invalid = |message: String| Err(Error::new(Code::InvalidOptions, message));
        if upsert {
            return invalid("Cannot perform an upsert on a time-series collection".into());
        }
        if !multi {
            return invalid("Cannot perform a non-multi update on a time-series collection".into());
        }
        let Value::Document(operators) = update else {
            return invalid(
                "Cannot perform an update on a time-series collection using a pipeline update"
                    .into(),
            );
        };
        let Some(meta) = &self.meta_field else {
            return invalid(
                "Cannot perform an update on a time-series collection that does not have a \
                 metaField"
                    .into(),
            );
        };
        for e in operators {
            let Value::Document(paths) = e.value() else {
                return invalid(
                    "Cannot perform a replacement-style update on a time-series collection".into(),
                );
            };
            if !e.name().starts_with('$') {
                return invalid(
                    "Cannot perform a replacement-style update on a time-series collection".into(),
                );
            }
            for p in paths {
                let of_meta = |path: &str| {
                    path == meta
                        || path
                            .strip_prefix(meta.as_str())
                            .is_some_and(|rest| rest.starts_with('.'))
                };
                let renamed = match p.value() {
                    Value::String(to) if e.name() == "$rename" => of_meta(to),
                    _ => true,
                };
                if !of_meta(p.name()) || !renamed {
                    return invalid(format!(
                        "Cannot perform an update on a time-series collection which updates a \
                         field that is not the metaField: {}",
                        p.name()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The seconds that a bucket of a granularity spans; `None` for an unknown granularity.
pub fn granularity_span(granularity: &str) -> Option<i64> {
    match granularity {
        "seconds" => Some(3600),
        "minutes" => Some(86_400),
        "hours" => Some(2_592_000),
        _ => None,
    }
}

/// The options of a time-series collection as they are stored and listed: its fields, and its
/// granularity, or without one the span and the rounding of a bucket in seconds.
pub fn series_options(
    time: &str,
    meta: Option<&str>,
    granularity: Option<&str>,
    span: i64,
    rounding: i64,
) -> DocBuf {
    let mut d = doc! { "timeField": time };
    d.append_some("metaField", meta);
    match granularity {
        Some(g) => {
            d.append("granularity", g);
        }
        None => {
            d.append("bucketRoundingSeconds", rounding as i32);
        }
    }
    d.append("bucketMaxSpanSeconds", span as i32);
    d
}

/// The options of the buckets of a time-series collection, as MongoDB lists them: all of the
/// collection's options, with `clusteredIndex` and the schema of a bucket.
pub fn buckets_options(options: Doc<'_>) -> DocBuf {
    let time = options
        .get_doc("timeseries")
        .and_then(|d| d.get_str("timeField"))
        .unwrap_or_default();
    let mut bounds = doc! { "bsonType": "object" };
    bounds.append("required", muniment_value::array![time]);
    let mut properties = DocBuf::new();
    properties.append(time, doc! { "bsonType": "date" });
    bounds.append("properties", properties);
    let control = doc! {
        "bsonType": "object",
        "required": muniment_value::array!["version", "min", "max"],
        "properties": doc! {
            "version": doc! { "bsonType": "number" },
            "min": &bounds,
            "max": &bounds,
            "closed": doc! { "bsonType": "bool" },
            "count": doc! { "bsonType": "number", "minimum": 1 },
        },
    };
    let mut d = doc! {
        "validator": doc! { "$jsonSchema": doc! {
            "bsonType": "object",
            "required": muniment_value::array!["_id", "control", "data"],
            "properties": doc! {
                "_id": doc! { "bsonType": "objectId" },
                "control": control,
                "data": doc! { "bsonType": "object" },
                "meta": doc! {},
            },
            "additionalProperties": false,
        } },
        "clusteredIndex": true,
    };
    for e in options {
        d.append_elem(e);
    }
    d
}

/// Implements [`crate::Database::create_series_index`].
pub(crate) fn create_series_index(
    store: &Store,
    collection: &Arc<Collection>,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let Some(TimeSeries {
        time_field,
        meta_field: Some(meta),
        ..
    }) = TimeSeries::of(collection)
    else {
        return Ok(());
    };
    let mut key = DocBuf::new();
    key.append(&meta, 1);
    key.append(&time_field, 1);
    let name = format!("{meta}_1_{time_field}_1");
    let spec = doc! { "v": 2, "key": key, "name": name };
    // If no index can have that field name, the collection gets none.
    let Ok(spec) = IndexSpec::parse_for(spec.as_doc(), collection.collation()) else {
        return Ok(());
    };
    let built = store.create_index(collection, spec, interrupt);
    built.map(drop)
}

/// The name under which a collection's documents are stored. A time-series collection's buckets
/// have a name of their own.
pub fn stored_name(collection: &Collection, name: &str) -> String {
    if collection.is_time_series() {
        format!("{BUCKETS}{name}")
    } else {
        name.to_string()
    }
}

/// Implements [`crate::Database::check_series_update`].
pub(crate) fn check_series_update(
    store: &Store,
    namespace: &str,
    update: Value<'_>,
    multi: bool,
    upsert: bool,
) -> Result<()> {
    let series = store.collection(namespace).and_then(|c| TimeSeries::of(&c));
    match series {
        Some(s) => s.check_update(update, multi, upsert),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::array;

    fn series() -> TimeSeries {
        TimeSeries {
            time_field: "t".into(),
            meta_field: Some("m".into()),
            span_ms: 3_600_000,
            rounding_ms: 60_000,
            collation: Collation::default(),
        }
    }

    #[test]
    fn measurements_have_a_date() {
        let check = |d: DocBuf| series().check_measurement(d.as_doc()).is_ok();
        assert!(check(doc! { "t": Value::DateTime(1) }));
        assert!(!check(doc! { "t": 1 }));
        assert!(!check(doc! { "x": Value::DateTime(1) }));
    }

    #[test]
    fn updates_change_the_meta_field() {
        let check = |d: DocBuf| {
            series()
                .check_update(Value::Document(d.as_doc()), true, false)
                .is_ok()
        };
        assert!(check(doc! { "$set": doc! { "m": 1, "m.a": 2 } }));
        assert!(check(doc! { "$unset": doc! { "m": "" } }));
        assert!(!check(doc! { "$set": doc! { "m": 1, "v": 2 } }));
        assert!(!check(doc! { "$set": doc! { "mm": 1 } }));
        assert!(!check(doc! { "$rename": doc! { "m": "x" } }));
        assert!(!check(doc! { "m": 1 }));
        let set = doc! { "$set": doc! { "m": 1 } };
        let set = Value::Document(set.as_doc());
        assert!(series().check_update(set, false, false).is_err());
        assert!(series().check_update(set, true, true).is_err());
        let pipeline = array![doc! { "$set": doc! { "m": 1 } }];
        let pipeline = Value::Array(pipeline.as_doc());
        assert!(series().check_update(pipeline, true, false).is_err());
    }
}
