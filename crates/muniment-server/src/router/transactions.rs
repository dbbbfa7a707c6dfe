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

struct Entry {
    number: i64,
    set: Arc<SetPool>,
    used: Instant,
}

/// See the module's head.
#[derive(Default)]
pub struct Transactions(Mutex<HashMap<SessionKey, Entry>>);

impl Transactions {
    /// Notes that a statement of a session's transaction goes to a shard. `starts`: it is its first.
    ///
    /// # Errors
    /// 20 if the transaction is on another shard.
    pub fn goes_to(
        &self,
        session: SessionKey,
        number: i64,
        starts: bool,
        set: &Arc<SetPool>,
    ) -> Result<()> {
        let used = Instant::now();
        let mut all = self.0.lock();
        if all.len() >= MOST {
            all.retain(|_, e| used.saturating_duration_since(e.used) < KEPT);
        }
        if let Some(entry) = all.get_mut(&session)
            && entry.number == number
            && !starts
        {
            entry.used = used;
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
        all.insert(session, Entry { number, set, used });
        Ok(())
    }

    /// The shard that has a transaction.
    pub fn of(&self, session: &SessionKey, number: i64) -> Option<Arc<SetPool>> {
        let all = self.0.lock();
        let entry = all.get(session).filter(|e| e.number == number);
        entry.map(|e| Arc::clone(&e.set))
    }
}
