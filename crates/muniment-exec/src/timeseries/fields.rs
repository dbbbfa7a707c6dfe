//! The parts of a bucket for each field of its measurements: a column, the least value and the
//! greatest.

use muniment_value::{Collation, Doc, DocBuf, Elem, Put, Type, Value, ValueBuf};
use std::cmp::Ordering;
use std::collections::HashMap;

/// A value for each name, in the order in which the names came.
#[derive(Debug)]
pub(super) struct Named<T> {
    entries: Vec<(Box<[u8]>, T)>,
    places: HashMap<Box<[u8]>, usize>,
}

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named {
            entries: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<T> Named<T> {
    /// The position of a name. Documents of one kind have their fields at the same positions, so
    /// `guess` is tried first.
    fn place(&self, name: &[u8], guess: usize) -> Option<usize> {
        match self.entries.get(guess) {
            Some((n, _)) if **n == *name => Some(guess),
            _ => self.places.get(name).copied(),
        }
    }

    fn get(&self, name: &[u8], guess: usize) -> Option<&T> {
        let place = self.place(name, guess)?;
        self.entries.get(place).map(|(_, t)| t)
    }

    /// The value of a name, made by `new` if there is none yet.
    pub(super) fn entry(
        &mut self,
        name: &[u8],
        guess: usize,
        new: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        let place = match self.place(name, guess) {
            Some(place) => place,
            None => {
                let place = self.entries.len();
                self.places.insert(name.into(), place);
                self.entries.push((name.into(), new()));
                place
            }
        };
        self.entries.get_mut(place).map(|(_, t)| t)
    }

    /// All names with their values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.entries.iter().map(|(n, t)| (&**n, t))
    }
}

/// The least or the greatest value of each field, as MongoDB keeps them. Documents and arrays are
/// compared field by field, everything else in the canonical order (strings by the collection's
/// collation). Values of different kinds are compared by type.
#[derive(Debug, Default)]
pub(super) struct Bounds(Named<Bound>);

#[derive(Debug)]
enum Bound {
    Value(ValueBuf),
    Nested(Type, Bounds),
}

impl Bound {
    fn ty(&self) -> Type {
        match self {
            Bound::Value(v) => v.ty(),
            Bound::Nested(ty, _) => *ty,
        }
    }
}

fn nested(ty: Type) -> bool {
    matches!(ty, Type::Document | Type::Array)
}

impl Bounds {
    /// Takes in the fields of a document. With `Less` the lesser value is kept, with `Greater` the
    /// greater one.
    pub(super) fn add<'e>(
        &mut self,
        elements: impl Iterator<Item = Elem<'e>> + Clone,
        keep: Ordering,
        collation: &Collation,
    ) {
        for (i, e) in elements.enumerate() {
            let Some(bound) = self.0.entry(e.name_bytes(), i, || new_bound(e)) else {
                continue;
            };
            let ranks = e.ty().rank().cmp(&bound.ty().rank());
            match bound {
                Bound::Nested(_, inner) if ranks == Ordering::Equal => {
                    inner.add(Doc::new(e.raw_value()).iter(), keep, collation);
                }
                Bound::Value(v)
                    if ranks == Ordering::Equal
                        && collation.cmp(e.value(), v.as_value()) == keep =>
                {
                    *v = ValueBuf::new(e);
                }
                _ if ranks == keep => {
                    *bound = new_bound(e);
                    if let Bound::Nested(_, inner) = bound {
                        inner.add(Doc::new(e.raw_value()).iter(), keep, collation);
                    }
                }
                _ => {}
            }
        }
    }

    /// False if a field has another type here than in the earlier measurements. MongoDB puts such
    /// measurements into buckets of their own.
    pub(super) fn agree<'e>(&self, elements: impl Iterator<Item = Elem<'e>> + Clone) -> bool {
        elements.enumerate().all(|(i, e)| {
            let Some(bound) = self.0.get(e.name_bytes(), i) else {
                return true;
            };
            e.ty().rank() == bound.ty().rank()
                && match bound {
                    Bound::Nested(_, inner) => inner.agree(Doc::new(e.raw_value()).iter()),
                    Bound::Value(_) => true,
                }
        })
    }

    /// The bounds as a document. `instead` replaces the value of one top-level field.
    pub(super) fn to_doc(&self, instead: Option<(&str, Value<'_>)>) -> DocBuf {
        let mut d = DocBuf::new();
        for (name, bound) in self.0.iter() {
            let name = String::from_utf8_lossy(name);
            match (bound, instead) {
                (_, Some((field, value))) if field == name => d.append(&name, value),
                (Bound::Value(v), _) => d.append(&name, v),
                (Bound::Nested(Type::Array, inner), _) => {
                    let inner = inner.to_doc(None);
                    d.append(&name, Value::Array(inner.as_doc()))
                }
                (Bound::Nested(_, inner), _) => d.append(&name, inner.to_doc(None)),
            };
        }
        d
    }
}

fn new_bound(e: Elem<'_>) -> Bound {
    match nested(e.ty()) {
        // Its fields are added by the caller.
        true => Bound::Nested(e.ty(), Bounds::default()),
        false => Bound::Value(ValueBuf::new(e)),
    }
}

