//! `$unionWith`: adds the documents of another pipeline after those of its own input.

use super::registry::{Place, Spec, Within};
use super::rights::{Named, Right, Rights};
use super::spread::Spread;
use super::{DocStream, Pipeline, Stage, StageOp, check_target, idl};
use crate::context::{QueryContext, Runtime};
use bytes::Bytes;
use muniment_value::{ArrayBuf, Doc, Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$unionWith",
    doc: "Appends the documents of another collection, through a pipeline.",
    place: Place::ANYWHERE,
    spread: Spread::Router,
    rights: Rights::Also(|operand, right| match operand {
        Value::Document(d) => {
            let stages = d.get_array("pipeline").unwrap_or(Doc::EMPTY);
            right(Right::Pipeline(Named::of(d.get("coll")), stages));
        }
        name => right(Right::Pipeline(Named::of(Some(name)), Doc::EMPTY)),
    }),
    parse,
};

#[derive(Debug)]
struct UnionWith {
    pipeline: ArrayBuf,
    ctx: QueryContext,
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let (coll, pipeline) = match e.value() {
        Value::String(s) => (Some(s), None),
        Value::Document(d) => {
            idl::only("$unionWith", d, &["coll", "pipeline"])?;
            let coll = idl::string("$unionWith", d, "coll")?;
            let pipeline = match d.get("pipeline") {
                None => None,
                Some(Value::Array(a)) => Some(a),
                Some(v) => return Err(idl::wrong_type("$unionWith", "pipeline", v, "array")),
            };
            (coll, pipeline)
        }
        v => {
            return Err(Error::failed_to_parse(format!(
                "the $unionWith stage specification must be an object or string, but found {}",
                v.type_name()
            )));
        }
    };
    let stages_of = pipeline.unwrap_or(Doc::EMPTY);
    let mut inner = ctx.nested()?;
    match coll {
        Some("") => {
            return Err(Error::new(
                muniment_value::Code::InvalidNamespace,
                format!("Invalid namespace specified '{}.'", ctx.db),
            ));
        }
        Some(c) => inner.collection = c.to_string(),
        None if starts_with_documents(stages_of) => inner.collection = String::new(),
        None => {
            return Err(Error::failed_to_parse(
                "$unionWith stage without explicit collection must have a pipeline with \
                 $documents as first stage",
            ));
        }
    }
    check_target(stages_of, &ctx.db, !inner.collection.is_empty())?;
    // This parse only finds errors; the planner parses the pipeline again when it knows the collection.
    let outer = QueryContext {
        collection: inner.collection.clone(),
        ..ctx.clone()
    };
    Pipeline::parse_nested(stages_of, &outer, Within::UnionWith)?;
    stages.push(Stage::Other(Arc::new(UnionWith {
        pipeline: stages_of.values().collect(),
        ctx: inner,
    })));
    Ok(())
}

/// True for a pipeline that does not need a collection.
pub(crate) fn starts_with_documents(stages: Doc<'_>) -> bool {
    let first = stages.values().next().and_then(|v| v.as_doc());
    first
        .and_then(|d| d.first())
        .is_some_and(|e| e.name() == "$documents")
}

impl StageOp for UnionWith {
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(UnionStream {
            source: Some(source),
            other: None,
            spec: self,
            rt: rt.clone(),
        }))
    }
}

struct UnionStream {
    source: Option<Box<dyn DocStream>>,
    other: Option<Box<dyn DocStream>>,
    spec: Arc<UnionWith>,
    rt: Runtime,
}

impl DocStream for UnionStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(source) = &mut self.source {
            if let Some(doc) = source.next()? {
                return Ok(Some(doc));
            }
            self.source = None;
            let spec = &self.spec;
            self.other = Some(self.rt.host.pipeline(spec.pipeline.as_doc(), &spec.ctx)?);
        }
        match &mut self.other {
            Some(other) => other.next(),
            None => Ok(None),
        }
    }
}
