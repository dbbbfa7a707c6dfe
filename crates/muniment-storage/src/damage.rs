//! Damage that closes a collection or an index while everything else serves: its catalog entry cannot be
//! read, or a record of the log cannot be applied to it.
//!
//! A closed *collection* is listed and can be dropped; reading, writing and changing it fails with 301.
//! Records of the log are applied to it as far as they can be, so that its documents are kept for a
//! repair (`repair`). A closed *index* is listed and can be dropped; no plan reads it and no write
//! maintains it. If it should keep keys unique, inserts and updates of its collection fail with 301,
//! because a duplicate would not be noticed; deletes go through. A *validator* that cannot be read makes
//! every write fail that it would judge, until another validator is set.
//!
//! A closed part is not what the log says any more. So it stays closed until it is dropped or repaired,
//! even if a later version of this program could read it: a mark in `META` says so. The mark is put with
//! each cut, like everything that is derived from the commits. A part that was closed by the log after
//! the cut is closed again when the log is applied.
//!
//! A collection whose `_id_` is not built is closed without a mark until it is built. Only a repair
//! leaves it so, and builds it.
//!
//! A part is closed on one member only: what other members have may be in order.

use crate::collection::Collection;
use crate::index::Index;
use crate::keys;
use crate::store::Store;
use muniment_query::QueryContext;
use muniment_value::{Code, Error, Result};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Why a collection that [`Collection::lacks_ids`] is closed.
const UNBUILT: &str = "its index '_id_' is not built: a repair of it has not come to its end";

/// What is wrong with a collection itself.
#[derive(Default)]
pub(crate) struct Health {
    /// Why it is closed.
    closed: Option<String>,
    /// Why its validator cannot be used.
    validator: Option<String>,
}

/// What is known of the validator of a collection whose entry has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is the one that the collection had, and as readable as that.
    Same,
    /// It can be parsed.
    Readable,
    /// It has to be parsed to know.
    Unknown,
}

/// Something that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The collection.
    pub namespace: String,
    /// The part of it that is damaged.
    pub what: Damaged,
    /// The reason.
    pub reason: String,
}

/// The part of a collection that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// All of it is closed.
    Collection,
    /// An index, by its name, is closed.
    Index(String),
    /// The validator cannot be used.
    Validator,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage {
            namespace, reason, ..
        } = self;
        match &self.what {
            Damaged::Collection => write!(f, "collection {namespace} is damaged: {reason}"),
            Damaged::Index(name) => {
                write!(f, "index '{name}' of {namespace} is damaged: {reason}")
            }
            Damaged::Validator => {
                write!(f, "the validator of {namespace} is damaged: {reason}")
            }
        }
    }
}

impl Damage {
    /// The error for operations that need the closed part: 301 DataCorruptionDetected.
    pub fn to_error(&self) -> Error {
        let remedy = match self.what {
            Damaged::Collection => {
                "Drop it, or stop the server and run `muniment doctor --repair-catalog`, which keeps \
                 its documents"
            }
            Damaged::Index(_) => "Drop it, and build it again",
            Damaged::Validator => "Set another with collMod",
        };
        let what = self.to_string();
        let what = what.trim_end_matches('.');
        Error::new(Code::DataCorruptionDetected, format!("{what}. {remedy}"))
    }
}

impl Store {
    /// All damage in the store.
    pub fn damages(&self) -> Vec<Damage> {
        let catalog = &self.inner.catalog;
        let all = catalog.those(catalog.lists.all_hurt());
        let mut found: Vec<Damage> = all.iter().flat_map(|c| c.damages()).collect();
        found.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        found
    }
}

impl Collection {
    /// All damage of this collection.
    pub fn damages(&self) -> Vec<Damage> {
        if !self.hurt.load(SeqCst) {
            return Vec::new();
        }
        let damage = |what, reason: &str| Damage {
            namespace: self.namespace(),
            what,
            reason: reason.to_string(),
        };
        let health = self.health.lock();
        let unbuilt = self.lacks_ids().then_some(UNBUILT);
        let closed = health.closed.as_deref().or(unbuilt);
        let validator = health.validator.as_deref();
        let mut found: Vec<Damage> = closed
            .map(|reason| damage(Damaged::Collection, reason))
            .into_iter()
            .chain(validator.map(|reason| damage(Damaged::Validator, reason)))
            .collect();
        for index in self.all_indexes().iter() {
            let what = || Damaged::Index(index.spec().name.clone());
            found.extend(index.damage().map(|reason| damage(what(), reason)));
        }
        found
    }

