//! The MongoDB wire protocol, server and client side.
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | the 16-byte header, and [`MessageReader`], which cuts a byte stream into messages |
//! | [`op_msg`] | OP_MSG: parsing with full validation, and building in place |
//! | [`op_query`] | the legacy OP_QUERY handshake and its OP_REPLY |
//! | [`compress`] | OP_COMPRESSED: noop, snappy, zlib, zstd |
//! | [`docwriter`] | documents written straight into a reply buffer |
//! | [`stream`] | TCP or Unix socket |
//! | [`client`] | a small blocking client |
//! | [`reserved`] | ports kept for servers that are yet to be started |
//! | [`null_server`] | the null responder, the yardstick of the benchmarks |
//!
//! Invariants: no input makes anything here panic, recurse without bound, or allocate more than a small
//! multiple of the bytes that have arrived; every document handed out has passed
//! [`muniment_value::validate_depth`] (nesting at most 200; the stricter limit of stored documents is checked
//! where they are stored). This crate must not know what a command means; the one exception is the null
//! responder, which answers constants.

#![warn(unreachable_pub)]

pub mod client;
pub mod compress;
pub mod docwriter;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod null_server;
pub mod op_msg;
pub mod op_query;
pub mod reserved;
pub mod stream;

pub use client::{Connection, check_ok, parse_address};
pub use compress::Compressor;
pub use docwriter::DocWriter;
pub use frame::{
    FrameError, Header, MAX_MESSAGE_SIZE, MessageReader, OP_COMPRESSED, OP_MSG, OP_QUERY, OP_REPLY,
    read_message,
};
pub use null_server::{Form, NullServer};
pub use op_msg::{DocSeq, OpMsg, OpMsgWriter, Sequence, begin_reply, begin_request};
pub use op_query::{OpQuery, write_op_reply};
pub use reserved::Reserved;
pub use stream::{Stream, socket_error};
