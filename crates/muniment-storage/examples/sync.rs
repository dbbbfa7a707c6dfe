//! Measures how fast a new member is filled: a store of this many megabytes (the first argument, 400 by
//! default) is exported, sent as bytes, and imported.

use bytes::Bytes;
use muniment_op::NeverInterrupted;
use muniment_storage::{Chunk, CollectionOptions, IndexSpec, Store, StoreOptions};
use muniment_value::{Error, Result, doc};
use std::time::Instant;

fn main() -> Result<()> {
    let megabytes = std::env::args().nth(1).and_then(|a| a.parse().ok());
    let megabytes: usize = megabytes.unwrap_or(400);
    let (from, to) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let store = Store::open(StoreOptions::new(from.path()))?;
    let options = CollectionOptions::default();
    let c = store.create_collection("db.c", options, &NeverInterrupted)?;
    let spec = doc! { "key": doc! { "n": 1 }, "name": "n_1" };
    store.create_index(&c, IndexSpec::parse(spec.as_doc())?, &NeverInterrupted)?;
    let (mut bytes, mut id) = (0_usize, 0_i64);
    let mut noise = 1_u64;
    while bytes < megabytes << 20 {
        let mut unit = store.write_unit(&c, &NeverInterrupted)?;
        for _ in 0..500 {
            // Half of the text does not compress.
            let text: String = (0..60)
                .map(|_| {
                    noise = noise
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    format!("{:08x}", noise >> 32)
                })
                .collect();
            let d = doc! { "_id": id, "n": id * 7919 % 1_000_003, "text": text.as_str(), "same": "x".repeat(480) };
            bytes += d.as_bytes().len();
            let _ = unit.insert(d.as_bytes())?;
            id += 1;
        }
        unit.commit()?;
    }
    store.flush()?;
    println!("{id} documents, {} MB", bytes >> 20);
    let began = Instant::now();
    let export = store.export(&NeverInterrupted)?;
    let position = export.position();
    let mut moved = 0;
    let chunks = export.map(|chunk| {
        let sent = Bytes::from(chunk?.to_bytes());
        moved += sent.len();
        Chunk::from_bytes(&sent).ok_or_else(|| Error::internal("malformed"))
    });
    Store::import(&StoreOptions::new(to.path()), position, chunks)?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} MB moved in {seconds:.2} s: {:.0} MB/s",
        moved >> 20,
        (moved >> 20) as f64 / seconds
    );
    let began = Instant::now();
    let filled = Store::open(StoreOptions::new(to.path()))?;
    let there = filled.collection("db.c").map_or(0, |c| c.count());
    println!(
        "opened with {there} documents in {:.2} s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
