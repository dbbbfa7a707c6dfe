//! `$out`: stores the documents as a collection, which replaces an existing one.

use super::registry::{Place, Spec};
use super::rights::{Named, Right, Rights};
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, idl, write_stream};
use crate::context::{QueryContext, Runtime};
use muniment_value::{Code, Doc, DocBuf, Elem, Error, Result, Value, number};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$out",
    doc: "Replaces a collection by the documents, in one step.",
    place: Place::END,
    spread: Spread::Router,
    rights: Rights::Also(|operand, right| {
        if let Some(into) = Named::of(Some(operand)) {
            right(Right::Output(into, &["insert", "remove"]));
        }
    }),
    parse,
};

/// A parsed `$out`.
#[derive(Clone, Debug)]
pub struct OutSpec {
    /// The target's database.
    pub db: String,
    /// The target.
    pub collection: String,
    /// The options of a time-series collection.
    pub timeseries: Option<SeriesSpec>,
    /// These as they were written.
    pub written: Option<DocBuf>,
}

/// The options for the time-series collection that an `$out` creates.
#[derive(Clone, Debug)]
pub struct SeriesSpec {
    /// The field with the date.
    pub time_field: String,
    /// The field that labels a series.
    pub meta_field: Option<String>,
    /// `seconds`, `minutes` or `hours`.
    pub granularity: Option<String>,
    /// The span of a bucket, in seconds.
    pub span: Option<i64>,
}

impl OutSpec {
    /// Parses the stage's operand.
    ///
    /// # Errors
    /// Those of the stage.
    pub fn parse(operand: Value<'_>, ctx: &QueryContext) -> Result<OutSpec> {
        let spec = parse_operand(operand, ctx)?;
        check_target(&spec)?;
        Ok(spec)
    }
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    stages.push(Stage::Other(Arc::new(Out {
        spec: OutSpec::parse(e.value(), ctx)?,
        ctx: ctx.clone(),
    })));
    Ok(())
}

fn parse_operand(operand: Value<'_>, ctx: &QueryContext) -> Result<OutSpec> {
    Ok(match operand {
        Value::String(s) => OutSpec {
            db: ctx.db.clone(),
            collection: s.to_string(),
            timeseries: None,
            written: None,
        },
        Value::Document(d) => {
            idl::only("$out", d, &["coll", "db", "timeseries"])?;
            let text = |field: &str| match d.get(field) {
                Some(Value::Null) => Ok(None),
                _ => idl::string("$out", d, field),
            };
            let (coll, db) = (text("coll")?, text("db")?);
            let timeseries = match d.get("timeseries") {
                Some(Value::Null) => None,
                _ => idl::document("$out", d, "timeseries")?,
            };
            OutSpec {
                collection: coll
                    .ok_or_else(|| idl::missing("$out", "coll"))?
                    .to_string(),
                db: db.ok_or_else(|| idl::missing("$out", "db"))?.to_string(),
                timeseries: timeseries.map(parse_timeseries).transpose()?,
                written: timeseries.map(|d| d.to_buf()),
            }
        }
        v => {
            return Err(Error::location(
                16990,
                format!(
                    "$out only supports a string or object argument, but found {}",
                    v.type_name()
                ),
            ));
        }
    })
}

fn check_target(spec: &OutSpec) -> Result<()> {
    let name = &spec.collection;
    let invalid_db = spec.db.is_empty()
        || spec.db.len() >= 64
        || spec.db.contains(['/', '\\', '.', ' ', '"', '$', '\0']);
    let invalid = name.is_empty() || name.starts_with('.') || name.contains('\0');
    if invalid || invalid_db {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid $out target namespace, {}.{name}", spec.db),
        ));
    }
    if matches!(spec.db.as_str(), "admin" | "config" | "local") {
        return Err(Error::location(
            31321,
            format!("Can't $out to internal database: {}", spec.db),
        ));
    }
    if name.starts_with("system.") {
        return Err(Error::location(
            17385,
            format!("Can't $out to special collection: {name}"),
        ));
    }
    if name.contains('$') || spec.db.len() + 1 + name.len() > 255 {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("error with target namespace: {}.{name}", spec.db),
        ));
    }
    Ok(())
}

