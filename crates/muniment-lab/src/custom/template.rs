//! The form of documents as a file describes it: constants, nested documents and generators.
//!
//! A table with one key that is a generator's name is that generator; a table with one key of
//! Extended JSON (`$oid`, `$numberLong`, …) is that constant; any other table is a document, and so
//! is every table directly below an operator that takes a document of fields (`$set`, `$match`, …).

use super::draw::{Shape, Shared};
use super::encode::{Encoder, Env, Hand};
use super::generate::{self, Generator};
use super::source::{Bad, Item, Key, Parsed, Value};
use muniment_value::DocBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Operators below which a table, or each table of a list, is a document of fields.
const OF_FIELDS: &[&str] = &[
    "$addFields",
    "$addToSet",
    "$and",
    "$bit",
    "$currentDate",
    "$elemMatch",
    "$group",
    "$inc",
    "$match",
    "$max",
    "$min",
    "$mul",
    "$nor",
    "$or",
    "$pop",
    "$project",
    "$pull",
    "$pullAll",
    "$push",
    "$rename",
    "$set",
    "$setOnInsert",
    "$sort",
    "$unset",
];

/// The keys of one-key tables that are constants of Extended JSON.
const EXTENDED: &[&str] = &[
    "$binary",
    "$code",
    "$date",
    "$maxKey",
    "$minKey",
    "$numberDecimal",
    "$numberDouble",
    "$numberInt",
    "$numberLong",
    "$oid",
    "$regularExpression",
    "$symbol",
    "$timestamp",
    "$undefined",
    "$uuid",
];

/// A constant value, or the way to make a value.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    /// A constant: BSON type and bytes.
    Constant(u8, Vec<u8>),
    Document(Vec<(String, Node)>),
    Array(Vec<Node>),
    /// A generator, which makes a new value each time.
    Made(Arc<dyn Generator>),
}

/// Facts gathered while the templates of a file are read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The sequences that templates take numbers from.
    pub taken: BTreeSet<String>,
    /// The sequences whose numbers are used as keys, with the first line that uses them.
    pub keys: BTreeMap<String, usize>,
    /// The number of keys so far that the operation's distribution draws.
    pub draws: usize,
    /// The templates that contain such keys.
    pub drawing: BTreeSet<String>,
}

