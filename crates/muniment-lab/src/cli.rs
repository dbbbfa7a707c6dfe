//! The command line of `muniment bench …`: parses it, answers `--help` and runs the chosen
//! experiments.

use crate::commands;
use crate::lab::{Lab, Preset};
use crate::process::TempDir;
use crate::report::Outcome;
use crate::session::Session;
use crate::stdout::say;
use crate::targets::{self, Named};
use crate::workloads::only::{self, Only};
use crate::workloads::options;
use crate::{arguments, custom, environment, shelf, workloads, yardsticks};
use muniment_load::fail::{Failure, Result};
use muniment_load::stop;
use muniment_options::{Given, Group, HELP, Opt, Page, Takes, fold, near};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A parsed command line of experiments.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Experiment names; empty for all of them.
    pub names: Vec<String>,
    /// The servers to measure; empty for an embedded server.
    pub targets: Vec<Named>,
    /// The number of turns in which several targets are measured.
    pub turns: usize,
    /// The preset, which sets the amount of work.
    pub preset: Preset,
    /// The places that results go to.
    pub output: Output,
    /// The number of the only yardstick to run, if one was asked for.
    pub only: Option<u32>,
    /// The parts of experiments that `--only` selects.
    pub parts: Only,
    /// The cache of the embedded servers, GiB.
    pub cache_gb: Option<f64>,
    /// The whole parsed command line, from which experiments read the options of their own.
    pub given: Given,
}

/// The smallest number of turns from which a comparison can show a difference.
pub const DEFAULT_TURNS: usize = muniment_load::stats::MIN_PAIRS;

/// The places that results of a run go to.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The file for JSON lines; `-` is standard output.
    pub json: Option<PathBuf>,
    /// The report's directory; without it the run gets a new directory below `bench-report`.
    pub dir: Option<PathBuf>,
    /// The directory in which temporary directories are made.
    pub data: PathBuf,
    /// The price of one core for one hour, for the table of cost.
    pub core_hour: Option<f64>,
    /// Takes the whole terminal while the run lasts.
    pub full_screen: bool,
    /// Prints every table, and not only a summary.
    pub tables: bool,
}

/// The option for a file of JSON lines, written in addition to the report.
pub const JSON: Opt = Opt::path(
    "json",
    "FILE",
    "write every measurement and result as JSON lines; - is standard output, on which nothing else \
     is written then",
);
/// The option for the report's directory.
pub const OUT: Opt = Opt::path(
    "out",
    "DIR",
    "write report.html and results.json here; default bench-report/DATE-TIME, and \
     bench-report/latest leads to the last run that went well. A run that is there already is never \
     written over",
);
/// The option for the directory in which embedded servers keep their files.
pub const DATA: Opt = Opt::path(
    "data",
    "DIR",
    "make temporary directories of servers here (default: the system's)",
);
/// The option for the price of CPU time.
pub const CORE_HOUR: Opt = Opt::new(
    "core-hour",
    "N",
    Takes::Checked(above_0),
    "what an hour of a core costs: tables of cost show money",
);
/// The flag that prints all tables on the terminal.
pub const TABLES: Opt = Opt::flag("tables", "print every table, and not only a summary");
/// The flag that shows the full-screen view.
pub const TUI: Opt = Opt::flag("tui", "a full-screen view while it runs");
/// The option for the cache size of the embedded servers.
pub const CACHE: Opt = Opt::new(
    "cacheSizeGB",
    "N",
    Takes::Checked(|v| above_0(v).map_err(|_| "it must be GiB, above 0".to_string())),
    "cache of embedded servers (default: the experiment's own)",
);

/// The option for the number of turns; `about` is its line in `--help`.
pub const fn turns(about: &'static str) -> Opt {
    Opt::new("turns", "N", Takes::Whole(1, 1000), about)
}

fn above_0(text: &str) -> std::result::Result<(), String> {
    let n = text.parse().ok();
    n.filter(|n: &f64| n.is_finite() && *n > 0.0)
        .map(drop)
        .ok_or_else(|| "it must be a number above 0".to_string())
}

impl Output {
    /// The options that set this; not every command has all of them.
    pub const OPTIONS: &'static [Opt] = &[JSON, OUT, DATA, CORE_HOUR, TABLES, TUI];

