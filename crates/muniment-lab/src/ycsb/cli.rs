//! `muniment bench ycsb …`: YCSB's own options (with one hyphen), and the lab's.

use super::core::Workload;
use super::properties::Properties;
use super::settings::{Interval, Settings};
use super::{Phase, output, phase};
use crate::cli::{self, Output};
use crate::commands::{self, Spec};
use crate::fail::{Context, Failure, Result};
use crate::hist::Latency;
use crate::lab::{Lab, Preset, Target};
use crate::load::Status;
use crate::report::table::{Table, rate};
use crate::report::{Outcome, Statistic};
use crate::stdout::say;
use crate::targets::Endpoint;
use crate::{stop, uri};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Options {
    loads: bool,
    runs: bool,
    properties: Properties,
    uri: Option<uri::Uri>,
    /// YCSB's output on stdout instead of the lab's, and no report.
    as_ycsb: bool,
    cache_gb: Option<f64>,
    output: Output,
}

/// `muniment bench ycsb --help`.
pub const HELP: &str = "\
Runs YCSB's CoreWorkload with its stock property files.

Usage: muniment bench ycsb [load|run] [mongodb] [OPTIONS]

Without load or run it loads, then runs. Without mongodb.url or --uri it starts an
embedded server, which ends with the run.

YCSB's options:
  -P FILE          read properties from this file
  -p NAME=VALUE    set one property (after all files)
  -s               status lines on standard error
  -threads N       workers (property threadcount; 1)
  -target N        operations a second of all workers (property target; as fast as it goes)
  -l TEXT          in front of status lines (property label)
  -load, -t        as load and run

