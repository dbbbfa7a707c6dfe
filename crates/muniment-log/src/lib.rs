//! The log. It is the journal, the oplog and the log of the consensus.
//!
//! It must not know trees, BSON or commands: a payload is bytes. The caller ensures that at most one [`Log`]
//! has a directory open.
//!
//! # What it promises
//! - Records have indexes from 1 without gaps and rising timestamps. After any crash the log is a prefix of
//!   what was appended, and everything up to [`Log::durable`] is in it.
//! - A failed fsync is final. Records that were not durable are never acknowledged later, waiting threads get
//!   the error, and `append` refuses. Only opening the log again helps, and that does not trust the page
//!   cache: records that can be read, pass their checksum and are not known to be on disk are *written again*
//!   in their place and synced before `open` returns.
//! - Damage is reported with file and offset (301), never guessed over. The effects that a power cut may have
//!   on writes that were not synced are no damage: such a tail is cut off.
//! - An append whose write failed was not appended: the next record takes its index, in a new segment that
//!   says where the old one ends. The failed record is found in the log only if the disk wrote all of it in
//!   spite of the error, and if either the process ends before anything else is appended, or the machine
//!   stops before anything else is made durable. A process that opens its log again tells it the last record
//!   ([`LogOptions::until`]).
//!
//! The limits are these. A damaged record that was synced is told from a torn one by what later records say
//! (see *Torn or damaged*). So damage to the records of the very last sync, between a crash and the next
//! open, looks like a torn tail. Missing files are found by the gap that they leave. The exceptions are the
//! newest files, if the note about them in their predecessor did not reach the disk, and all files at once
//! (the caller can compare [`Log::last`] with what it has).
//!
//! Missing oldest files are noticed only if they had records later than `from`, since older ones may have
//! been trimmed. The caller must not make anything durable elsewhere that depends on records which are not
//! durable here: records up to `from` are taken to have been synced.
//!
//! # Files
//! All numbers are little-endian, all checksums CRC-32C. `NNNNNNNN.log` is a segment, `.free` a file that
//! waits to be reused, `.tmp` one that is being made, `.lost` one that `accept_data_loss` has put aside.
//! Numbers rise and are never reused.
//!
//! A thread of the log makes each segment ahead of need, when the current one is half full. The file is
//! filled with zeros or taken from the free ones, given a header, synced and renamed, and its directory
//! synced. So a full disk shows here and not in an append, and a header is never torn. The zeros are written
//! in pieces of 16 KiB, since larger writes make large folios, into which small writes are slow. They are
//! synced after each MiB, because one long sync would delay the syncs of records. The header:
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
//! Because of the salt, records from an earlier use of the file are not valid.
//!
//! A *begin* is the first record of every segment, written when the segment is taken into use, with index,
//! term and timestamp of the last record before it. Its payload is the ordinal (8), the generation (8), the
//! durable index (8) and the number of the segment before (8). Ordinals count segments in order without gaps.
//! Generations rise with every begin that was ever tried; a segment replaces all segments of lower
//! generations with its ordinal or a higher one.
//!
//! A segment ends where the next one's begin says, whatever follows in its file. This is how a tail is cut:
//! by a begin that is synced. Whole, durable records that the log is to lose ([`LogOptions::cut_behind`]) are
//! cut in the same way: until that begin is on disk all of them are there, and from then on none of them is.
//!
//! A *mark* is written into the last 48 bytes of a segment, which records leave free: when the log was idle
//! for a while, when it is closed, and after the next segment was synced. It has the last record's index,
//! term and timestamp, and its payload (8 bytes) says up to where the log is durable, which may be further
//! than the records say.
//!
//! A payload that does not fit into a segment gets a segment of its own size. It is written and synced before
//! the log's lock is taken; only the begin and the record's header are written under the lock.
//!
//! # Torn or damaged
//! Writes that were not synced survive a power cut in any order, in sectors. So a bad place with valid
//! records after it is no damage by itself. But every record, begin and mark says how far the log was durable
//! when it was written, and that was true. Reading ends at the first bad place, after index `g`. If anything
//! valid before or after that place (records with the right salt, whatever their payload; begins; marks; in
//! this and all later files) says that more than `g` was durable, a durable record is damaged or missing.
//! Otherwise everything after the place was never acknowledged, and is cut off.
//!
//! # Locks
//! They are taken in this order: `tail` (append, roll), `trim`, `order`, `unsynced`, `spare`, `free`. None of
//! them is taken while the group's lock is held. The log's thread only *tries* to take `tail`, because the
//! thread that holds it may wait for the log's thread. No fdatasync of records runs under any lock but
//! `trim`.

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
    /// The record's number, from 1 without gaps.
    pub index: u64,
    /// The term of the member that appended it.
    pub term: u64,
    /// Its timestamp, later than that of the record before.
    pub at: Timestamp,
    /// The bytes that were appended.
    pub payload: &'a [u8],
}

/// A record whose payload may be shared with other readers.
pub struct SharedRecord {
    /// As in [`Record`].
    pub index: u64,
    /// As in [`Record`].
    pub term: u64,
    /// As in [`Record`].
    pub at: Timestamp,
    /// The bytes that were appended.
    pub payload: bytes::Bytes,
}

/// Kept for as long as a large record is in memory: the caller's booking of that memory.
pub type Weight = Box<dyn Send + Sync>;

/// Called before a large record is read, with its size. An error refuses the read.
pub type Weigh<'w> = &'w dyn Fn(usize) -> muniment_value::Result<Weight>;

/// A position in the log: the last record before some place. All zeros before the first record.
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
