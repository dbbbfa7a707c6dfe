//! `$geoNear`: documents by their distance from a point, with the distance as a field.
//!
//! The stage reads an index, so the executor runs it. This module has its options, their errors, and the
//! function that adds the fields to a document.

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Pipeline, Stage, StageOp};
use crate::context::{QueryContext, Runtime};
use crate::expr::{EvalContext, Expr, arena};
use crate::filter::Filter;
use crate::geo::NearQuery;
use crate::geo::geometry::coordinate;
use crate::meta::{Meta, MetaSet, carry};
use crate::running::Work;
use crate::sort::check_field_path;
use muniment_value::path::Path;
use muniment_value::{ArrayBuf, Doc, DocBuf, Elem, Error, Result, Value, ValueBuf};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$geoNear",
    doc: "Documents by their distance from a point, nearest first.",
    place: Place::SOURCE,
    spread: Spread::Ordered,
    rights: Rights::Input,
    parse,
};

/// The most parts of the path of a field that a result may get, and of the path `key`.
const MAX_OUTPUT_PARTS: usize = 199;
const MAX_KEY_PARTS: usize = 180;

/// The stage in a place where it cannot run: the executor removes a `$geoNear` from the front of a pipeline
/// before it opens the rest.
#[derive(Debug)]
struct Elsewhere;

impl StageOp for Elsewhere {
    fn open(self: Arc<Self>, _: Box<dyn DocStream>, _: &Runtime) -> Result<Box<dyn DocStream>> {
        Err(not_first())
    }

    fn metadata(&self, before: MetaSet) -> MetaSet {
        before.and(METADATA)
    }
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    GeoNear::parse(e.value(), ctx)?;
    stages.push(Stage::Other(Arc::new(Elsewhere)));
    Ok(())
}

/// 40603, for a stage that does not stand first.
pub fn not_first() -> Error {
    Error::location(
        40603,
        "$geoNear was not the first stage in the pipeline after optimization. Is optimization \
         disabled or inhibited?",
    )
}

/// The position and the operand of the `$geoNear` with which a pipeline begins. Only `$match`es of everything
/// may stand before it.
pub fn at_front(stages: Doc<'_>) -> Option<(usize, Value<'_>)> {
    for (i, v) in stages.values().enumerate() {
        let e = v.as_doc()?.first()?;
        match (e.name(), e.value()) {
            ("$geoNear", operand) => return Some((i, operand)),
            ("$match", Value::Document(d)) if d.is_empty() => {}
            _ => return None,
        }
    }
    None
}

/// Parses the stages after the `$geoNear` at position `at`, where documents have distances.
///
/// # Errors
/// As [`Pipeline::parse`].
pub fn behind_near(stages: Doc<'_>, at: usize, ctx: &QueryContext) -> Result<Pipeline> {
    let rest: ArrayBuf = stages.values().skip(at + 1).collect();
    Pipeline::parse(rest.as_doc(), &ctx.clone().with_metadata(METADATA))
}

/// The metadata that the stage gives to its documents.
const METADATA: MetaSet = MetaSet::NONE
    .with(Meta::GeoNearDistance)
    .with(Meta::GeoNearPoint);

/// A parsed `$geoNear`.
#[derive(Clone, Debug)]
pub struct GeoNear {
    /// The point to measure from, and the limits of the distance.
    pub near: Arc<NearQuery>,
    /// The field with the geometries. If it is absent, the collection's only geospatial index determines it.
    pub key: Option<String>,
    /// The other conditions for the documents.
    pub query: Filter,
    distance_field: Option<Path>,
    include_locs: Option<Path>,
    multiplier: f64,
}

impl GeoNear {
    /// Parses the stage's operand.
    ///
    /// # Errors
    /// 10065, 5860400 to 5860402, 16606, 16607, 7555701, 7555702, 2, 14 and those of field paths.
    pub fn parse(operand: Value<'_>, ctx: &QueryContext) -> Result<GeoNear> {
        let (Value::Document(options) | Value::Array(options)) = operand else {
            return Err(Error::location(
                10065,
                format!(
                    "invalid parameter: expected an object ($geoNear), found: {}",
                    operand.to_display()
                ),
            ));
        };
        if options.get("near").is_none() {
            return Err(Error::location(
                5_860_400,
                "$geoNear requires a 'near' argument",
            ));
        }
        let mut near = None;
        let (mut min, mut max) = (None, None);
        let (mut key, mut distance_field, mut include_locs) = (None, None, None);
        let mut query = Filter::always_true();
        let mut multiplier = 1.0;
        let mut spherical = false;
        for e in options {
            let v = e.value();
            match e.name() {
                "near" => near = Some(point(v, ctx)?),
                "distanceField" => {
                    distance_field = Some(output(v, 16606, "distanceField")?);
                }
                "includeLocs" => include_locs = Some(output(v, 16607, "includeLocs")?),
                "key" => key = Some(key_path(v)?),
                "query" => query = filter(v, ctx)?,
                "spherical" => spherical = v.truthy(),
                "minDistance" => min = Some(distance(v, "minDistance", 7_555_701, ctx)?),
                "maxDistance" => max = Some(distance(v, "maxDistance", 7_555_702, ctx)?),
                "distanceMultiplier" => multiplier = factor(v)?,
                other => {
                    return Err(Error::bad_value(format!(
                        "Unknown argument to $geoNear: {other}"
                    )));
                }
            }
        }
        let name = if spherical { "$nearSphere" } else { "$near" };
        let near = near.unwrap_or_else(|| ValueBuf::new(Value::Null));
        let mut operators = DocBuf::new();
        operators.append(name, near.as_value());
        operators.append_some("$minDistance", min);
        operators.append_some("$maxDistance", max);
        Ok(GeoNear {
            near: Arc::new(NearQuery::parse(name, near.as_value(), operators.as_doc())?),
            key,
            query,
            distance_field,
            include_locs,
            multiplier,
        })
    }