The lab's:
  --uri URI        the server, as property mongodb.url
  --format FORMAT  lab (tables, report.html and results.json) or ycsb (YCSB's own summary)
  --cacheSizeGB N  cache of the embedded server
  -h, --help       this text
";

/// `muniment bench ycsb`.
pub const COMMAND: Spec = Spec {
    name: "ycsb",
    arguments: "[load|run] -P FILE [-p NAME=VALUE]…",
    about: "YCSB's CoreWorkload from its stock property files",
    run: |args| match parse(&args) {
        Ok(Some(o)) => commands::ended(run(&o)),
        Ok(None) => {
            say(&format!("{HELP}{}", Output::HELP));
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("ycsb", &e),
    },
};

/// Understands the arguments behind `ycsb`; `None` asks for help.
///
/// # Errors
/// An option that there is not, a property file that cannot be read.
pub fn parse(args: &[OsString]) -> Result<Option<Options>> {
    let mut o = Options {
        loads: false,
        runs: false,
        properties: Properties::default(),
        uri: None,
        as_ycsb: false,
        cache_gb: None,
        output: Output::default(),
    };
    let mut set: Vec<(String, String)> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let arg = text(arg)?;
        let mut value = || {
            let v = args.next();
            v.ok_or_else(|| Failure(format!("option {arg} needs a value")))
        };
        match arg {
            "load" | "-load" => o.loads = true,
            "run" | "-t" => o.runs = true,
            "mongodb" | "mongodb-async" => {}
            "-h" | "--help" | "help" => return Ok(None),
            "-P" => {
                let file = PathBuf::from(value()?);
                let what = format!("property file {}", file.display());
                let text = std::fs::read_to_string(&file).context(&what)?;
                o.properties.read(&text).map_err(|e| e.while_doing(&what))?;
            }
            "-p" => {
                let v = text(value()?)?;
                let (name, value) = v
                    .split_once('=')
                    .ok_or_else(|| Failure(format!("-p {v}: it must be NAME=VALUE")))?;
                set.push((name.to_string(), value.to_string()));
            }
            "-s" => set.push(("status".into(), "true".into())),
            "-threads" => set.push(("threadcount".into(), text(value()?)?.into())),
            "-target" => set.push(("target".into(), text(value()?)?.into())),
            "-l" => set.push(("label".into(), text(value()?)?.into())),
            "-db" => {
                return Err(Failure::new(
                    "-db: the lab has one binding, to MongoDB-compatible servers",
                ));
            }
            "--uri" => o.uri = Some(uri::parse(text(value()?)?)?),
            "--format" => {
                o.as_ycsb = match text(value()?)? {
                    "lab" => false,
                    "ycsb" => true,
                    other => {
                        return Err(Failure(format!("--format {other}: there are lab and ycsb")));
                    }
                }
            }
            "--cacheSizeGB" => {
                let v = text(value()?)?;
                let n = v.parse().ok().filter(|n| *n > 0.0);
                o.cache_gb =
                    Some(n.ok_or_else(|| Failure(format!("--cacheSizeGB {v} is no size")))?);
            }
            other => {
                if let Some(name) = other.strip_prefix("--")
                    && o.output.take(name, || value().cloned())?
                {
                    continue;
                }
                return Err(Failure(format!(
                    "there is no option '{other}' (try muniment bench ycsb --help)"
                )));
            }
        }
    }
    let data = o.output.data.clone();
    let without = Output {
        data,
        ..Output::default()
    };
    if o.as_ycsb && o.output != without {
        return Err(Failure::new(
            "--json, --out, --core-hour and --tui belong to --format lab; with ycsb the property exportfile names a file",
        ));
    }
    if o.output.full_screen && set.iter().any(|(name, _)| name == "status") {
        return Err(Failure::new(
            "-s and --tui both want the terminal: give one of them",
        ));
    }
    if !o.loads && !o.runs {
        (o.loads, o.runs) = (true, true);
    }
    for (name, value) in set {
        o.properties.set(&name, &value);
    }
    Ok(Some(o))
}

fn text(v: &OsString) -> Result<&str> {
    v.to_str()
        .ok_or_else(|| Failure(format!("{} is not UTF-8", v.to_string_lossy())))
}

/// Runs it.
///
/// # Errors
/// No server, a workload without sense, a load that failed.
pub fn run(o: &Options) -> Result<()> {
    stop::install();
    let workload = Arc::new(Workload::new(&o.properties)?);
    let settings = Arc::new(Settings::new(&o.properties)?);
    let uri = o.uri.clone().or_else(|| settings.uri.clone());
    let one = |lab: &mut Lab, target: &Target, loads: bool| {
        let mut show = |s: &Status| eprintln!("{}", output::status(s, &settings));
        let progress = &mut lab.progress;
        let done = phase(target, &workload, &settings, loads, progress, &mut show)?;
        if let Some(file) = &settings.export {
            std::fs::write(file, output::export(&done, &settings))
                .context(&format!("exportfile={}", file.display()))?;
        }
        Ok::<Phase, Failure>(done)
    };
    if uri.is_some() && o.cache_gb.is_some() {
        return Err(Failure::new(
            "--cacheSizeGB belongs to the embedded server, and there is another one (--uri, mongodb.url)",
        ));
    }
    let endpoint = uri.map_or(Endpoint::Embedded, Endpoint::Server);
    // Counts are the properties'; nothing asks for the preset.
    let mut lab = Lab::new(endpoint, Preset::Paper, o.output.data.clone());
    if o.as_ycsb {
        let target = lab.target(o.cache_gb)?;
        for warning in doubts(o, &settings) {
            eprintln!("{warning}");
        }
        for loads in phases(o) {
            let done = one(&mut lab, &target, loads)?;
            lab.progress.end_line();
            if settings.export.is_none() {
                say(&output::export(&done, &settings));
            }
            if stop::asked() {
                break;
            }
        }
        lab.done(target);
        return Ok(());
    }
    cli::single(&mut lab, &o.output, "ycsb", "YCSB", |lab, out| {
        out.about = format!(
            "YCSB's CoreWorkload on collection {}.{}: {} documents of {} fields, {} workers, keys as YCSB makes them.",
            settings.database,
            workload.table,
            rate(workload.records as f64),
            workload.fields.len(),
            settings.threads
        );
        out.preset = "properties".into();
        out.warnings.extend(doubts(o, &settings));
        let mut target = lab.target(o.cache_gb)?;
        target.database.clone_from(&settings.database);
        let mut done = Vec::new();
        for loads in phases(o) {
            if stop::asked() {
                break;
            }
            let p = match one(lab, &target, loads) {
                Ok(p) => p,
                Err(e) => {
                    target.check_alive()?;
                    return Err(e);
                }
            };
            lab.doubt(p.name, &p.load, settings.threads as usize);
            done.push(p);
        }
        write_down(&done, &settings, out);
        lab.done(target);
        Ok(())
    })
}

fn phases(o: &Options) -> impl Iterator<Item = bool> {
    [(o.loads, true), (o.runs, false)]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, loads)| loads)
}

/// What was said and has no effect.
fn doubts(o: &Options, settings: &Settings) -> Vec<String> {
    let unused = o.properties.unused();
    let mut out = Vec::new();
    if !unused.is_empty() {
        out.push(format!(
            "These properties have no meaning here: {}",
            unused.join(", ")
        ));
    }
    if settings.interval != Interval::Op && settings.target.is_none() {
        out.push(
            "measurement.interval: without -target no operation has a time at which it is due."
                .into(),
        );
    }
    out
}

