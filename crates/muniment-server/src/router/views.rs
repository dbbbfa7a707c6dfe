//! Which names are those of views that read sharded collections: a router runs their pipelines itself.
//!
//! The shard of the database would refuse a read of such a view, which aborts a transaction, or find out only when a later
//! batch comes to the sharded collection. So a router looks at each name before it is first read. What is no such view is
//! remembered: it may become one, and then a refusal has the name looked at anew.

use super::Router;
use super::sharded::place::{View, view};
use super::sharded::read_by::read_by;
use crate::namespace::{self, MAX_NAMESPACE};
use muniment_op::Interrupt;
use muniment_value::Result;
use parking_lot::RwLock;
use std::collections::HashSet;

/// So many names are remembered; then all are forgotten.
const MOST: usize = 100_000;

/// The full names that were looked at and are not those of views that read sharded collections.
#[derive(Default)]
pub struct Views(RwLock<HashSet<String>>);

/// A view that reads sharded collections.
pub struct OverSharded {
    /// Its definition.
    pub view: View,
    /// The collections that it reads, also through other views, without the database.
    collections: Vec<String>,
}

/// What a reader of some names reads.
#[derive(Default)]
pub struct ReadBelow {
    /// The collections that have these names, or are below the views that have them, without the database.
    pub collections: Vec<String>,
    /// One of them is sharded.
    pub sharded: bool,
}

impl Views {
    /// The view of this name, if it reads sharded collections.
    ///
    /// # Errors
    /// Those of reading the configuration, and of the shard of the database.
    pub fn over_sharded(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        (db, name): (&str, &str),
    ) -> Result<Option<OverSharded>> {
        let ns = format!("{db}.{name}");
        if self.0.read().contains(&ns) {
            return Ok(None);
        }
        let found = look(on, router, db, name)?;
        // That a collection is sharded is in the tables.
        if found.is_none() && ns.len() <= MAX_NAMESPACE {
            let mut known = self.0.write();
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(ns);
        }
        Ok(found)
    }

    /// What a pipeline reads that names these collections and views.
    ///
    /// # Errors
    /// As [`Views::over_sharded`].
    pub fn below(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        db: &str,
        names: &[String],
    ) -> Result<ReadBelow> {
        let mut below = ReadBelow::default();
        for name in names {
            match self.over_sharded(on, router, (db, name))? {
                Some(found) => {
                    below.sharded = true;
                    found.collections.iter().for_each(|name| below.add(name));
                }
                None => {
                    below.sharded |= is_sharded(on, router, db, name)?;
                    below.add(name);
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

fn is_sharded(on: &dyn Interrupt, router: &Router, db: &str, name: &str) -> Result<bool> {
    let known = router.tables.of(on, router, &format!("{db}.{name}"))?;
    Ok(known.is_some())
}

/// Reads what [`Views::over_sharded`] tells.
fn look(on: &dyn Interrupt, router: &Router, db: &str, name: &str) -> Result<Option<OverSharded>> {
    if namespace::check_collection(db, name).is_err() || is_sharded(on, router, db, name)? {
        return Ok(None);
    }
    let Some(home) = router.catalog.database(on, router, db, None)? else {
        return Ok(None);
    };
    let (mut first, mut sharded, mut collections) = (None, false, Vec::new());
    let (mut names, mut at) = (vec![name.to_string()], 0);
    while let Some(name) = names.get(at).cloned() {
        at += 1;
        let found = match is_sharded(on, router, db, &name)? {
            true => {
                sharded = true;
                None
            }
            false => view(on, router, &home, db, &name)?,
        };
        let Some(view) = found else {
            collections.push(name);
            continue;
        };
        let mut read = vec![view.on.clone()];
        read_by(view.pipeline.as_doc(), &mut read);
        first.get_or_insert(view);
        for name in read {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let found = first.filter(|_| sharded);
    Ok(found.map(|view| OverSharded { view, collections }))
}
