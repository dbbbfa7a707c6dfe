//! Columns built by hand from the format.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::{DocBuf, Put, Value, ValueBuf, array, doc};

/// The values of a column; `None` for a missing value.
fn read(column: &[u8]) -> Result<Vec<Option<ValueBuf>>> {
    let mut reader = ColumnReader::new(column);
    let mut all = Vec::new();
    loop {
        match reader.next()? {
            Cell::End => return Ok(all),
            Cell::Missing => all.push(None),
            Cell::Value(ty, raw) => {
                let mut d = vec![0, 0, 0, 0, ty as u8, b'v', 0];
                d.extend_from_slice(raw);
                d.push(0);
                let len = (d.len() as u32).to_le_bytes();
                d[..4].copy_from_slice(&len);
                let d = crate::validate(&d).expect("well-formed BSON");
                all.push(Some(ValueBuf::new(d.get("v").unwrap())));
            }
        }
        assert!(all.len() < 100_000);
    }
}

fn some(v: impl Put) -> Option<ValueBuf> {
    Some(ValueBuf::new(v))
}

fn literal(v: impl Put) -> Vec<u8> {
    let mut out = vec![v.put_type() as u8, 0];
    v.put(&mut out);
    out
}

/// A control byte with a scale (0x80: none), followed by its words.
fn words(scale: u8, words: &[u64]) -> Vec<u8> {
    let mut out = vec![scale | (words.len() as u8 - 1)];
    out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    out
}

/// A word with one value of 60 bits.
fn one(n: i64) -> u64 {
    14 | ((((n << 1) ^ (n >> 63)) as u64) << 4)
}

const MISSING: u64 = u64::MAX - 1;

/// A word with six values of ten bits.
fn six(values: [i64; 6]) -> u64 {
    let zigzag = |n: i64| ((n << 1) ^ (n >> 63)) as u64;
    let slots = values.iter().enumerate();
    slots.fold(9, |w, (i, n)| w | (zigzag(*n) << (4 + 10 * i)))
}

fn column(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = parts.concat();
    out.push(0);
    out
}

#[test]
fn numbers_by_their_differences() {
    let c = column(&[literal(7), words(0x80, &[six([1, -1, 0, 5, -100, 3])])]);
    let expected: Vec<_> = [7, 8, 7, 7, 12, -88, -85].map(some).into();
    assert_eq!(read(&c).unwrap(), expected);
    // The same column byte by byte: 7 as int32, one word, slots 2 1 0 10 199 6.
    let bytes = [
        &[0x10, 0, 7, 0, 0, 0, 0x80][..],
        &(9_u64 | 2 << 4 | 1 << 14 | 10 << 34 | 199 << 44 | 6 << 54).to_le_bytes(),
        &[0],
    ]
    .concat();
    assert_eq!(c, bytes);
    let c = column(&[literal(i64::MAX), words(0x80, &[one(1), MISSING, one(-2)])]);
    let expected = vec![some(i64::MAX), some(i64::MIN), None, some(i64::MAX - 1)];
    assert_eq!(read(&c).unwrap(), expected);
    let c = column(&[literal(false), words(0x80, &[one(1), one(0), one(-1)])]);
    let expected: Vec<_> = [false, true, true, false].map(some).into();
    assert_eq!(read(&c).unwrap(), expected);
    let c = column(&[literal(false), words(0x80, &[one(2)])]);
    assert!(read(&c).is_err());
    assert_eq!(read(&column(&[])).unwrap(), vec![]);
}

#[test]
fn times_by_differences_of_differences() {
    let at = |ms| some(Value::DateTime(ms));
    let c = column(&[
        literal(Value::DateTime(1000)),
        words(0x80, &[one(10), one(0), one(0), one(5), MISSING, one(-30)]),
    ]);
    let expected = vec![
        at(1000),
        at(1010),
        at(1020),
        at(1030),
        at(1045),
        None,
        at(1030),
    ];
    assert_eq!(read(&c).unwrap(), expected);
    // A run of one hundred and twenty more steps of the same length.
    let c = column(&[
        literal(Value::DateTime(0)),
        words(0x80, &[one(60), one(0), 15]),
    ]);
    let got = read(&c).unwrap();
    assert_eq!(got.len(), 123);
    assert_eq!(got[122], at(122 * 60));
    let ts = |t, i| some(Value::Timestamp { t, i });
    let c = column(&[
        literal(Value::Timestamp { t: 5, i: 1 }),
        words(0x80, &[one(1), one(1)]),
    ]);
    assert_eq!(read(&c).unwrap(), vec![ts(5, 1), ts(5, 2), ts(5, 4)]);
}

