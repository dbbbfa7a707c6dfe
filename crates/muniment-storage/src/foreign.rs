//! Finds files in a data directory that are not Muniment's. A server must not be started over another
//! database's files, because its data would seem to be gone.
//!
//! Invariant: nothing in the directory is changed before this check has passed.

use crate::options::EngineKind;
use muniment_value::{Error, Result};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The directories that make up the data.
const DATA: [&str; 2] = ["log", "trees"];
/// Other files that a server makes in its directory.
const OWN: [&str; 10] = [
    "FORMAT",
    "FORMAT.new",
    "_tmp",
    "initial-sync",
    "muniment.lock",
    "oplogWindow",
    "replication",
    "replication.aside",
    "replication.room",
    "rollback",
];
/// Files that may lie in any directory: those of file systems, of MongoDB's tools, and of servers that
/// have ended.
const HARMLESS: [&str; 7] = [
    "DATALOSS_WARNING_README.txt",
    "aquota.group",
    "aquota.user",
    "core",
    "diagnostic.data",
    "lost+found",
    "mongod.lock",
];
/// Endings of files that people and tools put beside the data: logs, settings, keys.
const BESIDE: [&str; 14] = [
    "cfg", "conf", "config", "crt", "err", "json", "key", "log", "out", "pem", "pid", "port",
    "sock", "yaml",
];

/// A database, recognised by files that only it has.
struct Other {
    name: &'static str,
    is: fn(&str) -> bool,
    /// It speaks MongoDB's protocol, so that MongoDB's tools can export from it.
    is_mongodb: bool,
}

const OTHERS: [Other; 5] = [
    Other {
        name: "MongoDB (WiredTiger)",
        is: |name| {
            name == "WiredTiger"
                || name.starts_with("WiredTiger.")
                || name == "storage.bson"
                || name.ends_with(".wt")
        },
        is_mongodb: true,
    },
    Other {
        name: "MongoDB (MMAPv1)",
        is: |name| name.ends_with(".ns") || name == "local.0",
        is_mongodb: true,
    },
    Other {
        name: "PostgreSQL",
        is: |name| name == "PG_VERSION",
        is_mongodb: false,
    },
    Other {
        name: "MySQL",
        is: |name| name == "ibdata1" || name.ends_with(".ibd"),
        is_mongodb: false,
    },
    Other {
        name: "SQLite",
        is: |name| name.ends_with(".sqlite") || name.ends_with(".sqlite3"),
        is_mongodb: false,
    },
];

/// Looks at a directory before it is locked. Returns the names in it that no known program writes,
/// sorted; none for a directory that is not there. `beside`: files that the server's options name,
/// which may lie in it.
///
/// # Errors
/// 28662 for another database's files, for Muniment's without their FORMAT, and for a
/// directory with other things in it that has never been one of Muniment's; if it cannot be listed.
pub fn examine(dir: &Path, engine: EngineKind, beside: &[PathBuf]) -> Result<Vec<String>> {
    let failed = |e: io::Error| Error::from(e).context(&format!("cannot list {}: ", dir.display()));
    let mut names = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(names),
        Err(e) => return Err(failed(e)),
    };
    let beside: Vec<PathBuf> = beside.iter().filter_map(|p| absolute(p)).collect();
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if absolute(&path).is_some_and(|p| beside.contains(&p)) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        // An old layout has the journal on a disk of its own, so an empty directory of that name is no
        // sign of another database.
        let is_dir = path.is_dir();
        if name == "journal" && is_dir && fs::read_dir(&path).is_ok_and(|mut d| d.next().is_none())
        {
            continue;
        }
        if is_dir {
            directories.push(name.clone());
        }
        names.push(name);
    }
    names.sort();
    for other in &OTHERS {
        if let Some(file) = names.iter().find(|name| (other.is)(name)) {
            return Err(refuse(of_another(dir, other, file)));
        }
    }
    if names.iter().any(|n| n == "journal") {
        return Err(refuse(journal_alone(dir)));
    }
    let is_ours = names.iter().any(|n| n == "FORMAT");
    let is_data = |n: &&String| DATA.contains(&n.as_str()) && directories.contains(n);
    let data = names.iter().find(is_data);
    if let Some(data) = data.filter(|_| !is_ours) {
        return Err(refuse(format!(
            "the data directory {} has lost its file FORMAT, which says how to read it, but there is \
             '{data}' in it. Where this is a copy or a backup that is not whole, make it anew. Where only \
             that file is gone, put the one of another directory of the same version of Muniment there",
            dir.display()
        )));
    }
    names.retain(|name| !is_known(name));
    let unknown = names
        .first()
        .filter(|_| !is_ours && engine == EngineKind::Lsm);
    if let Some(unknown) = unknown {
        return Err(refuse(format!(
            "{} is not a data directory of Muniment, and it is not empty: there is '{unknown}' in it{}. \
             Choose an empty directory, or one that Muniment has made",
            dir.display(),
            match names.len() {
                1 => String::new(),
                n => format!(", and {} more", n - 1),
            }
        )));
    }
    Ok(names)
}

