//! Pipelines: parsing them, removing the stages at the front that the planner runs, and opening the rest.

use super::registry::{Input, Position, Spec, Within, find, find_for_member, place};
use super::sort::SortStream;
use super::watch::{Figures, Watched};
use super::{
    CountOnly, DocStream, MapStream, Stage, Ticker, Transform, count, geo_near, limit, match_, skip,
};
use crate::context::{QueryContext, Runtime};
use crate::filter::{Filter, Node};
use crate::meta::{MetaSet, Metadata};
use crate::needs::Needs;
use crate::projection::Projection;
use crate::sort::SortSpec;
use muniment_value::{Code, Doc, DocBuf, Elem, Error, Result, Value, doc};
use std::collections::VecDeque;
use std::sync::Arc;

/// The most stages of a pipeline, which is MongoDB's limit.
const MAX_STAGES: usize = 1000;

/// A parsed pipeline.
///
/// The planner removes stages that it can run itself from the front (`take_leading_…`), in the order of the
/// stages, and opens the rest on top of its stream.
#[derive(Clone, Debug)]
pub struct Pipeline {
    stages: VecDeque<Stage>,
    /// Each stage as it was written, for explain. If one written stage became several stages, the further
    /// ones have an empty document here.
    sources: VecDeque<DocBuf>,
    /// The metadata that any stage of the command's pipelines asks for.
    metadata: Metadata,
}

/// Appends the stages for the specification `v`.
fn parse_stage(v: Value<'_>, ctx: &QueryContext, parsed: &mut Vec<Stage>) -> Result<()> {
    let e = single(v)?;
    let spec = match ctx.member {
        true => find_for_member(e.name())?,
        false => find(e.name())?,
    };
    (spec.parse)(e, ctx, parsed)?;
    if parsed.len() > MAX_STAGES {
        return Err(Error::location(
            7_749_501,
            format!("Pipeline length must be no longer than {MAX_STAGES} stages"),
        ));
    }
    Ok(())
}

