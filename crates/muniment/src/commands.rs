//! The commands of the program, a row each: what `muniment help` lists, what a wrong word is compared
//! with, and from what completions and the manual page are made.

use crate::command::{Spec, print, printed, word};
use crate::flags;
use crate::{BAD_OPTIONS, cert, cluster, docs, doctor, serve};
use muniment_lab::stdout::say;
use muniment_options::{Command, Page, near};
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

/// All of them, in the order in which they are listed.
pub const ALL: &[&Spec] = &[
    &serve::COMMAND,
    &serve::ROUTER,
    &cluster::COMMAND,
    &BENCH,
    &doctor::COMMAND,
    &cert::COMMAND,
    &docs::COMMAND,
    &COMPLETIONS,
    &MAN,
    &HELP_OF,
];

const BENCH: Spec = Spec {
    name: "bench",
    arguments: "…",
    about: "experiments against MongoDB-compatible servers",
    page: muniment_lab::cli::page,
    below: muniment_lab::commands::below,
    run: muniment_lab::cli::run,
};

const COMPLETIONS: Spec = Spec {
    name: "completions",
    arguments: "SHELL",
    about: "completions for bash, fish or zsh",
    page: || Page {
        head: "\
Prints completions for a shell.

Usage: muniment completions bash|fish|zsh

  bash   . <(muniment completions bash)            in ~/.bashrc
  fish   muniment completions fish | source        in ~/.config/fish/config.fish
  zsh    source <(muniment completions zsh)        in ~/.zshrc, after compinit

"
        .into(),
        offers: SHELLS.iter().map(|s| s.0).collect(),
        ..printed()
    },
    below: Vec::new,
    run: |args| {
        print(&COMPLETIONS, &args, |words| {
            let shell = SHELLS.iter().find(|s| [s.0] == words);
            shell.map(|s| (s.1)(&program())).ok_or_else(|| {
                let all: Vec<&str> = SHELLS.iter().map(|s| s.0).collect();
                format!("the shells are: {}", all.join(", "))
            })
        })
    },
};

type Script = fn(&Command) -> String;

/// The shells, and what makes the completions of each.
const SHELLS: &[(&str, Script)] = &[
    ("bash", muniment_options::bash),
    ("fish", muniment_options::fish),
    ("zsh", muniment_options::zsh),
];

const MAN: Spec = Spec {
    name: "man",
    arguments: "",
    about: "the manual page",
    page: || Page {
        head: "\
Prints the manual page, for man(1).

Usage: muniment man > /usr/local/share/man/man1/muniment.1

"
        .into(),
        ..printed()
    },
    below: Vec::new,
    run: |args| {
        print(&MAN, &args, |words| match words {
            [] => Ok(muniment_options::man(&program(), muniment_server::VERSION)),
            [word, ..] => Err(format!("unexpected argument '{word}'")),
        })
    },
};

const HELP_OF: Spec = Spec {
    name: "help",
    arguments: "COMMAND",
    about: "the page of one of them, also 'help bench w1'",
    page: || Page {
        head: "Prints the page of a command.\n\nUsage: muniment help [COMMAND]\n\n".into(),
        offers: ALL.iter().map(|c| c.name).collect(),
        ..printed()
    },
    below: Vec::new,
    run: |of| help(&of),
};

/// The command of this name.
pub fn known(name: &str) -> Option<&'static Spec> {
    ALL.iter().copied().find(|c| c.name == name)
}

/// The program with all its commands.
pub fn program() -> Command {
    let below = ALL.iter().map(|c| Command {
        name: c.name,
        about: c.about,
        page: (c.page)(),
        below: (c.below)(),
    });
    Command {
        name: "muniment",
        about: ABOUT,
        page: Page {
            head: listed(),
            ..Page::default()
        },
        below: below.collect(),
    }
}

const ABOUT: &str = "a MongoDB-compatible document database with its own benchmark lab";

/// A line for each command.
fn listed() -> String {
    let mut out = String::new();
    let mut line = |form: &str, about: &str| {
        let _ = writeln!(out, "  {form:<29} {about}");
    };
    for c in ALL {
        let form = format!("muniment {} {}", c.name, c.arguments);
        line(form.trim_end(), c.about);
    }
    line("muniment --version", "the version");
    line(
        "mongod …",
        "called by this name: a server with MongoDB's flags",
    );
    line(
        "mongos …",
        "called by this name: a router with MongoDB's flags",
    );
    out
}

/// What `muniment help` prints.
pub fn overview() -> String {
    format!("Muniment: {ABOUT}.\n\n{}", listed())
}

/// `muniment help …`: the page of a command, or this program's.
pub fn help(of: &[OsString]) -> ExitCode {
    let page = || vec![OsString::from("--help")];
    match of.first().and_then(|w| w.to_str()) {
        None | Some("help" | "--help" | "-h") => {
            say(&overview());
            ExitCode::SUCCESS
        }
        Some("mongod") => serve::main(page()),
        Some("bench") => {
            let words = [OsString::from("help")].into_iter();
            muniment_lab::cli::run(words.chain(of.iter().skip(1).cloned()).collect())
        }
        Some(name) => match known(name) {
            Some(c) => (c.run)(page()),
            None => no_command(name, &[]),
        },
    }
}

/// Says that there is no such command, and what may have been meant by it and what came after it.
pub fn no_command(name: &str, rest: &[OsString]) -> ExitCode {
    eprintln!(
        "muniment: there is no command '{name}'{}",
        meant(name, rest)
    );
    ExitCode::from(BAD_OPTIONS)
}

