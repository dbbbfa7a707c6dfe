#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::bytes::{close, head, open};
use muniment_value::{DocBuf, MAX_DEPTH, Type, array, doc, validate_depth};

fn applied(old: Doc<'_>, diff: Doc<'_>) -> Result<DocBuf> {
    // Earlier contents of the buffer must stay.
    let mut out = b"before".to_vec();
    let result = apply(old, diff, &mut out);
    let new = out.strip_prefix(b"before").unwrap();
    assert_eq!(result.is_err(), new.is_empty());
    result.map(|()| Doc::new(new).to_buf())
}

fn encoded(old: Doc<'_>, new: Doc<'_>) -> Option<DocBuf> {
    let mut out = b"before".to_vec();
    let exact = encode(old, new, &mut out);
    let diff = out.strip_prefix(b"before").unwrap();
    assert_eq!(!exact, diff.is_empty());
    exact.then(|| {
        // A section adds a level of nesting.
        validate_depth(diff, MAX_DEPTH + 2).unwrap();
        Doc::new(diff).to_buf()
    })
}

#[test]
fn differences() {
    let old =
        doc! { "_id": 1, "a": 1, "b": doc! { "c": 1, "d": 2 }, "e": array![1, doc! { "f": 1 }, 3] };
    for (diff, new) in [
        (
            doc! { "u": doc! { "a": 2, "new": 1 } },
            doc! { "_id": 1, "a": 2, "b": doc! { "c": 1, "d": 2 }, "e": array![1, doc! { "f": 1 }, 3], "new": 1 },
        ),
        (
            doc! { "d": doc! { "a": false, "nothing": false }, "i": doc! { "b": 5 } },
            doc! { "_id": 1, "e": array![1, doc! { "f": 1 }, 3], "b": 5 },
        ),
        (
            doc! { "sb": doc! { "d": doc! { "c": false }, "i": doc! { "x": 1 } } },
            doc! { "_id": 1, "a": 1, "b": doc! { "d": 2, "x": 1 }, "e": array![1, doc! { "f": 1 }, 3] },
        ),
        (
            doc! { "se": doc! { "a": true, "u0": 9, "s1": doc! { "u": doc! { "f": 2 } }, "u4": 5 } },
            doc! { "_id": 1, "a": 1, "b": doc! { "c": 1, "d": 2 },
            "e": array![9, doc! { "f": 2 }, 3, Value::Null, 5] },
        ),
        (
            doc! { "se": doc! { "a": true, "l": 1 } },
            doc! { "_id": 1, "a": 1, "b": doc! { "c": 1, "d": 2 }, "e": array![1] },
        ),
        // Fields of another type, and absent ones, stay as they are.
        (
            doc! { "sa": doc! { "u": doc! { "x": 1 } }, "sb": doc! { "a": true, "u0": 1 },
            "sz": doc! { "u": doc! { "x": 1 } } },
            old.clone(),
        ),
    ] {
        let once = applied(old.as_doc(), diff.as_doc()).unwrap();
        assert_eq!(once, new, "{diff:?}");
        let twice = applied(once.as_doc(), diff.as_doc()).unwrap();
        assert_eq!(twice, new, "{diff:?}");
    }
    // A removed field is not changed, and fields are found in a long list as in a short one.
    let diff = doc! { "d": doc! { "a": false, "k1": false, "k2": false, "k3": false, "k4": false,
    "k5": false, "k6": false, "k7": false }, "u": doc! { "a": 7, "b": 8 }, "i": doc! { "e": 9 } };
    assert_eq!(
        applied(old.as_doc(), diff.as_doc()).unwrap(),
        doc! { "_id": 1, "b": 8, "e": 9 }
    );
}

#[test]
fn operands_that_are_no_difference_are_refused() {
    for diff in [
        doc! { "u": 1 },
        doc! { "x": doc! {} },
        doc! { "u": twice() },
        doc! { "sa": twice() },
        doc! { "sa": doc! { "a": true, "u0": 1, "u00": 2 } },
        doc! { "sa": doc! { "a": true, "u99999999999": 1 } },
        doc! { "sa": doc! { "a": true, "l": 2_000_000_000 } },
        doc! { "sa": doc! { "a": true, "s0": 1 } },
    ] {
        let old = doc! { "a": array![1] };
        let e = applied(old.as_doc(), diff.as_doc()).unwrap_err();
        assert_eq!(e.code().0, 9, "{diff:?}");
    }
    for diff in [
        doc! { "u": 1 },
        doc! { "a": true },
        doc! { "sa": doc! { "a": true, "b0": 1 } },
    ] {
        let e = describe(diff.as_doc()).unwrap_err();
        assert_eq!(e.code().0, 9, "{diff:?}");
    }
}

