//! Where the log goes, and how its file is rotated.

use std::path::PathBuf;

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Appends to the file if it exists.
        append: bool,
        /// How it is rotated.
        rotation: Rotation,
    },
    /// The system's log.
    Syslog {
        /// Its facility, as `syslog(3)` has it.
        facility: i32,
    },
    /// Memory only.
    Silent,
}

/// How a log file is rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rotation {
    /// The file gets a name with the time, and a new one begins.
    #[default]
    Rename,
    /// The file is closed and opened again, since another program has renamed it.
    Reopen,
}
