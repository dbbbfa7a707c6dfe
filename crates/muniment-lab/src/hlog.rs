//! HDR interval logs: the per-second latencies of a load in the text format that HdrHistogram's own
//! tools read (version 2: header comments, then one line `Tag=…,start,length,max,histogram` for
//! each interval). Each sample set gets one file.

use crate::report::Outcome;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::samples::SampleSet;
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The column heading above the intervals, by which HdrHistogram's tools recognise the columns.
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// Writes `histograms/EXPERIMENT-NAME.hlog` below `dir` for every sample set that was recorded
/// second by second. `used` holds the file names that the run has written so far; no name is used
/// twice.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_all(dir: &Path, outcome: &Outcome, used: &mut HashSet<String>) -> Result<()> {
    let dir = dir.join("histograms");
    for set in outcome.samples.iter().filter(|s| !s.intervals.is_empty()) {
        let stem = safe(&format!("{}-{}", outcome.id, set.name));
        // Repetitions of a load have the same name, so a number is appended to make the file's name
        // unique.
        let name = (1..)
            .map(|n| match n {
                1 => format!("{stem}.hlog"),
                n => format!("{stem}-{n}.hlog"),
            })
            .find(|name| used.insert(name.clone()))
            .unwrap_or(stem);
        let file = dir.join(name);
        let text = of(set).map_err(|e| e.while_doing(&format!("writing {}", file.display())))?;
        std::fs::create_dir_all(&dir).context(&format!("making {}", dir.display()))?;
        std::fs::write(&file, text).context(&format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Renders the log of one sample set.
fn of(set: &SampleSet) -> Result<Vec<u8>> {
    let intervals = set
        .intervals
        .iter()
        .map(|i| {
            let l = match i.hdr.as_slice() {
                [] => Latency::new(),
                hdr => Latency::from_hdr(hdr, 0).map_err(Failure)?,
            };
            Ok((i.start, i.length, l))
        })
        .collect::<Result<Vec<_>>>()?;
    log(&set.name, set.began, &intervals)
}

/// Renders a log of (start s, length s, latencies) under one tag; `began` is the time at which the
/// load began, in seconds since 1970. Latencies are in ns; the maximum that stands in the line for
/// people is in ms.
///
/// # Errors
/// A histogram cannot be encoded.
pub(crate) fn log(tag: &str, began: f64, intervals: &[(f64, f64, Latency)]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let began = UNIX_EPOCH + seconds(began);
    header(began)
        .begin_log_with(&mut out, &mut serializer)
        .context("writing the header")?;
    out.extend_from_slice(LEGEND.as_bytes());
    let mut lines = IntervalLogWriterBuilder::new();
    // This makes the writer divide the maximum. It also writes a comment with the divisor, which
    // repeats what the header says in other words, but the one cannot be had without the other.
    lines.with_max_value_divisor(1e6);
    let mut writer = lines
        .begin_log_with(&mut out, &mut serializer)
        .context("writing the header")?;
    let tag = safe(tag);
    for (start, length, latency) in intervals {
        let Some(h) = latency.histogram() else {
            return Err(Failure::new("a histogram is missing"));
        };
        writer
            .write_histogram(h, seconds(*start), seconds(*length), Tag::new(&tag))
            .map_err(|e| Failure(format!("writing a histogram: {e:?}")))?;
    }
    Ok(out)
}

fn header(began: SystemTime) -> IntervalLogWriterBuilder {
    let mut b = IntervalLogWriterBuilder::new();
    b.add_comment("[Histogram log format version 1.3]")
        .add_comment("latencies in ns, maximum in ms")
        .with_start_time(began)
        .with_base_time(began);
    b
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or_default()
}

/// Reduces a name to letters, digits, dots and hyphens, which file systems and tags accept.
fn safe(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_alphanumeric() || c == '.' {
            out.push(c);
        } else if !out.ends_with('-') {
            out.push('-');
        }
    }
    out.trim_matches(['-', '.']).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use base64::Engine;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use muniment_load::samples::Interval;

    #[test]
    fn the_librarys_reader_reads_it_back() {
        let latency = |n: u64| {
            let mut l = Latency::new();
            (1..=n).for_each(|i| l.record(i * 1_000_000));
            l
        };
        let set = SampleSet {
            name: "w:1, 4 workers".into(),
            began: 1_700_000_000.25,
            intervals: [(0.0, 1.0, 100), (1.0, 1.0, 0), (2.0, 0.5, 3)]
                .into_iter()
                .map(|(start, length, n)| Interval {
                    start,
                    length,
                    hdr: latency(n).hdr(),
                    ..Interval::default()
                })
                .chain([Interval {
                    start: 2.5,
                    ..Interval::default()
                }])
                .collect(),
            ..SampleSet::default()
        };
        let text = of(&set).unwrap();
        let shown = String::from_utf8(text.clone()).unwrap();
        assert!(shown.contains("#[StartTime: 1700000000.250 (seconds since epoch)]\n"));
        assert!(shown.contains("#[BaseTime: 1700000000.250 (seconds since epoch)]\n"));
        assert!(shown.contains(LEGEND));
        assert!(
            shown.contains("Tag=w-1-4-workers,0.000,1.000,100."),
            "{shown}"
        );
        let mut read = Vec::new();
        for entry in IntervalLogIterator::new(&text) {
            if let LogEntry::Interval(i) = entry.unwrap() {
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(i.encoded_histogram())
                    .unwrap();
                let l = Latency::from_hdr(&bytes, 0).unwrap();
                let p50 = (l.count() > 0).then(|| l.quantile_ms(0.5).round());
                read.push((i.start_timestamp().as_secs_f64(), l.count(), p50));
            }
        }
        assert_eq!(
            read,
            [
                (0.0, 100, Some(50.0)),
                (1.0, 0, None),
                (2.0, 3, Some(2.0)),
                (2.5, 0, None)
            ]
        );
    }

    #[test]
    fn names_are_safe_and_unlike() {
        assert_eq!(safe("w1-w:1, ×10,000"), "w1-w-1-10-000");
        assert_eq!(safe("../../etc/passwd"), "etc-passwd");
        let dir = std::env::temp_dir().join(format!("muniment-hlog-{}", std::process::id()));
        let set = |name: &str| SampleSet {
            name: name.into(),
            intervals: vec![Interval::default()],
            ..SampleSet::default()
        };
        let outcome = Outcome {
            id: "w3".into(),
            samples: vec![set("w:0"), set("w/0"), set("w:0"), SampleSet::default()],
            ..Outcome::default()
        };
        let mut used = HashSet::new();
        write_all(&dir, &outcome, &mut used).unwrap();
        // Another experiment of the same run, whose name becomes the same file name once characters
        // that files cannot have are replaced.
        let other = Outcome {
            id: "w:3".into(),
            samples: vec![set("w:0")],
            ..Outcome::default()
        };
        write_all(&dir, &other, &mut used).unwrap();
        let mut names: Vec<String> = std::fs::read_dir(dir.join("histograms"))
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(
            names,
            [
                "w-3-w-0.hlog",
                "w3-w-0-2.hlog",
                "w3-w-0-3.hlog",
                "w3-w-0.hlog"
            ]
        );
    }
}
