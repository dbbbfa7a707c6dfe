//! Parsing filter documents into the tree.

use super::ops::{self, Place};
use super::{Node, Pred, Regex};
use crate::context::QueryContext;
use muniment_value::path::Path;
use muniment_value::{Collation, Doc, Error, Result, Type, Value, ValueBuf};

/// The deepest nesting of a filter, which is MongoDB's limit.
pub const MAX_DEPTH: usize = 100;

/// Parses filters.
pub struct Parser<'c> {
    /// The surroundings of the query.
    pub(super) ctx: &'c QueryContext,
    depth: usize,
    /// The number of object `$elemMatch`es around the filter that is being parsed.
    pub(super) inside: usize,
    /// Whether a `$near` was found.
    pub(super) saw_near: bool,
    /// Whether a `$text` was found.
    pub(super) saw_text: bool,
    /// Whether a `$where` was found.
    pub(super) saw_where: bool,
    /// Whether the filter goes through the planner, so that a `$near` is allowed.
    pub(super) planned: bool,
}

/// An operator below a path: its operand, and its surroundings.
pub struct FieldOperand<'v> {
    /// The path, as written; empty inside a value `$elemMatch`.
    pub path: &'v str,
    /// The operator's operand.
    pub value: Value<'v>,
    /// The `$options` in the same document.
    pub options: Option<Value<'v>>,
    /// Whether that `$options` stands before a `$regex`.
    pub options_first: bool,
    /// Whether there is a `$regex` in the same document.
    pub has_regex: bool,
    /// The document that the operator is part of.
    pub siblings: Doc<'v>,
}

impl<'c> Parser<'c> {
    /// A parser.
    pub fn new(ctx: &'c QueryContext) -> Parser<'c> {
        Parser {
            ctx,
            depth: 0,
            inside: 0,
            saw_near: false,
            saw_text: false,
            saw_where: false,
            planned: false,
        }
    }

    /// Parses a filter document.
    ///
    /// # Errors
    /// 2 BadValue and others with MongoDB's messages.
    pub fn filter(&mut self, doc: Doc<'_>) -> Result<Node> {
        self.deeper(doc, |p| {
            let mut elements = doc.iter();
            let Some(first) = elements.next() else {
                return Ok(Node::True);
            };
            let first = p.element(first.name(), first.value())?;
            let Some(second) = elements.next() else {
                return Ok(first);
            };
            let mut nodes = vec![first, p.element(second.name(), second.value())?];
            for e in elements {
                nodes.push(p.element(e.name(), e.value())?);
            }
            Ok(and(nodes))
        })
    }

    /// Parses the operators of `{path: {$gt: 1, …}}` or of a value `$elemMatch`.
    ///
    /// # Errors
    /// 2 BadValue "unknown operator: $foo", and those of the operators.
    pub fn operators(&mut self, path: &str, doc: Doc<'_>) -> Result<Vec<Pred>> {
        self.deeper(doc, |p| {
            let mut preds = Vec::new();
            let (mut options, mut options_first, mut has_regex) = (None, false, false);
            for e in doc {
                match e.name_bytes() {
                    b"$options" => {
                        options_first |= !has_regex;
                        options = options.or(Some(e.value()));
                    }
                    b"$regex" => has_regex = true,
                    _ => {}
                }
            }
            for e in doc {
                let name = e.name();
                if name == "$comment" {
                    continue;
                }
                let spec = ops::find(name);
                let Some(Place::Field(parse)) = spec.map(|s| s.place) else {
                    return Err(Error::bad_value(format!("unknown operator: {name}")));
                };
                let operand = FieldOperand {
                    path,
                    value: e.value(),
                    options,
                    options_first,
                    has_regex,
                    siblings: doc,
                };
                preds.extend(parse(p, &operand)?);
            }
            Ok(preds)
        })
    }

    /// Fails inside an object `$elemMatch`: the operator is only allowed at the top level.
    ///
    /// # Errors
    /// 2 BadValue.
    pub(super) fn top_only(&self, op: &str) -> Result<()> {
        if self.inside > 0 {
            return Err(Error::bad_value(format!(
                "{op} can only be applied to the top-level document"
            )));
        }
        Ok(())
    }

    fn deeper<T>(&mut self, doc: Doc<'_>, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth > MAX_DEPTH {
            let mut shown = Value::Document(doc).to_display();
            let cut = (0..=200.min(shown.len()))
                .rev()
                .find(|&i| shown.is_char_boundary(i))
                .unwrap_or(0);
            shown.truncate(cut);
            return Err(Error::bad_value(format!(
                "exceeded maximum query tree depth of {MAX_DEPTH} at {shown}"
            )));
        }
        self.depth += 1;
        let out = f(self);
        self.depth -= 1;
        out
    }