    /// Reads the output options from a parsed command line.
    pub fn of(given: &Given) -> Output {
        let path = |name| given.path(name).map(Path::to_path_buf);
        Output {
            json: path(JSON.name),
            dir: path(OUT.name),
            data: path(DATA.name).unwrap_or_else(std::env::temp_dir),
            core_hour: match given.knows(CORE_HOUR.name) {
                true => given.real(CORE_HOUR.name),
                // A command without `--core-hour`, such as the audit, has no table of cost.
                false => None,
            },
            full_screen: given.has(TUI.name),
            tables: given.has(TABLES.name),
        }
    }
}

impl Default for Output {
    fn default() -> Output {
        Output {
            json: None,
            dir: None,
            data: std::env::temp_dir(),
            core_hour: None,
            full_screen: false,
            tables: false,
        }
    }
}

/// Runs `muniment bench` with these arguments (without the program's and `bench`).
pub fn run(args: Vec<OsString>) -> ExitCode {
    arguments::hide();
    if let Some(c) = args.first().and_then(|a| commands::named(a.to_str()?)) {
        return commands::run(c, args.into_iter().skip(1));
    }
    match parse(args) {
        Ok(Parsed::Run(o)) => commands::ended(experiments(&o)),
        Ok(Parsed::Help(text)) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("", &e),
    }
}

/// The outcome of parsing a command line of experiments.
#[derive(Debug, PartialEq)]
pub enum Parsed {
    /// Experiments are to be run.
    Run(Box<Options>),
    /// The text of a help page is to be printed and the program ends.
    Help(String),
}

/// Parses the arguments of a run of experiments.
///
/// # Errors
/// An unknown option or experiment, or a value that an option does not take.
pub fn parse(args: Vec<OsString>) -> Result<Parsed> {
    let given = page().parse(args)?;
    let words = given.text_words()?;
    if given.has("help") || words.contains(&"help") {
        return help_of(&words).map(Parsed::Help);
    }
    let names = chosen_by(&words)?;
    let (mut only, mut parts) = (None, Only::default());
    for part in given.texts("only") {
        match part.parse() {
            Ok(n) => only = Some(yardstick(n)?),
            Err(_) => parts.add(part)?,
        }
    }
    let o = Options {
        names,
        targets: targets::of(&given)?,
        turns: given.whole("turns").map_or(DEFAULT_TURNS, |n| n as usize),
        preset: Preset::of(&given),
        output: Output::of(&given),
        only,
        parts,
        cache_gb: given.real(CACHE.name),
        given,
    };
    agree(&o)?;
    Ok(Parsed::Run(Box::new(o)))
}

/// The names of the experiments among `words`; an empty list stands for all of them.
fn chosen_by(words: &[&str]) -> Result<Vec<String>> {
    let named = words.iter().filter(|w| !["all", "help"].contains(w));
    named
        .map(|name| match *name {
            "yardsticks" => Ok(name.to_string()),
            name if !workloads::named(name).is_empty() => Ok(name.to_string()),
            name if commands::named(name).is_some() => Err(Failure(format!(
                "'{name}' is a command and comes first, with its own options after it"
            ))),
            name => Err(no_experiment(name)),
        })
        .collect()
}

/// Refuses options that contradict each other.
fn agree(o: &Options) -> Result<()> {
    options::belong(&o.given, &o.names)?;
    if o.only.is_some() && o.names != ["yardsticks"] {
        return Err(Failure::new(
            "--only N belongs to 'yardsticks'; a part of an experiment is NAME=VALUE,…",
        ));
    }
    o.parts.check(&chosen(&o.names), o.preset)?;
    cache_belongs(o)?;
    if o.given.has("turns") && o.targets.len() < 2 {
        return Err(Failure::new(
            "--turns belongs to several --target: there is nothing to take turns",
        ));
    }
    if !o.targets.is_empty() && o.names.iter().any(|n| n == "yardsticks") {
        return Err(Failure::new(
            "the yardsticks compare the embedded server with its own engine and cannot be run against another target (--uri, --target)",
        ));
    }
    Ok(())
}

/// The error for the unknown experiment `name`; it suggests a similar name where there is one.
fn no_experiment(name: &str) -> Failure {
    let experiments: Vec<&str> = workloads::ALL.iter().map(|s| s.name).collect();
    let known = commands::ALL.iter().filter(|c| !c.about.is_empty());
    let mut all: Vec<&str> = known.map(|c| c.name).collect();
    all.extend(
        experiments
            .iter()
            .copied()
            .chain(["w4", "yardsticks", "all"]),
    );
    let hint = match near(name, &all) {
        Some(near) => format!("is '{near}' meant?"),
        None => format!("try {}, w4 or yardsticks", experiments.join(", ")),
    };
    Failure(format!("there is no experiment '{name}' ({hint})"))
}

