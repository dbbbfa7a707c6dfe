//! `$lookup`: adds documents of another collection to each document, as an array.
//!
//! If only fields are given, the host's equality look-up finds the documents. A pipeline runs once per
//! document, with its `let` variables as constants, so that it can use an index; a pipeline that uses no
//! variable of this stage runs only once, and its result is kept if it is not too large. A following
//! `$unwind` of the array is done here, so that the array is never built.

use super::host::{Host, Join, Reads};
use super::registry::{Place, Spec, Within};
use super::report::Documents;
use super::rights::{Named, Right, Rights};
use super::spread::Spread;
use super::union_with::starts_with_documents;
use super::{DocStream, Pipeline, Stage, StageOp, Ticker, check_target, idl};
use crate::bytes::{IndexName, close, head, open, set_path};
use crate::context::{QueryContext, Runtime};
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr, Parser, check_user_variable};
use crate::meta;
use crate::needs::Needs;
use crate::running::Work;
use crate::sort::check_field_path;
use bytes::Bytes;
use muniment_op::{Account, Share};
use muniment_value::path::{Path, visit};
use muniment_value::{
    ArrayBuf, Code, Collation, Doc, DocBuf, Elem, Error, Put, Result, Type, Value, ValueBuf, doc,
};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$lookup",
    doc: "Adds the matching documents of another collection as an array.",
    place: Place::ANYWHERE,
    spread: Spread::Router,
    rights: Rights::Also(|operand, right| {
        let d = operand.as_doc().unwrap_or(Doc::EMPTY);
        let stages = d.get_array("pipeline").unwrap_or(Doc::EMPTY);
        right(Right::Pipeline(Named::of(d.get("from")), stages));
    }),
    parse,
};

/// The most bytes that the documents of one array may have
/// (internalLookupStageIntermediateDocumentMaxSizeBytes).
const MAX_JOINED: usize = 100 << 20;

/// The most bytes that are kept of the result of an uncorrelated pipeline.
const MAX_CACHED: usize = 100 << 20;

/// A parsed `$lookup`.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    /// Empty for a pipeline that begins with `$documents`.
    from: String,
    fields: Option<(Path, Path)>,
    let_: Vec<(String, Expr)>,
    pipeline: Option<ArrayBuf>,
    /// Whether the pipeline uses a variable of `let`.
    correlated: bool,
    as_: Path,
    unwind: Option<Unwound>,
    ctx: QueryContext,
}

/// The options of a `$unwind` of the array.
#[derive(Clone, Debug)]
pub struct Unwound {
    /// `includeArrayIndex`.
    pub index: Option<Path>,
    /// `preserveNullAndEmptyArrays`.
    pub preserve: bool,
}

const FIELDS: &[&str] = &[
    "from",
    "as",
    "localField",
    "foreignField",
    "let",
    "pipeline",
    "_internalCollation",
    "_internalUnwind",
];

/// The value of an option that `read` reads; null counts as absent.
fn option<'a, T>(
    d: Doc<'a>,
    field: &str,
    read: impl FnOnce(Value<'a>) -> Option<T>,
    expected: &str,
) -> Result<Option<T>> {
    let Some(v) = d.get(field).filter(|v| !v.is_nullish()) else {
        return Ok(None);
    };
    match read(v) {
        None => Err(idl::wrong_type("$lookup", field, v, expected)),
        some => Ok(some),
    }
}

/// The local and the foreign field; `None` if the stage has only a pipeline.
fn equal_fields(
    local: Option<&str>,
    foreign: Option<&str>,
    has_pipeline: bool,
) -> Result<Option<(Path, Path)>> {
    match (local, foreign) {
        (Some(l), Some(f)) => {
            check_field_path(l)?;
            check_field_path(f)?;
            Ok(Some((Path::new(l), Path::new(f))))
        }
        (None, None) if !has_pipeline => Err(Error::failed_to_parse(
            "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be \
             specified",
        )),
        (None, None) => Ok(None),
        _ => Err(Error::failed_to_parse(
            "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
        )),
    }
}