/// Fails if a stage stands in a wrong place.
///
/// # Errors
/// 40602 for a source of documents that is not first, 40601 for a final stage that is not last; those for
/// nested pipelines: 40600, 51047, 31441.
fn check_places(all: Doc<'_>, within: Within) -> Result<()> {
    let mut stages = all.values().enumerate().peekable();
    while let Some((i, v)) = stages.next() {
        let Some(name) = v.as_doc().and_then(|d| d.first()).map(|e| e.name()) else {
            continue;
        };
        let Some(place) = place(name) else { continue };
        within.check(name, place)?;
        match place.position {
            Position::First if name == geo_near::SPEC.name => {
                let front = geo_near::at_front(all).map(|(front, _)| front);
                if front != Some(i) {
                    return Err(geo_near::not_first());
                }
            }
            Position::First if i > 0 => {
                return Err(Error::location(
                    place.not_first,
                    format!("{name} is only valid as the first stage in a pipeline"),
                ));
            }
            Position::Last if stages.peek().is_some() => {
                return Err(Error::location(
                    40601,
                    format!("{name} can only be the final stage in the pipeline"),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The only field of a stage's specification.
pub(super) fn single(v: Value<'_>) -> Result<Elem<'_>> {
    let Value::Document(d) = v else {
        return Err(Error::type_mismatch(
            "Each element of the 'pipeline' array must be an object",
        ));
    };
    let mut fields = d.iter();
    match (fields.next(), fields.next()) {
        (Some(e), None) => Ok(e),
        _ => Err(Error::location(
            40323,
            "A pipeline stage specification object must contain exactly one field.",
        )),
    }
}

impl Pipeline {
    /// Parses the stages of a command's pipeline, or those after the stages that the caller runs itself.
    /// Their places are checked by [`Pipeline::check`].
    ///
    /// # Errors
    /// 40324 "Unrecognized pipeline stage name: '$x'" and those of the stages.
    pub fn parse(stages: Doc<'_>, ctx: &QueryContext) -> Result<Pipeline> {
        Pipeline::parse_part(stages, ctx, ctx.sub_pipelines == 0)
    }

    /// As [`Pipeline::parse`]. `first` says whether nothing but stages that the planner runs can stand before
    /// these stages.
    ///
    /// # Errors
    /// As [`Pipeline::parse`].
    pub(crate) fn parse_part(stages: Doc<'_>, ctx: &QueryContext, first: bool) -> Result<Pipeline> {
        let mut parsed = Vec::new();
        let mut sources = VecDeque::new();
        // The context of the stages after one that changes which metadata are available.
        let mut behind: Option<QueryContext> = None;
        // Errors of constants are reported after all errors of parsing.
        let mut late = None;
        for v in stages.values() {
            let at = parsed.len();
            match parse_stage(v, behind.as_ref().unwrap_or(ctx), &mut parsed) {
                Err(e) if e.is_optimizing() => {
                    late.get_or_insert(e);
                }
                other => other?,
            }
            let before = behind.as_ref().unwrap_or(ctx).metadata.available;
            let new = parsed.get(at..).unwrap_or_default();
            let after = new.iter().fold(before, |m, s| s.metadata(m));
            if after != before {
                let mut next = ctx.clone();
                next.metadata.available = after;
                behind = Some(next);
            }
            if let (Value::Document(source), true) = (v, sources.len() < parsed.len()) {
                sources.push_back(source.to_buf());
            }
            sources.resize_with(parsed.len(), DocBuf::new);
        }
        if let Some(e) = late {
            // Only the outermost pipeline adds this context, so that it does not appear twice.
            return Err(match ctx.sub_pipelines {
                0 => e.context("Failed to optimize pipeline :: caused by :: "),
                _ => e,
            });
        }
        let mut p = Pipeline {
            stages: parsed.into(),
            sources,
            metadata: ctx.metadata.clone(),
        };
        p.hoist_matches();
        p.absorb();
        if first {
            p.mark_first();
        }
        Ok(p)
    }

    /// Checks that the stages of a whole pipeline stand in the right places. Errors inside the stages are
    /// reported before errors of their places.
    ///
    /// # Errors
    /// 40601 and 40602, and those of parsing.
    pub fn check(stages: Doc<'_>, ctx: &QueryContext) -> Result<()> {
        let placed = check_places(stages, Within::Command);
        if placed.is_err() {
            Pipeline::parse(stages, ctx)?;
        }
        placed
    }

    /// Parses a pipeline inside a stage, which may be opened many times: see [`Pipeline::clone`].
    ///
    /// # Errors
    /// As [`Pipeline::parse`]; 232 if it is nested more than 20 levels deep; those of stages in wrong places.
    pub fn parse_nested(stages: Doc<'_>, outer: &QueryContext, within: Within) -> Result<Pipeline> {
        let mut ctx = outer.nested()?;
        if within == Within::Facet {
            ctx.in_facet = true;
            // Its documents come from the outer pipeline, with their metadata.
            ctx.metadata.available = outer.metadata.available;
        }
        let parsed = Pipeline::parse(stages, &ctx);
        if let Err(e) = &parsed
            && e.code() != Code::CommandNotSupported
        {
            return parsed;
        }
        // A first stage that has its own error for a collection reports that one first.
        let first = stages.values().next().and_then(|v| v.as_doc()?.first());
        let place = first.and_then(|e| place(e.name()));
        if within == Within::Facet
            && !ctx.collection.is_empty()
            && place.is_some_and(|p| p.input == Input::Database)
        {
            check_target(stages, &ctx.db, true)?;
        }
        check_places(stages, within)?;
        if ctx.in_facet {
            // A pipeline inside a pipeline of $facet must obey the rules for $facet too.
            check_places(stages, Within::Facet)?;
        }
        parsed
    }

    /// Tells the first stage that the planner does not run that it is the first one, and whether another
    /// stage follows it.
    fn mark_first(&mut self) {
        let Some(at) = self.stages.iter().position(|s| !s.is_planned()) else {
            return;
        };
        let followed = at + 1 < self.stages.len();
        if let Some(Stage::Other(op)) = self.stages.get_mut(at)
            && let Some(op) = Arc::get_mut(op)
        {
            op.comes_first(followed);
        }
    }

    /// Moves every `$match`, or a part of it, before the stages with which it commutes.
    fn hoist_matches(&mut self) {
        for i in 1..self.stages.len() {
            let mut at = i;
            while at > 0 && matches!(self.stages.get(at), Some(Stage::Match(_))) {
                let Some(before) = self.stages.get(at - 1) else {
                    break;
                };
                let Some(Stage::Match(f)) = self.stages.get(at) else {
                    break;
                };
                let (first, second) = divide(f, before);
                match (first, second) {
                    (None, _) => break,
                    (Some(_), None) => {
                        self.stages.swap(at, at - 1);
                        self.sources.swap(at, at - 1);
                    }
                    (Some(first), Some(second)) => {
                        let source = |f: &Filter| doc! { "$match": f.to_doc() };
                        let sources = (source(&first), source(&second));
                        if let Some(s) = self.stages.get_mut(at) {
                            *s = Stage::Match(second);
                        }
                        if let Some(s) = self.sources.get_mut(at) {
                            *s = sources.1;
                        }
                        self.stages.insert(at - 1, Stage::Match(first));
                        self.sources.insert(at - 1, sources.0);
                    }
                }
                at -= 1;
            }
        }
    }

    /// Lets stages merge with the ones after them.
    fn absorb(&mut self) {
        let mut at = 0;
        while at + 1 < self.stages.len() {
            let merged = match (self.stages.get(at), self.stages.get(at + 1)) {
                (Some(Stage::Other(op)), Some(next)) => op.absorb(next),
                _ => None,
            };
            if let Some(op) = merged {
                if let Some(s) = self.stages.get_mut(at) {
                    *s = Stage::Other(op);
                }
                self.stages.remove(at + 1);
                // Explain shows both stages.
                let next = self.sources.remove(at + 1).unwrap_or_default();
                if let Some(s) = self.sources.get_mut(at) {
                    s.append_all(next.as_doc());
                }
            } else {
                at += 1;
            }
        }
    }

    /// The metadata that any stage of the command's pipelines asks for.
    pub fn metadata(&self) -> MetaSet {
        self.metadata.asked()
    }

    /// True if no stage is left.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// The stages that are left.
    pub fn stages(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter()
    }

    /// The stages that are left as they were written.
    pub fn sources(&self) -> impl Iterator<Item = Doc<'_>> {
        self.sources
            .iter()
            .map(DocBuf::as_doc)
            .filter(|d| !d.is_empty())
    }

    /// The error of a first stage that cannot read a time-series collection.
    pub fn refuses_time_series(&self) -> Option<Error> {
        match self.stages.front() {
            Some(Stage::Other(op)) => op.refuses_time_series(),
            _ => None,
        }
    }

    /// True if the first stage does not read a collection.
    pub fn has_source(&self) -> bool {
        matches!(self.stages.front(), Some(Stage::Other(op)) if op.is_source())
    }

    /// Makes the checks of opening the stages, without their effects. For explain.
    ///
    /// # Errors
    /// As [`Pipeline::open`].
    pub fn check_targets(&self, rt: &Runtime) -> Result<()> {
        self.stages.iter().try_for_each(|s| match s {
            Stage::Other(op) => op.check(rt),
            _ => Ok(()),
        })
    }

    /// True if the last stage writes.
    pub fn writes(&self) -> bool {
        matches!(self.stages.back(), Some(Stage::Other(op)) if op.writes())
    }

    /// Removes the last stage if it writes, and returns it as it was written.
    pub fn take_writer(&mut self) -> Option<DocBuf> {
        if !self.writes() {
            return None;
        }
        self.stages.pop_back();
        self.sources.pop_back()
    }

    fn pop(&mut self) -> Option<(Stage, DocBuf)> {
        let source = self.sources.pop_front().unwrap_or_default();
        self.stages.pop_front().map(|s| (s, source))
    }

    /// Removes the `$match` stages at the front, and returns them as one filter.
    pub fn take_leading_match(&mut self) -> Option<Filter> {
        let mut taken: Option<Filter> = None;
        while let Some(Stage::Match(_)) = self.stages.front() {
            let later = taken.is_some();
            if let (true, Some(Stage::Match(f))) = (later, self.stages.front())
                && reads_metadata(f)
            {
                break;
            }
            let Some((Stage::Match(f), _)) = self.pop() else {
                break;
            };
            taken = Some(match taken {
                None => f,
                Some(first) => both(&first, &f),
            });
        }
        taken
    }

    /// The `$sort` at the front. The planner looks for an index with that order before it removes the stage
    /// with [`Pipeline::take_leading_sort`].
    pub fn leading_sort(&self) -> Option<&SortSpec> {
        match self.stages.front() {
            Some(Stage::Sort(s)) => Some(s),
            _ => None,
        }
    }

    /// Removes the `$sort` at the front. After that, [`Pipeline::wanted`] tells how many documents the rest
    /// can use.
    pub fn take_leading_sort(&mut self) -> Option<(SortSpec, DocBuf)> {
        self.leading_sort()?;
        match self.pop() {
            Some((Stage::Sort(s), source)) => {
                let source = source.as_doc().get_doc("$sort").map(|d| d.to_buf());
                Some((s, source.unwrap_or_default()))
            }
            _ => None,
        }
    }

    /// Removes the `$skip` at the front.
    pub fn take_leading_skip(&mut self) -> Option<u64> {
        let Some(Stage::Skip(n)) = self.stages.front() else {
            return None;
        };
        let n = *n;
        self.pop();
        Some(n)
    }

    /// Removes the `$limit` at the front.
    pub fn take_leading_limit(&mut self) -> Option<u64> {
        let Some(Stage::Limit(n)) = self.stages.front() else {
            return None;
        };
        let n = *n;
        self.pop();
        Some(n)
    }

    /// The `$project` at the front, for covered plans.
    pub fn leading_project(&self) -> Option<&Projection> {
        match self.stages.front() {
            Some(Stage::Project(p)) => Some(p),
            _ => None,
        }
    }

    /// Removes the `$project` at the front.
    pub fn take_leading_project(&mut self) -> Option<(Arc<Projection>, DocBuf)> {
        self.leading_project()?;
        match self.pop() {
            Some((Stage::Project(p), source)) => {
                let source = source.as_doc().get_doc("$project").map(|d| d.to_buf());
                Some((p, source.unwrap_or_default()))
            }
            _ => None,
        }
    }

    /// The number of input documents that the pipeline can use, if `$skip` and `$limit` at the front limit
    /// it.
    pub fn wanted(&self) -> Option<u64> {
        wanted(self.stages.iter())
    }

    /// If the remaining stages only need the number of input documents: a `$count`, or the `$group` that
    /// drivers send for countDocuments.
    pub fn count_only(&self) -> Option<CountOnly> {
        if self.stages.len() != 1 {
            return None;
        }
        self.stages.front().and_then(Stage::counts)
    }

    /// The paths that the stages read from their input; `None` means whole documents.
    pub fn needs(&self) -> Option<Vec<String>> {
        let mut needs = Needs::default();
        for s in &self.stages {
            let closed = match s {
                Stage::Match(f) => {
                    needs.filter(f.root());
                    false
                }
                Stage::Sort(s) => {
                    let fields = s.keys().iter().filter(|k| k.meta.is_none());
                    fields.for_each(|k| needs.path(k.path.as_str()));
                    false
                }
                Stage::Limit(_) | Stage::Skip(_) => false,
                Stage::Count(_) => true,
                Stage::Project(p) => Projection::needs(p, &mut needs),
                Stage::Map(m) => m.needs(&mut needs),
                Stage::Other(op) => op.needs(&mut needs),
            };
            if closed {
                return needs.into_paths();
            }
        }
        None
    }

    /// Opens the stages on top of `source`.
    ///
    /// # Errors
    /// Those of opening a stage.
    pub fn open(self, source: Box<dyn DocStream>, rt: &Runtime) -> Result<Box<dyn DocStream>> {
        self.open_each(source, rt, |_, top| top)
    }

    /// As [`Pipeline::open`]. It also returns the stages as they were written, with the figures of each.
    ///
    /// # Errors
    /// As [`Pipeline::open`].
    #[allow(clippy::type_complexity)] // the stages, and the figures of each
    pub fn open_watched(
        self,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<(Box<dyn DocStream>, Vec<(DocBuf, Arc<Figures>)>)> {
        let mut all: Vec<(DocBuf, Arc<Figures>)> = Vec::new();
        let rt = Runtime {
            watched: true,
            ..rt.clone()
        };
        let top = self.open_each(source, &rt, |source, top| {
            let (watched, figures) = Watched::new(top);
            match all.last_mut() {
                // This stage comes from the same written stage as the one before. The figures of the last one
                // count for all of them.
                Some((_, last)) if source.as_doc().is_empty() => *last = figures,
                _ => all.push((source, figures)),
            }
            Box::new(watched)
        })?;
        Ok((top, all))
    }

    fn open_each(
        mut self,
        source: Box<dyn DocStream>,
        rt: &Runtime,
        mut each: impl FnMut(DocBuf, Box<dyn DocStream>) -> Box<dyn DocStream>,
    ) -> Result<Box<dyn DocStream>> {
        let mut top = source;
        let asked = self.metadata.asked();
        loop {
            // An unwind makes many documents from one, so leaving fields out of its input saves copying them
            // many times.
            let needs = match self.stages.front() {
                Some(Stage::Other(op)) if op.as_unwind().is_some() => self.needs(),
                _ => None,
            };
            let Some((stage, written)) = self.pop() else {
                return Ok(top);
            };
            let opened: Box<dyn DocStream> = match stage {
                Stage::Match(f) => Box::new(match_::MatchStream::new(top, f, rt)),
                Stage::Project(p) => Box::new(MapStream {
                    source: top,
                    map: p,
                    ticker: Ticker::new(rt),
                }),
                Stage::Map(map) => Box::new(MapStream {
                    source: top,
                    map,
                    ticker: Ticker::new(rt),
                }),
                Stage::Sort(spec) => Box::new(SortStream::new(top, spec, self.wanted(), asked, rt)),
                Stage::Limit(n) => Box::new(limit::LimitStream::new(top, n)),
                Stage::Skip(n) => Box::new(skip::SkipStream::new(top, n, rt)),
                Stage::Count(name) => Box::new(count::CountStream::new(top, name, rt)),
                Stage::Other(op) => op.open_for(top, rt, needs)?,
            };
            top = each(written, opened);
        }
    }
}

/// Checks that the first stage fits the target of the command: a collection, or `1`.
///
/// # Errors
/// 73 InvalidNamespace.
pub fn check_target(stages: Doc<'_>, db: &str, collection: bool) -> Result<()> {
    let invalid = |message: String| Err(Error::new(Code::InvalidNamespace, message));
    let Some(first) = stages.values().next() else {
        return match collection {
            true => Ok(()),
            false => invalid("{aggregate: 1} is not valid for an empty pipeline.".into()),
        };
    };
    let name = single(first)?.name();
    let Some(place) = place(name) else {
        return Ok(());
    };
    match place.input {
        Input::Documents | Input::Collection if !collection => invalid(format!(
            "{{aggregate: 1}} is not valid for '{name}'; a collection is required."
        )),
        Input::Database if collection => Err(Error::location(
            9_621_301,
            format!("The {name} stage must be run on a database, not on a collection"),
        )),
        Input::AdminDatabase if collection || db != "admin" => invalid(format!(
            "{name} must be run against the 'admin' database with {{aggregate: 1}}"
        )),
        Input::CollectionOrAdmin if !collection && db != "admin" => invalid(format!(
            "Collectionless {name} must be run against the 'admin' database with {{aggregate: 1}}"
        )),
        Input::Nothing if collection => {
            invalid(format!("'{name}' can only be run with {{aggregate: 1}}"))
        }
        _ => Ok(()),
    }
}

/// See [`Pipeline::wanted`].
pub(crate) fn wanted<'s>(stages: impl Iterator<Item = &'s Stage>) -> Option<u64> {
    let mut skipped = 0u64;
    let mut wanted: Option<u64> = None;
    for s in stages {
        match s {
            Stage::Skip(n) => skipped = skipped.saturating_add(*n),
            Stage::Limit(n) => {
                let n = n.saturating_add(skipped);
                wanted = Some(wanted.map_or(n, |w| w.min(n)));
            }
            // These stages return one document for each, so later limits apply to the input too.
            Stage::Project(_) | Stage::Map(_) => {}
            _ => break,
        }
    }
    wanted
}

/// A stage as it was written, and what it became.
#[derive(Clone)]
pub(crate) struct Written {
    pub source: DocBuf,
    pub spec: &'static Spec,
    pub stages: Vec<Stage>,
}

/// Parses each stage by itself. The stages have been parsed as a pipeline before, so that their errors are known.
/// A `$match` moves before the stages with which all of it commutes.
///
/// # Errors
/// As [`Pipeline::parse`].
pub(crate) fn written(stages: Doc<'_>, ctx: &QueryContext) -> Result<Vec<Written>> {
    let mut all: Vec<Written> = Vec::new();
    let mut ctx = ctx.clone();
    for v in stages.values() {
        let e = single(v)?;
        let mut parsed = Vec::new();
        parse_stage(v, &ctx, &mut parsed)?;
        let before = ctx.metadata.available;
        ctx.metadata.available = parsed.iter().fold(before, |m, s| s.metadata(m));
        let mut at = all.len();
        if let [Stage::Match(f)] = parsed.as_slice() {
            let passes = |s: &Stage| matches!(divide(f, s), (Some(_), None));
            while at > 0
                && let Some(before) = all.get(at - 1)
                && before.stages.iter().all(passes)
            {
                at -= 1;
            }
        }
        let stage = Written {
            source: v.as_doc().unwrap_or(Doc::EMPTY).to_buf(),
            spec: find(e.name())?,
            stages: parsed,
        };
        all.insert(at, stage);
    }
    Ok(all)
}

/// Divides a filter into the part that may run before a stage and the part that may not.
fn divide(f: &Filter, before: &Stage) -> (Option<Filter>, Option<Filter>) {
    let changes = |path: &str| match before {
        Stage::Sort(_) | Stage::Match(_) => false,
        // The path `a.` may stand for all of `a`.
        Stage::Map(m) => m.may_touch(path.trim_end_matches('.')),
        Stage::Project(p) => p.may_touch(path.trim_end_matches('.')),
        Stage::Other(op) => op.changes(path.trim_end_matches('.')),
        Stage::Limit(_) | Stage::Skip(_) | Stage::Count(_) => true,
    };
    if reads_metadata(f) {
        return (None, Some(f.clone()));
    }
    if matches!(before, Stage::Sort(_)) {
        return (Some(f.clone()), None);
    }
    // Moving it before another $match would not help.
    if matches!(before, Stage::Match(_)) {
        return (None, Some(f.clone()));
    }
    let movable = |node: &Node| {
        if matches!(node, Node::Expr { .. }) {
            return false;
        }
        let mut needs = Needs::default();
        needs.filter(node);
        needs
            .into_paths()
            .is_some_and(|p| !p.is_empty() && p.iter().all(|p| !changes(p)))
    };
    let nodes = match f.root() {
        Node::And(list) => list.clone(),
        n => vec![n.clone()],
    };
    let (first, second): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(movable);
    let filter = |mut list: Vec<Node>| match list.len() {
        0 => None,
        1 => Some(Filter::from_root(list.swap_remove(0), f.collation())),
        _ => Some(Filter::from_root(Node::And(list), f.collation())),
    };
    (filter(first), filter(second))
}

/// Whether a filter reads metadata. If so, it must stay after the stage that provides them.
fn reads_metadata(f: &Filter) -> bool {
    let mut needs = Needs::default();
    needs.filter(f.root());
    needs.has_metadata()
}

/// A filter that demands both.
fn both(a: &Filter, b: &Filter) -> Filter {
    let mut nodes = Vec::new();
    for f in [a, b] {
        match f.root() {
            Node::True => {}
            Node::And(n) => nodes.extend(n.iter().cloned()),
            n => nodes.push(n.clone()),
        }
    }
    match nodes.len() {
        0 => Filter::from_root(Node::True, a.collation()),
        1 => Filter::from_root(nodes.swap_remove(0), a.collation()),
        _ => Filter::from_root(Node::And(nodes), a.collation()),
    }
}

/// Checks that an update's pipeline only has stages that are allowed in it.
///
/// # Errors
/// 40324 for a stage that does not exist, 72 InvalidOptions for one that is not allowed, 40323 for a value
/// that is not a stage.
pub fn check_update_stages(stages: Doc<'_>) -> Result<()> {
    for v in stages.values() {
        let e = single(v)?;
        let refused = || {
            Error::new(
                Code::InvalidOptions,
                format!("{} is not allowed to be used within an update", e.name()),
            )
        };
        let spec = find(e.name()).map_err(|err| match err.code() {
            // MongoDB has this stage and Muniment does not. No such stage is allowed in an update.
            Code::CommandNotSupported => refused(),
            _ => err,
        })?;
        if !spec.place.in_updates {
            return Err(refused());
        }
    }
    Ok(())
}

/// Parses the stages of a pipeline update. Fails with 72 InvalidOptions for a stage that is not allowed in
/// it.
pub(crate) fn parse_update_pipeline(
    stages: Doc<'_>,
    ctx: &QueryContext,
) -> Result<Vec<Arc<dyn Transform>>> {
    let late = QueryContext {
        late_constants: true,
        ..ctx.clone()
    };
    let ctx = &late;
    let mut parsed = Vec::new();
    check_update_stages(stages)?;
    for v in stages.values() {
        parse_stage(v, ctx, &mut parsed)?;
    }
    let mut maps: Vec<Arc<dyn Transform>> = Vec::new();
    for s in parsed {
        match s {
            Stage::Project(p) => maps.push(p),
            Stage::Map(m) => maps.push(m),
            _ => {
                return Err(Error::new(
                    Code::InvalidOptions,
                    "a stage is not allowed to be used within an update",
                ));
            }
        }
    }
    Ok(maps)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::update::testing::json_array;

    #[test]
    fn conditions_move_before_what_does_not_touch_them() {
        for (pipeline, want) in [
            (
                "[{$sort:{a:1}},{$match:{b:1}}]",
                "[{$match:{b:1}},{$sort:{a:1}}]",
            ),
            (
                "[{$project:{a:1,b:1}},{$match:{a:1}}]",
                "[{$match:{a:1}},{$project:{a:1,b:1}}]",
            ),
            (
                "[{$project:{a:1}},{$match:{b:1}}]",
                "[{$project:{a:1}},{$match:{b:1}}]",
            ),
            (
                "[{$unset:'a.x'},{$sort:{c:1}},{$match:{b:1}},{$match:{a:1}}]",
                "[{$match:{b:1}},{$unset:'a.x'},{$match:{a:1}},{$sort:{c:1}}]",
            ),
            (
                "[{$addFields:{n:1}},{$match:{a:1,n:1}}]",
                "[{$match:{a:{$eq:1}}},{$addFields:{n:1}},{$match:{n:{$eq:1}}}]",
            ),
            (
                "[{$unwind:'$a.b'},{$match:{'a.c':1,'a.b.d':1,x:1}}]",
                "[{$match:{$and:[{'a.c':{$eq:1}},{x:{$eq:1}}]}},{$unwind:'$a.b'},{$match:{'a.b.d':{$eq:1}}}]",
            ),
            (
                "[{$unwind:'$a'},{$match:{$expr:{$lt:[{$rand:{}},'$b']}}}]",
                "[{$unwind:'$a'},{$match:{$expr:{$lt:[{$rand:{}},'$b']}}}]",
            ),
            ("[{$limit:5},{$match:{a:1}}]", "[{$limit:5},{$match:{a:1}}]"),
        ] {
            let p = Pipeline::parse(json_array(pipeline).as_doc(), &QueryContext::new()).unwrap();
            let got: muniment_value::ArrayBuf = p.sources.iter().collect();
            let text = |d: Doc<'_>| d.to_json(muniment_value::JsonMode::Relaxed);
            assert_eq!(
                text(got.as_doc()),
                text(json_array(want).as_doc()),
                "{pipeline}"
            );
        }
    }
}
