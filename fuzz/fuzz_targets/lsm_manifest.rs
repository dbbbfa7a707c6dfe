//! The reader of manifests.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_tree::lsm::fuzzing::manifest(data));
