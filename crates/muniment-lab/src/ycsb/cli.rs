//! The command line of `muniment bench ycsb …`: YCSB's own options (with one hyphen), and the
//! lab's.

use super::core::Workload;
use super::properties::Properties;
use super::settings::{Interval, Settings};
use super::{Phase, output, phase};
use crate::cli::{self, Output};
use crate::commands::{self, Spec};
use crate::lab::{Lab, Preset, Target};
use crate::report::table::rate;
use crate::report::{Outcome, experiments};
use crate::stdout::say;
use crate::targets::Endpoint;
use crate::uri;
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::load::Status;
use muniment_load::stop;
use muniment_options::{Given, Group, HELP, Opt, Page, Takes};
use std::sync::Arc;

/// The parsed command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    loads: bool,
    runs: bool,
    properties: Properties,
    uri: Option<uri::Uri>,
    /// Prints YCSB's output on stdout instead of the lab's, and writes no report.
    as_ycsb: bool,
    cache_gb: Option<f64>,
    output: Output,
}

/// The command `muniment bench ycsb`.
pub(crate) const COMMAND: Spec = Spec {
    name: "ycsb",
    arguments: "[load|run] -P FILE [-p NAME=VALUE]…",
    about: "YCSB's CoreWorkload from its stock property files",
    page,
    run: |given| Ok(commands::ended(run(&options(given)?))),
};

fn page() -> Page {
    Page {
        head: "\
Runs YCSB's CoreWorkload with its stock property files.

Usage: muniment bench ycsb [load|run] [mongodb] [OPTIONS]

Without load or run it loads, then runs. Without mongodb.url or --uri it starts an
embedded server, which ends with the run.

"
        .into(),
        groups: vec![
            Group::new("YCSB's options", YCSB),
            Group::new("The lab's", LAB),
            Group::untitled(Output::OPTIONS),
            Group::untitled(&[HELP]),
        ],
        words: true,
        offers: vec!["load", "run"],
        ..Page::default()
    }
}

const YCSB: &[Opt] = &[
    Opt::path("P", "FILE", "read properties from this file"),
    Opt::text("p", "NAME=VALUE", "set one property (after all files)"),
    Opt::flag("s", "status lines on standard error"),
    Opt::text("threads", "N", "workers (property threadcount; 1)").one_hyphen(),
    Opt::text(
        "target",
        "N",
        "operations a second of all workers (property target; as fast as it goes)",
    )
    .one_hyphen(),
    Opt::text("l", "TEXT", "in front of status lines (property label)"),
    Opt::flag("load", "as the word load").one_hyphen(),
    Opt::flag("t", "as the word run"),
    Opt::new(
        "db",
        "BINDING",
        Takes::Checked(|_| {
            Err("the lab has one binding, to MongoDB-compatible servers".to_string())
        }),
        "refused: there is one binding",
    )
    .one_hyphen(),
];

const LAB: &[Opt] = &[
    Opt::text("uri", "URI", "the server, as property mongodb.url"),
    Opt::new(
        "format",
        "FORMAT",
        Takes::OneOf(&["lab", "ycsb"]),
        "lab (tables, report.html and results.json) or ycsb (YCSB's own summary)",
    ),
    cli::CACHE,
];

/// Understands the arguments.
///
/// # Errors
/// A property file cannot be read, or options contradict each other.
fn options(given: &Given) -> Result<Options> {
    let mut o = Options {
        loads: given.has("load"),
        runs: given.has("t"),
        properties: Properties::default(),
        uri: given.text("uri").map(uri::parse).transpose()?,
        as_ycsb: given.text("format") == Some("ycsb"),
        cache_gb: given.real(cli::CACHE.name),
        output: Output::of(given),
    };
    for word in given.text_words()? {
        match word {
            "load" => o.loads = true,
            "run" => o.runs = true,
            "mongodb" | "mongodb-async" => {}
            other => return Err(Failure(format!("unexpected argument '{other}'"))),
        }
    }
    if !o.loads && !o.runs {
        (o.loads, o.runs) = (true, true);
    }
    for file in given.paths("P") {
        let what = format!("property file {}", file.display());
        let text = std::fs::read_to_string(file).context(&what)?;
        o.properties.read(&text).map_err(|e| e.while_doing(&what))?;
    }
    let set = settings(given)?;
    let data = o.output.data.clone();
    let without = Output {
        data,
        ..Output::default()
    };
    if o.as_ycsb && o.output != without {
        return Err(Failure::new(
            "--json, --out, --core-hour, --tables and --tui belong to --format lab; with ycsb the property exportfile names a file",
        ));
    }
    if o.output.full_screen && set.iter().any(|(name, _)| *name == "status") {
        return Err(Failure::new(
            "-s and --tui both want the terminal: give one of them",
        ));
    }
    for (name, value) in set {
        o.properties.set(name, value);
    }
    Ok(o)
}