#[test]
fn object_ids_by_their_moving_bytes() {
    let first = [0x65, 1, 2, 3, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0, 0, 0xFE];
    // The lowest byte of the counter is the lowest of the number, that of the seconds the next one.
    let c = column(&[
        literal(Value::ObjectId(first)),
        words(
            0x80,
            &[
                one(1),
                one(0x1_0000 - 0xFF - 1),
                one(0x100 - 0x1_0000 + 0xFF),
            ],
        ),
    ]);
    let got = read(&c).unwrap();
    let mut second = first;
    second[11] = 0xFF;
    assert_eq!(
        got[..2],
        [some(Value::ObjectId(first)), some(Value::ObjectId(second))]
    );
    // The column has differences of differences of the moving bytes, which count as one number.
    let packed = |v: &Option<ValueBuf>| {
        let v = v.as_ref().unwrap().raw();
        i64::from_le_bytes([v[11], v[3], v[10], v[2], v[9], v[1], v[0], 0])
    };
    let numbers: Vec<i64> = got.iter().map(packed).collect();
    assert_eq!(numbers[1] - numbers[0], 1);
    assert_eq!(numbers[2] - numbers[1], 0x1_0000 - 0xFF);
    assert_eq!(numbers[3] - numbers[2], 0x100);
    assert!(
        got.iter()
            .all(|v| v.as_ref().unwrap().raw()[4..9] == first[4..9])
    );
}

#[test]
fn doubles_by_scale() {
    let doubles = |all: &[f64]| all.iter().map(|d| some(*d)).collect::<Vec<_>>();
    let c = column(&[literal(1.0), words(0x90, &[one(2), one(-5)])]);
    assert_eq!(read(&c).unwrap(), doubles(&[1.0, 3.0, -2.0]));
    let c = column(&[literal(20.1), words(0xA0, &[one(1), one(-3), one(0)])]);
    assert_eq!(read(&c).unwrap(), doubles(&[20.1, 20.2, 19.9, 19.9]));
    // Several control bytes follow each other, each with its own scale.
    let c = column(&[
        literal(0.5),
        words(0xB0, &[one(25)]),
        words(0xC0, &[one(1)]),
        words(0xD0, &[one(1)]),
    ]);
    assert_eq!(read(&c).unwrap(), doubles(&[0.5, 0.75, 0.7501, 0.75010001]));
    let c = column(&[literal(0.1), words(0x80, &[one(1), one(-1)])]);
    let next = f64::from_bits(0.1_f64.to_bits() + 1);
    assert_eq!(read(&c).unwrap(), doubles(&[0.1, next, 0.1]));
    // This scale would lose the digits of the double after the point.
    for bad in [0.25_f64, f64::NAN, 1e300] {
        assert!(read(&column(&[literal(bad), words(0xA0, &[one(1)])])).is_err());
    }
}

