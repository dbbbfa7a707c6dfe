//! The paths that a wildcard index has: all, those below one, or those that `wildcardProjection` leaves.

use muniment_query::{Projection, QueryContext};
use muniment_value::path::Path;
use muniment_value::{Doc, Error, Result, Value};

/// The option that chooses the paths.
pub(in crate::kinds) const PROJECTION: &str = "wildcardProjection";

/// Named paths as a tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// The name of the last part.
    name: String,
    /// True if a named path ends here.
    ends: bool,
    below: Vec<Tree>,
}

impl Tree {
    fn add(&mut self, parts: &[&str]) {
        let Some((part, rest)) = parts.split_first() else {
            self.ends = true;
            return;
        };
        let at = match self.below.iter().position(|t| t.name == *part) {
            Some(at) => at,
            None => {
                self.below.push(Tree {
                    name: (*part).to_string(),
                    ..Tree::default()
                });
                self.below.len() - 1
            }
        };
        if let Some(t) = self.below.get_mut(at) {
            t.add(rest);
        }
    }

    fn child(&self, name: &str) -> Option<&Tree> {
        self.below.iter().find(|t| t.name == name)
    }

    /// True if a named path is a prefix of `parts`.
    fn holds(&self, parts: &[String]) -> bool {
        let mut at = self;
        for part in parts {
            match at.child(part) {
                Some(t) if t.ends => return true,
                Some(t) => at = t,
                None => return false,
            }
        }
        false
    }

    /// True if something at `parts`, above or below is indexed.
    fn overlaps(&self, parts: &[String], includes: bool) -> bool {
        if !includes {
            return !self.holds(parts);
        }
        let mut at = self;
        for part in parts {
            match at.child(part) {
                Some(t) if t.ends => return true,
                Some(t) => at = t,
                None => return false,
            }
        }
        true
    }

    /// The named paths.
    fn each(&self, prefix: &str, f: &mut dyn FnMut(&str)) {
        for t in &self.below {
            let path = match prefix {
                "" => t.name.clone(),
                p => format!("{p}.{}", t.name),
            };
            if t.ends {
                f(&path);
            }
            t.each(&path, f);
        }
    }
}

/// How much of a part of a document is indexed.
#[derive(Clone, Copy)]
pub(super) enum Part<'t> {
    /// All of it is indexed.
    All,
    /// Paths of this tree lead through it.
    Some(&'t Tree),
}

/// The paths of an index.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// True when the named paths are indexed, false when they are left out.
    pub includes: bool,
    tree: Tree,
}

impl Scope {
    /// Everything except `_id`, or everything below one path, or what a projection leaves.
    ///
    /// # Errors
    /// 9 FailedToParse: the projection is too deep.
    pub fn of(below: Option<&str>, projection: Option<Doc<'_>>) -> Result<Scope> {
        let mut out = Scope {
            includes: below.is_some(),
            tree: Tree::default(),
        };
        if let Some(path) = below {
            out.tree.add(&path.split('.').collect::<Vec<_>>());
        }
        let mut named = Vec::new();
        switches(projection.unwrap_or(Doc::EMPTY), "", 0, &mut named)?;
        let id = named.iter().find(|(p, _)| p == "_id").map(|(_, on)| *on);
        let others: Vec<&(String, bool)> = named.iter().filter(|(p, _)| p != "_id").collect();
        if projection.is_some() {
            out.includes = others.first().map_or(id == Some(true), |(_, on)| *on);
        }
        for (path, _) in &others {
            out.tree.add(&path.split('.').collect::<Vec<_>>());
        }
        // `_id` is left out unless the projection names it.
        let id_below = others.iter().any(|(p, _)| p.starts_with("_id."));
        let names_id = match out.includes {
            true => id == Some(true),
            false => id != Some(true) && !id_below,
        };
        if names_id {
            out.tree.add(&["_id"]);
        }
        Ok(out)
    }

    /// True if values at `path` are in the index, as far as they have keys.
    pub fn covers(&self, path: &Path) -> bool {
        self.tree.holds(path.parts()) == self.includes
    }

    /// True if something at `path`, above or below it, is indexed.
    pub fn overlaps(&self, path: &Path) -> bool {
        self.tree.overlaps(path.parts(), self.includes)
    }

    /// True when a change of the paths for which `touched` is true may change keys.
    pub fn reads(&self, touched: &dyn Fn(&str) -> bool) -> bool {
        let mut any = !self.includes;
        self.tree.each("", &mut |path| any |= touched(path));
        any
    }

    /// The whole document.
    pub fn root(&self) -> Part<'_> {
        Part::Some(&self.tree)
    }

    /// The field `name` of a part; `None` when nothing of it is indexed.
    pub fn enter<'t>(&'t self, part: Part<'t>, name: &str) -> Option<Part<'t>> {
        let Part::Some(tree) = part else {
            return Some(part);
        };
        match tree.child(name) {
            Some(t) if t.ends => self.includes.then_some(Part::All),
            Some(t) => Some(Part::Some(t)),
            None => (!self.includes).then_some(Part::All),
        }
    }
}

/// Checks a `wildcardProjection`; `whole`: the wildcard field is `$**`.
///
/// # Errors
/// 9 FailedToParse, 51271, and the errors of a malformed projection (31249, 31254, …).
pub(super) fn check_projection(projection: Doc<'_>, whole: bool) -> Result<()> {
    if !whole {
        return Err(Error::failed_to_parse(format!(
            "The field '{PROJECTION}' is only allowed when the wildcard field is '$**'"
        )));
    }
    if projection.is_empty() {
        return Err(Error::failed_to_parse(format!(
            "The '{PROJECTION}' field can't be an empty object"
        )));
    }
    let mut named = Vec::new();
    switches(projection, "", 0, &mut named)?;
    // Paths that collide are reported before inclusions that contradict exclusions.
    Projection::excluding(named.iter().map(|(p, _)| p.as_str()))?;
    if Projection::parse_stage(projection, &QueryContext::new())?.computes() {
        return Err(Error::location(
            51_271,
            format!(
                "Bad projection specification, cannot use computed fields in '{PROJECTION}': {}",
                projection.to_display()
            ),
        ));
    }
    Ok(())
}

/// The inclusions and exclusions of a projection, by their full paths.
fn switches(d: Doc<'_>, prefix: &str, depth: usize, out: &mut Vec<(String, bool)>) -> Result<()> {
    if depth > muniment_value::MAX_DEPTH {
        return Err(Error::failed_to_parse("the projection is too deep"));
    }
    // A field that begins with `$` is an expression, which is refused elsewhere.
    for e in d.iter().filter(|e| !e.name().starts_with('$')) {
        let path = match prefix {
            "" => e.name().to_string(),
            p => format!("{p}.{}", e.name()),
        };
        match e.value() {
            Value::Document(below) => switches(below, &path, depth + 1, out)?,
            v => out.push((path, v.truthy())),
        }
    }
    Ok(())
}