/// The variables of `let`, each with its expression.
fn variables(d: Doc<'_>, ctx: &QueryContext) -> Result<Vec<(String, Expr)>> {
    let mut vars = Vec::new();
    for v in d {
        check_user_variable(v.name())?;
        let expr = Parser::new(ctx).parse(v.value())?;
        vars.push((v.name().to_string(), expr));
    }
    Ok(vars)
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::failed_to_parse(format!(
            "the $lookup stage specification must be an object, but found {}",
            e.value().type_name()
        )));
    };
    let given = given(d, ctx)?;
    idl::only("$lookup", d, FIELDS)?;
    let text = |field| option(d, field, |v| v.as_str(), "string");
    let as_ = text("as")?.ok_or_else(|| idl::missing("$lookup", "as"))?;
    // An empty name counts as absent.
    let local = text("localField")?.filter(|s| !s.is_empty());
    let foreign = text("foreignField")?.filter(|s| !s.is_empty());
    let let_ = option(d, "let", |v| v.as_doc(), "object")?;
    let pipeline = match d.get("pipeline") {
        None => None,
        Some(Value::Array(p)) => Some(p),
        Some(v) => return Err(idl::wrong_type("$lookup", "pipeline", v, "array")),
    };
    if let_.is_some() && pipeline.is_none() {
        return Err(Error::failed_to_parse(
            "$lookup with a 'let' argument must also specify 'pipeline'",
        ));
    }
    check_field_path(as_)?;
    let fields = equal_fields(local, foreign, pipeline.is_some())?;
    let vars = variables(let_.unwrap_or(Doc::EMPTY), ctx)?;
    let mut inner = ctx.nested()?;
    inner.collection = given.to_string();
    if let Some(c) = option(d, "_internalCollation", |v| v.as_doc(), "object")? {
        inner.collation = Collation::parse(c)?;
    }
    if let Some(p) = pipeline {
        check_target(p, &ctx.db, !given.is_empty())?;
        // This parse only finds errors: the variables have no values yet.
        let mut names = inner.clone();
        names.sub_pipelines = ctx.sub_pipelines;
        for (name, _) in &vars {
            names.unbound.push(name.clone());
            names.missing.retain(|m| m != name);
        }
        Pipeline::parse_nested(p, &names, Within::Lookup)?;
    }
    stages.push(Stage::Other(Arc::new(Lookup {
        from: given.to_string(),
        fields,
        correlated: pipeline.is_some_and(|p| uses(Value::Array(p), &vars)),
        let_: vars,
        pipeline: pipeline.map(|p| p.values().collect()),
        as_: Path::new(as_),
        unwind: None,
        ctx: inner,
    })));
    Ok(())
}

/// The name of the foreign collection; empty for a pipeline that needs no collection.
fn given<'d>(d: Doc<'d>, ctx: &QueryContext) -> Result<&'d str> {
    let pipeline = d.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let documents = starts_with_documents(pipeline);
    match d.get("from") {
        None if documents => Ok(""),
        None => Err(Error::failed_to_parse(
            "must specify 'pipeline' when 'from' is empty",
        )),
        Some(Value::String(s)) => {
            let invalid = s.is_empty() || s.starts_with('.') || s.contains('\0');
            if invalid || documents {
                return Err(Error::new(
                    Code::InvalidNamespace,
                    format!("Invalid namespace specified '{}.{s}'", ctx.db),
                ));
            }
            Ok(s)
        }
        Some(Value::Document(n)) => {
            idl::only("$lookup.from", n, &["db", "coll"])?;
            idl::string("$lookup.from", n, "db")?;
            idl::string("$lookup.from", n, "coll")?;
            Err(Error::failed_to_parse(format!(
                "$lookup with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {} \
                 and coll: {}",
                n.get_str("db").unwrap_or_default(),
                n.get_str("coll").unwrap_or_default()
            )))
        }
        Some(v) => Err(Error::failed_to_parse(format!(
            "$lookup 'from' field must be a string, but found {}",
            v.type_name()
        ))),
    }
}

