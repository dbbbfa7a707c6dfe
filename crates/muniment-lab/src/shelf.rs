//! The places where runs are kept. Every run has a directory of its own, which no later run
//! touches: the one that `--out` names, or else `bench-report/DATE-TIME`, with the link
//! `bench-report/latest` to the last run that neither failed nor was interrupted.
//!
//! Invariant: everything that a run will write to is tried before its first measurement, so that an
//! hour of measuring does not end with a file that cannot be written.

use crate::report::table::bytes;
use crate::report::{Run, json};
use muniment_load::fail::{Context, Failure, Result};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The directory of all runs, unless the command line names another place.
pub(crate) const DEFAULT: &str = "bench-report";

/// The link in that directory that leads to the last good run.
pub(crate) const LATEST: &str = "latest";

/// The most bytes that a report, its results and its histograms take; a run is not begun if less is
/// free.
const ROOM: f64 = 64e6;

/// The directory of one run, and the locks that keep it from other runs.
#[derive(Debug)]
pub(crate) struct Place {
    dir: PathBuf,
    /// Whether this run's directory is one of the dated ones, among which there is a link.
    dated: bool,
    /// Whether the directory was made for this run.
    made: bool,
    json: Option<Lines>,
    /// Locks held for as long as the run lasts, so that no other run writes to the same files.
    locks: Vec<File>,
}

/// The file in a run's directory that is locked while the run lasts.
const LOCK: &str = ".running";

/// The place that JSON lines go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Standard output, to which nothing else is written in this case.
    Stdout,
    File(PathBuf),
}

impl Lines {
    /// Understands the value of `--json`: a file, or `-`.
    pub(crate) fn named(value: &Path) -> Lines {
        match value == Path::new("-") {
            true => Lines::Stdout,
            false => Lines::File(value.to_path_buf()),
        }
    }

    /// Writes the whole text.
    ///
    /// # Errors
    /// The file cannot be written. A reader of standard output that goes away is no error.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        match self {
            Lines::Stdout => crate::stdout::give(text).context("writing to standard output"),
            Lines::File(f) => std::fs::write(f, text).context(&format!("writing {}", f.display())),
        }
    }
}

impl Place {
    /// Makes the directory of a run that began at `started` (`2026-01-31 12:00:05 UTC`), and checks
    /// that the run can write there and to the place of its JSON lines. The run gets a directory of
    /// its own in `root`, the directory of all runs, unless `out` names one.
    ///
    /// # Errors
    /// A place cannot be written to, is full, or holds another run.
    pub(crate) fn reserve(
        root: &Path,
        out: Option<&Path>,
        json: Option<&Path>,
        started: &str,
    ) -> Result<Place> {
        link_is_free(root, out)?;
        let json = json.map(Lines::named);
        let lines = match &json {
            Some(Lines::File(f)) => Some((f, format!("--json {}", f.display()))),
            _ => None,
        };
        // The file for JSON lines is tried before a directory is made, so that a refusal leaves
        // nothing; a file inside the directory can only be tried later.
        let inside = |f: &Path| out.is_some_and(|out| f.starts_with(out));
        if let Some((f, what)) = &lines
            && !inside(f)
        {
            try_file(f).context(what)?;
        }
        let mut place = match out {
            Some(dir) => Place {
                made: !dir.exists(),
                dir: named(dir)?,
                dated: false,
                json: None,
                locks: Vec::new(),
            },
            None => Place {
                dir: fresh(root, started)?,
                dated: true,
                made: true,
                json: None,
                locks: Vec::new(),
            },
        };
        let mut open = File::options();
        let lock = open.append(true).create(true).open(place.dir.join(LOCK));
        place.claim(lock, &format!("--out {}", place.dir.display()))?;
        // The directory is checked again: another run may have finished there between the first
        // check and the lock.
        if out.is_some() {
            named(&place.dir)?;
        }
        if let Some((f, what)) = &lines {
            place.claim(try_file(f), what)?;
        }
        place.json = json;
        let probe = place.dir.join(".probe");
        let tried = std::fs::write(&probe, b"x").and_then(|()| std::fs::remove_file(&probe));
        tried.context(&format!("writing to {}", place.dir.display()))?;
        room(&place.dir, ROOM, "the report")?;
        Ok(place)
    }

