//! A server in a control group of 512 MB, under everything at once that takes memory. The test has a program
//! of its own, because the process that starts the server has to be in the group for a moment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::long;
use muniment_lab::mix::{self, Size};
use muniment_value::doc;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Server, ServerOptions};

const LIMIT: u64 = 512 << 20;

/// A group of the memory controller, which is removed when this is dropped.
struct Group {
    path: PathBuf,
    /// The group of this process before.
    before: PathBuf,
    unified: bool,
}

impl Group {
    /// Makes a group with the limit inside the one of this process. The error says why that is impossible.
    fn new() -> Result<Group, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let of = |wanted: &str| {
            groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let controllers = parts.next()?;
                let group = parts.next()?.trim_start_matches('/');
                let all = controllers.split(',').any(|c| c == wanted);
                all.then(|| group.to_string())
            })
        };
        let unified = of("memory").is_none();
        let (root, group) = match of("memory") {
            Some(group) => ("/sys/fs/cgroup/memory", group),
            None => (
                "/sys/fs/cgroup",
                of("").ok_or("there are no control groups")?,
            ),
        };
        let inside = Path::new(root).join(&group);
        let before = if inside.is_dir() { inside } else { root.into() };
        let path = before.join(format!("muniment-test-{}", std::process::id()));
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let made = Group {
            path,
            before,
            unified,
        };
        let file = if unified {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let limit = made.path.join(file);
        fs::write(&limit, LIMIT.to_string()).map_err(|e| format!("{}: {e}", limit.display()))?;
        Ok(made)
    }

    /// Calls `f` in the group. Processes that it starts stay there.
    fn within<T>(&self, f: impl FnOnce() -> T) -> Result<T, String> {
        let enter = |group: &Path| {
            let procs = group.join("cgroup.procs");
            let me = std::process::id().to_string();
            fs::write(&procs, me).map_err(|e| format!("{}: {e}", procs.display()))
        };
        enter(&self.path)?;
        let out = f();
        enter(&self.before)?;
        Ok(out)
    }

    /// How often the kernel has ended a process of the group for lack of memory.
    fn kills(&self) -> u64 {
        let file = match self.unified {
            true => "memory.events",
            false => "memory.oom_control",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap();
        let kills = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        kills.map_or(0, |n| n.trim().parse().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is empty only when the last process has gone.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_group_of_512_mb_is_enough_for_everything_at_once() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(why) => return println!("SKIPPED: no control group can be made here ({why})"),
    };
    let started = group.within(|| Server::start(ServerOptions::new()));
    let mut server = match started {
        Ok(server) => server,
        Err(why) => return println!("SKIPPED: the control group cannot be entered ({why})"),
    };
    let mut c = server.connect();
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let cache = status.as_doc().get_doc("wiredTiger").unwrap();
    let cache = cache.get_doc("cache").unwrap();
    let bytes = cache.get("maximum bytes configured").unwrap();
    // The server has noticed the limit: a quarter of it is for the cache, of which the memtables get a
    // quarter.
    assert_eq!(bytes.as_i64_exact(), Some((LIMIT / 16 * 3) as i64));
    let size = Size {
        workers: 4,
        transactions: 50,
        slow: 100,
        partial: 50,
    };
    let time = Duration::from_secs(if long() { 300 } else { 15 });
    let tally = mix::run(&server.address(), size, time).unwrap();
    println!("{}", mix::describe(&tally));
    println!("{} MB at most", server.peak_bytes() >> 20);
    assert_eq!(group.kills(), 0);
    assert!(server.is_running());
    server
        .connect()
        .command("admin", &doc! { "ping": 1 })
        .unwrap();
    drop(server);
}
