//! YCSB's CoreWorkload: chooses the next operation, its key and its values.
//!
//! Source: YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010) and the
//! behaviour of its released client, property by property.

use super::properties::Properties;
use crate::distributions::counter::Counter;
use crate::distributions::exponential::Exponential;
use crate::distributions::histogram::Histogram;
use crate::distributions::hotspot::Hotspot;
use crate::distributions::latest::Latest;
use crate::distributions::scrambled::Scrambled;
use crate::distributions::sequential::Sequential;
use crate::distributions::uniform::Uniform;
use crate::distributions::zipfian::{THETA, Zipfian};
use crate::distributions::{Constant, Distribution, fnv};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::rng::Rng;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An operation of the transaction phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Reads one document.
    Read,
    /// Sets one field of a document, or all.
    Update,
    /// Inserts one document.
    Insert,
    /// Reads several documents in the order of their keys.
    Scan,
    /// Reads one document and then updates it.
    ReadModifyWrite,
}

/// The operations in the order in which the chooser goes through them.
const OPERATIONS: [(Operation, &str, f64); 5] = [
    (Operation::Read, "readproportion", 0.95),
    (Operation::Update, "updateproportion", 0.05),
    (Operation::Insert, "insertproportion", 0.0),
    (Operation::Scan, "scanproportion", 0.0),
    (Operation::ReadModifyWrite, "readmodifywriteproportion", 0.0),
];

#[derive(Debug, Clone)]
enum Length {
    Constant(u64),
    Uniform(u64, u64),
    Zipfian(Zipfian),
    Histogram(Histogram),
}

impl Length {
    fn distribution(&self) -> Box<dyn Distribution> {
        match self {
            Length::Constant(n) => Box::new(Constant(*n)),
            Length::Uniform(low, high) => Box::new(Uniform::new(*low, *high)),
            Length::Zipfian(z) => Box::new(z.clone()),
            Length::Histogram(h) => Box::new(h.clone()),
        }
    }
}

#[derive(Debug, Clone)]
enum Request {
    Uniform,
    Sequential,
    Zipfian,
    Latest(Box<Latest>),
    Hotspot(f64, f64),
    Exponential(f64, f64),
}

/// A workload as its properties describe it.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// The collection.
    pub table: String,
    /// Documents in the collection after the load.
    pub records: u64,
    /// The number of operations of the transaction phase; 0 for no limit.
    pub operations: u64,
    /// The first key of the load.
    pub insert_start: u64,
    /// The number of keys that the load inserts.
    pub insert_count: u64,
    /// The names of the fields.
    pub fields: Vec<String>,
    /// Whether reads ask for whole documents, or for one field.
    pub read_all_fields: bool,
    /// Whether reads of whole documents name every field.
    pub read_all_by_name: bool,
    /// Whether updates set every field, or one.
    pub write_all_fields: bool,
    /// Whether values follow from key and field, so that reads can check them.
    pub data_integrity: bool,
    /// How often a failed insert of the load is repeated.
    pub insert_retries: u64,
    /// The pause between repetitions, in seconds, ± 20 %.
    pub insert_retry_interval: f64,
    /// Whether the load continues after an insert that failed for good.
    pub keep_going: bool,
    length: Length,
    scan_length: Length,
    request: Request,
    weights: Vec<(Operation, f64)>,
    zero_padding: usize,
    hashed: bool,
    /// The keys of the load phase.
    load_keys: Arc<Counter>,
    /// The keys that the transaction phase inserts.
    pub new_keys: Arc<Counter>,
    sequence: Arc<AtomicU64>,
}