fn meant(name: &str, rest: &[OsString]) -> String {
    if flags::page().names(name) {
        let rest = rest.iter().map(|a| a.to_string_lossy());
        let line: Vec<String> = std::iter::once(name.into())
            .chain(rest)
            .map(|a| word(&a))
            .collect();
        return format!(
            ", which is an option of a server. To start one:\n\n  muniment serve {}",
            line.join(" ")
        );
    }
    // What is longer than the list of commands hides the answer.
    let names: Vec<&str> = ALL.iter().map(|c| c.name).collect();
    match near(name, &names) {
        Some(near) => format!(": is '{near}' meant?\nTry 'muniment help'."),
        None => format!("\n\n{}", overview()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::io::Write as _;
    use std::process::{Command as Process, Stdio};

    /// What bash offers after a line, whose last word is being typed.
    fn offered(line: &[&str]) -> Vec<String> {
        let mut words = String::new();
        for w in line {
            let _ = write!(words, " {}", word(w));
        }
        let script = format!(
            "{}\nCOMP_WORDS=({words})\nCOMP_CWORD={}\n_muniment\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            muniment_options::bash(&program()),
            line.len() - 1
        );
        let out = Process::new("bash").args(["-c", &script]).output().unwrap();
        assert!(
            out.status.success() && out.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines()
            .filter(|l| !l.is_empty())
            .map(String::from)
            .collect()
    }

    #[test]
    fn bash_offers_what_the_tables_have() {
        for (line, wanted) in [
            (&["muniment", "ser"][..], &["serve"][..]),
            (&["muniment", "serve", "--db"], &["--dbpath"]),
            (
                &["muniment", "serve", "--port", "1", "--dbp"],
                &["--dbpath"],
            ),
            (&["muniment", "serve", "--port", ""], &[]),
            (&["muniment", "serve", "--port", "="], &[]),
            (&["muniment", "serve", "-logRotate", "ren"], &["rename"]),
            (
                &["muniment", "serve", "--logRotate", "=", "re"],
                &["rename", "reopen"],
            ),
            (
                &["muniment", "serve", "--dbpath", "Cargo.t"],
                &["Cargo.toml"],
            ),
            (&["muniment", "doctor", "Cargo.t"], &["Cargo.toml"]),
            (&["muniment", "bench", "w4"], &["w4a", "w4b", "w4"]),
            (&["muniment", "bench", "comp"], &["compare"]),
            (&["muniment", "bench", "w1", "--preset", "sm"], &["smoke"]),
            (&["muniment", "bench", "audit", "--roun"], &["--rounds"]),
            (&["muniment", "bench", "ycsb", "-thr"], &["-threads"]),
            // After an experiment no command follows.
            (&["muniment", "bench", "w1", "audit", "--fau"], &[]),
            (
                &["muniment", "docs", ""],
                &["compatibility", "options", "parameters"],
            ),
            (&["muniment", "help", "doc"], &["doctor", "docs"]),
        ] {
            assert_eq!(offered(line), wanted, "{line:?}");
        }
        assert!(offered(&["muniment", "serve", ""]).contains(&"--replSet".to_string()));
    }

    #[test]
    fn every_option_and_command_is_in_every_script() {
        let program = program();
        let fish = muniment_options::fish(&program);
        for (script, quote) in [
            (muniment_options::bash(&program), ""),
            (muniment_options::zsh(&program), "'"),
        ] {
            for (at, command) in program.all() {
                assert!(script.contains(&format!("'{at}'")), "{at}");
                for o in command.page.options() {
                    let name = format!("{quote}{}", o.shown());
                    assert!(script.contains(&name), "{name}");
                }
            }
        }
        assert!(fish.contains("-n '__muniment_at muniment serve' -l dbpath -r -F -d 'directory"));
        assert!(fish.contains("-n '__muniment_at muniment bench' -a audit -d 'durability"));
        assert!(fish.contains(r"(YAML, mongod\'s names)"));
    }

    #[test]
    fn the_manual_page_is_complete_and_formats_without_warnings() {
        let page = muniment_options::man(&program(), "1");
        assert!(page.is_ascii());
        for (at, command) in program().all().iter().skip(1) {
            assert!(
                page.contains(&format!(".SH \"{}\"", at.to_uppercase())),
                "{at}"
            );
            for o in command.page.options() {
                let name = format!("\\fB{}\\fR", o.shown().replace('-', "\\-"));
                assert!(page.contains(&name), "{name}");
            }
        }
        let groff = Process::new("groff")
            .args(["-man", "-Tutf8", "-ww"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        // Not every machine has it.
        let Ok(mut groff) = groff else { return };
        groff
            .stdin
            .take()
            .unwrap()
            .write_all(page.as_bytes())
            .unwrap();
        let out = groff.wait_with_output().unwrap();
        let warnings = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && warnings.is_empty(), "{warnings}");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(text.contains("directory for the data"), "{text}");
    }

    #[test]
    fn an_option_without_its_command_is_shown_with_it() {
        let args: Vec<OsString> = ["a b", "--port", "1"].map(OsString::from).into();
        let said = meant("--dbpath", &args);
        assert!(
            said.ends_with("\n\n  muniment serve --dbpath 'a b' --port 1"),
            "{said}"
        );
        for option in ["--dbpath=x", "-dbpath", "-f", "-vv"] {
            assert!(meant(option, &[]).contains("muniment serve"), "{option}");
        }
        assert!(meant("--uri", &[]).contains("muniment bench"));
        assert!(meant("servr", &[]).starts_with(": is 'serve' meant?"));
    }
}
