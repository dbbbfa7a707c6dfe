//! Options of command lines. A table of [`Opt`]s lists them. Reading a command line ([`Page::parse`]),
//! the page that `--help` prints ([`Page::text`]) and the suggestion after a typing error ([`near()`])
//! come from the table, for the server (under both of its names) and for every command of the lab. The
//! pages of all commands together make a tree ([`Command`]), from which the completions of shells and
//! the manual page come.
//!
//! Invariant: an argument that is not in the table is an error that names it, and a value that the table
//! does not allow is refused before anything is done.
//!
//! Must not: know what any option is for.
//!
//! # Why not clap
//! The command lines are given by other programs. `mongod` takes `-dbpath` for `--dbpath`, `-vvv` as a
//! value, and `--verbose` with a value after it only if the next word looks like one. It also returns
//! the options (`getCmdLineOpts`) in their order on the command line, under the keys of a configuration
//! file that has options of its own; YCSB has `-threads N` and `-t`.
//!
//! clap reads neither form of one hyphen, so arguments would have to be rewritten before it sees them,
//! and there would be two tables: clap's, and the server's, from which the file's keys and the
//! documentation are made. All that clap could still do is to take an argument apart, which [`lexopt`]
//! does in a few hundred lines.

mod command;
mod complete;
mod man;
mod near;
mod page;
mod parse;
mod table;

pub use command::Command;
pub use complete::{bash, fish, zsh};
pub use man::man;
pub use near::{distance, meant, near};
pub use page::{Group, Page, fold};
pub use parse::{Given, Misuse};
pub use table::{HELP, Offers, Opt, Takes};
