//! Query shapes: a query without its constants. The plan cache uses them as keys.

use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use muniment_value::{Doc, Value, ValueBuf};
use std::fmt::Write;

/// Separates the query's shape from what a command adds to it, in a cached shape.
pub(crate) const COMMAND: char = '\u{1}';

/// Separates the shape from what decides between plans without being part of it, in a cached shape:
/// the fields that are needed.
pub(crate) const NEEDS: char = '\u{2}';

/// The shape of a query as text: the filter's structure, the sort and the projection.
///
/// A collation is part of the shape, and with one, strings are distinguished from other values,
/// because other indexes can serve them.
pub(crate) fn shape(filter: &Filter, sort: Doc<'_>, projection: Doc<'_>) -> String {
    let mut out = String::new();
    let collation = filter.collation().spec();
    node(filter.root(), collation.is_some(), &mut out);
    if let Some(c) = collation {
        let _ = write!(out, "|{:?}", c.as_doc());
    }
    let mut fields: Vec<String> = projection
        .iter()
        .map(|e| format!("{:?}:{:?}", e.name(), e.value()))
        .collect();
    fields.sort_unstable();
    let _ = write!(out, "|{sort:?}|{}", fields.join(","));
    out
}

/// The shape of a command that does something with the documents found other than return them.
pub(crate) fn of_command(filter: &Filter, command: &str) -> String {
    let mut out = shape(filter, Doc::EMPTY, Doc::EMPTY);
    out.push(COMMAND);
    out + command
}

/// The hash that `explain` shows as queryHash: FNV-1a, eight hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    let h = text.bytes().fold(0x811C_9DC5_u32, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    format!("{h:08X}")
}

/// Appends a list of clauses. Their order does not matter to the shape. Equal clauses are written
/// once with their number, because there may be many thousands.
fn list(name: &str, nodes: &[Node], texts: bool, out: &mut String) {
    let mut clauses: Vec<String> = nodes
        .iter()
        .map(|n| {
            let mut clause = String::new();
            node(n, texts, &mut clause);
            clause
        })
        .collect();
    clauses.sort_unstable();
    let _ = write!(out, "{name}[");
    for (i, alike) in clauses.chunk_by(|a, b| a == b).enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(alike.first().map_or("", String::as_str));
        if alike.len() > 1 {
            let _ = write!(out, "*{}", alike.len());
        }
    }
    out.push(']');
}

fn node(n: &Node, texts: bool, out: &mut String) {
    match n {
        Node::True => out.push_str("true"),
        Node::False => out.push_str("false"),
        Node::And(l) => list("and", l, texts, out),
        Node::Or(l) => list("or", l, texts, out),
        Node::Nor(l) => list("nor", l, texts, out),
        Node::Field { path, pred } => {
            let _ = write!(out, "{:?}:", path.as_str());
            predicate(pred, texts, out);
        }
        Node::Expr { implied, .. } => {
            out.push_str("expr");
            if let Some(n) = implied {
                out.push('{');
                node(n, texts, out);
                out.push('}');
            }
        }
        Node::Doc(op) => {
            out.push_str(op.name());
            // A schema is not a constant: it says which fields are read and how.
            if op.name() == "$jsonSchema" {
                let _ = write!(out, "{:?}", op.operand().as_value());
            }
        }
        #[allow(unreachable_patterns)] // nodes that the planner does not know yet
        _ => out.push_str("other"),
    }
}

/// The class of a value, as far as the form of the bounds depends on it.
fn class(v: &ValueBuf, texts: bool) -> char {
    match v.as_value() {
        Value::String(_) | Value::Symbol(_) if texts => 's',
        Value::Null | Value::Undefined => 'n',
        Value::Array(_) => 'a',
        Value::Document(_) => 'd',
        Value::MinKey | Value::MaxKey => 'm',
        _ => 'v',
    }
}

fn predicate(p: &Pred, texts: bool, out: &mut String) {
    match p {
        Pred::Eq(v) => {
            let _ = write!(out, "eq{}", class(v, texts));
        }
        Pred::Lt(v) | Pred::Lte(v) => {
            let _ = write!(out, "lt{}", class(v, texts));
        }
        Pred::Gt(v) | Pred::Gte(v) => {
            let _ = write!(out, "gt{}", class(v, texts));
        }
        Pred::In { values, regexes } if values.len() == 1 && regexes.is_empty() => {
            let _ = write!(out, "eq{}", values.first().map_or('v', |v| class(v, texts)));
        }
        Pred::In { values, regexes } => {
            let _ = write!(
                out,
                "in{}{}{}",
                if values.len() > 10 { "many" } else { "few" },
                if texts && values.iter().any(|v| class(v, true) == 's') {
                    "s"
                } else {
                    ""
                },
                if regexes.is_empty() { "" } else { "re" }
            );
        }
        Pred::Regex(r) => {
            let prefix = !super::bounds::regex_prefix(r).0.is_empty();
            out.push_str(if prefix { "prefix" } else { "regex" });
        }
        Pred::Exists(e) => {
            let _ = write!(out, "exists{e}");
        }
        Pred::ElemMatchObject(n) => {
            out.push_str("elem{");
            node(n, texts, out);
            out.push('}');
        }
        Pred::ElemMatchValue(l) | Pred::And(l) => {
            out.push_str(if matches!(p, Pred::And(_)) {
                "all("
            } else {
                "each("
            });
            for p in l {
                predicate(p, texts, out);
                out.push(',');
            }
            out.push(')');
        }
        Pred::Not(inner) => {
            out.push_str("not ");
            predicate(inner, texts, out);
        }
        Pred::Other(op) => out.push_str(op.name()),
        #[allow(unreachable_patterns)] // predicates that the planner does not know yet
        _ => out.push_str("other"),
    }
}
