//! A database leaves this shard, or comes to it.

use super::create::lock_names;
use crate::database::Database;
use crate::moved_databases::{MOVED, has_left, is_said_after, said_at};
use crate::operation::OpContext;
use bytes::Bytes;
use muniment_op::Interrupt;
use muniment_shard::Timestamp;
use muniment_storage::{Busy, Changed, CollectionOptions};
use muniment_value::{Code, Error, Result, Value, doc};

impl Database {
    /// Says whether a database has gone to another shard. From then on no router makes a collection in it here. False,
    /// and nothing is done, if something was said as of a later time than `at`, or the opposite as of that time.
    ///
    /// # Errors
    /// As a commit's.
    pub fn note_moved(&self, db: &str, moved: bool, at: Timestamp, op: &OpContext) -> Result<bool> {
        let collection = match self.store.collection(MOVED) {
            Some(collection) => collection,
            None => match self.create_collection(MOVED, CollectionOptions::default(), op) {
                Err(e) if e.code() == Code::NamespaceExists => self
                    .store
                    .collection(MOVED)
                    .ok_or_else(|| Error::internal("a collection is neither there nor not"))?,
                other => other?,
            },
        };
        let _names = lock_names(self, op)?;
        let new = doc! { "_id": db, "left": moved, "at": at.to_value() };
        let new = Bytes::copy_from_slice(new.as_bytes());
        loop {
            op.check()?;
            let mut unit = self.store.write_unit(&collection, op)?;
            let Ok(there) = unit.lock_by_id(Value::String(db))? else {
                continue;
            };
            let staged = match there {
                None => unit.insert(&new)?,
                Some((_, old)) if old == new => return Ok(true),
                Some((_, old)) if said_at(&old) >= at => return Ok(false),
                Some((key, old)) => unit.update(&key, &old, &new, Changed::Whole, &|_| true)?,
            };
            if let Err(Busy) = staged {
                continue;
            }
            return unit.commit().map(|_| true);
        }
    }

    /// Whether a router has said whether a database has gone to another shard, by a right later than this.
    ///
    /// # Errors
    /// As a read's.
    pub fn has_moved_after(&self, db: &str, at: Timestamp) -> Result<bool> {
        is_said_after(&self.store, db, at)
    }

    /// Whether a database has gone to another shard.
    ///
    /// # Errors
    /// As a read's.
    pub fn has_moved(&self, db: &str) -> Result<bool> {
        has_left(&self.store, db)
    }
}
