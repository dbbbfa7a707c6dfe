//! Text search: the terms that a text index has for a document, and the terms that a `$text` asks for.
//!
//! A text is split into tokens (runs of characters that are not delimiters). The stop words of its language
//! are removed and the other tokens are stemmed, in lower case and without diacritics, as in version 3 of
//! MongoDB's text index. A term's score in a document is computed when its key is made, so a query only adds
//! up the scores that it reads. Everything here is a pure function of index options, query and document, so
//! the index, the planner and a match without an index always agree.

mod language;
mod query;
mod spec;
mod tokens;
mod unicode;

pub use language::Language;
pub use query::{TextQuery, TextSearch};
pub use spec::TextSpec;
