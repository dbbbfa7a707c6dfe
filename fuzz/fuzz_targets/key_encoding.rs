//! The key encoding: decoding of any bytes, and the order of two values and their keys.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_value::fuzzing::key_encoding(data));
