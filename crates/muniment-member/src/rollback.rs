//! The files in which a member keeps what it rolls back: of every collection the documents that its
//! rolled back records made or changed, and that no other member had, as they stood. `bsondump` and
//! `mongorestore` read them, as they read MongoDB's.
//!
//! Invariant: the files are on the disk before anything is rolled back.

use bytes::Bytes;
use muniment_exec::Database;
use muniment_io::{Disk, Machine, Open};
use muniment_storage::{Store, Timestamp};
use muniment_value::{Error, Result, uuid_text};
use std::path::Path;

/// The folder of the files, below the data directory.
const FOLDER: &str = "rollback";

/// Writes what is lost when the log is cut after the record `index`; returns the files, and how many
/// documents are in them. `dbpath`: the data directory, below which they are.
///
/// # Errors
/// The log's and the disk's.
pub fn write(
    engine: &Database,
    machine: &Machine,
    dbpath: &Path,
    index: u64,
) -> Result<(Vec<String>, usize)> {
    let after = timestamp_of(&engine.store, index)?;
    let undone = engine.undone_by_giving_up(after)?;
    let folder = dbpath.join(FOLDER);
    let (mut files, mut documents) = (Vec::new(), 0);
    for (uuid, docs) in undone {
        let of = folder.join(uuid_text(&uuid));
        let path = of.join(format!("removed.{}.bson", stamp(machine.clock.now_ms())));
        files.push(path.to_string_lossy().into_owned());
        documents += docs.len();
        if let Err(e) = write_file(&*machine.disk, &path, &docs, dbpath) {
            // The next attempt writes all of them anew, and needs the room that these take.
            for file in &files {
                let _ = machine.disk.remove(Path::new(file));
            }
            return Err(Error::from(e).context(&format!("cannot write below {}: ", of.display())));
        }
    }
    Ok((files, documents))
}

/// Writes documents into a file two folders below `dbpath`, durably.
fn write_file(disk: &dyn Disk, path: &Path, docs: &[Bytes], dbpath: &Path) -> std::io::Result<()> {
    let folders: Vec<&Path> = path.ancestors().skip(1).take(2).collect();
    if let Some(folder) = folders.first() {
        disk.create_dir(folder)?;
    }
    let file = disk.open(path, Open::Create)?;
    let mut end = 0;
    for d in docs {
        file.write_at(d, end)?;
        end += d.len() as u64;
    }
    file.sync()?;
    let mut folders = folders.into_iter().chain([dbpath]);
    folders.try_for_each(|dir| disk.sync_dir(dir))
}

/// The timestamp of the record with this index; zero if there is no such record.
fn timestamp_of(store: &Store, index: u64) -> Result<Timestamp> {
    // The log of a member that was filled begins after the place of the copy.
    let begins = store.log_begins_behind()?;
    if begins.index == index {
        return Ok(begins.at);
    }
    let Some(before) = index.checked_sub(1) else {
        return Ok(Timestamp::ZERO);
    };
    let mut records = store.records_behind(before)?;
    Ok(records.next()?.map_or(Timestamp::ZERO, |r| r.at))
}

/// A time as it stands in a file's name: without colons, which some file systems do not take.
fn stamp(ms: i64) -> String {
    muniment_logger::iso8601(ms).replace(':', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_uuids_and_times() {
        let uuid = [0x12; 16];
        assert_eq!(uuid_text(&uuid), "12121212-1212-1212-1212-121212121212");
        assert!(!stamp(1_700_000_000_000).contains(':'));
    }
}
