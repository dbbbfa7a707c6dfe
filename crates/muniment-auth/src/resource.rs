//! What a privilege is about, and what a command is about.

use muniment_value::args::{Args, Field, Types, opt};
use muniment_value::{Code, Doc, DocBuf, Error, Result, doc};

/// The prefix of the collections that hold the buckets of time series.
pub const BUCKETS: &str = "system.buckets.";

const FIELDS: &[Field] = &[
    opt("cluster", Types::BOOL),
    opt("anyResource", Types::BOOL),
    opt("db", Types::STRING),
    opt("collection", Types::STRING),
    opt("system_buckets", Types::STRING),
];

/// The resource of a privilege. The order of the variants and then of the names is the order in which
/// privileges are kept and printed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// `{cluster: true}`: the server or the set as a whole.
    Cluster,
    /// `{anyResource: true}`: everything, the cluster and system collections included.
    Any,
    /// `{db: "", collection: ""}`: all databases and their collections, without the system collections and
    /// without the databases local and config.
    AnyNormal,
    /// `{db: "x", collection: ""}`: a database and its collections, without the system collections.
    Database(String),
    /// `{db: "", collection: "c"}`: the collections of that name in all databases.
    Collection(String),
    /// `{db: "x", collection: "c"}`: one collection.
    Namespace(String, String),
    /// `{db: "x", system_buckets: "c"}`: the buckets of time series. Without `db`, those of all databases;
    /// without `collection`, those of all time series.
    SystemBuckets {
        /// The database, or `None` for all.
        db: Option<String>,
        /// The name of the time series without the prefix "system.buckets.", or `None` for all.
        collection: Option<String>,
    },
}

/// What a command is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// The server or the set as a whole.
    Cluster,
    /// A database.
    Database(&'a str),
    /// A database's collection: the database, then the collection.
    Collection(&'a str, &'a str),
}

/// True for the databases that a privilege on all databases leaves out: local and config.
pub fn is_internal_database(db: &str) -> bool {
    matches!(db, "local" | "config")
}

/// True for a system collection: `system.*` in any database, and `replset.*` in the database local. A privilege
/// on a database does not reach it.
pub fn is_system_collection(db: &str, collection: &str) -> bool {
    collection.starts_with("system.") || (db == "local" && collection.starts_with("replset."))
}

impl Resource {
    /// The resource that a document describes.
    ///
    /// # Errors
    /// 9 FailedToParse for a combination of fields that describes no resource; 14, 40413 and 40415 for a field
    /// of the wrong type, a field that is given twice, or an unknown field.
    pub fn from_doc(doc: Doc<'_>) -> Result<Resource> {
        let args = Args::parse("resource", FIELDS, doc)?;
        let flag = |name| args.get(name).map(|v| v.as_bool() == Some(true));
        let (db, collection) = (args.str("db"), args.str("collection"));
        match (
            flag("cluster"),
            flag("anyResource"),
            db,
            collection,
            args.str("system_buckets"),
        ) {
            (Some(true), None, None, None, None) => Ok(Resource::Cluster),
            (None, Some(true), None, None, None) => Ok(Resource::Any),
            (Some(false), None, None, None, None) => Err(must_be_true("cluster")),
            (None, Some(false), None, None, None) => Err(must_be_true("anyResource")),
            (None, None, Some(db), Some(collection), None) => Ok(Resource::of(db, collection)),
            (None, None, db, None, Some(buckets)) => Ok(Resource::SystemBuckets {
                db: db.and_then(not_empty),
                collection: not_empty(buckets),
            }),
            _ => Err(Error::failed_to_parse(
                "resource must have exactly db and collection set, or have only cluster set  or have only \
                 anyResource set",
            )),
        }
    }

    /// The resource `{db, collection}`, in which an empty name stands for all.
    pub fn of(db: &str, collection: &str) -> Resource {
        match (db, collection) {
            ("", "") => Resource::AnyNormal,
            (db, "") => Resource::Database(db.to_owned()),
            ("", collection) => Resource::Collection(collection.to_owned()),
            (db, collection) => Resource::Namespace(db.to_owned(), collection.to_owned()),
        }
    }

    /// The document that describes the resource.
    pub fn to_doc(&self) -> DocBuf {
        match self {
            Resource::Cluster => doc! { "cluster": true },
            Resource::Any => doc! { "anyResource": true },
            Resource::AnyNormal => doc! { "db": "", "collection": "" },
            Resource::Database(db) => doc! { "db": db.as_str(), "collection": "" },
            Resource::Collection(collection) => {
                doc! { "db": "", "collection": collection.as_str() }
            }
            Resource::Namespace(db, collection) => {
                doc! { "db": db.as_str(), "collection": collection.as_str() }
            }
            Resource::SystemBuckets { db, collection } => doc! {
                "db": db.as_deref().unwrap_or_default(),
                "system_buckets": collection.as_deref().unwrap_or_default(),
            },
        }
    }

