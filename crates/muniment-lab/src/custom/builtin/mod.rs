//! The workloads that come with the lab: one file for each, and one line for each in [`ALL`],
//! sorted by name.

use std::fmt::Write;

/// A built-in workload.
pub(crate) struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    /// A line that tells what it measures.
    pub about: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

macro_rules! builtins {
    ($($name:literal: $about:literal,)*) => {
        &[$(Builtin {
            name: $name,
            about: $about,
            text: include_str!(concat!($name, ".toml")),
        },)*]
    };
}

/// All built-in workloads, sorted by name.
pub(crate) const ALL: &[Builtin] = builtins! {
    "insert": "tiny documents, one a message (W1's)",
    "insert-2k": "2.4 kB documents with an index, one a message (W4a's)",
    "insert-batch": "113-byte documents, many a message (W3's)",
    "mixed": "1 kB documents: 70 % reads, 20 % updates, 10 % inserts, Zipf",
    "orders": "a shop: nested documents, arrays, indexes, finds, aggregations, deletes",
    "point-read": "1 kB documents found by _id",
    "point-update": "one field of 1 kB documents set by _id",
};

/// The built-in workload of this name.
pub(crate) fn named(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|b| b.name == name)
}

/// One line for each built-in workload.
pub(crate) fn list() -> String {
    let mut o = String::new();
    for b in ALL {
        let _ = writeln!(o, "  {:<13} {}", b.name, b.about);
    }
    o
}

#[cfg(test)]
mod tests;
