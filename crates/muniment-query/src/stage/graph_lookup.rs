//! `$graphLookup`: the documents that can be reached from a document along a relation.
//!
//! The search is breadth-first: the values found at one level are looked up together, each value once, and
//! each document is returned once.

use super::host::Join;
use super::idl::need;
use super::lookup::find_by_pipeline;
use super::registry::{Place, Spec};
use super::rights::{Named, Right, Rights};
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, Ticker};
use crate::bytes::{IndexName, close, head, open, set_path};
use crate::context::{QueryContext, Runtime};
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use crate::filter::Filter;
use crate::meta::carry;
use crate::needs::Needs;
use crate::sort::check_field_path;
use bytes::Bytes;
use muniment_op::{Account, Share};
use muniment_value::path::Path;
use muniment_value::{Code, Collation, Doc, Elem, Error, Put, Result, Type, Value, ValueBuf};
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$graphLookup",
    doc: "Adds the documents that can be reached along a relation as an array.",
    place: Place::ANYWHERE,
    spread: Spread::Router,
    rights: Rights::Also(|operand, right| {
        let from = operand.as_doc().and_then(|d| d.get("from"));
        right(Right::Pipeline(Named::of(from), Doc::EMPTY));
    }),
    parse,
};

/// The most bytes that the documents of one search may have
/// (internalDocumentSourceGraphLookupMaxMemoryBytes).
const MAX_REACHED: usize = 100 << 20;
/// The bytes that a document takes in addition to its own and its `_id`.
const PER_DOCUMENT: usize = 96;

#[derive(Debug)]
struct GraphLookup {
    start: Expr,
    from: Path,
    to: Path,
    as_: Path,
    max_depth: Option<i64>,
    depth_field: Option<Path>,
    restrict: Option<Filter>,
    ctx: QueryContext,
}

fn failed(message: impl Into<String>) -> Error {
    Error::failed_to_parse(message)
}

/// The options of the stage that are given.
#[derive(Default)]
struct Options<'a> {
    collection: Option<&'a str>,
    start: Option<Expr>,
    from: Option<Path>,
    to: Option<Path>,
    as_: Option<Path>,
    max_depth: Option<i64>,
    depth_field: Option<Path>,
    restrict: Option<Filter>,
}

impl<'a> Options<'a> {
    fn read(&mut self, o: Elem<'a>, ctx: &QueryContext) -> Result<()> {
        let v = o.value();
        match o.name() {
            "from" => self.collection = Some(collection(v, &ctx.db)?),
            "startWith" => self.start = Some(Expr::parse(v, ctx)?),
            "connectFromField" => self.from = Some(path(o)?),
            "connectToField" => self.to = Some(path(o)?),
            "as" => self.as_ = Some(path(o)?),
            "depthField" => self.depth_field = Some(path(o)?),
            "maxDepth" => self.max_depth = Some(depth(v)?),
            "restrictSearchWithMatch" => {
                let text = "restrictSearchWithMatch must be an object, found {}";
                let filter = need(v.as_doc(), v, 40185, text)?;
                self.restrict = Some(Filter::parse(filter, ctx)?);
            }
            other => {
                return Err(Error::location(
                    40104,
                    format!("Unknown argument to $graphLookup: {other}"),
                ));
            }
        }
        Ok(())
    }
}

/// The name of the collection that is searched.
fn collection<'a>(v: Value<'a>, db: &str) -> Result<&'a str> {
    match v {
        Value::String("") => Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid $graphLookup namespace: {db}."),
        )),
        Value::String(s) => Ok(s),
        v => Err(failed(format!(
            "$graphLookup 'from' field must be a string, but found {}",
            v.type_name()
        ))),
    }
}