/// True if a value somewhere in `v` may refer to one of the variables, or may differ from one run to the
/// next.
fn uses(v: Value<'_>, vars: &[(String, Expr)]) -> bool {
    match v {
        Value::String(s) => s.strip_prefix("$$").is_some_and(|rest| {
            let name = rest.split('.').next().unwrap_or(rest);
            vars.iter().any(|(n, _)| n == name)
        }),
        Value::Document(d) | Value::Array(d) => d.iter().any(|e| {
            matches!(e.name(), "$rand" | "$sample" | "$sampleRate" | "$function")
                || uses(e.value(), vars)
        }),
        _ => false,
    }
}

impl Lookup {
    /// The stage with the `$unwind` of its array merged into it.
    pub(crate) fn with_unwind(&self, path: &Path, unwind: Unwound) -> Option<Lookup> {
        (self.unwind.is_none() && *path == self.as_).then(|| Lookup {
            unwind: Some(unwind),
            ..self.clone()
        })
    }

    /// The context in which the pipeline runs for one document.
    fn bound(&self, doc: Doc<'_>, work: Work<'_>) -> Result<QueryContext> {
        let mut ctx = self.ctx.clone();
        if self.let_.is_empty() {
            return Ok(ctx);
        }
        let mut vars = DocBuf::new();
        for (name, _) in &self.let_ {
            ctx.missing.retain(|m| m != name);
            ctx.unbound.retain(|m| m != name);
        }
        with_arena(work, |arena| {
            let eval = EvalContext::new(doc, arena);
            for (name, expr) in &self.let_ {
                match expr.eval(&eval)? {
                    Some(v) => {
                        vars.append(name, v);
                    }
                    None => ctx.missing.push(name.clone()),
                }
            }
            Ok::<_, Error>(())
        })?;
        for e in self.ctx.variables.as_doc() {
            if self.let_.iter().all(|(n, _)| n != e.name()) {
                vars.append_elem(e);
            }
        }
        ctx.variables = vars;
        Ok(ctx)
    }
}

/// The values of the local field for equality look-ups: the elements of an array, and null for a missing
/// field or an empty array.
pub(crate) fn local_values<'d>(doc: Doc<'d>, path: &Path, out: &mut Vec<Value<'d>>) {
    out.clear();
    visit(doc, path.parts(), &mut |v, _| {
        match v {
            None => out.push(Value::Null),
            Some(Value::Array(a)) if a.is_empty() => out.push(Value::Null),
            Some(Value::Array(a)) => out.extend(a.values()),
            Some(v) => out.push(v),
        }
        false
    });
    if out.is_empty() {
        out.push(Value::Null);
    }
}

impl StageOp for Lookup {
    fn needs(&self, needs: &mut Needs) -> bool {
        if let Some((local, _)) = &self.fields {
            needs.path(local.as_str());
        }
        self.let_.iter().for_each(|(_, e)| needs.expr(e));
        if self.as_.parts().len() > 1 || self.unwind.is_some() {
            // Fields next to the new one are kept.
            needs.whole();
        }
        false
    }

    fn changes(&self, path: &str) -> bool {
        let index = self.unwind.as_ref().and_then(|u| u.index.as_ref());
        overlap(self.as_.as_str(), path) || index.is_some_and(|i| overlap(i.as_str(), path))
    }

    fn absorb(&self, next: &Stage) -> Option<Arc<dyn StageOp>> {
        let Stage::Other(op) = next else { return None };
        let (path, unwound) = op.as_unwind()?;
        let with = self.with_unwind(path, unwound)?;
        Some(Arc::new(with))
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        let join = match &self.fields {
            Some((_, foreign)) if !self.from.is_empty() => {
                rt.host.join(&self.from, foreign, &self.ctx)?
            }
            _ => None,
        };
        Ok(Box::new(LookupStream {
            source,
            join,
            spec: self,
            cached: Cached::Not,
            joined: Vec::new(),
            pending: None,
            share: Share::new(&rt.ledger, Account::Stages),
            ticker: Ticker::new(rt),
            rt: rt.clone(),
            reads: Reads::default(),
        }))
    }
}

