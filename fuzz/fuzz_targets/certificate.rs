//! Certificates, and the names in them.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_tls::fuzzing::certificate(data));
