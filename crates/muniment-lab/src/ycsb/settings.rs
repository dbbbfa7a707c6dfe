//! The settings of YCSB's client and its MongoDB binding, which are not part of the workload.

use super::properties::Properties;
use crate::uri::{self, Uri};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::Pace;
use muniment_value::DocBuf;
use std::path::PathBuf;
use std::time::Duration;

/// The latencies that are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interval {
    /// Latencies from the sending of an operation.
    Op,
    /// Latencies from the time at which an operation was due.
    Intended,
    /// Both; the second under names that begin with `Intended-`.
    Both,
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The server; `None` for an embedded one.
    pub uri: Option<Uri>,
    pub database: String,
    /// The write concern of `mongodb.url` or `mongodb.writeConcern`.
    pub concern: Option<DocBuf>,
    /// Whether writes are w:0 without a journal, so that they get no answer.
    pub unacknowledged: bool,
    /// Whether an insert replaces the document that has its key.
    pub upsert: bool,
    /// The number of inserts in a message.
    pub batch: u64,
    /// The number of workers.
    pub threads: u64,
    /// Operations a second of all workers together.
    pub target: Option<f64>,
    /// The longest time of a phase.
    pub longest: Option<Duration>,
    /// Whether status lines are printed.
    pub status: bool,
    /// The time between them.
    pub status_every: Duration,
    /// The text in front of them.
    pub label: String,
    /// The latencies that are reported.
    pub interval: Interval,
    /// Percentiles of the summary.
    pub percentiles: Vec<f64>,
    /// The file that gets the summary instead of standard output.
    pub export: Option<PathBuf>,
}

impl Settings {
    /// Reads the settings from properties.
    ///
    /// # Errors
    /// A property makes no sense or is not supported; the error names it.
    pub(crate) fn new(p: &Properties) -> Result<Settings> {
        let mut s = Settings {
            uri: None,
            database: "ycsb".into(),
            concern: None,
            unacknowledged: false,
            upsert: p.flag("mongodb.upsert", false),
            batch: p.number("batchsize", 1)?,
            threads: p.number("threadcount", 1)?,
            target: Some(p.number("target", 0.0)?).filter(|t| *t > 0.0),
            longest: Some(p.number("maxexecutiontime", 0)?)
                .filter(|t| *t > 0)
                .map(Duration::from_secs),
            status: p.flag("status", false),
            status_every: Duration::from_secs(p.number("status.interval", 10)?),
            label: p.text("label").unwrap_or_default().to_string(),
            interval: interval(p)?,
            percentiles: percentiles(p)?,
            export: p.text("exportfile").map(PathBuf::from),
        };
        if s.threads == 0 || s.batch == 0 || s.status_every.is_zero() {
            return Err(Failure::new(
                "threadcount, batchsize and status.interval must be at least 1",
            ));
        }
        supported(p)?;
        let (mut w, mut j) = concern(p)?;
        if let Some(url) = p.text("mongodb.url") {
            s.url(url, &mut w, &mut j)?;
        }
        s.set_concern(w, j);
        Ok(s)
    }

    /// Takes the database and the write concern out of the URL; the rest is parsed as any `--uri`.
    fn url(&mut self, url: &str, w: &mut Option<String>, j: &mut Option<bool>) -> Result<()> {
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        for option in query.split('&').filter(|o| !o.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name.to_ascii_lowercase().as_str() {
                // The URL overrides the property.
                "w" => *w = Some(value.to_string()),
                "j" | "journal" => *j = Some(value == "true"),
                "readpreference" if value == "primary" => {}
                // These have no effect, since every worker has exactly one connection.
                "maxpoolsize" | "minpoolsize" | "waitqueuemultiple" => {}
                _ => rest.push(option),
            }
        }
        let text = match rest.is_empty() {
            true => front.to_string(),
            false => format!("{front}?{}", rest.join("&")),
        };
        self.uri = Some(uri::parse(&text)?);
        let after = front.split_once("://").map_or(front, |(_, r)| r);
        if let Some((_, db)) = after.split_once('/')
            && !db.is_empty()
            && db != "admin"
        {
            self.database = db.to_string();
        }
        Ok(())
    }

    fn set_concern(&mut self, w: Option<String>, j: Option<bool>) {
        if w.is_none() && j.is_none() {
            return;
        }
        let mut c = DocBuf::new();
        if let Some(w) = &w {
            match w.parse::<i32>() {
                Ok(n) => c.append("w", n),
                Err(_) => c.append("w", w.as_str()),
            };
        }
        if let Some(j) = j {
            c.append("j", j);
        }
        self.unacknowledged = w.as_deref() == Some("0") && j != Some(true);
        self.concern = Some(c);
    }