/// True if the paths are equal, or one of them is a prefix of the other.
pub(crate) fn overlap(a: &str, b: &str) -> bool {
    let within = |long: &str, short: &str| {
        long.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    within(a, b) || within(b, a)
}

/// The state of a result that is the same for every document.
enum Cached {
    Not,
    Kept(Arc<Vec<Bytes>>),
    TooLarge,
}

struct LookupStream {
    source: Box<dyn DocStream>,
    join: Option<Box<dyn Join>>,
    spec: Arc<Lookup>,
    cached: Cached,
    joined: Vec<Bytes>,
    /// The document whose joined documents are being unwound, and the index of the next one.
    pending: Option<(Bytes, usize)>,
    /// The memory of `joined`.
    share: Share,
    ticker: Ticker,
    rt: Runtime,
    /// The amount of data that the look-ups have read, if the stage is watched.
    reads: Reads,
}

impl DocStream for LookupStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some((doc, at)) = self.pending.take()
                && let Some(out) = self.unwound(doc, at)
            {
                return Ok(Some(out));
            }
            self.ticker.tick()?;
            let Some(doc) = self.source.next()? else {
                return Ok(None);
            };
            if self.rt.watched {
                // This call resets the count, because the earlier reads were done for others.
                self.rt.host.reads();
            }
            self.lookup(Doc::new(&doc))?;
            if self.rt.watched {
                let mut read = self.rt.host.reads();
                self.reads.keys += read.keys;
                self.reads.docs += read.docs;
                self.reads.scans += read.scans;
                self.reads.indexes.append(&mut read.indexes);
            }
            if self.spec.unwind.is_some() {
                self.pending = Some((doc, 0));
                continue;
            }
            return Ok(Some(self.with_array(&doc)));
        }
    }

    fn tell(&self, d: &mut DocBuf) {
        let indexes: ArrayBuf = self.reads.indexes.iter().map(String::as_str).collect();
        d.append("totalDocsExamined", self.reads.docs as i64);
        d.append("totalKeysExamined", self.reads.keys as i64);
        d.append("collectionScans", self.reads.scans as i64);
        d.append("indexesUsed", indexes);
    }
}

impl LookupStream {
    /// Fills `joined` with the documents for `doc`.
    fn lookup(&mut self, doc: Doc<'_>) -> Result<()> {
        self.joined.clear();
        let spec = self.spec.clone();
        let mut bytes = 0_usize;
        let unlimited = spec.unwind.is_some();
        let (joined, share) = (&mut self.joined, &mut self.share);
        let mut take = |d: Bytes| {
            bytes += d.len() + size_of::<Bytes>();
            share.try_hold(bytes)?;
            if bytes > MAX_JOINED && !unlimited {
                return Err(Error::location(
                    4568,
                    format!(
                        "Total size of documents in {} matching pipeline's $lookup stage exceeds \
                         {MAX_JOINED} bytes",
                        spec.from
                    ),
                ));
            }
            joined.push(meta::without(d));
            Ok(())
        };
        let mut values = Vec::new();
        if let Some((local, _)) = &spec.fields {
            local_values(doc, local, &mut values);
        }
        if let Some(join) = &mut self.join {
            let Some(pipeline) = &spec.pipeline else {
                return join.find(&values, &mut take);
            };
            let mut found = VecDeque::new();
            join.find(&values, &mut |d| {
                found.push_back(d);
                Ok(())
            })?;
            let ctx = spec.bound(doc, self.ticker.work())?;
            let parsed = Pipeline::parse(pipeline.as_doc(), &ctx)?;
            let mut stream = parsed.open(Box::new(Documents(found)), &self.rt)?;
            while let Some(d) = stream.next()? {
                take(d)?;
            }
            return Ok(());
        }
        let fixed = !spec.correlated && spec.fields.is_none();
        if let (Cached::Kept(docs), true) = (&self.cached, fixed) {
            return docs.iter().cloned().try_for_each(take);
        }
        let ctx = spec.bound(doc, self.ticker.work())?;
        let stages = spec.stages(&values);
        let mut stream = self.rt.host.pipeline(stages.as_doc(), &ctx)?;
        while let Some(d) = stream.next()? {
            take(d)?;
        }
        if fixed && matches!(self.cached, Cached::Not) {
            self.cached = match bytes <= MAX_CACHED {
                true => Cached::Kept(Arc::new(self.joined.clone())),
                false => Cached::TooLarge,
            };
        }
        Ok(())
    }