    /// Locks a file for as long as the run lasts.
    fn claim(&mut self, file: std::io::Result<File>, what: &str) -> Result<()> {
        let file = file.context(what)?;
        file.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => Failure(format!("{what}: another run writes there")),
            TryLockError::Error(e) => Failure(format!("{what}: {e}")),
        })?;
        self.locks.push(file);
        Ok(())
    }

    /// The run's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The place of the JSON lines, if they were asked for.
    pub(crate) fn json(&self) -> Option<&Lines> {
        self.json.as_ref()
    }

    /// Writes a file of the run atomically: its old content stays until the new one is complete.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn put(&self, name: &str, text: &str) -> Result<()> {
        let (file, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let put = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file));
        put.context(&format!("writing {}", file.display()))
    }

    /// Points the link among the dated runs to this run, which went well.
    ///
    /// # Errors
    /// The link cannot be made.
    pub(crate) fn went_well(&self) -> Result<()> {
        let (Some(root), Some(name)) = (self.dir.parent(), self.dir.file_name()) else {
            return Ok(());
        };
        if !self.dated {
            return Ok(());
        }
        let (link, new) = (root.join(LATEST), root.join(".latest.new"));
        // A run that was killed at this point may have left the temporary link.
        let _ = std::fs::remove_file(&new);
        let linked =
            std::os::unix::fs::symlink(name, &new).and_then(|()| std::fs::rename(&new, &link));
        linked.context(&format!("linking {}", link.display()))
    }

    /// The directory of the last good run, if this run is in the same directory of runs.
    pub(crate) fn last_good(&self) -> Option<PathBuf> {
        let root = self.dir.parent().filter(|_| self.dated)?;
        std::fs::canonicalize(root.join(LATEST)).ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock file is removed while it is locked. Another run that has it open already is
        // refused, or finds the results when it checks again.
        let _ = std::fs::remove_file(self.dir.join(LOCK));
        if self.made {
            // This removes only an empty directory, in which nothing was measured.
            let _ = std::fs::remove_dir(&self.dir);
        }
    }
}

/// Refuses to begin a run after which the link to the last good run could not be made, because a
/// directory has the link's name or would get it.
fn link_is_free(root: &Path, out: Option<&Path>) -> Result<()> {
    let link = root.join(LATEST);
    let Some(dir) = out else {
        let taken = link.symlink_metadata().is_ok_and(|m| !m.is_symlink());
        return match taken {
            true => Err(Failure(format!(
                "{}: the link to the last good run belongs here, and something else has its name: move it away",
                link.display()
            ))),
            false => Ok(()),
        };
    };
    let whole = |path: &Path| std::path::absolute(path).ok();
    // Paths are compared by components, so that a slash at the end makes no difference.
    let same = whole(dir)
        .is_some_and(|d| whole(&link).is_some_and(|link| d.components().eq(link.components())));
    match same {
        true => Err(Failure(format!(
            "--out {}: this is the name of the link to the last good run: name another directory",
            dir.display()
        ))),
        false => Ok(()),
    }
}

/// Checks the directory that `--out` names: there must be no run in it.
fn named(dir: &Path) -> Result<PathBuf> {
    if dir.join("results.json").exists() {
        return Err(Failure(format!(
            "--out {0}: there is a run in it already, which is kept: name another directory, or remove it",
            dir.display()
        )));
    }
    std::fs::create_dir_all(dir).context(&format!("--out {}", dir.display()))?;
    Ok(dir.to_path_buf())
}

/// Makes a new directory in `root`, named by the time.
fn fresh(root: &Path, started: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(root).context(&format!("making {}", root.display()))?;
    let stem = stem(started);
    for n in 1.. {
        let dir = root.join(match n {
            1 => stem.clone(),
            n => format!("{stem}-{n}"),
        });
        match std::fs::create_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 1000 => {}
            made => {
                made.context(&format!("making {}", dir.display()))?;
                return Ok(dir);
            }
        }
    }
    Err(Failure::new("no directory for the run"))
}

/// Turns `2026-01-31 12:00:05 UTC` into `2026-01-31-120005`.
fn stem(started: &str) -> String {
    let text = started.trim_end_matches(" UTC").replace(' ', "-");
    text.replace(':', "")
}

/// Opens the file for lines, if it is empty or does not exist yet.
fn try_file(file: &Path) -> std::io::Result<File> {
    let known = std::fs::metadata(file).ok();
    if known.is_some_and(|m| m.is_file() && m.len() > 0) {
        return Err(std::io::Error::other(
            "there is something in it already, which is kept: name another file, or remove it",
        ));
    }
    let mut opened = File::options().append(true).create(true).open(file)?;
    opened.flush()?;
    Ok(opened)
}

/// Refuses a directory whose disk has less than `least` bytes free; `what` names the files that
/// shall go there.
///
/// # Errors
/// Too little is free; the error says how much is free and how much is needed.
pub(crate) fn room(dir: &Path, least: f64, what: &str) -> Result<()> {
    // A directory that does not exist yet will be on the disk of its nearest existing ancestor.
    let there = dir.ancestors().find(|d| d.exists());
    let there = there
        .filter(|d| *d != Path::new(""))
        .unwrap_or(Path::new("."));
    let Some(free) = free(there) else {
        return Ok(());
    };
    if free < least {
        return Err(Failure(format!(
            "{} has {} free, and {what} may take {}",
            dir.display(),
            bytes(free),
            bytes(least)
        )));
    }
    Ok(())
}

