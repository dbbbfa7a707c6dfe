//! Compares the one-pass update with a slow implementation on a tree, for random documents and random updates
//! of `$set`, `$unset`, `$inc` and `$push`. Projections are compared in the same way.
#![allow(clippy::unwrap_used, clippy::panic)]

use muniment_query::running::Work;
use muniment_query::{MatchInfo, Projection, QueryContext, Update};
use muniment_value::{ArrayBuf, Doc, DocBuf, Put, Type, Value, ValueBuf};
use proptest::prelude::*;

/// A document as a tree.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Int(i32),
    Text(String),
    Null,
    Doc(Vec<(String, Tree)>),
    Array(Vec<Tree>),
}

impl Put for Tree {
    fn put_type(&self) -> Type {
        match self {
            Tree::Int(_) => Type::Int32,
            Tree::Text(_) => Type::String,
            Tree::Null => Type::Null,
            Tree::Doc(_) => Type::Document,
            Tree::Array(_) => Type::Array,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Tree::Int(n) => n.put(out),
            Tree::Text(s) => s.put(out),
            Tree::Null => {}
            Tree::Doc(fields) => {
                let mut d = DocBuf::new();
                for (name, v) in fields {
                    d.append_ref(name, v);
                }
                d.put(out);
            }
            Tree::Array(items) => {
                let a: ArrayBuf = items.iter().collect();
                a.put(out);
            }
        }
    }
}

fn bytes(t: &Tree) -> DocBuf {
    let mut out = Vec::new();
    t.put(&mut out);
    DocBuf::from_bytes_trusted(out)
}

fn tree(v: Value<'_>) -> Tree {
    match v {
        Value::Int32(n) => Tree::Int(n),
        Value::String(s) => Tree::Text(s.to_string()),
        Value::Null => Tree::Null,
        Value::Document(d) => Tree::Doc(
            d.iter()
                .map(|e| (e.name().to_string(), tree(e.value())))
                .collect(),
        ),
        Value::Array(d) => Tree::Array(d.values().map(tree).collect()),
        other => panic!("no such value is made here: {other:?}"),
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "0", "1"];

fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        (-3..3).prop_map(Tree::Int),
        "[xy]{0,3}".prop_map(Tree::Text),
        Just(Tree::Null),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            fields(inner.clone()).prop_map(Tree::Doc),
            prop::collection::vec(inner, 0..4).prop_map(Tree::Array),
        ]
    })
}

fn fields(
    inner: impl Strategy<Value = Tree> + 'static,
) -> impl Strategy<Value = Vec<(String, Tree)>> {
    (
        prop::sample::subsequence(&NAMES[..], 0..5),
        prop::collection::vec(inner, 5),
    )
        .prop_map(|(names, values)| {
            names
                .into_iter()
                .map(str::to_string)
                .zip(values)
                .collect::<Vec<_>>()
        })
}

fn any_doc() -> impl Strategy<Value = Tree> {
    fields(any_tree()).prop_map(Tree::Doc)
}

fn any_path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&NAMES[..]), 1..4).prop_map(|p| p.join("."))
}

#[derive(Clone, Debug)]
enum Op {
    Set(Tree),
    Unset,
    Inc(i32),
    Push(Tree),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        any_tree().prop_map(Op::Set),
        Just(Op::Unset),
        (-2..3).prop_map(Op::Inc),
        any_tree()
            .prop_filter("would be read as $each", |t| !matches!(t, Tree::Doc(_)))
            .prop_map(Op::Push),
    ]
}

