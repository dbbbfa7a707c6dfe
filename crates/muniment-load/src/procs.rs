//! Figures of Linux about a process, this thread and the host. All of them are optional: on another system,
//! or for a process of another user, they are simply absent.

use std::fs;

/// The figures of a server's process at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// CPU seconds so far, user and system.
    pub cpu_seconds: f64,
    /// The step in which that is counted, in s: a nanosecond, or a tick of the kernel's clock if the
    /// process's own clock cannot be read.
    pub cpu_step: f64,
    /// Resident bytes now.
    pub rss: f64,
    /// Largest resident bytes so far.
    pub peak_rss: f64,
    /// Bytes written to the block layer so far.
    pub written: f64,
    /// Bytes read from the block layer so far.
    pub read: f64,
}

/// The figures of process `pid`; `None` if it has ended or cannot be read.
pub fn sample(pid: u32) -> Option<Sample> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let (cpu_seconds, cpu_step) = match cpu_clock(pid) {
        Some(seconds) => (seconds, 1e-9),
        None => (cpu_ticks(&stat)? / ticks, 1.0 / ticks),
    };
    Some(Sample {
        cpu_seconds,
        cpu_step,
        rss: kilobytes(&status, "VmRSS:").unwrap_or(0.0),
        peak_rss: kilobytes(&status, "VmHWM:").unwrap_or(0.0),
        written: field(&io, "write_bytes:").unwrap_or(0.0),
        read: field(&io, "read_bytes:").unwrap_or(0.0),
    })
}

/// The CPU seconds of process `pid` by its own clock, which counts nanoseconds; `None` if there is no such
/// clock. It is one cheap call, where [`sample`] reads three files.
#[cfg(target_os = "linux")]
pub fn cpu_clock(pid: u32) -> Option<f64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock: libc::clockid_t = 0;
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `clock` and `t` are valid to write to. For a process that has ended, the calls return an error
    // code.
    let read = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut t) == 0
    };
    read.then_some(t.tv_sec as f64 + t.tv_nsec as f64 / 1e9)
}

/// Other systems do not show the clock of another process.
#[cfg(not(target_os = "linux"))]
pub fn cpu_clock(_: u32) -> Option<f64> {
    None
}

/// Resets the largest resident size of process `pid` to its present one, and returns that. `None` if the
/// kernel does not allow it.
pub fn reset_peak(pid: u32) -> Option<f64> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").ok()?;
    sample(pid).map(|s| s.rss)
}

/// Returns utime + stime, which are fields 14 and 15. The name in field 2 may contain spaces and brackets.
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

/// The CPU seconds of this process with all its threads.
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
        // If the process's own clock can be read, far less than a tick of the kernel's clock is visible.
        if s.is_some_and(|s| s.cpu_step < 1e-3) {
            let before = s.map_or(0.0, |s| s.cpu_seconds);
            let mut x = 0u64;
            for i in 0..200_000u64 {
                x = std::hint::black_box(x ^ i);
            }
            let after = sample(std::process::id()).map_or(0.0, |s| s.cpu_seconds);
            assert!(after > before, "{before} {after}");
        }
        assert!(sample(u32::MAX).is_none());
        assert!(thread_cpu_seconds() <= own_cpu_seconds());
    }
}
