//! The query operators. Each has a file (or shares one with operators of the same form), and a line in the
//! registry.

mod all;
mod always;
mod bits;
mod comment;
mod compare;
mod elem_match;
mod exists;
mod expr;
mod geo;
mod in_;
mod json_schema;
mod logical;
mod mod_;
mod not;
mod regex;
mod sample_rate;
mod size;
mod text;
mod type_;
mod where_;

pub use text::TextOp;

use super::parse::{FieldOperand, Parser};
use super::{Node, Pred};
use muniment_value::{Result, Value};

/// The predicate of a `$near`.
pub(super) fn near_pred(near: std::sync::Arc<crate::geo::NearQuery>) -> Pred {
    Pred::Other(std::sync::Arc::new(geo::Near(near)))
}

/// Parses an operator below a path; `None` if it has no effect of its own ($comment, $options).
pub type FieldParse = fn(&mut Parser<'_>, &FieldOperand<'_>) -> Result<Option<Pred>>;

/// Parses an operator that stands next to fields.
pub type TopParse = fn(&mut Parser<'_>, Value<'_>) -> Result<Node>;

/// The places where an operator may stand.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Below a path: `{a: {$op: …}}`.
    Field(FieldParse),
    /// Next to fields: `{$op: …}`.
    Top(TopParse),
}

/// A query operator.
#[derive(Debug)]
pub struct OpSpec {
    /// The name with its dollar.
    pub name: &'static str,
    /// One line for the documentation.
    pub doc: &'static str,
    /// False for an operator that is known but refused.
    pub supported: bool,
    /// The place where it stands, with the function that parses it.
    pub place: Place,
}

impl OpSpec {
    const fn field(name: &'static str, doc: &'static str, parse: FieldParse) -> OpSpec {
        OpSpec {
            name,
            doc,
            supported: true,
            place: Place::Field(parse),
        }
    }

    const fn top(name: &'static str, doc: &'static str, parse: TopParse) -> OpSpec {
        OpSpec {
            name,
            doc,
            supported: true,
            place: Place::Top(parse),
        }
    }
}

/// All operators, sorted by name and place. `$comment` is listed for both places.
pub fn registry() -> &'static [&'static OpSpec] {
    REGISTRY
}

#[rustfmt::skip]
const REGISTRY: &[&OpSpec] = &[
    &all::SPEC,
    &always::FALSE,
    &always::TRUE,
    &logical::AND,
    &bits::ALL_CLEAR,
    &bits::ALL_SET,
    &bits::ANY_CLEAR,
    &bits::ANY_SET,
    &comment::SPEC,
    &elem_match::SPEC,
    &compare::EQ,
    &exists::SPEC,
    &expr::SPEC,
    &geo::INTERSECTS,
    &geo::GEO_NEAR,
    &geo::WITHIN,
    &compare::GT,
    &compare::GTE,
    &in_::IN,
    &json_schema::SPEC,
    &compare::LT,
    &compare::LTE,
    &geo::MAX_DISTANCE,
    &geo::MIN_DISTANCE,
    &mod_::SPEC,
    &compare::NE,
    &geo::NEAR,
    &geo::NEAR_SPHERE,
    &in_::NIN,
    &logical::NOR,
    &not::SPEC,
    &regex::OPTIONS,
    &logical::OR,
    &regex::SPEC,
    &sample_rate::SPEC,
    &size::SPEC,
    &text::SPEC,
    &type_::SPEC,
    &geo::UNIQUE_DOCS,
    &where_::SPEC,
    &geo::OLD_WITHIN,
];

/// The operator with this name (with its dollar).
pub(super) fn find(name: &str) -> Option<&'static OpSpec> {
    REGISTRY
        .binary_search_by(|s| s.name.cmp(name))
        .ok()
        .and_then(|i| REGISTRY.get(i))
        .copied()
}

#[cfg(test)]
mod tests {
    #[test]
    fn registry_is_sorted() {
        for pair in super::REGISTRY.windows(2) {
            assert!(
                pair[0].name < pair[1].name,
                "{} {}",
                pair[0].name,
                pair[1].name
            );
        }
    }
}
