//! `$bucketAuto`: groups documents into a given number of ranges of about the same size.
//!
//! The documents are sorted by the value by which they are grouped (spilling beyond the memory limit). A
//! bucket takes its share of the documents, and all further ones that equal its greatest value. With a
//! granularity, the ends of the buckets are members of a series of preferred numbers.

use super::accumulators::{Accumulator, write_result};
use super::bucket::is_group_by;
use super::granularity::Granularity;
use super::group::{Field, parse_field};
use super::idl::need;
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::sorter::Sorter;
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, Ticker, check_size};
use crate::bytes::{close, head, open, put};
use crate::context::{QueryContext, Runtime};
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use crate::meta::MetaSet;
use crate::needs::Needs;
use bytes::Bytes;
use muniment_op::{Account, Share};
use muniment_value::{Collation, Doc, Elem, Error, Result, Type, Value, ValueBuf, doc, number};
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$bucketAuto",
    doc: "Groups documents into a number of ranges of about the same size.",
    place: Place::ANYWHERE,
    spread: Spread::Router,
    rights: Rights::Input,
    parse,
};

#[derive(Debug)]
struct BucketAuto {
    by: Expr,
    buckets: u64,
    fields: Vec<Field>,
    granularity: Option<Granularity>,
    collation: Collation,
}

/// The options of the stage that are given.
#[derive(Default)]
struct Options<'a> {
    by: Option<Expr>,
    buckets: Option<u64>,
    output: Option<Doc<'a>>,
    granularity: Option<Granularity>,
}

impl<'a> Options<'a> {
    fn read(&mut self, o: Elem<'a>, ctx: &QueryContext) -> Result<()> {
        let v = o.value();
        match o.name() {
            "groupBy" if is_group_by(v) => self.by = Some(Expr::parse(v, ctx)?),
            "groupBy" => {
                return Err(Error::location(
                    40239,
                    format!(
                        "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or \
                         an expression object, but found: {}",
                        crate::bytes::show(o)
                    ),
                ));
            }
            "buckets" => self.buckets = Some(bucket_count(v)?),
            "output" => {
                let text = "The $bucketAuto 'output' field must be an object, but found type: {}.";
                self.output = Some(need(v.as_doc(), v, 40244, text)?);
            }
            "granularity" => {
                let text =
                    "The $bucketAuto 'granularity' field must be a string, but found type: {}.";
                let name = need(v.as_str(), v, 40261, text)?;
                self.granularity = Some(Granularity::named(name)?);
            }
            other => {
                return Err(Error::location(
                    40245,
                    format!("Unrecognized option to $bucketAuto: {other}."),
                ));
            }
        }
        Ok(())
    }
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let v = e.value();
    let text = "The argument to $bucketAuto must be an object, but found type: {}.";
    let mut given = Options::default();
    for o in need(v.as_doc(), v, 40240, text)? {
        given.read(o, ctx)?;
    }
    let (Some(by), Some(buckets)) = (given.by, given.buckets) else {
        return Err(Error::location(
            40246,
            "$bucketAuto requires 'groupBy' and 'buckets' to be specified.",
        ));
    };
    let counting = doc! { "count": doc! { "$sum": 1 } };
    let output = given.output.filter(|d| !d.is_empty());
    let fields = output
        .unwrap_or(counting.as_doc())
        .iter()
        .map(|f| parse_field(f, ctx))
        .collect::<Result<Vec<Field>>>()?;
    stages.push(Stage::Other(Arc::new(BucketAuto {
        by,
        buckets,
        fields,
        granularity: given.granularity,
        collation: ctx.collation.clone(),
    })));
    Ok(())
}

fn bucket_count(v: Value<'_>) -> Result<u64> {
    if !v.is_number() {
        return Err(Error::location(
            40241,
            format!(
                "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}.",
                v.type_name()
            ),
        ));
    }
    let n = number::to_i64_exact(v).and_then(|n| i32::try_from(n).ok());
    let n = n.ok_or_else(|| {
        Error::location(
            40242,
            format!(
                "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but \
                 found {}.",
                v.to_display()
            ),
        )
    })?;
    u64::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| {
        Error::location(
            40243,
            format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {n}."),
        )
    })
}

impl StageOp for BucketAuto {
    fn needs(&self, needs: &mut Needs) -> bool {
        needs.expr(&self.by);
        self.fields.iter().for_each(|f| needs.expr(&f.parsed.expr));
        true
    }

