//! The streams of several shards as one stream.

use super::wire::{Tail, take};
use crate::context::Runtime;
use crate::stage::{DocStream, Ticker};
use bytes::Bytes;
use muniment_value::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A shard's stream; `None` after its end.
type Source = Option<Box<dyn DocStream>>;

/// The streams one after the other, in the order of the shards.
pub(super) struct Concatenated {
    sources: std::vec::IntoIter<Source>,
    current: Source,
    tail: Tail,
    ticker: Ticker,
}

/// Sorted streams as one sorted stream. Of equal documents, those of the first shard come first.
pub(super) struct Merged {
    sources: Vec<Source>,
    /// The sort key of the next document of each stream, and the stream's number.
    heads: BinaryHeap<Reverse<(Bytes, usize)>>,
    /// The next document of each stream.
    docs: Vec<Bytes>,
    /// The streams whose next documents have to be read before the next document is known.
    due: Vec<usize>,
    tail: Tail,
    ticker: Ticker,
}

/// Puts the streams together. Nothing is read before the first call of `next`.
pub(super) fn together(
    streams: Vec<Box<dyn DocStream>>,
    tail: Tail,
    rt: &Runtime,
) -> Box<dyn DocStream> {
    let sources: Vec<Source> = streams.into_iter().map(Some).collect();
    let ticker = Ticker::new(rt);
    if !tail.sorted {
        return Box::new(Concatenated {
            sources: sources.into_iter(),
            current: None,
            tail,
            ticker,
        });
    }
    Box::new(Merged {
        heads: BinaryHeap::with_capacity(sources.len()),
        docs: vec![Bytes::new(); sources.len()],
        due: (0..sources.len()).collect(),
        sources,
        tail,
        ticker,
    })
}

impl DocStream for Concatenated {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.ticker.tick()?;
            if let Some(source) = &mut self.current
                && let Some(doc) = source.next()?
            {
                let (doc, _) = take(doc, self.tail)?;
                return Ok(Some(doc));
            }
            // The resources of a stream are released at its end.
            self.current = None;
            match self.sources.next() {
                Some(next) => self.current = next,
                None => return Ok(None),
            }
        }
    }
}

impl Merged {
    /// Reads the next document of a stream.
    fn read(&mut self, i: usize) -> Result<()> {
        let (Some(source), Some(slot)) = (self.sources.get_mut(i), self.docs.get_mut(i)) else {
            return Ok(());
        };
        let Some(stream) = source else {
            return Ok(());
        };
        match stream.next()? {
            Some(doc) => {
                let (doc, key) = take(doc, self.tail)?;
                *slot = doc;
                self.heads.push(Reverse((key, i)));
            }
            None => *source = None,
        }
        Ok(())
    }
}

impl DocStream for Merged {
    fn next(&mut self) -> Result<Option<Bytes>> {
        self.ticker.tick()?;
        while let Some(i) = self.due.last().copied() {
            self.read(i)?;
            self.due.pop();
        }
        let Some(Reverse((_, i))) = self.heads.pop() else {
            return Ok(None);
        };
        // The stream's next document is read at the next call, so that a document never waits for a later one.
        self.due.push(i);
        Ok(self.docs.get_mut(i).map(std::mem::take))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::meta::binary;
    use crate::stage::testing::{Docs, drain, show};
    use muniment_op::Interrupt;
    use muniment_value::{Code, Error, doc};
    use std::sync::Arc;

    const SORTED: Tail = Tail {
        sorted: true,
        metadata: false,
    };

    /// A stream with documents of these keys, which names its shard.
    fn shard(name: &str, keys: &[u8]) -> Box<dyn DocStream> {
        let docs: Vec<_> = keys
            .iter()
            .map(|k| doc! { "s": name, "k": i32::from(*k), "$sortKey": binary(&[*k]) })
            .collect();
        Box::new(Docs(docs.into_iter()))
    }

    /// An operation that has been ended.
    struct Ended;

    impl Interrupt for Ended {
        fn check(&self) -> Result<()> {
            Err(Error::new(Code::Interrupted, "operation was interrupted"))
        }

        fn sleepers(&self, _: &mut dyn FnMut(&muniment_op::Sleepers)) {}
    }

    struct Fails;

    impl DocStream for Fails {
        fn next(&mut self) -> Result<Option<Bytes>> {
            Err(Error::bad_value("this shard fails"))
        }
    }

    #[test]
    fn sorted_streams_become_one() {
        let rt = Runtime::for_tests();
        let streams = vec![
            shard("a", &[1, 3, 3, 9]),
            shard("b", &[]),
            shard("c", &[0, 3, 4]),
            shard("d", &[3]),
        ];
        let got = drain(together(streams, SORTED, &rt)).unwrap();
        let names: Vec<String> = got
            .iter()
            .map(|d| {
                let d = d.as_doc();
                format!(
                    "{}{}",
                    d.get_str("s").unwrap(),
                    d.get("k").unwrap().to_display()
                )
            })
            .collect();
        // Ties are taken in the order of the shards.
        assert_eq!(names.join(" "), "c0 a1 a3 a3 c3 d3 c4 a9", "{}", show(&got));
        assert!(drain(together(Vec::new(), SORTED, &rt)).unwrap().is_empty());
    }

    #[test]
    fn streams_follow_one_another() {
        let rt = Runtime::for_tests();
        let tail = Tail {
            sorted: false,
            metadata: false,
        };
        let docs = |n: i32| Box::new(Docs(vec![doc! { "n": n }].into_iter()));
        let got = drain(together(vec![docs(2), docs(1)], tail, &rt)).unwrap();
        assert_eq!(show(&got), "[{ n: 2 }, { n: 1 }]");
    }

    #[test]
    fn errors_and_interrupts_pass_on() {
        let rt = Runtime::for_tests();
        for sorted in [true, false] {
            let tail = Tail {
                sorted,
                metadata: false,
            };
            let mut s = together(vec![shard("a", &[1]), Box::new(Fails)], tail, &rt);
            let first = s.next();
            assert_eq!(first.is_ok(), !sorted);
            let e = first.and_then(|_| s.next()).unwrap_err();
            assert_eq!(e.message(), "this shard fails");
            let ended = Runtime {
                interrupt: Arc::new(Ended),
                ..Runtime::for_tests()
            };
            let long = vec![shard("a", &[1; 50_000]), shard("b", &[2])];
            let e = drain(together(long, tail, &ended)).unwrap_err();
            assert_eq!(e.code(), Code::Interrupted);
        }
    }
}
