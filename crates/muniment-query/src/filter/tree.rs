//! A filter as the planner's error messages show it: one line per node, indented by its depth. Some clients
//! read there which field a query is about.

use super::Filter;
use crate::geo::NearQuery;
use muniment_value::{Doc, Elem, Value, beginning};
use std::fmt::Write;

/// A text is cut off after this many bytes, because a filter may have some millions.
const MOST: usize = 16 << 10;

/// MongoDB's text for a tree of match expressions, which ends with a line end.
pub(super) fn text(filter: &Filter) -> String {
    let mut out = String::new();
    let near = filter.near().map(|(_, near)| near.as_ref());
    let shown = filter.to_doc();
    match shown.as_doc().first() {
        Some(_) => shown
            .as_doc()
            .iter()
            .for_each(|e| node(e, near, 0, &mut out)),
        None => out.push_str("$and\n"),
    }
    if out.len() > MOST {
        out.truncate(beginning(&out, MOST).len());
        out.push_str("...\n");
    }
    out
}

fn line(level: usize, text: &str, out: &mut String) {
    if out.len() > MOST {
        return;
    }
    out.push_str(&"    ".repeat(level));
    out.push_str(text);
    out.push('\n');
}

fn node(e: Elem<'_>, near: Option<&NearQuery>, level: usize, out: &mut String) {
    match (e.name(), e.value()) {
        ("$and" | "$or" | "$nor", Value::Array(nodes)) => {
            line(level, e.name(), out);
            for child in nodes.values().filter_map(|v| v.as_doc()) {
                child.iter().for_each(|e| node(e, near, level + 1, out));
            }
        }
        ("$text", Value::Document(d)) => line(level, &words(d), out),
        (path, Value::Document(d)) if !path.starts_with('$') => {
            d.iter().for_each(|op| leaf(path, op, near, level, out));
        }
        (name, v) => line(level, &format!("{name} {}", v.to_display()), out),
    }
}

fn leaf(path: &str, op: Elem<'_>, near: Option<&NearQuery>, level: usize, out: &mut String) {
    match (op.name(), op.value()) {
        ("$near" | "$nearSphere" | "$geoNear", _) if let Some(near) = near => {
            // Where there is no limit, MongoDB shows the greatest double.
            let most = general(near.max.min(f64::MAX));
            let sphere = u8::from(near.name == "$nearSphere");
            let text = format!("GEONEAR  field={path} maxdist={most} isNearSphere={sphere}");
            line(level, &text, out);
        }
        ("$not", Value::Document(d)) => {
            line(level, "$not", out);
            d.iter().for_each(|op| leaf(path, op, near, level + 1, out));
        }
        // These are options of a neighbouring operator.
        ("$options" | "$minDistance" | "$maxDistance", _) => {}
        (name, v) => line(level, &format!("{path} {name} {}", v.to_display()), out),
    }
}

fn words(d: Doc<'_>) -> String {
    let text = |name| match d.get(name) {
        Some(Value::String(s)) => s,
        _ => "",
    };
    let flag = |name| u8::from(d.get(name).is_some_and(|v| v.truthy()));
    format!(
        "TEXT : query={}, language={}, caseSensitive={}, diacriticSensitive={}",
        text("$search"),
        text("$language"),
        flag("$caseSensitive"),
        flag("$diacriticSensitive")
    )
}

/// A number with six digits, as `%g` of C writes it.
fn general(n: f64) -> String {
    let scientific = format!("{n:.5e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => s.to_string(),
    };
    if (-4..6).contains(&exponent) {
        let places = usize::try_from(5 - exponent).unwrap_or(0);
        return short(&format!("{n:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let mut out = short(digits);
    let _ = write!(out, "e{sign}{:02}", exponent.abs());
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::QueryContext;
    use crate::update::testing::json;

    #[test]
    fn table_of_trees() {
        for (filter, want) in [
            ("{}", "$and\n"),
            ("{a:1}", "a $eq 1\n"),
            ("{a:{$gt:'x'},b:2}", "$and\n    b $eq 2\n    a $gt \"x\"\n"),
            (
                "{loc:{$near:[1,2],$maxDistance:2500}}",
                "GEONEAR  field=loc maxdist=2500 isNearSphere=0\n",
            ),
            (
                "{loc:{$nearSphere:{$geometry:{type:'Point',coordinates:[1,2]}}}}",
                "GEONEAR  field=loc maxdist=1.79769e+308 isNearSphere=1\n",
            ),
            (
                "{'a.loc':{$near:{$geometry:{type:'Point',coordinates:[1,2]},$maxDistance:5}},b:1}",
                "$and\n    b $eq 1\n    GEONEAR  field=a.loc maxdist=5 isNearSphere=0\n",
            ),
            (
                "{$or:[{a:1},{$text:{$search:'x y'}}]}",
                "$or\n    a $eq 1\n    TEXT : query=x y, language=, caseSensitive=0, \
                 diacriticSensitive=0\n",
            ),
            ("{a:{$not:{$gt:1}}}", "$not\n    a $gt 1\n"),
        ] {
            let d = json(filter);
            let f = Filter::parse_query(d.as_doc(), &QueryContext::new()).unwrap();
            assert_eq!(text(&f), want, "{filter}");
        }
    }

    #[test]
    fn numbers_have_six_digits() {
        for (n, want) in [
            (0.0, "0"),
            (5.0, "5"),
            (2500.0, "2500"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.001, "0.001"),
            (0.00001, "1e-05"),
            (0.123_456_789, "0.123457"),
            (f64::MAX, "1.79769e+308"),
        ] {
            assert_eq!(general(n), want);
        }
    }
}
