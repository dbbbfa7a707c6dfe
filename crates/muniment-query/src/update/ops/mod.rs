//! The update operators, one file for each, and the code that several of them share.

pub(crate) mod add_to_set;
pub(crate) mod bit;
pub(crate) mod current_date;
pub(crate) mod inc;
pub(crate) mod max;
pub(crate) mod min;
pub(crate) mod mul;
pub(crate) mod pop;
pub(crate) mod pull;
pub(crate) mod pull_all;
pub(crate) mod push;
pub(crate) mod rename;
pub(crate) mod set;
pub(crate) mod set_on_insert;
pub(crate) mod unset;

use muniment_value::{Elem, Value, ValueBuf};

/// A value kept as raw bytes, ready to be copied into a document.
#[derive(Clone, Debug)]
pub(crate) struct Raw(ValueBuf);

impl Raw {
    pub(crate) fn new(e: Elem<'_>) -> Raw {
        Raw(ValueBuf::new(e))
    }

    pub(crate) fn of(v: Value<'_>) -> Raw {
        Raw(ValueBuf::new(v))
    }

    /// True if `e` has exactly the same type and bytes.
    #[inline]
    pub(crate) fn same(&self, e: Elem<'_>) -> bool {
        e.ty() == self.0.ty() && e.raw_value() == self.0.raw()
    }

    /// The value.
    pub(crate) fn value(&self) -> Value<'_> {
        self.0.as_value()
    }

    /// Appends the value as the element `name`.
    #[inline]
    pub(crate) fn put(&self, name: &[u8], out: &mut Vec<u8>) {
        crate::bytes::head(out, self.0.ty(), name);
        out.extend_from_slice(self.0.raw());
    }

    /// How deeply the value nests.
    pub(crate) fn depth(&self) -> usize {
        crate::bytes::depth(self.value())
    }
}

/// Writes `name: v`, unless `old` already is exactly that.
pub(crate) fn put_if_new(
    old: Option<Elem<'_>>,
    name: &[u8],
    v: Value<'_>,
    out: &mut Vec<u8>,
) -> super::registry::Outcome {
    use super::registry::Outcome;
    let start = out.len();
    crate::bytes::put(out, name, &v);
    let value_at = start + name.len() + 2;
    if let Some(old) = old
        && old.ty() == v.ty()
        && out.get(value_at..) == Some(old.raw_value())
    {
        out.truncate(start);
        return Outcome::Unchanged;
    }
    Outcome::Changed
}

/// Reads a whole number that an operator takes as an option.
pub(crate) fn whole(v: Value<'_>) -> Option<i64> {
    if v.is_number() {
        v.as_i64_exact()
    } else {
        None
    }
}
