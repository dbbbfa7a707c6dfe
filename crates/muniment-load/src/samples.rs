//! What is kept of a load: every latency as a histogram, the course of time, what it cost.

use crate::hist::Latency;
use crate::number;
use crate::usage::{ServerUsage, Usage};
use serde::{Deserialize, Serialize};

/// A second of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began, s since the load's beginning.
    #[serde(rename = "start_s")]
    pub start: f64,
    /// How long it was, s: less than one at the end.
    #[serde(rename = "length_s")]
    pub length: f64,
    /// Operations that ended in it.
    pub operations: u64,
    /// Their median, ms.
    #[serde(with = "number")]
    pub p50_ms: f64,
    /// Their 99th percentile, ms.
    #[serde(with = "number")]
    pub p99_ms: f64,
    /// The longest, ms.
    #[serde(with = "number")]
    pub max_ms: f64,
    /// All their latencies in ns: an HDR histogram, V2, deflated.
    #[serde(rename = "hdr_v2_deflate_base64_ns", with = "number::base64")]
    pub hdr: Vec<u8>,
    /// The server's CPU s, bytes read and written in it, and resident bytes at its end.
    pub server: Option<ServerUsage>,
}

/// One set of measurements as it was taken: nothing is thrown away before the JSON.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SampleSet {
    /// Which variant.
    pub name: String,
    /// Latency of the operations.
    pub latency: Latency,
    /// (seconds since the start, operations finished until then).
    #[serde(rename = "timeline_s_ops", with = "number::pairs")]
    pub timeline: Vec<(f64, f64)>,
    /// Every latency in ms, in order, when there were few enough to keep.
    #[serde(with = "number::list")]
    pub each_ms: Vec<f64>,
    /// Operations and how long they took altogether.
    pub operations: u64,
    /// Seconds from the first send to the last acknowledgement.
    #[serde(with = "number")]
    pub seconds: f64,
    /// When it began, s since 1970.
    #[serde(rename = "began_unix_s", with = "number")]
    pub began: f64,
    /// Connections, one worker each; 0 if it was not kept.
    #[serde(default)]
    pub workers: u64,
    /// On which cores client and server of a single connection were: `one core`, `two cores`, or
    /// nothing where they were not pinned.
    #[serde(default)]
    pub placement: String,
    /// Second by second.
    pub intervals: Vec<Interval>,
    /// What it cost.
    pub usage: Option<Usage>,
}