/// The order in which MongoDB applies an update's paths.
fn order(a: &str, b: &str) -> std::cmp::Ordering {
    for (x, y) in a.split('.').zip(b.split('.')) {
        let o = match (x.parse::<u32>(), y.parse::<u32>()) {
            (Ok(m), Ok(n)) => m.cmp(&n),
            (Ok(_), Err(_)) => std::cmp::Ordering::Less,
            (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
            (Err(_), Err(_)) => x.cmp(y),
        };
        if o.is_ne() {
            return o;
        }
    }
    a.split('.').count().cmp(&b.split('.').count())
}

/// The slow update of one path. It fails if MongoDB does.
fn slow(t: &mut Tree, path: &[&str], op: &Op) -> Result<(), ()> {
    let (name, rest) = path.split_first().unwrap();
    match t {
        Tree::Doc(fields) => {
            let at = fields.iter().position(|(n, _)| n == name);
            match (at, rest.is_empty()) {
                (Some(at), true) => match leaf(Some(&fields[at].1), op)? {
                    Some(v) => fields[at].1 = v,
                    None => {
                        fields.remove(at);
                    }
                },
                (Some(at), false) => slow(&mut fields[at].1, rest, op)?,
                (None, true) => {
                    if let Some(v) = leaf(None, op)? {
                        fields.push((name.to_string(), v));
                    }
                }
                (None, false) => {
                    if !matches!(op, Op::Unset) {
                        let mut new = Tree::Doc(Vec::new());
                        slow(&mut new, rest, op)?;
                        fields.push((name.to_string(), new));
                    }
                }
            }
            Ok(())
        }
        Tree::Array(items) => {
            let Ok(i) = name.parse::<usize>() else {
                return if matches!(op, Op::Unset) {
                    Ok(())
                } else {
                    Err(())
                };
            };
            if i < items.len() {
                if rest.is_empty() {
                    items[i] = leaf(Some(&items[i]), op)?.unwrap_or(Tree::Null);
                    return Ok(());
                }
                return slow(&mut items[i], rest, op);
            }
            if matches!(op, Op::Unset) {
                return Ok(());
            }
            let new = if rest.is_empty() {
                leaf(None, op)?.unwrap()
            } else {
                let mut new = Tree::Doc(Vec::new());
                slow(&mut new, rest, op)?;
                new
            };
            items.resize(i, Tree::Null);
            items.push(new);
            Ok(())
        }
        _ if matches!(op, Op::Unset) => Ok(()),
        _ => Err(()),
    }
}

/// The operator's result for a value; `None` means that there is no field.
fn leaf(old: Option<&Tree>, op: &Op) -> Result<Option<Tree>, ()> {
    Ok(match (op, old) {
        (Op::Set(v), _) => Some(v.clone()),
        (Op::Unset, _) => None,
        (Op::Inc(n), None) => Some(Tree::Int(*n)),
        (Op::Inc(n), Some(Tree::Int(m))) => Some(Tree::Int(n + m)),
        (Op::Push(v), None) => Some(Tree::Array(vec![v.clone()])),
        (Op::Push(v), Some(Tree::Array(items))) => {
            let mut items = items.clone();
            items.push(v.clone());
            Some(Tree::Array(items))
        }
        _ => return Err(()),
    })
}

fn conflicts(paths: &[(String, Op)]) -> bool {
    let below = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|r| r.starts_with('.'));
    paths.iter().enumerate().any(|(i, (p, _))| {
        paths
            .iter()
            .take(i)
            .any(|(q, _)| below(p, q) || below(q, p))
    })
}

fn update_doc(ops: &[(String, Op)]) -> DocBuf {
    let mut by_name: [(&str, DocBuf); 4] = [
        ("$set", DocBuf::new()),
        ("$unset", DocBuf::new()),
        ("$inc", DocBuf::new()),
        ("$push", DocBuf::new()),
    ];
    for (path, op) in ops {
        match op {
            Op::Set(v) => by_name[0].1.append_ref(path, v),
            Op::Unset => by_name[1].1.append(path, ""),
            Op::Inc(n) => by_name[2].1.append(path, *n),
            Op::Push(v) => by_name[3].1.append_ref(path, v),
        };
    }
    let mut u = DocBuf::new();
    for (name, d) in by_name {
        u.append(name, d);
    }
    u
}

/// A slow projection by paths.
fn project(t: &Tree, paths: &[Vec<&str>], include: bool) -> Tree {
    let Tree::Doc(fields) = t else { panic!() };
    let mut out = Vec::new();
    for (name, v) in fields {
        let mine: Vec<Vec<&str>> = paths
            .iter()
            .filter(|p| p[0] == name)
            .map(|p| p[1..].to_vec())
            .collect();
        if mine.is_empty() {
            if !include {
                out.push((name.clone(), v.clone()));
            }
        } else if mine.iter().any(Vec::is_empty) {
            if include {
                out.push((name.clone(), v.clone()));
            }
        } else if let Some(v) = project_value(v, &mine, include) {
            out.push((name.clone(), v));
        }
    }
    Tree::Doc(out)
}

