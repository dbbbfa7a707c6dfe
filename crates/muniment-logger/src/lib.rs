//! The server's log: structured lines in MongoDB's format, how much each component says, where the lines
//! go, and panics that are caught and told.
//!
//! Must not know what is logged, or why: the server and the member of a replica set decide that.

#![warn(unreachable_pub)]

mod guard;
mod logger;
mod redact;
mod target;
mod verbosity;

pub use guard::{Caught, guarded, install};
pub use logger::{
    Logger, Seldom, Severity, facility, iso8601, json_string, local_offset, now_ms, put_aside,
    write_to_syslog,
};
pub use target::{LogTarget, Rotation};
pub use verbosity::Verbosity;

/// The machine's name.
pub fn hostname() -> String {
    let mut buf = [0_u8; 256];
    // SAFETY: the buffer is ours and its length is given.
    let rc = unsafe { libc::gethostname(buf.as_mut_ptr().cast(), buf.len()) };
    if rc != 0 {
        return "localhost".to_string();
    }
    let end = buf.iter().position(|b| *b == 0).unwrap_or(buf.len());
    String::from_utf8_lossy(buf.get(..end).unwrap_or_default()).into_owned()
}
