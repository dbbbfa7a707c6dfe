//! What a load cost: CPU on both sides, what the server read and wrote, and how that stands to
//! what it was sent. The terms are those of efficiency per operation: microseconds of CPU, kilobytes
//! read and written, and bytes written for each byte of a write (write amplification).

use crate::procs::Sample;
use crate::report::table::{Table, bytes, rate};
use crate::report::{SampleSet, number};
use crate::stats::median;
use serde::{Deserialize, Serialize};

/// What a server's process used in a stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// CPU seconds, user and system.
    #[serde(rename = "cpu_s", with = "number")]
    pub cpu: f64,
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

impl ServerUsage {
    /// Between two samples; `rss` is the later one's.
    pub fn between(before: &Sample, after: &Sample) -> ServerUsage {
        ServerUsage {
            cpu: after.cpu_seconds - before.cpu_seconds,
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

/// The table of costs of `samples`, a row a name (medians of those that were measured several
/// times); `None` if nothing was measured. `price` is what an hour of a core costs, in whatever
/// currency.
pub fn table(samples: &[SampleSet], price: Option<f64>) -> Option<Table> {
    let mut names: Vec<&str> = Vec::new();
    for s in samples.iter().filter(|s| s.usage.is_some()) {
        if !names.contains(&s.name.as_str()) {
            names.push(&s.name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut columns = vec![
        "<load",
        ">documents",
        ">server CPU µs/doc",
        ">client CPU µs/doc",
        ">KB read/doc",
        ">KB written/doc",
        ">write amplification",
        ">largest RSS",
    ];
    columns.push(match price {
        Some(_) => ">cost of 1 M docs",
        None => ">core-s of 1 M docs",
    });
    let mut t = Table::new("Cost per document", &columns);
    for name in names {
        let usages: Vec<Usage> = samples
            .iter()
            .filter(|s| s.name == name)
            .filter_map(|s| s.usage)
            .collect();
        let of = |f: &dyn Fn(&Usage) -> Option<f64>| {
            let all: Vec<f64> = usages.iter().filter_map(f).collect();
            (!all.is_empty()).then(|| median(&all))
        };
        let dash = || "–".to_string();
        let figure = |x: Option<f64>, show: fn(f64) -> String| x.map_or_else(dash, show);
        let server =
            |f: fn(&ServerUsage) -> f64| of(&|u: &Usage| u.server.as_ref().map(|s| u.each(f(s))));
        let cpu = server(|s| s.cpu);
        t.row([
            name.to_string(),
            figure(of(&|u| Some(u.units as f64)), rate),
            figure(cpu.map(|c| c * 1e6), digits),
            figure(of(&|u| Some(u.each(u.client_cpu) * 1e6)), digits),
            figure(server(|s| s.read).map(|b| b / 1e3), digits),
            figure(server(|s| s.written).map(|b| b / 1e3), digits),
            figure(
                of(&|u| {
                    let written = u.server.as_ref()?.written;
                    (u.payload > 0).then(|| written / u.payload as f64)
                }),
                digits,
            ),
            figure(of(&|u| u.server.as_ref().map(|s| s.rss)), bytes),
            match price {
                Some(p) => figure(cpu.map(|c| c * 1e6 / 3600.0 * p), |x| format!("{x:.5}")),
                None => figure(cpu.map(|c| c * 1e6), digits),
            },
        ]);
    }
    t.note(format!(
        "Written: what the server handed to the block layer while the load ran; what it compacts later is not in it. Write amplification: that over the bytes of documents and changes sent. Cost: the server's CPU{}.",
        match price {
            Some(p) => format!(" at {p} a core and hour"),
            None => " (--core-hour PRICE turns it into money)".into(),
        }
    ));
    Some(t)
}

/// Three digits or so.
fn digits(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() => "–".into(),
        a if a >= 100.0 => rate(x.round()),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a > 0.0 && a < 0.095 => format!("{x:.3}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn sample(name: &str, cpu: f64) -> SampleSet {
        SampleSet {
            name: name.into(),
            usage: Some(Usage {
                units: 1000,
                client_cpu: 0.002,
                server: Some(ServerUsage {
                    cpu,
                    read: 0.0,
                    written: 3_000_000.0,
                    rss: 5e7,
                }),
                payload: 1_000_000,
            }),
            ..SampleSet::default()
        }
    }

    #[test]
    fn costs_are_per_document_and_medians_of_repetitions() {
        let mut other = sample("b", 0.5);
        other.usage.as_mut().unwrap().server = None;
        let set = [
            sample("a", 0.01),
            sample("a", 0.02),
            sample("a", 0.04),
            other,
        ];
        let t = table(&set, None).unwrap();
        assert_eq!(
            t.rows[0],
            [
                "a", "1,000", "20.0", "2.00", "0.00", "3.00", "3.00", "50.00 MB", "20.0"
            ]
        );
        assert_eq!(t.rows[1][2], "–");
        assert_eq!(t.rows.len(), 2);
        assert!(table(&[SampleSet::default()], None).is_none());
        // 20 µs of CPU a document are 20 s a million: a 180th of an hour.
        let t = table(&set, Some(1.8)).unwrap();
        assert_eq!(t.rows[0][8], "0.01000");
    }

    #[test]
    fn usage_is_a_difference() {
        let before = Sample {
            cpu_seconds: 1.0,
            rss: 10.0,
            peak_rss: 10.0,
            written: 5.0,
            read: 1.0,
        };
        let after = Sample {
            cpu_seconds: 3.0,
            rss: 30.0,
            peak_rss: 40.0,
            written: 9.0,
            read: 2.0,
        };
        let u = ServerUsage::between(&before, &after);
        assert_eq!((u.cpu, u.read, u.written, u.rss), (2.0, 1.0, 4.0, 30.0));
    }
}
