#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::conformance::{self, Harness};
use crate::trees::Op;

struct Memory(Arc<MemoryTrees>);

impl Harness for Memory {
    fn trees(&self) -> Arc<dyn Trees> {
        self.0.clone()
    }

    fn reopen(&mut self) -> bool {
        false
    }
}

#[test]
fn conformance() {
    conformance::run(&|| Box::new(Memory(MemoryTrees::new())));
}

/// Deleted keys leave nothing behind in memory: the cost follows the live data.
#[test]
fn the_deleted_takes_no_memory() {
    let trees = MemoryTrees::new();
    let op = |i: u32, value: Option<&'static [u8]>| Op {
        tree: TreeId(1),
        key: Bytes::copy_from_slice(&i.to_be_bytes()),
        value: value.map(Bytes::from_static),
        fresh: false,
    };
    let mut now = 0;
    let mut write = |op| {
        now += 1;
        trees.apply(vec![op], Timestamp(now));
        trees.views().advance(Timestamp(now));
    };
    for i in 0..50_000 {
        write(op(i, Some(b"a document")));
    }
    let full = trees.sizes().memory;
    for i in 0..50_000 {
        write(op(i, None));
    }
    assert!(trees.sizes().memory < full / 50, "{}", trees.sizes().memory);
    trees.flush().unwrap();
    assert!(trees.sizes().memory < 5000, "{}", trees.sizes().memory);
    assert_eq!((trees.name(), trees.is_durable()), ("memory", false));
}
