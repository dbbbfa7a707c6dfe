//! The one log. It is the journal, and will be the oplog and the raft log.
//!
//! Must not know trees, BSON or commands: a payload is bytes. One [`Log`] at a time may have a
//! directory open; the caller sees to that.
//!
//! # What it promises
//! - Records have indexes from 1 without gaps and rising timestamps. After any crash the log is a
//!   prefix of what was appended, and everything up to [`Log::durable`] is in it.
//! - A failed fsync is final. What was not durable is never acknowledged later, waiters get the
//!   error, `append` refuses. Only opening the log anew goes on, and it does not trust the page
//!   cache: what was read, passed its checksum and is not known to be on the disk is *written
//!   again* in its place and synced before `open` returns.
//! - A damaged place is reported with file and offset (301), never guessed over. What a power cut
//!   may do to writes that were not synced is not damage: it is cut off.
//! - An append whose write failed was not appended: the next record takes its index, in a new
//!   segment that says where the old one ends. Only if the disk wrote all of what it refused, and
//!   the process ends before anything else is appended, or the machine before anything else was
//!   made durable, is the failed record found to be there after all. A process that opens the log
//!   anew says what its last record was ([`LogOptions::until`]).
//!
//! Honest limits. A damaged record that was synced is told from a torn one by what later records
//! say (see *Torn or damaged*). So damage that befalls the very last sync's records between a
//! crash and the next open passes for a torn tail. Missing files are found by the gap that they
//! leave, except the newest ones if the note about them in their predecessor did not reach the
//! disk, and all of them at once (the caller can compare [`Log::last`] with what it has). Oldest
//! ones are missed only if records later than `from` were in them, since older ones may have been
//! trimmed. The caller must not make anything durable elsewhere that the log is not durable for:
//! records up to `from` are taken to have been synced.
//!
//! # Files
//! All numbers are little-endian, all checksums CRC-32C. `NNNNNNNN.log` is a segment, `.free` one
//! that waits to be used again, `.tmp` one that is being made, `.lost` what was put aside by
//! `accept_data_loss`. Numbers rise and are never used again.
//!
//! A segment is made ahead of need, by a thread of the log's own, when the one in use is half
//! full: filled with zeros (in writes of 16 KiB: larger ones make large folios, and small writes
//! into those are slow; and synced after each MiB, since the disk is kept from other syncs
//! meanwhile) or taken from the free ones, given a header, synced, renamed, and its directory
//! synced. So a full disk shows here, not in an append, and a header is never torn:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `MUNIMLOG` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | checksum of these 512 bytes with zeros here |
//! | 16 | 8 | the number in the file's name |
//! | 24 | 8 | salt: random, new with every use of the file |
//! | 32 | 8 | size of the file |
//! | 40 | 472 | zeros |
//!
//! Then records, each at a multiple of 8:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | checksum of the salt and of the other 36 bytes of this header |
//! | 4 | 4 | length of the payload; bit 31: a *begin*, bit 30: a *mark* |
//! | 8 | 4 | checksum of the payload |
//! | 12 | 4 | index minus the index known to be durable when this was written; all ones: unknown |
//! | 16 | 8 | index |
//! | 24 | 8 | term |
//! | 32 | 8 | timestamp |
//!
//! The salt makes sure that records from an earlier use of the file are nothing.
//!
//! A *begin* is the first record of every segment, written when the segment is taken into use,
//! with index, term and timestamp of the last record before it. Payload: ordinal (8), generation
//! (8), durable index (8), number of the segment before (8). Ordinals count segments in order
//! without gaps. Generations rise with every begin that was ever tried; a segment stands for
//! all of lower generations with its ordinal or above. A segment ends where the next one's begin
//! says, whatever follows it. This is how a tail is cut: by a begin that is synced. So are whole,
//! durable records that the log is to lose ([`LogOptions::cut_behind`]): until that begin is on the
//! disk they are all there, from then on none of them is.
//!
//! A *mark* is written into the last 48 bytes of a segment, which records leave free, when the log
//! was idle for a while, when it is closed, and once the next segment has been synced. It has the
//! last record's index, term and timestamp, and says what is durable (payload, 8 bytes): that may
//! be more than the records say.
//!
//! A payload that does not fit into a segment gets one of its own size. It is written and synced
//! before the log's lock is taken; under the lock only begin and record header are written.
//!
//! # Torn or damaged
//! Writes that were not synced survive a power cut in any order, in sectors. So a bad place with
//! valid records after it is no damage by itself. But everything says how far the log was durable
//! when it was written, and that was true. The first bad place is where reading ends, at index
//! `g`; if anything valid before or after it (records under the salt, whatever their payload;
//! begins; marks; in this and all later files) says that more than `g` was durable, a durable
//! record is damaged or missing. Else everything after it was never promised, and is cut off.
//!
//! # Locks
//! In this order: `tail` (append, roll), `trim`, `order`, `unsynced`, `spare`, `free`. The group's
//! lock is held over none of them. The log's thread only *tries* to take `tail`, whose holder may
//! wait for it. No fdatasync of records runs under any lock but `trim`.

#![warn(unreachable_pub)]

mod format;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod large;
mod log;
mod reader;
mod ready;
mod recover;
mod segment;
mod spare;

pub use format::MAX_PAYLOAD;
pub use log::{Keep, Log, LogOptions, LogStats};
pub use reader::Reader;
pub use ready::Ready;

use muniment_io::Timestamp;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number, from 1 without gaps.
    pub index: u64,
    /// The term of the member that appended it.
    pub term: u64,
    /// Its timestamp, later than that of the record before.
    pub at: Timestamp,
    /// What was appended.
    pub payload: &'a [u8],
}

/// A record whose payload may be shared with other readers.
pub struct SharedRecord {
    /// As of [`Record`].
    pub index: u64,
    /// As of [`Record`].
    pub term: u64,
    /// As of [`Record`].
    pub at: Timestamp,
    /// What was appended.
    pub payload: bytes::Bytes,
}

/// What is kept for as long as a large record is in memory: the caller's booking of that memory.
pub type Weight = Box<dyn Send + Sync>;

/// Asked before a large record is read.
pub type Weigh<'w> = &'w dyn Fn(usize) -> muniment_value::Result<Weight>;

/// A position in the log: the last record before some place. All zeros before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// That record's index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Its timestamp.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests;
