//! Where runs are kept. Every run has a directory of its own, which no later run touches: what
//! `--out` says, or else `bench-report/DATE-TIME`, with the link `bench-report/latest` to the last
//! run that neither failed nor was interrupted.
//!
//! Invariant: everything that a run will write to is tried before its first measurement, so that no
//! hour of measuring ends in a file that cannot be written.

use crate::report::table::bytes;
use crate::report::{Run, json};
use muniment_load::fail::{Context, Failure, Result};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where runs go when nothing else is said.
pub(crate) const DEFAULT: &str = "bench-report";

/// The link beside the runs that leads to the last one that went well.
pub(crate) const LATEST: &str = "latest";

/// What a report, its results and its histograms may take at most, bytes: a run is not begun where
/// less is free.
const ROOM: f64 = 64e6;

/// The place of one run.
#[derive(Debug)]
pub(crate) struct Place {
    dir: PathBuf,
    /// Whether this run's directory is one of many, with a link beside it.
    dated: bool,
    /// Whether the directory was made for this run.
    made: bool,
    json: Option<Lines>,
    /// Held for as long as the run lasts, so that no other run writes to the same files.
    locks: Vec<File>,
}

/// The file in a run's directory that is locked while the run lasts.
const LOCK: &str = ".running";

/// Where JSON lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Standard output, on which nothing else is written then.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl Lines {
    /// What the value of `--json` says: a file, or `-`.
    pub(crate) fn named(value: &Path) -> Lines {
        match value == Path::new("-") {
            true => Lines::Stdout,
            false => Lines::File(value.to_path_buf()),
        }
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// The file cannot be written. A reader of standard output that goes away is none.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        match self {
            Lines::Stdout => crate::stdout::give(text).context("writing to standard output"),
            Lines::File(f) => std::fs::write(f, text).context(&format!("writing {}", f.display())),
        }
    }
}

impl Place {
    /// Makes the directory of a run that began at `started` (`2026-01-31 12:00:05 UTC`), and tries
    /// whether the run can write there and to where its JSON lines shall go. `root` is the directory
    /// of all runs, in which it gets one of its own, unless `out` names one.
    ///
    /// # Errors
    /// What cannot be written, is full, or holds another run.
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
        // Before a directory is made, unless they lie in it.
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
        // Again, now that nobody else can have written there meanwhile.
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

    /// Locks a file, for as long as the run lasts.
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

    /// Where its JSON lines go, if anywhere.
    pub(crate) fn json(&self) -> Option<&Lines> {
        self.json.as_ref()
    }

    /// Writes a file of the run whole: what was there of it stays until the new one is complete.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn put(&self, name: &str, text: &str) -> Result<()> {
        let (file, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let put = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file));
        put.context(&format!("writing {}", file.display()))
    }

    /// Lets the link beside dated runs lead to this one, which went well.
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
        // What was left by a run that was killed here.
        let _ = std::fs::remove_file(&new);
        let linked =
            std::os::unix::fs::symlink(name, &new).and_then(|()| std::fs::rename(&new, &link));
        linked.context(&format!("linking {}", link.display()))
    }

    /// Where the last run that went well is, if this one stands beside it.
    pub(crate) fn last_good(&self) -> Option<PathBuf> {
        let root = self.dir.parent().filter(|_| self.dated)?;
        std::fs::canonicalize(root.join(LATEST)).ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // While it is locked. A run that has the file open already is refused, or finds the results.
        let _ = std::fs::remove_file(self.dir.join(LOCK));
        if self.made {
            // Only an empty directory goes: nothing was measured.
            let _ = std::fs::remove_dir(&self.dir);
        }
    }
}

/// Refuses to begin a run after which the link to the last good one could not be made, since a directory
/// has its name or would get it.
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
    // Components, so that a slash at the end makes no difference.
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

/// The directory that `--out` names, if no run is in it.
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

/// A new directory in `root`, named by the time.
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

/// `2026-01-31-120005` of `2026-01-31 12:00:05 UTC`.
fn stem(started: &str) -> String {
    let text = started.trim_end_matches(" UTC").replace(' ', "-");
    text.replace(':', "")
}

/// Whether lines can be written to a file that holds nothing yet.
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

/// Refuses a directory whose disk has less than `least` bytes free; `what` shall go there.
///
/// # Errors
/// How much is free, and how much is needed.
pub(crate) fn room(dir: &Path, least: f64, what: &str) -> Result<()> {
    // One that will be made is on the disk of what it will be made in.
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

/// Bytes that are free where `dir` is, for everybody.
fn free(dir: &Path) -> Option<f64> {
    let s = rustix::fs::statvfs(dir).ok()?;
    Some(s.f_bavail as f64 * s.f_frsize as f64)
}

/// A command without what only says where its results go: two runs of the same are comparable.
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

/// The runs that stand in `root`, oldest first: directory, and what is known of the run before its
/// results are read. What cannot be read is none.
fn runs(root: &Path) -> Vec<(PathBuf, Run)> {
    let there = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut all: Vec<(PathBuf, Run)> = there
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .filter_map(|e| Some((e.path(), json::head(&e.path())?)))
        .collect();
    all.sort_by(|a, b| (&a.1.started, &a.0).cmp(&(&b.1.started, &b.0)));
    all
}

/// The last run of `command` beside `dir` that began before `started`, and neither failed nor was
/// interrupted.
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

/// The last run in `root`, good or not.
///
/// # Errors
/// There is none.
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

/// The last run in `root`, good or not, and the good one of the same command before it.
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
        // In the same second.
        let b = keep(&root.0, "bench w1", at, false);
        assert!(b.ends_with("2026-01-31-120005-2"));
        assert_eq!(link(), PathBuf::from("2026-01-31-120005-2"));
        let failed = keep(&root.0, "bench w1", "2026-01-31 12:00:06 UTC", true);
        assert_eq!(link(), PathBuf::from("2026-01-31-120005-2"));
        assert!(failed.join("results.json").is_file());
        // Nothing was measured: nothing stays.
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
        // A run that has not written yet holds its places.
        let busy = Place::reserve(&root.0, Some(&other), None, at).unwrap();
        assert!(refused(&other, None).contains("another run writes there"));
        drop(busy);
        let (third, more) = (root.0.join("third"), root.0.join("more.jsonl"));
        let busy = Place::reserve(&root.0, Some(&third), Some(&more), at).unwrap();
        assert!(refused(&other, Some(&more)).contains("another run writes there"));
        drop(busy);
        // Lines may lie in the directory that is made for them.
        let inside = root.0.join("fourth");
        let within = inside.join("x.jsonl");
        drop(Place::reserve(&root.0, Some(&inside), Some(&within), at).unwrap());
        let nowhere = root.0.join("no/such/dir/x.jsonl");
        assert!(refused(&other, Some(&nowhere)).contains("x.jsonl: No such file"));
        // A file stands where the directory should be.
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
        // Elsewhere it is a name like any other.
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