/// A document in which a name occurs twice.
fn twice() -> DocBuf {
    doc! { "x": 1, "x": 2 }
}

/// An array whose elements have these names.
fn named(names: &[&str]) -> ValueOf {
    let mut raw = Vec::new();
    let start = open(&mut raw);
    for (i, n) in names.iter().enumerate() {
        head(&mut raw, Type::Int32, n.as_bytes());
        raw.extend_from_slice(&(i as u32).to_le_bytes());
    }
    close(&mut raw, start);
    ValueOf(raw)
}

/// The bytes of an array.
#[derive(Clone)]
struct ValueOf(Vec<u8>);

impl muniment_value::Put for ValueOf {
    fn put_type(&self) -> Type {
        Type::Array
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

#[test]
fn found() {
    let long = "a string that is longer than what the difference needs";
    for (old, new, diff) in [
        // The documents are empty, or have nothing in common.
        (doc! {}, doc! {}, doc! {}),
        (
            doc! { "a": array![doc! {}] },
            doc! { "a": array![doc! {}] },
            doc! {},
        ),
        (doc! { "b": 1 }, doc! {}, doc! { "d": doc! { "b": false } }),
        (doc! {}, doc! { "b": 1 }, doc! { "i": doc! { "b": 1 } }),
        (
            doc! { "a": 1, "b": 2 },
            doc! { "A": 1, "B": 2 },
            doc! { "d": doc! { "a": false, "b": false }, "i": doc! { "A": 1, "B": 2 } },
        ),
        // A new field before the others moves them.
        (
            doc! { "b": 1, "c": 1 },
            doc! { "a": 1, "b": 1, "c": 1 },
            doc! { "i": doc! { "a": 1, "b": 1, "c": 1 } },
        ),
        (
            doc! { "a": 1, "b": 2, "c": 3, "d": 4 },
            doc! { "b": 2, "c": 3, "d": 4, "a": 1 },
            doc! { "i": doc! { "a": 1 } },
        ),
        (
            doc! { "a": 1, "b": 2, "c": 3 },
            doc! { "c": 3, "b": 2, "a": 1 },
            doc! { "i": doc! { "b": 2, "a": 1 } },
        ),
        // Removed fields come by name, but those at the end come first, in their order.
        (
            doc! { "b": 1, "a": 2, "c": 3, "d": 4 },
            doc! { "c": 3, "d": 4 },
            doc! { "d": doc! { "a": false, "b": false } },
        ),
        (
            doc! { "b": 1, "a": 2, "c": "value", "g": 1, "f": 1 },
            doc! { "c": "value" },
            doc! { "d": doc! { "g": false, "f": false, "a": false, "b": false } },
        ),
        // A value of another type is another value, and a field can become a document or stop being one.
        (
            doc! { "a": 1, "c": doc! { "x": 1, "y": 3.0 }, "d": 4 },
            doc! { "a": 1, "c": doc! { "x": 1, "y": 3_i64 }, "d": 4 },
            doc! { "u": doc! { "c": doc! { "x": 1, "y": 3_i64 } } },
        ),
        (
            doc! { "c": doc! { "sub1": 1, "sub2": 3.0, "sub3": 5 } },
            doc! { "c": doc! { "sub1": 1, "sub2": 3, "sub3": 5 } },
            doc! { "sc": doc! { "u": doc! { "sub2": 3 } } },
        ),
        (
            doc! { "a": doc! { "0": 1 }, "b": 1, "c": array![] },
            doc! { "a": array![1], "b": doc! {}, "c": doc! {} },
            doc! { "u": doc! { "a": array![1], "b": doc! {}, "c": doc! {} } },
        ),
        (
            doc! { "a": Value::Null, "b": Value::Null, "c": "value" },
            doc! { "a": Value::Null, "b": Value::Undefined, "c": "value" },
            doc! { "u": doc! { "b": Value::Undefined } },
        ),
        (
            doc! { "a": 1, "c": doc! { "p": 1, "q": 1, "s": 1, "r": 2 }, "d": 4 },
            doc! { "a": 1, "c": doc! { "p": 1, "q": 1, "r": 2, "s": 1 }, "d": 4 },
            doc! { "sc": doc! { "i": doc! { "s": 1 } } },
        ),
        // These are arrays.
        (
            doc! { "field1": "abcd", "field2": array![1, 2, 3] },
            doc! { "field1": "abcd", "field2": array![1, 2, 3, 4] },
            doc! { "sfield2": doc! { "a": true, "u3": 4 } },
        ),
        (
            doc! { "f": array![1, 2, 3, array![array![2]]] },
            doc! { "f": array![1, 2, 3, array![array![4]]] },
            doc! { "sf": doc! { "a": true, "u3": array![array![4]] } },
        ),
        (
            doc! { "f": array![1, 2, 3, array![1, long, array![2], 4, 5, 6], 5, 5, 5] },
            doc! { "f": array![1, 2, 3, array![1, long, array![4], 4], 5, 6] },
            doc! { "sf": doc! { "a": true, "l": 6,
            "s3": doc! { "a": true, "l": 4, "u2": array![4] }, "u5": 6 } },
        ),
        (
            doc! { "f": array![1, doc! { "g": array![long, 2, 3, 4] }] },
            doc! { "f": array![1, doc! { "g": array![long, 2, 4, 3, 5] }] },
            doc! { "sf": doc! { "a": true,
            "s1": doc! { "sg": doc! { "a": true, "u2": 4, "u3": 3, "u4": 5 } } } },
        ),
        (
            doc! { "f": array![1, doc! { "g": array![2, 3, 4, 5] }] },
            doc! { "f": array![1, doc! { "g": array![1, 2, 3, 4, 5] }] },
            doc! { "sf": doc! { "a": true, "u1": doc! { "g": array![1, 2, 3, 4, 5] } } },
        ),
        (
            doc! { "f": array![1, 2, 3, 4, 5, 6, doc! { "a": 1, "b": 2, "c": 3, "d": 4 }, 7] },
            doc! { "f": array![1, 2, 3, 4, 5, 6, doc! { "p": 1, "q": 2 }, 7] },
            doc! { "sf": doc! { "a": true, "u6": doc! { "p": 1, "q": 2 } } },
        ),
        (
            doc! { "f": array![long] },
            doc! { "f": array![] },
            doc! { "u": doc! { "f": array![] } },
        ),
        // Names can be of any kind. The sections have a fixed order, whatever was found first.
        (
            doc! { "s": doc! { "d": 1, "t": long }, "": 1, "a": true, "d.e": 1, "$x": 1, "u": 5 },
            doc! { "s": doc! { "d": 2, "t": long }, "": 2, "a": true, "$x": 2, "u": 5, "i": 1 },
            doc! { "d": doc! { "d.e": false }, "u": doc! { "": 2, "$x": 2 }, "i": doc! { "i": 1 },
            "ss": doc! { "u": doc! { "d": 2 } } },
        ),
        (
            doc! { "": doc! { "a": 1, "t": long } },
            doc! { "": doc! { "a": 2, "t": long } },
            doc! { "s": doc! { "u": doc! { "a": 2 } } },
        ),
        // A name may occur twice in fields that do not change, and below a field.
        (
            doc! { "x": 1, "x": 2, "y": 1 },
            doc! { "x": 1, "x": 2, "y": 2 },
            doc! { "u": doc! { "y": 2 } },
        ),
        (
            doc! { "a": twice() },
            doc! { "a": doc! { "x": 1, "x": 3 } },
            doc! { "u": doc! { "a": doc! { "x": 1, "x": 3 } } },
        ),
        // The elements do not have the names of array elements.
        (
            doc! { "a": named(&["0", "2", "1", "3", "4"]) },
            doc! { "a": array![0, 1, 2, 3, 4] },
            doc! { "sa": doc! { "a": true } },
        ),
        (
            doc! { "a": array![0, 1, 2, 3, 4] },
            doc! { "a": named(&["0", "1", "2", "3", "x"]) },
            doc! { "u": doc! { "a": named(&["0", "1", "2", "3", "x"]) } },
        ),
    ] {
        let got = encoded(old.as_doc(), new.as_doc());
        assert_eq!(got.as_ref(), Some(&diff), "{old:?} -> {new:?}");
        assert_eq!(applied(old.as_doc(), diff.as_doc()).unwrap(), new);
        assert_eq!(applied(new.as_doc(), diff.as_doc()).unwrap(), new);
    }
}

#[test]
fn repeated_names_cannot_be_told_apart() {
    for (old, new) in [
        (twice(), doc! { "x": 1, "x": 3 }),
        (twice(), doc! { "x": 1 }),
        (twice(), doc! {}),
        (doc! {}, twice()),
        (doc! { "x": 1 }, twice()),
        (doc! { "x": 1, "y": 1 }, doc! { "y": 1, "x": 1, "x": 1 }),
    ] {
        assert_eq!(
            encoded(old.as_doc(), new.as_doc()),
            None,
            "{old:?} -> {new:?}"
        );
    }
}

#[test]
fn deep_and_long_documents() {
    let text = "text".repeat(1_000);
    let nest = |depth: usize, n: i32| {
        (0..depth).fold(doc! { "n": n, "t": text.as_str() }, |d, level| {
            match level % 2 {
                0 => doc! { "x": d },
                _ => doc! { "y": array![1, d] },
            }
        })
    };
    let (old, new) = (nest(119, 1), nest(119, 2));
    let diff = encoded(old.as_doc(), new.as_doc()).unwrap();
    assert!(diff.len() * 2 < old.len(), "{}", diff.len());
    assert_eq!(applied(old.as_doc(), diff.as_doc()).unwrap(), new);
    // A difference cannot name elements this far away.
    let long = |last: i32| {
        let mut raw = Vec::new();
        let start = open(&mut raw);
        for i in 0..=MAX_LENGTH {
            let name = crate::bytes::IndexName::new(i);
            match i == MAX_LENGTH {
                true => {
                    head(&mut raw, Type::Int32, name.as_bytes());
                    raw.extend_from_slice(&last.to_le_bytes());
                }
                false => head(&mut raw, Type::Null, name.as_bytes()),
            }
        }
        close(&mut raw, start);
        doc! { "a": ValueOf(raw) }
    };
    let (old, new) = (long(1), long(2));
    let diff = encoded(old.as_doc(), new.as_doc()).unwrap();
    assert!(diff.as_doc().get_doc("u").is_some());
    assert_eq!(applied(old.as_doc(), diff.as_doc()).unwrap(), new);
}

/// Pseudo-random numbers that are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn of(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// A tree of values for a document, in which names may occur twice.
#[derive(Clone, PartialEq)]
enum Tree {
    Int(i32),
    Text(&'static str),
    Null,
    Below(Type, Vec<(String, Tree)>),
}

const NAMES: [&str; 12] = ["a", "b", "d", "i", "u", "l", "s", "", "0", "1", "sa", "a.b"];

/// Whether random documents may have unusual features.
#[derive(Clone, Copy)]
struct Odd(bool);

fn fields(c: &mut Chance, depth: u64, ty: Type, odd: Odd) -> Vec<(String, Tree)> {
    // Sometimes there are more fields than a list holds without an allocation.
    let most = if c.of(6) { 13 } else { 5 };
    let mut of = Vec::new();
    for i in 0..c.below(most) {
        let tree = tree(c, depth, odd);
        of.push((name(c, ty, i as usize, odd), tree));
    }
    tidy(&mut of, ty, odd);
    of
}

fn name(c: &mut Chance, ty: Type, i: usize, odd: Odd) -> String {
    match ty == Type::Array && !(odd.0 && c.of(8)) {
        true => i.to_string(),
        false => NAMES[c.below(12) as usize].to_string(),
    }
}

/// Removes unusual features: each name is left once, and array elements get their usual names.
fn tidy(of: &mut Vec<(String, Tree)>, ty: Type, odd: Odd) {
    if odd.0 {
        return;
    }
    if ty == Type::Array {
        for (i, (name, _)) in of.iter_mut().enumerate() {
            *name = i.to_string();
        }
    }
    let mut seen = std::collections::HashSet::new();
    of.retain(|(name, _)| seen.insert(name.clone()));
}

fn tree(c: &mut Chance, depth: u64, odd: Odd) -> Tree {
    match c.below(if depth == 0 { 4 } else { 8 }) {
        0 | 1 => Tree::Int(c.below(3) as i32),
        2 => Tree::Text(["", "x", "a text of some length"][c.below(3) as usize]),
        3 => Tree::Null,
        4 | 5 => Tree::Below(Type::Array, fields(c, depth - 1, Type::Array, odd)),
        _ => Tree::Below(Type::Document, fields(c, depth - 1, Type::Document, odd)),
    }
}

fn mutate(c: &mut Chance, of: &mut Vec<(String, Tree)>, depth: u64, ty: Type, odd: Odd) {
    for _ in 0..=c.below(3) {
        let n = of.len() as u64;
        let at = c.below(n.max(1)) as usize;
        match c.below(8) {
            0 => {
                let new = (name(c, ty, of.len(), odd), tree(c, depth, odd));
                of.push(new);
            }
            1 => {
                let new = (name(c, ty, at, odd), tree(c, depth, odd));
                of.insert(at.min(of.len()), new);
            }
            _ if n == 0 => {}
            2 => {
                of.remove(at);
            }
            3 => of.swap(at, c.below(n) as usize),
            4 => of.truncate(at),
            5 => of[at].1 = tree(c, depth, odd),
            6 if odd.0 => of[at].0 = name(c, ty, at, odd),
            _ => {
                for (_, t) in &mut *of {
                    match t {
                        Tree::Below(ty, of) if depth > 0 && c.of(2) => {
                            if c.of(10) {
                                *ty = match ty {
                                    Type::Array => Type::Document,
                                    _ => Type::Array,
                                };
                            }
                            mutate(c, of, depth - 1, *ty, odd);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    tidy(of, ty, odd);
}

fn write(of: &[(String, Tree)], out: &mut Vec<u8>) {
    let start = open(out);
    for (name, t) in of {
        let name = name.as_bytes();
        match t {
            Tree::Int(n) => crate::bytes::put(out, name, n),
            Tree::Text(s) => crate::bytes::put(out, name, *s),
            Tree::Null => head(out, Type::Null, name),
            Tree::Below(ty, of) => {
                head(out, *ty, name);
                write(of, out);
            }
        }
    }
    close(out, start);
}

/// Whether two of the fields have the same name.
fn repeats(of: &[(String, Tree)]) -> bool {
    of.iter()
        .enumerate()
        .any(|(i, (a, _))| of.iter().take(i).any(|(b, _)| a == b))
}

#[test]
fn the_difference_makes_the_new_document() {
    let mut exact_of_odd = 0;
    let mut not_exact = 0;
    let mut below = 0;
    for seed in 1..=40_000_u64 {
        let mut c = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let odd = Odd(seed % 2 == 0);
        let a = fields(&mut c, 4, Type::Document, odd);
        let b = match c.of(4) {
            true => fields(&mut c, 4, Type::Document, odd),
            false => {
                let mut b = a.clone();
                mutate(&mut c, &mut b, 4, Type::Document, odd);
                b
            }
        };
        let (mut old, mut new) = (Vec::new(), Vec::new());
        write(&a, &mut old);
        write(&b, &mut new);
        let (old, new) = (Doc::new(&old), Doc::new(&new));
        let Some(diff) = encoded(old, new) else {
            assert!(repeats(&a) || repeats(&b), "{seed}: {old:?} -> {new:?}");
            not_exact += 1;
            continue;
        };
        exact_of_odd += usize::from(repeats(&a) || repeats(&b));
        below += usize::from(diff.as_doc().iter().any(|e| e.name().starts_with('s')));
        for from in [old, new] {
            let got = applied(from, diff.as_doc()).unwrap();
            assert!(
                got.as_bytes() == new.as_bytes(),
                "{seed}: {from:?} and {diff:?} give {got:?}, not {new:?}"
            );
        }
        assert_eq!(diff.as_doc().is_empty(), old.as_bytes() == new.as_bytes());
        describe(diff.as_doc()).unwrap();
    }
    // Each kind must have occurred often.
    let seen = [exact_of_odd, not_exact, below];
    assert!(seen.iter().all(|n| *n > 500), "{seen:?}");
}

#[test]
fn described() {
    let none = || (doc! {}, array![], array![], doc! {});
    let text = |d: &dyn std::fmt::Debug| format!("{d:?}");
    for (diff, (updated, removed, truncated, paths)) in [
        (doc! {}, none()),
        // At each level, updates come first, then inserts, removed fields, and the changes below.
        (
            doc! { "d": doc! { "z": false, "y": false }, "u": doc! { "b": 1 }, "i": doc! { "a": 2 },
            "sn": doc! { "d": doc! { "x": false }, "u": doc! { "y": doc! { "q": 1 } } } },
            (
                doc! { "b": 1, "a": 2, "n.y": doc! { "q": 1 } },
                array!["z", "y", "n.x"],
                array![],
                doc! {},
            ),
        ),
        (
            doc! { "sa": doc! { "a": true, "l": 4, "s0": doc! { "u": doc! { "b": 1 } }, "u3": 7 } },
            (
                doc! { "a.0.b": 1, "a.3": 7 },
                array![],
                array![doc! { "field": "a", "newSize": 4 }],
                doc! {},
            ),
        ),
        (
            doc! { "u": doc! { "a.b": 1 }, "sc.d.": doc! { "u": doc! { "e": 1, "f.g": 1 },
            "sh": doc! { "u": doc! { "i.j": 1 } } }, "sk": doc! { "u": doc! { "l.m": 1 } } },
            (
                doc! { "a.b": 1, "c.d..e": 1, "c.d..f.g": 1, "c.d..h.i.j": 1, "k.l.m": 1 },
                array![],
                array![],
                doc! { "a.b": array!["a.b"], "c.d..e": array!["c.d.", "e"],
                "c.d..f.g": array!["c.d.", "f.g"], "c.d..h.i.j": array!["c.d.", "h", "i.j"],
                "k.l.m": array!["k", "l.m"] },
            ),
        ),
        // A number is a name at the top level, and if it has a leading zero.
        (
            doc! { "u": doc! { "0": 1 }, "sa": doc! { "u": doc! { "0": 1, "01": 1, "99999999999": 1 } } },
            (
                doc! { "0": 1, "a.0": 1, "a.01": 1, "a.99999999999": 1 },
                array![],
                array![],
                doc! { "a.0": array!["a", "0"], "a.99999999999": array!["a", "99999999999"] },
            ),
        ),
        (
            doc! { "sa": doc! { "s0": doc! { "a": true, "u0": 1 } } },
            (
                doc! { "a.0.0": 1 },
                array![],
                array![],
                doc! { "a.0.0": array!["a", "0", 0] },
            ),
        ),
        (
            doc! { "d": doc! { "a.b": false }, "sc": doc! { "d": doc! { "0": false } } },
            (
                doc! {},
                array!["a.b", "c.0"],
                array![],
                doc! { "a.b": array!["a.b"], "c.0": array!["c", "0"] },
            ),
        ),
        (
            doc! { "sa.b": doc! { "a": true, "l": 5 }, "sc": doc! { "s0": doc! { "a": true, "l": 5 } } },
            (
                doc! {},
                array![],
                array![
                    doc! { "field": "a.b", "newSize": 5 },
                    doc! { "field": "c.0", "newSize": 5 }
                ],
                doc! { "a.b": array!["a.b"], "c.0": array!["c", "0"] },
            ),
        ),
        (
            doc! { "sa.b": doc! { "a": true, "s0": doc! { "u": doc! { "1": 1 } } },
            "sc": doc! { "a": true, "s0": doc! { "u": doc! { "d.e": 1 } }, "s1": doc! { "u": doc! { "2": 1 } } },
            "sf": doc! { "s1": doc! { "u": doc! { "g.h": 1 },
            "s2": doc! { "a": true, "u3": 1, "s4": doc! { "u": doc! { "5": 1 } } } } } },
            (
                doc! { "a.b.0.1": 1, "c.0.d.e": 1, "c.1.2": 1, "f.1.g.h": 1, "f.1.2.3": 1, "f.1.2.4.5": 1 },
                array![],
                array![],
                doc! { "a.b.0.1": array!["a.b", 0, "1"], "c.0.d.e": array!["c", 0, "d.e"],
                "c.1.2": array!["c", 1, "2"], "f.1.g.h": array!["f", "1", "g.h"],
                "f.1.2.3": array!["f", "1", "2", 3], "f.1.2.4.5": array!["f", "1", "2", 4, "5"] },
            ),
        ),
        // These two paths have the same text.
        (
            doc! { "u": doc! { "a.b": 2 }, "sa": doc! { "u": doc! { "b": 1 } } },
            (
                doc! { "a.b": 2, "a.b": 1 },
                array![],
                array![],
                doc! { "a.b": array!["a.b"] },
            ),
        ),
    ] {
        let d = describe(diff.as_doc()).unwrap();
        assert_eq!(d.updated_fields, updated, "{diff:?}");
        assert_eq!(text(&d.removed_fields), text(&removed), "{diff:?}");
        assert_eq!(text(&d.truncated_arrays), text(&truncated), "{diff:?}");
        assert_eq!(d.disambiguated_paths, paths, "{diff:?}");
        let names = |expanded| -> Vec<String> {
            let d = d.to_doc(expanded);
            d.as_doc().iter().map(|e| e.name().to_string()).collect()
        };
        let mut all = vec!["updatedFields", "removedFields", "truncatedArrays"];
        assert_eq!(names(false), all);
        all.push("disambiguatedPaths");
        assert_eq!(names(true), all);
    }
}