    /// The document with the array of the joined documents.
    fn with_array(&self, doc: &Bytes) -> Bytes {
        let total: usize = self.joined.iter().map(|d| d.len() + 8).sum();
        let mut array = Vec::with_capacity(total + 8);
        let start = open(&mut array);
        for (i, d) in self.joined.iter().enumerate() {
            head(&mut array, Type::Document, IndexName::new(i).as_bytes());
            array.extend_from_slice(d);
        }
        close(&mut array, start);
        let mut out = Vec::with_capacity(doc.len() + array.len() + 32);
        let value = Value::Array(Doc::new(&array));
        let parts = self.spec.as_.parts();
        let doc = Doc::new(doc);
        set_path(doc, parts, Some(&value as &dyn Put), &mut out);
        meta::carry(doc, &mut out);
        out.into()
    }

    /// The next document that comes from unwinding `doc`.
    fn unwound(&mut self, doc: Bytes, at: usize) -> Option<Bytes> {
        let spec = self.spec.clone();
        let unwind = spec.unwind.as_ref()?;
        let joined = self.joined.get(at);
        if joined.is_none() && !(at == 0 && unwind.preserve) {
            return None;
        }
        let mut out = Vec::with_capacity(doc.len() + joined.map_or(0, Bytes::len) + 32);
        let value = joined.map(|d| Value::Document(Doc::new(d)));
        let put = value.as_ref().map(|v| v as &dyn Put);
        set_path(Doc::new(&doc), spec.as_.parts(), put, &mut out);
        if let Some(index) = &unwind.index {
            let n = match joined {
                Some(_) => Value::Int64(at as i64),
                None => Value::Null,
            };
            let before = std::mem::take(&mut out);
            set_path(
                Doc::new(&before),
                index.parts(),
                Some(&n as &dyn Put),
                &mut out,
            );
        }
        meta::carry(Doc::new(&doc), &mut out);
        if joined.is_some() {
            self.pending = Some((doc, at + 1));
        }
        Some(out.into())
    }
}

