//! Cursors that are open on shards.
//!
//! A router keeps no batches: it remembers the member that has a cursor, and passes getMore on to it. The cursor's
//! number is the member's. Numbers are random, so two members do not give the same one; if they do, the second
//! cursor is refused.

use super::SetPool;
use muniment_value::{Code, DocBuf, Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long without a getMore the member has closed the cursor, or the session it belonged to.
const KEPT: Duration = Duration::from_secs(35 * 60);
/// So often those are looked for that are kept no more.
const SWEEP: Duration = Duration::from_secs(60);

/// A cursor that is open.
#[derive(Clone)]
pub struct Entry {
    /// The set of the member that has it.
    pub set: Arc<SetPool>,
    /// That member.
    pub host: String,
    /// `user@db` of the user that has opened it.
    pub user: Option<Arc<str>>,
    /// The user's rights when it was opened (see `CursorOwner::as_of`).
    pub as_of: u64,
    /// The command that has opened it.
    pub command: Arc<DocBuf>,
    /// When it was last used.
    pub used: Instant,
}

/// See the module's head.
pub struct Cursors {
    open: Mutex<(HashMap<i64, Entry>, Instant)>,
}

impl Default for Cursors {
    fn default() -> Cursors {
        Cursors {
            open: Mutex::new((HashMap::new(), muniment_op::now())),
        }
    }
}

impl Cursors {
    /// Remembers a cursor; false if there was one with its number.
    pub fn insert(&self, id: i64, entry: Entry) -> bool {
        let now = entry.used;
        let mut open = self.open.lock();
        let (all, swept) = &mut *open;
        if now.saturating_duration_since(*swept) > SWEEP {
            *swept = now;
            all.retain(|_, e| now.saturating_duration_since(e.used) < KEPT);
        }
        all.insert(id, entry).is_none()
    }

    /// The cursor with this number, of this user.
    ///
    /// # Errors
    /// 43 CursorNotFound; 13 Unauthorized for another user's.
    pub fn get(&self, id: i64, user: Option<&Arc<str>>) -> Result<Entry> {
        let mut open = self.open.lock();
        let Some(entry) = open.0.get_mut(&id) else {
            return Err(not_found(id));
        };
        if entry.user.as_ref() != user {
            return Err(Error::new(
                Code::Unauthorized,
                format!("cursor id {id} was not created by the authenticated user"),
            ));
        }
        entry.used = muniment_op::now();
        Ok(entry.clone())
    }

    /// Forgets a cursor.
    pub fn remove(&self, id: i64) {
        self.open.lock().0.remove(&id);
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.lock().0.len()
    }
}

fn not_found(id: i64) -> Error {
    Error::new(
        Code::CursorNotFound,
        format!("Cursor not found (id: {id})."),
    )
}