/// The bytes that are free for unprivileged users on the disk of `dir`.
fn free(dir: &Path) -> Option<f64> {
    let s = rustix::fs::statvfs(dir).ok()?;
    Some(s.f_bavail as f64 * s.f_frsize as f64)
}

/// A command without the options that only say where its results go: two runs that differ in those
/// alone are comparable.
fn settled(command: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut words = command.split_whitespace();
    while let Some(w) = words.next() {
        match w {
            "--json" | "--out" => {
                words.next();
            }
            "--tui" | "--tables" => {}
            w if ["--json=", "--out="].iter().any(|o| w.starts_with(o)) => {}
            w => out.push(w),
        }
    }
    out
}

/// The runs in `root`, oldest first: the directory, and what is known of the run before its results
/// are read. Directories that cannot be read are left out.
fn runs(root: &Path) -> Vec<(PathBuf, Run)> {
    let there = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut all: Vec<(PathBuf, Run)> = there
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .filter_map(|e| Some((e.path(), json::head(&e.path())?)))
        .collect();
    all.sort_by(|a, b| (&a.1.started, &a.0).cmp(&(&b.1.started, &b.0)));
    all
}

/// The last run of `command` in the directory that `dir` is in, of those that began before
/// `started` and neither failed nor were interrupted.
pub(crate) fn before(dir: &Path, command: &str, started: &str) -> Option<PathBuf> {
    let root = match dir.parent() {
        Some(p) if p != Path::new("") => p,
        _ => Path::new("."),
    };
    let same = |run: &Run| settled(&run.command) == settled(command);
    let mut all = runs(root).into_iter().rev();
    let found = all.find(|(d, run)| {
        d != dir && run.started.as_str() < started && !run.interrupted && !run.failed && same(run)
    });
    found.map(|f| f.0)
}

/// The last run in `root`, whether it went well or not.
///
/// # Errors
/// There is no run in `root`.
pub(crate) fn last(root: &Path) -> Result<PathBuf> {
    let found = runs(root).pop().map(|r| r.0);
    found.ok_or_else(|| none(root))
}

fn none(root: &Path) -> Failure {
    Failure(format!(
        "there is no run in {}: name two, A and B",
        root.display()
    ))
}

