//! How many documents per second the blocking stages process.
//!
//! `cargo run --release -p muniment-query --example stage_bench [DOCUMENTS]`: documents of about 113 bytes, a
//! million by default. It prints seconds of processor time, and documents per such second.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use muniment_query::{DocStream, Pipeline, QueryContext, Runtime};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, array, doc};
use std::time::Instant;

/// Documents that are cut from blocks when they are needed, as a scan does.
struct Source {
    block: Bytes,
    at: usize,
    left: u32,
    random: u32,
}

impl Source {
    fn new(left: u32) -> Source {
        Source {
            block: Bytes::new(),
            at: 0,
            left,
            random: 12345,
        }
    }

    fn fill(&mut self) {
        let mut block = Vec::new();
        for _ in 0..500.min(self.left) {
            self.random = self
                .random
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223);
            let n = (self.random >> 8) as i32;
            let d = doc! {
                "_id": n, "k": n % 1000, "v": f64::from(n) / 16.0, "name": "some text that is padding",
                "more": "and a little more",
            };
            block.extend_from_slice(&d);
        }
        self.block = block.into();
        self.at = 0;
    }
}

impl DocStream for Source {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if self.left == 0 {
            return Ok(None);
        }
        if self.at == self.block.len() {
            self.fill();
        }
        self.left -= 1;
        let head: [u8; 4] = self.block[self.at..self.at + 4].try_into().unwrap();
        let end = self.at + u32::from_le_bytes(head) as usize;
        let doc = self.block.slice(self.at..end);
        self.at = end;
        Ok(Some(doc))
    }
}

/// Nanoseconds that this thread has been on a processor (on Linux), so that other load does not affect the
/// figures; elsewhere the elapsed time.
fn cpu(start: Instant) -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|s| s.split(' ').next()?.parse::<f64>().ok())
        .map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

fn run(name: &str, n: u32, stages: &ArrayBuf, rt: &Runtime) {
    let p = Pipeline::parse(stages.as_doc(), &QueryContext::new()).unwrap();
    let start = Instant::now();
    let before = cpu(start);
    let mut stream = p.open(Box::new(Source::new(n)), rt).unwrap();
    let mut out = 0u64;
    while let Some(d) = stream.next().unwrap() {
        out += u64::from(!Doc::new(&d).is_empty());
    }
    let s = cpu(start) - before;
    println!(
        "{name:<40} {s:>7.2} s {:>12.0} documents/s, {out} out",
        f64::from(n) / s
    );
}

fn stage(name: &str, v: DocBuf) -> DocBuf {
    let mut d = DocBuf::new();
    d.append(name, v);
    d
}

fn main() {
    let n = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(1_000_000);
    let dir = tempfile::tempdir().unwrap();
    let rt = Runtime {
        memory_limit: 1 << 30,
        scratch: Some(muniment_query::Scratch::unlimited(dir.path())),
        ..Runtime::for_tests()
    };
    let small = Runtime {
        memory_limit: 32 << 20,
        ..rt.clone()
    };
    let sort = stage("$sort", doc! { "v": 1 });
    let top = doc! { "$limit": 100 };
    let group = stage(
        "$group",
        doc! { "_id": "$k", "n": doc! { "$sum": 1 }, "avg": doc! { "$avg": "$v" } },
    );
    let many = stage("$group", doc! { "_id": "$_id", "n": doc! { "$sum": 1 } });
    let project = stage("$project", doc! { "k": 1, "v": 1 });
    run("the source alone", n, &array![], &rt);
    run("$project two fields", n, &array![project], &rt);
    run("$sort in memory", n, &array![sort.clone()], &rt);
    run("$sort spilling, 32 MiB", n, &array![sort.clone()], &small);
    run("$sort + $limit 100", n, &array![sort, top], &small);
    run("$group into 1000", n, &array![group], &rt);
    run(
        "$group into as many, in memory",
        n,
        &array![many.clone()],
        &rt,
    );
    run("$group into as many, 32 MiB", n, &array![many], &small);
}
