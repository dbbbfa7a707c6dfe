//! The stages of Atlas Search. A community server without a search process knows them and refuses them.

use super::Stage;
use super::registry::{Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use crate::context::QueryContext;
use muniment_value::{Code, Elem, Error, Result};

pub(crate) const SEARCH: Spec = refused("$search");
pub(crate) const SEARCH_BETA: Spec = refused("$searchBeta");
pub(crate) const SEARCH_META: Spec = refused("$searchMeta");
pub(crate) const VECTOR_SEARCH: Spec = refused("$vectorSearch");
pub(crate) const LIST_INDEXES: Spec = Spec {
    place: Place::REPORT,
    rights: Rights::Instead(|_, right| right(Right::Collection("listSearchIndexes"))),
    parse: |_, _, _| Err(indexes_refused()),
    ..refused("$listSearchIndexes")
};

const fn refused(name: &'static str) -> Spec {
    Spec {
        name,
        doc: "Refused as by a server without a search process.",
        place: Place::SOURCE,
        spread: Spread::Each,
        rights: Rights::Input,
        parse,
    }
}

fn parse(_: Elem<'_>, _: &QueryContext, _: &mut Vec<Stage>) -> Result<()> {
    Err(Error::new(
        Code::SearchNotEnabled,
        "Using $search and $vectorSearch aggregation stages requires additional configuration. \
         Please connect to Atlas or an AtlasCLI local deployment to enable.",
    ))
}

/// The error of `$listSearchIndexes`, and of the commands on search indexes.
pub fn indexes_refused() -> Error {
    Error::new(
        Code::SearchNotEnabled,
        "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage \
         requires additional configuration. Please connect to Atlas or an AtlasCLI local \
         deployment to enable.",
    )
}
