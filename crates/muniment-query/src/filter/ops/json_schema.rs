//! `$jsonSchema`: the whole document is valid against a schema.

use super::OpSpec;
use crate::filter::schema::Schema;
use crate::filter::{DocOp, Node};
use crate::running::Work;
use muniment_value::{Doc, DocBuf, Error, Result, Value, ValueBuf};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$jsonSchema",
    "The document is valid against a JSON Schema (draft 4, as MongoDB has it).",
    |p, v| {
        p.top_only("$jsonSchema")?;
        let Value::Document(d) = v else {
            return Err(Error::type_mismatch("$jsonSchema must be an object"));
        };
        if d.is_empty() {
            return Ok(Node::True);
        }
        Ok(Node::Doc(Arc::new(JsonSchema {
            schema: Schema::parse(d)?,
            source: d.to_buf(),
        })))
    },
);

#[derive(Debug)]
struct JsonSchema {
    schema: Schema,
    source: DocBuf,
}

impl DocOp for JsonSchema {
    fn name(&self) -> &'static str {
        "$jsonSchema"
    }

    fn operand(&self) -> ValueBuf {
        ValueBuf::new(&self.source)
    }

    fn matches(&self, doc: Doc<'_>, _: Work<'_>) -> Result<bool> {
        self.schema.matches(Value::Document(doc))
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'$jsonSchema': {'required': ['a'], 'properties': {'a': {'type': 'number'}}}}",
            &["{'a': 1}"],
            &["{}", "{'a': 'x'}"],
        );
        matches("{'$jsonSchema': {}}", &["{}"], &[]);
        matches(
            "{'$or': [{'b': 1}, {'$jsonSchema': {'required': ['a']}}]}",
            &["{'a': 1}", "{'b': 1}"],
            &["{}"],
        );
        fails("{'$jsonSchema': 1}", 14, "$jsonSchema must be an object");
        fails(
            "{'$jsonSchema': {'format': 'x'}}",
            9,
            "$jsonSchema keyword 'format' is not currently supported",
        );
        fails(
            "{'a': {'$elemMatch': {'$jsonSchema': {}}}}",
            2,
            "$jsonSchema can only be applied to the top-level document",
        );
    }
}