fn absolute(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()
}

/// Whether a path lies among the files of the database in a directory, or is one of their names.
pub fn is_of_data(dir: &Path, path: &Path) -> bool {
    let (Some(dir), Some(path)) = (absolute(dir), absolute(path)) else {
        return false;
    };
    let below = path.strip_prefix(&dir).ok();
    let first = below.and_then(|p| p.components().next());
    first.is_some_and(|first| {
        let name = first.as_os_str().to_string_lossy();
        DATA.contains(&name.as_ref()) || OWN.contains(&name.as_ref())
    })
}

/// The error that MongoDB gives for files of another engine than the one it was started with.
fn refuse(message: String) -> Error {
    Error::location(28662, message)
}

fn is_known(name: &str) -> bool {
    let ending = || name.rsplit_once('.').map(|(_, ending)| ending);
    // A log that was rotated has its time after the ending.
    let old_log = || name.contains(".log") || name.starts_with("core.");
    DATA.contains(&name)
        || OWN.contains(&name)
        || HARMLESS.contains(&name)
        || name.starts_with('.')
        || ending().is_some_and(|e| BESIDE.contains(&e) || e == "yml")
        || old_log()
        // The names that test harnesses give to the files of a start.
        || ["log", "pid", "port", "keyfile", "mongod", "muniment"].contains(&name)
}

fn of_another(dir: &Path, other: &Other, file: &str) -> String {
    let mut message = format!(
        "{} holds the data of {}: there is '{file}' in it. Muniment cannot read these files, and would \
         show an empty server. ",
        dir.display(),
        other.name
    );
    message += match other.is_mongodb {
        true => {
            "To carry the data over, start MongoDB on this directory and run\n  \
             mongodump --port PORT_OF_MONGODB --archive=dump.archive\n\
             then start Muniment on an empty directory and run\n  \
             mongorestore --port PORT_OF_MUNIMENT --archive=dump.archive"
        }
        false => "Choose an empty directory",
    };
    message
}

