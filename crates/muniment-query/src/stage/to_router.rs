//! `$_internalToRouter`: the last stage of a shard's part of a pipeline. It puts what the router has to know of a
//! document besides its fields into fields of its own. See [`crate::split::wire`].

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, Ticker, idl, parts};
use crate::context::{QueryContext, Runtime};
use crate::meta::{Meta, MetaSet};
use crate::needs::Needs;
use crate::split::wire;
use bytes::Bytes;
use muniment_value::{ArrayBuf, Doc, DocBuf, Elem, Error, Result, Value, doc};
use std::sync::Arc;

/// The stage's name.
const NAME: &str = "$_internalToRouter";

pub(crate) const SPEC: Spec = Spec {
    name: NAME,
    doc: "Sends sort keys and metadata along with the documents.",
    place: Place::ANYWHERE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

/// The stage as a document, for a shard whose documents have a sort key or these metadata.
pub(crate) fn stage(sorted: bool, metadata: MetaSet) -> DocBuf {
    let names: ArrayBuf = metadata.kinds().map(Meta::name).collect();
    let operand = doc! { "sortKey": sorted, "metadata": names };
    parts::stage(NAME, Value::Document(operand.as_doc()))
}

#[derive(Debug)]
struct ToRouter {
    sorted: bool,
    metadata: MetaSet,
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let wrong = || Error::failed_to_parse(format!("illegal operand of {NAME}"));
    let d = e.value().as_doc().ok_or_else(wrong)?;
    idl::only(NAME, d, &["sortKey", "metadata"])?;
    let sorted = d.get("sortKey").and_then(|v| v.as_bool());
    let sorted = sorted.ok_or_else(wrong)?;
    let mut metadata = MetaSet::NONE;
    for v in d.get_array("metadata").ok_or_else(wrong)?.values() {
        let kind = v.as_str().and_then(Meta::parse).ok_or_else(wrong)?;
        ctx.metadata.ask(kind)?;
        metadata = metadata.with(kind);
    }
    if sorted {
        ctx.metadata.note(MetaSet::NONE.with(Meta::MergeKey));
    }
    stages.push(Stage::Other(Arc::new(ToRouter { sorted, metadata })));
    Ok(())
}

impl StageOp for ToRouter {
    fn needs(&self, _: &mut Needs) -> bool {
        false
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(ToRouterStream {
            spec: self,
            source,
            ticker: Ticker::new(rt),
        }))
    }
}

struct ToRouterStream {
    spec: Arc<ToRouter>,
    source: Box<dyn DocStream>,
    ticker: Ticker,
}

impl DocStream for ToRouterStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        self.ticker.tick()?;
        let Some(doc) = self.source.next()? else {
            return Ok(None);
        };
        let doc = Doc::new(&doc);
        let mut out = doc.to_buf();
        if !self.spec.metadata.is_empty() {
            wire::append_metadata(doc, self.spec.metadata, &mut out);
        }
        if self.spec.sorted {
            wire::append_key(doc, &mut out)?;
        }
        Ok(Some(out.into_bytes().into()))
    }
}