#[test]
fn texts_and_data_of_128_bits() {
    // The last character is the lowest byte.
    let c = column(&[
        literal("sensor1"),
        words(0x80, &[one(1), one(0), one(256 - 2)]),
    ]);
    let expected: Vec<_> = ["sensor1", "sensor2", "sensor2", "sensos0"]
        .map(some)
        .into();
    assert_eq!(read(&c).unwrap(), expected);
    // The text goes from empty to two characters, and back.
    let ab = i64::from(b'a') << 8 | i64::from(b'b');
    let c = column(&[literal(""), words(0x80, &[one(ab), one(-ab)])]);
    assert_eq!(read(&c).unwrap(), [some(""), some("ab"), some("")]);
    let c = column(&[literal(Value::Code("f1")), words(0x80, &[one(1)])]);
    assert_eq!(
        read(&c).unwrap(),
        [some(Value::Code("f1")), some(Value::Code("f2"))]
    );
    let data = |bytes| Value::Binary { subtype: 0, bytes };
    let c = column(&[literal(data(&[1, 2, 3])), words(0x80, &[one(1), one(256)])]);
    assert_eq!(
        read(&c).unwrap(),
        [
            some(data(&[1, 2, 3])),
            some(data(&[2, 2, 3])),
            some(data(&[2, 3, 3]))
        ]
    );
    let mut decimal = [0; 16];
    decimal[15] = 0x30;
    let mut next = decimal;
    next[0] = 4;
    next[15] = 0x31;
    // The word has 2¹²⁰ doubled: 30 times four zeros after 2, in the large extension of selector 8.
    let high = 8 | (13 << 4) | ((2 << 5 | 30) << 8);
    let c = column(&[
        literal(Value::Decimal128(decimal)),
        words(0x80, &[high, one(4)]),
    ]);
    assert_eq!(
        read(&c).unwrap()[2],
        some(Value::Decimal128(next)),
        "the sign is the lowest bit"
    );
    // Longer values can only repeat.
    let long = "a text of more than sixteen bytes";
    let c = column(&[literal(long), words(0x80, &[one(0), one(0)])]);
    assert_eq!(read(&c).unwrap(), vec![some(long); 3]);
    let c = column(&[literal(data(&[0; 17])), words(0x80, &[one(1)])]);
    assert!(read(&c).is_err());
    // The result would not be valid UTF-8.
    let c = column(&[literal("a"), words(0x80, &[one(0x80)])]);
    assert!(read(&c).is_err());
}

#[test]
fn values_that_are_not_numbers_repeat() {
    for v in [
        ValueBuf::new(Value::Null),
        ValueBuf::new(Value::MinKey),
        ValueBuf::new(Value::MaxKey),
        ValueBuf::new(Value::Regex {
            pattern: "a",
            options: "i",
        }),
        ValueBuf::new(doc! { "a": 1 }),
        ValueBuf::new(array![1, 2]),
        ValueBuf::new(Value::Symbol("s")),
        ValueBuf::new(Value::CodeWithScope {
            code: "x",
            scope: doc! { "a": 1 }.as_doc(),
        }),
    ] {
        let c = column(&[literal(&v), words(0x80, &[one(0), MISSING])]);
        assert_eq!(read(&c).unwrap(), [some(&v), some(&v), None]);
        let c = column(&[literal(&v), words(0x80, &[one(1)])]);
        assert!(read(&c).is_err(), "{v:?}");
    }
    // The first values may be missing.
    let c = column(&[
        words(0x80, &[MISSING, MISSING]),
        literal(1),
        words(0x80, &[one(1)]),
    ]);
    assert_eq!(read(&c).unwrap(), [None, None, some(1), some(2)]);
}

#[test]
fn documents_are_put_together() {
    let reference = doc! { "x": 1, "y": doc! { "z": 10.5, "e": doc! {} }, "l": array![5, 6] };
    // The streams are those of x, y.z, l.0 and l.1. Each part comes where its stream runs out of values.
    let mut c = vec![0xF1];
    c.extend_from_slice(reference.as_bytes());
    c.extend(words(0x80, &[six([0, 1, 1, 1, 1, 1])]));
    c.extend(words(0xA0, &[one(0), MISSING]));
    c.extend(words(0x80, &[six([0, 0, 0, 0, 0, 1])]));
    c.extend(words(0x80, &[six([0, 2, 2, 2, 2, 2])]));
    // The third row has another value for y.z, of a different type.
    c.extend(literal("text"));
    c.extend(words(0x80, &[six([0, 0, 0, 0, 0, 0])]));
    c.push(0);
    // Six values of the second stream are left over, three rows too many.
    assert!(read(&[c.as_slice(), &[0]].concat()).is_err());
    let at = c.len() - 10;
    c.truncate(at);
    c.extend(words(0x80, &[one(0), one(0), MISSING]));
    c.push(0);
    // After the documents the last one repeats, then comes another literal.
    c.extend(words(0x80, &[one(0)]));
    c.extend(literal("end"));
    c.push(0);
    let row = |x: i32, z: Option<ValueBuf>, l: [i32; 2]| {
        let mut y = DocBuf::new();
        y.append_some("z", z.as_ref());
        y.append("e", doc! {});
        some(doc! { "x": x, "y": y, "l": array![l[0], l[1]] })
    };
    let expected = vec![
        row(1, some(10.5), [5, 6]),
        row(2, None, [5, 8]),
        row(3, some("text"), [5, 10]),
        row(4, some("text"), [5, 12]),
        row(5, some("text"), [5, 14]),
        row(6, None, [6, 16]),
        row(6, None, [6, 16]),
        some("end"),
    ];
    assert_eq!(read(&c).unwrap(), expected);
}