fn project_value(v: &Tree, paths: &[Vec<&str>], include: bool) -> Option<Tree> {
    match v {
        Tree::Doc(_) => Some(project(v, paths, include)),
        Tree::Array(items) => Some(Tree::Array(
            items
                .iter()
                .filter_map(|i| project_value(i, paths, include))
                .collect(),
        )),
        _ if include => None,
        _ => Some(v.clone()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn one_pass_updates_agree_with_the_tree(
        doc in any_doc(),
        ops in prop::collection::vec((any_path(), any_op()), 1..5),
    ) {
        let before = bytes(&doc);
        let u = update_doc(&ops);
        let parsed = Update::parse(
            Value::Document(u.as_doc()),
            Doc::EMPTY,
            &QueryContext::new(),
        );
        if conflicts(&ops) {
            prop_assert_eq!(parsed.unwrap_err().code().0, 40);
            return Ok(());
        }
        let update = parsed.unwrap();
        let mut ops = ops;
        ops.sort_by(|a, b| order(&a.0, &b.0));
        let mut want = doc.clone();
        let mut ok = true;
        for (path, op) in &ops {
            let path: Vec<&str> = path.split('.').collect();
            ok &= slow(&mut want, &path, op).is_ok();
        }
        let mut out = Vec::new();
        let got = update.apply(before.as_doc(), MatchInfo::default(), &mut out, Work::unasked());
        prop_assert_eq!(got.is_ok(), ok, "{:?}", got);
        if let Ok(changed) = got {
            let after = if changed { DocBuf::from_bytes_trusted(out) } else { before.clone() };
            prop_assert!(muniment_value::validate(after.as_bytes()).is_ok());
            prop_assert_eq!(tree(Value::Document(after.as_doc())), want.clone());
            prop_assert_eq!(changed, want != doc);
            prop_assert!(after.as_bytes() == bytes(&want).as_bytes(), "the bytes are canonical");
            if changed {
                prop_assert!(ops.iter().any(|(p, _)| update.may_touch(p)));
            }
        } else {
            prop_assert!(out.is_empty());
        }
    }

    #[test]
    fn one_pass_projections_agree_with_the_tree(
        doc in any_doc(),
        paths in prop::collection::vec(any_path(), 1..4),
        include: bool,
    ) {
        let mut spec = DocBuf::new();
        spec.append("_id", false);
        for p in &paths {
            spec.append(p, include);
        }
        let Ok(p) = Projection::parse(spec.as_doc(), None, &QueryContext::new()) else {
            let below = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|r| r.starts_with('.'));
            let collide = paths.iter().enumerate().any(|(i, p)| {
                paths.iter().take(i).any(|q| below(p, q) || below(q, p))
            });
            prop_assert!(collide);
            return Ok(());
        };
        let split: Vec<Vec<&str>> = paths.iter().map(|p| p.split('.').collect()).collect();
        let want = bytes(&project(&doc, &split, include));
        let mut out = Vec::new();
        p.apply(bytes(&doc).as_doc(), MatchInfo::default(), &mut out, Work::unasked()).unwrap();
        prop_assert_eq!(tree(Value::Document(Doc::new(&out))), tree(Value::Document(want.as_doc())));
        prop_assert_eq!(out.as_slice(), want.as_bytes());
    }

    #[test]
    fn whatever_the_update_it_never_panics(u in any_update(), d in any_update()) {
        let ctx = QueryContext::new();
        if let Ok(update) = Update::parse(u.as_value(), Doc::EMPTY, &ctx)
            && let Value::Document(d) = d.as_value()
        {
            let mut out = Vec::new();
            if update.apply(d, MatchInfo { array_index: Some(0) }, &mut out, Work::unasked()).is_ok_and(|c| c) {
                prop_assert!(muniment_value::validate(&out).is_ok());
            }
        }
    }
}

/// Values that look like updates: operators over paths and any small values.
fn any_update() -> impl Strategy<Value = ValueBuf> {
    let operators: Vec<&'static str> = muniment_query::update::registry()
        .iter()
        .map(|s| s.name)
        .collect();
    let path = prop_oneof![
        any_path(),
        Just("a.$".to_string()),
        Just("a.$[].b".to_string()),
        Just("_id".to_string()),
        Just("a..b".to_string()),
    ];
    let operand = prop_oneof![
        any_tree().prop_map(|t| ValueBuf::new(&t)),
        any_tree().prop_map(|t| {
            let mut d = DocBuf::new();
            d.append_ref("$each", &t);
            d.append("$slice", 2);
            ValueBuf::new(d)
        }),
        Just(ValueBuf::new("b.c")),
        Just(ValueBuf::new(1.5)),
    ];
    let one = (prop::sample::select(operators), path, operand).prop_map(|(op, p, v)| {
        let mut inner = DocBuf::new();
        inner.append(&p, v);
        let mut d = DocBuf::new();
        d.append(op, inner);
        ValueBuf::new(d)
    });
    prop_oneof![one, any_doc().prop_map(|t| ValueBuf::new(&t))]
}
