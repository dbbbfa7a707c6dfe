//! Counts the documents of every stage of a running pipeline and measures its time, for explain.

use super::DocStream;
use bytes::Bytes;
use muniment_value::{DocBuf, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The figures of one stage.
#[derive(Debug, Default)]
pub struct Figures {
    returned: AtomicU64,
    nanos: AtomicU64,
    /// The stage's own figures.
    own: Mutex<DocBuf>,
}

impl Figures {
    /// Appends the stage's own figures, once it has been dropped, and then `nReturned` and
    /// `executionTimeMillisEstimate`, the time in the stage and in those before it.
    pub fn append(&self, d: &mut DocBuf) {
        d.append_all(self.own().as_doc());
        let millis = self.nanos.load(Relaxed) / 1_000_000;
        d.append("nReturned", self.returned.load(Relaxed) as i64);
        d.append("executionTimeMillisEstimate", millis as i64);
    }

    fn own(&self) -> MutexGuard<'_, DocBuf> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of documents that it returned.
    pub fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }
}

/// A stage whose documents are counted.
pub struct Watched {
    source: Box<dyn DocStream>,
    figures: Arc<Figures>,
}

impl Watched {
    /// Counts the documents of `source`.
    pub fn new(source: Box<dyn DocStream>) -> (Watched, Arc<Figures>) {
        let figures = Arc::new(Figures::default());
        let watched = Watched {
            source,
            figures: figures.clone(),
        };
        (watched, figures)
    }
}

impl DocStream for Watched {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let began = Instant::now();
        let next = self.source.next();
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.figures.nanos.fetch_add(nanos, Relaxed);
        if matches!(next, Ok(Some(_))) {
            self.figures.returned.fetch_add(1, Relaxed);
        }
        next
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.source.tell(&mut self.figures.own());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::super::Pipeline;
    use super::*;
    use crate::context::{QueryContext, Runtime};
    use muniment_value::{array, doc};
    use std::collections::VecDeque;

    struct Given(VecDeque<Bytes>);

    impl DocStream for Given {
        fn next(&mut self) -> Result<Option<Bytes>> {
            Ok(self.0.pop_front())
        }
    }

    #[test]
    fn every_stage_that_was_written_has_its_figures() {
        let stages = array![
            doc! { "$unwind": "$a" },
            doc! { "$match": doc! { "a": doc! { "$gt": 1 } } },
            doc! { "$sortByCount": "$a" },
            doc! { "$limit": 1 },
        ];
        let p = Pipeline::parse(stages.as_doc(), &QueryContext::new()).unwrap();
        let docs = [array![1, 2], array![2, 3], array![3, 4]];
        let docs = docs.iter().map(|a| doc! { "a": a }.into_bytes().into());
        let source = Box::new(Given(docs.collect()));
        let (mut top, figures) = p.open_watched(source, &Runtime::for_tests()).unwrap();
        while top.next().unwrap().is_some() {}
        let told: Vec<(String, u64)> = figures
            .iter()
            .map(|(source, f)| {
                let name = source.as_doc().first().unwrap().name().to_string();
                (name, f.returned())
            })
            .collect();
        let told: Vec<(&str, u64)> = told.iter().map(|(n, k)| (n.as_str(), *k)).collect();
        let want = [
            ("$unwind", 6),
            ("$match", 5),
            ("$sortByCount", 1),
            ("$limit", 1),
        ];
        assert_eq!(told, want);
    }
}