    fn metadata(&self, _: MetaSet) -> MetaSet {
        MetaSet::NONE
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(BucketAutoStream {
            spec: self,
            source: Some(source),
            sorted: None,
            share: 1,
            number: 1,
            next: None,
            previous: None,
            held: Share::new(&rt.ledger, Account::Stages),
            rt: rt.clone(),
            ticker: Ticker::new(rt),
        }))
    }
}

struct BucketAutoStream {
    spec: Arc<BucketAuto>,
    source: Option<Box<dyn DocStream>>,
    sorted: Option<Sorter>,
    /// The number of documents that a bucket takes.
    share: u64,
    /// The number of the next bucket, from 1.
    number: u64,
    /// The first value and document of the next bucket.
    next: Option<(ValueBuf, Bytes)>,
    /// The end of the previous bucket, if there is a granularity.
    previous: Option<ValueBuf>,
    /// The bytes that the bucket's accumulators hold.
    held: Share,
    rt: Runtime,
    ticker: Ticker,
}

/// A bucket while it grows.
struct Bucket {
    max: ValueBuf,
    states: Vec<Box<dyn Accumulator>>,
}

impl BucketAutoStream {
    fn value(&self, doc: &[u8]) -> Result<ValueBuf> {
        with_arena(self.ticker.work(), |arena| {
            let cx = EvalContext::new(Doc::new(doc), arena);
            let v = self.spec.by.eval(&cx)?.unwrap_or(Value::Null);
            if self.spec.granularity.is_some() {
                Granularity::check(v)?;
            }
            Ok(ValueBuf::new(v))
        })
    }

