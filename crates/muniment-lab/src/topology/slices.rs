//! Small machines: gives each of several processes a share of a core, whatever else runs.
//!
//! Where a control group of version 2 can be made, its `cpu.max` does it. Elsewhere a thread stops
//! and continues the processes: each has an account of CPU time, to which its share is credited as
//! time passes and from which its own clock of CPU time is debited. A process is stopped when its
//! account is empty, and continued at the next beginning of its period if something is in it. The
//! periods of the processes begin at different times, so that not all of them run at once.
//!
//! Both keep the share of a core, however many threads a process has. How much it really got is
//! for the experiment to measure.

use muniment_load::fail::{Context, Failure, Result};
use muniment_load::procs::cpu_clock;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The period in which a process gets its share.
const PERIOD: Duration = Duration::from_millis(20);
/// How often the accounts are looked at. A process with several threads can use several times this
/// before it is stopped, which its next period pays for.
const LOOK: Duration = Duration::from_millis(1);
/// The least share: below it a process would get too little in a period to answer anything.
pub(crate) const LEAST: f64 = 0.05;

/// The limits of several processes. Dropping the value lifts them.
pub(crate) struct Slices {
    /// How the processes are limited, for the report.
    pub how: &'static str,
    _groups: Vec<Group>,
    _stopper: Option<Stopper>,
}

impl Slices {
    /// Gives each of these processes this share of a core.
    ///
    /// # Errors
    /// A process has ended, or its clock cannot be read.
    pub(crate) fn start(pids: &[u32], share: f64) -> Result<Slices> {
        let groups: Option<Vec<Group>> = pids.iter().map(|pid| Group::new(*pid, share)).collect();
        if let Some(groups) = groups {
            return Ok(Slices {
                how: "by cpu.max of control groups",
                _groups: groups,
                _stopper: None,
            });
        }
        Ok(Slices {
            how: "by stopping and continuing them",
            _groups: Vec::new(),
            _stopper: Some(Stopper::start(pids, share)?),
        })
    }
}

/// A control group with one process in it.
struct Group {
    dir: PathBuf,
    pid: u32,
    /// The group that the process was in before.
    home: PathBuf,
}

impl Group {
    /// Makes a group below the first directory that allows it; `None` if there is none.
    fn new(pid: u32, share: f64) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let places = places(&mounts, &own);
        let home = places.first()?;
        places
            .iter()
            .find_map(|p| Group::below(p, home, pid, share))
    }

    fn below(parent: &Path, home: &Path, pid: u32, share: f64) -> Option<Group> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("muniment-bench-{}-{n}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let home = home.to_path_buf();
        let group = Group { dir, pid, home };
        let quota = (share * PERIOD.as_micros() as f64).round();
        let limit = format!("{quota} {}", PERIOD.as_micros());
        // The file is missing where the parent does not hand the controller down; the group is then
        // removed again.
        fs::write(group.dir.join("cpu.max"), limit).ok()?;
        fs::write(group.dir.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group can be removed when it is empty. A process that has ended is in none.
        let _ = fs::write(self.home.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.dir);
    }
}

/// The directories in which a group may be made: this process's own group and those above it, from
/// the lines of `/proc/self/mounts` and `/proc/self/cgroup`.
fn places(mounts: &str, own: &str) -> Vec<PathBuf> {
    let mut lines = mounts.lines().map(|l| l.split(' '));
    let root = lines.find_map(|mut f| {
        let (dir, kind) = (f.nth(1)?, f.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(dir))
    });
    let path = own.lines().find_map(|l| l.strip_prefix("0::/"));
    let (Some(root), Some(path)) = (root, path) else {
        return Vec::new();
    };
    let own = root.join(path);
    let above = own.ancestors().filter(|a| a.starts_with(&root));
    above.map(Path::to_path_buf).collect()
}

