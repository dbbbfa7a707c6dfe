//! The document with which an upsert begins: the equalities of a filter.

use super::apply::Cx;
use super::array_filter::ArrayFilters;
use super::ops::{Raw, set::Set};
use super::tree::Tree;
use crate::context::MatchInfo;
use crate::filter::{Filter, Node, Pred};
use crate::running::Work;
use muniment_value::{Code, Doc, Error, Result, Value};
use std::sync::Arc;

/// Appends a document with the filter's equalities; only with `_id` if `only_id` is set (for replacements).
///
/// # Errors
/// 54 NotSingleValueField if there are two equalities for a path, or one for it and one for a path above it;
/// 111 NotExactValueField for a part of the `_id` of a replacement.
pub(crate) fn base(filter: &Filter, only_id: bool, out: &mut Vec<u8>) -> Result<()> {
    let mut found: Vec<(&str, Value<'_>)> = Vec::new();
    collect(filter.root(), &mut found);
    if only_id {
        if let Some((part, _)) = found.iter().find(|(p, _)| p.starts_with("_id.")) {
            return Err(Error::new(
                Code::NotExactValueField,
                format!(
                    "field at '_id' must be exactly specified, field at sub-path '{part}' found"
                ),
            ));
        }
        found.retain(|(p, _)| *p == "_id");
    }
    found.sort_by(|a, b| a.0.cmp(b.0));
    let mut tree = Tree::default();
    for (i, (path, value)) in found.iter().enumerate() {
        for (other, _) in found.iter().take(i) {
            if other == path {
                return Err(Error::new(
                    Code::NotSingleValueField,
                    format!("cannot infer query fields to set, path '{path}' is matched twice"),
                ));
            }
            if path.strip_prefix(other).is_some_and(|r| r.starts_with('.')) {
                return Err(Error::new(
                    Code::NotSingleValueField,
                    format!(
                        "cannot infer query fields to set, both paths '{path}' and '{other}' are \
                         matched"
                    ),
                ));
            }
        }
        let op = Arc::new(Set(Raw::of(*value)));
        tree.insert(&Arc::from(*path), op, &mut |_, _| Ok(0))?;
    }
    Cx {
        root: Doc::EMPTY,
        info: MatchInfo::default(),
        filters: &ArrayFilters::default(),
        // A $set alone.
        work: Work::unasked(),
    }
    .document(&tree, Doc::EMPTY, out)?;
    Ok(())
}

fn collect<'f>(node: &'f Node, found: &mut Vec<(&'f str, Value<'f>)>) {
    match node {
        Node::And(nodes) => nodes.iter().for_each(|n| collect(n, found)),
        Node::Or(nodes) => {
            if let [one] = nodes.as_slice() {
                collect(one, found);
            }
        }
        Node::Field { path, pred } => collect_pred(path.as_str(), pred, found),
        _ => {}
    }
}

fn collect_pred<'f>(path: &'f str, pred: &'f Pred, found: &mut Vec<(&'f str, Value<'f>)>) {
    match pred {
        Pred::Eq(v) => found.push((path, v.as_value())),
        Pred::In { values, regexes } if regexes.is_empty() => {
            if let [one] = values.as_slice() {
                found.push((path, one.as_value()));
            }
        }
        Pred::And(preds) => preds.iter().for_each(|p| collect_pred(path, p, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::upserts;

    #[test]
    fn table_of_upserts() {
        upserts(&[
            ("{_id:1,b:2,a:1}", "{$set:{c:3}}", "{_id:1,a:1,b:2,c:3}"),
            ("{_id:1,a:1}", "{c:3}", "{_id:1,c:3}"),
            ("{_id:1,a:1}", "{c:3,_id:1}", "{_id:1,c:3}"),
            ("{a:1}", "{c:3,_id:7}", "{_id:7,c:3}"),
            (
                "{'_id.x':1}",
                "{c:3}",
                "111: field at '_id' must be exactly specified, field at sub-path '_id.x' found",
            ),
            ("{'_id.x':1}", "{$set:{c:3}}", "{_id:{x:1},c:3}"),
            ("{_id:1,a:{$gt:5}}", "{$inc:{a:1}}", "{_id:1,a:1}"),
            ("{_id:1,a:{$in:[5]}}", "{$inc:{a:1}}", "{_id:1,a:6}"),
            ("{_id:1,a:{$in:[5,6]}}", "{$inc:{a:1}}", "{_id:1,a:1}"),
            (
                "{_id:1,$and:[{a:{$eq:1}},{'b.c':2}]}",
                "{$set:{'b.d':1}}",
                "{_id:1,a:1,b:{c:2,d:1}}",
            ),
            ("{_id:1,$or:[{a:1},{b:2}]}", "{$set:{c:1}}", "{_id:1,c:1}"),
            ("{_id:1,$or:[{a:1}]}", "{$set:{c:1}}", "{_id:1,a:1,c:1}"),
            (
                "{$and:[{a:1},{a:2}]}",
                "{$set:{c:1}}",
                "54: cannot infer query fields to set, path 'a' is matched twice",
            ),
            (
                "{a:{b:1},'a.c':2}",
                "{$set:{c:1}}",
                "54: cannot infer query fields to set, both paths 'a.c' and 'a' are matched",
            ),
            (
                "{_id:1}",
                "{$set:{_id:2}}",
                "66: Performing an update on the path '_id' would modify the immutable field '_id'",
            ),
            (
                "{_id:1}",
                "{_id:2}",
                "66: After applying the update, the (immutable) field '_id' was found to have been \
              altered to _id: 2",
            ),
            (
                "{a:1}",
                "{$set:{'b.$':2}}",
                "2: The positional operator did not find the match needed from the query.",
            ),
            (
                "{a:1}",
                "{$set:{_id:[1]}}",
                "53: The '_id' value cannot be of type array",
            ),
        ]);
    }
}
