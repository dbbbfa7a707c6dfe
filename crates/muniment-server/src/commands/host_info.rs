//! `hostInfo`.

use crate::auth::Needs;
use crate::options::{machine_memory, memory_limit};
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_logger::now_ms;
use muniment_value::{DocBuf, Value, doc};
use std::collections::BTreeSet;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "hostInfo",
    aliases: &["hostinfo"],
    doc: "The machine and its system",
    run: |cx| {
        let w = &mut cx.reply;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = Processors::of(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
        let nodes = numa_nodes();
        w.field(
            "system",
            doc! {
                "currentTime": Value::DateTime(now_ms()),
                "hostname": cx.server.address.host.as_str(),
                "cpuAddrSize": 64,
                "memSizeMB": (machine_memory() >> 20) as i64,
                "memLimitMB": (memory_limit() >> 20) as i64,
                "numCores": cores as i32,
                "numCoresAvailableToProcess": cores as i32,
                "numPhysicalCores": cpu.cores.max(1) as i32,
                "numCpuSockets": cpu.sockets.max(1) as i32,
                "cpuArch": std::env::consts::ARCH,
                "numaEnabled": nodes > 1,
                "numNumaNodes": nodes as i32,
            },
        );
        let (name, version) = os();
        w.field(
            "os",
            doc! { "type": "Linux", "name": name, "version": version },
        );
        w.field("extra", extra(&cpu));
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::HostInfo]))
};

/// The name and version of the Linux distribution.
fn os() -> (String, String) {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
            .map(|v| v.trim_matches('"').to_string())
    };
    (
        value("NAME").unwrap_or_else(|| std::env::consts::OS.to_string()),
        value("VERSION_ID").unwrap_or_default(),
    )
}

/// The processors as `/proc/cpuinfo` describes them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Processors {
    model: String,
    features: String,
    mhz: String,
    sockets: usize,
    cores: usize,
}

impl Processors {
    /// Parses the text, in which each logical processor is a block that ends with an empty line. Some
    /// machines (ARM, some virtual ones) do not name sockets and cores; then each processor counts as a core
    /// of one socket.
    fn of(text: &str) -> Processors {
        let value = |block: &str, key: &str| {
            block.lines().find_map(|l| {
                let (k, v) = l.split_once(':')?;
                (k.trim() == key).then(|| v.trim().to_string())
            })
        };
        let blocks = text.split("\n\n").filter(|b| !b.trim().is_empty());
        let (mut sockets, mut cores) = (BTreeSet::new(), BTreeSet::new());
        for (i, block) in blocks.enumerate() {
            if value(block, "processor").is_none() {
                continue;
            }
            let socket = value(block, "physical id").unwrap_or_default();
            let core = value(block, "core id").unwrap_or_else(|| i.to_string());
            cores.insert((socket.clone(), core));
            sockets.insert(socket);
        }
        let first = |keys: &[&str]| keys.iter().find_map(|k| value(text, k)).unwrap_or_default();
        Processors {
            model: first(&["model name"]),
            features: first(&["flags", "Features"]),
            mhz: first(&["cpu MHz"]),
            sockets: sockets.len(),
            cores: cores.len(),
        }
    }
}

/// How many nodes the machine's memory is divided into.
fn numa_nodes() -> usize {
    let nodes = std::fs::read_dir("/sys/devices/system/node").map_or(0, |dir| {
        dir.flatten()
            .filter(|e| {
                let name = e.file_name();
                name.to_str()
                    .and_then(|n| n.strip_prefix("node"))
                    .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            })
            .count()
    });
    nodes.max(1)
}

/// The C library's version; empty if it cannot be asked.
fn libc_version() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the function returns a static string that ends with a zero byte.
        let text = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        text.to_string_lossy().into_owned()
    }
    #[cfg(not(target_env = "gnu"))]
    String::new()
}

fn extra(cpu: &Processors) -> DocBuf {
    let read = |p: &str| {
        std::fs::read_to_string(p)
            .map(|s| s.trim().to_string())
            .unwrap_or_default()
    };
    // SAFETY: `sysconf` takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // SAFETY: `sysconf` takes no pointer.
    let files = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    doc! {
        "versionString": read("/proc/version"),
        "libcVersion": libc_version(),
        "kernelVersion": read("/proc/sys/kernel/osrelease"),
        "cpuFrequencyMHz": cpu.mhz.as_str(),
        "cpuFeatures": cpu.features.as_str(),
        "cpuString": cpu.model.as_str(),
        "pageSize": page,
        "numPages": (machine_memory() / page.max(1) as u64) as i64,
        "maxOpenFiles": files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        let block = |n: u32, socket: u32, core: u32| {
            format!(
                "processor\t: {n}\nmodel name\t: M 1\ncpu MHz\t\t: 2000.5\n\
                 physical id\t: {socket}\ncore id\t\t: {core}\nflags\t\t: a b\n\n"
            )
        };
        // Two sockets with two cores of two threads each.
        let text: String = (0..8).map(|n| block(n, n / 4, n % 4 / 2)).collect();
        assert_eq!(
            Processors::of(&text),
            Processors {
                model: "M 1".into(),
                features: "a b".into(),
                mhz: "2000.5".into(),
                sockets: 2,
                cores: 4,
            }
        );
        let arm = "processor\t: 0\nFeatures\t: fp\n\nprocessor\t: 1\nFeatures\t: fp\n\n";
        let p = Processors::of(arm);
        assert_eq!((p.sockets, p.cores, p.features.as_str()), (1, 2, "fp"));
        assert!(numa_nodes() >= 1);
    }
}
