//! wildcard: every path of a document, or of a part of it, in one index (`{"$**": 1}`).
//!
//! A key is the path, then the value: `{$_path: "a.b", a.b: 5}`. Positions in arrays are no part
//! of a path. What is indexed are leaves: values that are no documents, empty documents, the
//! elements of arrays, arrays directly within arrays as a whole, and undefined for an empty array.
//! A document of which nothing is indexed (its fields are excluded, or have dots in their names)
//! counts as empty, so that what is there has a key.
//!
//! In a compound index the other fields stand before and behind; they may not have arrays. There a
//! document without any leaf has one key with MinKey for path and value, so that the fields in
//! front find every document.
//!
//! Source of the rules: the manual's "Wildcard Indexes" and "Wildcard Index Restrictions".

use super::{IndexKind, KindSpec};
use crate::catalog::IndexSpec;
use muniment_query::filter::Pred;
use muniment_query::{Projection, QueryContext};
use muniment_value::path::Path;
use muniment_value::{Code, Doc, Error, IndexKeys, Result, Value, ValueBuf};
use std::sync::Arc;

/// The option that says which paths.
const PROJECTION: &str = "wildcardProjection";

/// The name of a key's path in what is shown of it.
const PATH: &str = "$_path";

/// The specification.
pub(super) const SPEC: KindSpec = KindSpec {
    name: "wildcard",
    doc: "Every path of a document.",
    options: &[PROJECTION],
    prepare,
    open,
};

/// True for the field of a key pattern that stands for all paths, or all below one.
pub fn is_wildcard(field: &str) -> bool {
    field == "$**" || field.ends_with(".$**")
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(Code::CannotCreateIndex, message)
}

/// Refuses a string as the value of a field that this kind alone may have, or of one it has not.
///
/// # Errors
/// 67 CannotCreateIndex, 7246202.
pub(super) fn check_plugin(field: &str, plugin: &str) -> Result<()> {
    match (is_wildcard(field), plugin == SPEC.name) {
        (true, _) if plugin != "text" => Err(refused(format!(
            "A wildcard index cannot have the type '{plugin}': {field}"
        ))),
        (false, true) => Err(Error::location(
            7_246_202,
            format!("The index type 'wildcard' is not one to ask for by name: {field}"),
        )),
        _ => Ok(()),
    }
}

/// Refuses `wildcardProjection` on an index that is none.
///
/// # Errors
/// 2 BadValue.
pub(super) fn refuse_projection(spec: &IndexSpec) -> Result<()> {
    match spec.options.as_doc().get(PROJECTION) {
        Some(_) => Err(Error::bad_value(format!(
            "The field '{PROJECTION}' is only allowed in an 'wildcard' index"
        ))),
        None => Ok(()),
    }
}

fn prepare(spec: &mut IndexSpec) -> Result<()> {
    for (given, option) in [
        (spec.unique, "unique"),
        (spec.prepare_unique, "prepareUnique"),
        (spec.sparse, "sparse"),
        (spec.expire_after_seconds.is_some(), "expireAfterSeconds"),
    ] {
        if given {
            return Err(refused(format!(
                "Index type 'wildcard' does not support the {option} option"
            )));
        }
    }
    let key = spec.key.as_doc();
    if key.iter().filter(|e| is_wildcard(e.name())).count() > 1 {
        return Err(Error::location(
            7_246_201,
            "A compound wildcard index can only have one wildcard field",
        ));
    }
    let whole = key.get("$**").is_some();
    let projection = match spec.options.as_doc().get(PROJECTION) {
        None => None,
        Some(Value::Document(d)) => Some(d),
        Some(v) => {
            return Err(Error::type_mismatch(format!(
                "The field '{PROJECTION}' must be a non-empty object, but got {}",
                v.type_name()
            )));
        }
    };
    if let Some(p) = projection {
        check_projection(p, whole)?;
    } else if whole && key.count() > 1 {
        return Err(refused(
            "A compound wildcard index on all fields needs a 'wildcardProjection' that leaves \
             its other fields out",
        ));
    }
    let paths = Wildcard::of(spec)?;
    for (path, _) in &paths.others {
        if paths.tree.overlaps(path.parts(), paths.includes) {
            let code = match projection {
                None => 7_246_204,
                Some(_) if paths.includes => 7_246_208,
                Some(_) => 7_246_209,
            };
            return Err(Error::location(
                code,
                format!(
                    "The wildcard field of a compound index must leave its other fields out, but \
                     has '{}'",
                    path.as_str()
                ),
            ));
        }
    }
    Ok(())
}

