//! The specification of a fusion: its inputs, their weights, and the stages that an input may have.

use super::super::idl::{missing, only, wrong_type};
use super::super::pipeline::{Pipeline, single};
use super::super::registry::{Within, find, place};
use super::super::{Stage, geo_near};
use super::{Fusion, Input, Order, rank::NAME};
use crate::context::QueryContext;
use crate::meta::{Meta, MetaSet};
use muniment_value::{ArrayBuf, Doc, Elem, Error, Result, Value, number};

/// The stages that an input may consist of. They select documents and do not change them.
const SELECTING: [&str; 8] = [
    "$geoNear",
    "$limit",
    "$match",
    "$sample",
    "$search",
    "$skip",
    "$sort",
    "$vectorSearch",
];

/// The stages of these that rank documents, if an input begins with one.
const RANKING: [&str; 3] = ["$geoNear", "$search", "$vectorSearch"];

/// The fusions; none of them may be inside another.
const FUSIONS: [&str; 2] = [NAME, "$scoreFusion"];

/// A field of a document; null counts as absent.
fn field<'a>(d: Doc<'a>, name: &str) -> Option<Value<'a>> {
    d.get(name).filter(|v| !matches!(v, Value::Null))
}

fn object<'a>(at: &str, d: Doc<'a>, name: &str) -> Result<Option<Doc<'a>>> {
    match field(d, name) {
        None => Ok(None),
        Some(Value::Document(o)) => Ok(Some(o)),
        Some(v) => Err(wrong_type(at, name, v, "object")),
    }
}

/// Parses the stage.
///
/// # Errors
/// 9 for an operand that is not an object; 40414, 40415 and 14 for its fields; 2 if there is no input; 15998,
/// 16410 and 16412 for the names of inputs; 9834300, 9191100, 9191103, 10170100 and 10473002 for their
/// stages, and the errors of those stages; 13118, 9460300, 9460301 and 9967500 for weights.
pub(super) fn parse(e: Elem<'_>, ctx: &QueryContext) -> Result<Fusion> {
    let Value::Document(d) = e.value() else {
        return Err(Error::failed_to_parse(format!(
            "{NAME} must take a nested object but found: {}",
            crate::bytes::show(e)
        )));
    };
    only(NAME, d, &["input", "combination", "scoreDetails"])?;
    let input = object(NAME, d, "input")?.ok_or_else(|| missing(NAME, "input"))?;
    let at = format!("{NAME}.input");
    only(&at, input, &["pipelines"])?;
    let pipelines = object(&at, input, "pipelines")?.ok_or_else(|| missing(&at, "pipelines"))?;
    let weights = match object(NAME, d, "combination")? {
        None => Doc::EMPTY,
        Some(c) => {
            let at = format!("{NAME}.combination");
            only(&at, c, &["weights"])?;
            object(&at, c, "weights")?.ok_or_else(|| missing(&at, "weights"))?
        }
    };
    let details = match field(d, "scoreDetails") {
        None => false,
        Some(Value::Bool(b)) => b,
        Some(v) => return Err(wrong_type(NAME, "scoreDetails", v, "bool")),
    };
    if pipelines.is_empty() {
        return Err(Error::bad_value(format!(
            "{NAME} must have at least one input pipeline"
        )));
    }
    let mut inner = ctx.nested()?;
    if ctx.in_facet {
        inner.metadata.available = ctx.metadata.available;
    }
    let mut inputs: Vec<Input> = Vec::new();
    for p in pipelines {
        check_name(p.name())?;
        if inputs.iter().any(|i| i.name == p.name()) {
            return Err(Error::location(
                9_921_000,
                format!(
                    "{NAME} pipeline names must be unique, but found duplicate: {}",
                    p.name()
                ),
            ));
        }
        inputs.push(parse_input(p, ctx)?);
    }
    set_weights(&mut inputs, weights)?;
    Ok(Fusion {
        inputs,
        details,
        ctx: inner,
    })
}

fn check_name(name: &str) -> Result<()> {
    let (code, message) = match name {
        "" => (
            15998,
            "FieldPath field names may not be empty strings.".into(),
        ),
        n if n.starts_with('$') => (
            16410,
            format!(
                "FieldPath field names may not start with '$'. Consider using $getField or \
                 $setField. Found '{n}'"
            ),
        ),
        n if n.contains('.') => (
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField."
                .into(),
        ),
        _ => return Ok(()),
    };
    Err(Error::location(code, message))
}

