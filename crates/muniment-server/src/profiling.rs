//! The profiling levels of databases, as `profile` sets them; the [`profiler`](crate::profiler) acts on
//! them.
//!
//! Invariant: whether any database has a level or a filter of its own costs one atomic read.

use crate::options::ServerOptions;
use muniment_query::QueryContext;
use muniment_query::filter::Filter;
use muniment_value::DocBuf;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What `profile` sets for one database. `slowms`, from which an operation is slow, and `sampleRate`, the
/// share of slow operations that are kept, hold for the whole server.
#[derive(Clone, Default)]
pub struct Profile {
    /// 0 off, 1 slow operations, 2 all.
    pub level: i32,
    /// A query that selects what is logged, and recorded at level 1, instead of slow operations.
    pub filter: Option<Filter>,
}

impl Profile {
    /// True if operations may be recorded.
    pub fn wants(&self) -> bool {
        self.level > 0
    }

    /// True if it has an effect on what is logged or recorded.
    pub fn acts(&self) -> bool {
        self.level > 0 || self.filter.is_some()
    }
}

/// The options' setting for all databases. The filter has already been checked ([`check_filter`](crate::profiler::check_filter)).
pub fn default_of(options: &ServerOptions) -> Profile {
    let filter = options.profile_filter.as_ref();
    let parsed = |d: &DocBuf| Filter::parse(d.as_doc(), &QueryContext::new()).ok();
    Profile {
        level: options.profile_level,
        filter: filter.and_then(parsed),
    }
}

/// See the module's head.
pub struct Profiling {
    /// What holds for databases for which nothing was set.
    default: Profile,
    by_database: RwLock<BTreeMap<String, Profile>>,
    acts: AtomicBool,
}

impl Profiling {
    /// With what the options set for all databases.
    pub fn new(default: Profile) -> Profiling {
        Profiling {
            acts: AtomicBool::new(default.acts()),
            default,
            by_database: RwLock::default(),
        }
    }

    /// True if some database has a level or a filter of its own.
    pub fn acts(&self) -> bool {
        self.acts.load(Relaxed)
    }

    /// What was set for a database, or what the options say of all.
    pub fn of(&self, db: &str) -> Profile {
        let set = self.by_database.read().get(db).cloned();
        set.unwrap_or_else(|| self.default.clone())
    }

    /// Sets it for a database.
    pub fn set(&self, db: &str, profile: Profile) {
        self.change(|all| {
            all.insert(db.to_string(), profile);
        });
    }

    /// The database is gone, and its level with it.
    pub fn forget(&self, db: &str) {
        self.change(|all| {
            all.remove(db);
        });
    }

    fn change(&self, how: impl FnOnce(&mut BTreeMap<String, Profile>)) {
        let mut all = self.by_database.write();
        how(&mut all);
        let any = all.values().any(Profile::acts);
        self.acts.store(any || self.default.acts(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_holds_until_its_database_is_gone() {
        let profiling = Profiling::new(Profile::default());
        assert!(!profiling.acts());
        let all = Profile {
            level: 2,
            filter: None,
        };
        profiling.set("a", all);
        assert!(profiling.acts() && profiling.of("a").wants());
        assert_eq!(profiling.of("b").level, 0);
        profiling.forget("a");
        assert!(!profiling.acts() && !profiling.of("a").wants());
        let slow = Profile {
            level: 1,
            filter: None,
        };
        let profiling = Profiling::new(slow);
        profiling.forget("a");
        assert!(profiling.acts() && profiling.of("a").level == 1);
    }
}
