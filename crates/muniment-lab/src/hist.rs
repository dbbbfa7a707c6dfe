//! Latency recording: an HDR histogram in nanoseconds, merged over workers, and how it is
//! written down (quantiles for people, the HDR V2 encoding for tools).

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde_json::{Value, json};

/// The longest latency kept apart from longer ones: one hour.
const MAX_NS: u64 = 3_600_000_000_000;

/// Latencies of one kind of operation.
#[derive(Clone)]
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
    /// Nothing recorded yet.
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

    /// Takes over everything `other` holds.
    pub fn merge(&mut self, other: &Latency) {
        self.sum_ns += other.sum_ns;
        if let (Some(h), Some(o)) = (&mut self.hist, &other.hist) {
            // Both have the same bounds, so this cannot fail.
            let _ = h.add(o);
        }
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.hist.as_ref().map_or(0, Histogram::len)
    }

    /// The sum of all, ns.
    pub fn sum_ns(&self) -> f64 {
        self.sum_ns as f64
    }

    /// The mean, ms (exact, not from the buckets).
    pub fn mean_ms(&self) -> f64 {
        self.sum_ns as f64 / self.count() as f64 / 1e6
    }

    /// The `q` quantile (0..=1), ms, to three significant digits.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        self.hist
            .as_ref()
            .map_or(f64::NAN, |h| h.value_at_quantile(q) as f64 / 1e6)
    }

    /// The smallest, ms.
    pub fn min_ms(&self) -> f64 {
        self.hist
            .as_ref()
            .map_or(f64::NAN, |h| h.min() as f64 / 1e6)
    }

    /// The largest, ms.
    pub fn max_ms(&self) -> f64 {
        self.hist
            .as_ref()
            .map_or(f64::NAN, |h| h.max() as f64 / 1e6)
    }

    /// Count, mean, quantiles and the compressed HDR V2 histogram (base64), as JSON.
    pub fn json(&self) -> Value {
        let qs = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];
        let quantiles: Vec<Value> = qs
            .iter()
            .map(|&q| json!([q, self.quantile_ms(q)]))
            .collect();
        json!({
            "count": self.count(),
            "mean_ms": finite(self.mean_ms()),
            "quantiles_ms": quantiles,
            "hdr_v2_deflate_base64_ns": base64(&self.hdr()),
        })
    }

    /// The histogram in the compressed HDR V2 form. A failure leaves it empty; the quantiles still
    /// stand.
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

/// `x`, or null when it is no finite number (JSON has no NaN).
pub fn finite(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

/// Standard base64 with padding (RFC 4648).
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for c in bytes.chunks(3) {
        let byte = |i: usize| u32::from(c.get(i).copied().unwrap_or(0));
        let n = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            if i > c.len() {
                out.push('=');
            } else {
                let at = (n >> (18 - 6 * i)) & 63;
                out.push(char::from(
                    ALPHABET.get(at as usize).copied().unwrap_or(b'='),
                ));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
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
        a.record(1000);
        let j = a.json();
        assert_eq!(j["count"], 1);
        // 0x1c849304, the cookie of the compressed V2 format, begins "HIST".
        assert!(
            j["hdr_v2_deflate_base64_ns"]
                .as_str()
                .is_some_and(|s| s.starts_with("HIST"))
        );
    }

    #[test]
    fn base64_of_the_rfc() {
        for (i, o) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(i.as_bytes()), o);
        }
    }
}
