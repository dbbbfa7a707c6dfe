//! `$changeStream`, as a standalone server answers it.

use super::Stage;
use super::registry::{Input, Place, Spec};
use crate::context::QueryContext;
use muniment_value::{Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$changeStream",
    doc: "Refused: a standalone server has no change streams.",
    place: Place::CHANGES.needs(Input::Any),
    parse,
};

fn parse(e: Elem<'_>, _: &QueryContext, _: &mut Vec<Stage>) -> Result<()> {
    if !matches!(e.value(), Value::Document(_)) {
        return Err(Error::location(
            6_188_500,
            format!(
                "$changeStream must take a nested object but found: {}",
                crate::bytes::show(e)
            ),
        ));
    }
    Err(Error::location(
        40573,
        "The $changeStream stage is only supported on replica sets",
    ))
}