impl Node {
    /// A constant string.
    pub(crate) fn text(s: &str) -> Node {
        let mut bytes = ((s.len() + 1) as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(s.as_bytes());
        bytes.push(0);
        Node::Constant(2, bytes)
    }

    /// A constant whole number: int32 if it fits, else int64.
    pub(crate) fn whole(n: i64) -> Node {
        match i32::try_from(n) {
            Ok(n) => Node::Constant(16, n.to_le_bytes().to_vec()),
            Err(_) => Node::Constant(18, n.to_le_bytes().to_vec()),
        }
    }

    /// A constant boolean.
    pub(crate) fn flag(b: bool) -> Node {
        Node::Constant(8, vec![u8::from(b)])
    }

    /// A constant document.
    pub(crate) fn doc(d: &DocBuf) -> Node {
        Node::Constant(3, d.as_bytes().to_vec())
    }

    /// The BSON type of its values; `None` if it varies.
    pub(crate) fn kind(&self) -> Option<u8> {
        match self {
            Node::Constant(kind, _) => Some(*kind),
            Node::Document(_) => Some(3),
            Node::Array(_) => Some(4),
            Node::Made(g) => g.kind(),
        }
    }

    /// Whether it contains a generator.
    fn is_made(&self) -> bool {
        match self {
            Node::Constant(..) => false,
            Node::Document(fields) => fields.iter().any(|(_, n)| n.is_made()),
            Node::Array(nodes) => nodes.iter().any(Node::is_made),
            Node::Made(_) => true,
        }
    }

    /// The document, if it is one that contains no generator.
    pub(crate) fn constant(&self) -> Option<DocBuf> {
        if self.kind() != Some(3) || self.is_made() {
            return None;
        }
        let shared = Shared::default();
        let env = Env::new(&[], &shared, &Shape::Uniform, "");
        let mut out = Vec::new();
        let mut encoder = Encoder::new(self, &env).ok()?;
        encoder.write(&mut Hand::new(0, &[]), &mut out);
        Some(DocBuf::from_bytes_trusted(out))
    }

    /// Whether a value may be absent.
    fn optional(&self) -> bool {
        matches!(self, Node::Made(g) if g.optional())
    }

    /// Reads a value.
    ///
    /// # Errors
    /// A generator has a mistake in it, or a value in Extended JSON is invalid.
    pub(crate) fn value(item: &Item, seen: &mut Seen) -> Parsed<Node> {
        Ok(match &item.value {
            Value::Text(s) => Node::text(s),
            Value::Whole(n) => Node::whole(*n),
            Value::Number(n) => Node::Constant(1, n.to_le_bytes().to_vec()),
            Value::Flag(b) => Node::flag(*b),
            Value::Date(ms) => Node::Constant(9, ms.to_le_bytes().to_vec()),
            Value::List(items) => {
                let nodes = items.iter().map(|i| Node::element(i, seen));
                Node::Array(nodes.collect::<Parsed<_>>()?)
            }
            Value::Table(entries) => {
                if let [(key, value)] = entries.as_slice() {
                    if let Some(spec) = generate::named(&key.name) {
                        return (spec.read)(value, seen);
                    }
                    if EXTENDED.contains(&key.name.as_str()) {
                        return extended(item);
                    }
                }
                Node::fields(entries, seen)?
            }
        })
    }

    /// Reads a value as [`Node::value`] does, for an array, where no value may be absent.
    ///
    /// # Errors
    /// The errors of [`Node::value`], or the value is `optional`.
    pub(crate) fn element(item: &Item, seen: &mut Seen) -> Parsed<Node> {
        let node = Node::value(item, seen)?;
        if node.optional() {
            return Err(item.bad("'optional' may stand as the value of a document's field only"));
        }
        Ok(node)
    }

    /// Reads a document. Any table is a document here, even if its key names a generator.
    ///
    /// # Errors
    /// The errors of [`Node::value`], or the value is no table.
    pub(crate) fn document(item: &Item, what: &str, seen: &mut Seen) -> Parsed<Node> {
        Node::fields(item.table(what)?, seen)
    }

    /// Reads a list of documents.
    ///
    /// # Errors
    /// The errors of [`Node::document`], or the value is no list.
    pub(crate) fn documents(item: &Item, what: &str, seen: &mut Seen) -> Parsed<Node> {
        let items = item.list(what)?.iter();
        let nodes = items.map(|i| Node::document(i, what, seen));
        Ok(Node::Array(nodes.collect::<Parsed<_>>()?))
    }

    fn fields(entries: &[(Key, Item)], seen: &mut Seen) -> Parsed<Node> {
        let fields = entries.iter().map(|(key, item)| {
            if key.name.contains('\0') {
                return Err(Bad {
                    line: key.line,
                    text: "a field's name may not contain a zero byte".into(),
                });
            }
            let node = if OF_FIELDS.contains(&key.name.as_str()) {
                Node::below(item, seen)?
            } else {
                Node::value(item, seen)?
            };
            Ok((key.name.clone(), node))
        });
        Ok(Node::Document(fields.collect::<Parsed<_>>()?))
    }

    /// Reads a value below an operator that takes documents of fields.
    fn below(item: &Item, seen: &mut Seen) -> Parsed<Node> {
        match &item.value {
            Value::Table(entries) => Node::fields(entries, seen),
            Value::List(items) => {
                let nodes = items.iter().map(|i| Node::below(i, seen));
                Ok(Node::Array(nodes.collect::<Parsed<_>>()?))
            }
            _ => Node::value(item, seen),
        }
    }
}

/// Reads a constant in the form of Extended JSON.
fn extended(item: &Item) -> Parsed<Node> {
    json(&as_json(item).to_string()).map_err(|e| item.bad(e))
}

/// Parses a value in Extended JSON.
///
/// # Errors
/// The text is no Extended JSON; the error tells why in words.
pub(crate) fn json(text: &str) -> Result<Node, String> {
    let doc = DocBuf::from_json(&format!("{{\"v\": {text}}}")).map_err(|e| e.to_string())?;
    let first = doc.as_doc().first();
    let value = first.ok_or_else(|| format!("{text} is no value"))?;
    // In the encoded document the type, the name "v" and a zero stand before the value.
    let kind = value.as_bytes().first().copied().unwrap_or(10);
    Ok(Node::Constant(kind, value.raw_value().to_vec()))
}

fn as_json(item: &Item) -> serde_json::Value {
    match &item.value {
        Value::Text(s) => s.as_str().into(),
        Value::Whole(n) | Value::Date(n) => (*n).into(),
        Value::Number(n) => (*n).into(),
        Value::Flag(b) => (*b).into(),
        Value::List(l) => l.iter().map(as_json).collect(),
        Value::Table(t) => t
            .iter()
            .map(|(k, i)| (k.name.clone(), as_json(i)))
            .collect(),
    }
}
