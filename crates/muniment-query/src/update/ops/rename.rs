//! `$rename`: moves a field.
//!
//! The operator makes two leaves: one removes the source, and the other sets the destination from the
//! document as it was before the update. (Nothing else can have changed the source, because that would be a
//! conflict.)

use super::put_if_new;
use crate::bytes::{show, show_id};
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::path::Path;
use muniment_value::{Doc, Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$rename",
    doc: "Moves a field to another path.",
    parse,
};

#[derive(Debug)]
struct From {
    source: Arc<Path>,
    destination: Arc<Path>,
}

#[derive(Debug)]
struct To(Arc<Path>);

fn dynamic(path: &str) -> bool {
    path.split('.')
        .any(|p| p == "$" || (p.starts_with("$[") && p.ends_with(']')))
}

fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let from = e.name();
    let bad = |m: String| Err(Error::bad_value(m));
    let Value::String(to) = e.value() else {
        return bad(format!(
            "The 'to' field for $rename must be a string: {}",
            show(e)
        ));
    };
    if to.contains('\0') {
        return Err(Error::location(
            9_867_600,
            "The 'to' field for $rename cannot contain an embedded null byte",
        ));
    }
    if dynamic(from) {
        return bad(format!(
            "The source field for $rename may not be dynamic: {from}"
        ));
    }
    if dynamic(to) {
        return bad(format!(
            "The destination field for $rename may not be dynamic: {to}"
        ));
    }
    if from == to {
        return bad(format!(
            "The source and target field for $rename must differ: {}",
            show(e)
        ));
    }
    let below = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('.'));
    if below(from, to) || below(to, from) {
        return bad(format!(
            "The source and target field for $rename must not be on the same path: {}",
            show(e)
        ));
    }
    let source = Arc::new(Path::new(from));
    let destination = Arc::new(Path::new(to));
    sink(
        from,
        Arc::new(From {
            source: Arc::clone(&source),
            destination,
        }),
    )?;
    sink(to, Arc::new(To(source)))
}

/// The value at `path`. Fails if an array lies on the way to an existing value.
fn lookup<'a>(root: Doc<'a>, path: &Path, what: &str) -> Result<Option<Value<'a>>> {
    let mut at = Value::Document(root);
    let mut array = None;
    let mut name = "";
    for part in path.parts() {
        at = match at {
            Value::Document(d) => match d.get(part) {
                Some(v) => v,
                None => return Ok(None),
            },
            Value::Array(d) => {
                array = array.or(Some(name));
                match crate::bytes::array_position(part).and_then(|i| d.values().nth(i)) {
                    Some(v) => v,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        name = part;
    }
    match array {
        Some(array) => Err(array_element(root, path, array, what)),
        None => Ok(Some(at)),
    }
}

fn array_element(root: Doc<'_>, path: &Path, array: &str, what: &str) -> Error {
    let id = show_id(root);
    let id = id.trim_start_matches('{').trim_end_matches('}');
    Error::bad_value(format!(
        "The {what} field cannot be an array element, '{}' in doc with {id} has an array field \
         called '{array}'",
        path.as_str()
    ))
}

/// Fails if the destination is in an array.
fn check_destination(root: Doc<'_>, path: &Path) -> Result<()> {
    let mut at = Value::Document(root);
    let mut name = "";
    for part in path.parts() {
        at = match at {
            Value::Document(d) => match d.get(part) {
                Some(v) => v,
                None => return Ok(()),
            },
            Value::Array(_) => return Err(array_element(root, path, name, "destination")),
            _ => return Ok(()),
        };
        name = part;
    }
    Ok(())
}

impl LeafOp for From {
    fn apply(&self, t: &Target<'_>, _: &mut Vec<u8>) -> Result<Outcome> {
        if t.old.is_none() || lookup(t.root, &self.source, "source")?.is_none() {
            return Ok(Outcome::Unchanged);
        }
        check_destination(t.root, &self.destination)?;
        Ok(Outcome::Removed)
    }

    fn creates(&self, _: Doc<'_>) -> bool {
        false
    }
}

impl LeafOp for To {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let source = lookup(t.root, &self.0, "source")?;
        if source.is_some() && t.path == "_id" && t.old.is_some() {
            return Err(crate::update::replace::immutable_id(t.path));
        }
        Ok(match source {
            Some(v) => put_if_new(t.old, t.name, v, out),
            None => Outcome::Unchanged,
        })
    }

    fn creates(&self, root: Doc<'_>) -> bool {
        !matches!(lookup(root, &self.0, "source"), Ok(None))
    }

    fn ignores_unviable(&self) -> bool {
        true
    }

    /// The depth is not known when the update is parsed, and the moved value may be nested more deeply
    /// afterwards. So the result is always checked.
    fn depth(&self) -> usize {
        muniment_value::MAX_DEPTH
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_rename() {
        table(&[
            ("{a:1,b:2}", "{$rename:{a:'c'}}", "{b:2,c:1}"),
            ("{a:1,b:2}", "{$rename:{a:'b'}}", "{b:1}"),
            ("{a:1}", "{$rename:{x:'b'}}", "="),
            ("{a:1}", "{$rename:{x:'a.b'}}", "="),
            (
                "{a:1}",
                "{$rename:{'a.b':'c'}}",
                "28: Cannot use the part (b) of (a.b) to traverse the element ({a: 1})",
            ),
            (
                "{_id:1,a:1}",
                "{$rename:{a:'_id'}}",
                "66: Performing an update on the path '_id' would modify the immutable field '_id'",
            ),
            ("{_id:1}", "{$rename:{'$a':'c'}}", "="),
            (
                "{a:{b:1},c:{}}",
                "{$rename:{'a.b':'c.d'}}",
                "{a:{},c:{d:1}}",
            ),
            ("{a:1}", "{$rename:{a:'b.c'}}", "{b:{c:1}}"),
            (
                "{}",
                "{$rename:{a:1}}",
                "2: The 'to' field for $rename must be a string: a: 1",
            ),
            (
                "{}",
                "{$rename:{a:'a'}}",
                "2: The source and target field for $rename must differ: a: \"a\"",
            ),
            (
                "{}",
                "{$rename:{a:'a.b'}}",
                "2: The source and target field for $rename must not be on the same path: a: \"a.b\"",
            ),
            (
                "{}",
                "{$rename:{'a.$':'b'}}",
                "2: The source field for $rename may not be dynamic: a.$",
            ),
            (
                "{}",
                "{$rename:{a:'b.$[]'}}",
                "2: The destination field for $rename may not be dynamic: b.$[]",
            ),
            (
                "{_id:1,a:[1]}",
                "{$rename:{'a.0':'b'}}",
                "2: The source field cannot be an array element, 'a.0' in doc with _id: 1 has an \
              array field called 'a'",
            ),
            (
                "{_id:1,a:1,b:[1]}",
                "{$rename:{a:'b.0'}}",
                "2: The destination field cannot be an array element, 'b.0' in doc with _id: 1 has an \
              array field called 'b'",
            ),
        ]);
    }
}
