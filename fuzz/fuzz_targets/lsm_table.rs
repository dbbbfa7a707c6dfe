//! The reader of tables: any blocks with checksums that are right.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_tree::lsm::fuzzing::table(data));
