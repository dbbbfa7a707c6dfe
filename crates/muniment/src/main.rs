//! The binary: chooses the mode by its first argument, or by the name under which it was called.
//!
//! | called as | does |
//! |---|---|
//! | `muniment COMMAND …` | a row of [`commands::ALL`]: a server, the lab, the doctor, … |
//! | `mongod …` | a server, with MongoDB's flags |
//! | `mongos …` | a router, with MongoDB's flags |

mod allocator;
mod cert;
mod cluster;
mod command;
mod commands;
mod config;
mod daemon;
mod docs;
mod doctor;
mod effects;
mod flags;
mod gathered;
mod serve;
mod shutdown;
mod table;
mod table_tls;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The exit code for invalid options, which is mongod's EXIT_BADOPTIONS.
const BAD_OPTIONS: u8 = 2;

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
        return serve::router(rest);
    }
    let Some(mode) = rest.first().map(|m| m.to_string_lossy()) else {
        eprint!("{}", commands::overview());
        return ExitCode::from(BAD_OPTIONS);
    };
    let tail = rest.get(1..).unwrap_or_default();
    match mode.as_ref() {
        m @ ("stat" | "top") => later(m),
        "--version" | "-V" => {
            serve::print_version();
            ExitCode::SUCCESS
        }
        "--help" | "-h" => commands::help(tail),
        name => match commands::known(name) {
            Some(c) => (c.run)(tail.to_vec()),
            None => commands::no_command(name, tail),
        },
    }
}

fn later(mode: &str) -> ExitCode {
    eprintln!("muniment: '{mode}' is not there yet");
    ExitCode::from(BAD_OPTIONS)
}