impl Workload {
    /// Reads a workload from its properties.
    ///
    /// # Errors
    /// A property makes no sense; the error names it.
    pub(crate) fn new(p: &Properties) -> Result<Workload> {
        supported(p)?;
        let [records, insert_start, insert_count] = counts(p)?;
        let length = length(p)?;
        let data_integrity = p.flag("dataintegrity", false);
        if data_integrity && !matches!(length, Length::Constant(_)) {
            return Err(Failure::new(
                "dataintegrity=true needs fieldlengthdistribution=constant",
            ));
        }
        let new_keys = Arc::new(Counter::new(records));
        Ok(Workload {
            table: p.text("table").unwrap_or("usertable").to_string(),
            records,
            operations: p.number("operationcount", 0)?,
            insert_start,
            insert_count,
            fields: fields(p)?,
            read_all_fields: p.flag("readallfields", true),
            read_all_by_name: p.flag("readallfieldsbyname", false),
            write_all_fields: p.flag("writeallfields", false),
            data_integrity,
            insert_retries: p.number("core_workload_insertion_retry_limit", 0)?,
            insert_retry_interval: p.number("core_workload_insertion_retry_interval", 3.0)?,
            keep_going: p.flag("core_workload_insertion_keep_going_on_error", false),
            length,
            scan_length: scan_length(p)?,
            request: request(p, &new_keys)?,
            weights: weights(p)?,
            zero_padding: p.number("zeropadding", 1)?,
            hashed: p.text("insertorder").unwrap_or("hashed") == "hashed",
            load_keys: Arc::new(Counter::new(insert_start)),
            new_keys,
            sequence: Arc::new(AtomicU64::new(0)),
        })
    }

    /// The key of record `n`.
    pub(crate) fn key(&self, n: u64) -> String {
        let mut key = String::new();
        self.write_key(n, &mut key);
        key
    }

    /// Writes the key of record `n` into a buffer that is reused; see [`Workload::key`].
    pub(crate) fn write_key(&self, n: u64, key: &mut String) {
        let number = if self.hashed { fnv::hash(n) } else { n as i64 };
        key.clear();
        // Writing to a string cannot fail.
        let _ = write!(key, "user{number:0>width$}", width = self.zero_padding);
    }

    /// Makes the random choices of one worker.
    pub(crate) fn chooser(&self, seed: u64) -> Chooser {
        let last = (self.insert_start + self.insert_count).saturating_sub(1);
        let keys: Box<dyn Distribution> = match &self.request {
            Request::Uniform => Box::new(Uniform::new(self.insert_start, last)),
            Request::Sequential => Box::new(Sequential::new(
                self.insert_start,
                last,
                self.sequence.clone(),
            )),
            Request::Zipfian => {
                let insert = self
                    .weights
                    .iter()
                    .find(|(o, _)| *o == Operation::Insert)
                    .map_or(0.0, |(_, w)| *w);
                // The range includes keys that are still to be inserted, so that it never changes
                // and the hot keys stay the same.
                let expected = (self.operations as f64 * insert * 2.0) as u64;
                Box::new(Scrambled::new(
                    self.insert_start,
                    self.insert_start + self.insert_count + expected,
                ))
            }
            Request::Latest(l) => l.clone(),
            Request::Hotspot(data, operations) => {
                Box::new(Hotspot::new(self.insert_start, last, *data, *operations))
            }
            Request::Exponential(percentile, share) => {
                Box::new(Exponential::new(*percentile, self.records as f64 * share))
            }
        };
        Chooser {
            rng: Rng::new(seed),
            keys,
            backwards: matches!(self.request, Request::Exponential(..)),
            length: self.length.distribution(),
            scan_length: self.scan_length.distribution(),
        }
    }

    /// The size of a value in integrity mode, in bytes.
    pub(crate) fn checked_length(&self) -> usize {
        match self.length {
            Length::Constant(n) => n as usize,
            _ => 0,
        }
    }

    /// Takes the next key of the load phase.
    pub(crate) fn next_load_key(&self) -> u64 {
        self.load_keys.take()
    }

