//! `$setWindowFields`: fields computed over windows of the documents around each document.
//!
//! The documents are sorted by partition and order (spilling beyond the memory limit), and a partition is
//! kept (in memory, or on disk beyond the limit). For every output field, a window moves over the partition.
//! Its ends only move forwards, so each document enters and leaves it once.

mod covariance;
mod derivative;
mod exp_moving_avg;
mod filling;
mod frame;
mod integral;
mod min_max_scaler;
mod rank;
mod registry;
mod shift;
mod stream;

pub use registry::{Spec as FunctionSpec, registry};

use super::accumulators::{Accumulator, Make, Sliding};
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spool::Spool;
use super::spread::Spread;
use super::{DocStream, Stage, StageOp};
use crate::context::{QueryContext, Runtime};
use crate::expr::Expr;
use crate::running::Work;
use crate::sort::SortSpec;
use frame::Frame;
use muniment_value::path::Path;
use muniment_value::{Collation, Doc, Elem, Error, Result, Value, ValueBuf, doc};
use std::fmt;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$setWindowFields",
    doc: "Fields computed over windows of the documents around each document.",
    place: Place::ANYWHERE,
    spread: Spread::Router,
    rights: Rights::Input,
    parse,
};

/// The parsed stage.
#[derive(Debug)]
struct SetWindowFields {
    partition: Option<Expr>,
    order: Order,
    outputs: Vec<(Path, Function)>,
    collation: Collation,
}

/// The stage's `sortBy`.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The sort. It has no keys if it is an empty document.
    pub sort: Option<SortSpec>,
    /// The expression of its key, if it has exactly one.
    pub by: Option<Arc<Expr>>,
}

impl Order {
    /// The expression of the only key, and whether the order is ascending.
    pub(crate) fn single(&self) -> Option<(&Arc<Expr>, bool)> {
        let by = self.by.as_ref()?;
        let key = self.sort.as_ref()?.keys().first()?;
        Some((by, !key.descending))
    }
}

/// The function that computes one output field.
pub(super) enum Function {
    /// It is computed from the documents of a window.
    Framed(Framed),
    /// It is computed from one document after the other.
    Rowwise(Make<dyn Rowwise>),
}

/// A function of the documents of a window.
pub(super) struct Framed {
    /// The expression that is evaluated for a document that enters or leaves the window.
    pub input: Expr,
    pub frame: Frame,
    /// The state for a window that only grows, if there is a cheaper one.
    pub growing: Option<Make<dyn Accumulator>>,
    pub sliding: Make<dyn Sliding>,
    /// The result for an empty window, instead of that of the state.
    pub empty: Option<ValueBuf>,
    /// Computes the field from the current document's own value and the state's result.
    pub relate: Option<Relate>,
}

/// Takes a document's value of the function's input (`None` if it is missing), and the result of the window
/// around it.
pub(super) type Relate =
    Box<dyn Fn(Option<Value<'_>>, Value<'_>) -> Result<ValueBuf> + Send + Sync>;

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Framed(framed) => write!(f, "{:?} {:?}", framed.input, framed.frame),
            Function::Rowwise(_) => f.write_str("by document"),
        }
    }
}

/// A function that takes one document after the other, in their order.
pub(super) trait Rowwise: Send {
    /// Appends the field of the next document.
    ///
    /// # Errors
    /// For values that the function cannot take.
    fn row(&mut self, row: &Row<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<()>;
}

/// A document of a partition, with its surroundings.
pub(super) struct Row<'r> {
    pub doc: Doc<'r>,
    /// Its number in the partition, from 0.
    pub number: u64,
    pub spool: &'r Spool,
    /// What the function works for.
    pub work: Work<'r>,
}

/// The call of a function, while it is parsed.
pub(super) struct Call<'a> {
    pub name: &'static str,
    pub operand: Value<'a>,
    /// The whole document for the output field.
    pub field: Doc<'a>,
    pub order: &'a Order,
    pub ctx: &'a QueryContext,
}

