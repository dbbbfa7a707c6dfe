//! `$bucket`: groups documents by the range that contains a value. It becomes a `$group` by the lower end of
//! the range, sorted by it.

use super::Stage;
use super::group::{Field, Key, group, parse_field};
use super::idl::need;
use super::parts::{self, Part};
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use crate::context::{Clocks, QueryContext};
use crate::expr::{EvalContext, Expr};
use crate::sort::SortSpec;
use muniment_value::{Collation, Doc, DocBuf, Elem, Error, Result, Value, ValueBuf, doc};
use std::cmp::Ordering;

pub(crate) const SPEC: Spec = Spec {
    name: "$bucket",
    doc: "Groups documents by the range that a value falls into.",
    place: Place::ANYWHERE,
    spread: Spread::Halves(parts::of_bucket),
    rights: Rights::Input,
    parse,
};

/// Ranges of values. Each includes its lower and excludes its upper end.
#[derive(Debug)]
pub(super) struct Buckets {
    by: Expr,
    /// The ends of the ranges, in ascending order.
    boundaries: Vec<ValueBuf>,
    /// The bucket for all other values.
    default: Option<ValueBuf>,
    collation: Collation,
}

impl Buckets {
    /// The expression that determines the bucket.
    pub(crate) fn by(&self) -> &Expr {
        &self.by
    }

    /// The lower end of the range that contains the document's value, or the default.
    ///
    /// # Errors
    /// 40066 if there is neither.
    pub(crate) fn of<'a>(&'a self, cx: &EvalContext<'a>) -> Result<Value<'a>> {
        if let Some(v) = self.by.eval(cx)? {
            let after = self
                .boundaries
                .partition_point(|b| self.collation.cmp(b.as_value(), v) != Ordering::Greater);
            if let Some(at) = after.checked_sub(1)
                && after < self.boundaries.len()
                && let Some(low) = self.boundaries.get(at)
            {
                return Ok(low.as_value());
            }
        }
        match &self.default {
            Some(v) => Ok(v.as_value()),
            None => Err(Error::location(
                40066,
                "$switch could not find a matching branch for an input, and no default was \
                 specified.",
            )),
        }
    }
}

/// The constant value of `v`. An expression that depends on the time does not count as constant, although the
/// time is the same for the whole command.
fn constant(v: Value<'_>, ctx: &QueryContext) -> Result<Option<ValueBuf>> {
    let expr = Expr::parse(v, ctx)?;
    if matches!(v, Value::String(_) | Value::Document(_) | Value::Array(_))
        && Expr::parse(v, &ctx.clone().with_clocks(Clocks::None)).is_err()
    {
        return Ok(None);
    }
    Ok(expr.as_constant().map(ValueBuf::new))
}

fn boundaries(v: Value<'_>, ctx: &QueryContext) -> Result<Vec<ValueBuf>> {
    let Value::Array(a) = v else {
        return Err(Error::location(
            40200,
            format!(
                "The $bucket 'boundaries' field must be an array, but found type: {}.",
                v.type_name()
            ),
        ));
    };
    let mut all: Vec<ValueBuf> = Vec::new();
    for v in a.values() {
        all.push(constant(v, ctx)?.ok_or_else(|| {
            Error::location(
                40191,
                format!(
                    "The $bucket 'boundaries' field must be an array of constant values, but \
                     found value: {}.",
                    v.to_display()
                ),
            )
        })?);
    }
    if all.len() < 2 {
        return Err(Error::location(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} \
                 value(s).",
                all.len()
            ),
        ));
    }
    for (low, high) in all.iter().zip(all.iter().skip(1)) {
        if low.ty().rank() != high.ty().rank() {
            return Err(Error::location(
                40193,
                format!(
                    "All values in the the 'boundaries' option to $bucket must have the same \
                     type. Found conflicting types {} and {}.",
                    low.as_value().type_name(),
                    high.as_value().type_name()
                ),
            ));
        }
        if ctx.collation.cmp(low.as_value(), high.as_value()) != Ordering::Less {
            return Err(Error::location(
                40194,
                format!(
                    "The 'boundaries' option to $bucket must be sorted, but elements are not in \
                     ascending order ({} is not less than {}).",
                    low.as_value().to_display(),
                    high.as_value().to_display()
                ),
            ));
        }
    }
    Ok(all)
}

/// Whether documents can be bucketed by `v`, which must be a path or an operator.
pub(super) fn is_group_by(v: Value<'_>) -> bool {
    match v {
        Value::String(s) => s.starts_with('$'),
        Value::Document(d) => d.first().is_some_and(|e| e.name().starts_with('$')),
        _ => false,
    }
}

/// The options of the stage that are given.
#[derive(Default)]
struct Options<'a> {
    by: Option<Expr>,
    boundaries: Option<Vec<ValueBuf>>,
    default: Option<ValueBuf>,
    output: Option<Doc<'a>>,
}