/// The thread that stops and continues processes.
struct Stopper {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stopper {
    fn start(pids: &[u32], share: f64) -> Result<Stopper> {
        let mut all = Vec::new();
        for (i, pid) in pids.iter().enumerate() {
            let raw = Pid::from_raw(*pid as i32).ok_or_else(|| Failure::new("no process"))?;
            // The descriptor stays that of the process, also when its number is used again.
            let handle = pidfd_open(raw, PidfdFlags::empty());
            let handle = handle.context("a server that is to be limited")?;
            let cpu = cpu_clock(*pid)
                .ok_or_else(|| Failure(format!("the CPU time of process {pid} cannot be read")))?;
            let phase = PERIOD.as_secs_f64() * i as f64 / pids.len() as f64;
            all.push((handle, *pid, Account::new(share, phase, cpu)));
        }
        let ends = Arc::new(AtomicBool::new(false));
        let asked = ends.clone();
        let thread = std::thread::Builder::new()
            .name("slices".into())
            .spawn(move || stop_and_continue(&mut all, &asked))
            .context("starting a thread")?;
        Ok(Stopper {
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // The thread continues every process before it ends.
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

fn stop_and_continue(all: &mut [(OwnedFd, u32, Account)], ends: &AtomicBool) {
    let begin = Instant::now();
    while !ends.load(Ordering::Relaxed) {
        let now = begin.elapsed().as_secs_f64();
        for (handle, pid, account) in all.iter_mut() {
            let Some(cpu) = cpu_clock(*pid) else { continue };
            let signal = match account.look(now, cpu) {
                Some(true) => Signal::CONT,
                Some(false) => Signal::STOP,
                None => continue,
            };
            // It fails only for a process that has ended.
            let _ = pidfd_send_signal(&*handle, signal);
        }
        std::thread::sleep(LOOK);
    }
    for (handle, ..) in all.iter() {
        let _ = pidfd_send_signal(handle, Signal::CONT);
    }
}

/// A process's account of CPU time.
struct Account {
    share: f64,
    /// The CPU seconds that the process may still use.
    left: f64,
    /// The time and the process's CPU seconds of the last look.
    looked: (f64, f64),
    runs: bool,
    /// The time at which its next period begins.
    next: f64,
}

impl Account {
    /// The account of a process that runs and has used so many CPU seconds; its periods begin at
    /// `phase` and every [`PERIOD`] after that.
    fn new(share: f64, phase: f64, cpu: f64) -> Account {
        Account {
            share,
            left: 0.0,
            looked: (0.0, cpu),
            runs: true,
            next: phase,
        }
    }

    /// Looks at the account at this time, when the process has used so many CPU seconds. Returns
    /// whether the process is to run from now on, if that changes.
    fn look(&mut self, now: f64, cpu: f64) -> Option<bool> {
        let period = PERIOD.as_secs_f64();
        let earned = self.share * (now - self.looked.0);
        // What an idle process has saved is worth one period at most, as a machine's idle time is
        // lost.
        self.left = (self.left + earned - (cpu - self.looked.1)).min(self.share * period);
        self.looked = (now, cpu);
        let begins = now >= self.next;
        while self.next <= now {
            self.next += period;
        }
        let before = self.runs;
        if self.left <= 0.0 {
            self.runs = false;
        } else if begins {
            self.runs = true;
        }
        (self.runs != before).then_some(self.runs)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// Runs a process for ten seconds that uses `cores` cores whenever it runs; returns the cores
    /// that it used.
    fn used(share: f64, cores: f64) -> f64 {
        let mut account = Account::new(share, 0.0, 0.0);
        let (mut cpu, mut runs) = (0.0, true);
        for ms in 1..=10_000 {
            let look = account.look(f64::from(ms) / 1e3, cpu);
            runs = look.unwrap_or(runs);
            if runs {
                cpu += cores * 1e-3;
            }
        }
        cpu / 10.0
    }

    #[test]
    fn a_share_is_kept_however_many_threads_run() {
        for share in [0.05, 0.2, 0.5] {
            for cores in [1.0, 2.0, 8.0] {
                let got = used(share, cores);
                assert!(
                    (got / share - 1.0).abs() < 0.05,
                    "{share} of {cores}: {got}"
                );
            }
        }
        // A process that needs less than its share is never stopped.
        assert!((used(0.5, 0.3) - 0.3).abs() < 0.01);
    }

    #[test]
    fn idle_time_is_not_saved_for_later() {
        let mut account = Account::new(0.2, 0.0, 0.0);
        assert_eq!(account.look(100.0, 0.0), None);
        assert!((account.left - 0.2 * PERIOD.as_secs_f64()).abs() < 1e-9);
    }

    #[test]
    fn groups_are_made_in_the_own_one_and_above() {
        let mounts = "sysfs /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let dirs = places(mounts, "1:cpu:/x\n0::/user/a\n");
        let want = [
            "/sys/fs/cgroup/user/a",
            "/sys/fs/cgroup/user",
            "/sys/fs/cgroup",
        ];
        assert_eq!(dirs, want.map(PathBuf::from));
        assert!(places("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0", "0::/").is_empty());
    }

    struct Busy(Child);

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_busy_process_gets_no_more_than_its_share_until_the_limit_is_lifted() {
        let busy = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdout(Stdio::null())
            .spawn();
        let busy = Busy(busy.unwrap());
        let pid = busy.0.id();
        let limits = Stopper::start(&[pid], 0.1).unwrap();
        let (begin, before) = (Instant::now(), cpu_clock(pid).unwrap());
        std::thread::sleep(Duration::from_secs(2));
        let got = (cpu_clock(pid).unwrap() - before) / begin.elapsed().as_secs_f64();
        assert!(got < 0.2, "{got} of a core");
        drop(limits);
        // Afterwards it runs: its clock goes on.
        let before = cpu_clock(pid).unwrap();
        let begin = Instant::now();
        while cpu_clock(pid).unwrap() - before < 0.05 {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "it is still stopped"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
