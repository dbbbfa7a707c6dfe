//! Limits for new indexes. An index that exists already may break them, since the catalog may have
//! been written before they were checked.

use crate::catalog::IndexSpec;
use muniment_op::Interrupt;
use muniment_query::filter::{Node, Pred};
use muniment_query::{Filter, QueryContext};
use muniment_value::{Code, DocBuf, Error, Result, Value};

impl IndexSpec {
    /// Checks a specification that is to become an index.
    ///
    /// # Errors
    /// 2 BadValue for a key or name that is `_id_`'s own; 14 TypeMismatch for an option; 16764; 67
    /// CannotCreateIndex and 224 QueryFeatureNotAllowed for a partial filter that no index can
    /// have.
    pub fn check_new(&self, operation: &dyn Interrupt) -> Result<()> {
        let key = self.key.as_doc();
        let id = *self == IndexSpec::id_index(&self.collation);
        if !id && self.name == "_id_" {
            return Err(Error::bad_value(format!(
                "The index name '_id_' is reserved for the _id index, which must have key pattern \
                 {{_id: 1}}, found key: {}",
                Value::Document(key).to_display()
            )));
        }
        let only = key.first().filter(|_| key.count() == 1);
        if !id && only.is_some_and(|e| e.name() == "_id" && e.value().is_number()) {
            return Err(Error::bad_value(format!(
                "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
                Value::Document(key).to_display()
            )));
        }
        crate::kinds::check_new(self)?;
        match &self.partial_filter {
            Some(f) => {
                let context = QueryContext::new().on_behalf_of(operation);
                check_node(Filter::parse(f.as_doc(), &context)?.root())
            }
            None => Ok(()),
        }
    }

    /// True if both partial filters are the same except for the order of their clauses.
    ///
    /// # Errors
    /// If `operation` was stopped.
    pub fn same_partial_filter(
        &self,
        other: &IndexSpec,
        operation: &dyn Interrupt,
    ) -> Result<bool> {
        let context = QueryContext::new().on_behalf_of(operation);
        let normal = |f: &DocBuf| {
            let filter = Filter::parse(f.as_doc(), &context);
            filter.map(|f| text(f.root())).ok()
        };
        let same = match (&self.partial_filter, &other.partial_filter) {
            (Some(a), Some(b)) => a == b || (normal(a).is_some() && normal(a) == normal(b)),
            (a, b) => a == b,
        };
        // If parsing was broken off, the filters may only seem to differ.
        operation.check().map(|()| same)
    }
}

/// A text for comparing filters: it is the same for every order of the clauses.
fn text(node: &Node) -> String {
    let list = |list: &[Node]| {
        let mut all: Vec<String> = list.iter().map(text).collect();
        all.sort_unstable();
        all.join(",")
    };
    match node {
        Node::And(nodes) => format!("and({})", list(nodes)),
        Node::Or(nodes) => format!("or({})", list(nodes)),
        other => format!("{other:?}"),
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(
        Code::CannotCreateIndex,
        format!("Expression not supported in partial index: {what}"),
    )
}

fn check_node(node: &Node) -> Result<()> {
    match node {
        Node::True => Ok(()),
        Node::And(list) | Node::Or(list) => list.iter().try_for_each(check_node),
        Node::Field { pred, .. } if allowed(pred) => Ok(()),
        Node::Field { .. } => Err(unsupported(&node.to_doc().as_doc().to_display())),
        Node::Expr { .. } => Err(Error::new(
            Code::QueryFeatureNotAllowed,
            "$expr is not allowed in partial index filters",
        )),
        Node::Nor(_) => Err(unsupported("$nor")),
        Node::Doc(op) => Err(unsupported(op.name())),
        Node::False => Err(unsupported("$alwaysFalse")),
    }
}

/// The conditions that a partial filter may have: comparisons, `$in`, `$exists: true`, `$type` and
/// shapes.
fn allowed(pred: &Pred) -> bool {
    match pred {
        Pred::Eq(_) | Pred::Lt(_) | Pred::Lte(_) | Pred::Gt(_) | Pred::Gte(_) => true,
        Pred::In { .. } => true,
        Pred::Exists(yes) => *yes,
        Pred::And(list) => list.iter().all(allowed),
        Pred::Other(op) => op.types().is_some() || op.geo().is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_op::NeverInterrupted;

    fn spec(json: &str) -> IndexSpec {
        IndexSpec::parse(DocBuf::from_json(json).unwrap().as_doc()).unwrap()
    }

    fn partial(filter: &str) -> IndexSpec {
        spec(&format!(
            r#"{{"key": {{"a": 1}}, "name": "a", "partialFilterExpression": {filter}}}"#
        ))
    }

    #[test]
    fn a_partial_filter_asks_for_what_an_index_can_decide() {
        for (filter, code) in [
            (r#"{"a": 1, "b": {"$gt": 2, "$lte": 5}}"#, None),
            (
                r#"{"$or": [{"a": {"$in": [1, 2]}}, {"b": {"$exists": true}}]}"#,
                None,
            ),
            (r#"{"a": {"$type": "string"}}"#, None),
            ("{}", None),
            (r#"{"a": {"$ne": 5}}"#, Some(67)),
            (r#"{"a": {"$not": {"$gt": 5}}}"#, Some(67)),
            (r#"{"$nor": [{"a": 1}]}"#, Some(67)),
            (r#"{"a": {"$regex": "^x"}}"#, Some(67)),
            (r#"{"a": {"$elemMatch": {"x": 1}}}"#, Some(67)),
            (r#"{"a": {"$size": 3}}"#, Some(67)),
            (r#"{"a": {"$exists": false}}"#, Some(67)),
            (r#"{"$expr": {"$gt": ["$a", 5]}}"#, Some(224)),
        ] {
            let got = partial(filter)
                .check_new(&NeverInterrupted)
                .err()
                .map(|e| e.code());
            assert_eq!(got, code.map(Code), "{filter}");
        }
        let a = partial(r#"{"$and": [{"b": 2}, {"a": 1}]}"#);
        assert!(
            a.same_partial_filter(&partial(r#"{"a": 1, "b": 2}"#), &NeverInterrupted)
                .unwrap()
        );
        assert!(
            !a.same_partial_filter(&partial(r#"{"a": 2, "b": 1}"#), &NeverInterrupted)
                .unwrap()
        );
    }

    #[test]
    fn what_is_of_id_stays_so() {
        for (json, refused) in [
            (r#"{"key": {"_id": 1}, "name": "x"}"#, false),
            (r#"{"key": {"_id": "hashed"}, "name": "x"}"#, false),
            (r#"{"key": {"_id": -1, "a": 1}, "name": "x"}"#, false),
            (r#"{"key": {"_id": -1}, "name": "x"}"#, true),
            (r#"{"key": {"a": 1}, "name": "_id_"}"#, true),
        ] {
            assert_eq!(
                spec(json).check_new(&NeverInterrupted).is_err(),
                refused,
                "{json}"
            );
        }
    }
}
