//! Values in the notation of mongosh, so that tests read like the manual: `{a: 1, 'b.c': [2.5,
//! ISODate('2020-01-01'), /x/i]}`.
//!
//! Whole numbers are int32 (or int64 if necessary, as in mongosh), others double. The only functions are the
//! constructors of the BSON types, with or without `new`.

use muniment_value::decimal::Decimal;
use muniment_value::{ArrayBuf, Doc, DocBuf, JsonMode, Value, ValueBuf};

/// Parses a document.
///
/// # Panics
/// If the text is not a document. The message has the position and the text.
pub fn shell(text: &str) -> DocBuf {
    let v = shell_value(text);
    let d = v.as_value().as_doc().map(|d| d.to_buf());
    d.unwrap_or_else(|| panic!("not a document: {text}"))
}

/// Parses any value.
///
/// # Panics
/// As for [`shell`].
pub fn shell_value(text: &str) -> ValueBuf {
    let mut p = Parser { text, at: 0 };
    let v = p.value();
    p.space();
    if p.at < text.len() {
        p.fail("the end");
    }
    v
}

/// Writes a value in the notation of scripts, from which [`shell_value`] reads the same value.
pub fn shell_text(value: Value<'_>) -> String {
    let each = |d: Doc<'_>, named: bool| {
        let parts = d.iter().map(|e| match named {
            true => format!("{}: {}", name_text(e.name()), shell_text(e.value())),
            false => shell_text(e.value()),
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    match value {
        Value::Document(d) => format!("{{{}}}", each(d, true)),
        Value::Array(a) => format!("[{}]", each(a, false)),
        Value::String(s) => quoted(s),
        Value::Double(n) if n.is_infinite() && n > 0.0 => "Infinity".to_owned(),
        Value::Double(n) if n.is_infinite() => "-Infinity".to_owned(),
        Value::Double(n) if n.is_nan() => "NaN".to_owned(),
        Value::Double(n) => format!("{n:?}"),
        Value::Int64(n) => format!("NumberLong('{n}')"),
        Value::Decimal128(_) => format!("NumberDecimal('{}')", value.to_display()),
        Value::ObjectId(id) => format!("ObjectId('{}')", hex(&id)),
        Value::Binary { subtype, bytes } => format!("HexData({subtype}, '{}')", hex(bytes)),
        Value::DateTime(ms) => {
            let mut d = DocBuf::new();
            d.append("d", value);
            let json = d.as_doc().to_json(JsonMode::Relaxed);
            match json.split('"').find(|part| part.contains('T')) {
                Some(date) if date.ends_with('Z') => format!("ISODate('{date}')"),
                _ => format!("Date({ms})"),
            }
        }
        Value::Code(code) => format!("Code({})", quoted(code)),
        Value::CodeWithScope { code, scope } => {
            format!("Code({}, {{{}}})", quoted(code), each(scope, true))
        }
        Value::Symbol(s) => format!("Symbol({})", quoted(s)),
        Value::Timestamp { t, i } => format!("Timestamp({t}, {i})"),
        Value::Undefined => "undefined".to_owned(),
        Value::MinKey => "MinKey".to_owned(),
        Value::MaxKey => "MaxKey".to_owned(),
        _ => value.to_display(),
    }
}

fn quoted(s: &str) -> String {
    let mut out = String::from("'");
    for c in s.chars() {
        match c {
            '\\' | '\'' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\0' => out.push_str("\\0"),
            c => out.push(c),
        }
    }
    out + "'"
}

fn name_text(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let starts = name.starts_with(|c: char| plain(c) && !c.is_ascii_digit());
    match starts && name.chars().all(plain) {
        true => name.to_owned(),
        false => quoted(name),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn fail(&self, expected: &str) -> ! {
        panic!("{expected} expected at «{}» in {}", self.rest(), self.text)
    }

    /// Skips white space and comments.
    fn space(&mut self) {
        loop {
            let rest = self.rest().trim_start();
            self.at = self.text.len() - rest.len();
            let end = match rest.get(..2) {
                Some("//") => rest.find('\n').unwrap_or(rest.len()),
                Some("/*") => rest.find("*/").map_or(rest.len(), |i| i + 2),
                _ => return,
            };
            self.at += end;
        }
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn want(&mut self, token: &str) {
        if !self.take(token) {
            self.fail(token);
        }
    }

    fn while_in(&mut self, accepts: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let len = rest.find(|c| !accepts(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn word(&mut self) -> &'t str {
        self.space();
        self.while_in(|c| c.is_alphanumeric() || matches!(c, '_' | '$'))
    }

    fn string(&mut self) -> Option<String> {
        self.space();
        let quote = self.rest().chars().next()?;
        if !matches!(quote, '"' | '\'' | '`') {
            return None;
        }
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, 't')) => out.push('\t'),
                    Some((_, '0')) => out.push('\0'),
                    Some((_, 'u')) => {
                        let hex: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                        let c = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                        out.push(c.unwrap_or_else(|| self.fail("a character's number")));
                    }
                    Some((_, c)) => out.push(c),
                    None => break,
                },
                c if c == quote => {
                    self.at += i + c.len_utf8();
                    return Some(out);
                }
                c => out.push(c),
            }
        }
        self.fail("the end of a string")
    }

    fn value(&mut self) -> ValueBuf {
        self.space();
        if let Some(s) = self.string() {
            return ValueBuf::new(s.as_str());
        }
        match self.rest().chars().next() {
            Some('{') => ValueBuf::new(self.document()),
            Some('[') => ValueBuf::new(self.array()),
            Some('/') => self.regex(),
            Some('-' | '+' | '.' | '0'..='9') => self.number(),
            Some(c) if c.is_alphabetic() => self.named(),
            _ => self.fail("a value"),
        }
    }

    fn document(&mut self) -> DocBuf {
        self.want("{");
        let mut d = DocBuf::new();
        while !self.take("}") {
            let name = match self.string() {
                Some(s) => s,
                None => match self.word() {
                    "" => self.fail("a field"),
                    w => w.to_owned(),
                },
            };
            self.want(":");
            d.append(&name, self.value());
            if !self.take(",") {
                self.want("}");
                break;
            }
        }
        d
    }

    fn array(&mut self) -> ArrayBuf {
        self.want("[");
        let mut a = ArrayBuf::new();
        while !self.take("]") {
            a.push(self.value());
            if !self.take(",") {
                self.want("]");
                break;
            }
        }
        a
    }

    fn regex(&mut self) -> ValueBuf {
        self.want("/");
        let (mut pattern, mut escaped, mut class) = (String::new(), false, false);
        loop {
            let Some(c) = self.rest().chars().next() else {
                self.fail("the end of a regular expression");
            };
            self.at += c.len_utf8();
            match c {
                '/' if !escaped && !class => break,
                '[' if !escaped => class = true,
                ']' if !escaped => class = false,
                _ => {}
            }
            if c == '/' && escaped {
                pattern.pop();
            }
            escaped = c == '\\' && !escaped;
            pattern.push(c);
        }
        let options = self.while_in(char::is_alphabetic);
        ValueBuf::new(Value::Regex {
            pattern: &pattern,
            options,
        })
    }

    fn number(&mut self) -> ValueBuf {
        let text = self.while_in(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'));
        if let Ok(n) = text.parse::<i64>() {
            return match i32::try_from(n) {
                Ok(n) => ValueBuf::new(n),
                Err(_) => ValueBuf::new(n),
            };
        }
        match text {
            "-Infinity" => ValueBuf::new(f64::NEG_INFINITY),
            _ => match text.parse::<f64>() {
                Ok(n) => ValueBuf::new(n),
                Err(_) => self.fail("a number"),
            },
        }
    }

    /// The arguments of a constructor, which may have none.
    fn arguments(&mut self) -> Vec<ValueBuf> {
        let mut args = Vec::new();
        if self.take("(") {
            while !self.take(")") {
                args.push(self.value());
                if !self.take(",") {
                    self.want(")");
                    break;
                }
            }
        }
        args
    }

    /// A literal that is a word, or a constructor.
    fn named(&mut self) -> ValueBuf {
        let mut word = self.word();
        if word == "new" {
            word = self.word();
        }
        let args = self.arguments();
        let arg = |n: usize| args.get(n).map_or(Value::Null, ValueBuf::as_value);
        let text = |n: usize| match arg(n) {
            Value::String(s) => s.to_owned(),
            v => v.to_display(),
        };
        let whole = |n: usize| match arg(n) {
            Value::Null => 0,
            Value::String(s) => s.parse().unwrap_or_else(|_| self.fail("a whole number")),
            v => muniment_value::number::to_i64_clamped(v)
                .unwrap_or_else(|| self.fail("a whole number")),
        };
        match word {
            "Int32" | "NumberInt" => ValueBuf::new(whole(0) as i32),
            "Long" | "NumberLong" => ValueBuf::new(whole(0)),
            "Double" => ValueBuf::new(muniment_value::number::to_f64(arg(0)).unwrap_or(f64::NAN)),
            "Decimal128" | "NumberDecimal" => match Decimal::parse(&text(0)) {
                Some(d) => ValueBuf::new(Value::Decimal128(d.to_bid())),
                None => self.fail("a decimal number"),
            },
            "ObjectId" => ValueBuf::new(Value::ObjectId(self.hex(&text(0)))),
            "UUID" => ValueBuf::new(Value::Binary {
                subtype: 4,
                bytes: &self.hex::<16>(&text(0).replace('-', "")),
            }),
            "HexData" => ValueBuf::new(Value::Binary {
                subtype: whole(0) as u8,
                bytes: &self.bytes(&text(1)),
            }),
            "Date" | "ISODate" => match arg(0) {
                Value::String(s) => ValueBuf::new(Value::DateTime(self.date(s))),
                _ => ValueBuf::new(Value::DateTime(whole(0))),
            },
            "Timestamp" => match arg(0) {
                Value::Document(d) => {
                    let part = |name| d.get(name).and_then(|v| v.as_i64_exact()).unwrap_or(0);
                    ValueBuf::new(Value::Timestamp {
                        t: part("t") as u32,
                        i: part("i") as u32,
                    })
                }
                _ => ValueBuf::new(Value::Timestamp {
                    t: whole(0) as u32,
                    i: whole(1) as u32,
                }),
            },
            "Code" => match arg(1) {
                Value::Document(scope) => ValueBuf::new(Value::CodeWithScope {
                    code: &text(0),
                    scope,
                }),
                _ => ValueBuf::new(Value::Code(&text(0))),
            },
            "Symbol" | "BSONSymbol" => ValueBuf::new(Value::Symbol(&text(0))),
            "DBRef" => {
                let mut d = DocBuf::new();
                d.append("$ref", text(0).as_str()).append("$id", arg(1));
                if args.len() > 2 {
                    d.append("$db", arg(2));
                }
                ValueBuf::new(d)
            }
            _ => constant(word).unwrap_or_else(|| self.fail("a value")),
        }
    }

    fn bytes(&self, hex: &str) -> Vec<u8> {
        let pair = |i: usize| {
            let two = hex.get(i..i + 2)?;
            u8::from_str_radix(two, 16).ok()
        };
        let all: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(pair).collect();
        all.unwrap_or_else(|| self.fail("hexadecimal digits"))
    }

    fn hex<const N: usize>(&self, hex: &str) -> [u8; N] {
        let all = self.bytes(hex).try_into();
        all.unwrap_or_else(|_| self.fail("hexadecimal digits"))
    }

    /// The milliseconds since 1970 of a date in ISO 8601, which must have at least the day.
    fn date(&self, text: &str) -> i64 {
        let full = match text.len() {
            10 => format!("{text}T00:00:00Z"),
            _ if text.ends_with('Z') || text.contains('+') => text.to_owned(),
            _ => format!("{text}Z"),
        };
        let json = format!("{{\"d\": {{\"$date\": \"{full}\"}}}}");
        match DocBuf::from_json(&json).map(|d| d.as_doc().get("d").map(ValueBuf::new)) {
            Ok(Some(v)) => match v.as_value() {
                Value::DateTime(ms) => ms,
                _ => self.fail("a date"),
            },
            _ => self.fail("a date"),
        }
    }
}

/// The value of a literal that is a word.
fn constant(word: &str) -> Option<ValueBuf> {
    Some(match word {
        "true" => ValueBuf::new(true),
        "false" => ValueBuf::new(false),
        "null" => ValueBuf::new(Value::Null),
        "undefined" => ValueBuf::new(Value::Undefined),
        "NaN" => ValueBuf::new(f64::NAN),
        "Infinity" => ValueBuf::new(f64::INFINITY),
        "MinKey" => ValueBuf::new(Value::MinKey),
        "MaxKey" => ValueBuf::new(Value::MaxKey),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn as_the_shell_has_it() {
        let got = shell(
            "{_id: 1, 'a.b': [1.5, -2, 1e3, 3000000000], \"q\": 'it\\'s', $set: {x: null,}, // why
              r: [/a\\/[/]b/i, true, NaN, MinKey, MaxKey()], l: NumberLong('5'), n: new Long(7),
              d: ISODate('1970-01-02'), e: new Date(5), t: Timestamp(1, 2), u: undefined}",
        );
        let want = doc! {
            "_id": 1,
            "a.b": array![1.5, -2, 1000.0, 3_000_000_000_i64],
            "q": "it's",
            "$set": doc! { "x": Value::Null },
            "r": array![
                Value::Regex { pattern: "a/[/]b", options: "i" },
                true,
                f64::NAN,
                Value::MinKey,
                Value::MaxKey
            ],
            "l": 5_i64,
            "n": 7_i64,
            "d": Value::DateTime(86_400_000),
            "e": Value::DateTime(5),
            "t": Value::Timestamp { t: 1, i: 2 },
            "u": Value::Undefined,
        };
        assert_eq!(got.as_doc().to_display(), want.as_doc().to_display());
        assert_eq!(got.as_bytes(), want.as_bytes());
    }

    #[test]
    fn constructors() {
        for (text, shown) in [
            (
                "ObjectId('0102030405060708090a0b0c')",
                "ObjectId('0102030405060708090a0b0c')",
            ),
            (
                "UUID('00112233-4455-6677-8899-aabbccddeeff')",
                "UUID(\"00112233-4455-6677-8899-aabbccddeeff\")",
            ),
            ("NumberDecimal('1.10')", "1.10"),
            ("DBRef('c', 5)", "{ $ref: \"c\", $id: 5 }"),
        ] {
            assert_eq!(shell_value(text).as_value().to_display(), shown);
        }
    }

    #[test]
    fn written_values_are_read_as_they_were() {
        let text = "{a: [1, 2.0, NumberLong('3'), NumberDecimal('4.50')], 'b.c': 'it\\'s\\n', $d: ISODate('2020-01-02T03:04:05Z'), e: [HexData(0, '00ff'), ObjectId('0102030405060708090a0b0c'), Timestamp(1, 2), MinKey, NaN, -Infinity], f: /x/i, g: Code('1', {h: null})}";
        assert_eq!(shell_text(shell_value(text).as_value()), text);
    }

    #[test]
    #[should_panic(expected = "a value expected at «}»")]
    fn a_syntax_error_is_shown() {
        shell("{a: }");
    }
}