impl Lookup {
    /// The pipeline with the equality at the front, for a collection without a join.
    fn stages(&self, values: &[Value<'_>]) -> ArrayBuf {
        let mut stages = ArrayBuf::new();
        let mut rest = self.pipeline.iter().flat_map(|p| p.as_doc().values());
        if self.from.is_empty() {
            // $documents must stay the first stage.
            rest.by_ref().take(1).for_each(|s| {
                stages.push(s);
            });
        }
        if let Some((_, foreign)) = &self.fields {
            let any: ArrayBuf = values
                .iter()
                .map(|v| {
                    let mut d = DocBuf::new();
                    d.append(foreign.as_str(), doc! { "$eq": *v });
                    ValueBuf::new(d)
                })
                .collect();
            stages.push(doc! { "$match": doc! { "$or": any } });
        }
        rest.for_each(|s| {
            stages.push(s);
        });
        stages
    }
}

/// Runs a look-up of `$graphLookup` as a pipeline, for a collection without a join.
pub(crate) fn find_by_pipeline(
    host: &dyn Host,
    ctx: &QueryContext,
    field: &Path,
    values: &[Value<'_>],
    found: &mut dyn FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    let lookup = Lookup {
        from: ctx.collection.clone(),
        fields: Some((field.clone(), field.clone())),
        let_: Vec::new(),
        pipeline: None,
        correlated: false,
        as_: field.clone(),
        unwind: None,
        ctx: ctx.clone(),
    };
    let mut stream = host.pipeline(lookup.stages(values).as_doc(), ctx)?;
    while let Some(d) = stream.next()? {
        found(meta::without(d))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::update::testing::json_array;

    #[test]
    fn operands_are_checked() {
        let ctx = QueryContext {
            db: "db".into(),
            ..QueryContext::new()
        };
        let fields = "localField: 'a', foreignField: 'b'";
        for (operand, want) in [
            (format!("{{from: 'f', {fields}, as: 'j'}}"), 0),
            ("{from: 'f', pipeline: [], as: 'j'}".into(), 0),
            ("{pipeline: [{$documents: []}], as: 'j'}".into(), 0),
            ("{from: 'f', let: {v: '$a'}, pipeline: [{$match: {$expr: {$eq: ['$b', '$$v']}}}], as: 'j'}".into(), 0),
            ("1".into(), 9),
            ("{}".into(), 9),
            ("{from: 1, pipeline: [], as: 'j'}".into(), 9),
            ("{from: '', pipeline: [], as: 'j'}".into(), 73),
            (format!("{{from: 'f', {fields}}}"), 40414),
            (format!("{{from: 'f', {fields}, as: 1}}"), 14),
            (format!("{{from: 'f', {fields}, as: '$j'}}"), 16410),
            (format!("{{from: 'f', {fields}, as: 'j', x: 1}}"), 40415),
            (format!("{{from: 'f', {fields}, as: 'j', let: {{}}}}"), 9),
            ("{from: 'f', localField: 'a', as: 'j'}".into(), 9),
            ("{from: 'f', as: 'j'}".into(), 9),
            ("{from: 'f', let: {V: 1}, pipeline: [], as: 'j'}".into(), 9),
            ("{from: 'f', let: {v: '$$v'}, pipeline: [], as: 'j'}".into(), 17276),
            ("{from: 'f', pipeline: [{$out: 'x'}], as: 'j'}".into(), 51047),
        ] {
            let stages = json_array(&format!("[{{$lookup: {operand}}}]"));
            let got = Pipeline::parse(stages.as_doc(), &ctx).map_or_else(|e| e.code().0, |_| 0);
            assert_eq!(got, want, "{operand}");
        }
    }

    #[test]
    fn local_fields_are_read_as_equality_reads_them() {
        for (doc, path, want) in [
            ("{a: 1}", "a", "[1]"),
            ("{}", "a", "[null]"),
            ("{a: []}", "a", "[null]"),
            ("{a: [1, [2]]}", "a", "[1, [2]]"),
            ("{a: [{b: 1}, {b: [2, 3]}]}", "a.b", "[1, 2, 3]"),
            ("{a: [1, 2]}", "a.b", "[null]"),
            ("{a: ['x', 'y']}", "a.1", "['y']"),
        ] {
            let d = json_array(&format!("[{doc}]"));
            let d = d.as_doc().get_doc("0").unwrap();
            let mut out = Vec::new();
            local_values(d, &Path::new(path), &mut out);
            let got: ArrayBuf = out.into_iter().collect();
            assert_eq!(
                got.as_doc().as_bytes(),
                json_array(want).as_doc().as_bytes(),
                "{doc}"
            );
        }
    }

    #[test]
    fn paths_overlap() {
        assert!(overlap("a", "a") && overlap("a.b", "a") && overlap("a", "a.b"));
        assert!(!overlap("a", "ab") && !overlap("a.b", "a.c"));
    }
}
