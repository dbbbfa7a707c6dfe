//! A run of experiments: one after the other, or one on several targets in turns; what is printed
//! and written of each.

use crate::cli::Output;
use crate::fail::{Context, Failure, Result};
use crate::lab::Lab;
use crate::report::svg::Plot;
use crate::report::{Outcome, Run, SampleSet, html, json, overlay, timeline};
use crate::stdout::say;
use crate::targets::Named;
use crate::versus::{Sheets, order};
use crate::{environment, hlog, placement, sizes, stop, usage};
use std::path::PathBuf;
use std::time::Instant;

/// What the turns of several targets gave.
struct Kept {
    sheets: Sheets,
    /// By target, then by turn.
    plots: Vec<Vec<Vec<Plot>>>,
    /// The loads of the first turn, by target.
    first: Vec<Vec<SampleSet>>,
}

impl Kept {
    /// The next turn of target `i`.
    fn add(&mut self, i: usize, out: &Outcome) {
        self.sheets.add(i, out);
        if let Some(turns) = self.plots.get_mut(i) {
            turns.push(out.plots.clone());
        }
        if let Some(first) = self.first.get_mut(i).filter(|f| f.is_empty()) {
            first.clone_from(&out.samples);
        }
    }

    /// Every plot with all targets in it.
    fn side_by_side(&self, names: &[String]) -> Vec<Plot> {
        let whole: Vec<Vec<Plot>> = self.plots.iter().map(|t| overlay::over_turns(t)).collect();
        let mut out = overlaid(names, &whole);
        out.extend(overlaid(names, &timeline::of_all(&self.first)));
        out
    }
}

fn overlaid(names: &[String], plots: &[Vec<Plot>]) -> Vec<Plot> {
    let named: Vec<(&str, &[Plot])> = names
        .iter()
        .zip(plots)
        .map(|(n, p)| (n.as_str(), p.as_slice()))
        .collect();
    overlay::side_by_side(&named)
}

/// A run of experiments: what they found so far, and what failed.
pub struct Session<'a> {
    output: &'a Output,
    run: Run,
    failures: Vec<String>,
    /// What is printed once the terminal has been given back.
    held: String,
}

