//! An open store as its parts, which the store's own threads and its users share.
//!
//! Each part has a file of its own, which states what holds of it. A function takes the part that it
//! needs. Functions that need several parts, because they carry a commit from the door to the readers,
//! are methods of [`Inner`] in the file of their subject.

use crate::admission::Admission;
use crate::catalog::Catalog;
use crate::commit::door::Door;
use crate::commit::ops;
use crate::cuts::Cuts;
use crate::follow::Followed;
use crate::home::Home;
use crate::journal::Journal;
use crate::leftovers::Leftovers;
use crate::lockfile::DirLock;
use crate::options::{Budget, StoreOptions};
use crate::places::Places;
use crate::retention::{Retention, Window};
use crate::space::{SpaceGuard, disk_space, part_of};
use crate::store::{damaged, position};
use crate::transaction::{Prepared, Writes};
use crate::unit::Units;
use crate::view::Snapshot;
use crate::watch::{UntilClosed, Watch};
use muniment_io::{Disk, Space, Timestamp};
use muniment_log::{Log, LogOptions, Position};
use muniment_op::Interrupt;
use muniment_tree::{Direction, Range, TreeId, Trees};
use muniment_value::Result;
use std::sync::Arc;

/// The parts of an open store. Their order matters at the end: see `home`.
pub(crate) struct Inner {
    /// The versions that the log's records have written, by key.
    pub trees: Arc<dyn Trees>,
    /// The log.
    pub journal: Journal,
    /// Gives commits their order: one thread at a time passes it.
    pub door: Door,
    /// The collections and indexes that exist.
    pub catalog: Catalog,
    /// The latches and numbers that write units share.
    pub units: Units,
    /// The prepared transactions, which other members of the cluster will decide.
    pub prepared: Prepared<Writes>,
    /// Lets a cut or fsyncLock keep all commits out.
    pub cuts: Cuts,
    /// Says how long old versions and old records are kept.
    pub retention: Retention,
    /// Wakes the threads that wait for the store.
    pub watch: Watch,
    /// Refuses writes before the disk is full.
    pub space: SpaceGuard,
    /// Slows commits down, and refuses them.
    pub admission: Admission,
    /// The records that another member has sent.
    pub followed: Followed,
    /// What operations could not clear away when they ended.
    pub leftovers: Leftovers,
    /// The directory, its lock, the machine and the memory. This is the last field because fields are
    /// dropped in order: the end of the log still writes, and the directory's lock must be held until
    /// that is done.
    pub home: Home,
}

impl Inner {
    /// Opens catalog and log over the trees.
    pub fn recover(
        options: &StoreOptions,
        disk: Arc<dyn Disk>,
        trees: Arc<dyn Trees>,
        budget: Budget,
        lock: Option<DirLock>,
    ) -> Result<Arc<Inner>> {
        let space = match trees.is_durable() {
            true => disk_space(&*disk, &options.path),
            false => Space::UNKNOWN,
        };
        let log_options = log_options(options, &disk, space, trees.is_durable());
        let cut = trees.persisted();
        if options.member {
            // Views at the commit point read what was there before the cut, because the records after
            // the cut may be given up again.
            trees.set_committed(cut);
            trees.views().keep_from(cut);
        }
        let home = Home::new(options, disk, budget, lock);
        let window = Window::of(trees.is_durable(), space);
        let mut inner = Inner {
            journal: Journal::new(log_options.clone(), &home.path),
            door: Door::new(Position::default(), None, 0),
            catalog: Catalog::default(),
            units: Units::new(options.key_limits),
            prepared: Prepared::new(&home.ledger),
            cuts: Cuts::new(!trees.is_durable()),
            retention: Retention::new(&*home.clock, cut, window),
            watch: Watch::default(),
            space: SpaceGuard::new(home.disk.clone(), &home.path),
            admission: Admission::new(),
            followed: Followed::default(),
            leftovers: Leftovers::default(),
            trees,
            home,
        };
        inner.load_catalog()?;
        inner.load_prepared()?;
        inner.apply_log(options, log_options)?;
        if !inner.door.is_closed() {
            inner.hold_prepared(&UntilClosed(&inner.watch))?;
        }
        Ok(Arc::new(inner))
    }

