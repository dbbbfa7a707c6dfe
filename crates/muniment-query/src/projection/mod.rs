//! The projections of find, and the code that `$project`, `$addFields` and `$unset` share with them.
//!
//! A projection is parsed into a tree of fields and applied in one pass over the raw document. Elements that
//! are kept are copied in runs. An inclusion keeps the document's field order; computed fields follow in the
//! order of the specification.

mod apply;
mod parse;
#[cfg(test)]
mod tests;

use crate::context::{MatchInfo, QueryContext};
use crate::expr::Expr;
use crate::expr::arena::with_arena;
use crate::filter::Filter;
use crate::needs::Needs;
use crate::running::Work;
use muniment_value::{Doc, Result, Value};

pub(crate) use parse::Dialect;

/// A parsed projection.
#[derive(Clone, Debug)]
pub struct Projection {
    root: Fields,
    mode: Mode,
    positional: bool,
}

/// The treatment of fields that the projection does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are removed.
    Inclusion,
    /// They are kept.
    Exclusion,
    /// They are kept, and the named ones are computed (`$addFields`).
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

/// The treatment of a named field.
#[derive(Clone, Debug)]
enum Action {
    Include,
    Exclude,
    /// `$slice` of find: the number of elements to skip (a negative one counts from the end), and the number
    /// of elements to keep.
    Slice {
        skip: i64,
        limit: i64,
    },
    /// `a.$`: keeps only the element that the filter matched, of the first array on the path.
    Positional,
    /// `$elemMatch`: keeps only the first element that matches, in an array. The element is tested as the
    /// field `e`.
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
    /// Parses find's `projection`. `filter` is that of the command, because the positional `$` must name an
    /// array that it mentions.
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
    /// Those of the expressions; 51246 if `$` has no matched element.
    pub fn apply(
        &self,
        doc: Doc<'_>,
        info: MatchInfo,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<()> {
        with_arena(work, |arena| apply::apply(self, doc, info, arena, out))
    }

    /// True when `apply` needs a [`MatchInfo`] from [`Filter::matches_info`].
    pub fn needs_match_info(&self) -> bool {
        self.positional
    }

    /// Adds the fields that the projection reads. If the result is true, fields that it does not name do not
    /// reach its result, so nothing else is needed.
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

    /// For covered queries: the dotted paths (with `_id` if it is included) if the projection is a plain
    /// inclusion that needs nothing else.
    pub fn included_paths(&self) -> Option<Vec<String>> {
        if self.mode != Mode::Inclusion {
            return None;
        }
        let mut paths = Vec::new();
        included(&self.root, "", &mut paths)?;
        Some(paths)
    }

    /// True if a value at or below `path` may be different in the result. This decides whether stages may
    /// change their order.
    pub fn may_touch(&self, path: &str) -> bool {
        match self.mode {
            Mode::Inclusion => !self
                .included_paths()
                .is_some_and(|p| p.iter().any(|p| p == path)),
            _ => touches(&self.root, &path.split('.').collect::<Vec<_>>()),
        }
    }
}

/// Adds the fields that one level reads.
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
                // If the path leads to an array, its contents determine whether a nested field is put into
                // its elements.
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
            // This is `_id: 0` in an inclusion.
            Action::Exclude => {}
            Action::Below(below) => included(below, &path, paths)?,
            _ => return None,
        }
    }
    Some(())
}

/// Whether the path meets a named field. An array index in the path may stand for any of them.
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

/// The value as a switch, if it is a number or boolean: true to include, false to exclude.
fn switch(v: Value<'_>) -> Option<bool> {
    match v {
        Value::Bool(b) => Some(b),
        v if v.is_number() => Some(v.truthy()),
        _ => None,
    }
}