/// A document that has the numbers of measurements as names, still without its length and its end.
#[derive(Debug, Default)]
struct Column {
    bytes: Vec<u8>,
    /// Measurements from this one on have no value yet.
    next: u32,
}

/// The values of each field by the numbers of their measurements.
#[derive(Debug, Default)]
pub(super) struct Columns {
    columns: Named<Column>,
    rows: u32,
    bytes: usize,
}

impl Columns {
    /// The number of rows.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// The bytes of all columns.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a row. Unless `kept`, only its bytes are counted.
    pub(super) fn add<'e>(&mut self, elements: impl Iterator<Item = Elem<'e>>, kept: bool) {
        let row = self.rows.to_string();
        for (i, e) in elements.enumerate() {
            let column = self.columns.entry(e.name_bytes(), i, Column::default);
            // If a measurement has two fields of the same name, a column can hold only the first
            // one.
            let Some(column) = column.filter(|c| c.next <= self.rows) else {
                continue;
            };
            if column.next == 0 {
                self.bytes += e.name_bytes().len() + 7;
            }
            column.next = self.rows + 1;
            self.bytes += 2 + row.len() + e.raw_value().len();
            if kept {
                let column = &mut column.bytes;
                column.push(e.put_type() as u8);
                column.extend_from_slice(row.as_bytes());
                column.push(0);
                column.extend_from_slice(e.raw_value());
            }
        }
        self.rows += 1;
    }

    /// The `data` of a bucket.
    pub(super) fn to_doc(&self) -> DocBuf {
        let mut out = Vec::with_capacity(self.bytes + 16);
        out.extend_from_slice(&[0; 4]);
        for (name, column) in self.columns.iter() {
            let column = &column.bytes;
            out.push(Type::Document as u8);
            out.extend_from_slice(name);
            out.push(0);
            out.extend_from_slice(&(column.len() as u32 + 5).to_le_bytes());
            out.extend_from_slice(column);
            out.push(0);
        }
        out.push(0);
        let len = (out.len() as u32).to_le_bytes();
        if let Some(head) = out.get_mut(..4) {
            head.copy_from_slice(&len);
        }
        DocBuf::from_bytes_trusted(out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn bounds_go_into_documents_and_arrays() {
        let docs = [
            doc! { "a": 2, "o": doc! { "x": 5, "y": "b" }, "l": array![1, 9], "k": 1 },
            doc! { "o": doc! { "y": "a", "z": true }, "a": 1.5, "l": array![4, 3, 2], "k": "s" },
            doc! { "k": doc! { "q": 1 } },
        ];
        let (mut min, mut max) = (Bounds::default(), Bounds::default());
        for d in &docs {
            min.add(d.as_doc().iter(), Ordering::Less, &Collation::default());
            max.add(d.as_doc().iter(), Ordering::Greater, &Collation::default());
        }
        let expected = doc! {
            "a": 1.5, "o": doc! { "x": 5, "y": "a", "z": true }, "l": array![1, 3, 2], "k": 1,
        };
        assert_eq!(min.to_doc(None), expected);
        let expected = doc! {
            "a": 2, "o": doc! { "x": 5, "y": "b", "z": true }, "l": array![4, 9, 2],
            "k": doc! { "q": 1 },
        };
        assert_eq!(max.to_doc(None), expected);
        let with = min.to_doc(Some(("a", Value::Null)));
        assert!(matches!(with.as_doc().get("a"), Some(Value::Null)));
    }

    #[test]
    fn types_agree_or_not() {
        let mut min = Bounds::default();
        let d = doc! { "a": 1, "o": doc! { "x": 5 }, "l": array!["s"] };
        min.add(d.as_doc().iter(), Ordering::Less, &Collation::default());
        let agree = |d: DocBuf| min.agree(d.as_doc().iter());
        assert!(agree(doc! { "a": 2.5, "new": 1, "o": doc! { "y": 1 } }));
        assert!(agree(doc! { "l": array!["x", 1] }));
        assert!(!agree(doc! { "a": "s" }));
        assert!(!agree(doc! { "o": 1 }));
        assert!(!agree(doc! { "o": doc! { "x": "s" } }));
        assert!(!agree(doc! { "l": array![1] }));
    }

    #[test]
    fn columns_have_gaps() {
        let mut c = Columns::default();
        let rows = [
            doc! { "a": 1, "b": "x" },
            doc! { "b": "y" },
            doc! { "c": 1, "a": 3, "a": 4 },
        ];
        let mut counted = Columns::default();
        for row in &rows {
            c.add(row.as_doc().iter(), true);
            counted.add(row.as_doc().iter(), false);
        }
        let d = c.to_doc();
        muniment_value::validate(d.as_bytes()).unwrap();
        let expected = doc! {
            "a": doc! { "0": 1, "2": 3 }, "b": doc! { "0": "x", "1": "y" }, "c": doc! { "2": 1 },
        };
        assert_eq!(d, expected);
        assert_eq!((c.rows(), c.bytes() + 5), (3, d.len()));
        assert_eq!((counted.rows(), counted.bytes()), (3, c.bytes()));
    }
}