    /// Opens the log and applies what follows the trees' cut.
    fn apply_log(&mut self, options: &StoreOptions, log_options: LogOptions) -> Result<()> {
        let cut = self.trees.persisted();
        let mut newer = Vec::new();
        let log_options = LogOptions {
            cut_behind: options.cut_behind,
            ..log_options
        };
        let log = Log::open(log_options, cut, &mut |record| {
            self.apply(record.at, record.payload)?;
            self.trees.views().advance(record.at);
            if options.member {
                newer.push(position(&record));
            }
            Ok(())
        })?;
        let end = log.last();
        let last = end.at;
        if last < cut && self.trees.is_durable() && !options.accept_data_loss {
            return Err(damaged(
                &self.home.path,
                &format!(
                    "the log ends at {last}, but the trees were written up to {cut}, which the \
                     log was durable for: its end is missing. Restore a backup, or start with \
                     --acceptDataLoss"
                ),
            ));
        }
        let last = Position {
            at: last.max(cut),
            ..end
        };
        self.trees.views().advance(last.at);
        let places = match options.member {
            true => Some(places_of(&log, &newer)?),
            false => None,
        };
        let wall = match options.member {
            true => wall_of_last(&log, last),
            false => 0,
        };
        let committed = places.as_ref().map_or(last.at, |p| p.committed().at);
        let clock = &*self.home.clock;
        self.retention.begin(clock, last.at, committed, wall);
        self.door = Door::new(last, places, wall);
        if options.member {
            self.note_marked();
        }
        self.journal.set(log);
        Ok(())
    }

    pub fn snapshot(&self) -> Snapshot {
        if self.watch.is_closed() {
            return Snapshot::new(None);
        }
        Snapshot::new(Some((self.trees.views().open(), self.trees.clone())))
    }

    /// The greatest key of a tree, among those that exist or that an open view may still see. Empty if
    /// the tree has none.
    pub fn greatest_key(&self, tree: u32, operation: &dyn Interrupt) -> Result<Vec<u8>> {
        let mut greatest = Vec::new();
        for at in [self.trees.views().oldest(), Timestamp::MAX] {
            let all = Range::default();
            let mut keys = self
                .trees
                .cursor(TreeId(tree), all, at, Direction::Backward);
            if let Some((key, _)) = keys.next(operation)?.filter(|(k, _)| **k > *greatest) {
                greatest = key.to_vec();
            }
        }
        Ok(greatest)
    }

    /// Syncs the log at every commit interval, until the store closes.
    pub fn sync_loop(&self) {
        while !self.watch.pause(self.journal.interval()) {
            self.journal.sync_if_dirty();
            self.mind_the_log();
        }
    }
}

/// The options with which the log of a store is opened.
fn log_options(
    options: &StoreOptions,
    disk: &Arc<dyn Disk>,
    space: Space,
    durable: bool,
) -> LogOptions {
    LogOptions {
        accept_data_loss: options.accept_data_loss,
        background: options.machine.threads,
        // A record that does not fit into a segment is synced while it is written, so a segment on disk
        // holds the largest document and what is staged beside it. A log in memory has no such syncs. A
        // start reads a whole segment at once, so its size is also bounded by that of the cache.
        segment_bytes: match durable {
            // Segments are small enough that the log has several of them: only whole segments can be
            // trimmed.
            true => part_of(space, options.cache_bytes.saturating_mul(2).min(32 << 20)),
            false => options.cache_bytes.min(4 << 20),
        },
        disk: disk.clone(),
        ..LogOptions::new(&options.path.join("log"))
    }
}

/// The places of a member whose trees have applied `newer`, while the trees' files hold only what is
/// before that.
fn places_of(log: &Log, newer: &[Position]) -> Result<Places> {
    let base = match newer.first() {
        None => log.last(),
        Some(first) if first.index == log.first_index() => log.begins_behind(),
        Some(first) => {
            let mut reader = log.reader_at(first.index.saturating_sub(2))?;
            let before = reader.next()?;
            before.as_ref().map(position).unwrap_or_default()
        }
    };
    let mut places = Places::new(base, base);
    newer.iter().for_each(|p| places.push(*p));
    Ok(places)
}

/// The wall clock that the last record of the log carries. If the log no longer has that record, the
/// record's timestamp serves instead.
fn wall_of_last(log: &Log, last: Position) -> i64 {
    let mut reader = log.reader_at(last.index.saturating_sub(1)).ok();
    let record = reader.as_mut().and_then(|r| r.next().ok().flatten());
    match record.filter(|record| record.at == last.at) {
        Some(record) => ops::wall_of(&record),
        None => i64::from(last.at.seconds()) * 1000,
    }
}