    /// Appends the value that `field` of document `key` has in integrity mode: `key:field`, then
    /// again and again `:` and Java's `hashCode` of everything before it, cut to `size`.
    pub(crate) fn checked_value(key: &str, field: &str, size: usize, out: &mut Vec<u8>) {
        let start = out.len();
        // The hash of everything written so far.
        let mut hash = 0_i32;
        let mut add = |out: &mut Vec<u8>, text: &str| {
            for b in text.bytes() {
                hash = hash.wrapping_mul(31).wrapping_add(i32::from(b));
            }
            out.extend_from_slice(text.as_bytes());
            hash
        };
        add(out, key);
        add(out, ":");
        add(out, field);
        let mut number = String::new();
        while out.len() - start < size {
            let hash = add(out, ":");
            number.clear();
            let _ = write!(number, "{hash}");
            add(out, &number);
        }
        out.truncate(start + size);
    }
}

/// Refuses workload classes other than CoreWorkload.
fn supported(p: &Properties) -> Result<()> {
    let workload = p
        .text("workload")
        .unwrap_or("site.ycsb.workloads.CoreWorkload");
    match workload.rsplit('.').next() {
        Some("CoreWorkload") => Ok(()),
        _ => Err(Failure(format!(
            "workload={workload} is not supported; CoreWorkload is"
        ))),
    }
}

/// The documents after the load, the first key of the load, and the number of keys that it inserts.
fn counts(p: &Properties) -> Result<[u64; 3]> {
    let start: u64 = p.number("insertstart", 0)?;
    let records: u64 = match p.number("recordcount", 0)? {
        0 => i32::MAX as u64,
        n => n,
    };
    let count: u64 = p.number("insertcount", records.saturating_sub(start))?;
    match records < start + count {
        true => Err(Failure(format!(
            "recordcount={records} is less than insertstart + insertcount ({start} + {count})"
        ))),
        false => Ok([records, start, count]),
    }
}

