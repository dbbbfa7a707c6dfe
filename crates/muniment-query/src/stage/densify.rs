//! `$densify`: adds documents for the steps of a range at which there is no document.
//!
//! The documents are sorted by partition and field (spilling beyond the memory limit) and merged with the
//! steps. With bounds for all partitions ("full" or given ones), every partition gets the whole range. "full"
//! needs the least and the greatest value before the first document; sorting finds them.

use super::idl::wrong_type;
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::sorter::Sorter;
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, Ticker, check_size};
use crate::bytes::set_path;
use crate::context::{QueryContext, Runtime};
use crate::expr::arena::with_arena;
use crate::expr::ops::date::Zone;
use crate::expr::ops::date::add::add;
use crate::expr::ops::date::args::Unit;
use crate::expr::{EvalContext, Expr};
use crate::running::Work;
use bytes::Bytes;
use muniment_value::args::{missing_field, unknown_field};
use muniment_value::path::Path;
use muniment_value::{
    Collation, Doc, Elem, Error, Result, Value, ValueBuf, cmp_values, keyenc, number,
};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$densify",
    doc: "Documents for the steps of a range that no document has.",
    place: Place::ANYWHERE,
    spread: Spread::Router,
    rights: Rights::Input,
    parse,
};

/// The most documents that one stage may make, which is MongoDB's limit.
const MAX_GENERATED: u64 = 500_000;

#[derive(Debug)]
struct Densify {
    field: Path,
    by: Expr,
    partition: Vec<(Path, Expr)>,
    step: Step,
    bounds: Bounds,
    collation: Collation,
}

#[derive(Debug)]
struct Step {
    by: ValueBuf,
    unit: Option<Unit>,
}

#[derive(Debug)]
enum Bounds {
    Full,
    Partition,
    /// From the first value up to the second, which is excluded.
    Given(ValueBuf, ValueBuf),
}

impl Step {
    /// The value `n` steps after `from`.
    fn at(&self, from: Value<'_>, n: i64) -> Result<ValueBuf> {
        if let (Some(unit), Value::DateTime(ms)) = (self.unit, from) {
            let by = number::to_i64_exact(self.by.as_value()).unwrap_or(1);
            let ms = add(ms, unit, by.saturating_mul(n), &Zone::UTC)?;
            return Ok(ValueBuf::new(Value::DateTime(ms)));
        }
        let way = number::mul(self.by.as_value(), Value::Int64(n), true)?;
        // Whole steps of an int give an int.
        let way = match (self.by.as_value(), way) {
            (Value::Int32(_), Value::Int64(w)) => number::narrow(w),
            (_, way) => way,
        };
        Ok(ValueBuf::new(number::add(from, way, true)?))
    }
}

/// The options of the stage: the field, those that partition, and the range.
fn options(d: Doc<'_>) -> Result<(&str, Doc<'_>, Doc<'_>)> {
    let (mut field, mut partition, mut range) = (None, Doc::EMPTY, None);
    for o in d {
        let wrong = |expected: &str| Err(wrong_type("$densify", o.name(), o.value(), expected));
        match (o.name(), o.value()) {
            ("field", Value::String(s)) => field = Some(s),
            ("field", _) => return wrong("string"),
            ("partitionByFields", Value::Array(a)) => partition = a,
            ("partitionByFields", _) => return wrong("array"),
            ("range", Value::Document(r)) => range = Some(r),
            ("range", _) => return wrong("object"),
            (other, _) => return Err(unknown_field("$densify", other)),
        }
    }
    let field = field.ok_or_else(|| missing_field("$densify", "field"))?;
    let range = range.ok_or_else(|| missing_field("$densify", "range"))?;
    Ok((field, partition, range))
}

