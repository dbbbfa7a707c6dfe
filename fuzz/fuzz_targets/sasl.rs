//! A client's messages of a login by SCRAM. Nobody without the key logs in.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_auth::fuzzing::sasl(data));
