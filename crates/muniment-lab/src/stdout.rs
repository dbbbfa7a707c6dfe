//! Results on stdout, and how wide a line may be. A reader that goes away (`| head`) is no reason to
//! end what else is done.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;

/// Writes `text` for people, unless nobody reads any more.
pub fn say(text: &str) {
    // The report is written to files all the same.
    let _ = give(text);
}

/// Writes `text` that is a result.
///
/// # Errors
/// It cannot be written, as on a full disk. A reader that has gone away is none.
pub fn give(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes `text` on standard error, where standard output is for a program.
pub fn aside(text: &str) {
    let mut out = std::io::stderr().lock();
    // As above.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// How many letters a line of this terminal has; `None` if it is none, so that what is kept in a
/// file is kept whole.
pub fn width_of(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    match usize::from(size.ws_col) {
        // A terminal that does not say it.
        0 => Some(80),
        n => Some(n.max(20)),
    }
}