    /// The filter for the documents, with the distance as its `$near` on `key`.
    pub fn filter(&self, key: &str) -> Filter {
        self.query.with_near(Path::new(key), self.near.clone())
    }

    /// Appends `doc` with its distance and location, and with its metadata.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn append(
        &self,
        doc: Doc<'_>,
        key: &Path,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<()> {
        self.append_fields(doc, key, out, work)?;
        carry(doc, out);
        Ok(())
    }

    fn append_fields(
        &self,
        doc: Doc<'_>,
        key: &Path,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<()> {
        let Some((distance, place)) = self.near.nearest(doc, key, work)? else {
            out.extend_from_slice(doc.as_bytes());
            return Ok(());
        };
        let mut d = doc.to_buf();
        if let Some(field) = &self.distance_field {
            let distance = Value::Double(distance * self.multiplier);
            d = with_field(d.as_doc(), field.parts(), distance);
        }
        if let Some(field) = &self.include_locs {
            d = with_field(d.as_doc(), field.parts(), place);
        }
        out.extend_from_slice(d.as_bytes());
        Ok(())
    }
}

/// `doc` with the value at a path, whatever was there before. The recursion is bounded by the path.
fn with_field(doc: Doc<'_>, parts: &[String], value: Value<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    let Some((name, rest)) = parts.split_first() else {
        return doc.to_buf();
    };
    let mut done = false;
    let put = |out: &mut DocBuf, old: Option<Value<'_>>| {
        if rest.is_empty() {
            out.append(name, value);
            return;
        }
        let inner = match old {
            Some(Value::Document(d)) => d,
            _ => Doc::EMPTY,
        };
        out.append(name, with_field(inner, rest, value));
    };
    for e in doc {
        if e.name() == name && !done {
            put(&mut out, Some(e.value()));
            done = true;
        } else {
            out.append_elem(e);
        }
    }
    if !done {
        put(&mut out, None);
    }
    out
}

/// The value of an expression that does not depend on a document. If it does, fails with `code`.
fn constant(v: Value<'_>, code: i32, what: &str, ctx: &QueryContext) -> Result<ValueBuf> {
    let expr = Expr::parse(v, ctx)?;
    match expr.as_constant() {
        Some(v) => Ok(ValueBuf::new(v)),
        None => arena::with_arena(ctx.task.work(), |a| {
            let value = expr.eval(&EvalContext::new(Doc::EMPTY, a))?;
            match value {
                Some(v) if !depends(&expr) => Ok(ValueBuf::new(v)),
                _ => Err(Error::location(
                    code,
                    format!("$geoNear requires {what} to be a constant expression"),
                )),
            }
        }),
    }
}

/// Whether an expression reads the document.
fn depends(expr: &Expr) -> bool {
    let mut needs = crate::needs::Needs::default();
    needs.expr(expr);
    needs.into_paths().is_none_or(|p| !p.is_empty())
}

fn point(v: Value<'_>, ctx: &QueryContext) -> Result<ValueBuf> {
    let value = match v {
        // A document with coordinates is not an expression, and most points are written in this form.
        Value::Document(d) if d.get("coordinates").is_some() => ValueBuf::new(v),
        v => constant(v, 5_860_402, "near", ctx)?,
    };
    match value.as_value() {
        Value::Document(_) | Value::Array(_) => Ok(value),
        other => Err(Error::location(
            5_860_401,
            format!(
                "$geoNear requires near to be a GeoJSON object or a legacy point, but found: {}",
                other.to_display()
            ),
        )),
    }
}

fn output(v: Value<'_>, code: i32, what: &str) -> Result<Path> {
    let Value::String(text) = v else {
        return Err(Error::location(
            code,
            format!("$geoNear requires that '{what}' option is a String"),
        ));
    };
    check_field_path(text)?;
    let path = Path::new(text);
    if path.parts().len() > MAX_OUTPUT_PARTS {
        return Err(Error::location(
            5_984_700,
            format!("the '{what}' of $geoNear is nested too deeply"),
        ));
    }
    Ok(path)
}