/// The fields by which the documents are partitioned, none of which may contain the densified field or lie
/// within it.
fn partition_fields(
    names: Doc<'_>,
    densified: &Path,
    ctx: &QueryContext,
) -> Result<Vec<(Path, Expr)>> {
    let mut fields = Vec::new();
    for v in names.values() {
        let name = v.as_str().ok_or_else(|| {
            Error::type_mismatch(
                "BSON field '$densify.partitionByFields' must be an array of strings",
            )
        })?;
        if name.starts_with('$') {
            return Err(Error::location(
                8_993_000,
                "PartitionByFields cannot contain fields that start with '$'",
            ));
        }
        let (e, path) = expression(name, ctx)?;
        if path.parts().starts_with(densified.parts())
            || densified.parts().starts_with(path.parts())
        {
            return Err(Error::location(
                8_993_001,
                "BSON field 'partitionByFields' contains the field that is being densified",
            ));
        }
        fields.push((path, e));
    }
    Ok(fields)
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            5_733_401,
            "The $densify stage specification must be an object, found a value of another type",
        ));
    };
    let (field, partition, range) = options(d)?;
    if field.starts_with('$') {
        return Err(Error::location(
            5_733_408,
            "Cannot densify field starting with '$'",
        ));
    }
    let (by, field) = expression(field, ctx)?;
    let partition = partition_fields(partition, &field, ctx)?;
    let (step, bounds) = parse_range(range, !partition.is_empty())?;
    stages.push(Stage::Other(Arc::new(Densify {
        field,
        by,
        partition,
        step,
        bounds,
        collation: ctx.collation.clone(),
    })));
    Ok(())
}

/// The expression for a path, and the path.
fn expression(name: &str, ctx: &QueryContext) -> Result<(Expr, Path)> {
    crate::sort::check_field_path(name)?;
    let path = format!("${name}");
    Ok((Expr::parse(Value::String(&path), ctx)?, Path::new(name)))
}

fn parse_range(d: Doc<'_>, partitioned: bool) -> Result<(Step, Bounds)> {
    const RANGE: &str = "$densify.range";
    let (mut step, mut unit, mut bounds) = (None, None, None);
    for o in d {
        match o.name() {
            "step" if o.value().is_number() => step = Some(o.value()),
            "step" => {
                return Err(Error::type_mismatch(format!(
                    "BSON field '$densify.range.step' is the wrong type '{}', expected a number",
                    o.value().type_name()
                )));
            }
            "unit" => {
                let parsed = o.value().as_str().and_then(Unit::parse);
                unit = Some(parsed.ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "unknown time unit value: {}",
                        o.value().to_display()
                    ))
                })?);
            }
            "bounds" => bounds = Some(o.value()),
            other => return Err(unknown_field(RANGE, other)),
        }
    }
    let step = step.ok_or_else(|| missing_field(RANGE, "step"))?;
    let bounds = bounds.ok_or_else(|| missing_field(RANGE, "bounds"))?;
    if number::is_zero(step) || number::is_negative(step) || number::is_nan(step) {
        return Err(Error::location(
            5_733_401,
            "The step parameter in a range statement must be a strictly positive numeric value",
        ));
    }
    if unit.is_some() && number::to_i64_exact(step).is_none() {
        return Err(Error::location(
            6_586_400,
            "The step parameter in a range statement must be a whole number when densifying a \
             date range",
        ));
    }
    let bounds = parse_bounds(bounds, partitioned, unit.is_some())?;
    let by = ValueBuf::new(step);
    Ok((Step { by, unit }, bounds))
}

/// The bounds of the range. `dated` says that its steps have a unit.
fn parse_bounds(bounds: Value<'_>, partitioned: bool, dated: bool) -> Result<Bounds> {
    match bounds {
        Value::String("full") => Ok(Bounds::Full),
        Value::String("partition") if partitioned => Ok(Bounds::Partition),
        Value::String("partition") => Err(Error::location(
            5_733_408,
            "One may not specify the bounds as 'partition' without specifying a non-empty array of \
             partitionByFields. You may have meant to specify 'full' bounds.",
        )),
        Value::String(other) => Err(Error::location(
            5_946_802,
            format!("Bounds string must either be 'full' or 'partition', but was '{other}'"),
        )),
        Value::Array(a) => {
            let mut ends = a.values();
            let (Some(low), Some(high), None) = (ends.next(), ends.next(), ends.next()) else {
                return Err(Error::location(
                    5_733_403,
                    "a bounding array in a range statement must have exactly two elements",
                ));
            };
            check_bounds(low, high, dated)?;
            Ok(Bounds::Given(ValueBuf::new(low), ValueBuf::new(high)))
        }
        other => Err(Error::location(
            5_946_800,
            format!(
                "The bounds in a range statement must be the string 'full', 'partition' or an \
                 array, but found {}",
                other.type_name()
            ),
        )),
    }
}

