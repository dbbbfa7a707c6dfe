//! Options of command lines. A table of [`Opt`]s says which there are; reading them ([`Page::parse`]),
//! the page that `--help` prints ([`Page::text`]) and the answer to a slip ([`near()`]) come from it, for
//! the server (under both of its names) and for every command of the lab. The pages of all commands
//! together make a tree ([`Command`]), from which the completions of shells and the manual page come.
//!
//! Invariant: what is not in the table is an error that names it, and a value that the table does not
//! allow is refused before anything is done.
//!
//! Must not: know what any option is for.
//!
//! # Why not clap
//! The command lines are not ours to choose. `mongod` takes `-dbpath` for `--dbpath`, `-vvv` as a
//! value, `--verbose` with a value after it only where the next word looks like one, and gives back
//! what was said (`getCmdLineOpts`) in the order in which it was said, under the keys of a configuration
//! file that has options of its own; YCSB has `-threads N` beside `-t`. clap reads neither form of
//! one hyphen, so that arguments would have to be rewritten before it sees them, and the server's table,
//! from which the file's keys and the documentation are made, would stand beside clap's instead of
//! being the only one. What is left for clap to do is what [`lexopt`] does in a few hundred lines: taking
//! an argument apart.

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
