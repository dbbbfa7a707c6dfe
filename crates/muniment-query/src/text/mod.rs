//! Text search: what a text index holds of a document, and what a `$text` asks of it.
//!
//! A text becomes tokens (runs of characters that are no delimiters), of which the stop words of
//! its language go and the rest are stemmed, in lower case and without diacritics: MongoDB's
//! text index version 3. A term's score in a document is computed when its key is made, so a
//! query only adds up what it reads. Everything here is a pure function of index options, query
//! and document: the index, the planner and a match without an index agree by construction.

mod language;
mod query;
mod spec;
mod tokens;
mod unicode;

pub use language::Language;
pub use query::{TextQuery, TextSearch};
pub use spec::TextSpec;
