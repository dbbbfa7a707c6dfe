//! The binary: chooses the mode by its first argument, or by the name under which it was called.
//!
//! | called as | does |
//! |---|---|
//! | `muniment serve …` | a server |
//! | `muniment bench …` | the lab |
//! | `muniment doctor …` | a check of a data directory, and its repair |
//! | `mongod …` | a server, with MongoDB's flags |

mod allocator;
mod config;
mod daemon;
mod docs;
mod doctor;
mod effects;
mod flags;
mod serve;
mod shutdown;
mod table;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The exit code for invalid options, which is mongod's EXIT_BADOPTIONS.
const BAD_OPTIONS: u8 = 2;

const HELP: &str = "\
Muniment: a MongoDB-compatible document database with its own benchmark lab.

  muniment serve [--option …]   a server (muniment serve --help)
  muniment bench …              experiments against MongoDB-compatible servers
  muniment doctor DIR           what is damaged in a data directory (muniment doctor --help)
  muniment docs compatibility   the page of commands and operators, as Markdown
  muniment docs options         the page of the server's options
  muniment help COMMAND         the page of one of them, also 'help bench w1'
  muniment --version            the version
  mongod …                      called by this name: a server with MongoDB's flags
";

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    let name = Path::new(&program)
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    if name == "mongod" {
        return serve::main(rest);
    }
    if name == "mongos" {
        return later("mongos");
    }
    let mode = rest.first().map(|m| m.to_string_lossy().into_owned());
    let tail = || rest.get(1..).unwrap_or_default().to_vec();
    match mode.as_deref() {
        Some("serve") => serve::main(tail()),
        Some("bench") => muniment_lab::cli::run(tail()),
        Some("doctor") => doctor::main(tail()),
        Some("docs") => docs::main(rest.get(1).and_then(|p| p.to_str())),
        Some(m @ ("router" | "stat" | "top")) => later(m),
        Some("--version" | "-V") => {
            serve::print_version();
            ExitCode::SUCCESS
        }
        Some("--help" | "-h" | "help") => help(&tail()),
        Some(other) => no_command(other),
        None => {
            eprint!("{HELP}");
            ExitCode::from(BAD_OPTIONS)
        }
    }
}

/// The commands that have a help page.
const COMMANDS: [&str; 4] = ["serve", "bench", "doctor", "docs"];

/// `muniment help …`: the help page of a command, or of this program.
fn help(of: &[OsString]) -> ExitCode {
    let page = || vec![OsString::from("--help")];
    match of.first().and_then(|w| w.to_str()) {
        None => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some("serve" | "mongod") => serve::main(page()),
        Some("doctor") => doctor::main(page()),
        Some("docs") => docs::main(Some("--help")),
        Some("bench") => {
            let words = [OsString::from("help")].into_iter();
            muniment_lab::cli::run(words.chain(of.iter().skip(1).cloned()).collect())
        }
        Some(other) => no_command(other),
    }
}

fn no_command(name: &str) -> ExitCode {
    // The help page is not printed here, since its length would hide the answer.
    match muniment_options::near(name, &COMMANDS) {
        Some(near) => eprintln!(
            "muniment: there is no command '{name}': is '{near}' meant?\nTry 'muniment help'."
        ),
        None => eprintln!("muniment: there is no command '{name}'\n\n{HELP}"),
    }
    ExitCode::from(BAD_OPTIONS)
}

fn later(mode: &str) -> ExitCode {
    eprintln!("muniment: '{mode}' is not there yet");
    ExitCode::from(BAD_OPTIONS)
}
