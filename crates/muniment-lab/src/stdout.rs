//! Results on stdout, and the width that a line may have. A reader that goes away (`| head`) is no
//! reason to end the run, which also writes files.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;

/// Writes `text` for people; a closed stdout is ignored.
pub fn say(text: &str) {
    // The report is written to files in any case.
    let _ = give(text);
}

/// Writes `text`, which is a result that a program may read.
///
/// # Errors
/// The text cannot be written, as on a full disk. A reader that has gone away is no error.
pub fn give(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes `text` for people on standard error, for runs whose standard output is read by a program.
pub fn aside(text: &str) {
    let mut out = std::io::stderr().lock();
    // A closed stderr is ignored for the same reason.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The width of the terminal in letters; `None` if the stream is no terminal, so that lines that go
/// to a file are not cut.
pub fn width_of(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    match usize::from(size.ws_col) {
        // A terminal that does not tell its width gets the usual one.
        0 => Some(80),
        n => Some(n.max(20)),
    }
}
