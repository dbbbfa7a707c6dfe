//! The binary: picks the mode from the first argument, or from the name it was called by.
//!
//! | called as | does |
//! |---|---|
//! | `muniment serve …` | a server |
//! | `muniment bench …` | the lab |
//! | `mongod …` | a server, with MongoDB's flags |

mod allocator;
mod config;
mod daemon;
mod docs;
mod flags;
mod serve;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Bad options, as mongod's EXIT_BADOPTIONS.
const BAD_OPTIONS: u8 = 2;

const HELP: &str = "\
Muniment: a MongoDB-compatible document database with its own benchmark lab.

  muniment serve [--option …]   a server (muniment serve --help)
  muniment bench …              experiments against any MongoDB-compatible target
  muniment docs compatibility   the page of commands and operators, as Markdown
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
        Some("docs") => docs::main(rest.get(1).and_then(|p| p.to_str())),
        Some(m @ ("router" | "stat" | "top")) => later(m),
        Some("--version" | "-V") => {
            serve::print_version();
            ExitCode::SUCCESS
        }
        Some("--help" | "-h" | "help") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("muniment: there is no command '{other}'\n\n{HELP}");
            ExitCode::from(BAD_OPTIONS)
        }
        None => {
            eprint!("{HELP}");
            ExitCode::from(BAD_OPTIONS)
        }
    }
}

fn later(mode: &str) -> ExitCode {
    eprintln!("muniment: '{mode}' is not there yet");
    ExitCode::from(BAD_OPTIONS)
}