/// The experiments with these names; all of them if the list is empty.
fn chosen(names: &[String]) -> Vec<&'static workloads::Spec> {
    match names {
        [] => workloads::in_order(),
        some => some.iter().flat_map(|n| workloads::named(n)).collect(),
    }
}

/// Refuses `--cacheSizeGB` if the run starts no server that would get it; the option would be
/// ignored silently otherwise.
fn cache_belongs(o: &Options) -> Result<()> {
    let why = if o.cache_gb.is_none() {
        return Ok(());
    } else if !o.targets.is_empty() && o.targets.iter().all(|t| t.endpoint.is_external()) {
        "belongs to embedded servers, and there is none"
    } else if o.names.iter().any(|n| n == "yardsticks") {
        "the yardsticks are promises with a cache of their own"
    } else if o.names == ["ceiling"] {
        "'ceiling' measures no server"
    } else {
        return Ok(());
    };
    Err(Failure(format!("--cacheSizeGB {why}")))
}

/// Checks that `n` is the number of a yardstick.
fn yardstick(n: u32) -> Result<u32> {
    let known = yardsticks::ALL.iter().any(|y| y.number == n);
    known.then_some(n).ok_or_else(|| {
        Failure(format!(
            "--only {n}: the yardsticks are 1 to {}",
            yardsticks::ALL.len()
        ))
    })
}

/// The text that `list` prints.
pub fn list() -> String {
    let mut o = String::from("Experiments:\n");
    for s in workloads::ALL {
        entry(&mut o, s.name, s.title);
    }
    o.push_str("\nWorkloads (muniment bench run NAME, or a file of your own):\n");
    o.push_str(&custom::builtin::list());
    o.push_str("\nYardsticks (muniment bench yardsticks [--only N]):\n");
    for y in yardsticks::ALL {
        yardstick_entry(&mut o, y);
    }
    o.push('\n');
    o.push_str(&commands::list());
    o
}

/// Appends a name and its explanation to `o`, wrapped to the help's width.
pub fn entry(o: &mut String, name: &str, text: &str) {
    let mut name = name;
    for line in fold(text, 72) {
        let _ = writeln!(o, "  {name:<11} {line}");
        name = "";
    }
}

fn yardstick_entry(o: &mut String, y: &yardsticks::Spec) {
    let text = format!("{}; target: {}", y.title, y.target_text);
    entry(o, &y.number.to_string(), &text);
}

/// The help page of `muniment bench`, which is also the table of options that a run of experiments
/// takes.
pub fn page() -> Page {
    let usage: String = commands::ALL
        .iter()
        .filter(|c| !c.about.is_empty())
        .map(|c| {
            format!("       muniment bench {} {}", c.name, c.arguments)
                .trim_end()
                .to_string()
                + "\n"
        })
        .collect();
    let mut groups = vec![
        Group::new("Options", targets::OPTIONS),
        Group::untitled(OPTIONS),
        Group::untitled(Output::OPTIONS),
        Group::untitled(&[HELP]),
    ];
    groups.extend(options::groups(workloads::ALL));
    Page {
        head: format!(
            "\
Runs published benchmark experiments against a MongoDB-compatible server and prints
what they show beside what was published.

Usage: muniment bench [EXPERIMENT…] [OPTIONS]
{usage}
Without EXPERIMENT all of them run (some five minutes with the smoke preset); w4 is
w4a and w4b. 'yardsticks' measures the server against the raw engine and against a
server that does nothing.

{}
",
            list()
        ),
        groups,
        foot: format!(
            "
Parts (--only) and the values that they have with the smoke preset:
{}
muniment bench EXPERIMENT --help tells of one experiment alone.

Progress goes to stderr, a summary to stdout, and everything into the report. Ctrl-C ends
cleanly and writes what there is (exit code 130).
The lab works in a database of its own, muniment_bench, which it drops before and after.
",
            only::help(workloads::ALL)
        ),
        words: true,
        ..names()
    }
}

/// A page of the experiments' names, which shell completions offer after `help`.
pub fn names() -> Page {
    let experiments = workloads::ALL.iter().map(|s| s.name);
    Page {
        offers: experiments.chain(["w4", "yardsticks", "all"]).collect(),
        ..Page::default()
    }
}