/// The operations of the workload, with their shares.
fn weights(p: &Properties) -> Result<Vec<(Operation, f64)>> {
    let weights = OPERATIONS
        .iter()
        .map(|(o, name, default)| Ok((*o, p.number(name, *default)?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(weights.into_iter().filter(|(_, w)| *w > 0.0).collect())
}

/// The names of the fields.
fn fields(p: &Properties) -> Result<Vec<String>> {
    let count: u64 = p.number("fieldcount", 10)?;
    if count == 0 {
        return Err(Failure::new("fieldcount=0: a document needs a field"));
    }
    let prefix = p.text("fieldnameprefix").unwrap_or("field");
    Ok((0..count).map(|i| format!("{prefix}{i}")).collect())
}

fn scan_length(p: &Properties) -> Result<Length> {
    let low: u64 = p.number("minscanlength", 1)?;
    let high: u64 = p.number("maxscanlength", 1000)?;
    match p.text("scanlengthdistribution").unwrap_or("uniform") {
        "uniform" => Ok(Length::Uniform(low, high)),
        "zipfian" => Ok(Length::Zipfian(Zipfian::new(low, high, THETA))),
        other => Err(Failure(format!(
            "scanlengthdistribution={other}: there are uniform and zipfian"
        ))),
    }
}

fn length(p: &Properties) -> Result<Length> {
    let high: u64 = p.number("fieldlength", 100)?;
    let low: u64 = p.number("minfieldlength", 1)?;
    Ok(
        match p.text("fieldlengthdistribution").unwrap_or("constant") {
            "constant" => Length::Constant(high),
            "uniform" => Length::Uniform(low, high),
            "zipfian" => Length::Zipfian(Zipfian::new(low, high, THETA)),
            "histogram" => {
                let file = p.text("fieldlengthhistogram").unwrap_or("hist.txt");
                let what = format!("fieldlengthhistogram={file}");
                let text = std::fs::read_to_string(file).context(&what)?;
                Length::Histogram(Histogram::parse(&text).map_err(|e| e.while_doing(&what))?)
            }
            other => {
                return Err(Failure(format!(
                    "fieldlengthdistribution={other}: there are constant, uniform, zipfian and histogram"
                )));
            }
        },
    )
}

fn request(p: &Properties, new_keys: &Arc<Counter>) -> Result<Request> {
    Ok(match p.text("requestdistribution").unwrap_or("uniform") {
        "uniform" => Request::Uniform,
        "sequential" => Request::Sequential,
        "zipfian" => Request::Zipfian,
        "latest" => Request::Latest(Box::new(Latest::new(new_keys.clone()))),
        "hotspot" => Request::Hotspot(
            p.number("hotspotdatafraction", 0.2)?,
            p.number("hotspotopnfraction", 0.8)?,
        ),
        "exponential" => Request::Exponential(
            p.number("exponential.percentile", 95.0)?,
            p.number("exponential.frac", 0.857_142_857_1)?,
        ),
        other => {
            return Err(Failure(format!(
                "requestdistribution={other}: there are uniform, sequential, zipfian, latest, hotspot and exponential"
            )));
        }
    })
}

/// The random choices of one worker.
pub(crate) struct Chooser {
    rng: Rng,
    keys: Box<dyn Distribution>,
    /// Whether keys are counted from the newest back.
    backwards: bool,
    length: Box<dyn Distribution>,
    scan_length: Box<dyn Distribution>,
}

impl Chooser {
    /// Draws the next operation; `None` if every proportion is zero.
    pub(crate) fn operation(&mut self, w: &Workload) -> Option<Operation> {
        let sum: f64 = w.weights.iter().map(|(_, x)| x).sum();
        let mut u = self.rng.unit();
        for (o, weight) in &w.weights {
            let share = weight / sum;
            if u < share {
                return Some(*o);
            }
            u -= share;
        }
        // Rounding can leave a remainder after the last share; it goes to the last operation.
        w.weights.last().map(|(o, _)| *o)
    }

    /// Draws the number of an existing record.
    pub(crate) fn record(&mut self, w: &Workload) -> u64 {
        loop {
            let last = w.new_keys.last().unwrap_or(0);
            let n = self.keys.draw(&mut self.rng);
            if self.backwards {
                if n <= last {
                    return last - n;
                }
            } else if n <= last {
                return n;
            }
        }
    }

    /// Draws the number of a field.
    pub(crate) fn field(&mut self, w: &Workload) -> usize {
        self.rng.below(w.fields.len() as u64) as usize
    }

    /// Draws the number of documents of a scan.
    pub(crate) fn scan_length(&mut self) -> u64 {
        self.scan_length.draw(&mut self.rng)
    }

    /// Appends the value of `field` in document `key`: the checked value in integrity mode, and
    /// otherwise random bytes 32…127 in the pattern of YCSB's generator, so that they compress as
    /// little.
    pub(crate) fn value(&mut self, w: &Workload, key: &str, field: &str, out: &mut Vec<u8>) {
        let size = self.length.draw(&mut self.rng) as usize;
        if w.data_integrity {
            Workload::checked_value(key, field, size, out);
            return;
        }
        let end = out.len() + size;
        while out.len() < end {
            let bits = self.rng.next_u64();
            for (shift, mask) in [(0, 31), (5, 63), (10, 95), (15, 31), (20, 63), (25, 95)] {
                out.push(((bits >> shift) & mask) as u8 + b' ');
            }
        }
        out.truncate(end);
    }

    /// Draws a number in 0…1, from which pauses are computed.
    pub(crate) fn unit(&mut self) -> f64 {
        self.rng.unit()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashMap;

    fn workload(text: &str) -> Result<Workload> {
        let mut p = Properties::default();
        p.read(text)?;
        Workload::new(&p)
    }

    #[test]
    fn keys_are_ycsbs() {
        let w = workload("recordcount=10").unwrap();
        assert_eq!(w.key(0), "user6284781860667377211");
        assert_eq!(w.key(1), "user8517097267634966620");
        assert_eq!(w.key(1000), "user5952875239596136740");
        let w = workload("recordcount=10\ninsertorder=ordered\nzeropadding=8").unwrap();
        assert_eq!(w.key(42), "user00000042");
    }

    #[test]
    fn checked_values_are_javas() {
        let mut out = Vec::new();
        Workload::checked_value("user1", "field0", 40, &mut out);
        // The expected value is computed by the definition of String.hashCode: that of
        // "user1:field0:" and so on.
        let mut want = String::from("user1:field0");
        while want.len() < 40 {
            want.push(':');
            let hash = want
                .bytes()
                .fold(0_i32, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(b)));
            want.push_str(&hash.to_string());
        }
        want.truncate(40);
        assert_eq!(String::from_utf8(out).unwrap(), want);
        let mut out = Vec::new();
        Workload::checked_value("user1", "field0", 3, &mut out);
        assert_eq!(out, b"use");
    }

    #[test]
    fn operations_come_in_their_proportions() {
        let w = workload(
            "recordcount=100\nreadproportion=0.5\nupdateproportion=0.3\nscanproportion=0.2",
        )
        .unwrap();
        let mut c = w.chooser(5);
        let mut counts: HashMap<String, u32> = HashMap::new();
        for _ in 0..100_000 {
            let o = c.operation(&w).unwrap();
            *counts.entry(format!("{o:?}")).or_default() += 1;
        }
        for (name, share) in [("Read", 0.5), ("Update", 0.3), ("Scan", 0.2)] {
            let got = f64::from(counts.get(name).copied().unwrap_or(0)) / 1e5;
            assert!((got - share).abs() < 0.01, "{name}: {got}");
        }
        assert_eq!(counts.len(), 3);
        let none = workload("readproportion=0\nupdateproportion=0").unwrap();
        assert!(none.chooser(1).operation(&none).is_none());
    }

    #[test]
    fn records_are_those_that_are_there() {
        for distribution in [
            "uniform",
            "sequential",
            "zipfian",
            "latest",
            "hotspot",
            "exponential",
        ] {
            let w = workload(&format!(
                "recordcount=500\noperationcount=1000\ninsertproportion=0.5\nrequestdistribution={distribution}"
            ))
            .unwrap();
            let mut c = w.chooser(7);
            for _ in 0..2000 {
                assert!(c.record(&w) < 500, "{distribution}");
            }
            let n = w.new_keys.take();
            w.new_keys.acknowledge(n);
            assert_eq!(n, 500);
            assert!((0..2000).all(|_| c.record(&w) <= 500));
        }
    }

    #[test]
    fn random_values_have_their_size_and_alphabet() {
        let w = workload("recordcount=1\nfieldlengthdistribution=uniform\nfieldlength=50").unwrap();
        let mut c = w.chooser(1);
        for _ in 0..200 {
            let mut out = Vec::new();
            c.value(&w, "user1", "field0", &mut out);
            assert!((1..=50).contains(&out.len()));
            assert!(out.iter().all(|b| (32..128).contains(b)));
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("recordcount=x", "property recordcount=x"),
            (
                "recordcount=5\ninsertstart=3\ninsertcount=3",
                "is less than insertstart",
            ),
            ("requestdistribution=normal", "requestdistribution=normal"),
            ("scanlengthdistribution=x", "scanlengthdistribution=x"),
            ("fieldlengthdistribution=x", "fieldlengthdistribution=x"),
            ("fieldcount=0", "fieldcount=0"),
            (
                "dataintegrity=true\nfieldlengthdistribution=uniform",
                "needs fieldlengthdistribution=constant",
            ),
            (
                "workload=site.ycsb.workloads.TimeSeriesWorkload",
                "TimeSeriesWorkload is not supported",
            ),
        ] {
            let e = workload(text).unwrap_err().0;
            assert!(e.contains(why), "{text}: {e}");
        }
    }
}