/// An option that is the path of a field.
fn path(o: Elem<'_>) -> Result<Path> {
    let Value::String(s) = o.value() else {
        return Err(failed(format!(
            "expected string as argument for {}, found: {}",
            o.name(),
            o.value().type_name()
        )));
    };
    check_field_path(s)?;
    Ok(Path::new(s))
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(failed(format!(
            "the $graphLookup stage specification must be an object, but found {}",
            e.value().type_name()
        )));
    };
    let mut given = Options::default();
    for o in d {
        given.read(o, ctx)?;
    }
    let (Some(collection), Some(start), Some(from), Some(to), Some(as_)) = (
        given.collection,
        given.start,
        given.from,
        given.to,
        given.as_,
    ) else {
        return Err(Error::location(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and \
             'connectToField' to be specified.",
        ));
    };
    let mut inner = ctx.nested()?;
    inner.collection = collection.to_string();
    stages.push(Stage::Other(Arc::new(GraphLookup {
        start,
        from,
        to,
        as_,
        max_depth: given.max_depth,
        depth_field: given.depth_field,
        restrict: given.restrict,
        ctx: inner,
    })));
    Ok(())
}

fn depth(v: Value<'_>) -> Result<i64> {
    if !v.is_number() {
        return Err(Error::location(
            40100,
            format!("maxDepth must be numeric, found type: {}", v.type_name()),
        ));
    }
    let Some(n) = muniment_value::number::to_i64_exact(v) else {
        return Err(Error::location(
            40102,
            format!(
                "maxDepth could not be represented as a long long: {}",
                v.to_display()
            ),
        ));
    };
    if n < 0 {
        return Err(Error::location(
            40101,
            format!("maxDepth requires a nonnegative argument, found: {n}"),
        ));
    }
    Ok(n)
}

impl StageOp for GraphLookup {
    fn needs(&self, needs: &mut Needs) -> bool {
        needs.expr(&self.start);
        if self.as_.parts().len() > 1 {
            needs.whole();
        }
        false
    }

    fn changes(&self, path: &str) -> bool {
        super::lookup::overlap(self.as_.as_str(), path)
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        let join = rt.host.join(&self.ctx.collection, &self.to, &self.ctx)?;
        Ok(Box::new(GraphStream {
            source,
            join,
            spec: self,
            share: Share::new(&rt.ledger, Account::Stages),
            ticker: Ticker::new(rt),
            rt: rt.clone(),
        }))
    }
}

struct GraphStream {
    source: Box<dyn DocStream>,
    join: Option<Box<dyn Join>>,
    spec: Arc<GraphLookup>,
    /// The memory for the documents that a search has reached.
    share: Share,
    ticker: Ticker,
    rt: Runtime,
}

impl DocStream for GraphStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        self.ticker.tick()?;
        let Some(doc) = self.source.next()? else {
            return Ok(None);
        };
        let reached = self.search(Doc::new(&doc))?;
        let total: usize = reached.iter().map(|(d, _)| d.len() + 32).sum();
        let mut array = Vec::with_capacity(total + 8);
        let start = open(&mut array);
        for (i, (d, depth)) in reached.iter().enumerate() {
            head(&mut array, Type::Document, IndexName::new(i).as_bytes());
            match &self.spec.depth_field {
                None => array.extend_from_slice(d),
                Some(path) => {
                    let depth = Value::Int64(*depth);
                    let put = Some(&depth as &dyn Put);
                    set_path(Doc::new(d), path.parts(), put, &mut array);
                }
            }
        }
        close(&mut array, start);
        let mut out = Vec::with_capacity(doc.len() + array.len() + 32);
        let value = Value::Array(Doc::new(&array));
        let parts = self.spec.as_.parts();
        let doc = Doc::new(&doc);
        set_path(doc, parts, Some(&value as &dyn Put), &mut out);
        carry(doc, &mut out);
        Ok(Some(out.into()))
    }
}

