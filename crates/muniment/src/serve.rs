//! `muniment serve`, and being called as `mongod`.

use crate::daemon::{self, Side};
use crate::flags::{ALL, Arg, Gathered};
use crate::{BAD_OPTIONS, config};
use lexopt::prelude::*;
use muniment_server::{MONGODB_VERSION, Server, VERSION, build_info};
use muniment_value::{Code, Error, JsonMode};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The network cannot be used, as mongod's EXIT_NET_ERROR.
const NET_ERROR: u8 = 48;
/// The data directory cannot be used, as mongod's EXIT_UNCAUGHT.
const UNCAUGHT: u8 = 100;

/// Runs a server until it is asked to end.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let as_mongod = called_as_mongod();
    let gathered = match gather(args, as_mongod) {
        Ok(Some(g)) => g,
        Ok(None) => return ExitCode::SUCCESS,
        Err(e) => return bad_options(&e),
    };
    let argv = std::env::args_os()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let (mut options, fork) = match gathered.finish(argv) {
        Ok(o) => o,
        Err(e) => return bad_options(&e),
    };
    options.handle_signals = true;
    let parent = if fork {
        match daemon::fork() {
            Ok(Side::Parent(code)) => return code,
            Ok(Side::Child(parent)) => Some(parent),
            Err(e) => {
                eprintln!("cannot fork: {e}");
                return ExitCode::FAILURE;
            }
        }
    } else {
        None
    };
    let server = match Server::start(options) {
        Ok(s) => s,
        Err(e) => {
            let code = exit_code(&e);
            eprintln!("muniment: {}", e.message());
            if let Some(p) = parent {
                p.failed(code, e.message());
            }
            return ExitCode::from(code);
        }
    };
    if let Some(p) = parent {
        p.started();
    }
    match server.wait() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("muniment: the last sync failed: {e}");
            ExitCode::FAILURE
        }
    }
}

fn called_as_mongod() -> bool {
    std::env::args_os()
        .next()
        .is_some_and(|a| Path::new(&a).file_name().is_some_and(|n| n == "mongod"))
}

fn exit_code(e: &Error) -> u8 {
    match e.code() {
        Code::BadValue | Code::InvalidOptions => BAD_OPTIONS,
        Code::SocketException | Code::HostNotFound | Code::HostUnreachable => NET_ERROR,
        _ => UNCAUGHT,
    }
}

fn bad_options(why: &str) -> ExitCode {
    eprintln!("Error parsing command line: {why}");
    eprintln!("try '--help' for more information");
    ExitCode::from(BAD_OPTIONS)
}

/// Options from file and flags; `None` when `--help` or `--version` was answered.
fn gather(args: Vec<OsString>, as_mongod: bool) -> Result<Option<Gathered>, String> {
    let mut given: Vec<(usize, String)> = Vec::new();
    let mut file = None;
    let mut verbosity = 0;
    let mut parser = lexopt::Parser::from_args(args);
    let text = |e: lexopt::Error| e.to_string();
    while let Some(arg) = parser.next().map_err(text)? {
        let name = match &arg {
            Long(name) => (*name).to_string(),
            Short('h') => "help".to_string(),
            Short('f') => "config".to_string(),
            Short('v') => {
                verbosity += 1;
                continue;
            }
            Value(v) => return Err(format!("unexpected argument '{}'", v.to_string_lossy())),
            Short(c) => return Err(format!("unrecognised option '-{c}'")),
        };
        match name.as_str() {
            "help" => {
                print_help(as_mongod);
                return Ok(None);
            }
            "version" => {
                print_version();
                return Ok(None);
            }
            _ => {}
        }
        let (i, o) = ALL
            .iter()
            .enumerate()
            .find(|(_, o)| o.flag == name)
            .ok_or_else(|| format!("unrecognised option '--{name}'"))?;
        let value = if o.arg == Arg::Flag {
            "true".to_string()
        } else {
            let v = parser.value().map_err(text)?;
            v.into_string()
                .map_err(|v| format!("--{name}: '{}' is not UTF-8", v.to_string_lossy()))?
        };
        if name == "config" {
            file = Some(value);
        } else {
            given.push((i, value));
        }
    }
    let mut g = Gathered::default();
    if as_mongod {
        g.server.dbpath = PathBuf::from("/data/db");
    }
    if let Some(path) = &file {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read the configuration file {path}: {e}"))?;
        for (key, value) in config::parse(&text).map_err(|e| format!("{path}: {e}"))? {
            g.apply_key(&key, &value)
                .map_err(|e| format!("{path}: {e}"))?;
        }
        g.note_config(path);
    }
    if verbosity > 0 {
        given.extend(
            ALL.iter()
                .position(|o| o.flag == "verbose")
                .map(|i| (i, verbosity.to_string())),
        );
    }
    for (i, value) in given {
        if let Some(o) = ALL.get(i) {
            g.apply_flag(o, &value)?;
        }
    }
    Ok(Some(g))
}

/// As `mongod --version` prints it: tools read the first line.
pub fn print_version() {
    println!("db version v{MONGODB_VERSION}");
    println!("muniment version v{VERSION}");
    println!(
        "Build Info: {}",
        build_info().as_doc().to_json(JsonMode::Relaxed)
    );
}

fn print_help(as_mongod: bool) {
    println!(
        "Usage: {} [options]\n\nOptions:",
        if as_mongod {
            "mongod"
        } else {
            "muniment serve"
        }
    );
    println!("  {:<34} show this", "--help");
    println!("  {:<34} show the version", "--version");
    for o in ALL.iter().filter(|o| !o.flag.is_empty()) {
        let arg = match o.arg {
            Arg::Flag => "",
            Arg::Text => " arg",
            Arg::Number => " number",
        };
        println!("  {:<34} {}", format!("--{}{arg}", o.flag), o.doc);
    }
}
