//! What a query's strings mean in an index that may have another collation than the query.
//!
//! An index holds strings either as they are or, with a collation, as collation keys (see
//! [`muniment_value::collation`]). A query finds strings there only if it has the same collation.
//! Values without strings are the same in every index.

use super::interval::Interval;
use muniment_query::filter::Pred;
use muniment_value::collation::has_text;
use muniment_value::{Collation, Type, ValueBuf};
use std::borrow::Cow;

/// The form in which an index holds strings, seen from a query.
#[derive(Clone, Copy)]
pub(crate) enum Texts<'c> {
    /// The index holds the strings themselves, and the query compares bytes.
    Plain,
    /// The index holds collation keys of the query's own collation.
    Keys(&'c Collation),
    /// The index holds the strings themselves, but the query has a collation. Only regular
    /// expressions, which ignore collations, can use it for strings.
    Bytes,
    /// The index holds keys of another collation, which mean nothing to the query.
    Foreign,
}

impl<'c> Texts<'c> {
    /// The form in which a query with one collation finds an index with another.
    pub(crate) fn of(index: &Collation, query: &'c Collation) -> Texts<'c> {
        match (index.is_simple(), query.is_simple()) {
            (true, true) => Texts::Plain,
            (true, false) => Texts::Bytes,
            _ if index == query => Texts::Keys(query),
            _ => Texts::Foreign,
        }
    }

    /// The value in the index that the query holds equal to `v`; `None` if there is no single such
    /// value.
    pub(crate) fn equal<'v>(self, v: &'v ValueBuf) -> Option<Cow<'v, ValueBuf>> {
        match self {
            Texts::Plain => Some(Cow::Borrowed(v)),
            _ if !has_text(v.as_value()) => Some(Cow::Borrowed(v)),
            Texts::Keys(c) => Some(Cow::Owned(c.key_value(v.as_value()))),
            Texts::Bytes | Texts::Foreign => None,
        }
    }

    /// As [`Texts::equal`] for the end of a range.
    pub(crate) fn end<'v>(self, v: &'v ValueBuf) -> Option<Cow<'v, ValueBuf>> {
        match self {
            // Between two values without strings there may be values that contain strings.
            Texts::Bytes | Texts::Foreign if may_have_text(v.ty()) => None,
            _ => self.equal(v),
        }
    }

    /// True if a regular expression can bound a scan. It matches strings and not collation keys.
    pub(crate) fn regex(self) -> bool {
        matches!(self, Texts::Plain | Texts::Bytes)
    }
}

/// True if values of this type are strings or may contain some.
fn may_have_text(ty: Type) -> bool {
    matches!(
        ty,
        Type::String | Type::Symbol | Type::Document | Type::Array
    )
}

/// True if the interval includes values that may contain strings.
pub(crate) fn reaches_text(i: &Interval) -> bool {
    i.low.ty().rank() <= Type::Array.rank() && i.high.ty().rank() >= Type::String.rank()
}

/// True if the predicate compares with a value that may contain strings.
pub(crate) fn compares_text(pred: &Pred) -> bool {
    match pred {
        Pred::Eq(v) | Pred::Lt(v) | Pred::Lte(v) | Pred::Gt(v) | Pred::Gte(v) => {
            may_have_text(v.ty())
        }
        Pred::In { values, .. } => values.iter().any(|v| may_have_text(v.ty())),
        Pred::Not(inner) => compares_text(inner),
        Pred::And(list) | Pred::ElemMatchValue(list) => list.iter().any(compares_text),
        // The conditions inside are not examined, so the answer is the cautious one.
        Pred::ElemMatchObject(_) => true,
        Pred::Regex(_) | Pred::Exists(_) | Pred::Other(_) => false,
    }
}
