//! Filters and expressions: parsing any document as one, matching and evaluating it.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_query::filter::fuzzing::filter(data));
