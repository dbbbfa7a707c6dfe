//! Stages that spill leave the database the disk space that it needs itself.

use super::*;
use muniment_io::{Machine, SimDisk};
use muniment_value::{Code, doc};

#[test]
fn a_sort_does_not_take_the_space_that_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SimDisk::new();
    disk.set_size(1 << 30);
    let store = Store::open(StoreOptions {
        cache_bytes: 16 << 20,
        machine: Machine {
            disk: Arc::new(disk.clone()),
            ..Machine::default()
        },
        ..StoreOptions::new(dir.path().join("db"))
    });
    let b = Bench {
        engine: Database::new(store.unwrap(), dir.path().join("spill")),
        op: OpContext::internal("test"),
        _dir: dir,
    };
    let text = "x".repeat(1000);
    let docs: Vec<DocBuf> = (0..2000)
        .map(|i| doc! { "_id": i, "n": i * 7919 % 2000, "text": text.as_str() })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    b.engine.set_memory_limit(100_000);
    let sort = doc! { "n": 1 };
    let request = FindRequest {
        sort: sort.as_doc(),
        ..FindRequest::new(NS)
    };
    assert_eq!(b.run(&request).unwrap().len(), 2000);
    // The database keeps a tenth of the disk for itself, and less than that is free. The loop tries
    // again if space was given back meanwhile.
    let begin = std::time::Instant::now();
    let e = loop {
        disk.set_size(disk.used() + disk.used() / 20);
        std::thread::sleep(Duration::from_millis(30));
        match b.run(&request) {
            Ok(_) => assert!(begin.elapsed() < Duration::from_secs(20), "never refused"),
            Err(e) => break e,
        }
    };
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    assert!(e.message().contains("cannot spill to"), "{e}");
    // A sort in memory needs no disk space.
    b.engine.set_memory_limit(100 << 20);
    assert_eq!(b.run(&request).unwrap().len(), 2000);
    disk.set_size(1 << 30);
    std::thread::sleep(Duration::from_millis(30));
    b.engine.set_memory_limit(100_000);
    assert_eq!(b.run(&request).unwrap().len(), 2000);
}
