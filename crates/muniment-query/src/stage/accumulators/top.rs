//! `$top`, `$topN`, `$bottom` and `$bottomN`: values from the documents that come first or last in the
//! accumulator's own sort order.

use super::sliding_sorted::SlidingTop;
use super::{
    Accumulator, Make, Options, Order, Parsed, Sliding, Spec, check_held, elements, no_state,
    whole_n,
};
use crate::bytes::{IndexName, close, head, open, put};
use crate::expr::Expr;
use crate::sort::SortSpec;
use muniment_value::{Doc, DocBuf, Error, Result, Type, Value, ValueBuf, doc};
use std::sync::Arc;

pub(super) const TOP: Spec = Spec::options(
    "$top",
    "The value of the document that sorts first.",
    Order::Kept,
    |o| parse(&o, false, true),
);

pub(super) const TOP_N: Spec = Spec::options(
    "$topN",
    "The values of the documents that sort first.",
    Order::Kept,
    |o| parse(&o, false, false),
);

pub(super) const BOTTOM: Spec = Spec::options(
    "$bottom",
    "The value of the document that sorts last.",
    Order::Kept,
    |o| parse(&o, true, true),
);

pub(super) const BOTTOM_N: Spec = Spec::options(
    "$bottomN",
    "The values of the documents that sort last.",
    Order::Kept,
    |o| parse(&o, true, false),
);

fn parse(o: &Options<'_>, bottom: bool, single: bool) -> Result<Parsed> {
    let (n, start) = if single {
        o.only(&["sortBy", "output"])?;
        (1, None)
    } else {
        o.only(&["n", "sortBy", "output"])?;
        o.n(5_788_003)?
    };
    let output = o.need("output", 5_788_004)?;
    let Value::Document(sort) = o.need("sortBy", 5_788_005)? else {
        return Err(Error::location(
            5_788_604,
            format!("expected 'sortBy' of {} to be an object", o.name),
        ));
    };
    let sort = Arc::new(SortSpec::parse(sort, o.ctx)?);
    // A single expression gives both the document, for its sort key, and the output.
    let mut both = DocBuf::new();
    both.append("d", "$$ROOT");
    both.append("o", output);
    let metadata = sort.keys().iter().filter_map(|k| k.meta);
    let metadata = metadata.fold(DocBuf::new(), |mut d, m| {
        d.append(m.name(), doc! { "$meta": m.name() });
        d
    });
    if !metadata.is_empty() {
        both.append("m", metadata);
    }
    let order = Arc::clone(&sort);
    Ok(Parsed {
        expr: Expr::parse(Value::Document(both.as_doc()), o.ctx)?,
        // A window has no group, so its n is a constant.
        sliding: start.is_none().then(|| -> Make<dyn Sliding> {
            Box::new(move || Box::new(SlidingTop::new(n, bottom, single, Arc::clone(&order))))
        }),
        start,
        make: Box::new(move || {
            Box::new(Top {
                n,
                bottom,
                single,
                sort: Arc::clone(&sort),
                kept: Vec::new(),
                bytes: 0,
            })
        }),
    })
}

#[derive(Debug)]
struct Top {
    n: usize,
    bottom: bool,
    single: bool,
    sort: Arc<SortSpec>,
    /// Sort keys and outputs in the order of the keys.
    kept: Vec<(Vec<u8>, ValueBuf)>,
    bytes: usize,
}

impl Top {
    fn keep(&mut self, key: Vec<u8>, v: Value<'_>) -> Result<()> {
        let at = self.kept.partition_point(|(k, _)| *k <= key);
        let full = self.kept.len() >= self.n;
        if full && if self.bottom { at == 0 } else { at == self.n } {
            return Ok(());
        }
        let v = ValueBuf::new(v);
        self.bytes += size(&key, &v);
        self.kept.insert(at, (key, v));
        if full {
            let gone = if self.bottom { 0 } else { self.n };
            let (k, v) = self.kept.remove(gone);
            self.bytes = self.bytes.saturating_sub(size(&k, &v));
        }
        check_held("an accumulator of sorted values", self.bytes)
    }
}

/// Appends the sort key for the value of that expression.
pub(super) fn sort_key(sort: &SortSpec, both: Doc<'_>, key: &mut Vec<u8>) -> Result<()> {
    let Some(Value::Document(d)) = both.get("d") else {
        return Ok(());
    };
    match both.get("m") {
        // Metadata come after the document.
        Some(Value::Document(m)) => sort.key(Doc::new(&[d.as_bytes(), m.as_bytes()].concat()), key),
        _ => sort.key(d, key),
    }
}

fn size(key: &[u8], v: &ValueBuf) -> usize {
    key.len() + super::first_last::size(v) + size_of::<(Vec<u8>, ValueBuf)>()
}

impl Accumulator for Top {
    fn start(&mut self, n: Option<Value<'_>>) -> Result<()> {
        self.n = whole_n(n)?;
        Ok(())
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let Some(Value::Document(both)) = v else {
            return Ok(());
        };
        let mut key = Vec::new();
        sort_key(&self.sort, both, &mut key)?;
        self.keep(key, both.get("o").unwrap_or(Value::Null))
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        if self.single {
            put(out, name, &self.kept.first().map(|(_, v)| v));
            return;
        }
        head(out, Type::Array, name);
        let start = open(out);
        for (i, (_, v)) in self.kept.iter().enumerate() {
            put(out, IndexName::new(i).as_bytes(), v);
        }
        close(out, start);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        head(out, Type::Array, name);
        let start = open(out);
        for (i, (key, v)) in self.kept.iter().enumerate() {
            let key = Value::Binary {
                subtype: 0,
                bytes: key,
            };
            put(out, IndexName::new(2 * i).as_bytes(), &key);
            put(out, IndexName::new(2 * i + 1).as_bytes(), v);
        }
        close(out, start);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        const NAME: &str = "an accumulator of sorted values";
        let mut values = elements(NAME, saved)?.values();
        while let Some(key) = values.next() {
            let (Value::Binary { bytes, .. }, Some(v)) = (key, values.next()) else {
                return Err(no_state(NAME, saved));
            };
            self.keep(bytes.to_vec(), v)?;
        }
        Ok(())
    }

    fn heap(&self) -> usize {
        self.bytes
    }
}