fn journal_alone(dir: &Path) -> String {
    format!(
        "{} holds 'journal', which is the journal of a MongoDB whose other files are not there. Choose an \
         empty directory",
        dir.display()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn examined(names: &[&str], engine: EngineKind) -> Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            match name.strip_suffix('/') {
                Some(name) => fs::create_dir(dir.path().join(name)).unwrap(),
                None => fs::write(dir.path().join(name), "").unwrap(),
            }
        }
        examine(dir.path(), engine, &[])
    }

    #[test]
    fn what_belongs_to_others_is_refused_by_its_name() {
        for (names, told) in [
            (&["WiredTiger", "WiredTiger.lock"][..], "mongodump"),
            (&["_mdb_catalog.wt"], "MongoDB (WiredTiger)"),
            (&["collection-0-123.wt"], "mongorestore"),
            (&["storage.bson"], "MongoDB (WiredTiger)"),
            (&["WiredTiger.turtle"], "MongoDB (WiredTiger)"),
            (&["local.0", "local.ns", "journal/"], "MongoDB (MMAPv1)"),
            (&["shop.ns"], "mongodump"),
            (&["PG_VERSION", "base/"], "PostgreSQL"),
            (&["ibdata1"], "MySQL"),
            (&["ferret.sqlite"], "SQLite"),
            // Another database is found even beside Muniment's own files.
            (&["FORMAT", "log/", "trees/", "WiredTiger"], "WiredTiger"),
            (&["trees/"], "FORMAT"),
            (&["log/", "muniment.lock"], "FORMAT"),
            (&["photos/"], "'photos'"),
            (&["a.txt", "b.txt", "c.txt"], "'a.txt' in it, and 2 more"),
        ] {
            let e = examined(names, EngineKind::Lsm).unwrap_err();
            assert_eq!(e.code().0, 28662, "{names:?}");
            assert!(e.message().contains(told), "{names:?}: {e}");
        }
        // The memory engine does not mind other files, except for data that would seem to be gone.
        assert!(examined(&["WiredTiger"], EngineKind::Memory).is_err());
        assert!(examined(&["photos/"], EngineKind::Memory).is_ok());
    }

    #[test]
    fn what_may_lie_in_any_directory_is_no_alarm() {
        let harmless = [
            "lost+found/",
            "mongod.lock",
            "mongod.log",
            "mongod.log.2026-01-31T08-09-10",
            "mongod.pid",
            "mongod.conf",
            "c.yaml",
            "c.yml",
            "keyfile",
            "diagnostic.data/",
            ".snapshot/",
            ".DS_Store",
            "mongodb-27017.sock",
            "core.4711",
            "journal/",
            "log.txt.log-20260131.gz",
            "aquota.user",
            "port",
        ];
        let own = ["FORMAT.new", "muniment.lock", "_tmp/"];
        let all: Vec<_> = harmless.iter().chain(&own).copied().collect();
        assert_eq!(examined(&all, EngineKind::Lsm).unwrap(), [""; 0]);
        assert_eq!(examined(&[], EngineKind::Lsm).unwrap(), [""; 0]);
        let missing = Path::new("/nowhere/at/all");
        assert_eq!(examine(missing, EngineKind::Lsm, &[]).unwrap(), [""; 0]);
        // In a directory of Muniment's, other files are listed and do no harm.
        let ours = [
            "FORMAT",
            "log/",
            "trees/",
            "rollback/",
            "replication",
            "notes.txt",
        ];
        let told = examined(&ours, EngineKind::Lsm).unwrap();
        assert_eq!(told, ["notes.txt"]);
    }

    #[test]
    fn files_that_the_options_name_are_the_servers_own() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["mongolog", "log", "secret"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let beside = ["mongolog", "secret"].map(|name| dir.path().join(name));
        // A file called log is no database if there is no FORMAT.
        let found = examine(dir.path(), EngineKind::Lsm, &beside).unwrap();
        assert_eq!(found, [""; 0]);
        let e = examine(dir.path(), EngineKind::Lsm, &beside[..1]).unwrap_err();
        assert!(e.message().contains("'secret'"), "{e}");
        for (path, want) in [
            ("log", true),
            ("trees/x", true),
            ("log.txt", false),
            ("../log", false),
        ] {
            assert_eq!(
                is_of_data(dir.path(), &dir.path().join(path)),
                want,
                "{path}"
            );
        }
        // A journal that is not empty is MongoDB's.
        fs::create_dir(dir.path().join("journal")).unwrap();
        fs::write(dir.path().join("journal/WiredTigerLog.1"), "").unwrap();
        assert!(examine(dir.path(), EngineKind::Lsm, &beside).is_err());
    }
}
