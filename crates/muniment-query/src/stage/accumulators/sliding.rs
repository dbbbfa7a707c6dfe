//! The states of windows that keep values in the order in which they came.

use super::arrays::no_array;
use super::first_last::size;
use super::{Sliding, check_held};
use crate::bytes::{IndexName, close, head, open, put};
use muniment_value::{Result, Type, Value, ValueBuf};
use std::collections::VecDeque;

/// The result of a [`Queue`].
#[derive(Clone, Copy, Debug)]
pub(in crate::stage) enum Kind {
    /// The first value.
    First,
    /// An array of the first values.
    FirstN(usize),
    /// An array of all values, without missing ones.
    Values,
    /// An array of the elements of all values, which are arrays themselves.
    Elements,
}

/// All values of the window.
#[derive(Debug)]
pub(in crate::stage) struct Queue {
    kind: Kind,
    values: VecDeque<ValueBuf>,
    /// Bytes of the values.
    held: usize,
}

impl Queue {
    pub(crate) fn new(kind: Kind) -> Queue {
        Queue {
            kind,
            values: VecDeque::new(),
            held: 0,
        }
    }

    /// The form in which a value is kept.
    fn kept<'a>(&self, v: Option<Value<'a>>) -> Result<Option<Value<'a>>> {
        match (self.kind, v) {
            (Kind::First | Kind::FirstN(_), v) => Ok(Some(v.unwrap_or(Value::Null))),
            (Kind::Elements, Some(Value::Array(a))) => Ok(Some(Value::Array(a))),
            (Kind::Elements, Some(other)) => Err(no_array("$concatArrays", other)),
            (Kind::Values | Kind::Elements, v) => Ok(v),
        }
    }
}

impl Sliding for Queue {
    fn heap(&self) -> usize {
        self.held
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = self.kept(v)? {
            let v = ValueBuf::new(v);
            self.held += size(&v) + size_of::<ValueBuf>();
            self.values.push_back(v);
        }
        check_held("a window's values", self.held)
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if self.kept(v)?.is_some()
            && let Some(v) = self.values.pop_front()
        {
            self.held = self.held.saturating_sub(size(&v) + size_of::<ValueBuf>());
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        match self.kind {
            Kind::First => put(out, name, &self.values.front()),
            Kind::FirstN(n) => array(name, self.values.iter().take(n), out),
            Kind::Values => array(name, self.values.iter(), out),
            Kind::Elements => {
                head(out, Type::Array, name);
                let start = open(out);
                let arrays = self.values.iter().filter_map(|v| v.as_value().as_array());
                for (i, v) in arrays.flat_map(|a| a.values()).enumerate() {
                    put(out, IndexName::new(i).as_bytes(), &v);
                }
                close(out, start);
            }
        }
    }
}

/// Appends an array.
pub(super) fn array<'v>(
    name: &[u8],
    values: impl Iterator<Item = &'v ValueBuf>,
    out: &mut Vec<u8>,
) {
    head(out, Type::Array, name);
    let start = open(out);
    for (i, v) in values.enumerate() {
        put(out, IndexName::new(i).as_bytes(), v);
    }
    close(out, start);
}

/// The last values of the window. Those before them need not be kept.
#[derive(Debug)]
pub(in crate::stage) struct LastFew {
    /// The number of values; `None` stands for a single one that is returned without an array.
    n: Option<usize>,
    values: VecDeque<ValueBuf>,
    held: usize,
    /// The number of values in the window.
    count: usize,
}

impl LastFew {
    pub(crate) fn new(n: Option<usize>) -> LastFew {
        LastFew {
            n,
            values: VecDeque::new(),
            held: 0,
            count: 0,
        }
    }
}

impl Sliding for LastFew {
    fn heap(&self) -> usize {
        self.held
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        self.count += 1;
        let v = ValueBuf::new(v.unwrap_or(Value::Null));
        self.held += size(&v) + size_of::<ValueBuf>();
        self.values.push_back(v);
        if self.values.len() > self.n.unwrap_or(1)
            && let Some(v) = self.values.pop_front()
        {
            self.held = self.held.saturating_sub(size(&v) + size_of::<ValueBuf>());
        }
        check_held("a window's values", self.held)
    }

    fn remove(&mut self, _: Option<Value<'_>>) -> Result<()> {
        self.count = self.count.saturating_sub(1);
        if self.count < self.values.len() {
            self.values.pop_front();
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        match self.n {
            None => put(out, name, &self.values.back()),
            Some(_) => array(name, self.values.iter(), out),
        }
    }
}
