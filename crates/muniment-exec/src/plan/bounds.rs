//! Turns predicates into intervals of index keys.
//!
//! The rules follow the manual's "Multikey Index Bounds", "Sparse Indexes" and "Query for Null or
//! Missing Fields". Where intervals cannot express a predicate exactly, they are a superset, and
//! the predicate is matched again on the document.

use super::collated::Texts;
use super::interval::{Interval, bracket, complement, intersect, union};
use muniment_query::filter::{Pred, Regex};
use muniment_value::{Doc, Type, Value, ValueBuf, number};

/// The keys that can match one predicate, in an index on its path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldBounds {
    /// The intervals, ascending and disjoint.
    pub intervals: Vec<Interval>,
    /// True if every key inside is a match, so that the predicate need not be matched again.
    pub exact: bool,
    /// True if a document without the field can match; a sparse index would lose such a document.
    pub matches_missing: bool,
}

impl FieldBounds {
    fn new(intervals: Vec<Interval>, exact: bool, matches_missing: bool) -> FieldBounds {
        FieldBounds {
            intervals,
            exact,
            matches_missing,
        }
    }

    /// How much of the index the intervals let through, by their kind; lower is better.
    pub(crate) fn rank(&self) -> usize {
        rank(&self.intervals)
    }
}

/// How much of an index these intervals let through, by their kind; lower is better.
pub(crate) fn rank(intervals: &[Interval]) -> usize {
    // Beyond this many intervals, the number no longer matters.
    const MOST: usize = 1000;
    let points = intervals.iter().all(Interval::is_point);
    match (intervals, points) {
        ([], _) => 0,
        (list, true) => list.len().min(MOST),
        ([one], false) if one.is_all() => 10_000,
        ([_], false) => 2_000,
        (list, false) => 3_000 + list.len().min(MOST),
    }
}

/// The bounds of `pred` on an index. `multikey` says whether the path is multikey there, and
/// `texts` how the index holds strings. `None` if the index cannot help.
pub(crate) fn of_pred(pred: &Pred, multikey: bool, texts: Texts<'_>) -> Option<FieldBounds> {
    match pred {
        Pred::Eq(v) => of_eq(v, texts),
        Pred::Lt(v) => of_range(v, Side::Below, false, multikey, texts),
        Pred::Lte(v) => of_range(v, Side::Below, true, multikey, texts),
        Pred::Gt(v) => of_range(v, Side::Above, false, multikey, texts),
        Pred::Gte(v) => of_range(v, Side::Above, true, multikey, texts),
        Pred::In { values, regexes } => of_in(values, regexes, texts),
        Pred::Regex(r) => of_regex(r, texts),
        Pred::Exists(true) => Some(FieldBounds::new(vec![Interval::all()], false, false)),
        Pred::Exists(false) => Some(missing()),
        Pred::Other(op) if op.wants_number() => {
            Some(FieldBounds::new(vec![numbers()], false, false))
        }
        Pred::Other(op) => op.types().map(of_types),
        Pred::ElemMatchObject(_) => None,
        Pred::ElemMatchValue(list) => {
            // All conditions apply to one element, so their intervals may be intersected. A
            // condition on the elements of that element is left out: an inner array has a key for
            // itself and none for its elements.
            let on_it = |p: &&Pred| !matches!(p, Pred::ElemMatchValue(_));
            let each = list
                .iter()
                .filter(on_it)
                .filter_map(|p| of_pred(p, false, texts));
            let all = each.map(|b| b.intervals).reduce(|a, b| intersect(&a, &b))?;
            Some(FieldBounds::new(all, false, false))
        }
        Pred::Not(inner) => of_not(inner, multikey, texts),
        Pred::And(list) => of_and(list, multikey, texts),
    }
}

fn missing() -> FieldBounds {
    FieldBounds::new(
        vec![Interval::new(Value::Undefined, true, Value::Null, true)],
        false,
        true,
    )
}

fn of_eq(v: &ValueBuf, texts: Texts<'_>) -> Option<FieldBounds> {
    let v = texts.equal(v)?;
    Some(match v.as_value() {
        Value::Undefined => return None,
        Value::Null => missing(),
        // A stored array has a key for each element; an array inside another array has a key for
        // itself.
        Value::Array(a) => {
            let first = a.values().next().unwrap_or(Value::Undefined);
            let keys = union(vec![
                Interval::point(first),
                Interval::point(Value::Array(a)),
            ]);
            FieldBounds::new(keys, false, false)
        }
        value => FieldBounds::new(vec![Interval::point(value)], true, false),
    })
}