fn check_projection(projection: Doc<'_>, whole: bool) -> Result<()> {
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
    // Paths that collide come before what contradicts itself.
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

fn open(spec: &IndexSpec) -> Result<Arc<dyn IndexKind>> {
    Ok(Arc::new(Wildcard::of(spec)?))
}

/// Named paths as a tree.
#[derive(Clone, Debug, Default)]
struct Tree {
    /// The name of the last part.
    name: String,
    /// True where a path ends.
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

    /// True if something of `parts`, at it, above or below, is indexed.
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

/// What happens to the part of a document that is being looked at.
#[derive(Clone, Copy)]
enum Part<'t> {
    /// All of it is indexed.
    All,
    /// Named paths lead through it.
    Some(&'t Tree),
}

/// Which paths a wildcard index has.
#[derive(Debug)]
pub struct Wildcard {
    descending: bool,
    /// True when the named paths are what is indexed, false when they are what is left out.
    includes: bool,
    tree: Tree,
    /// The other fields of a compound index, with true for descending.
    others: Vec<(Path, bool)>,
    /// How many of them stand in front.
    position: usize,
}

impl Wildcard {
    fn of(spec: &IndexSpec) -> Result<Wildcard> {
        let mut out = Wildcard {
            descending: false,
            includes: false,
            tree: Tree::default(),
            others: Vec::new(),
            position: 0,
        };
        for e in spec.key.as_doc() {
            let descending = crate::index::descending(e.value());
            if !is_wildcard(e.name()) {
                out.others.push((Path::new(e.name()), descending));
                continue;
            }
            out.descending = descending;
            out.position = out.others.len();
            if let Some(below) = e.name().strip_suffix(".$**") {
                out.includes = true;
                out.tree.add(&below.split('.').collect::<Vec<_>>());
            }
        }
        let projection = spec.options.as_doc().get_doc(PROJECTION);
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
        // `_id` is left out unless it is asked for.
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

    /// True if what stands at `path` is in the index, as far as there are keys for it.
    pub fn covers(&self, path: &Path) -> bool {
        self.tree.holds(path.parts()) == self.includes
    }

    /// Which field of the pattern it is.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The fields of the keys as the planner reads them for one path: the others, the key's path
    /// and the value.
    pub fn fields(&self, path: &Path) -> Vec<(Path, bool)> {
        let mut fields = self.others.clone();
        let own = [(Path::new(PATH), false), (path.clone(), self.descending)];
        fields.splice(self.position..self.position, own);
        fields
    }

    /// True when a change of what `touched` says may change keys.
    pub(crate) fn reads(&self, touched: &dyn Fn(&str) -> bool) -> bool {
        let mut any = !self.includes || self.others.iter().any(|(p, _)| touched(p.as_str()));
        self.tree.each("", &mut |path| any |= touched(path));
        any
    }

    fn enter<'t>(&'t self, part: Part<'t>, name: &str) -> Option<Part<'t>> {
        let Part::Some(tree) = part else {
            return Some(part);
        };
        match tree.child(name) {
            Some(t) if t.ends => self.includes.then_some(Part::All),
            Some(t) => Some(Part::Some(t)),
            None => (!self.includes).then_some(Part::All),
        }
    }

    /// The value of another field.
    ///
    /// # Errors
    /// 7246301 for an array.
    fn other<'a>(doc: Doc<'a>, path: &Path) -> Result<Value<'a>> {
        let mut at = Value::Document(doc);
        for part in path.parts() {
            let below = at.as_doc().and_then(|d| d.get(part));
            match below {
                Some(Value::Array(_)) => {
                    return Err(Error::location(
                        7_246_301,
                        format!(
                            "The other fields of a compound wildcard index cannot be arrays, but \
                             '{}' has one",
                            path.as_str()
                        ),
                    ));
                }
                Some(v) => at = v,
                None => return Ok(Value::Null),
            }
        }
        Ok(at)
    }
}

/// The switches of a projection by their full path.
fn switches(d: Doc<'_>, prefix: &str, depth: usize, out: &mut Vec<(String, bool)>) -> Result<()> {
    if depth > muniment_value::MAX_DEPTH {
        return Err(Error::failed_to_parse("the projection is too deep"));
    }
    // What begins with `$` is an expression, which is refused elsewhere.
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

/// The walk over one document.
struct Walk<'a, 'o> {
    index: &'a Wildcard,
    others: &'a [Value<'a>],
    path: String,
    /// Documents that were entered.
    depth: usize,
    out: &'o mut IndexKeys,
}

impl<'a> Walk<'a, '_> {
    fn key(&mut self, path: Value<'_>, value: Value<'_>) {
        let (before, behind) = self
            .others
            .split_at(self.index.position.min(self.others.len()));
        let mut directions = self.index.others.iter().map(|(_, d)| *d);
        for v in before {
            self.out.push(*v, directions.next().unwrap_or(false));
        }
        self.out.push(path, false);
        self.out.push(value, self.index.descending);
        for v in behind {
            self.out.push(*v, directions.next().unwrap_or(false));
        }
        self.out.end_key();
    }

    fn leaf(&mut self, value: Value<'_>) {
        let path = std::mem::take(&mut self.path);
        self.key(Value::String(&path), value);
        self.path = path;
    }

    /// The fields of a document. The nesting is that of the document, which has a limit.
    fn document(&mut self, doc: Doc<'a>, part: Part<'a>) {
        for e in doc {
            // A name with a dot is no path that a query could have.
            if e.name().contains('.') {
                continue;
            }
            let Some(part) = self.index.enter(part, e.name()) else {
                continue;
            };
            let before = self.path.len();
            if self.depth > 0 {
                self.path.push('.');
            }
            self.path.push_str(e.name());
            self.depth += 1;
            match e.value() {
                Value::Array(a) => self.array(a, part),
                v => self.value(v, part),
            }
            self.depth -= 1;
            self.path.truncate(before);
        }
    }

    fn value(&mut self, value: Value<'a>, part: Part<'a>) {
        if let Value::Document(d) = value {
            let before = self.out.len();
            self.document(d, part);
            if self.out.len() > before {
                return;
            }
        }
        // What a named path only leads through is none of the index's.
        if self.index.includes && matches!(part, Part::Some(_)) {
            return;
        }
        match value {
            Value::Document(_) => self.leaf(Value::Document(Doc::EMPTY)),
            v => self.leaf(v),
        }
    }

    fn array(&mut self, array: Doc<'a>, part: Part<'a>) {
        self.out.mark_array(&self.path);
        if array.first().is_none() {
            return self.value(Value::Undefined, part);
        }
        for v in array.values() {
            self.value(v, part);
        }
    }
}