/// The last run in `root`, whether it went well or not, and the last good run of the same command
/// before it.
///
/// # Errors
/// There are no two such runs.
pub(crate) fn last_two(root: &Path) -> Result<(PathBuf, PathBuf)> {
    let Some((b, run)) = runs(root).pop() else {
        return Err(none(root));
    };
    match before(&b, &run.command, &run.started) {
        Some(a) => Ok((a, b)),
        None => Err(Failure(format!(
            "{} is the only run of '{}' in {}: name another one to compare it with",
            b.display(),
            run.command,
            root.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let name = format!("muniment-shelf-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            Dir(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Keeps a run of `command` in a directory of its own.
    fn keep(root: &Path, command: &str, started: &str, failed: bool) -> PathBuf {
        let p = Place::reserve(root, None, None, started).unwrap();
        let run = Run {
            command: command.into(),
            started: started.into(),
            failed,
            ..Run::default()
        };
        let lines = json::lines(&run).unwrap();
        p.put("results.json", &json::array(&lines)).unwrap();
        if !failed {
            p.went_well().unwrap();
        }
        p.dir().to_path_buf()
    }

    #[test]
    fn every_run_has_a_directory_of_its_own_and_the_last_good_one_a_link() {
        let root = Dir::new("own");
        let at = "2026-01-31 12:00:05 UTC";
        let a = keep(&root.0, "bench w1", at, false);
        assert!(a.ends_with("2026-01-31-120005"));
        let link = || std::fs::read_link(root.0.join(LATEST)).unwrap();
        assert_eq!(link(), PathBuf::from("2026-01-31-120005"));
        // The second run begins in the same second, so its directory gets a number.
        let b = keep(&root.0, "bench w1", at, false);
        assert!(b.ends_with("2026-01-31-120005-2"));
        assert_eq!(link(), PathBuf::from("2026-01-31-120005-2"));
        let failed = keep(&root.0, "bench w1", "2026-01-31 12:00:06 UTC", true);
        assert_eq!(link(), PathBuf::from("2026-01-31-120005-2"));
        assert!(failed.join("results.json").is_file());
        // A run that measured nothing leaves no directory.
        let p = Place::reserve(&root.0, None, None, "2026-01-31 13:00:00 UTC").unwrap();
        let dir = p.dir().to_path_buf();
        assert!(dir.is_dir());
        assert_eq!(p.last_good(), std::fs::canonicalize(&b).ok());
        drop(p);
        assert!(!dir.exists());
    }

    #[test]
    fn what_is_there_is_never_written_over() {
        let root = Dir::new("over");
        let out = root.0.join("mine");
        let at = "2026-01-31 12:00:05 UTC";
        let lines = root.0.join("lines.jsonl");
        let p = Place::reserve(&root.0, Some(&out), Some(&lines), at).unwrap();
        p.put("results.json", "[]").unwrap();
        p.json().unwrap().write("{}\n").unwrap();
        p.went_well().unwrap();
        assert!(!root.0.join(LATEST).exists(), "--out has no link");
        let refused = |out: &Path, json: Option<&Path>| {
            let r = Place::reserve(&root.0, Some(out), json, at);
            r.unwrap_err().0
        };
        assert!(refused(&out, None).contains("there is a run in it already"));
        let other = root.0.join("other");
        assert!(refused(&other, Some(&lines)).contains("there is something in it already"));
        assert_eq!(std::fs::read_to_string(&lines).unwrap(), "{}\n");
        // A run that has not written anything yet already holds its places.
        let busy = Place::reserve(&root.0, Some(&other), None, at).unwrap();
        assert!(refused(&other, None).contains("another run writes there"));
        drop(busy);
        let (third, more) = (root.0.join("third"), root.0.join("more.jsonl"));
        let busy = Place::reserve(&root.0, Some(&third), Some(&more), at).unwrap();
        assert!(refused(&other, Some(&more)).contains("another run writes there"));
        drop(busy);
        // The file for lines may be in the directory that is made for the run.
        let inside = root.0.join("fourth");
        let within = inside.join("x.jsonl");
        drop(Place::reserve(&root.0, Some(&inside), Some(&within), at).unwrap());
        let nowhere = root.0.join("no/such/dir/x.jsonl");
        assert!(refused(&other, Some(&nowhere)).contains("x.jsonl: No such file"));
        // A file is in the way of the directory.
        assert!(refused(&lines.join("below"), None).contains("--out "));
        assert_eq!(Lines::named(Path::new("-")), Lines::Stdout);
    }

    #[test]
    fn a_directory_in_the_place_of_the_link_is_refused_before_anything_is_measured() {
        let root = Dir::new("link");
        let at = "2026-01-31 12:00:05 UTC";
        let link = root.0.join(LATEST);
        let refused = |out: Option<&Path>| Place::reserve(&root.0, out, None, at).unwrap_err().0;
        let e = refused(Some(&link.join("")));
        assert!(e.contains("the name of the link"), "{e}");
        assert!(!link.exists());
        std::fs::create_dir(&link).unwrap();
        let e = refused(None);
        assert!(e.contains("something else has its name"), "{e}");
        // In any other directory the link's name is a name like any other.
        let elsewhere = root.0.join("x").join(LATEST);
        drop(Place::reserve(&root.0, Some(&elsewhere), None, at).unwrap());
    }

    #[test]
    fn a_full_disk_is_said_before_anything_is_measured() {
        let root = Dir::new("full");
        assert!(room(&root.0, 1.0, "it").is_ok());
        let e = room(&root.0.join("not/there"), 1e18, "w4b with preset paper");
        let e = e.unwrap_err().0;
        assert!(
            e.contains(" free, and w4b with preset paper may take 1000000000 GB"),
            "{e}"
        );
    }

    #[test]
    fn the_last_run_of_the_same_command_is_found() {
        let root = Dir::new("last");
        let first = "muniment bench w1 --preset quick";
        assert!(last_two(&root.0).unwrap_err().0.contains("there is no run"));
        let a = keep(&root.0, first, "2026-01-31 12:00:05 UTC", false);
        let e = last_two(&root.0).unwrap_err().0;
        assert!(e.contains("the only run of"), "{e}");
        keep(
            &root.0,
            "muniment bench w3",
            "2026-01-31 12:00:06 UTC",
            false,
        );
        keep(&root.0, first, "2026-01-31 12:00:07 UTC", true);
        let again = format!("{first} --json - --tables --out=x");
        let b = keep(&root.0, &again, "2026-01-31 12:00:08 UTC", false);
        assert_eq!(last_two(&root.0).unwrap(), (a.clone(), b.clone()));
        assert_eq!(
            before(&b, first, "2026-01-31 12:00:08 UTC"),
            Some(a.clone())
        );
        assert_eq!(before(&a, first, "2026-01-31 12:00:05 UTC"), None);
    }
}