    fn element(&mut self, name: &str, value: Value<'_>) -> Result<Node> {
        if name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db") {
            if let Some(Place::Top(parse)) = ops::find(name).map(|s| s.place) {
                return parse(self, value);
            }
            let hint = match name {
                "$not" => "If you are trying to negate an entire expression, use $nor.",
                _ => {
                    "If you have a field name that starts with a '$' symbol, consider using $getField or $setField."
                }
            };
            return Err(Error::bad_value(format!(
                "unknown top level operator: {name}. {hint}"
            )));
        }
        let pred = match value {
            Value::Document(d) if is_operators(d) => {
                let mut preds = self.operators(name, d)?;
                match preds.len() {
                    0 => return Ok(Node::True),
                    1 => preds.pop().unwrap_or(Pred::And(Vec::new())),
                    _ => Pred::And(preds),
                }
            }
            Value::Regex { pattern, options } => Pred::Regex(Regex::new(pattern, options)?),
            v => Pred::Eq(comparable(v)?),
        };
        Ok(match pred {
            Pred::In { values, regexes } if values.is_empty() && regexes.is_empty() => Node::False,
            pred => Node::Field {
                path: Path::new(name),
                pred,
            },
        })
    }
}

/// True for a document of operators: its first name starts with a dollar, and it is not a DBRef, which has a
/// collection and an `_id`.
pub(super) fn is_operators(d: Doc<'_>) -> bool {
    let collection = d.get("$ref").and_then(|v| v.as_str());
    begins_with_dollar(d) && (collection.is_none() || d.get("$id").is_none())
}

/// As [`is_operators`], but for places where a part of a DBRef is also allowed, within `$elemMatch`.
pub(super) fn is_operators_alone(d: Doc<'_>) -> bool {
    begins_with_dollar(d) && !d.iter().any(|e| matches!(e.name(), "$ref" | "$id" | "$db"))
}

fn begins_with_dollar(d: Doc<'_>) -> bool {
    d.first().is_some_and(|e| e.name().starts_with('$'))
}

/// Checks and copies the operand of an equality or range.
pub(super) fn comparable(v: Value<'_>) -> Result<ValueBuf> {
    match v {
        Value::Undefined => Err(Error::bad_value("cannot compare to undefined")),
        v => Ok(ValueBuf::new(v)),
    }
}

/// The values sorted canonically, without duplicates.
pub(super) fn sorted(mut values: Vec<ValueBuf>, collation: &Collation) -> Vec<ValueBuf> {
    values.sort_by(|a, b| collation.cmp(a.as_value(), b.as_value()));
    values.dedup_by(|a, b| collation.equal(a.as_value(), b.as_value()));
    values
}

/// A conjunction, with nested conjunctions flattened.
pub(super) fn and(nodes: Vec<Node>) -> Node {
    let mut flat = Vec::with_capacity(nodes.len());
    for n in nodes {
        match n {
            Node::True => {}
            Node::False => return Node::False,
            Node::And(inner) => flat.extend(inner),
            n => flat.push(n),
        }
    }
    match flat.len() {
        0 => Node::True,
        1 => flat.pop().unwrap_or(Node::True),
        _ => Node::And(flat),
    }
}

/// A disjunction, with nested disjunctions flattened. Equalities on one path become an `$in`.
pub(super) fn or(nodes: Vec<Node>, collation: &Collation) -> Node {
    let mut flat = Vec::with_capacity(nodes.len());
    for n in nodes {
        match n {
            Node::False => {}
            Node::True => return Node::True,
            Node::Or(inner) => flat.extend(inner),
            n => flat.push(n),
        }
    }
    match flat.len() {
        0 => Node::False,
        1 => flat.pop().unwrap_or(Node::False),
        _ => as_in(&flat, collation).unwrap_or(Node::Or(flat)),
    }
}

fn as_in(nodes: &[Node], collation: &Collation) -> Option<Node> {
    let Some(Node::Field { path: first, .. }) = nodes.first() else {
        return None;
    };
    let (mut all_values, mut all_regexes) = (Vec::new(), Vec::new());
    for n in nodes {
        let Node::Field { path, pred } = n else {
            return None;
        };
        if path != first {
            return None;
        }
        match pred {
            // A regex is a plain value for $eq, but a pattern for $in.
            Pred::Eq(v) if v.ty() != Type::Regex => all_values.push(v.clone()),
            Pred::In { values, regexes } => {
                all_values.extend(values.iter().cloned());
                all_regexes.extend(regexes.iter().cloned());
            }
            _ => return None,
        }
    }
    Some(Node::Field {
        path: first.clone(),
        pred: Pred::In {
            values: sorted(all_values, collation),
            regexes: all_regexes,
        },
    })
}

/// The node for a `$nor` of these.
pub(super) fn nor(nodes: Vec<Node>) -> Node {
    let mut kept = Vec::with_capacity(nodes.len());
    for n in nodes {
        match n {
            Node::False => {}
            Node::True => return Node::False,
            n => kept.push(n),
        }
    }
    if kept.is_empty() {
        Node::True
    } else {
        Node::Nor(kept)
    }
}