impl GraphStream {
    /// Returns every document that can be reached, with its depth.
    fn search(&mut self, doc: Doc<'_>) -> Result<Vec<(Bytes, i64)>> {
        let spec = self.spec.clone();
        let mut frontier = Frontier::new(&spec.ctx.collation);
        with_arena(self.ticker.work(), |arena| {
            match spec.start.eval(&EvalContext::new(doc, arena))? {
                Some(Value::Array(a)) => a.values().for_each(|v| frontier.add(v)),
                Some(v) => frontier.add(v),
                None => frontier.add(Value::Null),
            }
            Ok::<_, Error>(())
        })?;
        let mut reached: Vec<(Bytes, i64)> = Vec::new();
        let mut seen = HashSet::new();
        let (mut bytes, mut held) = (0_usize, 0_usize);
        let mut depth = 0_i64;
        while !frontier.next.is_empty() && spec.max_depth.is_none_or(|m| depth <= m) {
            self.rt.interrupt.check()?;
            let values = std::mem::take(&mut frontier.next);
            let values: Vec<Value<'_>> = values.iter().map(ValueBuf::as_value).collect();
            let mut level: Vec<Bytes> = Vec::new();
            let (ticker, share) = (&self.ticker, &mut self.share);
            let mut take = |d: Bytes| {
                ticker.tick()?;
                let found = Doc::new(&d);
                if let Some(f) = &spec.restrict
                    && !f.matches(found, ticker.work())?
                {
                    return Ok(());
                }
                // `_id`s that only a collation considers equal belong to different documents.
                let id = found.get("_id").map(|id| Collation::SIMPLE.encoded(id));
                let id = id.unwrap_or_default();
                let id_bytes = id.len() + PER_DOCUMENT;
                if seen.insert(id) {
                    bytes += d.len();
                    held += d.len() + id_bytes;
                    share.try_hold(held)?;
                    if bytes > MAX_REACHED {
                        return Err(Error::location(
                            40099,
                            "$graphLookup reached maximum memory consumption",
                        ));
                    }
                    level.push(d);
                }
                Ok(())
            };
            match &mut self.join {
                Some(join) => join.find(&values, &mut take)?,
                None => find_by_pipeline(&*self.rt.host, &spec.ctx, &spec.to, &values, &mut take)?,
            }
            for d in level {
                // The path is read as in an expression: each element of an array on the path gives a value.
                connected(
                    Value::Document(Doc::new(&d)),
                    spec.from.parts(),
                    &mut frontier,
                );
                reached.push((d, depth));
            }
            depth += 1;
        }
        Ok(reached)
    }
}

/// Adds the values at a path; if it leads to an array, adds its elements.
fn connected(v: Value<'_>, parts: &[String], frontier: &mut Frontier) {
    match (parts.split_first(), v) {
        (None, Value::Array(a)) => a.values().for_each(|v| frontier.add(v)),
        (None, v) => frontier.add(v),
        (Some((part, rest)), Value::Document(d)) => {
            if let Some(v) = d.get(part) {
                connected(v, rest, frontier);
            }
        }
        (Some(_), Value::Array(a)) => a
            .values()
            .filter(|v| matches!(v, Value::Document(_)))
            .for_each(|v| connected(v, parts, frontier)),
        _ => {}
    }
}

/// The values to look up next; each is added only once.
struct Frontier {
    seen: HashSet<Vec<u8>>,
    next: Vec<ValueBuf>,
    collation: Collation,
}

impl Frontier {
    fn new(collation: &Collation) -> Frontier {
        Frontier {
            seen: HashSet::new(),
            next: Vec::new(),
            collation: collation.clone(),
        }
    }

    fn add(&mut self, v: Value<'_>) {
        if self.seen.insert(self.collation.encoded(v)) {
            self.next.push(ValueBuf::new(v));
        }
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
        let all = "from: 'c', startWith: '$a', connectFromField: 'a', connectToField: 'b', as: 'x'";
        for (operand, want) in [
            (format!("{{{all}}}"), 0),
            (
                format!("{{{all}, maxDepth: 1, depthField: 'd', restrictSearchWithMatch: {{}}}}"),
                0,
            ),
            ("1".into(), 9),
            ("{}".into(), 40105),
            (format!("{{{all}, y: 1}}"), 40104),
            (format!("{{{all}, maxDepth: 'a'}}"), 40100),
            (format!("{{{all}, maxDepth: -1}}"), 40101),
            (format!("{{{all}, maxDepth: 1.5}}"), 40102),
            (format!("{{{all}, restrictSearchWithMatch: 1}}"), 40185),
            (format!("{{{all}, depthField: 1}}"), 9),
        ] {
            let stages = json_array(&format!("[{{$graphLookup: {operand}}}]"));
            let got = Pipeline::parse(stages.as_doc(), &QueryContext::new())
                .map_or_else(|e| e.code().0, |_| 0);
            assert_eq!(got, want, "{operand}");
        }
    }
}
