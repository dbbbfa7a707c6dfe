//! The shard of a document that an upsert inserts, if its filter does not fix the shard key.
//!
//! The router makes the document as a shard would, to learn its key, and sends the statement to the key's owner. If the
//! `_id` is a part of the key and would only be given there, the router gives it: the filter then names it too.

use super::choose::context;
use crate::context::CommandContext;
use crate::router::tables::Known;
use muniment_query::{Filter, Update};
use muniment_value::{Doc, DocBuf, Error, Result, Value, array, doc, new_object_id};

/// The statement of an upsert.
pub struct Upsert<'u> {
    /// The filter.
    pub filter: Doc<'u>,
    /// The change.
    pub update: Value<'u>,
    /// `arrayFilters`; empty for none.
    pub array_filters: Doc<'u>,
    /// The command's `let`, with the constants of a pipeline; empty for none.
    pub variables: Doc<'u>,
    /// The statement's collation.
    pub collation: Option<Doc<'u>>,
}

/// The shard of the document that an upsert inserts, and the filter with which it is sent there.
///
/// # Errors
/// Those of the statement; 61 ShardKeyNotFound for a document that cannot have a key.
pub fn place(
    cx: &CommandContext<'_>,
    known: &Known,
    upsert: &Upsert<'_>,
) -> Result<(usize, DocBuf)> {
    let ctx = context(cx, known, upsert.collation, upsert.variables)?;
    let filter = Filter::parse_query(upsert.filter, &ctx)?;
    let update = Update::parse(upsert.update, upsert.array_filters, &ctx)?;
    let mut made = Vec::new();
    update
        .upsert(&filter, &mut made, cx.op.work())
        .map_err(Error::while_executing)?;
    let document = Doc::new(&made);
    let by_id = known.key.fields().iter().any(|f| f.path.as_str() == "_id");
    if !by_id || document.get("_id").is_some() {
        let owner = known.table.owner(&known.key.key_of(document)?);
        return Ok((owner, upsert.filter.to_buf()));
    }
    let id = doc! { "_id": Value::ObjectId(new_object_id()) };
    let mut with_id = document.to_buf();
    with_id.append_all(id.as_doc());
    let owner = known.table.owner(&known.key.key_of(with_id.as_doc())?);
    Ok((owner, doc! { "$and": array![upsert.filter, id] }))
}

/// The statement with another filter, which is in this field.
pub fn with_filter(statement: Doc<'_>, field: &str, filter: DocBuf) -> DocBuf {
    let mut out = DocBuf::new();
    for e in statement.iter().filter(|e| e.name() != field) {
        out.append_elem(e);
    }
    out.append(field, filter);
    out
}

/// The statement as one that inserts nothing.
pub fn without(statement: Doc<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    for e in statement.iter().filter(|e| e.name() != "upsert") {
        out.append_elem(e);
    }
    out
}
