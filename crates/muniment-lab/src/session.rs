//! A run of experiments, one after the other, or of one experiment on several targets in turns.
//! Prints and writes the results of each.

use crate::cli::Output;
use crate::lab::Lab;
use crate::report::cost;
use crate::report::plot::Plot;
use crate::report::{Outcome, Run, derived, experiments, html, json, overlay};
use crate::shelf::{self, Lines, Place};
use crate::stdout::{self, say};
use crate::summary::Summary;
use crate::targets::Named;
use crate::versus::{Sheets, order};
use crate::{compare, environment, hlog, sizes, uri};
use muniment_load::fail::{Failure, Result};
use muniment_load::samples::SampleSet;
use muniment_load::{placement, stop};
use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

/// The results of the turns of several targets.
struct Kept {
    sheets: Sheets,
    /// The plots, by target, then by turn.
    plots: Vec<Vec<Vec<Plot>>>,
    /// The loads of the first turn, by target.
    first: Vec<Vec<SampleSet>>,
}

impl Kept {
    /// Makes an empty store for targets of these names.
    fn new(names: &[String]) -> Kept {
        Kept {
            sheets: Sheets::new(names),
            plots: vec![Vec::new(); names.len()],
            first: vec![Vec::new(); names.len()],
        }
    }

    /// Adds the outcomes of a turn that all targets have completed, by target. A turn that only
    /// some targets completed must not be added: its figures would be paired with another turn of
    /// the other targets.
    fn add(&mut self, turn: &[Outcome]) {
        for (i, out) in turn.iter().enumerate() {
            self.sheets.add(i, out);
            if let Some(turns) = self.plots.get_mut(i) {
                turns.push(out.plots.clone());
            }
            if let Some(first) = self.first.get_mut(i).filter(|f| f.is_empty()) {
                first.clone_from(&out.samples);
            }
        }
    }

    /// The number of turns added.
    fn turns(&self) -> usize {
        self.plots.first().map_or(0, Vec::len)
    }

    /// Every plot, with the curves of all targets in it.
    fn side_by_side(&self, names: &[String]) -> Vec<Plot> {
        let whole: Vec<Vec<Plot>> = self.plots.iter().map(|t| overlay::over_turns(t)).collect();
        let mut out = overlaid(names, &whole);
        out.extend(overlaid(names, &derived::of_all(&self.first)));
        out
    }
}

/// Runs turn `number`, in which `one` measures each of so many targets, and returns the outcomes by
/// target. `None` if the turn was stopped: a load that was cut short is no measurement of its
/// target.
///
/// # Errors
/// The failure of the first target that failed; the remaining targets are not measured any more.
fn whole_turn(
    targets: usize,
    number: usize,
    stopped: impl Fn() -> bool,
    mut one: impl FnMut(usize) -> Result<Outcome>,
) -> Result<Option<Vec<Outcome>>> {
    let mut done = Vec::new();
    for i in order(targets, number) {
        if stopped() {
            break;
        }
        done.push((i, one(i)?));
    }
    if stopped() {
        return Ok(None);
    }
    done.sort_by_key(|(i, _)| *i);
    Ok(Some(done.into_iter().map(|(_, out)| out).collect()))
}

/// The turns after the first one, as long as all targets complete them.
///
/// # Errors
/// The failure of the first target that failed.
fn further_turns(
    lab: &mut Lab,
    (targets, turns): (&[Named], usize),
    kept: &mut Kept,
    out: &mut Outcome,
    run: impl Fn(&mut Lab, &mut Outcome) -> Result<()>,
) -> Result<()> {
    for turn in 1..turns {
        lab.progress.turn(Some((turn + 1, turns)));
        let whole = whole_turn(targets.len(), turn, stop::asked, |i| {
            let mut again = Outcome::default();
            let Some(t) = targets.get(i) else {
                return Ok(again);
            };
            aim(lab, t);
            let result = run(lab, &mut again);
            let news = again.warnings.iter().map(|w| format!("{}: {w}", t.name));
            out.warnings.extend(news);
            result.map_err(|e| e.while_doing(&t.name))?;
            Ok(again)
        })?;
        match whole {
            Some(whole) => kept.add(&whole),
            None => break,
        }
    }
    Ok(())
}

