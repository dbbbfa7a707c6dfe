//! The cores of threads on Linux: sched_setaffinity(2), /proc and /sys (proc(5), proc_net(5), sysfs's cpu
//! topology).

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// The thread's id in the form for system calls; `None` is the calling thread.
fn pid(tid: Option<u32>) -> Result<Option<Pid>> {
    let Some(tid) = tid else { return Ok(None) };
    let pid = i32::try_from(tid).ok().and_then(Pid::from_raw);
    pid.map(Some).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("{tid} is no thread's number"),
        )
    })
}

/// The CPUs on which thread `tid` may run, ascending. `None` is the calling thread.
///
/// # Errors
/// The thread does not exist, or this process may not ask for it.
pub(super) fn cpus(tid: Option<u32>) -> Result<Vec<usize>> {
    let set = sched_getaffinity(pid(tid)?)?;
    Ok((0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect())
}

/// Restricts thread `tid` to these CPUs. `None` is the calling thread.
///
/// # Errors
/// The thread does not exist or belongs to another user, or none of the CPUs may be used.
pub(super) fn set_cpus(tid: Option<u32>, cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter()
        .filter(|c| **c < CpuSet::MAX_CPU)
        .for_each(|c| set.set(*c));
    Ok(sched_setaffinity(pid(tid)?, &set)?)
}

/// The threads of process `pid`.
///
/// # Errors
/// The process does not exist.
pub(super) fn threads(pid: u32) -> Result<Vec<u32>> {
    let all = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(all
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

/// The CPU on which the calling thread runs.
pub(super) fn running_on() -> usize {
    sched_getcpu()
}

/// Whether an error means that a thread has ended.
pub(super) fn is_gone(e: &Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH)
}

/// Whether process `pid` has a socket that listens on this port of this host.
///
/// # Errors
/// Its descriptors cannot be read, because the process does not exist or belongs to another user.
pub(super) fn listens(pid: u32, port: u16) -> Result<bool> {
    let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|f| fs::read_to_string(f).ok())
        .flat_map(|text| listeners(&text, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    for e in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that has been closed meanwhile is not the listener.
        let Some(target) = e.ok().and_then(|e| fs::read_link(e.path()).ok()) else {
            continue;
        };
        if sockets.iter().any(|s| target == Path::new(s)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The inodes of the sockets that listen on `port`, in the table of proc_net(5).
fn listeners(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let one = |line: &str| -> Option<u64> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, hex) = fields.get(1)?.rsplit_once(':')?;
        let mine = u16::from_str_radix(hex, 16).ok()? == port && *fields.get(3)? == LISTEN;
        mine.then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(one).collect()
}

/// The package and the core of a CPU. If the system does not tell, every CPU counts as a core.
pub(super) fn core_of(cpu: usize) -> (usize, usize) {
    let read = |what: &str| -> Option<usize> {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    let package = read("physical_package_id").unwrap_or(0);
    (package, read("core_id").unwrap_or(cpu))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listeners_are_read_from_the_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:6989 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:6989 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:698A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 100 0 0 10 0
";
        assert_eq!(listeners(table, 27017), [4711]);
        assert_eq!(listeners(table, 27018), [4713]);
        assert!(listeners(table, 1).is_empty() && listeners("", 27017).is_empty());
    }

    #[test]
    fn the_listener_is_known_among_ones_own_processes() {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = l.local_addr().unwrap().port();
        let me = std::process::id();
        assert!(listens(me, port).unwrap());
        drop(l);
        assert!(!listens(me, port).unwrap());
        assert!(listens(u32::MAX, port).is_err());
    }

    #[test]
    fn a_thread_is_where_it_was_put() {
        let before = cpus(None).unwrap();
        let last = *before.last().unwrap();
        set_cpus(None, &[last]).unwrap();
        assert_eq!((cpus(None).unwrap(), running_on()), (vec![last], last));
        set_cpus(None, &before).unwrap();
        assert_eq!(cpus(None).unwrap(), before);
        assert!(set_cpus(None, &[]).is_err());
        let e = cpus(Some(i32::MAX as u32)).unwrap_err();
        assert!(is_gone(&e), "{e}");
        assert!(cpus(Some(0)).is_err() && cpus(Some(u32::MAX)).is_err());
        assert!(threads(std::process::id()).unwrap().len() > 1);
    }
}