/// All numbers and NaN, which `<` and `>` never reach.
fn numbers() -> Interval {
    Interval::new(f64::NAN, true, f64::INFINITY, true)
}

/// The bounds of `$type`. Types that compare with each other share an interval, so every key has to
/// be matched again.
fn of_types(types: &[Type]) -> FieldBounds {
    let interval = |t: &Type| match t {
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => Some(numbers()),
        Type::String => bracket(Value::String("")),
        Type::Document => bracket(Value::Document(Doc::EMPTY)),
        Type::Binary => bracket(Value::Binary {
            subtype: 0,
            bytes: &[],
        }),
        Type::ObjectId => bracket(Value::ObjectId([0; 12])),
        Type::Bool => bracket(Value::Bool(false)),
        Type::DateTime => bracket(Value::DateTime(0)),
        Type::Timestamp => bracket(Value::Timestamp { t: 0, i: 0 }),
        Type::Regex => bracket(Value::Regex {
            pattern: "",
            options: "",
        }),
        Type::DbPointer => bracket(Value::DbPointer {
            namespace: "",
            id: [0; 12],
        }),
        Type::Code => bracket(Value::Code("")),
        Type::CodeWithScope => bracket(Value::CodeWithScope {
            code: "",
            scope: Doc::EMPTY,
        }),
        Type::Null => Some(Interval::point(Value::Null)),
        Type::Undefined => Some(Interval::point(Value::Undefined)),
        Type::MinKey => Some(Interval::point(Value::MinKey)),
        Type::MaxKey => Some(Interval::point(Value::MaxKey)),
        // An array has the keys of its elements, and a symbol has the same key as a string, so
        // neither can be told by its key.
        Type::Array | Type::Symbol => None,
    };
    let intervals = types
        .iter()
        .map(|t| interval(t).unwrap_or_else(Interval::all));
    FieldBounds::new(union(intervals.collect()), false, false)
}

enum Side {
    Below,
    Above,
}

/// A range that ends at MinKey or MaxKey, with which every type compares. On one side of it there
/// is only the value itself; on the other there is everything else, including missing fields.
fn of_extreme(v: Value<'_>, side: &Side, incl: bool, multikey: bool) -> FieldBounds {
    let beyond = matches!(
        (v, side),
        (Value::MinKey, Side::Below) | (Value::MaxKey, Side::Above)
    );
    if beyond {
        let itself = if incl {
            vec![Interval::point(v)]
        } else {
            Vec::new()
        };
        return FieldBounds::new(itself, true, false);
    }
    let mut all = Interval::all();
    // An array differs from its only element: [MinKey] is greater than MinKey, yet its key is
    // MinKey.
    if !multikey {
        match side {
            Side::Below => all.high_incl = incl,
            Side::Above => all.low_incl = incl,
        }
    }
    FieldBounds::new(vec![all], !multikey, true)
}

fn of_range(
    v: &ValueBuf,
    side: Side,
    incl: bool,
    multikey: bool,
    texts: Texts<'_>,
) -> Option<FieldBounds> {
    let v = texts.end(v)?;
    let value = v.as_value();
    if number::is_nan(value) {
        // NaN compares only with NaN.
        let list = if incl {
            vec![Interval::point(value)]
        } else {
            Vec::new()
        };
        return Some(FieldBounds::new(list, true, false));
    }
    match (value, &side) {
        (Value::Null, _) => {
            return Some(if incl {
                missing()
            } else {
                FieldBounds::new(Vec::new(), true, false)
            });
        }
        (Value::MinKey | Value::MaxKey, _) => {
            return Some(of_extreme(value, &side, incl, multikey));
        }
        _ => {}
    }
    let mut i = bracket(value)?;
    match side {
        Side::Below => {
            i.high = v.clone().into_owned();
            i.high_incl = incl;
        }
        Side::Above => {
            i.low = v.clone().into_owned();
            i.low_incl = incl;
        }
    }
    let exact = !matches!(value, Value::Document(_));
    Some(FieldBounds::new(union(vec![i]), exact, false))
}

