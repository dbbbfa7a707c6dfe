//! Tests every generator by the values that it makes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::custom::draw::{Shape, Shared};
use crate::custom::encode::Encoder;
use crate::custom::source::read;
use crate::custom::template::Seen;
use crate::distributions::counter::Counter;
use crate::lab::Preset;
use muniment_value::{DocBuf, JsonMode, Value, validate};
use std::collections::HashMap;
use std::sync::Arc;

/// Makes documents of this template, over one sequence `s` with `start` numbers.
pub(crate) fn maker(text: &str, start: u64) -> Parsed<impl FnMut() -> DocBuf> {
    let counter = Arc::new(Counter::new(start));
    maker_of(text, counter, 11)
}

fn maker_of(text: &str, counter: Arc<Counter>, seed: u64) -> Parsed<impl FnMut() -> DocBuf> {
    let root = read(text, Preset::Smoke)?;
    let node = Node::document(&root, "it", &mut Seen::default())?;
    let sequences = vec![("s".to_string(), counter)];
    let shared = Shared::default();
    let env = Env::new(&sequences, &shared, &Shape::Uniform, "it");
    let mut encoder = Encoder::new(&node, &env).map_err(|e| root.bad(e.0))?;
    let mut hand = Hand::new(seed, &sequences);
    Ok(move || {
        let mut out = Vec::new();
        hand.next_document();
        assert_eq!(encoder.write(&mut hand, &mut out), 3);
        hand.acknowledge();
        validate(&out).unwrap();
        DocBuf::from_bytes_trusted(out)
    })
}

fn json(text: &str) -> String {
    let d = maker(text, 0).unwrap()();
    d.as_doc().to_json(JsonMode::Canonical)
}

#[test]
fn the_registry_is_sorted_and_every_form_is_said() {
    let names: Vec<String> = ALL.iter().map(|s| s.name.to_lowercase()).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(
        ALL.iter()
            .all(|s| !s.form.is_empty() && !s.about.is_empty())
    );
}