fn parse_input(p: Elem<'_>, ctx: &QueryContext) -> Result<Input> {
    let at = format!("{NAME}.input.pipelines");
    let Value::Array(stages) = p.value() else {
        return Err(wrong_type(&at, p.name(), p.value(), "array"));
    };
    if let Some(v) = stages.values().find(|v| v.as_doc().is_none()) {
        return Err(Error::type_mismatch(format!(
            "Each element of the 'pipeline' array must be an object, found type {}",
            v.type_name()
        )));
    }
    check_stages(p.name(), stages)?;
    let within = if ctx.in_facet {
        Within::Facet
    } else {
        Within::UnionWith
    };
    let parsed = Pipeline::parse_nested(stages, ctx, within)?;
    let sorts = parsed.stages().filter_map(|s| match s {
        Stage::Sort(spec) => Some(spec.clone()),
        _ => None,
    });
    let order = match sorts.last() {
        Some(spec) => Order::Sort(spec),
        None => {
            ctx.metadata.note(MetaSet::NONE.with(Meta::GeoNearDistance));
            Order::Distance
        }
    };
    Ok(Input {
        name: p.name().to_string(),
        weight: 1.0,
        stages: stages.values().collect::<ArrayBuf>(),
        parsed,
        order,
    })
}

/// Checks that the stages are allowed in an input, and that they rank its documents.
fn check_stages(name: &str, stages: Doc<'_>) -> Result<()> {
    let mut ranked = false;
    if stages.is_empty() {
        return Err(Error::location(
            9_834_300,
            format!("{NAME} input pipeline cannot be empty: {name}"),
        ));
    }
    for (i, v) in stages.values().enumerate() {
        let e = single(v)?;
        let stage = e.name();
        if FUSIONS.contains(&stage) {
            return Err(if i == 0 {
                Error::location(
                    10_473_002,
                    format!(
                        "{NAME} input pipeline has a nested hybrid search stage \
                         ($rankFusion/$scoreFusion): {name}"
                    ),
                )
            } else {
                Error::location(
                    10_170_100,
                    format!("{stage} is only valid as the first stage in a pipeline"),
                )
            });
        }
        if place(stage).is_none() {
            find(stage)?;
        }
        let changes = stage == geo_near::SPEC.name
            && e.value().as_doc().is_some_and(|d| {
                d.get("distanceField").is_some() || d.get("includeLocs").is_some()
            });
        if changes || !SELECTING.contains(&stage) {
            return Err(Error::location(
                9_191_103,
                format!(
                    "{NAME} input pipelines must be selection pipelines, and {stage} is no \
                     selection stage in the input pipeline '{name}': use only stages that \
                     retrieve, filter or order documents"
                ),
            ));
        }
        ranked |= stage == "$sort" || (i == 0 && RANKING.contains(&stage));
    }
    if !ranked {
        return Err(Error::location(
            9_191_100,
            format!(
                "{NAME} input pipelines must be ranked: the input pipeline '{name}' neither \
                 begins with a ranked stage nor contains a $sort"
            ),
        ));
    }
    Ok(())
}

fn set_weights(inputs: &mut [Input], weights: Doc<'_>) -> Result<()> {
    if weights.count() > inputs.len() {
        return Err(Error::location(
            9_460_301,
            format!(
                "{NAME} input has more weights ({}) than pipelines ({})",
                weights.count(),
                inputs.len()
            ),
        ));
    }
    for w in weights {
        let Some(input) = inputs.iter_mut().find(|i| i.name == w.name()) else {
            return Err(Error::location(
                9_967_500,
                format!(
                    "{NAME} stage contained a weight for '{}', which is no input pipeline's name",
                    w.name()
                ),
            ));
        };
        let Some(weight) = number::to_f64(w.value()) else {
            return Err(Error::location(
                13118,
                format!(
                    "{NAME}'s weight for '{}' must be numeric, but is of type {}",
                    w.name(),
                    w.value().type_name()
                ),
            ));
        };
        if weight.is_nan() || weight < 0.0 {
            return Err(Error::location(
                9_460_300,
                format!(
                    "{NAME}'s pipeline weight must be non-negative, but given {weight} for \
                     pipeline '{}'",
                    w.name()
                ),
            ));
        }
        input.weight = weight;
    }
    Ok(())
}
