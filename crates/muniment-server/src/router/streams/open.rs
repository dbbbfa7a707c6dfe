//! Opening the parts of a stream.

use super::look_up::LookUps;
use super::merged::{Merged, Source};
use super::opening::{Begins, Opening, Shard};
use super::part::{self, Part};
use crate::commands::cursor_reply::limits;
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::configuration::read;
use crate::router::sharded::host::Around;
use crate::router::sharded::remote::Terms;
use muniment_exec::{
    BatchLimits, Cursor, EventTokens, check_parts, check_watched, mark_before, read_token,
    stages_of,
};
use muniment_op::Interrupt;
use muniment_query::stage::change_stream::{
    ChangeStreamSpec, SHARD, at_front, check_behind, not_explained,
};
use muniment_query::{DocStream, Pipeline};
use muniment_storage::Timestamp;
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value};
use std::sync::Arc;

/// The options of `$changeStream` that say where a stream begins.
const BEGINNINGS: [&str; 3] = ["resumeAfter", "startAfter", "startAtOperationTime"];
/// The fields of a command that a shard's part of it has, too.
const PASSED: [&str; 4] = ["allowDiskUse", "collation", "comment", "let"];

/// The stages of the pipeline, by where they run.
struct Stages {
    shards: ArrayBuf,
    router: ArrayBuf,
    /// The router splits large events.
    splits: bool,
}

