//! Projections of find, and what `$project`, `$addFields` and `$unset` share with them.
//!
//! A projection is parsed into a tree of fields and applied in one pass over the raw document:
//! elements that are kept are copied in runs. Inclusion keeps the document's field order; computed
//! fields follow in the order of the specification.

mod apply;
mod parse;
#[cfg(test)]
mod tests;

use crate::context::{MatchInfo, QueryContext};
use crate::expr::Expr;
use crate::filter::Filter;
use crate::needs::Needs;
use muniment_value::{Doc, Result, Value};

pub(crate) use parse::Dialect;

/// A parsed projection.
#[derive(Clone, Debug)]
pub struct Projection {
    root: Fields,
    mode: Mode,
    positional: bool,
}

/// What happens to fields that the projection does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They go.
    Inclusion,
    /// They stay.
    Exclusion,
    /// They stay, and the named ones are computed (`$addFields`).
    Addition,
}

/// The named fields of one level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    fields: Vec<Field>,
    /// True if a field here or below is computed.
    computes: bool,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    action: Action,
}

/// What happens to a named field.
#[derive(Clone, Debug)]
enum Action {
    Include,
    Exclude,
    /// `$slice` of find: skip (negative counts from the end) and how many.
    Slice {
        skip: i64,
        limit: i64,
    },
    /// `a.$`: of the first array on the way, the element that the filter matched.
    Positional,
    /// `$elemMatch`: the first element that matches, in an array; tested as the field `e`.
    ElemMatch(Box<Filter>),
    Compute(Box<Expr>),
    Below(Fields),
}

impl Fields {
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.fields.iter().position(|f| f.name.as_bytes() == name)
    }
}

impl Projection {
    /// Parses find's `projection`; `filter` is the command's (the positional `$` must name an
    /// array that it mentions).
    ///
    /// # Errors
    /// MongoDB's codes, e.g. 31254 "Cannot do exclusion on field a in inclusion projection".
    pub fn parse(doc: Doc<'_>, filter: Option<&Filter>, ctx: &QueryContext) -> Result<Projection> {
        parse::parse(doc, Dialect::Find(filter), ctx)
    }

    /// Parses the `$project` stage's specification, in which `$slice` and `$elemMatch` are
    /// expressions and the positional `$` is unknown.
    ///
    /// # Errors
    /// As [`Projection::parse`].
    pub fn parse_stage(doc: Doc<'_>, ctx: &QueryContext) -> Result<Projection> {
        parse::parse(doc, Dialect::Stage, ctx)
    }

    /// Parses the `$addFields` stage's specification: every field is computed.
    ///
    /// # Errors
    /// As [`Projection::parse`].
    pub fn parse_add_fields(doc: Doc<'_>, ctx: &QueryContext) -> Result<Projection> {
        parse::parse(doc, Dialect::AddFields, ctx)
    }

    /// A projection that removes these paths (the `$unset` stage).
    ///
    /// # Errors
    /// 31250 and 31249 for paths that collide, and those of illegal paths.
    pub fn excluding<'p>(paths: impl Iterator<Item = &'p str>) -> Result<Projection> {
        parse::excluding(paths)
    }

    /// Appends the projected document to `out`.
    ///
    /// # Errors
    /// What expressions raise; 51246 when `$` has no matched element.
    pub fn apply(&self, doc: Doc<'_>, info: MatchInfo, out: &mut Vec<u8>) -> Result<()> {
        crate::expr::arena::with_arena(|arena| apply::apply(self, doc, info, arena, out))
    }

    /// True when `apply` needs a [`MatchInfo`] from [`Filter::matches_info`].
    pub fn needs_match_info(&self) -> bool {
        self.positional
    }

    /// Adds the fields that the projection reads. True: what it does not name does not reach its
    /// result, so nothing else is needed.
    pub fn needs(&self, needs: &mut Needs) -> bool {
        if self.positional {
            needs.whole();
        }
        let closed = self.mode == Mode::Inclusion;
        needed(&self.root, "", !closed, needs);
        closed
    }

    /// True when some field is computed.
    pub fn computes(&self) -> bool {
        self.root.computes
    }

    /// For covered queries: the dotted paths (with `_id` if it is included) when the projection
    /// is a plain inclusion that needs nothing else.
    pub fn included_paths(&self) -> Option<Vec<String>> {
        if self.mode != Mode::Inclusion {
            return None;
        }
        let mut paths = Vec::new();
        included(&self.root, "", &mut paths)?;
        Some(paths)
    }

    /// True when a value at or below `path` may come out different: for what runs before and
    /// after a stage.
    pub fn may_touch(&self, path: &str) -> bool {
        match self.mode {
            Mode::Inclusion => !self
                .included_paths()
                .is_some_and(|p| p.iter().any(|p| p == path)),
            _ => touches(&self.root, &path.split('.').collect::<Vec<_>>()),
        }
    }
}

/// Adds what the fields of one level read.
fn needed(level: &Fields, prefix: &str, keeps: bool, needs: &mut Needs) {
    for f in &level.fields {
        let path = if prefix.is_empty() {
            f.name.clone()
        } else {
            format!("{prefix}.{}", f.name)
        };
        match &f.action {
            Action::Exclude => {}
            Action::Include | Action::Slice { .. } | Action::Positional | Action::ElemMatch(_) => {
                needs.path(&path);
            }
            Action::Compute(e) => {
                // What is there decides whether a nested field is put into elements of an array.
                if !keeps && !prefix.is_empty() {
                    needs.path(prefix);
                }
                needs.expr(e);
            }
            Action::Below(below) => needed(below, &path, keeps, needs),
        }
    }
}

fn included(level: &Fields, prefix: &str, paths: &mut Vec<String>) -> Option<()> {
    for f in &level.fields {
        let path = if prefix.is_empty() {
            f.name.clone()
        } else {
            format!("{prefix}.{}", f.name)
        };
        match &f.action {
            Action::Include => paths.push(path),
            // `_id: 0` beside inclusions.
            Action::Exclude => {}
            Action::Below(below) => included(below, &path, paths)?,
            _ => return None,
        }
    }
    Some(())
}

/// Whether the path meets a named field; an array index in it may mean anything.
fn touches(level: &Fields, parts: &[&str]) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return true;
    };
    if crate::bytes::array_index(part).is_some() {
        return true;
    }
    level
        .fields
        .iter()
        .filter(|f| f.name == *part)
        .any(|f| match &f.action {
            Action::Below(below) => touches(below, rest),
            Action::Include => false,
            _ => true,
        })
}

/// A number or boolean, which includes or excludes.
fn switch(v: Value<'_>) -> Option<bool> {
    match v {
        Value::Bool(b) => Some(b),
        v if v.is_number() => Some(v.truthy()),
        _ => None,
    }
}
