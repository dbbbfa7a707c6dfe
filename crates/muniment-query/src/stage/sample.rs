//! `$sample`: selects documents at random.
//!
//! Every document gets a random key, and those with the least keys are the sample. So every set of that size
//! is equally likely, and only the sample is held in memory.

use super::parts;
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::sorter::Sorter;
use super::spread::{Halves, Merge, Spread, Whole};
use super::{DocStream, Stage, StageOp, Ticker};
use crate::context::{QueryContext, Runtime};
use crate::expr::ops::rand::bits as random_bits;
use crate::meta::binary;
use crate::meta::{Meta, MetaSet, Metadata, attach};
use crate::needs::Needs;
use bytes::Bytes;
use muniment_value::decimal::{Decimal, Round};
use muniment_value::{Doc, Elem, Error, Result, Value, number};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$sample",
    doc: "Documents chosen at random.",
    place: Place::ANYWHERE,
    spread: Spread::Halves(halves),
    rights: Rights::Input,
    parse,
};

#[derive(Debug)]
struct Sample {
    size: u64,
    metadata: Metadata,
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            28745,
            "the $sample stage specification must be an object",
        ));
    };
    let mut size = None;
    for o in d {
        if o.name() != "size" {
            return Err(Error::location(
                28748,
                format!("unrecognized option to $sample: {}", o.name()),
            ));
        }
        if !o.value().is_number() {
            return Err(Error::location(
                28746,
                "size argument to $sample must be a number",
            ));
        }
        size = Some(o.value());
    }
    let size = size.ok_or_else(|| Error::location(28749, "$sample stage must specify a size"))?;
    let size = whole_size(size)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| *n > 0)
        .ok_or_else(|| {
            Error::location(28747, "size argument to $sample must be a positive integer")
        })?;
    stages.push(Stage::Other(Arc::new(Sample {
        size,
        metadata: ctx.metadata.clone(),
    })));
    Ok(())
}

/// Divides the stage: the documents with the least random numbers of all are among those of each shard.
fn halves(whole: &Whole<'_>) -> Option<Halves> {
    let size = whole.source.value().as_doc()?.get("size")?;
    Some(Halves {
        shards: parts::stage(whole.source.name(), whole.source.value()),
        merge: Merge::Sorted,
        router: vec![parts::stage("$limit", Value::Int64(whole_size(size)?))],
    })
}

/// The size as a whole number.
fn whole_size(size: Value<'_>) -> Option<i64> {
    match size {
        Value::Decimal128(b) => {
            let d = Decimal::from_bid(b).round_to(0, Round::HalfEven);
            number::to_i64_clamped(Value::Decimal128(d.to_bid()))
        }
        // The fraction of a double is dropped.
        v => number::to_i64_clamped(v),
    }
}

impl StageOp for Sample {
    fn metadata(&self, before: MetaSet) -> MetaSet {
        before.with(Meta::RandVal)
    }

    fn needs(&self, _: &mut Needs) -> bool {
        false
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(SampleStream {
            source: Some(source),
            sorter: Sorter::new(Some(self.size), rt.memory_limit, &rt.ledger),
            kept: self.metadata.asked().both(NUMBERS),
            rt: rt.clone(),
            ticker: Ticker::new(rt),
        }))
    }
}

struct SampleStream {
    source: Option<Box<dyn DocStream>>,
    sorter: Sorter,
    /// The forms in which documents keep their random numbers as metadata.
    kept: MetaSet,
    rt: Runtime,
    ticker: Ticker,
}

/// The metadata that a document's random number gives.
const NUMBERS: MetaSet = MetaSet::NONE.with(Meta::RandVal).with(Meta::MergeKey);

/// The document with its random number in those forms.
fn with_number(doc: Doc<'_>, number: u64, kept: MetaSet) -> Bytes {
    let part = number as f64 / u64::MAX as f64;
    let key = number.to_be_bytes();
    let mut kinds = vec![
        (Meta::RandVal, Value::Double(part)),
        (Meta::MergeKey, binary(&key)),
    ];
    kinds.retain(|k| kept.has(k.0));
    attach(doc, &kinds)
}

impl DocStream for SampleStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(mut source) = self.source.take() {
            while let Some(doc) = source.next()? {
                self.ticker.tick()?;
                let number = random_bits();
                let key = number.to_be_bytes();
                let doc = match self.kept.is_empty() {
                    true => doc,
                    false => with_number(Doc::new(&doc), number, self.kept),
                };
                if self.sorter.wants(&key) && self.sorter.push(&key, &[&doc])? {
                    self.sorter.spill(&self.rt)?;
                }
            }
            self.sorter.finish(&self.rt)?;
        }
        self.ticker.tick()?;
        self.sorter.next()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::context::Runtime;
    use crate::stage::testing::{run, table};
    use muniment_value::{DocBuf, doc};
    use std::collections::BTreeSet;

    fn input() -> Vec<DocBuf> {
        (0..1000).map(|i: i32| doc! { "i": i }).collect()
    }

    fn chosen(docs: &[DocBuf]) -> BTreeSet<i64> {
        docs.iter()
            .map(|d| d.as_doc().get("i").unwrap().as_i64_exact().unwrap())
            .collect()
    }

    #[test]
    fn table_of_sample() {
        table(&[
            ("[{a:1}]", "[{$sample:{size:5}}]", "[{a:1}]"),
            ("[]", "[{$sample:{size:5}}]", "[]"),
            (
                "[]",
                "[{$sample:5}]",
                "28745: the $sample stage specification must be an object",
            ),
            (
                "[]",
                "[{$sample:{}}]",
                "28749: $sample stage must specify a size",
            ),
            (
                "[]",
                "[{$sample:{size:'x'}}]",
                "28746: size argument to $sample must be a number",
            ),
            (
                "[]",
                "[{$sample:{size:-1}}]",
                "28747: size argument to $sample must be a positive integer",
            ),
            (
                "[]",
                "[{$sample:{size:1,x:1}}]",
                "28748: unrecognized option to $sample: x",
            ),
        ]);
    }

    #[test]
    fn a_sample_has_different_documents_and_differs() {
        let rt = Runtime::for_tests();
        let a = chosen(&run(input(), "[{$sample:{size:100}}]", &rt).unwrap());
        let b = chosen(&run(input(), "[{$sample:{size:100}}]", &rt).unwrap());
        assert_eq!((a.len(), b.len()), (100, 100));
        assert_ne!(a, b);
        // The distribution is uniform: the mean of 100 numbers from 0..1000 is within five standard
        // deviations of 499.5.
        let mean = a.iter().sum::<i64>() as f64 / 100.0;
        assert!((mean - 499.5).abs() < 150.0, "{mean}");
    }

    #[test]
    fn large_samples_spill() {
        let dir = tempfile::tempdir().unwrap();
        let rt = Runtime {
            memory_limit: 4000,
            scratch: Some(crate::Scratch::unlimited(dir.path())),
            ..Runtime::for_tests()
        };
        let got = run(input(), "[{$sample:{size:700}}]", &rt).unwrap();
        assert_eq!(chosen(&got).len(), 700);
    }
}