fn write_down(phases: &[Phase], settings: &Settings, out: &mut Outcome) {
    let mut t = Table::new(
        "Operations",
        &[
            "<phase",
            "<operation",
            ">operations",
            ">a second",
            ">average µs",
            ">min µs",
            ">p50 µs",
            ">p95 µs",
            ">p99 µs",
            ">p99.9 µs",
            ">max µs",
            "<ended",
        ],
    );
    let mut row = |phase: &str, kind: String, l: &Latency, seconds: f64, ended: String| {
        let us = |ms: f64| format!("{:.0}", ms * 1e3);
        t.row([
            phase.to_string(),
            kind,
            rate(l.count() as f64),
            rate(l.count() as f64 / seconds),
            us(l.mean_ms()),
            us(l.min_ms()),
            us(l.quantile_ms(0.5)),
            us(l.quantile_ms(0.95)),
            us(l.quantile_ms(0.99)),
            us(l.quantile_ms(0.999)),
            us(l.max_ms()),
            ended,
        ]);
    };
    for p in phases {
        let s = p.load.samples.seconds;
        row(
            p.name,
            "all".into(),
            &p.load.samples.latency,
            s,
            String::new(),
        );
        for (kind, m) in &p.load.kinds {
            let ended: Vec<String> = m.statuses.iter().map(|(k, n)| format!("{k} {n}")).collect();
            if m.service.count() > 0 && settings.interval != Interval::Intended {
                row(p.name, (*kind).to_string(), &m.service, s, ended.join(", "));
            }
            if m.intended.count() > 0 && settings.interval != Interval::Op {
                row(
                    p.name,
                    format!("{kind}, intended"),
                    &m.intended,
                    s,
                    String::new(),
                );
            }
        }
        let throughput = p.load.samples.operations as f64 / s;
        out.figure(p.name, throughput, "operations/s", None)
            .of(p.name, Statistic::Rate);
        let mut words = format!("{}: {} operations/s", p.name, rate(throughput));
        let each = |seconds: f64| seconds * 1e6 / p.load.samples.operations.max(1) as f64;
        if let Some(server) = p.load.server {
            words += &format!(
                ", {:.1} µs of the server's CPU an operation",
                each(server.cpu)
            );
        }
        words += &format!(", {:.1} µs of the client's", each(p.load.client_cpu));
        out.findings.push(words);
        if let Some(e) = &p.error {
            out.warnings
                .push(format!("{}: the server's first error: {e}", p.name));
        }
        if p.load.cut_short {
            out.warnings.push(format!(
                "{}: ended before all operations were done.",
                p.name
            ));
        }
        out.samples.push(p.load.samples.clone());
        for (kind, m) in &p.load.kinds {
            out.samples.push(crate::report::SampleSet {
                name: format!("{} {kind}", p.name),
                operations: m.service.count(),
                latency: m.service.clone(),
                seconds: s,
                ..Default::default()
            });
        }
    }
    out.tables.push(t);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>> {
        parse(
            &line
                .split_whitespace()
                .map(OsString::from)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn ycsbs_command_line_is_understood() {
        let dir = crate::process::TempDir::new(&std::env::temp_dir()).unwrap();
        let file = dir.path().join("workloada");
        std::fs::write(&file, "recordcount=1000\nreadproportion=0.5\n").unwrap();
        let o = parsed(&format!(
            "run mongodb -P {} -p recordcount=7 -s -threads 3 -target 50 --format ycsb",
            file.display()
        ))
        .unwrap()
        .unwrap();
        assert!(!o.loads && o.runs && o.as_ycsb);
        let w = Workload::new(&o.properties).unwrap();
        assert_eq!(w.records, 7);
        let s = Settings::new(&o.properties).unwrap();
        assert_eq!((s.threads, s.target, s.status), (3, Some(50.0), true));
        let o = parsed("-p recordcount=1").unwrap().unwrap();
        assert!(o.loads && o.runs);
        assert!(parsed("--help").unwrap().is_none());
    }

    #[test]
    fn what_is_refused_and_why() {
        for (line, why) in [
            ("-p x", "must be NAME=VALUE"),
            ("-P /nowhere/at/all", "property file /nowhere/at/all"),
            ("--fast", "no option '--fast'"),
            ("-threads", "needs a value"),
            ("-db jdbc", "one binding"),
            ("--format x", "there are lab and ycsb"),
            ("--format ycsb --json f", "belong to --format lab"),
            ("--format ycsb --core-hour 1", "belong to --format lab"),
            ("-s --tui", "both want the terminal"),
        ] {
            let e = parsed(line).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }
}
