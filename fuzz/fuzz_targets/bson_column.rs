//! Columns of time-series buckets: every value that is read is well-formed BSON of bounded size.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_value::fuzzing::bson_column(data));
