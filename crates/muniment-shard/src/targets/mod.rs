//! The keys that a filter can match, as intervals of a shard key's bytes.
//!
//! Arrays make filters hard to bound: each condition may be met by another element. But the value of a shard
//! key is never an array, so here all conditions on a field apply to one value, and their intervals may be
//! intersected.
//!
//! Each part of a filter becomes a list of [`Area`]s: for each field of the key the values that can match.
//! `$and` intersects areas, `$or` collects them. In the end they become intervals of whole keys. Everything
//! is bounded: if a list would be too long, a coarser one takes its place.
//!
//! Invariant: no document that the filter matches has a key outside the intervals.

mod area;
mod compose;
#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;
mod values;

use crate::interval::Interval;
use crate::key::{KeyField, ShardKey};
use area::{Area, Values, any_of, hull};
use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use muniment_value::{Doc, Value, ValueBuf};
use values::{Side, Texts};

/// No list of areas or intervals becomes longer than this.
const MOST: usize = 10_000;

/// Conjunctions make no more areas than this from others. Beyond, further conditions are left out, which
/// only makes the result coarser.
const MOST_WORK: usize = 100_000;

/// The keys that a filter can match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Ascending and disjoint. None at all if no document can match.
    pub intervals: Vec<Interval>,
    /// True if the intervals are one key.
    point: bool,
}

impl Targets {
    /// True if any key can match.
    pub fn is_all(&self) -> bool {
        matches!(self.intervals.as_slice(), [one] if one.is_all())
    }

    /// The key, if only one can match.
    pub fn key(&self) -> Option<&[u8]> {
        match self.intervals.as_slice() {
            [one] if self.point => Some(&one.low),
            _ => None,
        }
    }
}

/// The keys of a shard key that a filter can match.
pub fn targets(key: &ShardKey, filter: &Filter) -> Targets {
    let texts = match filter.collation().is_simple() {
        true => Texts::Exact,
        false => Texts::Collated,
    };
    let mut targeting = Targeting {
        key,
        texts,
        work: 0,
    };
    let areas = targeting.node(filter.root());
    let intervals = compose::intervals(&areas, MOST);
    let fields = key.fields().len();
    Targets {
        point: matches!(intervals.as_slice(), [one] if compose::is_point(one, fields)),
        intervals,
    }
}

struct Targeting<'k> {
    key: &'k ShardKey,
    texts: Texts,
    /// The number of areas that conjunctions have made.
    work: usize,
}

impl Targeting<'_> {
    /// The areas of a part of the filter. The recursion is bounded by the depth of filters.
    fn node(&mut self, node: &Node) -> Vec<Area> {
        match node {
            Node::False => Vec::new(),
            Node::And(list) => self.and(list),
            Node::Or(list) => self.or(list),
            Node::Field { path, pred } => {
                let fields = self.key.fields().iter();
                let of = |f: &KeyField| match f.path.parts().strip_prefix(path.parts()) {
                    Some([]) => self.values(f, pred),
                    Some(rest) => self.below(f, rest, pred),
                    None => Values::Any,
                };
                Area::of(fields.map(of).collect()).into_iter().collect()
            }
            Node::Expr {
                implied: Some(implied),
                ..
            } => self.node(implied),
            Node::True | Node::Nor(_) | Node::Expr { .. } | Node::Doc(_) => self.anything(),
        }
    }

    fn anything(&self) -> Vec<Area> {
        vec![Area::any(self.key.fields().len())]
    }

    fn and(&mut self, list: &[Node]) -> Vec<Area> {
        let mut all = self.anything();
        // What is no list of alternatives comes first: it is cheap and makes the lists shorter.
        let (alternatives, simple): (Vec<_>, Vec<_>) =
            list.iter().partition(|n| matches!(n, Node::Or(_)));
        for node in simple.into_iter().chain(alternatives) {
            let mut more = self.node(node);
            if all.len().saturating_mul(more.len()) > MOST {
                more = hull(&more, MOST).into_iter().collect();
            }
            let work = all.len() * more.len();
            if self.work + work > MOST_WORK {
                continue;
            }
            self.work += work;
            all = all
                .iter()
                .flat_map(|a| more.iter().filter_map(|b| a.intersect(b)))
                .collect();
        }
        all
    }

    fn or(&mut self, list: &[Node]) -> Vec<Area> {
        let mut all = Vec::new();
        for node in list {
            let areas = self.node(node);
            if areas.iter().any(Area::is_any) {
                return self.anything();
            }
            all.extend(areas);
            if all.len() > MOST {
                all = hull(&all, MOST).into_iter().collect();
            }
        }
        all
    }

    /// The values of a field that can satisfy a condition on it.
    fn values(&self, field: &KeyField, pred: &Pred) -> Values {
        let range = |v: &ValueBuf, side, inclusive| {
            values::range(field, v.as_value(), side, inclusive, self.texts)
        };
        match pred {
            Pred::Eq(v) => self.equal(field, v.as_value()),
            Pred::Lt(v) => range(v, Side::Below, false),
            Pred::Lte(v) => range(v, Side::Below, true),
            Pred::Gt(v) => range(v, Side::Above, false),
            Pred::Gte(v) => range(v, Side::Above, true),
            Pred::In { values, regexes } if regexes.is_empty() => {
                values::equal(field, values.iter().map(ValueBuf::as_value), self.texts)
            }
            // A missing field has the key null.
            Pred::Exists(false) => self.equal(field, Value::Null),
            Pred::And(list) => list
                .iter()
                .map(|p| self.values(field, p))
                .fold(Values::Any, |a, b| a.intersect(&b)),
            _ => Values::Any,
        }
    }

    /// The values of a field that a condition on a document around it allows. `rest` leads from that document
    /// to the field.
    fn below(&self, field: &KeyField, rest: &[String], pred: &Pred) -> Values {
        match pred {
            Pred::Eq(v) => self.inside(field, rest, v.as_value()),
            Pred::In { values, regexes } if regexes.is_empty() => {
                let each = values
                    .iter()
                    .map(|v| self.inside(field, rest, v.as_value()));
                any_of(each, MOST)
            }
            Pred::Exists(false) => self.equal(field, Value::Null),
            Pred::And(list) => list
                .iter()
                .map(|p| self.below(field, rest, p))
                .fold(Values::Any, |a, b| a.intersect(&b)),
            _ => Values::Any,
        }
    }

    /// The values of a field in a document that is equal to `whole` around it.
    fn inside(&self, field: &KeyField, rest: &[String], whole: Value<'_>) -> Values {
        let mut at = whole;
        for part in rest {
            at = match at {
                Value::Document(d) => Doc::get(&d, part).unwrap_or(Value::Null),
                Value::Array(_) => return Values::Any,
                _ => Value::Null,
            };
        }
        self.equal(field, at)
    }

    fn equal(&self, field: &KeyField, v: Value<'_>) -> Values {
        values::equal(field, std::iter::once(v), self.texts)
    }
}
