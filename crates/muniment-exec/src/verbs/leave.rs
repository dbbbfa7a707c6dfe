//! A database leaves this shard, or comes to it.

use super::create::lock_names;
use crate::database::Database;
use crate::moved_databases::MOVED;
use crate::operation::OpContext;
use muniment_op::Interrupt;
use muniment_storage::{Busy, CollectionOptions};
use muniment_value::{Code, Error, Result, Value, doc};

impl Database {
    /// Says whether a database has gone to another shard. From then on no router makes a collection in it here.
    ///
    /// # Errors
    /// As a commit's.
    pub fn note_moved(&self, db: &str, moved: bool, op: &OpContext) -> Result<()> {
        let collection = match self.store.collection(MOVED) {
            Some(collection) => collection,
            None if !moved => return Ok(()),
            None => match self.create_collection(MOVED, CollectionOptions::default(), op) {
                Err(e) if e.code() == Code::NamespaceExists => self
                    .store
                    .collection(MOVED)
                    .ok_or_else(|| Error::internal("a collection is neither there nor not"))?,
                other => other?,
            },
        };
        let _names = lock_names(self, op)?;
        loop {
            op.check()?;
            let mut unit = self.store.write_unit(&collection, op)?;
            let Ok(there) = unit.lock_by_id(Value::String(db))? else {
                continue;
            };
            let staged = match (there, moved) {
                (None, true) => unit.insert(doc! { "_id": db }.as_bytes())?,
                (Some((key, old)), false) => unit.delete(&key, &old)?,
                _ => return Ok(()),
            };
            if let Err(Busy) = staged {
                continue;
            }
            return unit.commit().map(drop);
        }
    }
}