    /// Whether it can be used.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected if it is closed.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        match self.hurt.load(Relaxed) {
            false => Ok(()),
            true => self.check(|what| *what == Damaged::Collection),
        }
    }

    /// Whether its validator can be used.
    ///
    /// # Errors
    /// 301.
    pub fn check_validator(&self) -> Result<()> {
        self.check(|what| *what == Damaged::Validator)
    }

    #[cold]
    fn check(&self, concerns: impl Fn(&Damaged) -> bool) -> Result<()> {
        match self.damages().iter().find(|d| concerns(&d.what)) {
            Some(damage) => Err(damage.to_error()),
            None => Ok(()),
        }
    }

    /// The error for inserts and updates while an index is closed that should keep keys unique.
    pub(crate) fn refuses(&self) -> Option<Error> {
        if !self.hurt.load(Relaxed) {
            return None;
        }
        let all = self.all_indexes();
        let index = all.iter().find(|i| i.leaves_unguarded())?;
        let why = "nothing can be inserted or updated, since nobody would see a duplicate key: ";
        index.check_usable(self).err().map(|e| e.context(why))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.hurt.load(SeqCst) && (self.health.lock().closed.is_some() || self.lacks_ids())
    }

    /// True if it is closed for another reason than that `_id_` is not built.
    pub(crate) fn is_closed_for_good(&self) -> bool {
        self.hurt.load(SeqCst) && self.health.lock().closed.is_some()
    }

    /// Closes the collection.
    pub(crate) fn close(&self, reason: &str) {
        self.health.lock().closed.get_or_insert(reason.to_string());
        self.is_hurt();
    }

    /// Closes one of its indexes.
    pub(crate) fn close_index(&self, index: &Index, reason: &str) {
        index.close(reason);
        self.is_hurt();
        // The lists are made anew, because a closed index is not among those that can be read.
        self.set_indexes(self.all_indexes().to_vec());
        if index.is_id() {
            self.close(&format!("its index '_id_': {reason}"));
        }
    }

    fn is_hurt(&self) {
        self.hurt.store(true, SeqCst);
        self.lists.hurt(self.id);
        // The next cut writes the mark.
        self.touch();
        self.bump();
    }

    /// Looks anew at what is damaged, after its options or indexes have changed.
    pub(crate) fn look_at_health(&self, validator: Judged) {
        if self.all_indexes().iter().any(|i| i.is_damaged()) || self.lacks_ids() {
            self.is_hurt();
        }
        let validator = match validator {
            Judged::Same => return,
            Judged::Readable => None,
            // It is parsed without an operation: the end of an operation would make it seem unreadable.
            Judged::Unknown => self.options().validator(QueryContext::new()).err(),
        };
        if validator.is_some() {
            self.is_hurt();
        }
        if self.hurt.load(SeqCst) {
            self.health.lock().validator = validator.map(|e| e.message().to_string());
        }
    }

    /// The marks of its closed parts: keys and values of `META`. Without a value: the part is not
    /// closed.
    pub(crate) fn marks(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        if !self.hurt.load(SeqCst) {
            return Vec::new();
        }
        let closed = self.health.lock().closed.clone();
        let mut marks = vec![(keys::damaged(self.id), closed.map(String::into_bytes))];
        for index in self.all_indexes().iter() {
            let mark = index.damage().map(|why| why.as_bytes().to_vec());
            marks.extend(mark.map(|why| (keys::damaged(index.id), Some(why))));
        }
        marks
    }

    /// Opens the collection again after a repair.
    pub(crate) fn open_again(&self) {
        self.health.lock().closed = None;
        self.is_hurt();
    }
}

impl Index {
    /// Whether the index, one of this collection, can be used.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected if it is closed.
    pub fn check_usable(&self, collection: &Collection) -> Result<()> {
        let Some(reason) = self.damage() else {
            return Ok(());
        };
        let damage = Damage {
            namespace: collection.namespace(),
            what: Damaged::Index(self.spec().name.clone()),
            reason: reason.to_string(),
        };
        Err(damage.to_error())
    }
}
