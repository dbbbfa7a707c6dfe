//! Latency recording: an HDR histogram in nanoseconds that is merged over the workers, and the form in which
//! it is written (quantiles for people, the HDR V2 encoding for tools).

use crate::number;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Latencies longer than this, one hour, are not distinguished.
const MAX_NS: u64 = 3_600_000_000_000;

/// Latencies of one kind of operation.
#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Latency {
    hist: Option<Histogram<u64>>,
    sum_ns: u128,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl Latency {
    /// An empty recording.
    pub fn new() -> Latency {
        Latency {
            hist: Histogram::new_with_bounds(1, MAX_NS, 3).ok(),
            sum_ns: 0,
        }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        if let Some(h) = &mut self.hist {
            h.saturating_record(ns);
        }
    }

    /// Adds everything that `other` has recorded.
    pub fn merge(&mut self, other: &Latency) {
        self.sum_ns += other.sum_ns;
        if let (Some(h), Some(o)) = (&mut self.hist, &other.hist) {
            // Both have the same bounds, so this cannot fail.
            let _ = h.add(o);
        }
    }

    /// The histogram itself, in ns.
    pub fn histogram(&self) -> Option<&Histogram<u64>> {
        self.hist.as_ref()
    }

    /// Every latency that occurs, in ms, ascending, with the number of latencies that are not longer.
    pub fn cumulative_ms(&self) -> Vec<(f64, u64)> {
        let mut sum = 0;
        let recorded = self.hist.iter().flat_map(Histogram::iter_recorded);
        recorded
            .map(|v| {
                sum += v.count_at_value();
                (v.value_iterated_to() as f64 / 1e6, sum)
            })
            .collect()
    }

    /// The number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.hist.as_ref().map_or(0, Histogram::len)
    }

    /// The sum of all latencies, in ns.
    pub fn sum_ns(&self) -> f64 {
        self.sum_ns as f64
    }

    /// The mean, in ms (exact, and not from the buckets).
    pub fn mean_ms(&self) -> f64 {
        self.sum_ns as f64 / self.count() as f64 / 1e6
    }

    /// The standard deviation, in ms, to three significant digits.
    pub fn deviation_ms(&self) -> f64 {
        self.hist.as_ref().map_or(f64::NAN, |h| h.stdev() / 1e6)
    }

    /// The `q` quantile (0..=1), in ms, to three significant digits.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        self.hist
            .as_ref()
            .map_or(f64::NAN, |h| h.value_at_quantile(q) as f64 / 1e6)
    }

    /// The smallest latency, in ms.
    pub fn min_ms(&self) -> f64 {
        self.hist
            .as_ref()
            .map_or(f64::NAN, |h| h.min() as f64 / 1e6)
    }

    /// The largest latency, in ms.
    pub fn max_ms(&self) -> f64 {
        self.hist
            .as_ref()
            .map_or(f64::NAN, |h| h.max() as f64 / 1e6)
    }

    /// The latencies of a compressed HDR V2 histogram in ns. `sum_ns` is their exact sum.
    ///
    /// # Errors
    /// A description of the fault in the bytes.
    pub fn from_hdr(hdr: &[u8], sum_ns: u128) -> Result<Latency, String> {
        let read: Histogram<u64> = hdrhistogram::serialization::Deserializer::new()
            .deserialize(&mut &*hdr)
            .map_err(|e| format!("no HDR V2 histogram: {e}"))?;
        let mut l = Latency::new();
        if let Some(h) = &mut l.hist {
            h.add(&read)
                .map_err(|e| format!("the histogram reaches beyond an hour: {e}"))?;
        }
        l.sum_ns = sum_ns;
        Ok(l)
    }

    /// The histogram in the compressed HDR V2 form. After a failure it is empty, and only the quantiles are
    /// left.
    pub fn hdr(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        if let Some(h) = &self.hist
            && V2DeflateSerializer::new().serialize(h, &mut raw).is_err()
        {
            raw.clear();
        }
        raw
    }
}

/// The JSON form of a [`Latency`]: its quantiles for people, the histogram for programs.
#[derive(Serialize, Deserialize)]
struct Written {
    count: u64,
    sum_ns: u64,
    #[serde(with = "number")]
    mean_ms: f64,
    #[serde(with = "number::pairs")]
    quantiles_ms: Vec<(f64, f64)>,
    #[serde(rename = "hdr_v2_deflate_base64_ns", with = "number::base64")]
    hdr: Vec<u8>,
}

/// The quantiles that are written.
const WRITTEN: [f64; 10] = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

impl From<Latency> for Written {
    fn from(l: Latency) -> Written {
        Written {
            count: l.count(),
            sum_ns: u64::try_from(l.sum_ns).unwrap_or(u64::MAX),
            mean_ms: l.mean_ms(),
            quantiles_ms: WRITTEN.iter().map(|&q| (q, l.quantile_ms(q))).collect(),
            hdr: l.hdr(),
        }
    }
}

impl TryFrom<Written> for Latency {
    type Error = String;

    fn try_from(w: Written) -> Result<Latency, String> {
        let l = Latency::from_hdr(&w.hdr, u128::from(w.sum_ns))?;
        if l.count() != w.count {
            return Err(format!(
                "the histogram holds {} latencies and says {}",
                l.count(),
                w.count
            ));
        }
        Ok(l)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quantiles_and_merge() {
        let mut a = Latency::new();
        let mut b = Latency::new();
        for i in 1..=50 {
            a.record(i * 1_000_000);
            b.record((i + 50) * 1_000_000);
        }
        a.merge(&b);
        assert_eq!(a.count(), 100);
        assert!((a.quantile_ms(0.5) - 50.0).abs() < 0.1);
        assert!((a.max_ms() - 100.0).abs() < 0.1);
        assert!((a.mean_ms() - 50.5).abs() < 1e-9);
        assert!((a.min_ms() - 1.0).abs() < 0.01);
    }

    #[test]
    fn json_carries_a_histogram_other_tools_read() {
        let mut a = Latency::new();
        for i in 1..1000u64 {
            a.record(i * i * 12_345);
        }
        let j = serde_json::to_value(&a).unwrap();
        assert_eq!(j["count"], 999);
        // The cookie of the compressed V2 format, 0x1c849304, becomes "HIST" in base64.
        let hdr = j["hdr_v2_deflate_base64_ns"].as_str().unwrap();
        assert!(hdr.starts_with("HIST"));
        let b: Latency = serde_json::from_value(j.clone()).unwrap();
        assert_eq!(serde_json::to_value(&b).unwrap(), j);
        assert_eq!(b.mean_ms(), a.mean_ms());
    }

    #[test]
    fn a_damaged_histogram_is_refused() {
        let mut j = serde_json::to_value(Latency::new()).unwrap();
        j["count"] = 3.into();
        let e = serde_json::from_value::<Latency>(j.clone()).err().unwrap();
        assert!(e.to_string().contains("holds 0 latencies and says 3"));
        j["hdr_v2_deflate_base64_ns"] = "AAAA".into();
        let e = serde_json::from_value::<Latency>(j).err().unwrap();
        assert!(e.to_string().contains("no HDR V2 histogram"), "{e}");
    }
}
