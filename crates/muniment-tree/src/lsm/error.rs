//! Errors of files, with texts for people.

use muniment_value::{Code, Error};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The error of an operation on a file. `action` is a word such as "writing" or "opening".
///
/// A full disk is 14031 OutOfDiskSpace, a file that ends early or is missing is 301 DataCorruptionDetected,
/// everything else 1 InternalError.
pub(crate) fn io(action: &str, path: &Path, e: &io::Error) -> Error {
    let text = format!("{action} {}: {e}", path.display());
    match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Error::new(Code::OutOfDiskSpace, text)
        }
        ErrorKind::UnexpectedEof | ErrorKind::NotFound => {
            Error::new(Code::DataCorruptionDetected, text)
        }
        _ => Error::internal(text),
    }
}

/// 301 DataCorruptionDetected: a part of a file is not what was written.
pub(crate) fn damaged(path: &Path, offset: u64, what: impl Display) -> Error {
    Error::new(
        Code::DataCorruptionDetected,
        format!("{} is damaged at offset {offset}: {what}", path.display()),
    )
}
