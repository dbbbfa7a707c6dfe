//! The part of the data that a change stream watches.

use muniment_storage::{LogEntry, Named, Operation, What};
use muniment_value::Doc;

/// A collection, a database, or all databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Collection {
        /// `db.collection`.
        namespace: String,
        /// The length of the database's name in `namespace`, in bytes.
        db: usize,
    },
    Database(String),
    Cluster,
}

/// The suffix after a database's name that makes the namespace of its views' definitions.
pub(super) const VIEWS: &str = ".system.views";

/// The database and the collection of a namespace.
fn split(namespace: &str) -> (&str, &str) {
    namespace.split_once('.').unwrap_or((namespace, ""))
}

/// True for the databases whose changes a stream of the whole cluster does not show.
fn is_internal(db: &str) -> bool {
    matches!(db, "admin" | "config" | "local")
}

impl Scope {
    /// The scope for a command's target. `all` is true for `allChangesForCluster`.
    pub(crate) fn of(db: &str, collection: Option<&str>, all: bool) -> Scope {
        match collection {
            _ if all => Scope::Cluster,
            Some(c) => Scope::Collection {
                namespace: format!("{db}.{c}"),
                db: db.len(),
            },
            None => Scope::Database(db.to_string()),
        }
    }

    /// True if changes of this collection are watched.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        if let Scope::Collection { namespace: ns, .. } = self {
            return ns == namespace;
        }
        let (db, name) = split(namespace);
        !name.starts_with("system.") && !name.starts_with('$') && self.has_database(db)
    }

    /// True if events about this database as a whole are watched.
    pub(crate) fn has_database(&self, db: &str) -> bool {
        match self {
            Scope::Collection { namespace, db: len } => namespace.get(..*len) == Some(db),
            Scope::Database(own) => own == db,
            Scope::Cluster => !is_internal(db),
        }
    }

    fn concerns(&self, op: &Operation) -> bool {
        let of = |named: &Named| match named.namespace.strip_suffix(VIEWS) {
            Some(db) => self.has_database(db),
            None => !named.time_series && self.has(&named.namespace),
        };
        match (&op.of, &op.what) {
            (Some(named), _) => of(named),
            // For changes of the catalog this is only roughly right. The stream that is woken looks
            // at them more closely.
            (None, What::Note { doc }) => {
                let note = Doc::new(doc);
                let to = note.get_doc("o").and_then(|o| o.get_str("to"));
                let ns = note.get_str("ns").unwrap_or_default();
                self.has_database(split(ns).0) || to.is_some_and(|to| self.has(to))
            }
            (None, _) => false,
        }
    }

    /// False if nothing in the entry is watched.
    pub(crate) fn may_concern(&self, entry: &LogEntry) -> bool {
        entry.ops.iter().any(|op| self.concerns(op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        let c = Scope::of("d", Some("c"), false);
        let d = Scope::of("d", None, false);
        let all = Scope::of("admin", None, true);
        for (namespace, watched) in [
            ("d.c", [true, true, true]),
            ("d.c.x", [false, true, true]),
            ("d.system.views", [false, false, false]),
            ("e.c", [false, false, true]),
            ("config.c", [false, false, false]),
        ] {
            let has = [&c, &d, &all].map(|s| s.has(namespace));
            assert_eq!(has, watched, "{namespace}");
        }
        assert_eq!([&c, &d, &all].map(|s| s.has_database("d")), [true; 3]);
        assert!(!c.has_database("dd") && !all.has_database("local"));
    }
}