    fn consume(&mut self, mut source: Box<dyn DocStream>) -> Result<()> {
        let mut sorter = Sorter::new(None, self.rt.memory_limit, &self.rt.ledger);
        let mut n: u64 = 0;
        let mut key = Vec::new();
        while let Some(doc) = source.next()? {
            self.ticker.tick()?;
            key.clear();
            let v = self.value(&doc)?;
            self.spec.collation.encode(v.as_value(), false, &mut key);
            n += 1;
            if sorter.push(&key, &[&doc])? {
                sorter.spill(&self.rt)?;
            }
        }
        // The share is rounded half up.
        self.share = ((2 * n + self.spec.buckets) / (2 * self.spec.buckets)).max(1);
        sorter.finish(&self.rt)?;
        self.sorted = Some(sorter);
        self.next = self.advance()?;
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<(ValueBuf, Bytes)>> {
        self.ticker.tick()?;
        let Some(sorted) = &mut self.sorted else {
            return Ok(None);
        };
        match sorted.next()? {
            Some(doc) => Ok(Some((self.value(&doc)?, doc))),
            None => Ok(None),
        }
    }

    fn add(&mut self, bucket: &mut Bucket, (v, doc): (ValueBuf, Bytes)) -> Result<()> {
        with_arena(self.ticker.work(), |arena| {
            let cx = EvalContext::new(Doc::new(&doc), arena);
            for (f, s) in self.spec.fields.iter().zip(&mut bucket.states) {
                s.add(f.parsed.expr.eval(&cx)?)?;
            }
            bucket.max = v;
            Ok::<_, Error>(())
        })?;
        Ok(self
            .held
            .try_hold(bucket.states.iter().map(|s| s.heap()).sum())?)
    }

    /// Takes the following documents as long as their values are less than `limit` (or, with `equal`, equal
    /// to it).
    fn absorb(&mut self, bucket: &mut Bucket, limit: &ValueBuf, equal: bool) -> Result<()> {
        while let Some((v, _)) = &self.next {
            match self.spec.collation.cmp(v.as_value(), limit.as_value()) {
                Ordering::Less => {}
                Ordering::Equal if equal => {}
                _ => break,
            }
            if let Some(next) = self.next.take() {
                self.add(bucket, next)?;
            }
            self.next = self.advance()?;
        }
        Ok(())
    }
}

impl DocStream for BucketAutoStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(source) = self.source.take() {
            self.consume(source)?;
        }
        let Some(first) = self.next.take() else {
            return Ok(None);
        };
        let spec = Arc::clone(&self.spec);
        let mut min = first.0.clone();
        if let Some(g) = &spec.granularity {
            min = match self.previous.take() {
                Some(end) => end,
                None => g.round_down(min.as_value()),
            };
        }
        let mut bucket = Bucket {
            max: first.0.clone(),
            states: spec
                .fields
                .iter()
                .map(|f| f.parsed.state(Value::Null, self.ticker.task()))
                .collect::<Result<_>>()?,
        };
        self.add(&mut bucket, first)?;
        self.next = self.advance()?;
        let last = self.number >= spec.buckets;
        let mut taken = 1;
        while (last || taken < self.share)
            && let Some(next) = self.next.take()
        {
            self.add(&mut bucket, next)?;
            self.next = self.advance()?;
            taken += 1;
        }
        self.number += 1;
        let mut end;
        if let Some(g) = &spec.granularity {
            end = g.round_up(bucket.max.as_value());
            self.absorb(&mut bucket, &end.clone(), false)?;
            // A bucket that contains only zeros ends where the next one begins.
            if number::is_zero(end.as_value())
                && let Some((v, _)) = &self.next
            {
                end = g.round_down(v.as_value());
            }
            self.previous = Some(end.clone());
        } else {
            let limit = bucket.max.clone();
            self.absorb(&mut bucket, &limit, true)?;
            end = match &self.next {
                Some((v, _)) => v.clone(),
                None => bucket.max.clone(),
            };
        }
        let mut out = Vec::with_capacity(64);
        let start = open(&mut out);
        head(&mut out, Type::Document, b"_id");
        let id = open(&mut out);
        put(&mut out, b"min", &min);
        put(&mut out, b"max", &end);
        close(&mut out, id);
        for (f, s) in spec.fields.iter().zip(&bucket.states) {
            write_result(s.as_ref(), f.name.as_bytes(), &mut out)?;
        }
        close(&mut out, start);
        check_size(out.len())?;
        Ok(Some(out.into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::context::Runtime;
    use crate::stage::testing::{run, table};
    use muniment_value::{DocBuf, doc};

    #[test]
    fn table_of_bucket_auto() {
        table(&[
            (
                "[{x:3},{x:1},{x:2},{x:4},{x:5}]",
                "[{$bucketAuto:{groupBy:'$x',buckets:2}}]",
                "[{_id:{min:1,max:4},count:3},{_id:{min:4,max:5},count:2}]",
            ),
            (
                "[{x:1},{x:2},{x:2},{x:2},{x:3}]",
                "[{$bucketAuto:{groupBy:'$x',buckets:3,output:{all:{$push:'$x'}}}}]",
                "[{_id:{min:1,max:3},all:[1,2,2,2]},{_id:{min:3,max:3},all:[3]}]",
            ),
            (
                "[{x:1},{x:10},{x:100},{x:1000}]",
                "[{$bucketAuto:{groupBy:'$x',buckets:3,granularity:'R5'}}]",
                "[{_id:{min:0.63,max:1.6},count:1},{_id:{min:1.6,max:16.0},count:1},\
                 {_id:{min:16.0,max:1600.0},count:2}]",
            ),
            ("[]", "[{$bucketAuto:{groupBy:'$x',buckets:3}}]", "[]"),
            (
                "[]",
                "[{$bucketAuto:{groupBy:'$x',buckets:0}}]",
                "40243: The $bucketAuto 'buckets' field must be greater than 0, but found: 0.",
            ),
            (
                "[{x:'a'}]",
                "[{$bucketAuto:{groupBy:'$x',buckets:1,granularity:'R5'}}]",
                "40258: A granularity rounder can only round numeric values, but found type: string.",
            ),
        ]);
    }

    #[test]
    fn spilled_buckets_agree_with_those_in_memory() {
        let input = || -> Vec<DocBuf> {
            (0..3000)
                .map(|i: i32| doc! { "k": (i * 7919) % 1009, "i": i })
                .collect()
        };
        let pipeline =
            "[{$bucketAuto:{groupBy:'$k',buckets:7,output:{n:{$sum:1},all:{$push:'$i'}}}}]";
        let dir = tempfile::tempdir().unwrap();
        let rt = Runtime {
            memory_limit: 20_000,
            scratch: Some(crate::Scratch::unlimited(dir.path())),
            ..Runtime::for_tests()
        };
        let spilled = run(input(), pipeline, &rt).unwrap();
        let kept = run(input(), pipeline, &Runtime::for_tests()).unwrap();
        assert_eq!(kept.len(), 7);
        assert!(spilled == kept);
    }
}
