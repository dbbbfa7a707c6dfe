//! Says when the users and roles that are stored may have changed.
//!
//! Every record that is committed here or taken over from another member is compared with the numbers of
//! the two collections, so a change is noticed however it was written. The numbers are kept beside the
//! names, so that a record costs two comparisons of a number for each key that it puts.
//!
//! Invariant: the generation rises after the change is visible. A reader that reads the generation first
//! and the users then never keeps old users under a new generation.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The collection of users.
pub const USERS: &str = "admin.system.users";
/// The collection of roles.
pub const ROLES: &str = "admin.system.roles";

/// The number that no collection has.
const NONE: u32 = u32::MAX;

/// The numbers of the two collections at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accounts {
    users: u32,
    roles: u32,
}

impl Accounts {
    /// Whether a tree holds documents of users or roles.
    #[inline]
    pub fn has(self, tree: u32) -> bool {
        tree == self.users || tree == self.roles
    }

    /// Whether any of these trees does.
    #[inline]
    pub fn have(self, mut trees: impl Iterator<Item = u32>) -> bool {
        trees.any(|tree| self.has(tree))
    }
}

/// The numbers of the collections of users and roles, and how often these may have changed.
pub(crate) struct AccountsWatch {
    numbers: AtomicU64,
    generation: AtomicU64,
}

impl Default for AccountsWatch {
    fn default() -> AccountsWatch {
        AccountsWatch {
            numbers: AtomicU64::new(u64::MAX),
            generation: AtomicU64::new(1),
        }
    }
}

impl AccountsWatch {
    /// The numbers now. They differ before and after a change of the catalog that gives or takes one of
    /// the two names.
    #[inline]
    pub fn now(&self) -> Accounts {
        let both = self.numbers.load(SeqCst);
        Accounts {
            users: (both >> 32) as u32,
            roles: both as u32,
        }
    }

    /// Takes the numbers of the two names from the catalog, whose lock the caller holds.
    pub fn look_at(&self, number_of: impl Fn(&str) -> Option<u32>) {
        let number = |name| u64::from(number_of(name).unwrap_or(NONE));
        self.numbers
            .store(number(USERS) << 32 | number(ROLES), SeqCst);
    }

    /// Users or roles may have changed.
    pub fn changed(&self) {
        self.generation.fetch_add(1, SeqCst);
    }

    /// Rises with each change.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }
}
