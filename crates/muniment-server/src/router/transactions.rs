//! Transactions of clients: each runs on one shard, that of its first statement.
//!
//! The shard has the transaction. The router remembers which shard it is, and tells the client (`recoveryToken`), so
//! that another router can learn how the transaction has ended.

use super::SetPool;
use muniment_storage::SessionKey;
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A session is forgotten so long after its last statement.
const KEPT: Duration = Duration::from_secs(35 * 60);
/// So many sessions are remembered before those are looked for that can be forgotten.
const MOST: usize = 10_000;

/// So often those are looked for that can be forgotten.
const SWEEP: Duration = Duration::from_secs(10);

struct Entry {
    number: i64,
    set: Arc<SetPool>,
    /// A statement has failed here, and the shard may have executed it: the transaction must not be committed.
    failed: bool,
    used: Instant,
}

/// See the module's head.
#[derive(Default)]
pub struct Transactions(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    all: HashMap<SessionKey, Entry>,
    swept: Option<Instant>,
}

impl Transactions {
    /// Notes that a statement of a session's transaction goes to a shard. `starts`: it is its first.
    ///
    /// # Errors
    /// 20 if the transaction is on another shard; 251 after a statement of it has failed here.
    pub fn goes_to(
        &self,
        session: SessionKey,
        number: i64,
        starts: bool,
        set: &Arc<SetPool>,
    ) -> Result<()> {
        let used = Instant::now();
        let mut sessions = self.0.lock();
        let Sessions { all, swept } = &mut *sessions;
        if all.len() >= MOST && swept.is_none_or(|at| at.elapsed() > SWEEP) {
            *swept = Some(used);
            all.retain(|_, e| used.saturating_duration_since(e.used) < KEPT);
        }
        if let Some(entry) = all.get_mut(&session)
            && entry.number == number
            && !starts
        {
            entry.used = used;
            if entry.failed {
                return Err(no_such_transaction(number));
            }
            return match entry.set.name == set.name {
                true => Ok(()),
                false => Err(Error::new(
                    Code::IllegalOperation,
                    format!(
                        "the transaction is on the shard {}, and this statement is for {}: transactions \
                         over several shards are not there yet",
                        entry.set.name, set.name
                    ),
                )),
            };
        }
        let set = Arc::clone(set);
        let failed = false;
        let entry = Entry {
            number,
            set,
            failed,
            used,
        };
        all.insert(session, entry);
        Ok(())
    }

    /// Notes that a statement of a transaction has failed here, on the way to its shard or back.
    pub fn fails(&self, session: &SessionKey, number: i64) {
        let mut sessions = self.0.lock();
        let entry = sessions.all.get_mut(session);
        if let Some(entry) = entry.filter(|e| e.number == number) {
            entry.failed = true;
        }
    }

    /// The shard that has a transaction, and whether a statement of it has failed here.
    pub fn of(&self, session: &SessionKey, number: i64) -> Option<(Arc<SetPool>, bool)> {
        let sessions = self.0.lock();
        let entry = sessions.all.get(session).filter(|e| e.number == number);
        entry.map(|e| (Arc::clone(&e.set), e.failed))
    }
}

/// 251 NoSuchTransaction.
pub fn no_such_transaction(number: i64) -> Error {
    Error::new(
        Code::NoSuchTransaction,
        format!("Transaction with {{ txnNumber: {number} }} has been aborted."),
    )
}
