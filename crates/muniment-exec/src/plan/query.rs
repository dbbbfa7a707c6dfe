//! A query as the planner takes it, and what the planner's errors tell of it. Clients read it:
//! parse-server takes the name of a field from it and makes the index that is missing.

use super::filters::IndexFilter;
use super::hint::Hint;
use muniment_query::{Filter, SortSpec};
use muniment_value::{Code, Doc, Error, beginning};
use std::sync::Arc;

/// A query as the planner takes it.
pub struct Query<'q> {
    /// The parsed filter.
    pub filter: &'q Filter,
    /// The sort; `None` for none (or `$natural`).
    pub sort: Option<&'q SortSpec>,
    /// The paths that are needed of each document; `None` when whole documents are.
    pub needs: Option<&'q [String]>,
    /// True when the documents that the caller wants have these fields and nothing else.
    pub only_needs: bool,
    /// The hint; `{$natural: ±1}` as sort counts as one.
    pub hint: Option<Hint<'q>>,
    /// Inclusive lower bound on the hinted index.
    pub min: Doc<'q>,
    /// Exclusive upper bound on the hinted index.
    pub max: Doc<'q>,
    /// The indexes that `planCacheSetFilter` left for this shape.
    pub allowed: Option<Arc<IndexFilter>>,
    /// The short ways that are open to it.
    pub look_up: LookUp,
    /// What its errors show of it.
    pub told: Told<'q>,
}

impl<'q> Query<'q> {
    /// A query of a filter alone.
    pub fn of(filter: &'q Filter) -> Query<'q> {
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

/// The short ways that are open to a query.
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    /// An equality on `_id` needs no planning.
    pub by_id: bool,
    /// Such a look-up is all there is: nothing is skipped, computed or inserted.
    pub express: bool,
    /// An equality on another field may be looked up as well.
    pub by_field: bool,
    /// No more than one document is asked for.
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

/// The parts of a query that do not change its plan, but are shown in its errors.
#[derive(Clone, Copy, Default)]
pub struct Told<'q> {
    /// Documents to return; 0 for all.
    pub limit: u64,
    /// Documents to skip.
    pub skip: u64,
    /// The sort as it was written.
    pub sort: Option<Doc<'q>>,
    /// The projection as it was written.
    pub projection: Option<Doc<'q>>,
}

impl<'q> Told<'q> {
    /// Of a query with a sort and no more.
    pub fn sorted(by: Doc<'q>) -> Told<'q> {
        Told {
            sort: Some(by),
            ..Told::default()
        }
    }
}

impl Query<'_> {
    /// The error of a query that cannot be planned, with MongoDB's text around the reason.
    pub fn refused(&self, namespace: &str, code: Code, reason: &str) -> Error {
        let text = self.text(namespace);
        Error::new(
            code,
            format!("{text} planner returned error :: caused by :: {reason}"),
        )
    }

    /// The beginning of the planner's errors: the query.
    pub fn text(&self, namespace: &str) -> String {
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

/// Bytes of a sort or a projection that are shown.
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