fn check_bounds(low: Value<'_>, high: Value<'_>, unit: bool) -> Result<()> {
    match (low, high) {
        (Value::DateTime(_), Value::DateTime(_)) if unit => {}
        (Value::DateTime(_), Value::DateTime(_)) => {
            return Err(Error::location(
                5_733_501,
                "A bounding array of dates must be given with a unit",
            ));
        }
        (l, h) if l.is_number() && h.is_number() && !unit => {}
        (l, h) if l.is_number() && h.is_number() => {
            return Err(Error::location(
                5_733_409,
                "Numeric bounds may not have unit parameter",
            ));
        }
        _ => {
            return Err(Error::location(
                5_733_402,
                "A bounding array must contain either both dates or both numeric types",
            ));
        }
    }
    if cmp_values(low, high) == Ordering::Greater {
        return Err(Error::location(
            5_733_402,
            "A bounding array's first value must not be above its second one",
        ));
    }
    Ok(())
}

impl StageOp for Densify {
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(DensifyStream {
            spec: self,
            source: Some(source),
            sorter: Sorter::new(None, rt.memory_limit, &rt.ledger),
            pending: None,
            whole: None,
            current: None,
            ready: VecDeque::new(),
            finished: false,
            any: false,
            generated: 0,
            rt: rt.clone(),
            ticker: Ticker::new(rt),
        }))
    }
}

struct DensifyStream {
    spec: Arc<Densify>,
    source: Option<Box<dyn DocStream>>,
    sorter: Sorter,
    pending: Option<(Bytes, Bytes)>,
    /// The least and the greatest value of all documents.
    whole: Option<(ValueBuf, ValueBuf)>,
    current: Option<Current>,
    /// Documents to be given out next.
    ready: VecDeque<Bytes>,
    finished: bool,
    any: bool,
    generated: u64,
    rt: Runtime,
    ticker: Ticker,
}

/// The partition that is being given out.
struct Current {
    key: Bytes,
    /// The document from which the new ones take the partition's fields.
    template: Bytes,
    /// The value from which the steps are counted, and the number of steps that have been passed.
    base: Option<ValueBuf>,
    step: i64,
    /// The end of the steps; `true` if the end itself is a step.
    end: Option<(ValueBuf, bool)>,
}

impl Densify {
    fn value(&self, e: &Expr, doc: &[u8], work: Work<'_>) -> Result<Option<ValueBuf>> {
        with_arena(work, |arena| {
            let v = e.eval(&EvalContext::new(Doc::new(doc), arena))?;
            Ok(v.map(ValueBuf::new))
        })
    }

    /// The field's value; `None` if it is null or missing.
    fn field(&self, doc: &[u8], work: Work<'_>) -> Result<Option<ValueBuf>> {
        let Some(v) = self.value(&self.by, doc, work)? else {
            return Ok(None);
        };
        match (v.as_value(), self.step.unit.is_some()) {
            (Value::Null | Value::Undefined, _) => Ok(None),
            (Value::DateTime(_), true) => Ok(Some(v)),
            (Value::DateTime(_), false) => Err(Error::location(
                6_053_600,
                "Encountered a date value in collection when the step does not have a date unit.",
            )),
            (x, false) if x.is_number() => Ok(Some(v)),
            (x, true) if x.is_number() => Err(Error::location(
                6_053_600,
                "Encountered numeric value in collection when the step has a date unit.",
            )),
            (x, _) => Err(Error::location(
                5_733_201,
                format!(
                    "Densify field type must be numeric or a date, but found {}",
                    x.type_name()
                ),
            )),
        }
    }

    /// A document with the partition's fields and this value.
    fn generate(&self, template: &[u8], v: &ValueBuf, work: Work<'_>) -> Result<Bytes> {
        let mut out = Doc::EMPTY.as_bytes().to_vec();
        for (path, e) in &self.partition {
            if let Some(p) = self.value(e, template, work)? {
                let mut next = Vec::new();
                set_path(Doc::new(&out), path.parts(), Some(&p), &mut next);
                out = next;
            }
        }
        let mut next = Vec::new();
        set_path(Doc::new(&out), self.field.parts(), Some(v), &mut next);
        check_size(next.len())?;
        Ok(next.into())
    }
}

