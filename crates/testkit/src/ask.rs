//! Commands in the shell's form, for tests that expect them to succeed or to fail.

use crate::shell;
use muniment_value::{DocBuf, Error};
use muniment_wire::Connection;

/// The reply of a command that succeeds, with all of its statements.
///
/// # Panics
/// If it fails.
pub fn run(c: &mut Connection, db: &str, cmd: &str) -> DocBuf {
    let reply = c.command(db, &shell(cmd));
    let reply = reply.unwrap_or_else(|e| panic!("{db}: {cmd}: {e}"));
    let errors = reply.as_doc().get("writeErrors");
    assert!(errors.is_none(), "{cmd}: {reply:?}");
    reply
}

/// The error of a command that fails with this code.
///
/// # Panics
/// If it succeeds, or fails otherwise.
pub fn fails(c: &mut Connection, db: &str, cmd: &str, code: i32) -> Error {
    let e = c.command(db, &shell(cmd)).expect_err(cmd);
    assert_eq!(e.code().0, code, "{cmd}: {e}");
    e
}

/// All documents of a command with a cursor.
///
/// # Panics
/// If it fails.
pub fn all(c: &mut Connection, db: &str, cmd: &str) -> Vec<DocBuf> {
    c.find_all(db, &shell(cmd))
        .unwrap_or_else(|e| panic!("{db}: {cmd}: {e}"))
}

/// A whole number in a reply.
///
/// # Panics
/// If there is none.
pub fn number(reply: &DocBuf, name: &str) -> i64 {
    let v = reply.as_doc().get(name).and_then(|v| v.as_i64_exact());
    v.unwrap_or_else(|| panic!("{name} in {reply:?}"))
}