fn of_in(values: &[ValueBuf], regexes: &[Regex], texts: Texts<'_>) -> Option<FieldBounds> {
    let mut all = FieldBounds::new(Vec::new(), true, false);
    for b in values.iter().map(|v| of_eq(v, texts)) {
        add(&mut all, b?);
    }
    for r in regexes {
        add(&mut all, of_regex(r, texts)?);
    }
    all.intervals = union(all.intervals);
    Some(all)
}

fn add(all: &mut FieldBounds, b: FieldBounds) {
    all.intervals.extend(b.intervals);
    all.exact &= b.exact;
    all.matches_missing |= b.matches_missing;
}

/// The literal string that every match begins with, and whether the expression asks for nothing
/// else.
pub(crate) fn regex_prefix(r: &Regex) -> (String, bool) {
    let none = (String::new(), false);
    if r.options.chars().any(|c| c != 's') {
        return none;
    }
    let Some(rest) = r
        .pattern
        .strip_prefix('^')
        .or_else(|| r.pattern.strip_prefix("\\A"))
    else {
        return none;
    };
    // With an alternation anywhere, a match need not begin with the prefix.
    if rest.contains('|') {
        return none;
    }
    let mut prefix = String::new();
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        let literal = match c {
            '\\' => match chars.next() {
                Some(e) if !e.is_ascii_alphanumeric() => e,
                _ => return (prefix, false),
            },
            '*' | '+' | '?' | '{' => {
                // The quantifier may make the last character optional.
                prefix.pop();
                return (prefix, false);
            }
            '.' | '[' | '(' | ')' | '$' | '^' => {
                // A trailing `.*` asks for little more, but `.` does not match a newline, so it is
                // not exact.
                return (prefix, false);
            }
            other => other,
        };
        prefix.push(literal);
    }
    (prefix, true)
}

fn of_regex(r: &Regex, texts: Texts<'_>) -> Option<FieldBounds> {
    if !texts.regex() {
        return None;
    }
    let (prefix, exact) = regex_prefix(r);
    let mut strings = Interval::new("", true, "", false);
    if let Some(all) = bracket(Value::String("")) {
        strings = all;
    }
    if !prefix.is_empty() {
        strings.low = ValueBuf::new(prefix.as_str());
        if let Some(end) = next_string(&prefix) {
            strings.high = ValueBuf::new(end.as_str());
        }
    }
    let itself = Interval::point(Value::Regex {
        pattern: &r.pattern,
        options: &r.options,
    });
    Some(FieldBounds::new(
        union(vec![strings, itself]),
        exact && !prefix.is_empty(),
        false,
    ))
}