/// The options that every run of experiments takes in addition to those of targets and output.
const OPTIONS: &[Opt] = &[
    turns("in how many turns; default 5: fewer are too few to judge by"),
    Preset::option(
        "smoke (half a minute an experiment), quick (about a hundredth of the post's counts) or \
         paper (the post's counts); default smoke",
    ),
    CACHE,
    Opt::text(
        "only",
        "PART",
        "one yardstick by its number, or a part of an experiment: NAME=VALUE,VALUE…; may be repeated",
    ),
];

/// The help page of the experiments named in `words`, or of all experiments.
///
/// # Errors
/// There is no experiment of that name.
pub fn help_of(words: &[&str]) -> Result<String> {
    let names = chosen_by(words)?;
    if names.is_empty() {
        return Ok(page().text());
    }
    let mut o = String::new();
    for name in &names {
        if name == "yardsticks" {
            o.push_str(&help_of_yardsticks());
        }
        for spec in workloads::named(name) {
            o.push_str(&help_of_one(spec));
        }
    }
    o.push_str(
        "What every experiment takes (--preset, --target, --out, …): muniment bench --help\n",
    );
    Ok(o)
}

fn help_of_one(spec: &workloads::Spec) -> String {
    let mut o = format!(
        "{}: {}\n\n{}\n\nUsage: muniment bench {} [OPTIONS]\n",
        spec.name,
        spec.title,
        fold(spec.about, 86).join("\n"),
        spec.name
    );
    if !spec.options.is_empty() {
        let own = Page {
            head: "\n".into(),
            groups: vec![Group::new("Options of its own", spec.options)],
            ..Page::default()
        };
        o.push_str(&own.text());
    }
    if !spec.dimensions.is_empty() {
        let _ = write!(
            o,
            "\nParts (--only NAME=VALUE,…) and the values that they have with the smoke preset:\n{}",
            only::help(&[spec])
        );
    }
    let [smoke, quick, paper] = spec.disk_gb;
    if paper > 0.0 {
        let _ = writeln!(
            o,
            "\nFiles of an embedded server: about {smoke} GB with --preset smoke, {quick} quick, {paper} paper."
        );
    }
    o.push('\n');
    o
}

fn help_of_yardsticks() -> String {
    let mut o = String::from(
        "yardsticks: the server against the raw engine and against a server that does nothing\n\n\
         Usage: muniment bench yardsticks [--only N] [OPTIONS]\n\n",
    );
    for y in yardsticks::ALL {
        yardstick_entry(&mut o, y);
    }
    o.push('\n');
    o
}

/// Refuses a run if the disk has no room for the files of its embedded servers; it would fail in
/// the middle of a measurement otherwise.
fn room(o: &Options) -> Result<()> {
    if !o.targets.is_empty() && o.targets.iter().all(|t| t.endpoint.is_external()) {
        return Ok(());
    }
    let [smoke, quick, paper] = [0, 1, 2].map(|i| {
        let all = chosen(&o.names).into_iter();
        let most = all.max_by(|a, b| a.disk_gb[i].total_cmp(&b.disk_gb[i]));
        most.map_or((0.1, "a run"), |s| (s.disk_gb[i], s.name))
    });
    let (gb, name) = o.preset.pick(smoke, quick, paper);
    let what = format!("{name} with preset {}", o.preset.name());
    room_for(&o.output.data, gb, &what)
}

/// Refuses a directory for embedded servers that cannot be written to, or that has less than `gb`
/// free for the files of `what`.
fn room_for(data: &Path, gb: f64, what: &str) -> Result<()> {
    let told = |e: Failure| Failure(format!("{e}: give another directory with --data"));
    // The probe directory is removed as soon as it has been made.
    TempDir::new(data).map_err(told)?;
    shelf::room(data, gb * 1e9, what).map_err(told)
}