impl IndexKind for Wildcard {
    fn name(&self) -> &'static str {
        SPEC.name
    }

    fn keys(&self, doc: Doc<'_>, out: &mut IndexKeys) -> Result<()> {
        out.begin(self.others.len() + 2);
        let mut others = Vec::with_capacity(self.others.len());
        for (path, _) in &self.others {
            others.push(Wildcard::other(doc, path)?);
        }
        let mut walk = Walk {
            index: self,
            others: &others,
            path: String::new(),
            depth: 0,
            out,
        };
        walk.document(doc, Part::Some(&self.tree));
        if !others.is_empty() && walk.out.is_empty() {
            walk.key(Value::MinKey, Value::MinKey);
        }
        out.finish();
        Ok(())
    }

    fn transforms(&self, _: usize) -> bool {
        false
    }

    fn bounds(&self, _: usize, _: &Pred) -> Option<Vec<(ValueBuf, ValueBuf)>> {
        None
    }

    fn columns(&self) -> Option<Vec<(Path, bool)>> {
        Some(self.fields(&Path::new("$**")))
    }

    fn wildcard(&self) -> Option<&Wildcard> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{DocBuf, keyenc};

    fn spec(json: &str) -> Result<IndexSpec> {
        IndexSpec::parse(DocBuf::from_json(&format!(r#"{{"name": "w", {json}}}"#))?.as_doc())
    }

    /// The keys of a document, and the paths of its arrays.
    fn keys(index: &str, json: &str) -> Result<(Vec<String>, Vec<String>)> {
        let kind = open(&spec(index)?)?;
        let mut out = IndexKeys::new();
        kind.keys(DocBuf::from_json(json)?.as_doc(), &mut out)?;
        let columns = kind.columns().unwrap();
        let mut shown = Vec::new();
        for (mut key, mut bits) in out.iter() {
            let mut values = Vec::new();
            for (_, descending) in &columns {
                let (v, rest) = keyenc::decode(key, *descending, &mut bits)?;
                values.push(v.as_value().to_display());
                key = rest;
            }
            shown.push(values.join("|").replace('"', ""));
        }
        Ok((shown, out.arrays().to_vec()))
    }

    #[test]
    fn leaves_become_keys() {
        let all = r#""key": {"$**": 1}"#;
        for (index, json, want, arrays) in [
            (
                all,
                r#"{"_id": 1, "a": 5, "b": {"c": "x"}}"#,
                &["a|5", "b.c|x"][..],
                &[][..],
            ),
            (
                all,
                r#"{"a": {}, "b": [], "c": null}"#,
                &["a|{}", "b|undefined", "c|null"],
                &["b"],
            ),
            (
                all,
                r#"{"a": [1, {"b": 2, "c": [3]}, [4], {}, []]}"#,
                &["a|1", "a|{}", "a|[]", "a|[ 4 ]", "a.b|2", "a.c|3"],
                &["a", "a.c"],
            ),
            (
                all,
                r#"{"a": {"x.y": 1}, "b": {"_id": 7}}"#,
                &["a|{}", "b._id|7"],
                &[],
            ),
            (all, r#"{"": {"x": 1}, "x": 2}"#, &[".x|1", "x|2"], &[]),
            (
                r#""key": {"$**": -1}"#,
                r#"{"a": [1, 2]}"#,
                &["a|2", "a|1"],
                &["a"],
            ),
            (
                r#""key": {"a.b.$**": 1}"#,
                r#"{"a": [{"b": {"c": 1}}, {"b": 2, "d": 3}, 9], "b": 1}"#,
                &["a.b|2", "a.b.c|1"],
                &["a"],
            ),
            (
                r#""key": {"_id.$**": 1}"#,
                r#"{"_id": {"a": 1}, "b": 2}"#,
                &["_id.a|1"],
                &[],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a": 1, "b.c": 1}"#,
                r#"{"_id": 1, "a": {"x": 1}, "b": {"c": 2, "d": 3}, "e": 4}"#,
                &["a.x|1", "b.c|2"],
                &[],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a": {"b": 1}}"#,
                r#"{"a": [[], 5]}"#,
                &[],
                &["a"],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a": 0, "b.c": 0}"#,
                r#"{"_id": 1, "a": {"x": 1}, "b": {"c": 2}, "e": 4}"#,
                &["b|{}", "e|4"],
                &[],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"_id": 1, "a": 0}"#,
                r#"{"_id": 1, "a": 2, "b": 3}"#,
                &["_id|1", "b|3"],
                &[],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"_id": 1}"#,
                r#"{"_id": 1, "a": 2}"#,
                &["_id|1"],
                &[],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"_id": 0}"#,
                r#"{"_id": 1, "a": 2}"#,
                &["a|2"],
                &[],
            ),
            (
                r#""key": {"t": 1, "a.$**": 1, "z": -1}"#,
                r#"{"t": 3, "a": {"x": 1, "y": 2}, "z": 4}"#,
                &["3|a.x|1|4", "3|a.y|2|4"],
                &[],
            ),
            (
                r#""key": {"t": 1, "a.$**": 1}"#,
                r#"{"t": 3}"#,
                &["3|MinKey|MinKey"],
                &[],
            ),
        ] {
            let (got, at) = keys(index, json).unwrap();
            let want: Vec<String> = want.iter().map(|s| s.to_string()).collect();
            assert_eq!(
                (got, at.as_slice()),
                (
                    want,
                    arrays
                        .iter()
                        .map(|s| s.to_string())
                        .collect::<Vec<_>>()
                        .as_slice()
                ),
                "{index} {json}"
            );
        }
        let e = keys(r#""key": {"t.u": 1, "a.$**": 1}"#, r#"{"t": [{"u": 1}]}"#).unwrap_err();
        assert_eq!(e.code(), Code(7_246_301));
    }

    #[test]
    fn paths_are_covered_or_not() {
        for (index, covered, not) in [
            (
                r#""key": {"$**": 1}"#,
                &["a", "a.b", "a._id"][..],
                &["_id", "_id.a"][..],
            ),
            (
                r#""key": {"a.b.$**": 1}"#,
                &["a.b", "a.b.c"],
                &["a", "a.c", "b"],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a": 0, "b.c": 0}"#,
                &["b", "b.d", "e"],
                &["a", "a.x", "b.c", "b.c.d"],
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a.b": 1}"#,
                &["a.b", "a.b.c"],
                &["a", "e", "_id"],
            ),
        ] {
            let w = Wildcard::of(&spec(index).unwrap()).unwrap();
            for p in covered {
                assert!(w.covers(&Path::new(p)), "{index} {p}");
            }
            for p in not {
                assert!(!w.covers(&Path::new(p)), "{index} {p}");
            }
        }
    }

    #[test]
    fn specifications_are_checked() {
        for (index, code) in [
            (r#""key": {"$**": 1}, "unique": true"#, 67),
            (r#""key": {"$**": 1}, "sparse": true"#, 67),
            (r#""key": {"$**": 1}, "expireAfterSeconds": 5"#, 67),
            (r#""key": {"$**": 1}, "v": 1"#, 67),
            (r#""key": {"$**": 0}"#, 67),
            (r#""key": {"$**": "hashed"}"#, 67),
            (r#""key": {"$**": "wildcard"}"#, 67),
            (r#""key": {"a": "wildcard"}"#, 7_246_202),
            (r#""key": {"a.$**.b": 1}"#, 67),
            (r#""key": {"$**.$**": 1}"#, 67),
            (r#""key": {"a": 1, "$**": 1}"#, 67),
            (r#""key": {"a": "hashed", "b.$**": 1}"#, 67),
            (r#""key": {"a.$**": 1, "b.$**": 1}"#, 7_246_201),
            (r#""key": {"a.b": 1, "a.$**": 1}"#, 7_246_204),
            (
                r#""key": {"a": 1, "$**": 1}, "wildcardProjection": {"a.b": 1}"#,
                7_246_208,
            ),
            (
                r#""key": {"a": 1, "$**": 1}, "wildcardProjection": {"b": 0}"#,
                7_246_209,
            ),
            (r#""key": {"$**": 1}, "wildcardProjection": {}"#, 9),
            (r#""key": {"$**": 1}, "wildcardProjection": 5"#, 14),
            (r#""key": {"a.$**": 1}, "wildcardProjection": {"b": 1}"#, 9),
            (r#""key": {"a": 1}, "wildcardProjection": {"b": 1}"#, 2),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a": 1, "b": 0}"#,
                31_254,
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a": 1, "a.b": 0}"#,
                31_249,
            ),
            (
                r#""key": {"$**": 1}, "wildcardProjection": {"a": "x"}"#,
                51_271,
            ),
        ] {
            assert_eq!(spec(index).unwrap_err().code(), Code(code), "{index}");
        }
        let shown = spec(r#""key": {"a": 1, "$**": -1}, "wildcardProjection": {"a": 0}"#).unwrap();
        let want = r#"{"v":2,"key":{"a":1,"$**":-1},"name":"w","wildcardProjection":{"a":0}}"#;
        assert_eq!(
            shown
                .document
                .as_doc()
                .to_json(muniment_value::JsonMode::Relaxed),
            want
        );
    }
}
