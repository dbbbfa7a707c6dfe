//! What a query's texts mean for an index that may have another collation than the query.
//!
//! An index holds texts as they are or, collated, by their collation keys (see
//! [`muniment_value::collation`]); a query finds them there only by the same collation. Values
//! without text stand in every index alike.

use super::interval::Interval;
use muniment_query::filter::Pred;
use muniment_value::collation::has_text;
use muniment_value::{Collation, Type, ValueBuf};
use std::borrow::Cow;

/// How an index holds texts, as a query sees it.
#[derive(Clone, Copy)]
pub enum Texts<'c> {
    /// As they are; the query compares bytes.
    Plain,
    /// By the keys of the query's own collation.
    Keys(&'c Collation),
    /// As they are, while the query has a collation: regular expressions alone find them.
    Bytes,
    /// By keys that say nothing to the query.
    Foreign,
}

impl<'c> Texts<'c> {
    /// How an index with one collation looks to a query with another.
    pub fn of(index: &Collation, query: &'c Collation) -> Texts<'c> {
        match (index.is_simple(), query.is_simple()) {
            (true, true) => Texts::Plain,
            (true, false) => Texts::Bytes,
            _ if index == query => Texts::Keys(query),
            _ => Texts::Foreign,
        }
    }

    /// The value in the index that equals `v` by the query; `None` when none does reliably.
    pub fn equal<'v>(self, v: &'v ValueBuf) -> Option<Cow<'v, ValueBuf>> {
        match self {
            Texts::Plain => Some(Cow::Borrowed(v)),
            _ if !has_text(v.as_value()) => Some(Cow::Borrowed(v)),
            Texts::Keys(c) => Some(Cow::Owned(c.key_value(v.as_value()))),
            Texts::Bytes | Texts::Foreign => None,
        }
    }

    /// As [`Texts::equal`] for the end of a range.
    pub fn end<'v>(self, v: &'v ValueBuf) -> Option<Cow<'v, ValueBuf>> {
        match self {
            // What lies between two values without text may have text.
            Texts::Bytes | Texts::Foreign if may_have_text(v.ty()) => None,
            _ => self.equal(v),
        }
    }

    /// Whether a regular expression can bound a scan: collation keys are not what it matches.
    pub fn regex(self) -> bool {
        matches!(self, Texts::Plain | Texts::Bytes)
    }
}

/// Whether values of a type have text or may have it inside.
fn may_have_text(ty: Type) -> bool {
    matches!(
        ty,
        Type::String | Type::Symbol | Type::Document | Type::Array
    )
}

/// Whether an interval has values that may have text.
pub fn reaches_text(i: &Interval) -> bool {
    i.low.ty().rank() <= Type::Array.rank() && i.high.ty().rank() >= Type::String.rank()
}

/// Whether a predicate compares with a text.
pub fn compares_text(pred: &Pred) -> bool {
    match pred {
        Pred::Eq(v) | Pred::Lt(v) | Pred::Lte(v) | Pred::Gt(v) | Pred::Gte(v) => {
            may_have_text(v.ty())
        }
        Pred::In { values, .. } => values.iter().any(|v| may_have_text(v.ty())),
        Pred::Not(inner) => compares_text(inner),
        Pred::And(list) | Pred::ElemMatchValue(list) => list.iter().any(compares_text),
        // What is inside is not told apart.
        Pred::ElemMatchObject(_) => true,
        Pred::Regex(_) | Pred::Exists(_) | Pred::Other(_) => false,
    }
}
