//! Figures of the machine: the section `systemMetrics` of `getDiagnosticData`, with MongoDB's names, which
//! monitoring programs read. A part that the system does not provide is left out.

use muniment_io::Disk;
use muniment_value::{DocBuf, doc};
use std::path::Path;

/// The document with all parts.
pub fn document(data_dir: &Path, disk: &dyn Disk) -> DocBuf {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut d = DocBuf::new();
    let mut part = |name: &str, part: DocBuf| {
        if !part.as_doc().is_empty() {
            d.append(name, part);
        }
    };
    part("cpu", processors(&read("/proc/stat"), ticks_per_second()));
    part("memory", memory(&read("/proc/meminfo")));
    let network = [read("/proc/net/netstat"), read("/proc/net/snmp")];
    part("netstat", network_of(&network));
    part("disks", disks(&read("/proc/diskstats"), is_disk));
    part("mounts", mounts(data_dir, disk));
    part("vmstat", virtual_memory(&read("/proc/vmstat")));
    d
}

/// How many clock ticks, in which the kernel counts the time of processors, are a second.
fn ticks_per_second() -> i64 {
    // SAFETY: `sysconf` takes no pointer.
    let n = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    n.max(1)
}

/// `/proc/stat`: times in milliseconds, summed over the processors.
fn processors(text: &str, ticks: i64) -> DocBuf {
    const TIMES: [&str; 10] = [
        "user_ms",
        "nice_ms",
        "system_ms",
        "idle_ms",
        "iowait_ms",
        "irq_ms",
        "softirq_ms",
        "steal_ms",
        "guest_ms",
        "guest_nice_ms",
    ];
    const COUNTS: [&str; 5] = [
        "ctxt",
        "btime",
        "processes",
        "procs_running",
        "procs_blocked",
    ];
    let mut d = DocBuf::new();
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as i64;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (name, numbers) = (words.next(), words.filter_map(|w| w.parse::<i64>().ok()));
        match name {
            Some("cpu") => {
                d.append("num_cpus", cores);
                d.append("num_logical_cores", cores);
                d.append("num_cores_available_to_process", cores);
                for (name, n) in TIMES.iter().zip(numbers) {
                    d.append(name, n * 1000 / ticks);
                }
            }
            Some(name) if COUNTS.contains(&name) => {
                d.append(name, numbers.sum::<i64>());
            }
            _ => {}
        }
    }
    d
}

/// `/proc/meminfo`, in kilobytes.
fn memory(text: &str) -> DocBuf {
    let mut d = DocBuf::new();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let mut words = rest.split_whitespace();
        let (n, unit) = (
            words.next().and_then(|n| n.parse::<i64>().ok()),
            words.next(),
        );
        if let (Some(n), Some("kB")) = (n, unit) {
            d.append(&format!("{name}_kb"), n);
        }
    }
    d
}

/// `/proc/net/netstat` and `/proc/net/snmp`, in which a line of names and one of values form a pair.
fn network_of(texts: &[String]) -> DocBuf {
    let mut d = DocBuf::new();
    for text in texts {
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let (Some((kind, names)), Some((_, values))) =
                (names.split_once(':'), values.split_once(':'))
            else {
                continue;
            };
            let values = values.split_whitespace().map(|v| v.parse::<i64>());
            for (name, value) in names.split_whitespace().zip(values) {
                if let Ok(n) = value {
                    d.append(&format!("{kind}:{name}"), n);
                }
            }
        }
    }
    d
}

/// Whether a block device is a real disk: not a partition of one, and not made of memory.
fn is_disk(name: &str) -> bool {
    let of_memory = ["loop", "ram", "zram"].iter().any(|m| name.starts_with(m));
    !of_memory && Path::new("/sys/block").join(name).exists()
}

/// `/proc/diskstats`: the counts of each disk.
fn disks(text: &str, is_disk: fn(&str) -> bool) -> DocBuf {
    const COUNTS: [&str; 11] = [
        "reads",
        "reads_merged",
        "read_sectors",
        "read_time_ms",
        "writes",
        "writes_merged",
        "write_sectors",
        "write_time_ms",
        "io_in_progress",
        "io_time_ms",
        "io_queued_ms",
    ];
    let mut d = DocBuf::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(2);
        let Some(name) = words.next().filter(|n| is_disk(n)) else {
            continue;
        };
        let mut disk = DocBuf::new();
        for (count, n) in COUNTS
            .iter()
            .zip(words.filter_map(|w| w.parse::<i64>().ok()))
        {
            disk.append(count, n);
        }
        d.append(name, disk);
    }
    d
}

/// The space of the data's file system, in bytes.
fn mounts(data_dir: &Path, disk: &dyn Disk) -> DocBuf {
    let Ok(space) = disk.space(data_dir) else {
        return DocBuf::new();
    };
    let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let figures = doc! {
        "capacity": bytes(space.total), "available": bytes(space.free), "free": bytes(space.free),
    };
    let mut d = DocBuf::new();
    d.append(&data_dir.display().to_string(), figures);
    d
}

/// Those counts of `/proc/vmstat` that show whether a machine is short of memory.
fn virtual_memory(text: &str) -> DocBuf {
    const COUNTS: [&str; 8] = [
        "balloon_deflate",
        "balloon_inflate",
        "nr_mlock",
        "numa_pages_migrated",
        "pgfault",
        "pgmajfault",
        "pswpin",
        "pswpout",
    ];
    let mut d = DocBuf::new();
    for line in text.lines() {
        let (name, n) = line.split_once(' ').unwrap_or((line, ""));
        if let Ok(n) = n.trim().parse::<i64>()
            && COUNTS.contains(&name)
        {
            d.append(name, n);
        }
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_texts_are_read() {
        let cpu = processors(
            "cpu  100 2 30 4000 5 0 6 0 0 0\ncpu0 1 1\nctxt 77\nbtime 5\n",
            100,
        );
        let int = |d: &DocBuf, name: &str| d.as_doc().get(name).and_then(|v| v.as_i64_exact());
        assert_eq!(int(&cpu, "user_ms"), Some(1000));
        assert_eq!(int(&cpu, "softirq_ms"), Some(60));
        assert_eq!(int(&cpu, "ctxt"), Some(77));
        let memory = memory("MemTotal:  1000 kB\nActive(anon):  5 kB\nHugePages_Total: 3\n");
        assert_eq!(
            memory,
            doc! { "MemTotal_kb": 1000_i64, "Active(anon)_kb": 5_i64 }
        );
        let network = network_of(&[
            "TcpExt: A B\nTcpExt: 1 -2\n".into(),
            "Ip: C\nIp: 3\n".into(),
        ]);
        let want = doc! { "TcpExt:A": 1_i64, "TcpExt:B": -2_i64, "Ip:C": 3_i64 };
        assert_eq!(network, want);
        let text = "   8  0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13\n   8  1 sda1 1 2 3 4\n";
        let all = disks(text, |name| name == "sda");
        let sda = all.as_doc().get_doc("sda").map(|d| d.to_buf());
        let sda = sda.unwrap_or_default();
        assert_eq!(int(&sda, "reads"), Some(1));
        assert_eq!(int(&sda, "io_queued_ms"), Some(11));
        assert_eq!(all.as_doc().count(), 1);
        let vm = virtual_memory("pgfault 12\nnr_free_pages 3\npswpin 0\n");
        assert_eq!(vm, doc! { "pgfault": 12_i64, "pswpin": 0_i64 });
    }
}