impl<'a> Options<'a> {
    fn read(&mut self, o: Elem<'a>, ctx: &QueryContext) -> Result<()> {
        let v = o.value();
        match o.name() {
            "groupBy" if is_group_by(v) => self.by = Some(Expr::parse(v, ctx)?),
            "groupBy" => {
                return Err(Error::location(
                    40202,
                    format!(
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an \
                         expression, but found: {}.",
                        crate::bytes::show(o)
                    ),
                ));
            }
            "boundaries" => self.boundaries = Some(boundaries(v, ctx)?),
            "default" => {
                self.default = Some(constant(v, ctx)?.ok_or_else(|| {
                    Error::location(
                        40195,
                        format!(
                            "The $bucket 'default' field must be a constant expression, but \
                             found: {}.",
                            v.to_display()
                        ),
                    )
                })?);
            }
            "output" => {
                let text = "The $bucket 'output' field must be an object, but found type: {}.";
                self.output = Some(need(v.as_doc(), v, 40196, text)?);
            }
            other => {
                return Err(Error::location(
                    40197,
                    format!("Unrecognized option to $bucket: {other}."),
                ));
            }
        }
        Ok(())
    }
}

/// Fails if the bucket for all other values would lie between the boundaries.
fn check_default(default: &ValueBuf, boundaries: &[ValueBuf], collation: &Collation) -> Result<()> {
    let below = |b: Option<&ValueBuf>| {
        b.is_some_and(|b| collation.cmp(default.as_value(), b.as_value()) == Ordering::Less)
    };
    if !below(boundaries.first()) && below(boundaries.last()) {
        return Err(Error::location(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or \
             equal to the highest boundary.",
        ));
    }
    Ok(())
}

/// The fields of a bucket besides its `_id`; without an `output`, it is the number of documents.
fn fields(output: Option<Doc<'_>>, ctx: &QueryContext) -> Result<Vec<Field>> {
    let counting = doc! { "count": doc! { "$sum": 1 } };
    let mut fields = Vec::new();
    for f in output.unwrap_or(counting.as_doc()) {
        if f.name() == "_id" {
            return Err(Error::location(
                15948,
                "a group's _id may only be specified once",
            ));
        }
        fields.push(parse_field(f, ctx)?);
    }
    Ok(fields)
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let v = e.value();
    let text = "Argument to $bucket stage must be an object, but found type: {}.";
    let mut given = Options::default();
    let mut part = Part::Whole;
    for o in need(v.as_doc(), v, 40201, text)? {
        match Part::of(o, ctx) {
            Some(p) => part = p,
            None => given.read(o, ctx)?,
        }
    }
    let (Some(by), Some(boundaries)) = (given.by, given.boundaries) else {
        return Err(Error::location(
            40198,
            "$bucket requires 'groupBy' and 'boundaries' to be specified.",
        ));
    };
    if let Some(default) = &given.default {
        check_default(default, &boundaries, &ctx.collation)?;
    }
    let fields = fields(given.output, ctx)?;
    let buckets = Buckets {
        by,
        boundaries,
        default: given.default,
        collation: ctx.collation.clone(),
    };
    stages.push(group(Key::Bucket(buckets), fields, part, ctx));
    if part == Part::First {
        // The router sorts the buckets when it has merged them.
        return Ok(());
    }
    let by_id: DocBuf = doc! { "_id": 1 };
    stages.push(Stage::Sort(SortSpec::parse(by_id.as_doc(), ctx)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_bucket() {
        table(&[
            (
                "[{x:0},{x:5},{x:10},{x:19.5}]",
                "[{$bucket:{groupBy:'$x',boundaries:[0,10,20]}}]",
                "[{_id:0,count:2},{_id:10,count:2}]",
            ),
            (
                "[{x:-1},{x:5},{x:20},{}]",
                "[{$bucket:{groupBy:'$x',boundaries:[0,20],default:'other',output:{s:{$sum:'$x'}}}}]",
                "[{_id:0,s:5},{_id:'other',s:19}]",
            ),
            (
                "[{x:20}]",
                "[{$bucket:{groupBy:'$x',boundaries:[0,20]}}]",
                "40066: $switch could not find a matching branch for an input, and no default was \
                 specified.",
            ),
            (
                "[{x:50}]",
                "[{$bucket:{groupBy:'$x',boundaries:[0,20],default:{$literal:{$minKey:1}}}}]",
                "[{_id:{'':{$minKey:1}},count:1}]",
            ),
            (
                "[]",
                "[{$bucket:{groupBy:'x',boundaries:[0,20]}}]",
                "40202: The $bucket 'groupBy' field must be defined as a $-prefixed path or an \
                 expression, but found: groupBy: \"x\".",
            ),
            (
                "[]",
                "[{$bucket:{groupBy:'$x',boundaries:[0,'a']}}]",
                "40193: All values in the the 'boundaries' option to $bucket must have the same \
                 type. Found conflicting types int and string.",
            ),
            (
                "[]",
                "[{$bucket:{groupBy:'$x',boundaries:[1,1]}}]",
                "40194: The 'boundaries' option to $bucket must be sorted, but elements are not \
                 in ascending order (1 is not less than 1).",
            ),
            (
                "[]",
                "[{$bucket:{groupBy:'$x',boundaries:[1,5],default:3}}]",
                "40199: The $bucket 'default' field must be less than the lowest boundary or \
                 greater than or equal to the highest boundary.",
            ),
            (
                "[]",
                "[{$bucket:{groupBy:'$x'}}]",
                "40198: $bucket requires 'groupBy' and 'boundaries' to be specified.",
            ),
            (
                "[]",
                "[{$bucket:{groupBy:'$x',x:1}}]",
                "40197: Unrecognized option to $bucket: x.",
            ),
        ]);
    }
}