fn experiments(o: &Options) -> Result<()> {
    stop::install();
    room(o)?;
    let endpoint = targets::only(&o.targets);
    let mut lab = Lab::new(endpoint, o.preset, o.output.data.clone());
    lab.options = o.given.clone();
    lab.only = o.parts.clone();
    lab.cache_gb = o.cache_gb;
    let names = if o.names.is_empty() {
        chosen(&[]).iter().map(|s| s.name.to_string()).collect()
    } else {
        o.names.clone()
    };
    let each = |n: &String| match n.as_str() {
        "yardsticks" => 1,
        n => workloads::named(n).len(),
    };
    let mut session = Session::new(&o.output, names.iter().map(each).sum())?;
    let busy = environment::busy();
    for name in &names {
        if name == "yardsticks" {
            let mut out = Outcome::default();
            out.warnings.extend(busy.clone());
            session.one(&mut lab, &mut out, |lab, out| {
                yardsticks::run(lab, o.only, out)
            });
            continue;
        }
        for spec in workloads::named(name) {
            let out = Outcome {
                id: spec.name.into(),
                title: spec.title.into(),
                about: spec.about.into(),
                warnings: busy.iter().cloned().collect(),
                ..Outcome::default()
            };
            let run = |lab: &mut Lab, out: &mut Outcome| {
                let before = lab.placements_asked;
                let result = (spec.run)(lab, out);
                if lab.placements_asked == before && o.parts.values(only::CORES.name).is_some() {
                    out.warnings
                        .push("--only cores: nothing that was run has a single connection.".into());
                }
                out.deviations.extend(o.parts.told(spec));
                out.deviations.extend(o.cache_gb.map(|gb| {
                    format!("Embedded servers had a cache of {gb} GiB (--cacheSizeGB).")
                }));
                result
            };
            if o.targets.len() > 1 {
                session.in_turns(&mut lab, &out, (&o.targets, o.turns), run);
            } else {
                session.one(&mut lab, &mut out.clone(), run);
            }
        }
    }
    session.end(&mut lab)
}

