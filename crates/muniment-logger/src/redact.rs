//! What the log shows of things that may contain what clients have sent or stored.
//!
//! Invariant: whoever writes a line hands each such thing to one of these functions, which alone decide
//! whether it is shown.

use crate::Logger;
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Value};
use std::sync::atomic::Ordering::Relaxed;

/// What stands in place of a value.
const HIDDEN: &str = "###";
/// Documents are hidden as a whole below this depth.
const MAX_NESTED: usize = 100;

impl Logger {
    /// Whether the log hides what clients have sent.
    pub fn redacts(&self) -> bool {
        self.redacts.load(Relaxed)
    }

    /// Sets whether the log hides what clients have sent.
    pub fn set_redacts(&self, redacts: bool) {
        self.redacts.store(redacts, Relaxed);
    }

    /// A text.
    pub fn text<'t>(&self, text: &'t str) -> &'t str {
        match self.redacts() {
            true => HIDDEN,
            false => text,
        }
    }

    /// An error; its code is always shown.
    pub fn error(&self, e: &Error) -> String {
        match self.redacts() {
            true => format!("{} ({}): {HIDDEN}", e.code().name(), e.code().0),
            false => e.to_string(),
        }
    }

    /// A document. The names of its fields are always shown.
    pub fn document(&self, d: DocBuf) -> DocBuf {
        match self.redacts() {
            true => document(d.as_doc(), 0),
            false => d,
        }
    }
}

fn document(d: Doc<'_>, depth: usize) -> DocBuf {
    let mut hidden = DocBuf::new();
    for e in d {
        match e.value() {
            Value::Document(d) if depth < MAX_NESTED => {
                hidden.append(e.name(), document(d, depth + 1))
            }
            Value::Array(a) if depth < MAX_NESTED => hidden.append(e.name(), array(a, depth + 1)),
            _ => hidden.append(e.name(), HIDDEN),
        };
    }
    hidden
}

fn array(a: Doc<'_>, depth: usize) -> ArrayBuf {
    let mut hidden = ArrayBuf::new();
    for v in a.values() {
        match v {
            Value::Document(d) if depth < MAX_NESTED => hidden.push(document(d, depth + 1)),
            Value::Array(a) if depth < MAX_NESTED => hidden.push(array(a, depth + 1)),
            _ => hidden.push(HIDDEN),
        };
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;
    use muniment_value::{Code, array, doc};

    #[test]
    fn values_are_hidden_and_names_are_not() {
        let log = Logger::silent();
        let d = doc! { "a": 1, "b": doc! { "c": "x", "d": array![1, doc! { "e": true }] } };
        let e = Error::new(Code::BadValue, "secret");
        assert_eq!(log.document(d.clone()), d);
        assert_eq!(log.text("secret"), "secret");
        assert!(log.error(&e).contains("secret"));
        log.set_redacts(true);
        let hidden =
            doc! { "a": "###", "b": doc! { "c": "###", "d": array!["###", doc! { "e": "###" }] } };
        assert_eq!(log.document(d), hidden);
        assert_eq!(log.text("secret"), "###");
        assert_eq!(log.error(&e), "BadValue (2): ###");
    }
}
