//! The data that is kept of a load: every latency in a histogram, the course of time, and the costs.

use crate::hist::Latency;
use crate::number;
use crate::usage::{ServerUsage, Usage};
use serde::{Deserialize, Serialize};

/// One second of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its beginning, in s since the load began.
    #[serde(rename = "start_s")]
    pub start: f64,
    /// Its length, in s; the last one is shorter than a second.
    #[serde(rename = "length_s")]
    pub length: f64,
    /// The number of operations that ended in it.
    pub operations: u64,
    /// Their median latency, in ms.
    #[serde(with = "number")]
    pub p50_ms: f64,
    /// Their 99th percentile, in ms.
    #[serde(with = "number")]
    pub p99_ms: f64,
    /// The longest, in ms.
    #[serde(with = "number")]
    pub max_ms: f64,
    /// All their latencies in ns, as an HDR histogram (V2, deflated).
    #[serde(rename = "hdr_v2_deflate_base64_ns", with = "number::base64")]
    pub hdr: Vec<u8>,
    /// The server's CPU seconds and its bytes read and written in this second, and its resident bytes at the
    /// end.
    pub server: Option<ServerUsage>,
}

/// One set of measurements in full detail. Nothing is discarded before it is written as JSON.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SampleSet {
    /// The name of the variant.
    pub name: String,
    /// The latencies of the operations.
    pub latency: Latency,
    /// Pairs of (seconds since the start, operations finished until then).
    #[serde(rename = "timeline_s_ops", with = "number::pairs")]
    pub timeline: Vec<(f64, f64)>,
    /// Every latency in ms, in order, if there were few enough to keep.
    #[serde(with = "number::list")]
    pub each_ms: Vec<f64>,
    /// The number of operations.
    pub operations: u64,
    /// Seconds from the first send to the last acknowledgement.
    #[serde(with = "number")]
    pub seconds: f64,
    /// The time when it began, in s since 1970.
    #[serde(rename = "began_unix_s", with = "number")]
    pub began: f64,
    /// The number of connections, with one worker each; 0 if it was not recorded.
    #[serde(default)]
    pub workers: u64,
    /// The cores of client and server of a single connection: `one core`, `two cores`, or an empty string if
    /// they were not pinned.
    #[serde(default)]
    pub placement: String,
    /// The intervals, one per second.
    pub intervals: Vec<Interval>,
    /// The costs.
    pub usage: Option<Usage>,
}
