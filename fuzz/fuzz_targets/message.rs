//! The message codec: framing, OP_MSG, OP_QUERY, OP_REPLY, OP_COMPRESSED.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_wire::fuzzing::message(data));
