//! What `muniment bench` can do beside running experiments: one line each in [`ALL`], sorted by
//! name. A command is the first word behind `bench`; everything after it belongs to the command.

use crate::fail::{Failure, Result};
use crate::stdout::say;
use crate::{audit, cli, compare, custom, null, raw_engine, relay, report, ycsb};
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

/// One command.
pub struct Spec {
    /// The first word behind `muniment bench`.
    pub name: &'static str,
    /// Its arguments, for the usage line.
    pub arguments: &'static str,
    /// What it does, one line; empty for the lab's own children, which no list shows.
    pub about: &'static str,
    /// Does it with the arguments behind its name.
    pub run: fn(Vec<OsString>) -> ExitCode,
}

/// Every command, sorted by name.
pub const ALL: &[&Spec] = &[
    &audit::cli::COMMAND,
    &compare::COMMAND,
    &HELP,
    &LIST,
    &null::COMMAND,
    &raw_engine::COMMAND,
    &relay::cli::COMMAND,
    &report::command::COMMAND,
    &custom::cli::COMMAND,
    &ycsb::cli::COMMAND,
];

const HELP: Spec = Spec {
    name: "help",
    arguments: "",
    about: "the options of a run of experiments",
    run: |args| {
        nothing_behind("help", &args, || {
            say(&cli::help());
        })
    },
};

const LIST: Spec = Spec {
    name: "list",
    arguments: "",
    about: "the experiments, yardsticks and commands there are",
    run: |args| {
        nothing_behind("list", &args, || {
            say(&cli::list());
        })
    },
};

/// The command called `name`.
pub fn named(name: &str) -> Option<&'static Spec> {
    ALL.iter().copied().find(|s| s.name == name)
}

/// A line for each command that people use.
pub fn list() -> String {
    let mut o = String::from("Commands (muniment bench COMMAND --help tells more):\n");
    for s in ALL.iter().filter(|s| !s.about.is_empty()) {
        let _ = writeln!(o, "  {:<11} {}", s.name, s.about);
    }
    o
}

/// How a command ended: an error goes to stderr, and the exit code is 1.
pub fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("muniment bench: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Says what was wrong with the arguments of `command` (empty for `bench` itself); exit code 2.
pub fn misused(command: &str, e: &Failure) -> ExitCode {
    let space = if command.is_empty() { "" } else { " " };
    eprintln!("muniment bench{space}{command}: {e}\nTry 'muniment bench{space}{command} --help'.");
    ExitCode::from(2)
}

fn nothing_behind(name: &str, args: &[OsString], show: impl FnOnce()) -> ExitCode {
    match args.first() {
        Some(a) if a != "--help" && a != "-h" => misused(
            "",
            &Failure(format!(
                "'{name}' takes no arguments, not '{}'",
                a.to_string_lossy()
            )),
        ),
        _ => {
            show();
            ExitCode::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads;

    #[test]
    fn the_registry_is_sorted_and_no_experiment_hides_behind_a_command() {
        assert!(ALL.is_sorted_by_key(|s| s.name));
        for s in ALL {
            assert!(workloads::named(s.name).is_empty() && s.name != "yardsticks");
        }
    }

    #[test]
    fn the_list_shows_what_people_use() {
        let l = list();
        assert!(l.contains("ycsb") && l.contains("list") && !l.contains("raw-engine"));
    }
}
