//! The subcommands of `muniment bench` other than running experiments: one line each in [`ALL`],
//! sorted by name. A command is the first word after `bench`; everything after it belongs to the
//! command.

use crate::stdout::say;
use crate::uri::redacted;
use crate::{audit, cli, compare, custom, null, raw_engine, relay, report, ycsb};
use muniment_load::fail::{Failure, Result};
use muniment_load::stop;
use muniment_options::{Command, Given, Group, Page};
use std::ffi::OsString;
use std::process::ExitCode;

/// A subcommand of `muniment bench`.
pub struct Spec {
    /// The first word after `muniment bench`.
    pub name: &'static str,
    /// The arguments, as the usage line shows them.
    pub arguments: &'static str,
    /// One line that describes the command; empty for commands that the lab only runs as its own
    /// child processes, which no list shows.
    pub about: &'static str,
    /// The command's help page, which is also its table of options.
    pub page: fn() -> Page,
    /// Runs the command with the parsed arguments; an `Err` is about those arguments.
    pub run: fn(&Given) -> Result<ExitCode>,
}

/// Every command, sorted by name.
pub const ALL: &[&Spec] = &[
    &audit::cli::COMMAND,
    &compare::COMMAND,
    &HELP,
    &LIST,
    &null::COMMAND,
    &null::ROUTER,
    &raw_engine::COMMAND,
    &relay::cli::COMMAND,
    &report::command::COMMAND,
    &custom::cli::COMMAND,
    &ycsb::cli::COMMAND,
];

const HELP: Spec = Spec {
    name: "help",
    arguments: "[EXPERIMENT|COMMAND]",
    about: "the options of a run of experiments, or one experiment or command",
    page: cli::page,
    run: |given| {
        let words = given.text_words()?;
        let page = match words.first().and_then(|w| named(w)) {
            Some(c) if c.name != "help" => (c.page)().text(),
            _ => cli::help_of(&words)?,
        };
        say(&page);
        Ok(ExitCode::SUCCESS)
    },
};

const LIST: Spec = Spec {
    name: "list",
    arguments: "",
    about: "the experiments, yardsticks and commands there are",
    page: || {
        Page {
        head: "Lists the experiments, yardsticks and commands there are.\n\nUsage: muniment bench list\n\n"
            .into(),
        groups: vec![Group::untitled(&[muniment_options::HELP])],
        ..Page::default()
    }
    },
    run: |_| {
        say(&cli::list());
        Ok(ExitCode::SUCCESS)
    },
};

/// Runs a command with its arguments.
pub fn run(c: &Spec, args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let page = (c.page)();
    let done = page.parse(args).map_err(Failure::from).and_then(|given| {
        // Only the first word asks for help; a file called `help` can still be given as `./help`.
        let first = given.words().first();
        if given.has("help") || (c.name != "help" && first.is_some_and(|w| w == "help")) {
            say(&page.text());
            return Ok(ExitCode::SUCCESS);
        }
        (c.run)(&given)
    });
    done.unwrap_or_else(|e| misused(c.name, &e))
}

/// The page of a command that the lab runs only as its own child process: it has words and no
/// options, since no person types it.
pub fn of_a_child() -> Page {
    Page {
        words: true,
        ..Page::default()
    }
}

/// The command called `name`.
pub fn named(name: &str) -> Option<&'static Spec> {
    ALL.iter().copied().find(|s| s.name == name)
}

/// The commands that people use, for completions and the manual page.
pub fn below() -> Vec<Command> {
    let used = ALL.iter().filter(|s| !s.about.is_empty());
    used.map(|s| Command {
        name: s.name,
        about: s.about,
        page: match s.name {
            // The page of `help` itself is that of all experiments, whose options are not for it;
            // completion offers the experiments' names instead.
            "help" => cli::names(),
            _ => (s.page)(),
        },
        below: Vec::new(),
    })
    .collect()
}

/// One line for each command that people use.
pub fn list() -> String {
    let mut o = String::from("Commands (muniment bench COMMAND --help tells more):\n");
    for s in ALL.iter().filter(|s| !s.about.is_empty()) {
        cli::entry(&mut o, s.name, s.about);
    }
    o
}

/// Turns the result of a command into its exit code: an error is printed on stderr and gives 1, or
/// the code of the signal if a signal ended the command.
pub fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("muniment bench: {}", redacted(&e.0));
            stop::exit_code().map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// Prints what is wrong with the arguments of `command` (empty for `bench` itself) and gives exit
/// code 2.
pub fn misused(command: &str, e: &Failure) -> ExitCode {
    let space = if command.is_empty() { "" } else { " " };
    let e = redacted(&e.0);
    eprintln!("muniment bench{space}{command}: {e}\nTry 'muniment bench{space}{command} --help'.");
    ExitCode::from(2)
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

    /// A name that stands twice in a table hides one of the two options, which nobody could give
    /// then.
    #[test]
    fn no_page_has_an_option_twice() {
        for page in ALL.iter().map(|s| (s.page)()).chain([cli::page()]) {
            let mut names: Vec<&str> = page.options().map(|o| o.name).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{}", page.text());
            for o in page.options() {
                assert!(!o.about.is_empty() && !o.about.ends_with('.'), "{}", o.name);
            }
        }
    }

    #[test]
    fn the_list_shows_what_people_use() {
        let l = list();
        assert!(l.contains("ycsb") && l.contains("list") && !l.contains("raw-engine"));
    }
}
