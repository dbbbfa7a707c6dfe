//! A query in the form that the planner takes, and how the planner's errors describe it. Clients
//! read these: parse-server takes a field's name from the error and creates the missing index.

use super::filters::IndexFilter;
use super::hint::Hint;
use muniment_query::{Filter, SortSpec};
use muniment_value::{Code, Doc, Error, beginning};
use std::sync::Arc;

/// A query in the form that the planner takes.
pub(crate) struct Query<'q> {
    /// The parsed filter.
    pub filter: &'q Filter,
    /// The sort; `None` for none (or `$natural`).
    pub sort: Option<&'q SortSpec>,
    /// The paths that are needed of each document; `None` if whole documents are needed.
    pub needs: Option<&'q [String]>,
    /// True if the caller wants documents with exactly these fields.
    pub only_needs: bool,
    /// The hint. A sort by `{$natural: ±1}` counts as one.
    pub hint: Option<Hint<'q>>,
    /// Inclusive lower bound on the hinted index.
    pub min: Doc<'q>,
    /// Exclusive upper bound on the hinted index.
    pub max: Doc<'q>,
    /// The indexes that `planCacheSetFilter` left for this shape.
    pub allowed: Option<Arc<IndexFilter>>,
    /// The short cuts that are open to the query.
    pub look_up: LookUp,
    /// The parts of the query that only errors show.
    pub told: Told<'q>,
}

impl<'q> Query<'q> {
    /// A query that has only a filter.
    pub(crate) fn of(filter: &'q Filter) -> Query<'q> {
        Query {
            filter,
            sort: None,
            needs: None,
            only_needs: false,
            hint: None,
            min: Doc::EMPTY,
            max: Doc::EMPTY,
            allowed: None,
            look_up: LookUp::default(),
            told: Told::default(),
        }
    }
}

/// The short cuts that are open to a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookUp {
    /// True if an equality on `_id` needs no planning.
    pub by_id: bool,
    /// True if such a look-up is everything: nothing is skipped, computed or inserted.
    pub express: bool,
    /// True if an equality on another field may be looked up too.
    pub by_field: bool,
    /// True if at most one document is asked for.
    pub one: bool,
}

impl Default for LookUp {
    fn default() -> LookUp {
        LookUp {
            by_id: true,
            express: false,
            by_field: false,
            one: false,
        }
    }
}

/// The parts of a query that do not change its plan and are shown in its errors.
#[derive(Clone, Copy, Default)]
pub(crate) struct Told<'q> {
    /// Documents to return; 0 for all.
    pub limit: u64,
    /// Documents to skip.
    pub skip: u64,
    /// The sort as the client wrote it.
    pub sort: Option<Doc<'q>>,
    /// The projection as the client wrote it.
    pub projection: Option<Doc<'q>>,
}

impl<'q> Told<'q> {
    /// The parts of a query that has a sort and nothing else.
    pub(crate) fn sorted(by: Doc<'q>) -> Told<'q> {
        Told {
            sort: Some(by),
            ..Told::default()
        }
    }
}

impl Query<'_> {
    /// The error of a query that cannot be planned, with MongoDB's text around the reason.
    pub(crate) fn refused(&self, namespace: &str, code: Code, reason: &str) -> Error {
        let text = self.text(namespace);
        Error::new(
            code,
            format!("{text} planner returned error :: caused by :: {reason}"),
        )
    }

    /// The text with which the planner's errors begin, which describes the query.
    pub(crate) fn text(&self, namespace: &str) -> String {
        let told = &self.told;
        let count = |name: &str, n: u64| match n {
            0 => String::new(),
            n => format!(" {name}={n}"),
        };
        format!(
            "error processing query: ns={namespace}{}{}Tree: {}Sort: {}\nProj: {}\n",
            count("limit", told.limit),
            count("skip", told.skip),
            self.filter.to_tree(),
            shown(told.sort),
            shown(told.projection),
        )
    }
}

/// The most bytes of a sort or projection that are shown.
const MOST: usize = 4 << 10;

/// `{}` where there is nothing, as MongoDB prints it.
fn shown(d: Option<Doc<'_>>) -> String {
    let Some(d) = d.filter(|d| !d.is_empty()) else {
        return "{}".into();
    };
    let mut text = d.to_display();
    if text.len() > MOST {
        text.truncate(beginning(&text, MOST).len());
        text.push_str("...");
    }
    text
}
