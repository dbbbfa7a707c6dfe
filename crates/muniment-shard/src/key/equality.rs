//! The key that a filter asks for, if it gives a value for every field.

use super::ShardKey;
use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use muniment_value::collation::has_text;
use muniment_value::path::Path;
use muniment_value::{DocBuf, Value, values_equal};

impl ShardKey {
    /// The values that a filter demands for the fields of the key, in the form of [`ShardKey::values_of`].
    /// `None` if it leaves a field open, or if its collation could hold other texts equal to a value.
    ///
    /// A document that an upsert makes from the filter has these values, unless the update sets others.
    pub fn values_of_filter(&self, filter: &Filter) -> Option<DocBuf> {
        let nodes = match filter.root() {
            Node::And(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut out = DocBuf::new();
        for field in &self.fields {
            let mut found: Option<Value<'_>> = None;
            for v in nodes.iter().filter_map(|n| demanded(n, &field.path)) {
                match found {
                    Some(other) if !values_equal(other, v) => return None,
                    _ => found = Some(v),
                }
            }
            let v = found?;
            let usable = !matches!(v, Value::Array(_) | Value::Undefined)
                && (filter.collation().is_simple() || !has_text(v));
            out.append(field.path.as_str(), usable.then_some(v)?);
        }
        Some(out)
    }

    /// The key of the values that [`ShardKey::values_of_filter`] finds.
    ///
    /// A *stored* document that matches may have another key if a field is hashed: equal numbers that are
    /// not whole can have different hashes. [`crate::targets()`] takes care of that.
    pub fn key_of_filter(&self, filter: &Filter) -> Option<Vec<u8>> {
        let values = self.values_of_filter(filter)?;
        self.key_of_values(values.as_doc()).ok()
    }
}

/// The value that a condition demands at `path`: an equality on it, or on a document around it.
fn demanded<'f>(node: &'f Node, path: &Path) -> Option<Value<'f>> {
    let Node::Field { path: on, pred } = node else {
        return None;
    };
    let v = equal_to(pred)?;
    let rest = path.parts().strip_prefix(on.parts())?;
    let mut at = v;
    for part in rest {
        at = match at {
            Value::Document(d) => d.get(part)?,
            _ => return None,
        };
    }
    Some(at)
}

fn equal_to(pred: &Pred) -> Option<Value<'_>> {
    match pred {
        Pred::Eq(v) => Some(v.as_value()),
        Pred::In { values, regexes } if regexes.is_empty() => match values.as_slice() {
            [one] => Some(one.as_value()),
            _ => None,
        },
        Pred::And(list) => list.iter().find_map(equal_to),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_query::QueryContext;
    use muniment_value::{Collation, doc};

    fn values(pattern: &str, filter: &str, collation: &Collation) -> String {
        let pattern = DocBuf::from_json(pattern).unwrap();
        let key = ShardKey::parse(pattern.as_doc()).unwrap();
        let filter = DocBuf::from_json(filter).unwrap();
        let ctx = QueryContext::at(0).with_collation(collation.clone());
        let filter = Filter::parse(filter.as_doc(), &ctx).unwrap();
        match key.values_of_filter(&filter) {
            Some(d) => {
                let bytes = key.key_of_values(d.as_doc()).unwrap();
                assert_eq!(key.key_of_filter(&filter).unwrap(), bytes);
                d.as_doc().to_display()
            }
            None => "none".into(),
        }
    }

    #[test]
    fn filters_that_name_a_key() {
        let one = r#"{"a": 1}"#;
        let nested = r#"{"a.b": 1, "c": 1}"#;
        for (pattern, filter, want) in [
            (one, r#"{"a": 5}"#, "{ a: 5 }"),
            (one, r#"{"a": {"$eq": 5}, "b": 1}"#, "{ a: 5 }"),
            (one, r#"{"a": {"$eq": 5, "$gt": 1}}"#, "{ a: 5 }"),
            (one, r#"{"$and": [{"a": 5}, {"b": 1}]}"#, "{ a: 5 }"),
            (one, r#"{"a": {"$in": [5]}}"#, "{ a: 5 }"),
            (one, r#"{"a": null}"#, "{ a: null }"),
            (one, r#"{"$and": [{"a": 5}, {"a": 6}]}"#, "none"),
            (one, r#"{"a": {"$gt": 5}}"#, "none"),
            (one, r#"{"a": [5]}"#, "none"),
            (one, r#"{"b": 5}"#, "none"),
            (one, "{}", "none"),
            (one, r#"{"$or": [{"a": 5}, {"b": 5}]}"#, "none"),
            (nested, r#"{"a": {"b": 1}, "c": 2}"#, "{ a.b: 1, c: 2 }"),
            (nested, r#"{"a.b": 1, "c": "x"}"#, r#"{ a.b: 1, c: "x" }"#),
            (nested, r#"{"a": {"x": 1}, "c": 2}"#, "none"),
            (nested, r#"{"a.b": 1}"#, "none"),
        ] {
            assert_eq!(
                values(pattern, filter, &Collation::SIMPLE),
                want,
                "{filter}"
            );
        }
    }

    #[test]
    fn texts_need_the_simple_collation() {
        let c = Collation::parse(doc! { "locale": "en", "strength": 1 }.as_doc()).unwrap();
        assert_eq!(values(r#"{"a": 1}"#, r#"{"a": "x"}"#, &c), "none");
        assert_eq!(values(r#"{"a": 1}"#, r#"{"a": 5}"#, &c), "{ a: 5 }");
        let inside = r#"{"a": {"b": "x"}}"#;
        assert_eq!(values(r#"{"a": 1}"#, inside, &c), "none");
    }
}
