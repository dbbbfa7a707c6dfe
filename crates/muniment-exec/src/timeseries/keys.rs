//! Translates the indexes of a time-series collection to those of its buckets, and back.

use super::TimeSeries;
use muniment_value::{Doc, DocBuf, Value, number};

/// The prefixes of the bucket's fields that hold the least and the greatest values.
const MIN: &str = "control.min.";
const MAX: &str = "control.max.";

impl TimeSeries {
    /// The rest of a path after the metaField: empty, or a dot and more. `None` for other paths.
    fn behind_meta<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.meta_field.as_deref()?)?;
        (rest.is_empty() || rest.starts_with('.')).then_some(rest)
    }

    /// The key pattern of the buckets for a key pattern of the measurements. The second part is
    /// true if the latter can be told from the former.
    fn key_of_buckets(&self, key: Doc<'_>) -> (DocBuf, bool) {
        let (mut out, mut plain) = (DocBuf::new(), true);
        for e in key {
            if let Some(rest) = self.behind_meta(e.name()) {
                out.append(&format!("meta{rest}"), e);
                continue;
            }
            plain &= e.name() == self.time_field;
            let [first, second] = match e.value() {
                // The value of an index kind: only 2dsphere can occur here.
                Value::String(kind) => {
                    out.append(&format!("data.{}", e.name()), format!("{kind}_bucket"));
                    continue;
                }
                v if number::to_f64(v).is_some_and(|n| n < 0.0) => [MAX, MIN],
                _ => [MIN, MAX],
            };
            out.append(&format!("{first}{}", e.name()), e);
            out.append(&format!("{second}{}", e.name()), e);
        }
        (out, plain)
    }

    /// An index of the measurements in the form in which `listIndexes` of the buckets shows it.
    pub fn index_of_buckets(&self, index: Doc<'_>) -> DocBuf {
        let key = index.get_doc("key").unwrap_or(Doc::EMPTY);
        let (key, plain) = self.key_of_buckets(key);
        let filter = index.get_doc("partialFilterExpression");
        let mut out = DocBuf::new();
        for e in index {
            match (e.name(), filter) {
                ("key", _) => out.append("key", &key),
                ("partialFilterExpression", Some(f)) => {
                    out.append(e.name(), self.filter_of_buckets(f))
                }
                _ => out.append_elem(e),
            };
        }
        if !plain || filter.is_some() {
            out.append("originalSpec", index);
        }
        out
    }

    /// A filter on the metaField, translated to its name in a bucket.
    fn filter_of_buckets(&self, filter: Doc<'_>) -> DocBuf {
        let mut out = DocBuf::new();
        for e in filter {
            match (self.behind_meta(e.name()), e.value()) {
                (Some(rest), _) => out.append(&format!("meta{rest}"), e),
                (None, Value::Array(all)) if e.name().starts_with('$') => {
                    let all: muniment_value::ArrayBuf = all
                        .values()
                        .filter_map(|v| v.as_doc())
                        .map(|d| self.filter_of_buckets(d))
                        .collect();
                    out.append(e.name(), all)
                }
                _ => out.append_elem(e),
            };
        }
        out
    }

    /// Translates an index that was asked for on the buckets to one of the measurements. `None` if
    /// no index corresponds to it.
    pub fn index_of_series(&self, index: Doc<'_>) -> Option<DocBuf> {
        if let Some(original) = index.get_doc("originalSpec") {
            return Some(original.to_buf());
        }
        let key = self.key_of_series(index.get_doc("key")?)?;
        let mut out = DocBuf::new();
        for e in index {
            match e.name() {
                "key" => out.append("key", &key),
                "partialFilterExpression" => {
                    let f = e.value();
                    out.append(e.name(), self.filter_of_series(f.as_doc()?)?)
                }
                _ => out.append_elem(e),
            };
        }
        Some(out)
    }

    /// Translates a key pattern of the buckets to one of the measurements.
    pub fn key_of_series(&self, key: Doc<'_>) -> Option<DocBuf> {
        let mut out = DocBuf::new();
        let mut all = key.iter();
        while let Some(e) = all.next() {
            if let Some(path) = self.path_of_series(e.name()) {
                out.append(&path, e);
                continue;
            }
            let descending = number::to_f64(e.value())? < 0.0;
            let (first, second) = if descending { (MAX, MIN) } else { (MIN, MAX) };
            let name = e.name().strip_prefix(first)?;
            let other = all.next()?;
            if other.name().strip_prefix(second)? != name || other.raw_value() != e.raw_value() {
                return None;
            }
            out.append(name, e);
        }
        Some(out)
    }

    /// Translates `meta`, or a path in it, to the metaField's name.
    fn path_of_series(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix("meta")?;
        let meta = self.meta_field.as_deref()?;
        (rest.is_empty() || rest.starts_with('.')).then(|| format!("{meta}{rest}"))
    }

    fn filter_of_series(&self, filter: Doc<'_>) -> Option<DocBuf> {
        let mut out = DocBuf::new();
        for e in filter {
            out.append(&self.path_of_series(e.name())?, e);
        }
        Some(out)
    }

    /// The part of a filter on buckets that concerns only the metaField, as a filter on
    /// measurements. A measurement that it leaves out is in no bucket that the whole filter finds.
    pub(crate) fn filter_of_points(&self, filter: Doc<'_>) -> DocBuf {
        let mut out = DocBuf::new();
        for e in filter {
            if let Some(path) = self.path_of_series(e.name()) {
                out.append(&path, e);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::doc;

    fn series() -> TimeSeries {
        TimeSeries {
            time_field: "t".into(),
            meta_field: Some("m".into()),
            span_ms: 3_600_000,
            rounding_ms: 60_000,
            collation: muniment_value::Collation::default(),
        }
    }

    fn index(key: &str, more: &str) -> DocBuf {
        DocBuf::from_json(&format!(r#"{{"v": 2, "key": {key}, "name": "x"{more}}}"#)).unwrap()
    }

    #[test]
    fn keys_go_there_and_back() {
        for (points, buckets) in [
            (
                r#"{"m": 1, "t": 1}"#,
                r#"{"meta": 1, "control.min.t": 1, "control.max.t": 1}"#,
            ),
            (
                r#"{"t": -1, "m.a.b": -1}"#,
                r#"{"control.max.t": -1, "control.min.t": -1, "meta.a.b": -1}"#,
            ),
            (r#"{"m.x": "2dsphere"}"#, r#"{"meta.x": "2dsphere"}"#),
        ] {
            let (points, buckets) = (index(points, ""), index(buckets, ""));
            assert_eq!(series().index_of_buckets(points.as_doc()), buckets);
            assert_eq!(series().index_of_series(buckets.as_doc()), Some(points));
        }
        // If the key pattern does not show the original index, that is stored beside it.
        for (points, key) in [
            (
                index(r#"{"v": 1}"#, ""),
                r#"{"control.min.v": 1, "control.max.v": 1}"#,
            ),
            (
                index(r#"{"p": "2dsphere"}"#, ""),
                r#"{"data.p": "2dsphere_bucket"}"#,
            ),
        ] {
            let shown = series().index_of_buckets(points.as_doc());
            let key = DocBuf::from_json(key).unwrap();
            assert_eq!(shown.as_doc().get_doc("key").unwrap().to_buf(), key);
            assert_eq!(series().index_of_series(shown.as_doc()), Some(points));
        }
        let partial = index(
            r#"{"t": 1}"#,
            r#", "partialFilterExpression": {"m.x": {"$gt": 1}}"#,
        );
        let shown = series().index_of_buckets(partial.as_doc());
        let filter = shown.as_doc().get_doc("partialFilterExpression").unwrap();
        assert_eq!(filter.to_buf(), doc! { "meta.x": doc! { "$gt": 1 } });
        assert_eq!(series().index_of_series(shown.as_doc()), Some(partial));
    }

    #[test]
    fn keys_that_no_measurement_has() {
        for key in [
            r#"{"data.v": 1}"#,
            r#"{"control.min.t": 1}"#,
            r#"{"control.min.t": 1, "control.max.u": 1}"#,
            r#"{"control.max.t": 1, "control.min.t": 1}"#,
            r#"{"control.min.t": 1, "control.max.t": -1}"#,
            r#"{"metadata": 1}"#,
        ] {
            assert!(
                series().index_of_series(index(key, "").as_doc()).is_none(),
                "{key}"
            );
        }
    }

    #[test]
    fn the_part_of_a_filter_that_measurements_have() {
        let f = DocBuf::from_json(
            r#"{"meta.a": 1, "control.min.t": {"$gt": 1}, "meta": {"$ne": null}, "_id": 1}"#,
        );
        let part = series().filter_of_points(f.unwrap().as_doc());
        let expected = doc! { "m.a": 1, "m": doc! { "$ne": Value::Null } };
        assert_eq!(part, expected);
    }
}
