//! Which names are those of views that read sharded collections: a router runs their pipelines itself.
//!
//! The shard of the database would refuse a read of such a view, which aborts a transaction, or find out only when a later
//! batch comes to the sharded collection. So a router looks at a name before it is first read.

use super::Router;
use super::sharded::place::view;
use super::sharded::read_by::read_by;
use crate::namespace::{self, MAX_NAMESPACE};
use muniment_op::Interrupt;
use muniment_value::Result;
use parking_lot::RwLock;
use std::collections::HashSet;

/// So many names are remembered; then all are forgotten.
const MOST: usize = 100_000;

/// The names that were looked at and are not those of views that read sharded collections. Such a name may have become
/// one since: then a statement is refused, which forgets all names, and the next transaction looks anew.
#[derive(Default)]
pub struct Views(RwLock<HashSet<String>>);

/// What a reader of some names reads.
#[derive(Default)]
pub struct ReadBelow {
    /// The collections below, and those that are no views, without the database.
    pub collections: Vec<String>,
    /// One of the names is that of a view, below which a collection is sharded.
    pub sharded: bool,
}

impl Views {
    /// Whether a full name is known not to be that of a view that reads sharded collections.
    pub fn are_none(&self, ns: &str) -> bool {
        self.0.read().contains(ns)
    }

    /// Whether a name is that of a view that reads sharded collections.
    ///
    /// # Errors
    /// Those of reading the configuration, and of the shard of the database.
    pub fn read_sharded(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        (db, name): (&str, &str),
    ) -> Result<bool> {
        Ok(self.below(on, router, db, &[name.to_string()])?.sharded)
    }

    /// What a pipeline reads that names these collections and views.
    ///
    /// # Errors
    /// As [`Views::read_sharded`].
    pub fn below(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        db: &str,
        names: &[String],
    ) -> Result<ReadBelow> {
        let mut below = ReadBelow::default();
        for name in names {
            let ns = format!("{db}.{name}");
            if self.0.read().contains(&ns) {
                below.add(name);
                continue;
            }
            match read_below(on, router, db, name)? {
                Some(collections) => {
                    below.sharded = true;
                    collections.iter().for_each(|name| below.add(name));
                }
                None => {
                    below.add(name);
                    if ns.len() > MAX_NAMESPACE {
                        continue;
                    }
                    // That a collection is sharded is in the tables.
                    let mut known = self.0.write();
                    if known.len() >= MOST {
                        known.clear();
                    }
                    known.insert(ns);
                }
            }
        }
        Ok(below)
    }

    /// Forgets all of them.
    pub fn forget(&self) {
        self.0.write().clear();
    }
}

impl ReadBelow {
    fn add(&mut self, name: &str) {
        if !self.collections.iter().any(|known| known == name) {
            self.collections.push(name.to_string());
        }
    }
}

/// The collections that a view reads, if one of them is sharded; `None` for other views, and for a collection.
fn read_below(
    on: &dyn Interrupt,
    router: &Router,
    db: &str,
    name: &str,
) -> Result<Option<Vec<String>>> {
    let is_sharded = |name: &str| -> Result<bool> {
        let known = router.tables.of(on, router, &format!("{db}.{name}"))?;
        Ok(known.is_some())
    };
    if is_sharded(name)? || namespace::check_collection(db, name).is_err() {
        return Ok(None);
    }
    let Some(home) = router.catalog.database(on, router, db, None)? else {
        return Ok(None);
    };
    let (mut seen, mut at, mut sharded) = (vec![name.to_string()], 0, false);
    let mut collections = Vec::new();
    while let Some(name) = seen.get(at).cloned() {
        at += 1;
        let is = is_sharded(&name)?;
        sharded |= is;
        let found = match is {
            true => None,
            false => view(on, router, &home, db, &name)?,
        };
        let Some(view) = found else {
            collections.push(name);
            continue;
        };
        let mut names = vec![view.on];
        read_by(view.pipeline.as_doc(), &mut names);
        for name in names {
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
    }
    Ok(sharded.then_some(collections))
}