#[test]
fn arrays_and_documents_that_are_missing() {
    let reference = doc! { "0": 1, "1": doc! { "a": 2 } };
    let mut c = vec![0xF2];
    c.extend_from_slice(reference.as_bytes());
    c.extend(words(0x80, &[one(0), MISSING, one(0)]));
    c.extend(words(0x80, &[one(0), MISSING, MISSING]));
    c.extend([0, 0]);
    let both = array![1, doc! { "a": 2 }];
    assert_eq!(read(&c).unwrap(), [some(both), None, some(array![1])]);
    // With 0xF0 an array is a scalar, which can only repeat.
    let mut c = vec![0xF0];
    c.extend_from_slice(doc! { "a": array![1] }.as_bytes());
    c.extend(words(0x80, &[one(0), one(0)]));
    c.extend([0, 0]);
    let d = some(doc! { "a": array![1] });
    assert_eq!(read(&c).unwrap(), [d.clone(), d]);
}

#[test]
fn impossible_columns_are_refused() {
    let reference = doc! { "a": 1, "b": 2 };
    let with = |behind: &[u8]| [&[0xF1][..], reference.as_bytes(), behind].concat();
    let short = words(0x80, &[one(0)]);
    for bad in [
        vec![],
        vec![0, 0],
        vec![0x10, 0, 1, 2],
        vec![0x10, b'x', 0, 1, 0, 0, 0, 0],
        vec![0x14, 0, 0],
        vec![0x08, 0, 2, 0],
        vec![0x80, 1, 2, 3],
        column(&[words(0xE0, &[one(0)])]),
        column(&[words(0x80, &[one(1)])]),
        column(&[literal(1)])[..6].to_vec(),
        vec![0xF3, 0],
        vec![0xF1, 5, 0, 0, 0, 0, 0, 0],
        vec![0xF1, 200, 0, 0, 0, 0, 0, 0],
        with(&[0, 0]),
        with(&[&short[..], &[0, 0]].concat()),
        // The second stream is longer than the first.
        with(&[&short[..], &words(0x80, &[one(0), one(0)]), &[0, 0]].concat()),
        with(&[&short[..], &short, &[0, 1]].concat()),
        with(&[&short[..], &short].concat()),
    ] {
        assert!(read(&bad).is_err(), "{bad:?}");
    }
    assert!(read(&with(&[&short[..], &short, &[0, 0]].concat())).is_ok());
}

/// Reads random bytes, and valid columns with changed bytes. The result is an error or values, nothing else.
#[test]
fn nothing_that_is_read_can_do_harm() {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut documents = vec![0xF1];
    documents.extend_from_slice(doc! { "x": 1.5, "y": "s", "z": array![true] }.as_bytes());
    documents.extend(words(0xA0, &[six([0; 6])]));
    documents.extend(words(0x80, &[one(1), one(0), one(0), 15]));
    documents.extend(words(0x80, &[six([0; 6])]));
    let good = column(&[
        literal(Value::ObjectId([1; 12])),
        words(0x80, &[six([1; 6]), 15]),
        literal("text"),
        words(0x80, &[one(1), MISSING]),
        literal(0.5),
        words(0xA0, &[one(1)]),
        documents,
    ]);
    for i in 0..30_000 {
        let mut bytes = good.clone();
        if i % 3 == 0 {
            bytes = (0..random() % 60).map(|_| random() as u8).collect();
        }
        for _ in 0..random() % 4 {
            let at = (random() as usize) % bytes.len().max(1);
            if let Some(b) = bytes.get_mut(at) {
                *b = random() as u8;
            }
        }
        crate::fuzzing::bson_column(&bytes);
    }
}