impl DensifyStream {
    /// Sorts the input by partition and field. A payload consists of the length of the partition's key, that
    /// key, and the document.
    fn consume(&mut self, mut source: Box<dyn DocStream>) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let mut key = Vec::new();
        while let Some(doc) = source.next()? {
            self.ticker.tick()?;
            self.any = true;
            key.clear();
            for (_, e) in &spec.partition {
                let v = spec.value(e, &doc, self.ticker.work())?;
                let v = v.as_ref().map_or(Value::Null, ValueBuf::as_value);
                spec.collation.encode(v, false, &mut key);
            }
            let partition = key.len();
            let v = spec.field(&doc, self.ticker.work())?;
            keyenc::encode(
                v.as_ref().map_or(Value::Null, ValueBuf::as_value),
                false,
                &mut key,
            );
            if let Some(v) = v {
                self.whole = Some(match self.whole.take() {
                    None => (v.clone(), v),
                    Some((low, high)) => {
                        if cmp_values(v.as_value(), low.as_value()) == Ordering::Less {
                            (v, high)
                        } else if cmp_values(v.as_value(), high.as_value()) == Ordering::Greater {
                            (low, v)
                        } else {
                            (low, high)
                        }
                    }
                });
            }
            let head = (partition as u32).to_le_bytes();
            let name = key.get(..partition).unwrap_or_default();
            if self.sorter.push(&key, &[&head, name, &doc])? {
                self.sorter.spill(&self.rt)?;
            }
        }
        self.sorter.finish(&self.rt)
    }

    fn pull(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        if let Some(p) = self.pending.take() {
            return Ok(Some(p));
        }
        self.ticker.tick()?;
        let Some(payload) = self.sorter.next()? else {
            return Ok(None);
        };
        let head = payload.get(..4).and_then(|b| b.try_into().ok());
        let end = 4 + head.map_or(0, u32::from_le_bytes) as usize;
        if end > payload.len() {
            return Err(Error::internal("a sorted document is cut short"));
        }
        Ok(Some((payload.slice(4..end), payload.slice(end..))))
    }

    /// Begins a partition with this document.
    fn begin(&self, key: Bytes, template: Bytes) -> Current {
        let (base, end) = match (&self.spec.bounds, &self.whole) {
            (Bounds::Given(low, high), _) => (Some(low.clone()), Some((high.clone(), false))),
            (Bounds::Full, Some((low, high))) => (Some(low.clone()), Some((high.clone(), true))),
            _ => (None, None),
        };
        Current {
            key,
            template,
            base,
            step: 0,
            end,
        }
    }

    /// If there is a step before `limit` (or before the end, for `None`), makes a document for it and passes
    /// it. Returns whether there was one.
    fn step(&mut self, p: &mut Current, limit: Option<&ValueBuf>) -> Result<bool> {
        let Some(base) = &p.base else {
            return Ok(false);
        };
        let at = self.spec.step.at(base.as_value(), p.step)?;
        let inside = |end: &ValueBuf, closed: bool| match cmp_values(at.as_value(), end.as_value())
        {
            Ordering::Less => true,
            Ordering::Equal => closed,
            Ordering::Greater => false,
        };
        let in_range = p
            .end
            .as_ref()
            .is_none_or(|(end, closed)| inside(end, *closed));
        if !in_range {
            return Ok(false);
        }
        if let Some(limit) = limit {
            match cmp_values(at.as_value(), limit.as_value()) {
                Ordering::Less => {}
                // The document itself is at this step.
                Ordering::Equal => {
                    p.step += 1;
                    return Ok(false);
                }
                Ordering::Greater => return Ok(false),
            }
        } else if p.end.is_none() {
            return Ok(false);
        }
        p.step += 1;
        self.generated += 1;
        if self.generated > MAX_GENERATED {
            return Err(Error::location(
                5_897_900,
                format!(
                    "Generated {} documents in $densify, which is over the limit of \
                     {MAX_GENERATED}. Increase the step, or narrow the bounds.",
                    self.generated
                ),
            ));
        }
        let doc = self.spec.generate(&p.template, &at, self.ticker.work())?;
        self.ready.push_back(doc);
        Ok(true)
    }

    /// Puts the next documents into `ready`; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let Some((key, doc)) = self.pull()? else {
            if let Some(mut p) = self.current.take() {
                if self.step(&mut p, None)? {
                    self.current = Some(p);
                }
                return Ok(true);
            }
            // With given bounds, documents are made even if the input is empty.
            if !self.any && !self.finished && self.spec.partition.is_empty() {
                self.finished = true;
                if matches!(self.spec.bounds, Bounds::Given(..)) {
                    let empty = Bytes::copy_from_slice(Doc::EMPTY.as_bytes());
                    self.current = Some(self.begin(Bytes::new(), empty));
                    return Ok(true);
                }
            }
            return Ok(false);
        };
        // First the previous partition is completed.
        if let Some(mut p) = self.current.take() {
            if p.key != key && self.step(&mut p, None)? {
                self.current = Some(p);
                self.pending = Some((key, doc));
                return Ok(true);
            }
            if p.key == key {
                self.current = Some(p);
            }
        }
        self.document(key, doc)
    }

    /// Processes a document of the input. The steps before it are made first.
    fn document(&mut self, key: Bytes, doc: Bytes) -> Result<bool> {
        let mut p = match self.current.take() {
            Some(mut p) if p.key == key => {
                if !self.spec.collation.is_simple() {
                    // Partitions that are equal for the collation may have different values.
                    p.template = doc.clone();
                }
                p
            }
            _ => self.begin(key.clone(), doc.clone()),
        };
        let v = self.spec.field(&doc, self.ticker.work())?;
        if let Some(v) = &v {
            if p.base.is_none() {
                p.base = Some(v.clone());
            }
            if self.step(&mut p, Some(v))? {
                self.current = Some(p);
                self.pending = Some((key, doc));
                return Ok(true);
            }
        }
        self.ready.push_back(doc);
        self.current = Some(p);
        Ok(true)
    }
}

