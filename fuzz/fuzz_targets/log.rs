//! Recovery and readers of the log: segments with any content.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_log::fuzzing::log(data));
