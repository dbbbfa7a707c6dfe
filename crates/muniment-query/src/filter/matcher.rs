//! Runs a compiled filter over a raw document.

use super::compile::{FieldGroup, FieldProg, Prog, Test};
use super::operand::{InSet, string_bytes};
use super::regex::Regex;
use super::walk::{inner, lookup, walk};
use crate::context::MatchInfo;
use crate::expr::{EvalContext, arena};
use crate::running::Work;
use muniment_value::{Doc, Elem, Error, Result, Type, Value};

/// The state of a match.
struct Env<'o> {
    work: Work<'o>,
    /// Whether to record the index of the matched array element, which the positional operator needs.
    record: bool,
    index: Option<usize>,
    /// The first error. If there is one, the result of the match is void.
    error: Option<Error>,
}

impl<'o> Env<'o> {
    #[inline]
    fn new(work: Work<'o>, record: bool) -> Env<'o> {
        Env {
            work,
            record,
            index: None,
            error: None,
        }
    }

    /// The answer of a test that may fail. An error counts as no, and is kept; after one, no such test runs
    /// any more, so that an operation that was ended does not go through the rest of a large document.
    #[inline]
    fn ask(&mut self, test: impl FnOnce(Work<'o>) -> Result<bool>) -> bool {
        if self.error.is_some() {
            return false;
        }
        test(self.work).unwrap_or_else(|error| {
            self.error = Some(error);
            false
        })
    }

    fn result(self, matched: bool) -> Result<Option<MatchInfo>> {
        match self.error {
            Some(e) => Err(e),
            None => Ok(matched.then_some(MatchInfo {
                array_index: self.index,
            })),
        }
    }

    /// Runs `f` without recording, because `$or`, `$nor` and `$not` do not determine the positional
    /// operator's element.
    #[inline]
    fn quietly<T>(&mut self, f: impl FnOnce(&mut Env<'o>) -> T) -> T {
        let record = std::mem::replace(&mut self.record, false);
        let out = f(self);
        self.record = record;
        out
    }
}

#[inline]
pub(super) fn matches(prog: &Prog, doc: Doc<'_>, work: Work<'_>) -> Result<bool> {
    let mut env = Env::new(work, false);
    let matched = run(prog, doc, &mut env);
    match env.error {
        Some(e) => Err(e),
        None => Ok(matched),
    }
}

pub(super) fn matches_info(prog: &Prog, doc: Doc<'_>, work: Work<'_>) -> Result<Option<MatchInfo>> {
    let mut env = Env::new(work, true);
    let matched = run(prog, doc, &mut env);
    env.result(matched)
}

fn run(prog: &Prog, doc: Doc<'_>, env: &mut Env<'_>) -> bool {
    match prog {
        Prog::Field(f) => field(f, lookup(doc, &f.name), env),
        Prog::Fields(groups) => fields(groups, doc, env),
        Prog::True => true,
        Prog::False => false,
        Prog::All(progs) => progs.iter().all(|p| run(p, doc, env)),
        Prog::Any(progs) => env.quietly(|env| progs.iter().any(|p| run(p, doc, env))),
        Prog::None(progs) => env.quietly(|env| !progs.iter().any(|p| run(p, doc, env))),
        Prog::Doc(op) => env.ask(|work| op.matches(doc, work)),
        Prog::Expr(e) => env.ask(|work| {
            arena::with_arena(work, |a| {
                e.eval(&EvalContext::new(doc, a))
                    .map(|v| v.is_some_and(|v| v.truthy()))
            })
        }),
    }
}

/// One pass over the document's elements for all groups.
fn fields(groups: &[FieldGroup], doc: Doc<'_>, env: &mut Env<'_>) -> bool {
    // The last condition, in the order in which they were written, that matched through an array determines
    // the index.
    let mut last: Option<(usize, usize)> = None;
    let mut group = |g: &FieldGroup, e: Option<Elem<'_>>, env: &mut Env<'_>| {
        g.fields.iter().all(|f| {
            let before = env.index.take();
            let ok = field(f, e, env);
            if let Some(i) = env.index {
                if last.is_none_or(|(order, _)| order <= f.order) {
                    last = Some((f.order, i));
                }
            } else {
                env.index = before;
            }
            ok
        })
    };
    let mut pending: u64 = u64::MAX >> (64 - groups.len().clamp(1, 64));
    for e in doc {
        let name = e.name_bytes();
        for (i, g) in groups.iter().enumerate() {
            // If several fields have the same name, the first one counts.
            if *g.name == *name && pending >> i & 1 == 1 {
                pending &= !(1 << i);
                if !group(g, Some(e), env) {
                    return false;
                }
                break;
            }
        }
        if pending == 0 {
            break;
        }
    }
    for (i, g) in groups.iter().enumerate() {
        if pending >> i & 1 == 1 && !group(g, None, env) {
            return false;
        }
    }
    if let Some((_, i)) = last {
        env.index = Some(i);
    }
    true
}

/// Runs a test on the values of a path, given the element of the path's first part.
#[inline]
fn field(f: &FieldProg, e: Option<Elem<'_>>, env: &mut Env<'_>) -> bool {
    if f.rest.is_empty() && e.is_none_or(|e| e.ty() != Type::Array) {
        return single(&f.test, e.as_ref(), env);
    }
    at_path(&f.test, f, e, env)
}

/// Negations and conjunctions apply to the path as a whole; every other test passes if any value at the path
/// passes.
fn at_path(test: &Test, f: &FieldProg, e: Option<Elem<'_>>, env: &mut Env<'_>) -> bool {
    match test {
        Test::Not(t) => env.quietly(|env| !at_path(t, f, e, env)),
        Test::All(ts) => ts.iter().all(|t| at_path(t, f, e, env)),
        Test::Every(set) => every(set, f, e, env),
        leaf => match walk(e, &f.rest, leaf.traverses(), &mut |v| single(leaf, v, env)) {
            None => false,
            Some(index) => {
                if env.record && index.is_some() {
                    env.index = index;
                }
                true
            }
        },
    }
}

/// Whether every value of the set is found at the path. The positional operator gets the index of the element
/// with which the last value was found.
fn every(set: &InSet, f: &FieldProg, e: Option<Elem<'_>>, env: &mut Env<'_>) -> bool {
    let mut found = vec![false; set.len()];
    let mut missing = set.len();
    let index = walk(e, &f.rest, true, &mut |v| {
        if let Some(seen) = set.position(v).and_then(|i| found.get_mut(i))
            && !std::mem::replace(seen, true)
        {
            missing -= 1;
        }
        missing == 0
    });
    if let Some(Some(i)) = index
        && env.record
    {
        env.index = Some(i);
    }
    missing == 0
}

/// Whether one value passes. `None` stands for a missing field.
#[inline]
fn single(test: &Test, e: Option<&Elem<'_>>, env: &mut Env<'_>) -> bool {
    match test {
        Test::Cmp(op, operand) => operand.test(*op, e),
        Test::In(set, regexes) => set.contains(e) || regexes.iter().any(|re| regex(re, e, env)),
        Test::Regex(re) => regex(re, e, env),
        Test::Exists => e.is_some(),
        Test::ElemObject(prog) => elements(e, env, |x, env| {
            matches!(x.ty(), Type::Document | Type::Array)
                && env.quietly(|env| run(prog, inner(x), env))
        }),
        Test::ElemValue(tests) => elements(e, env, |x, env| {
            env.quietly(|env| tests.iter().all(|t| single(t, Some(x), env)))
        }),
        Test::Op(op) => env.ask(|work| op.matches(e.map(Elem::value), work)),
        Test::Not(t) => !env.quietly(|env| single(t, e, env)),
        Test::All(ts) => ts.iter().all(|t| single(t, e, env)),
        // One value can equal only one value of the set.
        Test::Every(set) => set.len() == 1 && set.contains(e),
    }
}

/// Whether some element of an array passes.
fn elements(
    e: Option<&Elem<'_>>,
    env: &mut Env<'_>,
    mut f: impl FnMut(&Elem<'_>, &mut Env<'_>) -> bool,
) -> bool {
    let Some(array) = e.filter(|e| e.ty() == Type::Array) else {
        return false;
    };
    for (i, x) in inner(array).iter().enumerate() {
        if f(&x, env) {
            if env.record {
                env.index = Some(i);
            }
            return true;
        }
    }
    false
}

/// Whether the value is a string that matches, or an equal regular expression.
fn regex(re: &Regex, e: Option<&Elem<'_>>, env: &mut Env<'_>) -> bool {
    let Some(e) = e else {
        return false;
    };
    match e.ty() {
        Type::String | Type::Symbol => env.ask(|_| re.is_match(string_bytes(e.raw_value()))),
        Type::Regex => matches!(
            e.value(),
            Value::Regex { pattern, options } if pattern == re.pattern && options == re.options
        ),
        _ => false,
    }
}