impl DocStream for DensifyStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(source) = self.source.take() {
            self.consume(source)?;
        }
        loop {
            self.ticker.tick()?;
            if let Some(doc) = self.ready.pop_front() {
                return Ok(Some(doc));
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_densify() {
        table(&[
            (
                "[{_id:1,t:0},{_id:2,t:30}]",
                "[{$densify:{field:'t',range:{step:10,bounds:'full'}}}]",
                "[{_id:1,t:0},{t:10},{t:20},{_id:2,t:30}]",
            ),
            (
                "[{p:1,t:0},{p:1,t:2},{p:2,t:3}]",
                "[{$densify:{field:'t',partitionByFields:['p'],range:{step:1,bounds:'partition'}}}]",
                "[{p:1,t:0},{p:1,t:1},{p:1,t:2},{p:2,t:3}]",
            ),
            (
                "[{p:1,t:1},{p:2,t:3}]",
                "[{$densify:{field:'t',partitionByFields:['p'],range:{step:1,bounds:'full'}}}]",
                "[{p:1,t:1},{p:1,t:2},{p:1,t:3},{p:2,t:1},{p:2,t:2},{p:2,t:3}]",
            ),
            (
                "[{t:1.5},{t:-5},{t:9},{}]",
                "[{$densify:{field:'t',range:{step:1,bounds:[0,3]}}}]",
                "[{},{t:-5},{t:0},{t:1},{t:1.5},{t:2},{t:9}]",
            ),
            (
                "[]",
                "[{$densify:{field:'t',range:{step:2,bounds:[0,4]}}}]",
                "[{t:0},{t:2}]",
            ),
            (
                "[]",
                "[{$densify:{field:'t',range:{step:2,bounds:'full'}}}]",
                "[]",
            ),
            (
                "[{t:{$date:'2024-01-31T00:00:00Z'}},{t:{$date:'2024-03-31T00:00:00Z'}}]",
                "[{$densify:{field:'t',range:{step:1,unit:'month',bounds:'full'}}}]",
                "[{t:{$date:'2024-01-31T00:00:00Z'}},{t:{$date:'2024-02-29T00:00:00Z'}},\
                 {t:{$date:'2024-03-31T00:00:00Z'}}]",
            ),
            (
                "[]",
                "[{$densify:{field:'t',range:{step:0,bounds:'full'}}}]",
                "5733401: The step parameter in a range statement must be a strictly positive numeric value",
            ),
            (
                "[{t:'x'}]",
                "[{$densify:{field:'t',range:{step:1,bounds:'full'}}}]",
                "5733201: Densify field type must be numeric or a date, but found string",
            ),
            (
                "[]",
                "[{$densify:{field:'t',range:{step:1,bounds:[0,1000000]}}},{$count:'n'}]",
                "5897900: Generated 500001 documents in $densify, which is over the limit of \
                 500000. Increase the step, or narrow the bounds.",
            ),
        ]);
    }
}