    /// The times at which each worker sends.
    pub(crate) fn pace(&self) -> Pace {
        match self.target {
            Some(t) => Pace::Steady(t / self.threads as f64),
            None => Pace::Closed,
        }
    }
}

fn interval(p: &Properties) -> Result<Interval> {
    match p.text("measurement.interval").unwrap_or("op") {
        "op" => Ok(Interval::Op),
        "intended" => Ok(Interval::Intended),
        "both" => Ok(Interval::Both),
        other => Err(Failure(format!(
            "measurement.interval={other}: there are op, intended and both"
        ))),
    }
}

fn percentiles(p: &Properties) -> Result<Vec<f64>> {
    let all = p.text("hdrhistogram.percentiles").unwrap_or("50,95,99");
    let one = |x: &str| {
        let parsed = x.trim().parse().ok().filter(|x| (0.0..=100.0).contains(x));
        parsed.ok_or_else(|| Failure(format!("hdrhistogram.percentiles: '{x}' is no percentile")))
    };
    all.split(',').map(one).collect()
}

/// Refuses properties that ask for something that the lab does not do.
fn supported(p: &Properties) -> Result<()> {
    // YCSB's other ways of measuring keep less than this one, and only this one exists here.
    let kind = p.text("measurementtype").unwrap_or("hdrhistogram");
    if kind != "hdrhistogram" {
        return Err(Failure(format!(
            "measurementtype={kind} is not supported; hdrhistogram is"
        )));
    }
    match p.text("mongodb.readPreference") {
        Some(pref) if !pref.eq_ignore_ascii_case("primary") => Err(Failure(format!(
            "mongodb.readPreference={pref} is not supported: the lab reads from the primary"
        ))),
        _ => Ok(()),
    }
}

/// The `w` and `j` of `mongodb.writeConcern`.
fn concern(p: &Properties) -> Result<(Option<String>, Option<bool>)> {
    let Some(c) = p.text("mongodb.writeConcern").map(str::to_lowercase) else {
        return Ok((None, None));
    };
    let w = |w: &str| Ok((Some(w.to_string()), None));
    match c.as_str() {
        "errors_ignored" | "unacknowledged" => w("0"),
        "acknowledged" => w("1"),
        "journaled" => Ok((None, Some(true))),
        "replica_acknowledged" => w("2"),
        "majority" => w("majority"),
        _ => Err(Failure(format!(
            "mongodb.writeConcern={c}: there are unacknowledged, acknowledged, journaled, replica_acknowledged and majority"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::doc;

    fn settings(text: &str) -> Result<Settings> {
        let mut p = Properties::default();
        p.read(text)?;
        Settings::new(&p)
    }

    #[test]
    fn what_is_understood() {
        let s = settings(
            "mongodb.url=mongodb://h:1/shop?w=0&maxPoolSize=5\nthreadcount=4\ntarget=100\nmeasurement.interval=both\nhdrhistogram.percentiles=50,99.9",
        )
        .unwrap();
        assert_eq!(s.uri.as_ref().unwrap().hosts, ["h:1"]);
        assert_eq!(s.database, "shop");
        assert_eq!(s.concern, Some(doc! { "w": 0 }));
        assert!(s.unacknowledged);
        assert_eq!(s.pace(), Pace::Steady(25.0));
        assert_eq!(s.interval, Interval::Both);
        assert_eq!(s.percentiles, [50.0, 99.9]);
        let s = settings("mongodb.writeConcern=journaled").unwrap();
        assert_eq!(s.concern, Some(doc! { "j": true }));
        assert_eq!((s.uri, s.unacknowledged), (None, false));
        assert_eq!(s.database, "ycsb");
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("measurementtype=raw", "measurementtype=raw is not"),
            ("measurement.interval=x", "measurement.interval=x"),
            ("mongodb.writeConcern=all", "mongodb.writeConcern=all"),
            ("mongodb.readPreference=nearest", "reads from the primary"),
            ("threadcount=0", "must be at least 1"),
            ("hdrhistogram.percentiles=101", "no percentile"),
            ("mongodb.url=http://h", "must begin with mongodb://"),
        ] {
            let e = settings(text).unwrap_err().0;
            assert!(e.contains(why), "{text}: {e}");
        }
    }
}
