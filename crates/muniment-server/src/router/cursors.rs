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

/// After so long without a getMore the member has closed most cursors, or the sessions they belonged to. Others have no
/// time limit, or a longer one, so the member is asked.
const SILENCE: Duration = Duration::from_secs(35 * 60);
/// So often those are looked for about which members are to be asked.
const SWEEP: Duration = Duration::from_secs(60);
/// A cursor is forgotten after its member could not be asked so often: the member may be gone for good.
const MOST_UNANSWERED: u32 = 2;

/// A cursor that is open.
#[derive(Clone)]
pub struct Entry {
    /// The set of the member that has it.
    pub set: Arc<SetPool>,
    /// That member.
    pub host: String,
    /// The collection that it reads, with its database.
    pub namespace: Arc<str>,
    /// `user@db` of the user that has opened it.
    pub user: Option<Arc<str>>,
    /// The user's rights when it was opened (see `CursorOwner::as_of`).
    pub as_of: u64,
    /// The command that has opened it.
    pub command: Arc<DocBuf>,
    /// When it was last used, or the member was asked about it.
    pub used: Instant,
    /// How often in a row the member could not be asked about it.
    pub unanswered: u32,
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
        self.open.lock().0.insert(id, entry).is_none()
    }

    /// The cursors that nobody has used for so long that their members may have closed them. It has the same ones again
    /// after as long.
    pub fn doubtful(&self, now: Instant) -> Vec<(i64, Entry)> {
        let mut open = self.open.lock();
        let (all, swept) = &mut *open;
        if now.saturating_duration_since(*swept) < SWEEP {
            return Vec::new();
        }
        *swept = now;
        let silent = |e: &Entry| now.saturating_duration_since(e.used) >= SILENCE;
        let doubtful = all.iter_mut().filter(|(_, e)| silent(e));
        let doubtful = doubtful.map(|(id, e)| {
            e.used = now;
            (*id, e.clone())
        });
        doubtful.collect()
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
        entry.unanswered = 0;
        Ok(entry.clone())
    }

    /// The cursor with this number, whoever's it is.
    pub fn of_anyone(&self, id: i64) -> Option<Entry> {
        self.open.lock().0.get(&id).cloned()
    }

    /// Notes that the member could not be asked whether it has the cursor, which is forgotten if that goes on.
    pub fn unanswered(&self, id: i64) {
        let mut open = self.open.lock();
        if let Some(entry) = open.0.get_mut(&id) {
            entry.unanswered += 1;
            if entry.unanswered >= MOST_UNANSWERED {
                open.0.remove(&id);
            }
        }
    }

    /// Notes that the member has the cursor.
    pub fn note_open(&self, id: i64) {
        if let Some(entry) = self.open.lock().0.get_mut(&id) {
            entry.unanswered = 0;
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::options::SetAddress;
    use crate::sets::Sets;
    use muniment_member::{Routes, Trust};

    /// A cursor may have no time limit, or a long one, and only its member knows.
    #[test]
    fn a_cursor_that_nobody_uses_is_asked_about_and_not_forgotten() {
        let sets = Sets::new(1, &Trust::default(), &Routes::default());
        let began = muniment_op::now();
        let entry = |used| Entry {
            set: sets.of(&SetAddress::parse("s/h:1", 27018).unwrap()),
            host: "h:1".to_string(),
            namespace: "d.c".into(),
            user: None,
            as_of: 0,
            command: Arc::default(),
            used,
            unanswered: 0,
        };
        let cursors = Cursors::default();
        assert!(cursors.insert(1, entry(began)));
        let ids = |minutes: u64| {
            let all = cursors.doubtful(began + Duration::from_secs(60 * minutes));
            all.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert!(ids(34).is_empty());
        assert!(cursors.insert(2, entry(began + Duration::from_secs(60 * 35))));
        assert_eq!(ids(36), [1]);
        // Its member has it still.
        assert!(ids(40).is_empty());
        assert_eq!(cursors.len(), 2);
        assert_eq!(ids(69), Vec::<i64>::new());
        assert_eq!(ids(70), [2]);
        assert_eq!(ids(72), [1]);
        cursors.remove(1);
        assert_eq!(ids(110), [2]);
        // A member that is gone for good does not keep it for ever.
        cursors.unanswered(2);
        assert_eq!(cursors.len(), 1);
        assert!(cursors.get(2, None).is_ok());
        cursors.unanswered(2);
        cursors.unanswered(2);
        assert_eq!(cursors.len(), 0);
    }
}