#[test]
fn constants_have_their_types() {
    for (toml, want) in [
        ("a = 1", r#"{"a":{"$numberInt":"1"}}"#),
        ("a = 5000000000", r#"{"a":{"$numberLong":"5000000000"}}"#),
        (
            "a = { \"$numberLong\" = \"5\" }",
            r#"{"a":{"$numberLong":"5"}}"#,
        ),
        ("a = 1.5", r#"{"a":{"$numberDouble":"1.5"}}"#),
        ("a = \"x\"", r#"{"a":"x"}"#),
        (
            "a = [true, { b = 1.0 }]",
            r#"{"a":[true,{"b":{"$numberDouble":"1.0"}}]}"#,
        ),
        (
            "a = 1970-01-01T00:00:01Z",
            r#"{"a":{"$date":{"$numberLong":"1000"}}}"#,
        ),
        (
            "a = { \"$oid\" = \"0123456789abcdef01234567\" }",
            r#"{"a":{"$oid":"0123456789abcdef01234567"}}"#,
        ),
        (
            "a = { \"$numberDecimal\" = \"1.10\" }",
            r#"{"a":{"$numberDecimal":"1.10"}}"#,
        ),
        ("a = { null = true }", r#"{"a":null}"#),
        (
            "a = { json = '{\"$minKey\": 1}' }",
            r#"{"a":{"$minKey":1}}"#,
        ),
        (
            "a = { json = '[1, null]' }",
            r#"{"a":[{"$numberInt":"1"},null]}"#,
        ),
        (
            "a = { document = { int = 5 } }",
            r#"{"a":{"int":{"$numberInt":"5"}}}"#,
        ),
        (
            "\"$set\" = { date = \"now\" }",
            r#"{"$set":{"date":"now"}}"#,
        ),
        (
            "\"$or\" = [{ text = \"x\" }, { b = { null = true } }]",
            r#"{"$or":[{"text":"x"},{"b":null}]}"#,
        ),
        (
            "a = { repeat = { text = \"ab\", times = 3 } }",
            r#"{"a":"ababab"}"#,
        ),
        ("a = {}\nb = []", r#"{"a":{},"b":[]}"#),
    ] {
        assert_eq!(json(toml), want, "{toml}");
    }
}

#[test]
fn numbers_stay_in_their_ranges_and_reach_their_ends() {
    let mut make = maker(
        "i = { int = { min = -3, max = 3 } }\nl = { long = { min = 5, max = 6 } }\nd = { double = { min = 1, max = 2, places = 1 } }\nb = { bool = 0.25 }",
        0,
    )
    .unwrap();
    let (mut ints, mut longs, mut doubles, mut trues) =
        (HashMap::new(), HashMap::new(), HashMap::new(), 0);
    for _ in 0..7000 {
        let d = make();
        let d = d.as_doc();
        let Some(Value::Int32(i)) = d.get("i") else {
            unreachable!()
        };
        let Some(Value::Int64(l)) = d.get("l") else {
            unreachable!()
        };
        let Some(Value::Double(x)) = d.get("d") else {
            unreachable!()
        };
        *ints.entry(i).or_insert(0) += 1;
        *longs.entry(l).or_insert(0) += 1;
        *doubles.entry((x * 10.0).round() as i64).or_insert(0) += 1;
        assert_eq!((x * 10.0).round() / 10.0, x);
        trues += usize::from(d.get("b").unwrap().as_bool().unwrap());
    }
    assert_eq!(ints.len(), 7);
    assert!(ints.keys().all(|i| (-3..=3).contains(i)));
    let chi: f64 = ints
        .values()
        .map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0)
        .sum();
    assert!(chi < 25.0, "{chi} with 6 degrees of freedom");
    assert_eq!(longs.len(), 2);
    assert!(doubles.len() == 11 && doubles.keys().all(|d| (10..=20).contains(d)));
    assert!((1550..1950).contains(&trues), "{trues}");
}

#[test]
fn enums_keep_their_weights() {
    let mut make = maker(
        "e = { enum = { values = [\"a\", 2, \"c\"], weights = [5, 3, 2] } }",
        0,
    )
    .unwrap();
    let mut seen = HashMap::new();
    for _ in 0..10_000 {
        *seen
            .entry(make().as_doc().get("e").unwrap().to_display())
            .or_insert(0.0) += 1.0;
    }
    let want = [("\"a\"", 5000.0), ("2", 3000.0), ("\"c\"", 2000.0)];
    let chi: f64 = want
        .iter()
        .map(|(k, n)| (seen[*k] - n) * (seen[*k] - n) / n)
        .sum();
    // With 2 degrees of freedom, χ² is above 18.4 in one of 10,000 cases.
    assert!(seen.len() == 3 && chi < 18.4, "{chi} {seen:?}");
}

#[test]
fn ids_are_what_they_say() {
    let mut make = maker(
        "u = { uuid = true }\nt = { uuid = \"text\" }\no = { objectId = true }",
        0,
    )
    .unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let d = make();
        let Some(Value::Binary { subtype: 4, bytes }) = d.as_doc().get("u") else {
            unreachable!()
        };
        assert_eq!((bytes[6] >> 4, bytes[8] >> 6, bytes.len()), (4, 2, 16));
        let t = d.as_doc().get_str("t").unwrap();
        let parts: Vec<usize> = t.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&t[14..15], "4");
        assert!(matches!(&t[19..20], "8" | "9" | "a" | "b"), "{t}");
        assert!(seen.insert(bytes.to_vec()));
        assert!(matches!(d.as_doc().get("o"), Some(Value::ObjectId(_))));
    }
}

#[test]
fn a_sequence_gives_each_number_once_to_all_workers() {
    let counter = Arc::new(Counter::new(0));
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let counter = counter.clone();
            std::thread::spawn(move || {
                let text = "a = { sequence = \"s\" }\nb = { format = { text = \"u{n:04}\", n = { sequence = \"s\" } } }";
                let mut make = maker_of(text, counter, i).unwrap();
                (0..500)
                    .map(|_| {
                        let d = make();
                        let n = d.as_doc().get("a").unwrap().as_i64_exact().unwrap();
                        assert_eq!(d.as_doc().get_str("b").unwrap(), format!("u{n:04}"));
                        n
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let mut all: Vec<i64> = threads
        .into_iter()
        .flat_map(|t| t.join().unwrap())
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..2000).collect::<Vec<_>>());
    assert_eq!(counter.last(), Some(1999));
}

#[test]
fn keys_are_those_that_are_there() {
    let mut make = maker(
        "k = { key = \"s\" }\nz = { key = { of = \"s\", distribution = \"zipfian\" } }",
        10,
    )
    .unwrap();
    let mut seen = [0; 10];
    for _ in 0..2000 {
        let d = make();
        seen[d.as_doc().get("k").unwrap().as_i64_exact().unwrap() as usize] += 1;
        assert!(d.as_doc().get("z").unwrap().as_i64_exact().unwrap() < 10);
    }
    assert!(seen.iter().all(|n| (120..280).contains(n)), "{seen:?}");
    let e = maker(
        "z = { key = { of = \"s\", distribution = \"zipfian\" } }",
        0,
    )
    .err()
    .unwrap();
    assert!(
        e.text
            .contains("no document with a number of the sequence 's' is there yet"),
        "{e:?}"
    );
}

#[test]
fn texts_binaries_arrays_dates_and_options() {
    let mut make = maker(
        "t = { text = { length = { min = 3, max = 5 } } }\nh = { text = { length = 39, alphabet = \"01\" } }\nb = { binary = { length = 7, subtype = 128 } }\na = { array = { of = { x = { sequence = \"s\" } }, length = { max = 12 } } }\nd = { date = { from = 2024-01-01, to = 2024-01-02, distribution = \"latest\" } }\nn = { date = \"now\" }\no = { optional = { chance = 0.5, of = 1 } }",
        0,
    )
    .unwrap();
    let (mut lengths, mut arrays, mut with) = (HashMap::new(), HashMap::new(), 0);
    let day = 1_704_067_200_000..=1_704_153_600_000;
    for _ in 0..1000 {
        let d = make();
        let d = d.as_doc();
        *lengths.entry(d.get_str("t").unwrap().len()).or_insert(0) += 1;
        let h = d.get_str("h").unwrap();
        assert!(h.len() == 39 && h.bytes().all(|b| b == b'0' || b == b'1'));
        assert!(
            matches!(d.get("b"), Some(Value::Binary { subtype: 128, bytes }) if bytes.len() == 7)
        );
        let a = d.get_array("a").unwrap();
        *arrays.entry(a.count()).or_insert(0) += 1;
        for (i, e) in a.iter().enumerate() {
            assert_eq!(e.name(), i.to_string());
        }
        assert!(matches!(d.get("d"), Some(Value::DateTime(ms)) if day.contains(&ms)));
        let now = crate::docs::now_ms();
        assert!(
            matches!(d.get("n"), Some(Value::DateTime(ms)) if (0..10_000).contains(&(now - ms)))
        );
        with += usize::from(d.get("o").is_some());
    }
    assert_eq!(lengths.len(), 3);
    assert_eq!(arrays.len(), 13);
    assert!((400..600).contains(&with), "{with}");
}

#[test]
fn mistakes_are_said() {
    for (text, line, why) in [
        ("\na = { int = { min = 1 } }", 2, "int needs the key 'max'"),
        (
            "a = { int = { min = 2, max = 1 } }",
            1,
            "max (1) is below min (2)",
        ),
        (
            "a = { int = { max = 3000000000 } }",
            1,
            "is no int32; use long",
        ),
        (
            "a = { int = { max = 3, mx = 1 } }",
            1,
            "int has no key 'mx': is 'max' meant?",
        ),
        (
            "a = { long = { max = 2000000000, distribution = \"zipfian\" } }",
            1,
            "zipfian can be drawn over 1,000,000,000",
        ),
        ("a = { text = \"x\" }", 1, "text must be a table, not \"x\""),
        (
            "a = { text = { length = 5, compressibility = 0.1 } }",
            1,
            "compressibility of text must be from 0.25 to 0.95, not 0.1",
        ),
        (
            "a = { text = { length = 5, alphabet = \"\" } }",
            1,
            "alphabet must be",
        ),
        ("a = { text = 99999999 }", 1, "more than a document holds"),
        (
            "a = { binary = { length = 5, subtype = 3 } }",
            1,
            "subtype must be",
        ),
        ("a = { enum = { values = [] } }", 1, "one at least"),
        (
            "a = { enum = { values = [1], weights = [1, 2] } }",
            1,
            "1 values and 2 weights",
        ),
        (
            "a = { enum = { values = [1], weights = [0] } }",
            1,
            "one weight at least",
        ),
        (
            "a = { enum = { values = [1], weights = [1], distribution = \"uniform\" } }",
            1,
            "not both",
        ),
        (
            "a = { bool = 2 }",
            1,
            "bool must be a number from 0 to 1, not 2",
        ),
        ("a = { uuid = false }", 1, "uuid must be true"),
        ("a = { uuid = \"txt\" }", 1, "is 'text' meant?"),
        (
            "a = { date = 2020-01-01 }",
            1,
            "a constant date stands alone",
        ),
        (
            "a = { date = { from = \"yesterday\" } }",
            1,
            "from must be a date",
        ),
        ("a = { date = { from = \"now-3w\" } }", 1, "(s, m, h or d)"),
        (
            "a = { date = { from = \"now\", to = \"now-1d\" } }",
            1,
            "its end is 86400 s before",
        ),
        (
            "a = { format = { text = \"{x}\", n = 1 } }",
            1,
            "{x} is not among its values",
        ),
        (
            "a = { format = { text = \"{n\", n = 1 } }",
            1,
            "{ without its }",
        ),
        (
            "a = { format = { text = \"n}\", n = 1 } }",
            1,
            "} without its {",
        ),
        (
            "a = { format = { text = \"{n:8}\", n = 1 } }",
            1,
            "behind : stands 0 and a width",
        ),
        (
            "a = { format = { text = \"x\", n = 1 } }",
            1,
            "the text has no {n}",
        ),
        (
            "a = { format = { text = \"{n}\", n = [] } }",
            1,
            "must be a number, a string",
        ),
        (
            "a = [{ optional = { chance = 1, of = 1 } }]",
            1,
            "as the value of a document's field only",
        ),
        (
            "a = { optional = { chance = 1.5, of = 1 } }",
            1,
            "from 0 to 1",
        ),
        ("a = { \"$oid\" = \"xyz\" }", 1, "invalid Extended JSON"),
        ("a = { json = '{' }", 1, "json: "),
        (
            "a = { array = { of = 1 } }",
            1,
            "array needs the key 'length'",
        ),
        (
            "a = { key = { of = \"s\", theta = 0.5 } }",
            1,
            "theta belongs to",
        ),
        (
            "a = { sequence = 5 }",
            1,
            "sequence must be a string, not 5",
        ),
    ] {
        let e = maker(text, 0).err().unwrap();
        assert!(e.line == line && e.text.contains(why), "{text}: {e:?}");
    }
}
