//! The state that a member remembers outside the log: its term and vote, the boundaries of terms in its log,
//! and the configuration. The log cannot hold these, because its records are the same on all members.
//!
//! Each time, the whole file is written anew, with a checksum, and renamed over the old one, so after a crash
//! between any two steps it is the old one or the new one. It may be ahead of the log: the first place of a
//! term is in the file before the log has that record, so that a log never holds a record whose term is not
//! known.
//!
//! Must not trust the file: a damaged one is an error, never a panic, and is never read in part.

use crate::bytes::{Reader, Writer};
use crate::config::{Config, ConfigRecord, InForce, MemberId};
use muniment_io::{Disk, Open, replace, whole};
use muniment_value::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name in the data directory.
pub const FILE: &str = "replication";
const MAGIC: &[u8; 8] = b"munirepl";
const VERSION: u32 = 1;
/// The version of a file that has [`LocalState::waits`]. It is written only while the member waits, so that
/// an older version of Muniment can read the file at other times.
const VERSION_WAITS: u32 = 2;
/// A file that reserves room on the disk for the next state.
const ROOM: &str = "replication.room";
/// The least size of that file, in bytes.
const LEAST_ROOM: usize = 64 << 10;
/// The longest state in bytes. A longer file is not read.
const LONGEST: u64 = 256 << 20;

/// A member's own state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalState {
    /// The number of this member.
    pub id: MemberId,
    /// The newest term it knows.
    pub term: u64,
    /// The member that it voted for in that term; 0: none.
    pub vote: MemberId,
    /// A place up to which everything is committed and was durable here. More may be.
    pub commit: u64,
    /// A place up to which everything is committed, whether or not the log has it yet. If the log has a
    /// change of the configuration, the state knows that the changes before it are committed. Otherwise a
    /// member could ask for votes by a configuration that is two changes old, whose majority need not overlap
    /// with that of the one in force.
    pub known: u64,
    /// Pairs of first place and term for the terms of the log, both rising. The first term may begin before
    /// the log does.
    pub terms: Vec<(u64, u64)>,
    /// The log's records that change the configuration, by place.
    pub configs: BTreeMap<u64, Arc<[u8]>>,
    /// The configuration that was in force when this was saved.
    pub in_force: InForce,
    /// How often this member had to give up records, which is MongoDB's `rollbackId`.
    pub rollback_id: u64,
    /// The place after which the log has to be cut before anything else happens: the leader that was elected
    /// does not have the records after it.
    pub cut: Option<u64>,
    /// The wait of a member that had nothing, and was given a copy before everything was committed that it
    /// may have acknowledged. Until the wait ends it neither votes nor stands for election. See `core::anew`.
    pub waits: Option<Wait>,
}

/// The wait of a member that was filled before everything was committed that it may have acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The wait ends when everything up to this place is committed.
    pub place: u64,
    /// It also ends with a committed record of a later term than this one, in which the member was filled.
    pub term: u64,
    /// Whether the member votes meanwhile, because a configuration was forced. It still does not stand for
    /// election.
    pub votes: bool,
}

impl Wait {
    /// Whether the wait is over for a member that has everything up to the place `committed`, with a record
    /// of `term` there.
    pub fn ends(&self, committed: u64, term: Option<u64>) -> bool {
        committed >= self.place || term.is_some_and(|term| term > self.term)
    }
}

impl LocalState {
    /// The state of a new member before its data is a copy of the set's. Such a member takes part in nothing,
    /// and its core asks for an initial sync as soon as it hears from a leader.
    pub fn joining(id: MemberId) -> LocalState {
        LocalState {
            id,
            ..LocalState::default()
        }
    }

    /// The state of the member that initiates a set over a log that ends at `last`, with the terms of that
    /// log. This member is the only voter at first; the other members of the configuration become voters as
    /// they catch up.
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

