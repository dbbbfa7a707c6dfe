//! Compiles a filter's tree into the program that the matcher runs.

use super::operand::{CmpOp, InSet, Operand};
use super::parse::sorted;
use super::regex::Regex;
use super::{DocOp, FieldOp, Node, Pred};
use crate::expr::Expr;
use muniment_value::path::{self, Path};
use muniment_value::{Collation, ValueBuf};
use std::sync::Arc;

/// A compiled filter.
#[derive(Clone, Debug)]
pub(super) enum Prog {
    True,
    False,
    All(Box<[Prog]>),
    Any(Box<[Prog]>),
    None(Box<[Prog]>),
    /// One field.
    Field(FieldProg),
    /// Several fields of one document in one pass over its elements.
    Fields(Box<[FieldGroup]>),
    Expr(Expr),
    Doc(Arc<dyn DocOp>),
}

/// A test of the values at a path.
#[derive(Clone, Debug)]
pub(super) struct FieldProg {
    /// The path's first part.
    pub(super) name: Box<[u8]>,
    pub(super) rest: Box<[Part]>,
    pub(super) test: Test,
    /// The position among the conditions as they were written. The last one that matches through an array
    /// determines the element for the positional operator.
    pub(super) order: usize,
}

/// All tests that start at one top-level field.
#[derive(Clone, Debug)]
pub(super) struct FieldGroup {
    pub(super) name: Box<[u8]>,
    pub(super) fields: Box<[FieldProg]>,
}

/// A part of a path after the first.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: Box<[u8]>,
    /// The array index that the part can stand for.
    pub(super) index: Option<usize>,
}

/// A test.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Cmp(CmpOp, Operand),
    In(InSet, Box<[Regex]>),
    Regex(Regex),
    Exists,
    ElemObject(Box<Prog>),
    ElemValue(Box<[Test]>),
    Op(Arc<dyn FieldOp>),
    Not(Box<Test>),
    All(Box<[Test]>),
    /// `$all` of many values: each equals some value at the path. A single walk along the path tests all of
    /// them.
    Every(InSet),
}

impl Test {
    /// Whether the elements of an array are tried too.
    pub(super) fn traverses(&self) -> bool {
        match self {
            Test::ElemObject(_) | Test::ElemValue(_) => false,
            Test::Op(op) => op.traverses_array(),
            _ => true,
        }
    }
}

/// The most groups of a [`Prog::Fields`], because the pass over a document keeps one bit for each.
const MAX_GROUPS: usize = 64;

pub(super) fn compile(node: &Node, c: &Collation) -> Prog {
    let all = |nodes: &[Node]| nodes.iter().map(|n| compile(n, c)).collect::<Box<[_]>>();
    match node {
        Node::True => Prog::True,
        Node::False => Prog::False,
        Node::And(nodes) => and(nodes, c),
        Node::Or(nodes) => Prog::Any(all(nodes)),
        Node::Nor(nodes) => Prog::None(all(nodes)),
        Node::Field { path, pred } => Prog::Field(field(path, pred, 0, c)),
        Node::Expr { expr, .. } => Prog::Expr(expr.clone()),
        Node::Doc(op) => Prog::Doc(op.clone()),
    }
}

fn and(nodes: &[Node], c: &Collation) -> Prog {
    let mut groups: Vec<(Box<[u8]>, Vec<FieldProg>)> = Vec::new();
    let mut rest = Vec::new();
    for (order, node) in nodes.iter().enumerate() {
        match node {
            Node::Field { path, pred } => {
                let f = field(path, pred, order, c);
                let known = groups.len();
                match groups.iter_mut().find(|(name, _)| *name == f.name) {
                    Some((_, fields)) => fields.push(f),
                    None if known < MAX_GROUPS => groups.push((f.name.clone(), vec![f])),
                    None => rest.push(Prog::Field(f)),
                }
            }
            other => rest.push(compile(other, c)),
        }
    }
    if !groups.is_empty() {
        let groups = groups
            .into_iter()
            .map(|(name, fields)| FieldGroup {
                name,
                fields: fields.into(),
            })
            .collect();
        rest.insert(0, Prog::Fields(groups));
    }
    match rest.len() {
        1 => rest.pop().unwrap_or(Prog::True),
        _ => Prog::All(rest.into()),
    }
}

fn field(path: &Path, pred: &Pred, order: usize, c: &Collation) -> FieldProg {
    let mut parts = path.parts().iter();
    let name = parts.next().map_or("", String::as_str).as_bytes().into();
    FieldProg {
        name,
        rest: parts
            .map(|p| Part {
                name: p.as_bytes().into(),
                index: path::array_index(p),
            })
            .collect(),
        test: test(pred, c),
        order,
    }
}

fn test(pred: &Pred, c: &Collation) -> Test {
    let cmp = |op, v| Test::Cmp(op, Operand::new(v, c));
    let all = |preds: &[Pred]| preds.iter().map(|p| test(p, c)).collect::<Box<[_]>>();
    match pred {
        Pred::Eq(v) => cmp(CmpOp::Eq, v),
        Pred::Lt(v) => cmp(CmpOp::Lt, v),
        Pred::Lte(v) => cmp(CmpOp::Lte, v),
        Pred::Gt(v) => cmp(CmpOp::Gt, v),
        Pred::Gte(v) => cmp(CmpOp::Gte, v),
        Pred::In { values, regexes } => {
            Test::In(InSet::new(values, c), regexes.clone().into_boxed_slice())
        }
        Pred::Regex(re) => Test::Regex(re.clone()),
        Pred::Exists(true) => Test::Exists,
        Pred::Exists(false) => Test::Not(Box::new(Test::Exists)),
        Pred::ElemMatchObject(node) => Test::ElemObject(Box::new(compile(node, c))),
        Pred::ElemMatchValue(preds) => Test::ElemValue(all(preds)),
        Pred::Not(p) => Test::Not(Box::new(test(p, c))),
        Pred::And(preds) => match every(preds, c) {
            Some(set) => Test::Every(set),
            None => Test::All(all(preds)),
        },
        Pred::Other(op) => Test::Op(op.clone()),
    }
}

/// From this number on, equalities on one path are looked up in a set instead of being tried one by one.
const MANY: usize = 16;

fn every(preds: &[Pred], c: &Collation) -> Option<InSet> {
    if preds.len() < MANY {
        return None;
    }
    let values: Option<Vec<ValueBuf>> = preds
        .iter()
        .map(|p| match p {
            Pred::Eq(v) => Some(v.clone()),
            _ => None,
        })
        .collect();
    Some(InSet::new(&sorted(values?, c), c))
}
