//! Documents of users and roles: names, credentials, roles, privileges, restrictions.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_auth::fuzzing::accounts(data));
