//! Where a pipeline writes its results.

use super::output::no_replacing;
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::place::{OF_CONFIG, set_of};
use muniment_value::{Code, Doc, Error, Result, Value};

/// The collection that a pipeline writes to.
pub struct Into {
    /// Its full name.
    pub ns: String,
    /// Its documents are replaced.
    pub replaces: bool,
}

impl Into {
    /// That of a stage, if it writes; `own` is the pipeline's database.
    pub fn of(stage: Doc<'_>, own: &str) -> Option<Into> {
        let last = stage.first()?;
        let (operand, name) = (last.value().as_doc(), last.value().as_str());
        let (db, name) = match last.name() {
            "$out" => match operand {
                Some(d) => (d.get_str("db"), d.get_str("coll")),
                None => (None, name),
            },
            "$merge" => match operand.map(|d| d.get("into")) {
                Some(Some(Value::Document(d))) => (d.get_str("db"), d.get_str("coll")),
                Some(into) => (None, into.and_then(|v| v.as_str())),
                None => (None, name),
            },
            _ => return None,
        };
        let db = db.filter(|db| !db.is_empty()).unwrap_or(own);
        Some(Into {
            ns: format!("{db}.{}", name?),
            replaces: last.name() == "$out",
        })
    }

    /// Whether it is on another shard than the command's database, or may be.
    ///
    /// # Errors
    /// 28769 for `$out` into a divided collection; 20 IllegalOperation for what the configuration's set would write.
    pub fn is_elsewhere(&self, cx: &CommandContext<'_>, router: &Router) -> Result<bool> {
        let (db, _) = self.ns.split_once('.').unwrap_or_default();
        // The shard has an error for these, and for names that are none.
        let of_server = |db: &str| OF_CONFIG.contains(&db) || db == "local";
        if of_server(db) || !is_name(db) {
            return Ok(false);
        }
        if of_server(cx.db()) {
            return Err(Error::new(
                Code::IllegalOperation,
                format!(
                    "results of a pipeline in {} do not go to another database yet",
                    cx.db()
                ),
            ));
        }
        match router.tables.of(&**cx.op, router, &self.ns)? {
            Some(known) if self.replaces && !known.collection.unsplittable => {
                Err(no_replacing(&known))
            }
            Some(_) => Ok(true),
            None if db == cx.db() => Ok(false),
            None => Ok(set_of(cx, router, db)?.name != set_of(cx, router, cx.db())?.name),
        }
    }
}

/// Whether a database may have this name.
fn is_name(db: &str) -> bool {
    !db.is_empty() && db.len() < 64 && !db.contains(['/', '\\', ' ', '"', '$', '\0'])
}
