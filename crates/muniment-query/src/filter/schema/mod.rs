//! JSON Schema, draft 4 as MongoDB implements it, for `$jsonSchema`.
//!
//! Every keyword has a [`KeywordSpec`] in one of the files here, and a line in the sorted registry below. A
//! schema is a list of rules; a rule that does not restrict values of a type holds for them. Invariants:
//! nesting is bounded by [`MAX_DEPTH`]; matching a value without `uniqueItems` and `enum` allocates nothing;
//! a rule that does not hold can explain why in the form of MongoDB's `errInfo.details`.
//!
//! Source: the MongoDB manual, "$jsonSchema: Available Keywords" and "Omissions".

mod array;
mod canonical;
mod encrypt;
mod limits;
mod logic;
mod notes;
mod numeric;
mod object;
mod parse;
mod properties;
mod text;
mod types;

use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, doc};
use parse::Keywords;

/// The deepest nesting of schemas, which is MongoDB's limit for the nesting of a document that a client
/// sends.
pub(super) const MAX_DEPTH: usize = 100;

/// The demand of one keyword.
trait Rule: std::fmt::Debug + Send + Sync {
    /// Whether `v` satisfies the keyword. Also true for a value of a type that the keyword does not restrict.
    fn holds(&self, v: Value<'_>) -> Result<bool>;

    /// Explains why it does not hold, as an element of `schemaRulesNotSatisfied` or `details`.
    fn explain(&self, v: Value<'_>) -> Result<DocBuf>;
}

/// A parsed schema.
#[derive(Debug)]
pub struct Schema {
    rules: Vec<Box<dyn Rule>>,
    /// `title` and `description`, which explanations repeat.
    notes: DocBuf,
}

impl Schema {
    /// Parses the operand of `$jsonSchema`.
    ///
    /// # Errors
    /// 14 TypeMismatch, 9 FailedToParse and 2 BadValue with MongoDB's messages.
    pub fn parse(schema: Doc<'_>) -> Result<Schema> {
        parse::schema(schema, 0)
    }

    /// Whether a value is valid.
    ///
    /// # Errors
    /// 51156 for a regular expression that exceeds its limits.
    pub fn matches(&self, v: Value<'_>) -> Result<bool> {
        for r in &self.rules {
            if !r.holds(v)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The explanations of the rules that do not hold.
    ///
    /// # Errors
    /// As [`Schema::matches`].
    pub fn failures(&self, v: Value<'_>) -> Result<ArrayBuf> {
        let mut out = ArrayBuf::new();
        for r in &self.rules {
            if !r.holds(v)? {
                out.push(r.explain(v)?);
            }
        }
        Ok(out)
    }

    /// The `errInfo.details` for a document that does not match.
    ///
    /// # Errors
    /// As [`Schema::matches`].
    pub fn details(&self, v: Value<'_>) -> Result<DocBuf> {
        let mut d = doc! { "operatorName": "$jsonSchema" };
        d.append_all(self.notes.as_doc());
        d.append("schemaRulesNotSatisfied", self.failures(v)?);
        Ok(d)
    }
}

/// Parses a keyword's operand; `None` if it makes no demand.
type ParseKeyword = fn(&Keywords<'_>, Value<'_>) -> Result<Option<Box<dyn Rule>>>;

/// One keyword.
pub struct KeywordSpec {
    /// Its name.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
    parse: ParseKeyword,
}

impl std::fmt::Debug for KeywordSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keyword {}", self.name)
    }
}

/// All keywords, sorted by name.
#[rustfmt::skip]
const REGISTRY: &[&KeywordSpec] = &[
    &array::ADDITIONAL_ITEMS,
    &properties::ADDITIONAL_PROPERTIES,
    &logic::ALL_OF,
    &logic::ANY_OF,
    &types::BSON_TYPE,
    &object::DEPENDENCIES,
    &notes::DESCRIPTION,
    &encrypt::ENCRYPT,
    &encrypt::METADATA,
    &logic::ENUM,
    &numeric::EXCLUSIVE_MAXIMUM,
    &numeric::EXCLUSIVE_MINIMUM,
    &array::ITEMS,
    &array::MAX_ITEMS,
    &text::MAX_LENGTH,
    &object::MAX_PROPERTIES,
    &numeric::MAXIMUM,
    &array::MIN_ITEMS,
    &text::MIN_LENGTH,
    &object::MIN_PROPERTIES,
    &numeric::MINIMUM,
    &numeric::MULTIPLE_OF,
    &logic::NOT,
    &logic::ONE_OF,
    &text::PATTERN,
    &properties::PATTERN_PROPERTIES,
    &properties::PROPERTIES,
    &object::REQUIRED,
    &notes::TITLE,
    &types::TYPE,
    &array::UNIQUE_ITEMS,
];

/// Keywords of JSON Schema that MongoDB knows but does not support.
const UNSUPPORTED: &[&str] = &["$ref", "$schema", "default", "definitions", "format", "id"];

/// All keywords, sorted by name.
pub fn registry() -> &'static [&'static KeywordSpec] {
    REGISTRY
}

/// The beginning of an explanation: `{operatorName, specifiedAs: {keyword: …}}`.
fn head(keyword: &str, operand: Value<'_>) -> DocBuf {
    let mut specified = DocBuf::new();
    specified.append(keyword, operand);
    doc! { "operatorName": keyword, "specifiedAs": specified }
}

/// An explanation with a reason and the value in question.
fn considered(keyword: &str, operand: Value<'_>, reason: &str, v: Value<'_>) -> DocBuf {
    let mut d = head(keyword, operand);
    d.append("reason", reason);
    d.append("consideredValue", v);
    d
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    #[test]
    fn registry_is_sorted() {
        for pair in super::REGISTRY.windows(2) {
            assert!(pair[0].name < pair[1].name, "{:?} {:?}", pair[0], pair[1]);
            assert!(!pair[0].doc.is_empty());
        }
        assert!(super::UNSUPPORTED.is_sorted());
    }
}
