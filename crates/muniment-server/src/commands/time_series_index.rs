//! Which indexes a time-series collection may have.

use muniment_exec::OpContext;
use muniment_query::{Filter, Needs, QueryContext};
use muniment_storage::IndexSpec;
use muniment_storage::kinds::is_wildcard;
use muniment_value::{Code, Doc, DocBuf, Elem, Error, Result, Value};
use std::sync::Arc;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidOptions, message)
}

/// Checks an index against a collection's options. Any index of another collection passes.
///
/// # Errors
/// 72 InvalidOptions, 67 CannotCreateIndex, 85 IndexOptionsConflict, 7246201.
pub(super) fn check(options: Doc<'_>, spec: &IndexSpec, op: &Arc<OpContext>) -> Result<()> {
    let Some(series) = options.get_doc("timeseries") else {
        return Ok(());
    };
    let time = series.get_str("timeField").unwrap_or_default();
    let meta = series.get_str("metaField");
    let of_meta = |path: &str| {
        meta.and_then(|m| path.strip_prefix(m))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let key = spec.key.as_doc();
    // The `_id`s of measurements need not be unique, but an index with that pattern is.
    if key.count() == 1
        && key
            .first()
            .is_some_and(|e| e.name() == "_id" && e.value().is_number())
    {
        return Err(invalid(
            "An index on _id alone is not supported on time-series collections",
        ));
    }
    for e in key {
        check_kind(e, of_meta(e.name()))?;
    }
    if spec.unique || spec.prepare_unique {
        return Err(invalid(
            "Unique indexes are not supported on time-series collections",
        ));
    }
    if spec.sparse && !key.iter().all(|e| of_meta(e.name())) {
        return Err(invalid(
            "Sparse indexes are not supported on time-series collections but on the metaField",
        ));
    }
    let ctx = QueryContext::new().with_operation(op.clone());
    let parse = |f: &DocBuf| Filter::parse(f.as_doc(), &ctx);
    let filter = spec.partial_filter.as_ref().map(parse).transpose()?;
    if filter.is_some() && spec.document.as_doc().get("collation").is_some() {
        return Err(Error::new(
            Code::IndexOptionsConflict,
            "The partial index of a time-series collection cannot have a collation of its own",
        ));
    }
    if spec.expire_after_seconds.is_some() {
        let on_time = key.count() == 1 && key.first().is_some_and(|e| e.name() == time);
        let on_meta = filter.is_some_and(|f| {
            let mut needs = Needs::default();
            needs.filter(f.root());
            needs
                .into_paths()
                .is_some_and(|p| p.iter().all(|p| of_meta(p)))
        });
        if !on_time || !on_meta {
            return Err(invalid(
                "TTL indexes on time-series collections must be on the timeField and need a \
                 partialFilterExpression on the metaField",
            ));
        }
    }
    Ok(())
}

/// Refuses a field of an index of a kind that a time series cannot have. `of_meta` says that the field lies in
/// the metaField.
///
/// # Errors
/// 7246201, 72 InvalidOptions, 67 CannotCreateIndex.
fn check_kind(e: Elem<'_>, of_meta: bool) -> Result<()> {
    if is_wildcard(e.name()) {
        return Err(Error::location(
            7_246_201,
            "Wildcard indexes are not supported on time-series collections",
        ));
    }
    match e.value() {
        Value::String("text") => Err(invalid(
            "Text indexes are not supported on time-series collections",
        )),
        Value::String(kind @ ("hashed" | "2d")) if !of_meta => Err(Error::new(
            Code::CannotCreateIndex,
            format!(
                "Measurements of a time-series collection cannot have an index of type '{kind}'"
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn measurements_have_less_indexes_than_documents() {
        let series = DocBuf::from_json(r#"{"timeseries": {"timeField": "t", "metaField": "m"}}"#);
        let series = series.unwrap();
        let op = OpContext::internal("createIndexes");
        for (spec, code) in [
            (r#""key": {"v": 1}"#, None),
            (r#""key": {"m.a": 1}, "sparse": true"#, None),
            (r#""key": {"m": "hashed"}"#, None),
            (r#""key": {"v": "2dsphere"}"#, None),
            (
                r#""key": {"t": 1}, "expireAfterSeconds": 5, "partialFilterExpression": {"m.x": 1}"#,
                None,
            ),
            (r#""key": {"v": 1}, "unique": true"#, Some(72)),
            (r#""key": {"v": 1}, "prepareUnique": true"#, Some(72)),
            (r#""key": {"mv": 1}, "sparse": true"#, Some(72)),
            (r#""key": {"v": "hashed"}"#, Some(67)),
            (r#""key": {"v": "2d"}"#, Some(67)),
            (r#""key": {"$**": 1}"#, Some(7_246_201)),
            (r#""key": {"_id": 1}"#, Some(72)),
            (r#""key": {"t": 1}, "expireAfterSeconds": 5"#, Some(72)),
            (
                r#""key": {"t": 1}, "expireAfterSeconds": 5, "partialFilterExpression": {"v": 1}"#,
                Some(72),
            ),
        ] {
            let json = DocBuf::from_json(&format!(r#"{{"name": "x", {spec}}}"#)).unwrap();
            let parsed = IndexSpec::parse(json.as_doc()).unwrap();
            let got = check(series.as_doc(), &parsed, &op).err().map(|e| e.code());
            assert_eq!(got, code.map(Code), "{spec}");
            assert!(check(Doc::EMPTY, &parsed, &op).is_ok());
        }
    }
}
