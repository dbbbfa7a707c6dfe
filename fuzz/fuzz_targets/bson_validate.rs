//! Validation of BSON, then every reader of it: walk, compare, paths, keys, text.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_value::fuzzing::bson_validate(data));
