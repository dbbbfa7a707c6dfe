//! Replays the corpus of the fuzz target `filter`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[test]
fn filter_corpus() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/filter");
    let mut n = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        muniment_query::filter::fuzzing::filter(&std::fs::read(entry.unwrap().path()).unwrap());
        n += 1;
    }
    assert!(n > 20, "the corpus in {dir} is missing");
}