/// The least string greater than every string that begins with `prefix`.
fn next_string(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match last as u32 {
            0xD7FF => char::from_u32(0xE000),
            n => char::from_u32(n + 1),
        };
        if let Some(c) = next {
            chars.push(c);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

fn of_not(inner: &Pred, multikey: bool, texts: Texts<'_>) -> Option<FieldBounds> {
    match inner {
        Pred::Exists(e) => of_pred(&Pred::Exists(!e), multikey, texts),
        Pred::Eq(v) if v.as_value().is_nullish() => {
            // In an array, elements that are not documents have a null key for a field below them
            // and yet do not match null. On a multikey path the index would lose those documents.
            if multikey || matches!(v.as_value(), Value::Undefined) {
                return None;
            }
            Some(FieldBounds::new(
                complement(&[Interval::point(Value::Null)]),
                false,
                false,
            ))
        }
        Pred::Eq(_) | Pred::Lt(_) | Pred::Lte(_) | Pred::Gt(_) | Pred::Gte(_) | Pred::In { .. } => {
            if let Pred::In { regexes, .. } = inner
                && !regexes.is_empty()
            {
                return None;
            }
            let b = of_pred(inner, multikey, texts)?;
            // The complement of a superset would be too small and lose documents.
            if !b.exact {
                return None;
            }
            Some(FieldBounds::new(complement(&b.intervals), !multikey, true))
        }
        _ => None,
    }
}

fn of_and(list: &[Pred], multikey: bool, texts: Texts<'_>) -> Option<FieldBounds> {
    let parts: Vec<Option<FieldBounds>> =
        list.iter().map(|p| of_pred(p, multikey, texts)).collect();
    let complete = parts.iter().all(Option::is_some);
    let mut parts: Vec<FieldBounds> = parts.into_iter().flatten().collect();
    let matches_missing = parts.iter().all(|b| b.matches_missing);
    if multikey {
        // Different elements may satisfy different predicates, so only one predicate may bound the
        // scan.
        parts.sort_by_key(FieldBounds::rank);
        let single = parts.len() == 1 && complete;
        let mut best = parts.into_iter().next()?;
        best.exact &= single;
        best.matches_missing = matches_missing;
        return Some(best);
    }
    let mut parts = parts.into_iter();
    let mut all = parts.next()?;
    for b in parts {
        all.intervals = intersect(&all.intervals, &b.intervals);
        all.exact &= b.exact;
    }
    all.exact &= complete;
    all.matches_missing = matches_missing;
    Some(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_query::filter::Node;
    use muniment_query::{Filter, QueryContext};
    use muniment_value::DocBuf;

    /// The bounds of a filter's only field; the filter is Extended JSON.
    fn show(filter: &str, multikey: bool) -> String {
        let doc = DocBuf::from_json(filter).unwrap();
        let filter = Filter::parse(doc.as_doc(), &QueryContext::new()).unwrap();
        let bounds = match filter.root() {
            Node::Field { pred, .. } => of_pred(pred, multikey, Texts::Plain),
            Node::And(list) => {
                let preds = list.iter().map(|n| match n {
                    Node::Field { pred, .. } => pred.clone(),
                    other => panic!("{other:?}"),
                });
                of_and(&preds.collect::<Vec<_>>(), multikey, Texts::Plain)
            }
            other => panic!("{other:?}"),
        };
        let Some(b) = bounds else {
            return "none".into();
        };
        format!(
            "{}{}{}",
            b.intervals
                .iter()
                .map(|i| i.display(false))
                .collect::<Vec<_>>()
                .join(" "),
            if b.exact { "" } else { " ~" },
            if b.matches_missing { " missing" } else { "" }
        )
    }

    #[test]
    fn predicates_become_bounds() {
        let table = [
            (r#"{"a": 5}"#, false, "[5, 5]"),
            (r#"{"a": null}"#, false, "[undefined, null] ~ missing"),
            (r#"{"a": [1, 2]}"#, true, "[1, 1] [[ 1, 2 ], [ 1, 2 ]] ~"),
            (r#"{"a": {"$gt": 5}}"#, false, "(5, inf]"),
            (r#"{"a": {"$gte": 5}}"#, true, "[5, inf]"),
            (r#"{"a": {"$lt": "b"}}"#, false, "[\"\", \"b\")"),
            (r#"{"a": {"$gt": "b"}}"#, false, "(\"b\", {})"),
            (r#"{"a": {"$lte": true}}"#, false, "[false, true]"),
            (r#"{"a": {"$lt": {"$numberDouble": "NaN"}}}"#, false, ""),
            (r#"{"a": {"$in": [7, 1]}}"#, true, "[1, 1] [7, 7]"),
            (
                r#"{"a": {"$type": ["string", "bool", "int"]}}"#,
                false,
                "[nan, inf] [\"\", {}) [false, true] ~",
            ),
            (
                r#"{"a": {"$type": ["array", "bool"]}}"#,
                true,
                "[MinKey, MaxKey] ~",
            ),
            (r#"{"a": {"$type": "null"}}"#, false, "[null, null] ~"),
            (r#"{"a": {"$exists": true}}"#, false, "[MinKey, MaxKey] ~"),
            (
                r#"{"a": {"$exists": false}}"#,
                false,
                "[undefined, null] ~ missing",
            ),
            (r#"{"a": {"$mod": [4, 1]}}"#, false, "[nan, inf] ~"),
            (r#"{"a": {"$not": {"$mod": [4, 1]}}}"#, false, "none"),
            (r#"{"a": {"$size": 1}}"#, false, "none"),
            (r#"{"a": {"$elemMatch": {"$size": 1}}}"#, true, "none"),
            (
                r#"{"a": {"$elemMatch": {"$elemMatch": {"$gt": 1}}}}"#,
                true,
                "none",
            ),
            (
                r#"{"a": {"$elemMatch": {"$lt": [], "$elemMatch": {"$gt": 1}}}}"#,
                true,
                "none",
            ),
            (
                r#"{"a": {"$gt": {"$minKey": 1}}}"#,
                false,
                "(MinKey, MaxKey] missing",
            ),
            (
                r#"{"a": {"$gt": {"$minKey": 1}}}"#,
                true,
                "[MinKey, MaxKey] ~ missing",
            ),
            (
                r#"{"a": {"$gte": {"$minKey": 1}}}"#,
                false,
                "[MinKey, MaxKey] missing",
            ),
            (
                r#"{"a": {"$lte": {"$minKey": 1}}}"#,
                true,
                "[MinKey, MinKey]",
            ),
            (r#"{"a": {"$lt": {"$minKey": 1}}}"#, false, ""),
            (
                r#"{"a": {"$lt": {"$maxKey": 1}}}"#,
                false,
                "[MinKey, MaxKey) missing",
            ),
            (
                r#"{"a": {"$lte": {"$maxKey": 1}}}"#,
                true,
                "[MinKey, MaxKey] ~ missing",
            ),
            (
                r#"{"a": {"$gte": {"$maxKey": 1}}}"#,
                true,
                "[MaxKey, MaxKey]",
            ),
            (r#"{"a": {"$gt": {"$maxKey": 1}}}"#, false, ""),
            (
                r#"{"a": {"$not": {"$gt": {"$minKey": 1}}}}"#,
                false,
                "[MinKey, MinKey] missing",
            ),
            (r#"{"a": {"$not": {"$gt": {"$minKey": 1}}}}"#, true, "none"),
            (
                r#"{"a": {"$gt": {"$code": "f"}}}"#,
                false,
                "(f, CodeWScope( , {}))",
            ),
            (
                r#"{"a": {"$lte": {"$code": "f", "$scope": {"x": 1}}}}"#,
                false,
                "[CodeWScope( , {}), CodeWScope( f, { x: 1 })]",
            ),
            (
                r#"{"a": {"$gte": {"$code": "f", "$scope": {}}}}"#,
                true,
                "[CodeWScope( f, {}), MaxKey)",
            ),
            (
                r#"{"a": {"$type": ["javascript", "dbPointer"]}}"#,
                false,
                "[DBRef('',ObjectId('000000000000000000000000')), CodeWScope( , {})) ~",
            ),
            (
                r#"{"a": {"$type": "regex"}}"#,
                false,
                "[//, DBRef('',ObjectId('000000000000000000000000'))) ~",
            ),
            (
                r#"{"a": {"$ne": 3}}"#,
                false,
                "[MinKey, 3) (3, MaxKey] missing",
            ),
            (
                r#"{"a": {"$ne": 3}}"#,
                true,
                "[MinKey, 3) (3, MaxKey] ~ missing",
            ),
            (
                r#"{"a": {"$ne": null}}"#,
                false,
                "[MinKey, null) (null, MaxKey] ~",
            ),
            (r#"{"a": {"$ne": null}}"#, true, "none"),
            (r#"{"a": {"$gt": 3, "$lt": 5}}"#, false, "(3, 5)"),
            (r#"{"a": {"$gt": 3, "$lt": 5}}"#, true, "(3, inf] ~"),
            (
                r#"{"a": {"$elemMatch": {"$gt": 3, "$lt": 5}}}"#,
                true,
                "(3, 5) ~",
            ),
            (
                r#"{"a": {"$regex": "^abc"}}"#,
                false,
                "[\"abc\", \"abd\") [/^abc/, /^abc/]",
            ),
            (
                r#"{"a": {"$regex": "^ab*"}}"#,
                false,
                "[\"a\", \"b\") [/^ab*/, /^ab*/] ~",
            ),
            (
                r#"{"a": {"$regex": "^a|b"}}"#,
                false,
                "[\"\", {}) [/^a|b/, /^a|b/] ~",
            ),
            (
                r#"{"a": {"$regex": "^a", "$options": "i"}}"#,
                false,
                "[\"\", {}) [/^a/i, /^a/i] ~",
            ),
        ];
        for (filter, multikey, want) in table {
            assert_eq!(show(filter, multikey), want, "{filter} multikey={multikey}");
        }
    }
}
