//! `$facet`: several pipelines over the same documents. The results are arrays in a single document.
//!
//! The input is kept (spilling beyond the memory limit), and the pipelines read it one after the other.

use super::pipeline::Pipeline;
use super::registry::{Place, Spec, Within};
use super::rights::{Right, Rights};
use super::spool::{Cursor, Spool};
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, Ticker};
use crate::bytes::{IndexName, close, head, open};
use crate::context::{QueryContext, Runtime};
use crate::meta::MetaSet;
use bytes::Bytes;
use muniment_value::{Doc, Elem, Error, Result, Type, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$facet",
    doc: "Several pipelines over the same documents.",
    place: Place::NO_FACET,
    spread: Spread::Router,
    rights: Rights::Also(|operand, right| {
        for v in operand.as_doc().unwrap_or(Doc::EMPTY).values() {
            if let Value::Array(stages) = v {
                right(Right::Stages(stages));
            }
        }
    }),
    parse,
};

#[derive(Debug)]
struct Facet {
    pipelines: Vec<(String, Pipeline)>,
}

/// Checks a field's name: it must not be empty or contain dots or dollars.
fn check_name(name: &str) -> Result<()> {
    if name.contains('.') {
        return Err(Error::location(
            16412,
            format!(
                "FieldPath field names may not contain '.'. Consider using $getField or \
                 $setField. Found: '{name}'"
            ),
        ));
    }
    if name.is_empty() {
        return Err(Error::location(
            15998,
            "FieldPath field names may not be empty strings.",
        ));
    }
    crate::sort::check_field_path(name)
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Some(d) = e.value().as_doc().filter(|d| !d.is_empty()) else {
        return Err(Error::location(
            40169,
            format!(
                "the $facet specification must be a non-empty object, but found: {}",
                crate::bytes::show(e)
            ),
        ));
    };
    let mut pipelines = Vec::new();
    for f in d {
        let Value::Array(all) = f.value() else {
            return Err(Error::location(
                40170,
                format!(
                    "arguments to $facet must be arrays, {} is type {}",
                    f.name(),
                    f.value().type_name()
                ),
            ));
        };
        if let Some(v) = all.values().find(|v| v.as_doc().is_none()) {
            return Err(Error::location(
                40171,
                format!(
                    "elements of arrays in $facet spec must be non-empty objects, {} argument \
                     contained an element of type {}: {}",
                    f.name(),
                    v.type_name(),
                    v.to_display()
                ),
            ));
        }
        check_name(f.name())?;
        let pipeline = Pipeline::parse_nested(all, ctx, Within::Facet)?;
        pipelines.push((f.name().to_string(), pipeline));
    }
    stages.push(Stage::Other(Arc::new(Facet { pipelines })));
    Ok(())
}

impl StageOp for Facet {
    fn metadata(&self, _: MetaSet) -> MetaSet {
        MetaSet::NONE
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(FacetStream {
            spec: self,
            source: Some(source),
            rt: rt.clone(),
            ticker: Ticker::new(rt),
        }))
    }
}

struct FacetStream {
    spec: Arc<Facet>,
    source: Option<Box<dyn DocStream>>,
    rt: Runtime,
    ticker: Ticker,
}

/// The kept input, for one pipeline.
pub(crate) struct Kept {
    spool: Arc<Spool>,
    cursor: Cursor,
}

impl Kept {
    /// A stream of all documents in the spool.
    pub(crate) fn new(spool: Arc<Spool>) -> Kept {
        Kept {
            cursor: spool.cursor(),
            spool,
        }
    }
}

/// The greatest size of the facets' document in bytes, as in MongoDB.
const MAX_OUTPUT: usize = 100 << 20;

/// Fails with 4031700 if the document is larger.
fn check_output(bytes: usize) -> Result<()> {
    if bytes > MAX_OUTPUT {
        return Err(Error::location(
            4_031_700,
            format!(
                "document constructed by $facet is {bytes} bytes, which exceeds the limit of \
                 {MAX_OUTPUT} bytes"
            ),
        ));
    }
    Ok(())
}

impl DocStream for Kept {
    fn next(&mut self) -> Result<Option<Bytes>> {
        self.cursor.next(&self.spool)
    }
}

