//! Helpers for commands and replies.

use muniment_value::{ArrayBuf, Doc, DocBuf, JsonMode, Result, doc};
use muniment_wire::Connection;

/// A document in Extended JSON.
///
/// # Panics
/// If the text is invalid.
pub fn j(text: &str) -> DocBuf {
    DocBuf::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A whole number of a document.
///
/// # Panics
/// If it has no such field.
pub fn int(d: Doc<'_>, field: &str) -> i64 {
    let n = d.get(field).and_then(|v| v.as_i64_exact());
    n.unwrap_or_else(|| panic!("no {field} in {d:?}"))
}

/// The statements that failed according to a reply: their indexes and codes, ascending.
pub fn write_errors(reply: &DocBuf) -> Vec<(i64, i64)> {
    let errors = reply.as_doc().get_array("writeErrors");
    let errors = errors.unwrap_or(Doc::EMPTY);
    let one = |e: Doc<'_>| (int(e, "index"), int(e, "code"));
    let mut all: Vec<(i64, i64)> = errors
        .values()
        .filter_map(|v| v.as_doc())
        .map(one)
        .collect();
    all.sort_unstable();
    all
}

/// Runs a write command. Write errors count as an error.
///
/// # Errors
/// The server's error; 1 InternalError with the reply for write errors.
pub fn write(c: &mut Connection, db: &str, cmd: &DocBuf) -> Result<DocBuf> {
    let reply = c.command(db, cmd)?;
    match write_errors(&reply).first() {
        None => Ok(reply),
        Some((_, code)) => Err(muniment_value::Error::location(
            i32::try_from(*code).unwrap_or(0),
            reply.as_doc().to_json(JsonMode::Relaxed),
        )),
    }
}

/// Inserts documents.
///
/// # Errors
/// The errors of [`write()`].
pub fn insert(c: &mut Connection, db: &str, coll: &str, docs: &[DocBuf]) -> Result<DocBuf> {
    let docs: ArrayBuf = docs.iter().map(DocBuf::as_doc).collect();
    write(c, db, &doc! { "insert": coll, "documents": docs })
}

/// Creates one index, given in the form of `createIndexes`.
///
/// # Errors
/// The server's error.
pub fn index(c: &mut Connection, db: &str, coll: &str, spec: &str) -> Result<DocBuf> {
    let indexes = muniment_value::array![j(spec)];
    c.command(db, &doc! { "createIndexes": coll, "indexes": indexes })
}

/// The `_id`s of the documents that a find returns, in that order.
///
/// # Errors
/// The server's error.
pub fn ids(c: &mut Connection, db: &str, find: &DocBuf) -> Result<Vec<i64>> {
    let docs = c.find_all(db, find)?;
    Ok(docs.iter().map(|d| int(d.as_doc(), "_id")).collect())
}

/// The names of a database's collections, sorted.
///
/// # Errors
/// The server's error.
pub fn collections(c: &mut Connection, db: &str) -> Result<Vec<String>> {
    let docs = c.find_all(db, &doc! { "listCollections": 1, "nameOnly": true })?;
    let mut names: Vec<String> = docs.iter().map(name).collect();
    names.sort();
    Ok(names)
}

/// The indexes of a collection, each as Extended JSON, sorted.
///
/// # Errors
/// The server's error.
pub fn indexes(c: &mut Connection, db: &str, coll: &str) -> Result<Vec<String>> {
    let docs = c.find_all(db, &doc! { "listIndexes": coll })?;
    let json = |d: &DocBuf| d.as_doc().to_json(JsonMode::Relaxed);
    let mut all: Vec<String> = docs.iter().map(json).collect();
    all.sort();
    Ok(all)
}

fn name(d: &DocBuf) -> String {
    d.as_doc().get_str("name").unwrap_or_default().to_string()
}

/// Checks a collection with `validate {full: true}`.
///
/// # Panics
/// If it finds anything.
pub fn sound(c: &mut Connection, db: &str, coll: &str) {
    let reply = c.command(db, &doc! { "validate": coll, "full": true });
    let reply = reply.unwrap_or_else(|e| panic!("{coll}: {e}"));
    let valid = reply.as_doc().get("valid").is_some_and(|v| v.truthy());
    assert!(valid, "{coll}: {reply:?}");
}
