//! What a member remembers beside the log, which is the same on all members: its term and vote,
//! the boundaries of terms in its log, the configuration.
//!
//! The file is written anew each time, checksummed, and renamed over the old one: it is the one or
//! the other after a crash between any two steps. It says of the log only what may run ahead of
//! it: a term's first place is here before the log has the record, so that a log never holds a
//! record whose term nobody knows.
//!
//! Must not trust the file: what is not whole is an error, never a panic and never half of it.

use crate::bytes::{Reader, Writer};
use crate::config::{Config, ConfigRecord, InForce, MemberId};
use muniment_io::{Disk, replace, whole};
use muniment_value::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name in the data directory.
pub const FILE: &str = "replication";
const MAGIC: &[u8; 8] = b"munirepl";
const VERSION: u32 = 1;
/// No state is longer; a longer file is none.
const LONGEST: u64 = 256 << 20;

/// A member's own state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalState {
    /// Which member this is.
    pub id: MemberId,
    /// The newest term it knows.
    pub term: u64,
    /// Whom it voted for in that term; 0 for nobody.
    pub vote: MemberId,
    /// A place up to which everything is committed and was durable here; there may be more.
    pub commit: u64,
    /// A place up to which everything is committed, whether or not the log has it yet. A log that
    /// has a change of the configuration stands beside a state that knows how far the changes
    /// before it are committed: otherwise a member could ask for votes by a configuration that is
    /// two changes old, whose majority need not meet the one in force.
    pub known: u64,
    /// (first place, term) of the terms in the log, both rising; the first may begin before the
    /// log does.
    pub terms: Vec<(u64, u64)>,
    /// Records of the log that change the configuration, by place.
    pub configs: BTreeMap<u64, Arc<[u8]>>,
    /// The configuration as it was in force when this was saved.
    pub in_force: InForce,
    /// Counts what this member had to give up; MongoDB's `rollbackId`.
    pub rollback_id: u64,
    /// The log has to be cut behind this place before anything else: what is there lost an
    /// election.
    pub cut: Option<u64>,
}

impl LocalState {
    /// The state of a new member before its data is a copy of the set's: it takes part in nothing,
    /// and its core says that it wants an initial sync as soon as it hears a leader.
    pub fn joining(id: MemberId) -> LocalState {
        LocalState {
            id,
            ..LocalState::default()
        }
    }

    /// The state of the member that initiates a set over a log that ends at `last` with its term:
    /// it is the only voter; those others that the configuration wants come as they catch up.
    pub fn initiate(id: MemberId, config: Config, terms: Vec<(u64, u64)>, last: u64) -> LocalState {
        let others = config.members.iter().map(|m| m.id).filter(|m| *m != id);
        let learners = others.collect();
        LocalState {
            id,
            term: terms.last().map_or(0, |(_, term)| *term),
            commit: last,
            known: last,
            terms,
            in_force: InForce {
                index: last,
                voters: BTreeSet::from([id]),
                learners,
                config,
            },
            ..LocalState::default()
        }
    }

    /// The state of a member whose data is a copy of the set's as of the committed place `last`,
    /// whose term is `term`, made of a member that led in the term `led.1`. What it has promised in
    /// elections stays; of what it does not know any more that member got the vote, or it would not have
    /// led.
    pub fn synced(
        &self,
        last: u64,
        term: u64,
        in_force: InForce,
        led: (MemberId, u64),
    ) -> LocalState {
        let (leader, newest) = (led.0, led.1.max(term));
        let vote = match newest {
            newest if self.term >= newest => self.vote,
            newest if led.1 == newest => leader,
            _ => 0,
        };
        LocalState {
            id: self.id,
            term: self.term.max(newest),
            vote,
            commit: last,
            known: last,
            // A log is never empty at 0 with a term.
            terms: (last > 0).then_some((last, term)).into_iter().collect(),
            configs: BTreeMap::new(),
            in_force,
            rollback_id: self.rollback_id,
            cut: None,
        }
    }