/// The properties that options set, in order; later ones override earlier ones.
fn settings(given: &Given) -> Result<Vec<(&str, &str)>> {
    let mut set = Vec::new();
    for (option, value) in given.options() {
        set.push(match option {
            "p" => value
                .split_once('=')
                .ok_or_else(|| Failure(format!("-p {value}: it must be NAME=VALUE")))?,
            "s" => ("status", "true"),
            "threads" => ("threadcount", value),
            "target" => ("target", value),
            "l" => ("label", value),
            _ => continue,
        });
    }
    Ok(set)
}

/// Runs the workload.
///
/// # Errors
/// There is no server, the workload makes no sense, or a load failed.
pub(crate) fn run(o: &Options) -> Result<()> {
    stop::install();
    let workload = Arc::new(Workload::new(&o.properties)?);
    let settings = Arc::new(Settings::new(&o.properties)?);
    let uri = o.uri.clone().or_else(|| settings.uri.clone());
    if uri.is_some() && o.cache_gb.is_some() {
        return Err(Failure::new(
            "--cacheSizeGB belongs to the embedded server, and there is another one (--uri, mongodb.url)",
        ));
    }
    let endpoint = uri.map_or(Endpoint::Embedded, Endpoint::Server);
    // All counts come from the properties, so the preset is never used.
    let mut lab = Lab::new(endpoint, Preset::Paper, o.output.data.clone());
    match o.as_ycsb {
        true => as_ycsb(&mut lab, o, &workload, &settings),
        false => cli::single(&mut lab, &o.output, "ycsb", "YCSB", |lab, out| {
            as_the_lab(lab, o, &workload, &settings, out)
        }),
    }
}

/// Runs one phase, and writes its summary into the file that the settings name.
fn one(
    lab: &mut Lab,
    target: &Target,
    workload: &Arc<Workload>,
    settings: &Arc<Settings>,
    loads: bool,
) -> Result<Phase> {
    let mut show = |s: &Status| eprintln!("{}", output::status(s, settings));
    let progress = &mut lab.progress;
    let done = phase(target, workload, settings, loads, progress, &mut show)?;
    if let Some(file) = &settings.export {
        std::fs::write(file, output::export(&done, settings))
            .context(&format!("exportfile={}", file.display()))?;
    }
    Ok(done)
}

/// Runs the workload and prints what YCSB would print.
fn as_ycsb(
    lab: &mut Lab,
    o: &Options,
    workload: &Arc<Workload>,
    settings: &Arc<Settings>,
) -> Result<()> {
    let target = lab.target(o.cache_gb)?;
    for warning in doubts(o, settings) {
        eprintln!("{warning}");
    }
    for loads in phases(o) {
        let done = one(lab, &target, workload, settings, loads)?;
        lab.progress.end_line();
        if settings.export.is_none() {
            say(&output::export(&done, settings));
        }
        if stop::asked() {
            break;
        }
    }
    lab.done(target);
    match stop::asked() {
        true => Err(Failure::new("interrupted")),
        false => Ok(()),
    }
}

/// Runs the workload as an experiment of the lab.
fn as_the_lab(
    lab: &mut Lab,
    o: &Options,
    workload: &Arc<Workload>,
    settings: &Arc<Settings>,
    out: &mut Outcome,
) -> Result<()> {
    out.about = format!(
        "YCSB's CoreWorkload on collection {}.{}: {} documents of {} fields, {} workers, keys as YCSB makes them.",
        settings.database,
        workload.table,
        rate(workload.records as f64),
        workload.fields.len(),
        settings.threads
    );
    out.preset = "properties".into();
    out.warnings.extend(doubts(o, settings));
    let mut target = lab.target(o.cache_gb)?;
    target.database.clone_from(&settings.database);
    let mut done = Vec::new();
    for loads in phases(o) {
        if stop::asked() {
            break;
        }
        let p = match one(lab, &target, workload, settings, loads) {
            Ok(p) => p,
            Err(e) => {
                target.check_alive()?;
                return Err(e);
            }
        };
        lab.doubt(p.name, &p.load, settings.threads as usize);
        done.push(p);
    }
    experiments::ycsb::tell(&done, settings.interval, out);
    lab.done(target);
    Ok(())
}

fn phases(o: &Options) -> impl Iterator<Item = bool> {
    [(o.loads, true), (o.runs, false)]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, loads)| loads)
}

/// Warnings about options and properties that have no effect.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(line: &str) -> Result<Options> {
        options(&page().parse(line.split_whitespace().map(Into::into))?)
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
        .unwrap();
        assert!(!o.loads && o.runs && o.as_ycsb);
        let w = Workload::new(&o.properties).unwrap();
        assert_eq!(w.records, 7);
        let s = Settings::new(&o.properties).unwrap();
        assert_eq!((s.threads, s.target, s.status), (3, Some(50.0), true));
        let o = parsed("-p recordcount=1").unwrap();
        assert!(o.loads && o.runs);
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