fn key_path(v: Value<'_>) -> Result<String> {
    let Value::String(text) = v else {
        return Err(Error::type_mismatch(format!(
            "$geoNear parameter 'key' must be of type string but found type: {}",
            v.type_name()
        )));
    };
    if text.is_empty() {
        return Err(Error::bad_value(
            "$geoNear parameter 'key' cannot be the empty string",
        ));
    }
    check_field_path(text)?;
    if text.split('.').count() > MAX_KEY_PARTS {
        return Err(Error::location(
            5_729_100,
            "the 'key' of $geoNear has too many parts",
        ));
    }
    Ok(text.to_string())
}

fn filter(v: Value<'_>, ctx: &QueryContext) -> Result<Filter> {
    let Value::Document(d) = v else {
        return Err(Error::type_mismatch(format!(
            "$geoNear parameter 'query' must be of type object but found type: {}",
            v.type_name()
        )));
    };
    for e in d {
        if matches!(e.name(), "$text" | "$where") {
            return Err(Error::bad_value(format!(
                "{} is not allowed within a $geoNear predicate",
                e.name()
            )));
        }
    }
    Filter::parse(d, ctx)
}

fn distance(v: Value<'_>, what: &str, code: i32, ctx: &QueryContext) -> Result<f64> {
    let value = constant(v, code, what, ctx)?;
    let Some(n) = coordinate(value.as_value()) else {
        return Err(Error::type_mismatch(format!(
            "$geoNear requires that '{what}' is a number, but found type: {}",
            value.as_value().type_name()
        )));
    };
    if n >= 0.0 {
        return Ok(n);
    }
    Err(Error::bad_value(format!(
        "$geoNear parameter '{what}' must be non-negative"
    )))
}

fn factor(v: Value<'_>) -> Result<f64> {
    let Some(n) = coordinate(v) else {
        return Err(Error::type_mismatch(format!(
            "$geoNear parameter 'distanceMultiplier' must be a number, but found type: {}",
            v.type_name()
        )));
    };
    if n >= 0.0 {
        return Ok(n);
    }
    Err(Error::bad_value(
        "$geoNear parameter 'distanceMultiplier' must be non-negative",
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn stage(json: &str) -> Result<GeoNear> {
        let d = DocBuf::from_json(json).unwrap();
        GeoNear::parse(Value::Document(d.as_doc()), &QueryContext::new())
    }

    #[test]
    fn documents_get_their_distance() {
        for (spec, doc, want) in [
            (
                r#"{"near": [0, 0], "distanceField": "d"}"#,
                r#"{"a": [3, 4]}"#,
                r#"{"a": [3, 4], "d": 5.0}"#,
            ),
            (
                r#"{"near": [0, 0], "distanceField": "x.d", "includeLocs": "x.l", "distanceMultiplier": 2}"#,
                r#"{"x": 1, "a": [[30, 4], [0, 4]]}"#,
                r#"{"x": {"d": 8.0, "l": [0, 4]}, "a": [[30, 4], [0, 4]]}"#,
            ),
        ] {
            let doc = DocBuf::from_json(doc).unwrap();
            let mut out = Vec::new();
            stage(spec)
                .unwrap()
                .append(doc.as_doc(), &Path::new("a"), &mut out, Work::unasked())
                .unwrap();
            assert_eq!(Doc::new(&out).to_buf(), DocBuf::from_json(want).unwrap());
        }
    }

    #[test]
    fn options_are_checked() {
        for (spec, code) in [
            (r#"{"distanceField": "d"}"#, 5_860_400),
            (r#"{"near": 5}"#, 5_860_401),
            (r#"{"near": "$a"}"#, 5_860_402),
            (r#"{"near": [0, 0], "distanceField": 1}"#, 16606),
            (r#"{"near": [0, 0], "includeLocs": 1}"#, 16607),
            (r#"{"near": [0, 0], "distanceField": ""}"#, 40352),
            (r#"{"near": [0, 0], "key": ""}"#, 2),
            (r#"{"near": [0, 0], "key": 1}"#, 14),
            (r#"{"near": [0, 0], "query": 1}"#, 14),
            (r#"{"near": [0, 0], "maxDistance": "x"}"#, 14),
            (r#"{"near": [0, 0], "maxDistance": -1}"#, 2),
            (r#"{"near": [0, 0], "minDistance": "$a"}"#, 7_555_701),
            (r#"{"near": [0, 0], "distanceMultiplier": -1}"#, 2),
            (r#"{"near": [0, 0], "bogus": 1}"#, 2),
            (
                r#"{"near": [0, 0], "query": {"a": {"$near": [0, 0]}}}"#,
                5_626_500,
            ),
        ] {
            assert_eq!(stage(spec).err().unwrap().code().0, code, "{spec}");
        }
    }
}