/// Runs an aggregate that begins with `$changeStream`.
///
/// # Errors
/// Those of the stage, of the way to the shards, and the shards'.
pub fn open(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let pipeline = cx.request.body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let Some(stage) = at_front(pipeline) else {
        return Err(Error::internal("a change stream without its stage"));
    };
    if cx.args.bool("explain", false) {
        return Err(not_explained());
    }
    if cx.args.doc("cursor").is_none() {
        return Err(Error::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    let limits = limits(cx.args.doc("cursor"), BatchLimits::FIRST)?;
    let spec = ChangeStreamSpec::parse(stage)?;
    check_behind(pipeline)?;
    if spec.shard.is_some() {
        let why = format!("{SHARD} is for a cluster's own members");
        return Err(Error::new(Code::InvalidOptions, why));
    }
    let collection = Some(cx.collection_name()).filter(|c| !c.is_empty());
    check_watched(cx.db(), collection, spec.all, cx.ns())?;
    let stages = divided(&spec, pipeline)?;
    let token = spec.resume_after.or(spec.start_after);
    let had = token.map_or(Ok(0), |token| read_token(token).map(|(_, had)| had))?;
    let looks_up = spec.full_document == Some("updateLookup");
    if looks_up {
        check_parts(had, stages.splits)?;
    }
    let (let_, collation) = (cx.args.doc("let"), cx.args.doc("collation"));
    let collation = Collation::parse_some(collation)?;
    let mut ctx = cx
        .engine()
        .context(cx.op, let_.unwrap_or(Doc::EMPTY), collation)?;
    (ctx.db, ctx.collection) = (cx.db().to_string(), cx.collection_name().to_string());
    let rest = Pipeline::parse(stages.router.as_doc(), &ctx)?;
    cx.op.watches_changes();
    let mut merged = None;
    let cursor = Cursor::over(cx.ns(), cx.op, false, |on| {
        let terms = Terms::new(cx, &on);
        let (opening, parts) = opened(cx, router, &terms, (&spec, stage.value()), stages.shards)?;
        let begins = match &opening.begins {
            Begins::At(at) => mark_before(*at),
            Begins::After(_, token, _) => token.clone(),
        };
        let tokens = Arc::new(EventTokens::new(begins));
        let all = Merged::new(&terms, opening, parts, Arc::clone(&tokens));
        merged = Some(Arc::clone(&all));
        let mut stream: Box<dyn DocStream> = Box::new(Source(all));
        if looks_up {
            stream = Box::new(LookUps::new(stream, &terms));
        }
        let stream = rest.open(stream, &Around::runtime(&terms, None))?;
        Ok(match stages.splits {
            true => tokens.divide(stream, had),
            false => stream,
        })
    })?;
    let merged = merged.ok_or_else(|| Error::internal("a change stream was not opened"))?;
    cx.first_batch(cursor.with_tail(merged), limits)
}

/// Says where the stages run: on the shards, unless the router has to look documents up first.
fn divided(spec: &ChangeStreamSpec<'_>, pipeline: Doc<'_>) -> Result<Stages> {
    let (stages, splits) = stages_of(pipeline)?;
    if spec.full_document != Some("updateLookup") {
        return Ok(Stages {
            shards: pipeline.values().skip(1).collect(),
            router: ArrayBuf::new(),
            splits: false,
        });
    }
    let values = stages.as_doc().values();
    let early = values.take_while(|stage| needs_no_document(*stage)).count();
    let values = || stages.as_doc().values();
    Ok(Stages {
        shards: values().take(early).collect(),
        router: values().skip(early).collect(),
        splits,
    })
}

/// Whether a stage is a filter by fields that events have before the router looks for their documents.
fn needs_no_document(stage: Value<'_>) -> bool {
    const FIELDS: [&str; 4] = ["clusterTime", "documentKey", "ns", "operationType"];
    let filter = stage.as_doc().and_then(|d| d.get_doc("$match"));
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_string();
    filter.is_some_and(|d| d.iter().all(|e| FIELDS.contains(&first(e.name()).as_str())))
}

/// Opens the parts.
///
/// Everything that was acknowledged before is not later than the newest time that any set knows. So the sets are asked
/// for it first, and a stream without a beginning of its own begins after it; the sets have to come to that time, since
/// a new primary could otherwise have commits before it.
fn opened(
    cx: &CommandContext<'_>,
    router: &Router,
    terms: &Terms,
    (spec, options): (&ChangeStreamSpec<'_>, Value<'_>),
    stages: ArrayBuf,
) -> Result<(Opening, Vec<Part>)> {
    let on: &dyn Interrupt = &**cx.op;
    let token = spec.resume_after.or(spec.start_after);
    let begins = match (token, spec.start_at) {
        (Some(token), _) => {
            let name = match spec.resume_after {
                Some(_) => "resumeAfter",
                None => "startAfter",
            };
            let (at, _) = read_token(token)?;
            Some(Begins::After(name, token.to_buf(), at))
        }
        (None, Some(at)) => Some(Begins::At(Timestamp(at))),
        (None, None) => None,
    };
    let mut sets = vec![Arc::clone(&router.config)];
    if begins.is_none() {
        let shards = router.catalog.shards(on, router)?;
        sets.extend(shards.into_iter().map(|(_, set)| set));
    }
    let mut known = router.times.at();
    part::come_to(terms, &sets, known)?;
    if router.times.at() > known {
        known = router.times.at();
        part::come_to(terms, &sets, known)?;
    }
    let options = options.as_doc().unwrap_or(Doc::EMPTY);
    let mut opening = Opening {
        db: cx.db().to_string(),
        command: DocBuf::new(),
        options: without(options, &BEGINNINGS),
        stages,
        begins: begins.unwrap_or(Begins::At(known.plus(1))),
        preference: cx
            .generic
            .read_preference
            .map_or_else(DocBuf::new, |p| p.to_doc()),
        known,
    };
    let first = cx.request.body.first();
    first.map(|e| opening.command.append_elem(e));
    let passed = cx.request.body.iter();
    for e in passed.filter(|e| PASSED.contains(&e.name())) {
        opening.command.append_elem(e);
    }
    let mut shards = vec![Shard {
        name: None,
        set: Arc::clone(&router.config),
        since: Timestamp::ZERO,
    }];
    for d in read(on, router, "shards", DocBuf::new())? {
        shards.extend(opening.shard(router, d.as_doc())?);
    }
    let parts = opening.open(terms, &shards)?;
    Ok((opening, parts))
}

fn without(d: Doc<'_>, names: &[&str]) -> DocBuf {
    let mut out = DocBuf::new();
    for e in d.iter().filter(|e| !names.contains(&e.name())) {
        out.append_elem(e);
    }
    out
}