    /// True if a privilege on this resource counts for `target`. It allocates nothing.
    pub fn matches(&self, target: &Target<'_>) -> bool {
        match (self, *target) {
            (Resource::Any, _) | (Resource::Cluster, Target::Cluster) => true,
            (Resource::AnyNormal, Target::Database(db)) => !is_internal_database(db),
            (Resource::Database(own), Target::Database(db)) => own == db,
            (_, Target::Collection(db, collection)) => self.matches_collection(db, collection),
            _ => false,
        }
    }

    fn matches_collection(&self, db: &str, collection: &str) -> bool {
        match self {
            Resource::Cluster => false,
            Resource::Any => true,
            Resource::AnyNormal => {
                !is_internal_database(db) && !is_system_collection(db, collection)
            }
            Resource::Database(own) => own == db && !is_system_collection(db, collection),
            Resource::Collection(own) => own == collection,
            Resource::Namespace(own_db, own) => own == collection && own_db == db,
            Resource::SystemBuckets {
                db: own_db,
                collection: own,
            } => collection.strip_prefix(BUCKETS).is_some_and(|series| {
                own_db.as_ref().is_none_or(|own| own == db)
                    && own.as_ref().is_none_or(|own| own == series)
            }),
        }
    }

    /// True if the resource includes all that `other` includes, so that whoever has the one has the other.
    pub fn includes(&self, other: &Resource) -> bool {
        if self == other {
            return true;
        }
        match (self, other) {
            (Resource::Any, _) => true,
            (Resource::AnyNormal, Resource::Database(db)) => !is_internal_database(db),
            (_, Resource::Namespace(db, collection)) => self.matches_collection(db, collection),
            (Resource::Collection(own), Resource::SystemBuckets { collection, .. }) => {
                is_buckets_of(own, collection.as_deref())
            }
            (Resource::Namespace(own_db, own), Resource::SystemBuckets { db, collection }) => {
                db.as_ref() == Some(own_db) && is_buckets_of(own, collection.as_deref())
            }
            (
                Resource::SystemBuckets {
                    db: None,
                    collection: own,
                },
                Resource::Collection(collection),
            ) => collection
                .strip_prefix(BUCKETS)
                .is_some_and(|series| own.as_ref().is_none_or(|own| own == series)),
            (
                Resource::SystemBuckets {
                    db: own_db,
                    collection: own,
                },
                Resource::SystemBuckets { db, collection },
            ) => (own_db.is_none() || own_db == db) && (own.is_none() || own == collection),
            _ => false,
        }
    }

    /// True if the resource includes the database, or a collection of it.
    pub fn touches_database(&self, db: &str) -> bool {
        match self {
            Resource::Cluster => false,
            Resource::Any | Resource::Collection(_) => true,
            Resource::AnyNormal => !is_internal_database(db),
            Resource::Database(own) | Resource::Namespace(own, _) => own == db,
            Resource::SystemBuckets { db: own, .. } => own.as_ref().is_none_or(|own| own == db),
        }
    }

    /// The database to which the resource is limited, if it is limited to one. A role of another database
    /// than admin may only have privileges on its own one.
    pub fn database(&self) -> Option<&str> {
        match self {
            Resource::Database(db) | Resource::Namespace(db, _) => Some(db),
            Resource::SystemBuckets { db, .. } => db.as_deref(),
            _ => None,
        }
    }
}

fn is_buckets_of(collection: &str, series: Option<&str>) -> bool {
    series.is_some() && collection.strip_prefix(BUCKETS) == series
}