/// Makes `target` the one that the lab measures next.
fn aim(lab: &mut Lab, target: &Named) {
    lab.endpoint = target.endpoint.clone();
    lab.target_name = Some(target.name.clone());
}

fn overlaid(names: &[String], plots: &[Vec<Plot>]) -> Vec<Plot> {
    let named: Vec<(&str, &[Plot])> = names
        .iter()
        .zip(plots)
        .map(|(n, p)| (n.as_str(), p.as_slice()))
        .collect();
    overlay::side_by_side(&named)
}

/// A run of experiments: the findings and the failures so far.
pub(crate) struct Session<'a> {
    output: &'a Output,
    place: Place,
    run: Run,
    failures: Vec<String>,
    /// The file names of histograms that are taken.
    logs: HashSet<String>,
    /// The number of experiments that have begun, and the number that will be run.
    begun: (usize, usize),
    summary: Summary,
    /// Text that is printed once the terminal has been given back.
    held: String,
}

impl<'a> Session<'a> {
    /// Begins a session of so many experiments. Tries everything that will be written to, so that a
    /// run does not measure for hours and then fail to write its results.
    ///
    /// # Errors
    /// A place cannot be written to, is full, or holds another run.
    pub(crate) fn new(output: &'a Output, experiments: usize) -> Result<Session<'a>> {
        let started = environment::utc_now();
        let (out, json) = (output.dir.as_deref(), output.json.as_deref());
        Ok(Session {
            place: Place::reserve(Path::new(shelf::DEFAULT), out, json, &started)?,
            output,
            run: Run {
                command: command_line(),
                started,
                ..Run::default()
            },
            failures: Vec::new(),
            logs: HashSet::new(),
            begun: (0, experiments),
            summary: Summary::new(experiments),
            held: String::new(),
        })
    }

    /// Prints text for people on standard output, unless the JSON lines go there.
    fn print(&self, text: &str) {
        match self.place.json() {
            Some(Lines::Stdout) => stdout::aside(text),
            _ => say(text),
        }
    }

    /// The width that a line for people may have.
    fn width(&self) -> Option<usize> {
        match self.place.json() {
            Some(Lines::Stdout) => stdout::width_of(&std::io::stderr()),
            _ => stdout::width_of(&std::io::stdout()),
        }
    }

    /// Ends the session: tells where the results are, and the failures.
    ///
    /// # Errors
    /// The failures, or that the run was interrupted.
    pub(crate) fn end(mut self, lab: &mut Lab) -> Result<()> {
        lab.progress.end_line();
        lab.progress.leave();
        self.print(&self.held);
        if !self.run.outcomes.is_empty()
            && let Err(e) = self.write(true)
        {
            self.failures.push(e.0);
        }
        let good =
            self.failures.is_empty() && !self.run.interrupted && !self.run.outcomes.is_empty();
        if self.output.tables {
            let known = self.run.environment.iter();
            let lines: String = known.map(|(k, v)| format!("  {k}: {v}\n")).collect();
            self.print(&format!("\nEnvironment\n{lines}\n"));
            self.print(&self.summary.whole(self.width()));
        }
        let mut last = self.summary.warnings(&self.run.outcomes);
        if good {
            last.extend(self.against_the_last());
            if let Err(e) = self.place.went_well() {
                self.failures.push(e.0);
            }
        }
        self.print(&Summary::lines(&last, self.width()));
        // The path is not cut to the terminal's width, since nobody could use it then.
        let place: Vec<String> = self.whereabouts(good).into_iter().collect();
        self.print(&Summary::lines(&place, None));
        let stdout = self.place.json() == Some(&Lines::Stdout);
        if stdout && !self.run.outcomes.is_empty() {
            match json::lines(&self.run) {
                Ok(lines) => {
                    let text = lines.join("\n") + "\n";
                    let given = Lines::Stdout.write(&text);
                    self.failures.extend(given.err().map(|e| e.0));
                }
                Err(e) => self.failures.push(e.0),
            }
        }
        match self.failures.as_slice() {
            [] if self.run.interrupted => Err(stop::interrupted()),
            [] => Ok(()),
            some => Err(Failure(some.join("\nmuniment bench: "))),
        }
    }

    /// A line that compares this run with the last run of the same command, if there was one.
    fn against_the_last(&self) -> Option<String> {
        let (command, started) = (&self.run.command, &self.run.started);
        let before = shelf::before(self.place.dir(), command, started)?;
        let name = before.file_name()?.to_string_lossy().into_owned();
        let a = match json::read(&before) {
            Ok(a) => a,
            Err(e) => return Some(format!("Against {name}: not compared: {e}")),
        };
        Some(compare::line(&name, &a, &self.run))
    }

    /// A text that tells where the report and the JSON lines are.
    fn whereabouts(&self, good: bool) -> Option<String> {
        if self.run.outcomes.is_empty() {
            return None;
        }
        let written = |name: &str| Some(self.place.dir().join(name)).filter(|f| f.is_file());
        let mut o = match (written("report.html"), written("results.json")) {
            (Some(page), _) => format!("Report: {}", page.display()),
            (None, Some(results)) => format!("Results, without a page: {}", results.display()),
            (None, None) => "Nothing could be written".to_string(),
        };
        if let Some(Lines::File(f)) = self.place.json() {
            o += &format!("; JSON lines: {}", f.display());
        }
        if let Some(last) = self.place.last_good().filter(|_| !good)
            && let Some(name) = last.file_name()
        {
            o += &format!(" ({} is still {})", shelf::LATEST, name.to_string_lossy());
        }
        Some(o)
    }

    /// Runs one experiment on several targets in turns. Keeps each target's first turn, then the
    /// comparison over all turns, with every plot of the experiment. The turns end when a target
    /// fails; those completed before are compared.
    pub(crate) fn in_turns(
        &mut self,
        lab: &mut Lab,
        like: &Outcome,
        (targets, turns): (&[Named], usize),
        run: impl Fn(&mut Lab, &mut Outcome) -> Result<()>,
    ) {
        let names: Vec<String> = targets.iter().map(|t| t.name.clone()).collect();
        let mut kept = Kept::new(&names);
        self.next(lab);
        let mut first = Vec::new();
        for t in targets {
            aim(lab, t);
            lab.progress.turn(Some((1, turns)));
            let mut out = Outcome {
                id: format!("{}-{}", like.id, t.name),
                title: format!("{}: {}", like.title, t.name),
                ..like.clone()
            };
            self.single(lab, &mut out, true, |lab, out| {
                run(lab, out)?;
                first.push(out.clone());
                Ok(())
            });
        }
        if first.len() == targets.len() {
            kept.add(&first);
        }
        let mut out = Outcome {
            id: format!("{}-compared", like.id),
            title: format!("{}: compared", like.title),
            ..Outcome::default()
        };
        self.single(lab, &mut out, false, |lab, out| {
            if kept.turns() == 0 {
                let why = "there is nothing to compare: not every target completed the first turn";
                return Err(Failure::new(why));
            }
            let result = further_turns(lab, (targets, turns), &mut kept, out, &run);
            let times = match kept.turns() {
                all if all == turns => turns.to_string(),
                some => format!("{some} of {turns}"),
            };
            out.about = format!(
                "The experiment on each of {} targets, {times} times in turns.",
                targets.len()
            );
            out.plots = kept.side_by_side(&names);
            experiments::versus::tell_all(&kept.sheets, out);
            result
        });
        lab.progress.turn(None);
    }

    /// Tells the progress that the next experiment begins.
    fn next(&mut self, lab: &mut Lab) {
        self.begun.0 += 1;
        lab.progress.experiment(self.begun.0, self.begun.1);
    }

    /// Runs one experiment, prints its findings, and writes the report of the run so far.
    pub(crate) fn one(
        &mut self,
        lab: &mut Lab,
        out: &mut Outcome,
        f: impl FnOnce(&mut Lab, &mut Outcome) -> Result<()>,
    ) {
        self.next(lab);
        self.single(lab, out, false, f);
    }

    /// Runs a part of an experiment as [`Session::one`] does. `quietly` suppresses the printing,
    /// for parts whose findings say little until the other parts have been measured.
    fn single(
        &mut self,
        lab: &mut Lab,
        out: &mut Outcome,
        quietly: bool,
        f: impl FnOnce(&mut Lab, &mut Outcome) -> Result<()>,
    ) {
        if stop::asked() {
            self.run.interrupted = true;
            return;
        }
        if self.output.full_screen
            && !lab.progress.is_full_screen()
            && let Err(e) = lab.progress.full_screen()
        {
            self.failures.push(e.0);
            return;
        }
        let begin = Instant::now();
        out.preset = lab.preset.name().into();
        let result = f(lab, out);
        out.seconds = begin.elapsed().as_secs_f64();
        let mut failed = false;
        if stop::asked() {
            self.run.interrupted = true;
            out.warnings
                .push("Interrupted: the figures are of what had been done by then.".into());
        } else if let Err(e) = result {
            failed = true;
            self.run.failed = true;
            self.failures.push(format!("{}: {e}", out.id));
            out.warnings.push(format!("Failed: {e}"));
        }
        self.complete(lab, out);
        lab.progress.end_line();
        if self.output.tables {
            let text = out.text(self.width());
            self.hold_or_print(lab, &text);
        }
        if !quietly || failed {
            self.summary.add(out);
            if !self.output.tables {
                let text = self.summary.newest(self.width());
                self.hold_or_print(lab, &text);
            }
        }
        lab.progress.done(|| {
            let found = out.findings.first().map_or("", String::as_str);
            format!("{} ({:.0} s) {found}", out.id, out.seconds)
        });
        let again = self
            .run
            .outcomes
            .iter()
            .filter(|o| o.id == out.id || o.id.starts_with(&format!("{}-again-", out.id)));
        match again.count() {
            0 => {}
            n => out.id = format!("{}-again-{n}", out.id),
        }
        self.run.outcomes.push(out.clone());
        self.run.environment.clone_from(&lab.environment);
        let logs = hlog::write_all(self.place.dir(), out, &mut self.logs);
        for e in [self.write(false), logs]
            .into_iter()
            .filter_map(Result::err)
        {
            self.failures.push(e.0);
        }
    }

    /// Adds the parts that every experiment has: warnings of its surroundings, plots and tables of
    /// its loads.
    fn complete(&self, lab: &mut Lab, out: &mut Outcome) {
        out.warnings.append(&mut lab.warnings);
        out.warnings
            .extend(placement::unpinned(&out.samples, &out.warnings));
        out.warnings.extend(lab.take_doubts());
        derived::renew(out);
        out.tables
            .extend(cost::table(&out.samples, self.output.core_hour));
        out.tables
            .extend(sizes::table(&std::mem::take(&mut lab.sizes)));
        let mut seen = std::collections::HashSet::new();
        out.warnings.retain(|w| seen.insert(w.clone()));
    }

    /// Prints `text` now, or after the terminal has been given back.
    fn hold_or_print(&mut self, lab: &Lab, text: &str) {
        if lab.progress.is_full_screen() {
            self.held += text;
        } else {
            self.print(text);
        }
    }

    /// Writes results.json, report.html and the lines; a failure of one does not keep the others
    /// from being written. Until the run is `done` they say that it was interrupted, which stays
    /// true if the run is killed before it writes them again.
    fn write(&mut self, done: bool) -> Result<()> {
        let was = self.run.interrupted;
        self.run.interrupted |= !done;
        let written = self.write_as_it_is();
        self.run.interrupted = was;
        written
    }

    fn write_as_it_is(&self) -> Result<()> {
        let lines = json::lines(&self.run)?;
        let text = || lines.join("\n") + "\n";
        let json = match self.place.json() {
            Some(file @ Lines::File(_)) => file.write(&text()),
            _ => Ok(()),
        };
        [
            self.place.put("results.json", &json::array(&lines)),
            self.place.put("report.html", &html::page(&self.run)),
            json,
        ]
        .into_iter()
        .collect()
    }
}

/// The command line as the user typed it, without the directory of the program and without
/// passwords.
fn command_line() -> String {
    let mut words: Vec<String> = std::env::args_os()
        .map(|a| uri::redacted(&a.to_string_lossy()))
        .collect();
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or("muniment").to_string();
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::lab::Preset;
    use crate::report::plot::{Axis, Mark, Scale, Series};
    use crate::targets::Endpoint;
    use std::cell::Cell;

    /// Fills in the result of a made-up experiment.
    fn find(out: &mut Outcome, rate: f64) {
        out.figure("inserts", rate, "docs/s", None);
        let y = Axis {
            label: "docs/s".into(),
            scale: Scale::Linear,
        };
        let series = Series {
            name: "inserts".into(),
            mark: Mark::Line,
            points: vec![(1.0, rate)],
            ..Series::default()
        };
        out.plots.push(Plot {
            title: "inserts".into(),
            caption: String::new(),
            x: y.clone(),
            y,
            categories: Vec::new(),
            series: vec![series],
        });
    }

    /// Measures two targets in turns, of which measurement number `bad` fails; returns the outcomes
    /// that were kept, and the failures.
    fn in_turns(turns: usize, bad: usize) -> (Vec<Outcome>, Vec<String>) {
        let name = format!("muniment-session-{turns}-{bad}-{}", std::process::id());
        let parent = std::env::temp_dir().join(name);
        let output = Output {
            json: None,
            dir: Some(parent.join("report")),
            data: parent.clone(),
            core_hour: None,
            full_screen: false,
            tables: false,
        };
        let mut session = Session::new(&output, 1).unwrap();
        let mut lab = Lab::new(Endpoint::Embedded, Preset::Smoke, output.data.clone());
        let targets = ["a", "b"].map(|name| Named {
            name: name.into(),
            endpoint: Endpoint::Embedded,
        });
        let like = Outcome {
            id: "w".into(),
            ..Outcome::default()
        };
        let measured = Cell::new(0);
        session.in_turns(&mut lab, &like, (&targets, turns), |_, out| {
            measured.set(measured.get() + 1);
            assert!(measured.get() <= bad.max(2), "it went on after a failure");
            find(out, f64::from(measured.get() as u32));
            match measured.get() == bad {
                true => Err(Failure::new("it broke")),
                false => Ok(()),
            }
        });
        assert!(session.run.failed);
        std::fs::remove_dir_all(&parent).unwrap();
        (session.run.outcomes, session.failures)
    }

    #[test]
    fn a_late_failure_leaves_the_turns_before_it() {
        // The measurements are: a 1, b 2; b 3, a 4; a 5, b fails.
        let (outcomes, failures) = in_turns(5, 6);
        assert_eq!(failures, ["w-compared: b: it broke"]);
        let out = &outcomes[2];
        assert_eq!(
            out.about,
            "The experiment on each of 2 targets, 2 of 5 times in turns."
        );
        let figures: Vec<(&str, f64)> = out
            .figures
            .iter()
            .map(|f| (f.name.as_str(), f.value))
            .collect();
        assert_eq!(figures, [("inserts, a", 2.5), ("inserts, b", 2.5)]);
        assert_eq!(out.tables[0].rows[1][7], "2", "turns");
        assert!(out.plots[0].caption.contains("Medians of 2 turns"));
        assert!(out.warnings.contains(&"Failed: b: it broke".to_string()));
    }

    #[test]
    fn a_failure_in_the_first_turn_leaves_nothing_to_compare() {
        let (outcomes, failures) = in_turns(5, 1);
        assert_eq!(outcomes.len(), 3);
        assert_eq!(failures[0], "w-a: it broke");
        assert!(failures[1].starts_with("w-compared: there is nothing to compare"));
        // The first turn of the target that did not fail is kept.
        assert_eq!(outcomes[1].figures[0].value, 2.0);
    }

    #[test]
    fn a_turn_that_was_stopped_does_not_count() {
        for stop_at in 0..=2 {
            let measured = Cell::new(0);
            let whole = whole_turn(
                2,
                1,
                || measured.get() == stop_at,
                |i| {
                    measured.set(measured.get() + 1);
                    Ok(Outcome {
                        id: i.to_string(),
                        ..Outcome::default()
                    })
                },
            );
            assert!(whole.unwrap().is_none(), "{stop_at}");
            assert_eq!(measured.get(), stop_at);
        }
        let named = |i: usize| {
            let id = i.to_string();
            Ok(Outcome {
                id,
                ..Outcome::default()
            })
        };
        let whole = whole_turn(3, 1, || false, named).unwrap().unwrap();
        let ids: Vec<&str> = whole.iter().map(|o| o.id.as_str()).collect();
        assert_eq!(ids, ["0", "1", "2"], "by target, not as measured");
    }
}
