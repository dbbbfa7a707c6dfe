//! Pipelines: parsing, what the planner may take from the front, and opening.

use super::registry::{Input, Position, Within, find, place};
use super::sort::SortStream;
use super::watch::{Figures, Watched};
use super::{DocStream, MapStream, Stage, Ticker, Transform, count, geo_near, limit, match_, skip};
use crate::context::{QueryContext, Runtime};
use crate::filter::{Filter, Node};
use crate::meta::{Meta, MetaSet, Metadata};
use crate::needs::Needs;
use crate::projection::Projection;
use crate::sort::SortSpec;
use muniment_value::{Code, Doc, DocBuf, Elem, Error, Result, Value, ValueBuf, doc};
use std::collections::VecDeque;
use std::sync::Arc;

/// MongoDB's limit on the stages of a pipeline.
const MAX_STAGES: usize = 1000;

/// A parsed pipeline.
///
/// The planner takes what it can do itself from the front (`take_leading_…`), in the order in
/// which the stages stand, and opens the rest on top of its stream.
#[derive(Clone, Debug)]
pub struct Pipeline {
    stages: VecDeque<Stage>,
    /// Each stage as it was written, for explain; empty for what another stage became too.
    sources: VecDeque<DocBuf>,
    /// What any stage of the command's pipelines asks for.
    metadata: Metadata,
}

/// What a pipeline makes of a mere count: see [`Pipeline::count_only`].
#[derive(Clone, Debug)]
pub struct CountOnly {
    /// The constant `_id` of a `$group`.
    pub(crate) id: Option<ValueBuf>,
    /// The names of the fields that hold the count.
    pub(crate) fields: Vec<String>,
}

impl CountOnly {
    /// The result document for `n` documents: none for 0.
    pub fn result(&self, n: u64) -> Option<DocBuf> {
        if n == 0 {
            return None;
        }
        let n = muniment_value::number::narrow(i64::try_from(n).unwrap_or(i64::MAX));
        let mut d = DocBuf::new();
        d.append_some("_id", self.id.as_ref());
        for f in &self.fields {
            d.append(f, n);
        }
        Some(d)
    }
}

/// Appends the stages that `v` stands for.
fn parse_stage(v: Value<'_>, ctx: &QueryContext, parsed: &mut Vec<Stage>) -> Result<()> {
    let e = single(v)?;
    (find(e.name())?.parse)(e, ctx, parsed)?;
    if parsed.len() > MAX_STAGES {
        return Err(Error::location(
            7_749_501,
            format!("Pipeline length must be no longer than {MAX_STAGES} stages"),
        ));
    }
    Ok(())
}

/// An error when a stage stands where it may not.
///
/// # Errors
/// 40602 for a source of documents that is not first, 40601 for an end that is not last; those
/// of nested pipelines: 40600, 51047, 31441.
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

