//! What clients were told of their transactions, and so what a reader of all accounts has to find.

use std::collections::{BTreeMap, BTreeSet};

/// The number of accounts.
pub const ACCOUNTS: i64 = 10;
/// What each account has at the beginning.
pub const EACH: i64 = 100;

/// A transfer, as its client knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transfer {
    /// The commit was sent. Before that nobody may see it.
    pub sent: bool,
    /// When the client was told that it is committed.
    pub committed: Option<u64>,
    /// The client was told that it is aborted.
    pub aborted: bool,
}

/// What clients were told of transfers.
#[derive(Default)]
pub struct Ledger {
    pub transfers: BTreeMap<i64, Transfer>,
}

/// An account as a reader has found it.
pub struct Account {
    pub balance: i64,
    pub transfers: BTreeSet<i64>,
}

impl Ledger {
    /// Checks what a reader has found that began at `begun`, and reads one time.
    pub fn check(&self, found: &BTreeMap<i64, Account>, begun: u64) -> Result<(), String> {
        if found.len() as i64 != ACCOUNTS {
            return Err(format!("there are {} accounts", found.len()));
        }
        let sum: i64 = found.values().map(|account| account.balance).sum();
        if sum != ACCOUNTS * EACH {
            return Err(format!("all accounts together have {sum}"));
        }
        let mut seen: BTreeMap<i64, usize> = BTreeMap::new();
        for transfer in found.values().flat_map(|account| &account.transfers) {
            *seen.entry(*transfer).or_default() += 1;
        }
        for (id, times) in &seen {
            let known = self.transfers.get(id).copied().unwrap_or_default();
            if *times != 2 || !known.sent || known.aborted {
                return Err(format!("transfer {id}, {known:?}, is seen {times} times"));
            }
        }
        let before = |t: &Transfer| t.committed.is_some_and(|at| at < begun);
        let missing = (self.transfers.iter()).find(|(id, t)| before(t) && !seen.contains_key(id));
        match missing {
            Some((id, t)) => Err(format!("transfer {id}, {t:?}, is not seen")),
            None => Ok(()),
        }
    }
}