    /// The state of a member whose data is a copy of the set's as of the committed place `last`, which has
    /// the term `term`. The copy was made from the member `led.0`, which led in the term `led.1`. The
    /// promises of this member in elections stay valid. If it may have forgotten one, that member got the
    /// vote, since it would not have led otherwise. `waits` is the place of the wait ([`LocalState::waits`]),
    /// or 0 for none; an earlier wait stays valid, too.
    pub fn synced(
        &self,
        last: u64,
        term: u64,
        in_force: InForce,
        led: (MemberId, u64),
        waits: u64,
    ) -> LocalState {
        let (leader, newest) = (led.0, led.1.max(term));
        let vote = match newest {
            newest if self.term > newest => self.vote,
            newest if self.term == newest && self.vote != 0 => self.vote,
            // This member may have voted in this term, and have lost that with its directory.
            newest if led.1 == newest => leader,
            _ => 0,
        };
        let begins = (waits > 0).then_some(Wait {
            place: waits,
            term: led.1,
            votes: false,
        });
        let waits = match (self.waits, begins) {
            (Some(old), Some(new)) => Some(Wait {
                place: old.place.max(new.place),
                term: old.term.max(new.term),
                votes: old.votes,
            }),
            (old, new) => old.or(new),
        };
        LocalState {
            id: self.id,
            term: self.term.max(newest),
            vote,
            commit: last,
            known: last,
            // A log that ends at 0 has no term.
            terms: (last > 0).then_some((last, term)).into_iter().collect(),
            configs: BTreeMap::new(),
            in_force,
            rollback_id: self.rollback_id,
            cut: None,
            waits: waits.filter(|waits| !waits.ends(last, Some(term))),
        }
    }

    /// Puts a configuration in force without asking other members (`force: true`). All its members that have
    /// votes vote at once, except new ones, which have nothing yet: they vote when they have caught up, since
    /// otherwise it could be that no member can be elected. A configuration that was forced on another member
    /// names its voters itself. **Unsafe by its nature**: if both halves of a set are forced they continue as
    /// two sets, and writes that were acknowledged by the members left out may be lost. It is for a set whose
    /// majority is gone for good.
    pub fn force(&mut self, mut config: Config) {
        let known = |id| self.in_force.config.member(id).is_some();
        let told = config.forced_voters();
        let elsewhere = told.is_some();
        let mut voters = told.unwrap_or_else(|| config.voters_among(known));
        if voters.is_empty() {
            voters = config.wanted_voters();
        }
        // A member that was alone and stays so need tell no other member. One that is alone only from now on
        // has to: its former members may come back with the old configuration.
        let known = &self.in_force;
        let mut all = known.voters.iter().chain(&known.learners);
        let alone = config.members.len() == 1
            && known.config.members.len() == 1
            && all.all(|id| config.member(*id).is_some());
        config.set_forced((!alone).then_some(&voters));
        // What this member waits for may never be committed without its vote, so it votes from now on. It
        // still waits before it stands if another voter with data may have more, unless the configuration is
        // forced on this member itself: then it is to lead with what it has.
        let with_data = |id: &MemberId| *id != self.id && !config.is_arbiter(*id);
        self.waits = match elsewhere && voters.iter().any(with_data) {
            true => self.waits.map(|waits| Wait {
                votes: true,
                ..waits
            }),
            false => None,
        };
        let others = config.members.iter().map(|m| m.id);
        self.in_force = InForce {
            index: self.in_force.index,
            learners: others.filter(|id| !voters.contains(id)).collect(),
            voters,
            config,
        };
        // The former set decided on the changes that the log still has.
        self.configs.split_off(&(self.in_force.index + 1));
    }

    /// Makes this the state of the member `id`, which has none of its own yet: the directory is that of
    /// another member, either a removed one that is added again or one whose data was copied. The promises of
    /// that member in elections do not bind this one.
    ///
    /// With `config` the data does not count, since a member of this number may have promised and
    /// acknowledged more than the data shows. It takes part in nothing before it has a copy, as with
    /// [`LocalState::joining`]. Without `config`, it continues with its log.
    pub fn renumber(&mut self, id: MemberId, config: Option<Config>) {
        self.id = id;
        self.vote = 0;
        if let Some(config) = config {
            self.waits = None;
            self.configs.clear();
            self.in_force = InForce {
                index: self.known,
                config,
                ..InForce::default()
            };
        }
    }