impl<'a> Call<'a> {
    /// The window, if one is given.
    pub(crate) fn window(&self) -> Option<Value<'a>> {
        self.field.get("window")
    }

    /// The parsed window; the whole partition if none is given.
    pub(crate) fn frame(&self) -> Result<Frame> {
        Frame::parse(self.window(), self.order)
    }

    /// Fails if a window is given.
    pub(crate) fn no_window(&self) -> Result<()> {
        match self.window() {
            None => Ok(()),
            Some(_) => Err(Error::failed_to_parse(format!(
                "{} does not accept a 'window' field",
                self.name
            ))),
        }
    }

    /// The only key of `sortBy`, and whether its order is ascending.
    pub(crate) fn sort_key(&self) -> Result<(&'a Arc<Expr>, bool)> {
        self.order.single().ok_or_else(|| {
            Error::failed_to_parse(format!(
                "{} requires a sortBy with exactly one field",
                self.name
            ))
        })
    }

    /// The operand's options. Each of them must be one of these.
    pub(crate) fn options(&self, names: &[&str]) -> Result<Doc<'a>> {
        let Value::Document(d) = self.operand else {
            return Err(Error::failed_to_parse(format!(
                "Argument to {} must be an object",
                self.name
            )));
        };
        match d.iter().find(|e| !names.contains(&e.name())) {
            None => Ok(d),
            Some(e) => Err(Error::failed_to_parse(format!(
                "{} got unexpected argument: {}",
                self.name,
                e.name()
            ))),
        }
    }

    /// An option that must be present.
    pub(crate) fn need(&self, options: Doc<'a>, name: &str) -> Result<Value<'a>> {
        options.get(name).ok_or_else(|| {
            Error::failed_to_parse(format!("{} requires an '{name}' expression", self.name))
        })
    }
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::failed_to_parse(format!(
            "the $setWindowFields stage specification must be an object, found {}",
            e.value().type_name()
        )));
    };
    let wrong_type = |o: Elem<'_>| {
        Error::type_mismatch(format!(
            "BSON field '$setWindowFields.{}' is the wrong type '{}', expected type 'object'",
            o.name(),
            o.value().type_name()
        ))
    };
    let (mut partition, mut sort, mut output) = (None, None, None);
    for o in d {
        match (o.name(), o.value()) {
            ("partitionBy", v) => partition = Some(Expr::parse(v, ctx)?),
            ("sortBy", Value::Document(s)) => sort = Some(s),
            ("sortBy", Value::Null | Value::Undefined) => {}
            ("output", Value::Document(fields)) => output = Some(fields),
            ("sortBy" | "output", _) => return Err(wrong_type(o)),
            (other, _) => {
                return Err(Error::location(
                    40415,
                    format!("BSON field '$setWindowFields.{other}' is an unknown field."),
                ));
            }
        }
    }
    let Some(output) = output else {
        return Err(Error::location(
            40414,
            "BSON field '$setWindowFields.output' is missing but a required field",
        ));
    };
    let mut order = Order::default();
    if let Some(s) = sort {
        let spec = SortSpec::parse(s, ctx)?;
        if let [key] = spec.keys()
            && key.meta.is_none()
        {
            let path = format!("${}", key.path.as_str());
            order.by = Some(Arc::new(Expr::parse(Value::String(&path), ctx)?));
        }
        order.sort = Some(spec);
    }
    let mut outputs = Vec::new();
    for o in output {
        crate::sort::check_field_path(o.name())?;
        let function = parse_output(o, &order, ctx)?;
        outputs.push((Path::new(o.name()), function));
    }
    stages.push(Stage::Other(Arc::new(SetWindowFields {
        partition,
        order,
        outputs,
        collation: ctx.collation.clone(),
    })));
    Ok(())
}

fn parse_output(o: Elem<'_>, order: &Order, ctx: &QueryContext) -> Result<Function> {
    let Value::Document(field) = o.value() else {
        return Err(Error::failed_to_parse(format!(
            "The field '{}' must be an object",
            o.name()
        )));
    };
    let Some(function) = field.iter().find(|e| e.name().starts_with('$')) else {
        return Err(Error::failed_to_parse(format!(
            "'output' field '{}' must specify a window function",
            o.name()
        )));
    };
    registry::find(function.name(), |name| {
        Ok(Call {
            name,
            operand: function.value(),
            field,
            order,
            ctx,
        })
    })
}

/// Fails with 9 FailedToParse for a field that is not allowed next to a function and its window.
fn check_beside(call: &Call<'_>) -> Result<()> {
    for e in call.field {
        if e.name() == call.name || e.name() == "window" {
            continue;
        }
        return Err(Error::failed_to_parse(if e.name().starts_with('$') {
            format!(
                "Cannot specify multiple functions in window function spec, found {} and {}",
                call.name,
                e.name()
            )
        } else {
            format!("Window function found an unknown argument: {}", e.name())
        }));
    }
    Ok(())
}

impl StageOp for SetWindowFields {
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(stream::WindowStream::new(self, source, rt)))
    }
}

/// The stage, as `$fill` builds it.
pub(super) fn stage(
    partition: Option<Value<'_>>,
    sort: Option<Doc<'_>>,
    output: Doc<'_>,
    ctx: &QueryContext,
    stages: &mut Vec<Stage>,
) -> Result<()> {
    let mut spec = doc! {};
    spec.append_some("partitionBy", partition);
    spec.append_some("sortBy", sort);
    spec.append("output", output);
    let whole = doc! { "$setWindowFields": spec };
    match whole.as_doc().first() {
        Some(e) => parse(e, ctx, stages),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
