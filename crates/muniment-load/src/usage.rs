//! What a load cost: CPU on both sides, and what the server read and wrote. The terms are those of
//! efficiency per operation: microseconds of CPU, and bytes.

use crate::number;
use crate::procs::Sample;
use serde::{Deserialize, Serialize};

/// What a server's process used in a stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// CPU seconds, user and system.
    #[serde(rename = "cpu_s", with = "number")]
    pub cpu: f64,
    /// In what steps the CPU was counted, s.
    #[serde(rename = "cpu_step_s", with = "number", default = "tick")]
    pub cpu_step: f64,
    /// Bytes fetched from the block layer.
    #[serde(rename = "read_bytes", with = "number")]
    pub read: f64,
    /// Bytes handed to the block layer.
    #[serde(rename = "written_bytes", with = "number")]
    pub written: f64,
    /// Resident bytes: the largest that was seen, or those at the end of an interval.
    #[serde(rename = "rss_bytes", with = "number")]
    pub rss: f64,
}

/// What a system counts CPU in that shows no more: results that do not say it were counted so.
fn tick() -> f64 {
    0.01
}

/// Fewer steps of the clock than these are no figure: the first and the last of them may be almost
/// nothing or almost whole.
const STEPS: f64 = 20.0;

/// What stands in a table where there were fewer.
pub const TOO_SHORT: &str = "too short to measure";

impl ServerUsage {
    /// The CPU seconds, if enough steps of the clock were counted to believe them.
    pub fn cpu_believed(&self) -> Option<f64> {
        (self.cpu >= STEPS * self.cpu_step).then_some(self.cpu)
    }

    /// Between two samples; `rss` is the later one's.
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

/// What a load cost both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Documents written or read, or operations where that says more: what the costs are divided by.
    pub units: u64,
    /// CPU seconds of the load's workers.
    #[serde(rename = "client_cpu_s", with = "number")]
    pub client_cpu: f64,
    /// The server's part, if its process can be read.
    pub server: Option<ServerUsage>,
    /// Bytes of documents and changes that were sent to be written.
    #[serde(rename = "payload_bytes")]
    pub payload: u64,
}

impl Usage {
    /// `x` by its units.
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
