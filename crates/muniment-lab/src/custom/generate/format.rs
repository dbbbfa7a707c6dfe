//! Text with other values inside, as in `user00000042`.

use super::{Generator, Source, Spec};
use crate::custom::encode::{Encoder, Env, Hand, patch_length};
use crate::custom::source::{Item, Parsed};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::Result;
use muniment_options::meant;
use std::io::Write;
use std::sync::Arc;

/// The generator `format`.
pub(super) const SPEC: Spec = Spec {
    name: "format",
    form: "{ text = \"user{n:08}\", n = VALUE, … }",
    about: "a string with values in it (numbers, strings, booleans, ObjectIds); {n:08} fills up with zeros to eight characters, {{ and }} are braces",
    read,
};

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    /// The index of a value, and the width that it is filled up to with zeros.
    Value(usize, usize),
}

#[derive(Debug)]
struct Format {
    pieces: Vec<Piece>,
    values: Vec<Node>,
}

fn read(item: &Item, seen: &mut Seen) -> Parsed<Node> {
    let entries = item.table("format")?;
    let mut f = item.fields("format")?;
    let line = f.need("text")?;
    let text = line.text("text")?;
    let named: Vec<_> = entries.iter().filter(|(k, _)| k.name != "text").collect();
    let mut values = Vec::new();
    for (key, item) in &named {
        let node = Node::element(item, seen)?;
        // A generator of several types has no single kind here; its values are formatted by the
        // type that each of them has.
        if !matches!(node.kind(), None | Some(1 | 2 | 7 | 8 | 16 | 18)) {
            return Err(item.bad(format!(
                "format: {} must be a number, a string, a boolean or an ObjectId",
                key.name
            )));
        }
        values.push(node);
    }
    let names: Vec<&str> = named.iter().map(|(k, _)| k.name.as_str()).collect();
    let pieces = pieces(text, &names).map_err(|e| line.bad(format!("format: {e}")))?;
    for (i, (key, item)) in named.iter().enumerate() {
        let used = |p: &Piece| matches!(p, Piece::Value(n, _) if *n == i);
        if !pieces.iter().any(used) {
            return Err(item.bad(format!("format: the text has no {{{}}}", key.name)));
        }
    }
    Ok(Node::Made(Arc::new(Format { pieces, values })))
}

/// Splits a format into its text and the values in braces.
fn pieces(text: &str, names: &[&str]) -> std::result::Result<Vec<Piece>, String> {
    let mut out = Vec::new();
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if matches!(c, '{' | '}') && chars.peek() == Some(&c) {
            chars.next();
            plain.push(c);
            continue;
        }
        if c == '}' {
            return Err("there is a } without its {".into());
        }
        if c != '{' {
            plain.push(c);
            continue;
        }
        let mut inside = String::new();
        loop {
            match chars.next() {
                Some('}') => break,
                Some(c) => inside.push(c),
                None => return Err("there is a { without its }".into()),
            }
        }
        let (name, width) = match inside.split_once(':') {
            None => (inside.as_str(), 0),
            Some((name, width)) => {
                let digits = width.strip_prefix('0').and_then(|w| w.parse().ok());
                let digits = digits.filter(|w| *w <= 100);
                (
                    name,
                    digits.ok_or_else(|| format!("{{{inside}}}: behind : stands 0 and a width"))?,
                )
            }
        };
        let at = names.iter().position(|n| *n == name);
        let at = at.ok_or_else(|| {
            format!(
                "{{{name}}} is not among its values: {}they are {}",
                meant(name, names),
                names.join(", ")
            )
        })?;
        out.push(Piece::Text(std::mem::take(&mut plain)));
        out.push(Piece::Value(at, width));
    }
    out.push(Piece::Text(plain));
    Ok(out)
}

impl Generator for Format {
    fn kind(&self) -> Option<u8> {
        Some(2)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        let values = self.values.iter();
        Ok(Box::new(Formatted {
            pieces: self.pieces.clone(),
            values: values
                .map(|v| Ok((Encoder::new(v, env)?, 0, Vec::new())))
                .collect::<Result<_>>()?,
        }))
    }
}

struct Formatted {
    pieces: Vec<Piece>,
    /// Each value's encoder, with the type and bytes of the value that it made last.
    values: Vec<(Encoder, u8, Vec<u8>)>,
}

impl Source for Formatted {
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        for (encoder, kind, bytes) in &mut self.values {
            bytes.clear();
            *kind = encoder.write(hand, bytes);
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for piece in &self.pieces {
            match piece {
                Piece::Text(t) => out.extend_from_slice(t.as_bytes()),
                Piece::Value(at, width) => {
                    if let Some((_, kind, bytes)) = self.values.get(*at) {
                        let begin = out.len();
                        show(*kind, bytes, out);
                        let short = width.saturating_sub(out.len() - begin);
                        out.splice(begin..begin, std::iter::repeat_n(b'0', short));
                    }
                }
            }
        }
        out.push(0);
        patch_length(out, start);
        // BSON's length of a string does not count the length itself.
        if let Some(head) = out.get_mut(start..start + 4)
            && let Ok(n) = <[u8; 4]>::try_from(&*head)
        {
            head.copy_from_slice(&(u32::from_le_bytes(n) - 4).to_le_bytes());
        }
        2
    }
}

/// Appends the text of a value.
fn show(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    let eight = bytes.first_chunk::<8>().copied().unwrap_or_default();
    let four = bytes.first_chunk::<4>().copied().unwrap_or_default();
    // Writing into memory does not fail.
    let _ = match kind {
        1 => write!(out, "{}", f64::from_le_bytes(eight)),
        2 => {
            let text = bytes.get(4..bytes.len().saturating_sub(1));
            out.extend_from_slice(text.unwrap_or_default());
            Ok(())
        }
        7 => bytes.iter().try_for_each(|b| write!(out, "{b:02x}")),
        8 => write!(out, "{}", bytes.first() == Some(&1)),
        16 => write!(out, "{}", i32::from_le_bytes(four)),
        18 => write!(out, "{}", i64::from_le_bytes(eight)),
        _ => Ok(()),
    };
}