    /// Puts a configuration in force without asking anybody (`force: true`): all its members that
    /// have votes vote at once. **Unsafe by its nature**: two halves of a set that are both forced
    /// go on as two sets, and what was acknowledged by members that are left out may be lost. It is
    /// for a set whose majority is gone for good.
    pub fn force(&mut self, config: Config) {
        let voters = config.wanted_voters();
        let others = config.members.iter().map(|m| m.id);
        self.in_force = InForce {
            index: self.in_force.index,
            learners: others.filter(|id| !voters.contains(id)).collect(),
            voters,
            config,
        };
        // What the log still has of changes was decided by the set that is gone.
        self.configs.split_off(&(self.in_force.index + 1));
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        let numbers = [self.id, self.term, self.vote, self.commit, self.known];
        numbers.iter().for_each(|v| w.u64(*v));
        w.u64(self.rollback_id);
        w.flag(self.cut.is_some());
        w.u64(self.cut.unwrap_or_default());
        w.count(self.terms.len());
        for (first, term) in &self.terms {
            w.u64(*first);
            w.u64(*term);
        }
        w.count(self.configs.len());
        for (index, record) in &self.configs {
            w.u64(*index);
            w.run(record);
        }
        self.in_force.encode(&mut w);
        let body = w.0;
        let mut w = Writer(MAGIC.to_vec());
        w.u32(VERSION);
        w.u32(crc32c::crc32c(&body));
        w.u64(body.len() as u64);
        w.0.extend_from_slice(&body);
        w.0
    }

    /// From bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<LocalState, &'static str> {
        let mut r = Reader(bytes);
        let head = (|| {
            let magic = r.take(MAGIC.len())?;
            Some((magic, r.u32()?, r.u32()?, r.u64()?))
        })();
        let (magic, version, crc, len) = head.ok_or("it is too short")?;
        if magic != MAGIC {
            return Err("it is no such file");
        }
        if version != VERSION {
            return Err("it was written by another version");
        }
        if len != r.0.len() as u64 || crc32c::crc32c(r.0) != crc {
            return Err("its checksum does not fit");
        }
        decode_body(&mut r).ok_or("it contradicts itself")
    }
}

fn decode_body(r: &mut Reader<'_>) -> Option<LocalState> {
    let mut state = LocalState {
        id: r.u64()?,
        term: r.u64()?,
        vote: r.u64()?,
        commit: r.u64()?,
        known: r.u64()?,
        rollback_id: r.u64()?,
        ..LocalState::default()
    };
    let (some, cut) = (r.flag()?, r.u64()?);
    state.cut = some.then_some(cut);
    for _ in 0..r.count(16)? {
        let (first, term) = (r.u64()?, r.u64()?);
        let rises = |(f, t): &(u64, u64)| *f < first && *t < term;
        if !state.terms.last().is_none_or(rises) || first == 0 || term == 0 || term > state.term {
            return None;
        }
        state.terms.push((first, term));
    }
    for _ in 0..r.count(12)? {
        let (index, record) = (r.u64()?, r.run()?);
        ConfigRecord::decode(record)?;
        state.configs.insert(index, record.into());
    }
    state.in_force = InForce::decode(r)?;
    r.end()?;
    let ordered = state.in_force.index <= state.known && state.commit <= state.known;
    (state.id != 0 && ordered).then_some(state)
}

/// The file of a data directory.
#[derive(Clone)]
pub struct StateFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl StateFile {
    /// The one in `dir`.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> StateFile {
        StateFile {
            disk,
            dir: dir.to_path_buf(),
        }
    }

    /// Reads it; `None` if the directory belongs to no set.
    ///
    /// # Errors
    /// The disk's, and a damaged file.
    pub fn read(&self) -> Result<Option<LocalState>> {
        let path = self.dir.join(FILE);
        let bytes = match whole(&*self.disk, &path, LONGEST) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("reading", &path, &e)),
        };
        let state = LocalState::decode(&bytes);
        state
            .map(Some)
            .map_err(|why| Error::internal(format!("{} is damaged: {why}", path.display())))
    }

    /// Writes it. When this has returned, the state is there after any crash; when it failed, the
    /// old one or the new one is, and the member must not go on as if it were either.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, state: &LocalState) -> Result<()> {
        replace(&*self.disk, &self.dir, FILE, &state.encode())
            .map_err(|e| failed("writing", &self.dir.join(FILE), &e))
    }

    /// Removes it: the directory belongs to no set any more.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&self) -> Result<()> {
        let path = self.dir.join(FILE);
        match self.disk.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("removing", &path, &e)),
            _ => self
                .disk
                .sync_dir(&self.dir)
                .map_err(|e| failed("removing", &path, &e)),
        }
    }
}

fn failed(doing: &str, path: &Path, e: &io::Error) -> Error {
    let code = match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::OutOfDiskSpace,
        _ => Code::InternalError,
    };
    Error::new(code, format!("{doing} {}: {e}", path.display()))
}