    /// Encodes the state.
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
        let version = match self.waits {
            None => VERSION,
            Some(waits) => {
                w.u64(waits.place);
                w.u64(waits.term);
                w.flag(waits.votes);
                VERSION_WAITS
            }
        };
        self.in_force.encode(&mut w);
        let body = w.0;
        let mut w = Writer(MAGIC.to_vec());
        w.u32(version);
        w.u32(crc32c::crc32c(&body));
        w.u64(body.len() as u64);
        w.0.extend_from_slice(&body);
        w.0
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// What is wrong with the bytes.
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
        if version != VERSION && version != VERSION_WAITS {
            return Err("it was written by another version");
        }
        if len != r.0.len() as u64 || crc32c::crc32c(r.0) != crc {
            return Err("its checksum does not fit");
        }
        decode_body(&mut r, version).ok_or("it contradicts itself")
    }
}

fn decode_body(r: &mut Reader<'_>, version: u32) -> Option<LocalState> {
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
    if version == VERSION_WAITS {
        state.waits = Some(Wait {
            place: r.u64()?,
            term: r.u64()?,
            votes: r.flag()?,
        });
    }
    state.in_force = InForce::decode(r)?;
    r.end()?;
    let ordered = state.in_force.index <= state.known && state.commit <= state.known;
    (state.id != 0 && ordered).then_some(state)
}

/// The state file of a data directory.
#[derive(Clone)]
pub struct StateFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl StateFile {
    /// The state file in `dir`.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> StateFile {
        StateFile {
            disk,
            dir: dir.to_path_buf(),
        }
    }

    /// Reads the state; `None` if the directory belongs to no set.
    ///
    /// # Errors
    /// Those of the disk; a damaged file.
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

    /// Writes the state. After success the new state survives any crash. After an error the file may have the
    /// old state or the new one, and the member must not continue as if it knew which.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&self, state: &LocalState) -> Result<()> {
        let bytes = state.encode();
        let put = || replace(&*self.disk, &self.dir, FILE, &bytes);
        let put = match put() {
            // Frees the room that was reserved for this: without it, a full disk would keep a primary from
            // resigning, and any member from voting.
            Err(e) if is_full(&e) && self.disk.remove(&self.dir.join(ROOM)).is_ok() => put(),
            other => other,
        };
        put.map_err(|e| failed("writing", &self.dir.join(FILE), &e))?;
        self.keep_room(bytes.len());
        Ok(())
    }

    /// Reserves room for the next state, as far as the disk has some.
    fn keep_room(&self, len: usize) {
        let path = self.dir.join(ROOM);
        let wanted = (2 * len).next_multiple_of(LEAST_ROOM);
        let kept = self.disk.open(&path, Open::Read).and_then(|f| f.len());
        if kept.is_ok_and(|kept| kept >= wanted as u64) {
            return;
        }
        // The file has no zeros, because some disks do not store them.
        let file = self.disk.open(&path, Open::Create);
        if file.and_then(|f| f.write_at(&vec![1; wanted], 0)).is_err() {
            // The file is removed, because it may be shorter than was asked for. The next write tries again.
            let _ = self.disk.remove(&path);
        }
    }

    /// Removes the state, because the directory no longer belongs to a set.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(&self) -> Result<()> {
        let path = self.dir.join(FILE);
        match self.disk.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("removing", &path, &e)),
            _ => {
                // An error does not matter: the file has no information.
                let _ = self.disk.remove(&self.dir.join(ROOM));
                self.disk
                    .sync_dir(&self.dir)
                    .map_err(|e| failed("removing", &path, &e))
            }
        }
    }
}

fn is_full(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn failed(doing: &str, path: &Path, e: &io::Error) -> Error {
    let code = match is_full(e) {
        true => Code::OutOfDiskSpace,
        false => Code::InternalError,
    };
    Error::new(code, format!("{doing} {}: {e}", path.display()))
}
