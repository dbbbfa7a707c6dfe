//! The costs of a load: CPU time on both sides, and the server's reads and writes. They are expressed per
//! operation, as microseconds of CPU time and bytes.

use crate::number;
use crate::procs::Sample;
use serde::{Deserialize, Serialize};

/// The resources that a server's process used in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// CPU seconds, user and system.
    #[serde(rename = "cpu_s", with = "number")]
    pub cpu: f64,
    /// The step in which the CPU time was counted, in s.
    #[serde(rename = "cpu_step_s", with = "number", default = "tick")]
    pub cpu_step: f64,
    /// Bytes read from the block layer.
    #[serde(rename = "read_bytes", with = "number")]
    pub read: f64,
    /// Bytes written to the block layer.
    #[serde(rename = "written_bytes", with = "number")]
    pub written: f64,
    /// Resident bytes: the largest value that was seen, or the value at the end of an interval.
    #[serde(rename = "rss_bytes", with = "number")]
    pub rss: f64,
}

/// The step of systems that do not show a finer clock. Results that do not name a step were counted in this
/// one.
fn tick() -> f64 {
    0.01
}

/// If fewer steps of the clock than this were counted, the figure is not used, because the first and the last
/// step may be almost empty or almost complete.
const STEPS: f64 = 20.0;

/// The text in a table if there were fewer steps.
pub const TOO_SHORT: &str = "too short to measure";

impl ServerUsage {
    /// The CPU seconds, if enough steps of the clock were counted to believe them.
    pub fn cpu_believed(&self) -> Option<f64> {
        (self.cpu >= STEPS * self.cpu_step).then_some(self.cpu)
    }

    /// The usage between two samples; `rss` is that of the later one.
    pub fn between(before: &Sample, after: &Sample) -> ServerUsage {
        ServerUsage {
            cpu: after.cpu_seconds - before.cpu_seconds,
            cpu_step: after.cpu_step.max(before.cpu_step),
            read: after.read - before.read,
            written: after.written - before.written,
            rss: after.rss,
        }
    }
}

/// The costs of a load on both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The number by which costs are divided: documents written or read, or operations where that is more
    /// meaningful.
    pub units: u64,
    /// CPU seconds of the load's workers.
    #[serde(rename = "client_cpu_s", with = "number")]
    pub client_cpu: f64,
    /// The server's usage, if its process can be read.
    pub server: Option<ServerUsage>,
    /// The bytes of documents and changes that were sent to be written.
    #[serde(rename = "payload_bytes")]
    pub payload: u64,
}

impl Usage {
    /// The quantity `x` per unit.
    pub fn each(&self, x: f64) -> f64 {
        x / self.units.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn results_that_do_not_say_in_what_they_were_counted_were_counted_in_ticks() {
        let old = r#"{"cpu_s":0.01,"read_bytes":0,"written_bytes":0,"rss_bytes":0}"#;
        let old: ServerUsage = serde_json::from_str(old).unwrap();
        assert_eq!(old.cpu_believed(), None);
    }

    #[test]
    fn usage_is_a_difference() {
        let before = Sample {
            cpu_seconds: 1.0,
            cpu_step: 0.01,
            rss: 10.0,
            peak_rss: 10.0,
            written: 5.0,
            read: 1.0,
        };
        let after = Sample {
            cpu_seconds: 3.0,
            cpu_step: 1e-9,
            rss: 30.0,
            peak_rss: 40.0,
            written: 9.0,
            read: 2.0,
        };
        let u = ServerUsage::between(&before, &after);
        assert_eq!((u.cpu, u.read, u.written, u.rss), (2.0, 1.0, 4.0, 30.0));
        assert_eq!(u.cpu_step, 0.01, "the coarser one counts");
    }
}
