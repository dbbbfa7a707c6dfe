//! Prints a filter for `explain` (parsedQuery): with explicit operators, flattened conjunctions, and the
//! children of `$and` and `$or` in MongoDB's order (by kind, then by path).

use super::{Node, Pred};
use muniment_value::{ArrayBuf, DocBuf, Put, doc};

pub(super) fn to_doc(node: &Node) -> DocBuf {
    let mut parts = Vec::new();
    conjuncts(node, &mut parts);
    match parts.len() {
        0 => DocBuf::new(),
        1 => parts.pop().map(|p| p.doc).unwrap_or_default(),
        _ => doc! { "$and": list(parts) },
    }
}

/// One printed condition, with the keys by which it is sorted.
struct Printed {
    kind: u8,
    path: String,
    doc: DocBuf,
}

fn list(mut parts: Vec<Printed>) -> ArrayBuf {
    parts.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    parts.into_iter().map(|p| p.doc).collect()
}

fn conjuncts(node: &Node, out: &mut Vec<Printed>) {
    let mut push = |kind, doc| {
        out.push(Printed {
            kind,
            path: String::new(),
            doc,
        });
    };
    let each = |nodes: &[Node]| {
        let printed = nodes.iter().map(|n| {
            let mut parts = Vec::new();
            conjuncts(n, &mut parts);
            match parts.len() {
                1 => parts.pop(),
                _ => None,
            }
            .unwrap_or_else(|| Printed {
                kind: 0,
                path: String::new(),
                doc: to_doc(n),
            })
        });
        list(printed.collect())
    };
    match node {
        Node::True => {}
        Node::False => push(25, doc! { "$alwaysFalse": 1 }),
        Node::And(nodes) => {
            for n in nodes {
                conjuncts(n, out);
            }
        }
        Node::Or(nodes) => push(1, doc! { "$or": each(nodes) }),
        Node::Nor(nodes) => push(19, doc! { "$nor": each(nodes) }),
        Node::Expr { expr, .. } => push(24, doc! { "$expr": expr.to_value() }),
        Node::Doc(op) => push(26, one(op.name(), op.operand())),
        Node::Field { path, pred } => field(path.as_str(), pred, out),
    }
}

fn field(path: &str, pred: &Pred, out: &mut Vec<Printed>) {
    if let Pred::And(preds) = pred {
        for p in preds {
            field(path, p, out);
        }
        return;
    }
    let mut doc = DocBuf::new();
    doc.append(path, operators(pred));
    out.push(Printed {
        kind: kind(pred),
        path: path.to_string(),
        doc,
    });
}

/// The position of a predicate's kind in MongoDB's order.
fn kind(pred: &Pred) -> u8 {
    match pred {
        Pred::And(_) => 0,
        Pred::ElemMatchObject(_) => 2,
        Pred::ElemMatchValue(_) => 3,
        Pred::Other(op) => match op.name() {
            "$size" => 4,
            "$mod" => 11,
            "$bitsAllSet" => 14,
            "$bitsAllClear" => 15,
            "$bitsAnySet" => 16,
            "$bitsAnyClear" => 17,
            _ => 20,
        },
        Pred::Eq(_) => 5,
        Pred::Lte(_) => 6,
        Pred::Lt(_) => 7,
        Pred::Gt(_) => 8,
        Pred::Gte(_) => 9,
        Pred::Regex(_) => 10,
        Pred::Exists(true) => 12,
        Pred::In { values, regexes } if values.len() == 1 && regexes.is_empty() => 5,
        Pred::In { .. } => 13,
        Pred::Not(_) | Pred::Exists(false) => 18,
    }
}

fn one(name: &str, value: impl Put) -> DocBuf {
    let mut d = DocBuf::new();
    d.append(name, value);
    d
}

/// The operators on a path, as in `{$gt: 1}`.
fn operators(pred: &Pred) -> DocBuf {
    match pred {
        Pred::Eq(v) => one("$eq", v),
        Pred::Lt(v) => one("$lt", v),
        Pred::Lte(v) => one("$lte", v),
        Pred::Gt(v) => one("$gt", v),
        Pred::Gte(v) => one("$gte", v),
        Pred::In { values, regexes } => match (values.as_slice(), regexes.as_slice()) {
            ([v], []) => one("$eq", v),
            _ => {
                let mut items = ArrayBuf::new();
                for v in values {
                    items.push(v);
                }
                for re in regexes {
                    items.push(re.as_value());
                }
                one("$in", items)
            }
        },
        Pred::Regex(re) => {
            let mut d = one("$regex", re.pattern.as_str());
            if !re.options.is_empty() {
                d.append("$options", re.options.as_str());
            }
            d
        }
        Pred::Exists(true) => one("$exists", true),
        Pred::Exists(false) => one("$not", doc! { "$exists": true }),
        Pred::ElemMatchObject(node) => one("$elemMatch", to_doc(node)),
        Pred::ElemMatchValue(preds) => one("$elemMatch", merged(preds)),
        Pred::Not(p) => one("$not", operators(p)),
        Pred::And(preds) => merged(preds),
        Pred::Other(op) => one(op.name(), op.operand()),
    }
}

/// Joins several operators into one document.
fn merged(preds: &[Pred]) -> DocBuf {
    let mut d = DocBuf::new();
    for p in preds {
        d.append_all(operators(p).as_doc());
    }
    d
}
