//! `hostInfo`.

use crate::log::now_ms;
use crate::options::{machine_memory, memory_limit};
use crate::registry::CommandSpec;
use muniment_value::{DocBuf, Value, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "hostInfo",
    aliases: &["hostinfo"],
    doc: "The machine and its system",
    run: |cx| {
        let w = &mut cx.reply;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        w.field(
            "system",
            doc! {
                "currentTime": Value::DateTime(now_ms()),
                "hostname": cx.server.host.as_str(),
                "cpuAddrSize": 64,
                "memSizeMB": (machine_memory() >> 20) as i64,
                "memLimitMB": (memory_limit() >> 20) as i64,
                "numCores": cores as i32,
                "numCoresAvailableToProcess": cores as i32,
                "cpuArch": std::env::consts::ARCH,
                "numaEnabled": false,
            },
        );
        let (name, version) = os();
        w.field(
            "os",
            doc! { "type": "Linux", "name": name, "version": version },
        );
        w.field("extra", extra());
        Ok(())
    },
    ..CommandSpec::DEFAULT
};

/// Name and version of the distribution.
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

fn extra() -> DocBuf {
    let read = |p: &str| {
        std::fs::read_to_string(p)
            .map(|s| s.trim().to_string())
            .unwrap_or_default()
    };
    // SAFETY: a plain question.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(':'))
        .map(|(_, m)| m.trim().to_string());
    doc! {
        "versionString": read("/proc/version"),
        "kernelVersion": read("/proc/sys/kernel/osrelease"),
        "cpuString": model.unwrap_or_default(),
        "pageSize": page,
        "numPages": (machine_memory() / page.max(1) as u64) as i64,
    }
}