impl<'a> Session<'a> {
    /// Nothing has run yet.
    pub fn new(output: &'a Output) -> Session<'a> {
        Session {
            output,
            run: Run {
                command: command_line(),
                started: environment::utc_now(),
                ..Run::default()
            },
            failures: Vec::new(),
            held: String::new(),
        }
    }

    /// Says where everything is, and what failed.
    ///
    /// # Errors
    /// What failed, or that it was interrupted.
    pub fn end(self, lab: &mut Lab) -> Result<()> {
        lab.progress.end_line();
        lab.progress.leave();
        say(&self.held);
        say("\nEnvironment\n");
        for (k, v) in &self.run.environment {
            say(&format!("  {k}: {v}\n"));
        }
        let report = self.output.dir.join("report.html");
        say(&format!(
            "\nReport: {}\n",
            report.canonicalize().unwrap_or(report).display()
        ));
        if let Some(f) = &self.output.json {
            say(&format!("JSON lines: {}\n", f.display()));
        }
        match self.failures.as_slice() {
            [] if self.run.interrupted => {
                Err(Failure::new("interrupted; what there was has been written"))
            }
            [] => Ok(()),
            some => Err(Failure(some.join("\nmuniment bench: "))),
        }
    }

    /// Runs one experiment on several targets in turns: shows each target's first turn, then the
    /// comparison over all of them, with every plot of the experiment.
    pub fn in_turns(
        &mut self,
        lab: &mut Lab,
        like: &Outcome,
        (targets, turns): (&[Named], usize),
        run: impl Fn(&mut Lab, &mut Outcome) -> Result<()>,
    ) {
        let names: Vec<String> = targets.iter().map(|t| t.name.clone()).collect();
        let mut kept = Kept {
            sheets: Sheets::new(&names),
            plots: vec![Vec::new(); targets.len()],
            first: vec![Vec::new(); targets.len()],
        };
        let aim = |lab: &mut Lab, t: &Named| {
            lab.endpoint = t.endpoint.clone();
            lab.target_name = Some(t.name.clone());
        };
        for (i, t) in targets.iter().enumerate() {
            aim(lab, t);
            let mut out = Outcome {
                id: format!("{}-{}", like.id, t.name),
                title: format!("{}: {}", like.title, t.name),
                ..like.clone()
            };
            self.one(lab, &mut out, |lab, out| {
                let result = run(lab, out);
                kept.add(i, out);
                result
            });
        }
        let mut out = Outcome {
            id: format!("{}-compared", like.id),
            title: format!("{}: compared", like.title),
            about: format!(
                "The experiment on each of {} targets, {turns} times in turns.",
                targets.len(),
            ),
            ..Outcome::default()
        };
        self.one(lab, &mut out, |lab, out| {
            for turn in 1..turns {
                for i in order(targets.len(), turn) {
                    let Some(t) = targets.get(i).filter(|_| !stop::asked()) else {
                        continue;
                    };
                    aim(lab, t);
                    let mut again = Outcome::default();
                    run(lab, &mut again).map_err(|e| e.while_doing(&t.name))?;
                    let news = again.warnings.iter().map(|w| format!("{}: {w}", t.name));
                    out.warnings.extend(news);
                    kept.add(i, &again);
                }
            }
            out.plots = kept.side_by_side(&names);
            kept.sheets.write_down(out);
            Ok(())
        });
    }

    /// Runs one experiment, prints it, and writes the report so far.
    pub fn one(
        &mut self,
        lab: &mut Lab,
        out: &mut Outcome,
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
        if stop::asked() {
            self.run.interrupted = true;
            out.warnings
                .push("Interrupted: the figures are of what had been done by then.".into());
        } else if let Err(e) = result {
            self.failures.push(format!("{}: {e}", out.id));
            out.warnings.push(format!("Failed: {e}"));
        }
        out.warnings.append(&mut lab.warnings);
        out.warnings
            .extend(placement::unpinned(&out.samples, &out.warnings));
        out.warnings.extend(lab.take_doubts());
        out.plots.extend(timeline::plots(&out.samples));
        out.tables
            .extend(usage::table(&out.samples, self.output.core_hour));
        out.tables
            .extend(sizes::table(&std::mem::take(&mut lab.sizes)));
        let mut seen = std::collections::HashSet::new();
        out.warnings.retain(|w| seen.insert(w.clone()));
        lab.progress.end_line();
        if lab.progress.is_full_screen() {
            self.held += &out.text();
        } else {
            say(&out.text());
        }
        lab.progress.done(|| {
            let found = out.findings.first().map_or("", String::as_str);
            format!("{} ({:.0} s) {found}", out.id, out.seconds)
        });
        self.run.outcomes.push(out.clone());
        self.run.environment.clone_from(&lab.environment);
        if let Err(e) = write(&self.run, self.output) {
            self.failures.push(e.0);
        }
    }
}

/// Writes report.html, results.json and the JSON lines, each whole.
fn write(run: &Run, o: &Output) -> Result<()> {
    std::fs::create_dir_all(&o.dir).context(&format!("making {}", o.dir.display()))?;
    let put = |path: PathBuf, text: String| {
        std::fs::write(&path, text).context(&format!("writing {}", path.display()))
    };
    let lines = json::lines(run)?;
    put(o.dir.join("report.html"), html::page(run))?;
    put(o.dir.join("results.json"), json::array(&lines))?;
    // Those before it have been written when they ended; another run's are not this one's.
    if run.outcomes.len() == 1 {
        hlog::remove_all(&o.dir)?;
    }
    if let Some(x) = run.outcomes.last() {
        hlog::write_all(&o.dir, x)?;
    }
    if let Some(f) = &o.json {
        put(f.clone(), lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// What was typed, without the directory of the program.
fn command_line() -> String {
    let mut words: Vec<String> = std::env::args_os()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or("muniment").to_string();
    }
    words.join(" ")
}
