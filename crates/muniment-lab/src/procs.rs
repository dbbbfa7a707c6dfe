//! What Linux says about a process, this thread and the host. Everything is optional: on another
//! system, or for a process that is not ours, there is simply no figure.

use std::fs;

/// A server process's figures at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// CPU seconds so far, user and system.
    pub cpu_seconds: f64,
    /// Resident bytes now.
    pub rss: f64,
    /// Largest resident bytes so far.
    pub peak_rss: f64,
    /// Bytes handed to the block layer so far.
    pub written: f64,
    /// Bytes fetched from the block layer so far.
    pub read: f64,
}

/// The figures of process `pid`; `None` if it is gone or not readable.
pub fn sample(pid: u32) -> Option<Sample> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    Some(Sample {
        cpu_seconds: cpu_ticks(&stat)? / ticks,
        rss: kilobytes(&status, "VmRSS:").unwrap_or(0.0),
        peak_rss: kilobytes(&status, "VmHWM:").unwrap_or(0.0),
        written: field(&io, "write_bytes:").unwrap_or(0.0),
        read: field(&io, "read_bytes:").unwrap_or(0.0),
    })
}

/// Sets the largest resident size of process `pid` back to what is resident now, and gives that.
/// `None` where the kernel does not allow it.
pub fn reset_peak(pid: u32) -> Option<f64> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").ok()?;
    sample(pid).map(|s| s.rss)
}

/// utime + stime: fields 14 and 15; the name in field 2 may hold spaces and brackets.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn field(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .find_map(|l| l.strip_prefix(name))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn kilobytes(text: &str, name: &str) -> Option<f64> {
    field(text, name).map(|k| k * 1024.0)
}

/// CPU seconds of the calling thread.
pub fn thread_cpu_seconds() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// CPU seconds of this whole process.
pub fn own_cpu_seconds() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_stat_line_whatever_the_name() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(line), Some(300.0));
        assert_eq!(cpu_ticks("nonsense"), None);
        assert_eq!(
            kilobytes("VmRSS:\t  2048 kB\n", "VmRSS:"),
            Some(2048.0 * 1024.0)
        );
    }

    #[test]
    fn this_process_has_figures() {
        let s = sample(std::process::id());
        assert!(s.is_some_and(|s| s.rss > 0.0 && s.peak_rss >= s.rss * 0.5));
        assert!(sample(u32::MAX).is_none());
        assert!(thread_cpu_seconds() <= own_cpu_seconds());
    }
}