/// The one field of a stage's specification.
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
    /// Parses the stages of a command's pipeline, or those after the ones that the caller runs
    /// itself; see [`Pipeline::check`] for their places.
    ///
    /// # Errors
    /// 40324 "Unrecognized pipeline stage name: '$x'" and the stages' own.
    pub fn parse(stages: Doc<'_>, ctx: &QueryContext) -> Result<Pipeline> {
        let mut parsed = Vec::new();
        let mut sources = VecDeque::new();
        // The context of a stage after those that change which metadata there are.
        let mut behind: Option<QueryContext> = None;
        // What constants raise comes after all errors of parsing.
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
            // One inside another's stage says so once.
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
        if ctx.sub_pipelines == 0 {
            p.mark_first();
        }
        Ok(p)
    }

    /// Whether the stages of a whole pipeline stand where they may. Mistakes inside a stage are
    /// reported before its place.
    ///
    /// # Errors
    /// 40601 and 40602, and what parsing raises.
    pub fn check(stages: Doc<'_>, ctx: &QueryContext) -> Result<()> {
        let placed = check_places(stages, Within::Command);
        if placed.is_err() {
            Pipeline::parse(stages, ctx)?;
        }
        placed
    }

    /// Parses the pipeline inside a stage, which may be opened many times: see
    /// [`Pipeline::clone`].
    ///
    /// # Errors
    /// As [`Pipeline::parse`]; 232 beyond 20 levels; those of stages that stand where they may
    /// not.
    pub fn parse_nested(stages: Doc<'_>, outer: &QueryContext, within: Within) -> Result<Pipeline> {
        let mut ctx = outer.nested()?;
        if within == Within::Facet {
            ctx.in_facet = true;
            // Its documents come from outside.
            ctx.metadata.available = outer.metadata.available;
        }
        let parsed = Pipeline::parse(stages, &ctx);
        if let Err(e) = &parsed
            && e.code() != Code::CommandNotSupported
        {
            return parsed;
        }
        // A stage with an error of its own for a collection says that first.
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
            // Nor may a pipeline inside one of $facet's have what those may not.
            check_places(stages, Within::Facet)?;
        }
        parsed
    }

    /// Tells the first stage that the planner does not take that it is the first, and whether
    /// another follows it.
    fn mark_first(&mut self) {
        let planned = |s: &Stage| {
            matches!(
                s,
                Stage::Match(_) | Stage::Sort(_) | Stage::Skip(_) | Stage::Limit(_)
            )
        };
        let Some(at) = self.stages.iter().position(|s| !planned(s)) else {
            return;
        };
        let followed = at + 1 < self.stages.len();
        if let Some(Stage::Other(op)) = self.stages.get_mut(at)
            && let Some(op) = Arc::get_mut(op)
        {
            op.comes_first(followed);
        }
    }

    /// Moves every `$match`, or what of it can be, in front of the stages that it commutes with.
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

    /// Lets stages take in the ones after them.
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
                // Explain shows both.
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

    /// True when the first stage reads no collection.
    pub fn has_source(&self) -> bool {
        matches!(self.stages.front(), Some(Stage::Other(op)) if op.is_source())
    }

    /// Checks what opening the stages would, without their effects: for explain.
    ///
    /// # Errors
    /// As [`Pipeline::open`].
    pub fn check_targets(&self, rt: &Runtime) -> Result<()> {
        self.stages.iter().try_for_each(|s| match s {
            Stage::Other(op) => op.check(rt),
            _ => Ok(()),
        })
    }

    /// True when the last stage writes.
    pub fn writes(&self) -> bool {
        matches!(self.stages.back(), Some(Stage::Other(op)) if op.writes())
    }

    /// Takes the last stage away if it writes; returns it as it was written.
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

    /// Takes the `$match` stages at the front, as one filter.
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

    /// The `$sort` at the front: the planner looks whether an index gives that order before it
    /// takes the stage with [`Pipeline::take_leading_sort`].
    pub fn leading_sort(&self) -> Option<&SortSpec> {
        match self.stages.front() {
            Some(Stage::Sort(s)) => Some(s),
            _ => None,
        }
    }

    /// Takes the `$sort` at the front. Ask [`Pipeline::wanted`] afterwards for how many documents
    /// the rest can use.
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

    /// Takes the `$skip` at the front.
    pub fn take_leading_skip(&mut self) -> Option<u64> {
        let Some(Stage::Skip(n)) = self.stages.front() else {
            return None;
        };
        let n = *n;
        self.pop();
        Some(n)
    }

    /// Takes the `$limit` at the front.
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

    /// Takes the `$project` at the front.
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

    /// How many documents the pipeline can use of its input, where `$skip` and `$limit` at the
    /// front say so.
    pub fn wanted(&self) -> Option<u64> {
        let mut skipped = 0u64;
        let mut wanted: Option<u64> = None;
        for s in &self.stages {
            match s {
                Stage::Skip(n) => skipped = skipped.saturating_add(*n),
                Stage::Limit(n) => {
                    let n = n.saturating_add(skipped);
                    wanted = Some(wanted.map_or(n, |w| w.min(n)));
                }
                // One out for one in: what follows cannot change how many are asked for.
                Stage::Project(_) | Stage::Map(_) => {}
                _ => break,
            }
        }
        wanted
    }

    /// When what is left needs only the number of its input's documents: `$count`, or the
    /// `$group` that drivers' countDocuments sends.
    pub fn count_only(&self) -> Option<CountOnly> {
        if self.stages.len() != 1 {
            return None;
        }
        match self.stages.front() {
            Some(Stage::Count(name)) => Some(CountOnly {
                id: None,
                fields: vec![name.clone()],
            }),
            Some(Stage::Other(op)) => op.counts(),
            _ => None,
        }
    }

    /// The paths that the stages read of their input; `None`: whole documents.
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

    /// Puts the stages on top of `source`.
    ///
    /// # Errors
    /// What opening a stage raises.
    pub fn open(self, source: Box<dyn DocStream>, rt: &Runtime) -> Result<Box<dyn DocStream>> {
        self.open_each(source, rt, |_, top| top)
    }

    /// As [`Pipeline::open`], with the stages as they were written and what each is found to give.
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
                // What another stage became too: the last of them gives what that one gives.
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
        let keeps_key = self.metadata.asked().has(Meta::SortKey);
        loop {
            // Many documents of one: what is left out of it is left out of all.
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
                Stage::Sort(spec) => {
                    Box::new(SortStream::new(top, spec, self.wanted(), keeps_key, rt))
                }
                Stage::Limit(n) => Box::new(limit::LimitStream::new(top, n)),
                Stage::Skip(n) => Box::new(skip::SkipStream::new(top, n, rt)),
                Stage::Count(name) => Box::new(count::CountStream::new(top, name, rt)),
                Stage::Other(op) => op.open_for(top, rt, needs)?,
            };
            top = each(written, opened);
        }
    }
}

/// Checks that the first stage fits what the command names: a collection, or `1`.
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

/// What of a filter may run before a stage, and what may not.
fn divide(f: &Filter, before: &Stage) -> (Option<Filter>, Option<Filter>) {
    let changes = |path: &str| match before {
        Stage::Sort(_) | Stage::Match(_) => false,
        // `a.` may mean all of `a`.
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
    // After another $match it is as well placed as before it.
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

/// Whether a filter looks at metadata: it stays after the stage that gives them.
fn reads_metadata(f: &Filter) -> bool {
    let mut needs = Needs::default();
    needs.filter(f.root());
    needs.has_metadata()
}

/// A filter that asks for both.
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

/// Parses the stages of a pipeline update.
///
/// # Errors
/// Checks that an update's pipeline has only stages that may stand in it.
///
/// # Errors
/// 40324 for one that there is not, 72 InvalidOptions for another's, 40323 for what is no stage.
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
            // A stage that MongoDB has: none of those that are missing may stand in an update.
            Code::CommandNotSupported => refused(),
            _ => err,
        })?;
        if !spec.place.in_updates {
            return Err(refused());
        }
    }
    Ok(())
}

/// 72 InvalidOptions for a stage that an update may not have.
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
