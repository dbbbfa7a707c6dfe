//! Describes the host as a reader needs it to judge a figure, without anything that would identify
//! the host.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|l| l.trim().to_string())
}

fn after_colon(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    line.split_once(':').map(|(_, v)| v.trim().to_string())
}

/// The number of cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name and text of every fact about the host. `data` is the directory of the server's files,
/// if that is on this host.
pub(crate) fn host(data: Option<&Path>) -> Vec<(String, String)> {
    let mut e = Vec::new();
    let mut add = |k: &str, v: String| e.push((k.to_string(), v));
    add(
        "CPU",
        after_colon("/proc/cpuinfo", "model name").unwrap_or_else(|| "model not exposed".into()),
    );
    let quota = first_line("/sys/fs/cgroup/cpu.max").filter(|q| !q.starts_with("max"));
    add(
        "Cores",
        match quota {
            Some(q) => format!("{} (cgroup cpu.max {q})", cores()),
            None => cores().to_string(),
        },
    );
    add(
        "CPU governor",
        first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            .unwrap_or_else(|| "not exposed".into()),
    );
    add("Kernel", kernel());
    add(
        "Memory",
        format!(
            "{}, cgroup limit {}",
            after_colon("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".into()),
            cgroup_memory().unwrap_or_else(|| "none".into())
        ),
    );
    add(
        "Load average at the start",
        first_line("/proc/loadavg").map_or_else(
            || "unknown".into(),
            |l| l.split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        ),
    );
    if let Some(d) = data {
        add(
            "Data on",
            file_system(d).unwrap_or_else(|| "unknown".into()),
        );
    }
    add(
        "Lab",
        format!("muniment {}{}", env!("CARGO_PKG_VERSION"), build()),
    );
    e
}

fn build() -> &'static str {
    if cfg!(debug_assertions) {
        ", DEBUG BUILD: the figures mean nothing"
    } else {
        ", release build"
    }
}

/// Gives a warning if other processes use this host's cores already, since every figure measured by
/// the clock then contains their work too.
pub(crate) fn busy() -> Option<String> {
    let load: f64 = first_line("/proc/loadavg")?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    busy_with(load, cores())
}

fn busy_with(load: f64, cores: usize) -> Option<String> {
    (load > cores as f64 * 0.5).then(|| {
        format!("The host was busy when the run began (load average {load:.1} on {cores} cores): rates and latencies by the clock are those of a shared machine.")
    })
}

fn cgroup_memory() -> Option<String> {
    first_line("/sys/fs/cgroup/memory.max")
        .filter(|m| m != "max")
        .or_else(|| {
            first_line("/sys/fs/cgroup/memory/memory.limit_in_bytes").filter(|m| m.len() < 16)
        })
        .and_then(|m| m.parse::<f64>().ok())
        .map(crate::report::table::bytes)
}

fn kernel() -> String {
    // SAFETY: `u` is a valid utsname to write to; its fields are NUL-terminated C strings.
    unsafe {
        let mut u: libc::utsname = std::mem::zeroed();
        if libc::uname(&mut u) != 0 {
            return "unknown".into();
        }
        let text = |p: *const libc::c_char| CStr::from_ptr(p).to_string_lossy().into_owned();
        format!(
            "{} {} {}",
            text(u.sysname.as_ptr()),
            text(u.release.as_ptr()),
            text(u.machine.as_ptr())
        )
    }
}

/// The file system and device of `path`, as `ext4, /dev/vda`: those of the mount whose mount point
/// is the longest prefix of `path`.
pub(crate) fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let mut f = line.split_whitespace();
        let (Some(device), Some(point), Some(kind)) = (f.next(), f.next(), f.next()) else {
            continue;
        };
        if path.starts_with(point) && best.as_ref().is_none_or(|(n, _)| point.len() >= *n) {
            best = Some((point.len(), format!("{kind}, {device}")));
        }
    }
    best.map(|b| b.1)
}

/// The current time as `2026-01-31 12:00:05 UTC`.
pub(crate) fn utc_now() -> String {
    format!("{} UTC", clock().0)
}

/// The current time as `2026-01-31 12:00:05:123`.
pub(crate) fn utc_millis() -> String {
    let (text, millis) = clock();
    format!("{text}:{millis:03}")
}

/// The time in UTC to the second, and the milliseconds.
fn clock() -> (String, u32) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let s = now.as_secs();
    let (year, month, day) = civil(s / 86_400);
    let text = format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        s / 3600 % 24,
        s / 60 % 60,
        s % 60
    );
    (text, now.subsec_millis())
}

/// Year, month and day of a day number since 1970-01-01 in the Gregorian calendar, computed in
/// 400-year eras of 146,097 days that begin on 1 March.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }

    #[test]
    fn a_busy_host_is_said() {
        assert!(busy_with(20.0, 2).is_some_and(|t| t.contains("20.0 on 2 cores")));
        assert!(busy_with(0.4, 2).is_none());
    }

    #[test]
    fn the_host_is_described() {
        let e = host(Some(&std::env::temp_dir()));
        for key in [
            "CPU",
            "Cores",
            "CPU governor",
            "Kernel",
            "Memory",
            "Data on",
            "Lab",
        ] {
            assert!(e.iter().any(|(k, v)| k == key && !v.is_empty()), "{key}");
        }
    }
}