fn not_empty(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

fn must_be_true(field: &str) -> Error {
    Error::new(
        Code::FailedToParse,
        format!("resource.{field} must be true when specified"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn buckets(db: &str, series: &str) -> Resource {
        Resource::SystemBuckets {
            db: not_empty(db),
            collection: not_empty(series),
        }
    }

    fn all() -> Vec<Resource> {
        let mut all = vec![Resource::Cluster, Resource::Any];
        for (db, collection) in [
            ("", ""),
            ("x", ""),
            ("", "c"),
            ("x", "c"),
            ("x", "system.js"),
        ] {
            all.push(Resource::of(db, collection));
        }
        all.push(Resource::of("local", ""));
        all.push(Resource::of("config", "c"));
        all.push(Resource::of("", "system.buckets.c"));
        all.push(Resource::of("x", "system.buckets.c"));
        for (db, series) in [("", ""), ("x", ""), ("", "c"), ("x", "c")] {
            all.push(buckets(db, series));
        }
        all
    }

    #[test]
    fn every_form_is_read_as_it_is_printed() {
        for r in all() {
            let printed = r.to_doc();
            assert_eq!(Resource::from_doc(printed.as_doc()).unwrap(), r);
        }
        let no_db = doc! { "system_buckets": "c" };
        assert_eq!(
            Resource::from_doc(no_db.as_doc()).unwrap(),
            buckets("", "c")
        );
    }

    #[test]
    fn other_forms_are_refused() {
        for (d, code) in [
            (doc! {}, Code::FailedToParse),
            (doc! { "db": "x" }, Code::FailedToParse),
            (doc! { "collection": "x" }, Code::FailedToParse),
            (doc! { "cluster": false }, Code::FailedToParse),
            (doc! { "anyResource": false }, Code::FailedToParse),
            (
                doc! { "cluster": true, "anyResource": true },
                Code::FailedToParse,
            ),
            (
                doc! { "cluster": true, "db": "", "collection": "" },
                Code::FailedToParse,
            ),
            (
                doc! { "db": "x", "collection": "c", "system_buckets": "c" },
                Code::FailedToParse,
            ),
            (doc! { "db": 1, "collection": "c" }, Code::TypeMismatch),
            (doc! { "cluster": 1 }, Code::TypeMismatch),
            (doc! { "cluster": true, "cluster": true }, Code(40413)),
            (doc! { "cluster": true, "other": 1 }, Code(40415)),
        ] {
            let e = Resource::from_doc(d.as_doc()).unwrap_err();
            assert_eq!(e.code(), code, "{d:?}: {e}");
        }
    }

    /// The rules, one line each: a resource, and what it matches of the targets in [`TARGETS`].
    #[test]
    fn matching_rules() {
        const TARGETS: [Target<'_>; 10] = [
            Target::Cluster,
            Target::Database("x"),
            Target::Database("local"),
            Target::Collection("x", "c"),
            Target::Collection("y", "c"),
            Target::Collection("config", "c"),
            Target::Collection("x", "system.js"),
            Target::Collection("x", "system.buckets.c"),
            Target::Collection("local", "replset.election"),
            Target::Collection("x", "replset.election"),
        ];
        for (r, expected) in [
            (Resource::Cluster, "1000000000"),
            (Resource::Any, "1111111111"),
            (Resource::AnyNormal, "0101100001"),
            (Resource::of("x", ""), "0101000001"),
            (Resource::of("local", ""), "0010000000"),
            (Resource::of("config", ""), "0000010000"),
            (Resource::of("", "c"), "0001110000"),
            (Resource::of("", "system.js"), "0000001000"),
            (Resource::of("x", "c"), "0001000000"),
            (Resource::of("x", "system.js"), "0000001000"),
            (Resource::of("x", "system.buckets.c"), "0000000100"),
            (Resource::of("local", "replset.election"), "0000000010"),
            (buckets("", ""), "0000000100"),
            (buckets("x", ""), "0000000100"),
            (buckets("y", ""), "0000000000"),
            (buckets("", "c"), "0000000100"),
            (buckets("x", "c"), "0000000100"),
            (buckets("x", "d"), "0000000000"),
        ] {
            let found: String = TARGETS
                .iter()
                .map(|t| if r.matches(t) { '1' } else { '0' })
                .collect();
            assert_eq!(found, expected, "{r:?}");
        }
    }

    #[test]
    fn a_resource_that_includes_another_matches_all_that_it_matches() {
        let names = [
            "c",
            "d",
            "system.js",
            "system.buckets.c",
            "system.buckets.d",
        ];
        let mut targets = vec![Target::Cluster];
        for db in ["x", "y", "local", "config"] {
            targets.push(Target::Database(db));
            targets.extend(names.iter().map(|c| Target::Collection(db, c)));
        }
        for a in &all() {
            for b in &all() {
                let more = targets.iter().all(|t| !b.matches(t) || a.matches(t));
                assert!(more || !a.includes(b), "{a:?} {b:?}");
            }
            assert!(a.includes(a) && Resource::Any.includes(a));
        }
        assert!(buckets("x", "").includes(&Resource::of("x", "system.buckets.c")));
        assert!(!Resource::of("x", "c").includes(&Resource::of("x", "")));
        assert!(!Resource::AnyNormal.includes(&Resource::of("", "c")));
    }

    #[test]
    fn databases() {
        assert!(Resource::of("x", "c").touches_database("x"));
        assert!(!Resource::of("x", "c").touches_database("y"));
        assert!(!Resource::AnyNormal.touches_database("local"));
        assert_eq!(Resource::of("x", "c").database(), Some("x"));
        assert_eq!(Resource::of("", "c").database(), None);
    }
}
