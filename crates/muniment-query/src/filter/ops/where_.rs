//! `$where`: a JavaScript function of the document.

use super::OpSpec;
use crate::filter::{DocOp, Node};
use crate::running::Work;
use muniment_value::{Doc, Error, Result, Value, ValueBuf};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$where",
    "A JavaScript expression or function is true of the document, which is `this` and `obj`.",
    |p, v| {
        p.top_only("$where")?;
        let code = match v {
            Value::String(s) | Value::Code(s) => s,
            Value::CodeWithScope { .. } => {
                return Err(Error::location(
                    4_649_201,
                    "$where no longer supports deprecated BSON type CodeWScope",
                ));
            }
            _ => return Err(Error::bad_value("$where got bad type")),
        };
        if code.is_empty() {
            return Err(Error::bad_value("code for $where cannot be empty"));
        }
        if !muniment_js::enabled() {
            return Err(Error::bad_value("no globalScriptEngine in $where parsing"));
        }
        p.saw_where = true;
        Ok(Node::Doc(Arc::new(Where {
            code: code.into(),
            source: ValueBuf::new(v),
        })))
    },
);

#[derive(Debug)]
struct Where {
    code: Arc<str>,
    source: ValueBuf,
}

impl DocOp for Where {
    fn name(&self) -> &'static str {
        "$where"
    }

    fn operand(&self) -> ValueBuf {
        self.source.clone()
    }

    fn matches(&self, doc: Doc<'_>, work: Work<'_>) -> Result<bool> {
        work.with_engine(|e| e.call_where(&self.code, doc))
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'$where': 'this.b > this.a'}",
            &["{'a': 1, 'b': 2}"],
            &["{'a': 2, 'b': 1}", "{}"],
        );
        matches(
            "{'c': 1, '$where': 'function() { return obj.a == 1; }'}",
            &["{'a': 1, 'c': 1}"],
            &["{'a': 2, 'c': 1}", "{'a': 1}"],
        );
        fails("{'$where': 1}", 2, "$where got bad type");
        fails("{'$where': ''}", 2, "code for $where cannot be empty");
        fails(
            "{'a': {'$elemMatch': {'$where': 'true'}}}",
            2,
            "$where can only be applied to the top-level document",
        );
    }
}