/// The longest span of a bucket, which is a year.
const MAX_SECONDS: i64 = 31_536_000;

/// Parses the options, and checks their types and ranges.
fn parse_timeseries(d: Doc<'_>) -> Result<SeriesSpec> {
    const NAME: &str = "$out.timeseries";
    idl::only(
        NAME,
        d,
        &[
            "timeField",
            "metaField",
            "granularity",
            "bucketMaxSpanSeconds",
            "bucketRoundingSeconds",
        ],
    )?;
    let text = |field: &str| match d.get(field) {
        Some(Value::Null) => Ok(None),
        _ => idl::string(NAME, d, field),
    };
    let time_field = text("timeField")?.ok_or_else(|| idl::missing(NAME, "timeField"))?;
    let meta_field = text("metaField")?;
    let granularity = text("granularity")?;
    if let Some(g) = granularity
        && !["seconds", "minutes", "hours"].contains(&g)
    {
        return Err(Error::bad_value(format!(
            "Enumeration value '{g}' for field '{NAME}.granularity' is not a valid value."
        )));
    }
    let seconds = |field: &str| match d.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(v) => match number::to_i64_clamped(v) {
            None => Err(idl::wrong_type(
                NAME,
                field,
                v,
                "[long, int, decimal, double']",
            )),
            Some(n) if (1..=MAX_SECONDS).contains(&n) => Ok(Some(n)),
            Some(n) => Err(Error::bad_value(format!(
                "BSON field '{NAME}.{field}' value must be between 1 and {MAX_SECONDS}, actual \
                 value '{n}'"
            ))),
        },
    };
    let span = seconds("bucketMaxSpanSeconds")?;
    let rounding = seconds("bucketRoundingSeconds")?;
    if span != rounding || (span.is_some() && granularity.is_some()) {
        return Err(Error::new(
            Code::InvalidOptions,
            "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set to the \
             same value, without 'granularity'",
        ));
    }
    Ok(SeriesSpec {
        time_field: time_field.to_string(),
        meta_field: meta_field.map(str::to_string),
        granularity: granularity.map(str::to_string),
        span,
    })
}

#[derive(Debug)]
struct Out {
    spec: OutSpec,
    ctx: QueryContext,
}

impl StageOp for Out {
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        let writer = rt.host.out(&self.spec, &self.ctx)?;
        Ok(write_stream::open(source, writer, rt))
    }

    fn writes(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::super::Pipeline;
    use super::*;
    use crate::update::testing::json_array;

    #[test]
    fn operands_are_checked() {
        let ctx = QueryContext {
            db: "db".into(),
            ..QueryContext::new()
        };
        for (stage, want) in [
            ("{$out: 't'}", 0),
            ("{$out: {db: 'x', coll: 't'}}", 0),
            ("{$out: 1}", 16990),
            ("{$out: ''}", 73),
            ("{$out: {coll: 't'}}", 40414),
            ("{$out: {db: 1, coll: 't'}}", 14),
            ("{$out: {db: 'x', coll: 't', y: 1}}", 40415),
            ("{$out: {db: 'admin', coll: 't'}}", 31321),
            ("{$out: 'system.t'}", 17385),
            ("{$out: 't'}, {$limit: 1}", 40601),
        ] {
            let stages = json_array(&format!("[{stage}]"));
            let got = Pipeline::check(stages.as_doc(), &ctx)
                .and_then(|()| Pipeline::parse(stages.as_doc(), &ctx))
                .map_or_else(|e| e.code().0, |_| 0);
            assert_eq!(got, want, "{stage}");
        }
    }
}
