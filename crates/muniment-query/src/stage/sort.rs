//! `$sort`: the stage around a [`Sorter`].

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::sorter::Sorter;
use super::spread::Spread;
use super::{DocStream, Stage, Ticker};
use crate::context::{QueryContext, Runtime};
use crate::meta::MetaSet;
use crate::sort::{KEYS, SortSpec};
use bytes::Bytes;
use muniment_value::{Doc, DocBuf, Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$sort",
    doc: "Sorts the documents.",
    place: Place::ANYWHERE,
    spread: Spread::Ordered,
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            15973,
            "the $sort key specification must be an object",
        ));
    };
    if d.is_empty() {
        return Err(Error::location(
            15976,
            "$sort stage must have at least one sort key",
        ));
    }
    stages.push(Stage::Sort(SortSpec::parse(d, ctx)?));
    Ok(())
}

/// A sorted stream.
pub(crate) struct SortStream {
    /// The stream to be sorted, until it has been read.
    source: Option<Box<dyn DocStream>>,
    sorter: Sorter,
    spec: SortSpec,
    /// The keys that documents keep as metadata.
    kept: MetaSet,
    rt: Runtime,
    ticker: Ticker,
}

impl SortStream {
    /// Sorts `source` by `spec`, or gives its first `limit` documents. They have those of their keys as metadata
    /// that `asked` names. Nothing is read before the first call of `next`.
    pub(crate) fn new(
        source: Box<dyn DocStream>,
        spec: SortSpec,
        limit: Option<u64>,
        asked: MetaSet,
        rt: &Runtime,
    ) -> SortStream {
        SortStream {
            source: (limit != Some(0)).then_some(source),
            sorter: Sorter::new(limit, rt.memory_limit, &rt.ledger),
            spec,
            kept: asked.both(KEYS),
            rt: rt.clone(),
            ticker: Ticker::new(rt),
        }
    }
}

impl DocStream for SortStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(mut source) = self.source.take() {
            let mut key = Vec::new();
            while let Some(doc) = source.next()? {
                self.ticker.tick()?;
                key.clear();
                self.spec.key(Doc::new(&doc), &mut key)?;
                if self.sorter.wants(&key) && self.sorter.push(&key, &[&doc])? {
                    self.sorter.spill(&self.rt)?;
                }
            }
            self.sorter.finish(&self.rt)?;
        }
        self.ticker.tick()?;
        let Some(doc) = self.sorter.next()? else {
            return Ok(None);
        };
        if !self.kept.is_empty() {
            return self.spec.with_keys(Doc::new(&doc), self.kept).map(Some);
        }
        Ok(Some(doc))
    }

    fn tell(&self, d: &mut DocBuf) {
        let s = &self.sorter;
        d.append("totalDataSizeSortedBytesEstimate", s.total_bytes() as i64);
        d.append("usedDisk", s.spills() > 0);
        d.append("spills", s.spills() as i64);
        d.append("spilledDataStorageSize", s.spilled_bytes() as i64);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::stage::testing::{Docs, drain, run, show, table};
    use muniment_value::doc;

    #[test]
    fn table_of_sort() {
        table(&[
            ("[{a:2},{a:1},{}]", "[{$sort:{a:1}}]", "[{},{a:1},{a:2}]"),
            ("[{a:2},{a:1},{}]", "[{$sort:{a:-1}}]", "[{a:2},{a:1},{}]"),
            (
                "[{a:1,b:1},{a:0,b:2},{a:1,b:3},{a:0,b:4}]",
                "[{$sort:{a:1}}]",
                "[{a:0,b:2},{a:0,b:4},{a:1,b:1},{a:1,b:3}]",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "[{$sort:{a:1}},{$limit:2}]",
                "[{a:1},{a:2}]",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "[{$sort:{a:1}},{$skip:1},{$limit:1}]",
                "[{a:2}]",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "[{$sort:{a:1}},{$limit:2},{$skip:1}]",
                "[{a:2}]",
            ),
            (
                "[]",
                "[{$sort:{}}]",
                "15976: $sort stage must have at least one sort key",
            ),
            (
                "[]",
                "[{$sort:1}]",
                "15973: the $sort key specification must be an object",
            ),
        ]);
    }

    /// Pseudo-random documents with many equal keys; `i` is the number in the input.
    fn input(n: i32) -> Vec<DocBuf> {
        let mut x = 12345u32;
        (0..n)
            .map(|i| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                doc! { "k": ((x >> 16) % 50) as i32, "i": i, "pad": "x".repeat((x >> 24) as usize) }
            })
            .collect()
    }

    fn expected(n: i32) -> Vec<DocBuf> {
        let mut all = input(n);
        all.sort_by_key(|d| d.as_doc().get("k").unwrap().as_i64_exact());
        all
    }

    fn small(dir: Option<&std::path::Path>, limit: usize) -> Runtime {
        Runtime {
            memory_limit: limit,
            scratch: dir.map(crate::Scratch::unlimited),
            ..Runtime::for_tests()
        }
    }

    #[test]
    fn spilled_and_kept_in_memory_agree_and_are_stable() {
        let dir = tempfile::tempdir().unwrap();
        // The smaller limit makes more runs than can be merged at once.
        for limit in [20_000, 200_000] {
            let rt = small(Some(&dir.path().join("spill")), limit);
            let got = run(input(5000), "[{$sort:{k:1}}]", &rt).unwrap();
            assert!(got == expected(5000), "limit {limit}");
        }
        let left = std::fs::read_dir(dir.path().join("spill")).unwrap().count();
        assert_eq!(left, 0, "spill files outlive their sort");
        let got = run(input(5000), "[{$sort:{k:1}}]", &Runtime::for_tests()).unwrap();
        assert!(got == expected(5000));
    }

    #[test]
    fn spilling_must_be_allowed() {
        let e = run(input(5000), "[{$sort:{k:1}}]", &small(None, 20_000)).unwrap_err();
        assert_eq!(e.code().0, 292);
        assert!(
            e.message()
                .starts_with("Sort exceeded memory limit of 20000 bytes")
        );
    }

    #[test]
    fn top_k_agrees_and_needs_no_memory_for_the_rest() {
        let rt = small(None, 20_000);
        let got = run(input(5000), "[{$sort:{k:1}},{$limit:10}]", &rt).unwrap();
        assert_eq!(show(&got), show(&expected(5000)[..10]));
        // If the documents do not fit, the stage uses the external sort.
        let dir = tempfile::tempdir().unwrap();
        let rt = small(Some(dir.path()), 20_000);
        let got = run(input(5000), "[{$sort:{k:1}},{$limit:3000}]", &rt).unwrap();
        assert!(got == expected(5000)[..3000]);
    }

    #[test]
    fn a_limit_of_nothing_reads_nothing() {
        let source = Box::new(Docs(input(10).into_iter()));
        let spec = SortSpec::parse(doc! { "k": 1 }.as_doc(), &QueryContext::new()).unwrap();
        let s = SortStream::new(source, spec, Some(0), MetaSet::NONE, &Runtime::for_tests());
        assert!(drain(Box::new(s)).unwrap().is_empty());
    }
}
