//! Results on stdout. A reader that goes away (`| head`) is no reason to end what else is done.

use std::io::Write;

/// Writes `text`, unless nobody reads any more.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // The report is written to files all the same.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