impl FacetStream {
    /// Appends the documents of a pipeline as an array.
    fn run(
        &mut self,
        name: &str,
        pipeline: &Pipeline,
        source: Box<dyn DocStream>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        head(out, Type::Array, name.as_bytes());
        let start = open(out);
        let mut stream = pipeline.clone().open(source, &self.rt)?;
        let mut n = 0;
        while let Some(doc) = stream.next()? {
            self.ticker.tick()?;
            head(out, Type::Document, IndexName::new(n).as_bytes());
            out.extend_from_slice(Doc::new(&doc).as_bytes());
            check_output(out.len())?;
            n += 1;
        }
        close(out, start);
        Ok(())
    }
}

impl DocStream for FacetStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(mut source) = self.source.take() else {
            return Ok(None);
        };
        let spec = Arc::clone(&self.spec);
        let mut out = Vec::new();
        let start = open(&mut out);
        if let [(name, only)] = spec.pipelines.as_slice() {
            self.run(name, only, source, &mut out)?;
        } else {
            let mut spool = Spool::new("$facet");
            while let Some(doc) = source.next()? {
                self.ticker.tick()?;
                spool.push(doc, &self.rt, &self.ticker)?;
            }
            drop(source);
            spool.finish()?;
            let spool = Arc::new(spool);
            for (name, pipeline) in &spec.pipelines {
                let kept = Box::new(Kept::new(Arc::clone(&spool)));
                self.run(name, pipeline, kept, &mut out)?;
            }
        }
        close(&mut out, start);
        check_output(out.len())?;
        Ok(Some(out.into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::context::Runtime;
    use crate::stage::testing::{run, show, table};
    use muniment_value::{DocBuf, doc};

    #[test]
    fn table_of_facet() {
        table(&[
            (
                "[{a:1},{a:2},{a:3}]",
                "[{$facet:{n:[{$count:'n'}],big:[{$match:{a:{$gt:1}}}],all:[]}}]",
                "[{n:[{n:3}],big:[{a:2},{a:3}],all:[{a:1},{a:2},{a:3}]}]",
            ),
            ("[]", "[{$facet:{n:[{$count:'n'}],m:[]}}]", "[{n:[],m:[]}]"),
            (
                "[{a:1}]",
                "[{$facet:{x:[]}},{$facet:{y:[{$project:{n:{$size:'$x'}}}]}}]",
                "[{y:[{n:1}]}]",
            ),
            (
                "[]",
                "[{$facet:{}}]",
                "40169: the $facet specification must be a non-empty object, but found: $facet: {}",
            ),
            (
                "[]",
                "[{$facet:{a:1}}]",
                "40170: arguments to $facet must be arrays, a is type int",
            ),
            (
                "[]",
                "[{$facet:{a:[1]}}]",
                "40171: elements of arrays in $facet spec must be non-empty objects, a argument \
                 contained an element of type int: 1",
            ),
            (
                "[]",
                "[{$facet:{a:[{$facet:{b:[]}}]}}]",
                "40600: $facet is not allowed to be used within a $facet stage",
            ),
            (
                "[]",
                "[{$facet:{a:[{$indexStats:{}}]}}]",
                "40600: $indexStats is not allowed to be used within a $facet stage",
            ),
            (
                "[]",
                "[{$facet:{a:[{$foo:{}}]}}]",
                "40324: Unrecognized pipeline stage name: '$foo'",
            ),
            (
                "[]",
                "[{$facet:{'a.b':[]}}]",
                "16412: FieldPath field names may not contain '.'. Consider using $getField or \
                 $setField. Found: 'a.b'",
            ),
        ]);
    }

    #[test]
    fn kept_on_disk_and_in_memory_agree() {
        let input = || -> Vec<DocBuf> { (0..2000).map(|i: i32| doc! { "i": i }).collect() };
        let pipeline = "[{$facet:{sum:[{$group:{_id:null,s:{$sum:'$i'}}}],\
             last:[{$sort:{i:-1}},{$limit:2}]}}]";
        let dir = tempfile::tempdir().unwrap();
        let rt = Runtime {
            memory_limit: 8000,
            scratch: Some(crate::Scratch::unlimited(dir.path())),
            ..Runtime::for_tests()
        };
        let want = "[{ sum: [ { _id: null, s: 1999000 } ], last: [ { i: 1999 }, { i: 1998 } ] }]";
        assert_eq!(show(&run(input(), pipeline, &rt).unwrap()), want);
        let kept = run(input(), pipeline, &Runtime::for_tests()).unwrap();
        assert_eq!(show(&kept), want);
    }
}