/// Runs one experiment that is not in the registry, with the same session, report and warnings as
/// those that are.
pub fn single(
    lab: &mut Lab,
    output: &Output,
    id: &str,
    title: &str,
    f: impl FnOnce(&mut Lab, &mut Outcome) -> Result<()>,
) -> Result<()> {
    if !lab.endpoint.is_external() {
        // Only the workload's file could tell how much it writes, so a small fixed amount is
        // required here.
        room_for(&output.data, 0.3, title)?;
    }
    let mut session = Session::new(output, 1)?;
    let mut out = Outcome {
        id: id.into(),
        title: title.into(),
        warnings: environment::busy().into_iter().collect(),
        ..Outcome::default()
    };
    session.one(lab, &mut out, f);
    session.end(lab)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    fn meaning(line: &str) -> Result<Parsed> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    fn parsed(line: &str) -> Result<Option<Options>> {
        match meaning(line)? {
            Parsed::Run(o) => Ok(Some(*o)),
            Parsed::Help(_) => Ok(None),
        }
    }

    #[test]
    fn what_is_understood() {
        let o = parsed("w1 w4 --preset quick --json a.jsonl --out d --uri mongodb://h:1")
            .unwrap()
            .unwrap();
        assert_eq!(o.names, ["w1", "w4"]);
        assert_eq!(o.preset, Preset::Quick);
        assert_eq!(o.output.json, Some(PathBuf::from("a.jsonl")));
        assert_eq!(o.output.dir, Some(PathBuf::from("d")));
        assert_eq!(o.targets.len(), 1);
        assert_eq!(o.targets[0].name, "h:1");
        let o = parsed("").unwrap().unwrap();
        assert!(o.names.is_empty() && o.preset == Preset::Smoke);
        assert_eq!(parsed("w1 --help").unwrap(), None);
        assert_eq!(
            parsed("yardsticks --only 3").unwrap().unwrap().only,
            Some(3)
        );
    }

    #[test]
    fn parts_and_the_cache() {
        // `--preset` counts wherever it stands on the line.
        let line = "w3 w4a --only batch=2,5 --only cores=two --preset quick --cacheSizeGB 0.5";
        let o = parsed(line).unwrap().unwrap();
        assert_eq!(
            o.parts.values("batch"),
            Some(&["2".to_string(), "5".into()][..])
        );
        assert_eq!((o.only, o.cache_gb), (None, Some(0.5)));
        // One embedded target is enough for the option to be accepted, since that one gets the
        // cache.
        let line = "w1 --target a=embedded --target b=mongodb://h:1 --cacheSizeGB 1";
        assert_eq!(parsed(line).unwrap().unwrap().cache_gb, Some(1.0));
        // Without names any experiment may own the `--only` parts.
        assert!(
            parsed("--only query=text --only batch=10")
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn several_targets() {
        let line = "w1 --target a=embedded --target b=mongodb://h:1 --turns 7 --core-hour 0.04";
        let o = parsed(line).unwrap().unwrap();
        let names: Vec<_> = o.targets.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!((o.turns, o.output.core_hour), (7, Some(0.04)));
    }

    #[test]
    fn what_is_refused_and_why() {
        for (line, why) in [
            ("w99", "there is no experiment 'w99' (is 'w1' meant?)"),
            ("querry", "is 'query' meant?"),
            ("comparre a b", "is 'compare' meant?"),
            ("nonsense", "(try ceiling, query, w1"),
            (
                "--preset big",
                "--preset big: there are smoke, quick and paper",
            ),
            ("--preset", "option '--preset' needs a value"),
            ("--uri localhost", "must begin with mongodb://"),
            ("--fast", "there is no option '--fast'"),
            ("--prest quick", "is '--preset' meant?"),
            ("-x", "there is no option '-x'"),
            ("yardsticks --only 99", "--only 99: the yardsticks are 1 to"),
            ("w1 list", "'list' is a command and comes first"),
            ("w1 --only 1", "--only N belongs to 'yardsticks'"),
            ("w3 --only big", "--only big: it must be NAME=VALUE,VALUE"),
            (
                "w3 --only size=1",
                "there is no 'size' to choose from: w3 has batch",
            ),
            (
                "w3 --only batch=3",
                "--only batch=3: batch of w3 with preset smoke is 1, 10,",
            ),
            (
                "w3 --preset quick --only batch=7",
                "with preset quick is 1, 2, 5, 10,",
            ),
            (
                "yardsticks --only batch=1",
                "there is no 'batch' to choose from",
            ),
            (
                "w1 --cacheSizeGB 0",
                "--cacheSizeGB 0: it must be GiB, above 0",
            ),
            ("w1 --cacheSizeGB inf", "it must be GiB, above 0"),
            (
                "w1 --uri mongodb://h --cacheSizeGB 1",
                "belongs to embedded servers, and there is none",
            ),
            ("yardsticks --cacheSizeGB 1", "a cache of their own"),
            ("ceiling --cacheSizeGB 1", "'ceiling' measures no server"),
            ("w1 --seconds 1", "--seconds belongs to 'ceiling'"),
            ("ceiling --seconds 0", "--seconds 0: it must be seconds"),
            (
                "ceiling --connections",
                "option '--connections' needs a value",
            ),
            ("--core-hour cheap", "must be a number above 0"),
            ("--turns 0", "whole number from 1"),
            ("w1 --turns 3", "nothing to take turns"),
            (
                "--uri mongodb://h --target a=embedded",
                "--uri is the only target",
            ),
            (
                "--target a=embedded --target a=embedded",
                "has been given already",
            ),
            (
                "yardsticks --uri mongodb://h",
                "cannot be run against another target",
            ),
        ] {
            let e = parsed(line).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }

    #[test]
    fn every_experiment_has_a_page_of_its_own() {
        for s in workloads::ALL {
            let Parsed::Help(page) = meaning(&format!("{} --help", s.name)).unwrap() else {
                panic!("{} asks for no help", s.name);
            };
            assert!(
                page.starts_with(&format!("{}: {}", s.name, s.title)),
                "{page}"
            );
            for d in s.dimensions {
                assert!(page.contains(d.name), "{} in {page}", d.name);
            }
            for o in s.options {
                assert!(
                    page.contains(&format!("--{}", o.name)),
                    "{} in {page}",
                    o.name
                );
            }
            let others = workloads::ALL.iter().filter(|o| o.name != s.name);
            for o in others {
                assert!(!page.contains(o.title), "{} in {page}", o.name);
            }
            let widest = page.lines().map(|l| l.chars().count()).max();
            assert!(widest <= Some(92), "{widest:?} in {page}");
        }
        let Parsed::Help(page) = meaning("yardsticks -h").unwrap() else {
            panic!("no help");
        };
        let first = yardsticks::ALL[0].title.split(' ').next().unwrap();
        assert!(page.contains(&format!("  1           {first}")), "{page}");
    }

    #[test]
    fn help_names_everything_there_is() {
        let h = page().text();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let flat = words(&h);
        for s in workloads::ALL {
            assert!(h.contains(s.name) && h.contains(s.title));
        }
        for y in yardsticks::ALL {
            assert!(flat.contains(&words(y.title)), "{}", y.title);
        }
        let widest = h.lines().map(|l| l.chars().count()).max();
        assert!(widest <= Some(96), "{widest:?} in {h}");
        // The options that other modules add are on the same page as those of this one.
        for option in ["uri", "target", "json", "out", "tui", "only", "cacheSizeGB"] {
            assert!(h.contains(&format!("\n  --{option} ")), "{option} in {h}");
        }
        for c in commands::ALL {
            assert_eq!(h.contains(c.name), !c.about.is_empty(), "{}", c.name);
        }
    }
}
