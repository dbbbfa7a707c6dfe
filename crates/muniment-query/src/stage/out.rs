//! `$out`: the documents become a collection, in the place of the one that is there.

use super::registry::{Place, Spec};
use super::{DocStream, Stage, StageOp, Ticker, idl, write_stream};
use crate::context::{QueryContext, Runtime};
use muniment_value::{Code, DocBuf, Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$out",
    doc: "Replaces a collection by the documents, in one step.",
    place: Place::END,
    parse,
};

/// A parsed `$out`.
#[derive(Clone, Debug)]
pub struct OutSpec {
    /// The target's database.
    pub db: String,
    /// The target.
    pub collection: String,
    /// The options of a time-series collection, as `create` takes them.
    pub timeseries: Option<DocBuf>,
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let spec = match e.value() {
        Value::String(s) => OutSpec {
            db: ctx.db.clone(),
            collection: s.to_string(),
            timeseries: None,
        },
        Value::Document(d) => {
            idl::only("$out", d, &["coll", "db", "timeseries"])?;
            let coll = idl::string("$out", d, "coll")?;
            let db = idl::string("$out", d, "db")?;
            let timeseries = idl::document("$out", d, "timeseries")?;
            OutSpec {
                collection: coll
                    .ok_or_else(|| idl::missing("$out", "coll"))?
                    .to_string(),
                db: db.ok_or_else(|| idl::missing("$out", "db"))?.to_string(),
                timeseries: timeseries.map(|t| t.to_buf()),
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
    };
    if let Some(t) = &spec.timeseries {
        check_timeseries(t)?;
    }
    check_target(&spec)?;
    stages.push(Stage::Other(Arc::new(Out {
        spec,
        ctx: ctx.clone(),
    })));
    Ok(())
}

fn check_target(spec: &OutSpec) -> Result<()> {
    let name = &spec.collection;
    let invalid_db = spec.db.is_empty()
        || spec.db.len() >= 64
        || spec.db.contains(['/', '\\', '.', ' ', '"', '$', '\0']);
    let invalid = name.is_empty()
        || name.starts_with('.')
        || name.ends_with('.')
        || name.contains(['$', '\0'])
        || spec.db.len() + 1 + name.len() > 255;
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
    Ok(())
}

/// The types of the options; their values are checked when the collection is created.
fn check_timeseries(t: &DocBuf) -> Result<()> {
    const NAME: &str = "$out.timeseries";
    let d = t.as_doc();
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
    if idl::string(NAME, d, "timeField")?.is_none() {
        return Err(idl::missing(NAME, "timeField"));
    }
    idl::string(NAME, d, "metaField")?;
    idl::string(NAME, d, "granularity")?;
    for field in ["bucketMaxSpanSeconds", "bucketRoundingSeconds"] {
        if let Some(v) = d.get(field)
            && !v.is_number()
        {
            return Err(idl::wrong_type(
                NAME,
                field,
                v,
                "[long, int, decimal, double']",
            ));
        }
    }
    Ok(())
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
        Ok(Box::new(write_stream::WriteStream::new(
            source,
            writer,
            Ticker::new(rt),
        )))
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
