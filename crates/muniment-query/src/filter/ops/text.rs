//! `$text`: words and phrases that are looked up in the collection's text index.

use super::OpSpec;
use crate::filter::parse::Parser;
use crate::filter::{DocOp, Node};
use crate::running::Work;
use crate::text::{Language, TextQuery, TextSearch, TextSpec};
use muniment_value::{Code, Doc, Error, Result, Value, ValueBuf};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$text",
    "The text index has words or phrases of a search string for the document.",
    parse,
);

/// A `$text`. It may be bound to an index already.
#[derive(Debug)]
pub struct TextOp {
    query: TextQuery,
    search: Option<Arc<TextSearch>>,
}

impl TextOp {
    /// The operator, bound to an index.
    pub(in crate::filter) fn bind(&self, spec: &Arc<TextSpec>) -> TextOp {
        TextOp {
            query: self.query.clone(),
            search: Some(Arc::new(self.query.bind(spec))),
        }
    }

    /// The search in the index to which it is bound, if any.
    pub fn search(&self) -> Option<&Arc<TextSearch>> {
        self.search.as_ref()
    }
}

impl DocOp for TextOp {
    fn name(&self) -> &'static str {
        "$text"
    }

    fn operand(&self) -> ValueBuf {
        let language = match (&self.search, self.query.language) {
            (Some(s), _) => s.language().name,
            (None, Some(l)) => l.name,
            (None, None) => "",
        };
        ValueBuf::new(Value::Document(self.query.to_doc(language).as_doc()))
    }

    fn matches(&self, doc: Doc<'_>, _: Work<'_>) -> Result<bool> {
        match &self.search {
            Some(s) => s.matches(doc),
            // It was parsed for a first stage, but the pipeline's real first stage is one that the caller of
            // the parser ran itself.
            None => Err(crate::filter::text::not_first()),
        }
    }

    fn text(&self) -> Option<&TextOp> {
        Some(self)
    }
}

fn parse(p: &mut Parser<'_>, v: Value<'_>) -> Result<Node> {
    p.top_only("$text")?;
    let Value::Document(d) = v else {
        return Err(Error::bad_value("$text expects an object"));
    };
    let wrong = |name: &str, wanted: &str, v: Value<'_>| {
        Error::type_mismatch(format!(
            "\"{name}\" had the wrong type. Expected {wanted}, found {}",
            v.type_name()
        ))
    };
    let string = |name: &str| match d.get(name) {
        None => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(v) => Err(wrong(name, "string", v)),
    };
    let boolean = |name: &str| match d.get(name) {
        None => Ok(false),
        Some(Value::Bool(b)) => Ok(b),
        Some(v) => Err(wrong(name, "bool", v)),
    };
    let search = string("$search")?
        .ok_or_else(|| Error::new(Code::NoSuchKey, "Missing expected field \"$search\""))?;
    let language = string("$language")?.filter(|l| !l.is_empty());
    let query = TextQuery {
        search: search.to_string(),
        case_sensitive: boolean("$caseSensitive")?,
        diacritic_sensitive: boolean("$diacriticSensitive")?,
        language: match language {
            None => None,
            Some(name) => Some(Language::find(name).ok_or_else(|| {
                Error::bad_value(format!(
                    "unsupported language: \"{name}\" for text index version 3"
                ))
            })?),
        },
    };
    let known = [
        "$search",
        "$language",
        "$caseSensitive",
        "$diacriticSensitive",
    ];
    if d.iter().any(|e| !known.contains(&e.name())) {
        return Err(Error::bad_value("extra fields in $text"));
    }
    p.saw_text = true;
    Ok(Node::Doc(Arc::new(TextOp {
        query,
        search: None,
    })))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::QueryContext;
    use crate::filter::Filter;
    use crate::filter::tests::fails;
    use crate::running::Work;
    use crate::text::{Language, TextSpec};
    use muniment_value::{DocBuf, doc};
    use std::sync::Arc;

    #[test]
    fn a_bound_search_matches_by_itself() {
        let json = "{\"$text\": {\"$search\": \"cats\"}, \"b\": 1}";
        let filter = DocBuf::from_json(json).unwrap();
        let filter = Filter::parse_query(filter.as_doc(), &QueryContext::new()).unwrap();
        assert!(filter.has_text() && Filter::text_of(filter.root()).is_none());
        assert!(
            filter
                .matches(doc! { "a": "cat", "b": 1 }.as_doc(), Work::unasked())
                .is_err()
        );
        let spec = TextSpec::new([("a".into(), 1.0)], Language::english(), "language".into());
        let bound = filter.bind_text(&Arc::new(spec));
        for (d, want) in [
            (doc! { "a": "a cat", "b": 1 }, true),
            (doc! { "a": "a cat", "b": 2 }, false),
            (doc! { "a": "a dog", "b": 1 }, false),
        ] {
            assert_eq!(
                bound.matches(d.as_doc(), Work::unasked()).unwrap(),
                want,
                "{d:?}"
            );
        }
        let search = Filter::text_of(bound.root()).unwrap();
        assert_eq!(search.terms().collect::<Vec<_>>(), ["cat"]);
        let rest = Filter::from_root(Filter::without_text(bound.root()), bound.collation());
        assert!(!rest.has_text());
        assert!(
            rest.matches(doc! { "b": 1 }.as_doc(), Work::unasked())
                .unwrap()
        );
    }

    #[test]
    fn table_of_errors() {
        let text = "{'$text': {'$search': 'x'}}";
        for (filter, code, message) in [
            ("{'$text': 5}", 2, "$text expects an object"),
            ("{'$text': {}}", 4, "Missing expected field \"$search\""),
            (
                "{'$text': {'$search': 5}}",
                14,
                "\"$search\" had the wrong type. Expected string, found int",
            ),
            (
                "{'$text': {'$search': 'x', '$caseSensitive': 1}}",
                14,
                "\"$caseSensitive\" had the wrong type. Expected bool, found int",
            ),
            (
                "{'$text': {'$search': 'x', 'y': 1}}",
                2,
                "extra fields in $text",
            ),
            (
                "{'$text': {'$search': 'x', '$language': 'klingon'}}",
                2,
                "unsupported language: \"klingon\" for text index version 3",
            ),
            (
                &format!("{{'$and': [{text}, {text}]}}"),
                2,
                "Too many text expressions",
            ),
            (
                &format!("{{'$nor': [{text}]}}"),
                2,
                "text expression not allowed in nor",
            ),
            (
                &format!("{{'a': {{'$elemMatch': {text}}}}}"),
                2,
                "$text can only be applied to the top-level document",
            ),
            (&format!("{{'a': {text}}}"), 2, "unknown operator: $text"),
        ] {
            fails(filter, code, message);
        }
        let d = DocBuf::from_json("{\"$text\": {\"$search\": \"x\"}}").unwrap();
        let ctx = QueryContext::new();
        assert_eq!(Filter::parse(d.as_doc(), &ctx).unwrap_err().code().0, 2);
        let later = Filter::parse_match(d.as_doc(), &ctx, false);
        assert_eq!(later.unwrap_err().code().0, 17313);
        assert!(
            Filter::parse_match(d.as_doc(), &ctx, true)
                .unwrap()
                .has_text()
        );
    }
}
