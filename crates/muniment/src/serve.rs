//! `muniment serve`, and the program when it is called as `mongod`.

use crate::command::Spec;
use crate::daemon::{self, Side};
use crate::flags::{named, page};
use crate::gathered::{Arg, Gathered, Mode};
use crate::{BAD_OPTIONS, config, doctor, shutdown};
use muniment_options::{Misuse, Page};
use muniment_server::{
    ClusterRole, MONGODB_VERSION, MakeDbPath, Server, ServerOptions, VERSION, build_info,
};
use muniment_value::{Code, Error, JsonMode};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code for a network that cannot be used, which is mongod's EXIT_NET_ERROR.
const NET_ERROR: u8 = 48;
/// The rights to the server's files that other users do not get, as with mongod, because the files contain
/// the data.
const OTHERS: libc::mode_t = 0o077;
/// The exit code for a data directory that cannot be used, which is mongod's EXIT_UNCAUGHT.
const UNCAUGHT: u8 = 100;

/// `muniment serve`.
pub const COMMAND: Spec = Spec {
    name: "serve",
    arguments: "[--option …]",
    about: "a server (muniment serve --help)",
    page: || Page {
        head: "Runs a server.\n\nUsage: muniment serve [options]\n\n".into(),
        ..page()
    },
    below: Vec::new,
    run: main,
};

/// `muniment router`.
pub const ROUTER: Spec = Spec {
    name: "router",
    arguments: "--configdb SET …",
    about: "a router of a cluster of shards (muniment router --help)",
    page: || Page {
        head: "Runs a router of a cluster of shards.\n\nUsage: muniment router --configdb \
               SET/HOST:PORT,… [options]\n\n"
            .into(),
        ..page()
    },
    below: Vec::new,
    run: router,
};

/// Runs a router until it is asked to end.
pub fn router(args: Vec<OsString>) -> ExitCode {
    run(args, true)
}

/// Runs a server until it is asked to end.
pub fn main(args: Vec<OsString>) -> ExitCode {
    run(args, false)
}

fn run(args: Vec<OsString>, as_router: bool) -> ExitCode {
    ignore_signals_of_the_log();
    let as_mongod = called_as_mongod();
    let gathered = match gather(args, as_mongod) {
        Ok(Some(g)) => g,
        Ok(None) => return ExitCode::SUCCESS,
        Err(e) => return bad_options(&e),
    };
    match gathered.mode {
        Mode::Serve => {}
        Mode::Shutdown => return shutdown::main(&gathered.server.dbpath),
        // On a new machine there is nothing to repair.
        Mode::Repair if is_empty(&gathered.server.dbpath) => return ExitCode::SUCCESS,
        Mode::Repair => {
            let dir = gathered.server.dbpath.into_os_string();
            return doctor::main(vec![dir, "--repair-catalog".into()]);
        }
    }
    let argv = std::env::args_os()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let (mut options, fork) = match gathered.finish(argv) {
        Ok(o) => o,
        Err(e) => return bad_options(&e),
    };
    options.handle_signals = true;
    let scratch = match scratch_of_router(&mut options, as_router) {
        Ok(scratch) => scratch,
        Err(why) => return bad_options(why),
    };
    keep_files_from_others(&options);
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
    let ended = server.wait();
    if let Some(scratch) = scratch {
        let _ = std::fs::remove_dir_all(scratch);
    }
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("muniment: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Sets the mask of rights, unless the parameter honorSystemUmask asks for that of the system.
fn keep_files_from_others(options: &ServerOptions) {
    let honours = ("honorSystemUmask".to_string(), "true".to_string());
    if !options.parameters.contains(&honours) {
        // SAFETY: the function takes and returns plain numbers.
        unsafe { libc::umask(libc::umask(0) | OTHERS) };
    }
}

/// Gives a router a directory of its own: it keeps no data there, only what a large sort does not keep in memory.
/// Returns the directory, which is to be removed at the end.
fn scratch_of_router(
    options: &mut ServerOptions,
    as_router: bool,
) -> Result<Option<PathBuf>, &'static str> {
    match (matches!(options.role, ClusterRole::Router(_)), as_router) {
        (true, true) => {}
        (false, false) => return Ok(None),
        (false, true) => return Err("a router needs --configdb setName/host:port,…"),
        (true, false) => {
            return Err("--configdb is an option of a router: muniment router, or mongos");
        }
    }
    // A name that nobody else on this machine can know before.
    let id: String = muniment_value::new_object_id()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let name = format!("muniment-router-{id}");
    options.dbpath = std::env::temp_dir().join(name);
    options.make_dbpath = MakeDbPath::Whole;
    Ok(Some(options.dbpath.clone()))
}

/// Ignores the signals that rotate the log or report on threads, so that they do not end a process that is
/// just starting. The server handles them once it has a log.
fn ignore_signals_of_the_log() {
    // SAFETY: no handler is installed.
    unsafe {
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
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

/// The options from file and flags; `None` if `--help` or `--version` was answered.
fn gather(args: Vec<OsString>, as_mongod: bool) -> Result<Option<Gathered>, String> {
    let given = page().parse(args).map_err(in_mongods_words)?;
    match given
        .options()
        .find(|(name, _)| ["help", "version"].contains(name))
    {
        Some(("help", _)) => {
            print_help(as_mongod);
            return Ok(None);
        }
        Some(_) => {
            print_version();
            return Ok(None);
        }
        None => {}
    }
    let mut g = Gathered {
        stays: std::env::var("MONGODB_CONFIG_OVERRIDE_NOFORK").is_ok_and(|v| v == "1"),
        ..Gathered::default()
    };
    g.server.make_dbpath = MakeDbPath::LastComponent;
    if as_mongod {
        g.server.dbpath = PathBuf::from("/data/db");
        g.server.make_dbpath = MakeDbPath::Never;
    }
    if let Some(path) = given.text("config") {
        let bytes = std::fs::read(path)
            .map_err(|e| format!("cannot read the configuration file {path}: {e}"))?;
        // Old comments may have another encoding.
        let text = String::from_utf8_lossy(&bytes);
        let parsed = config::parse(&text).map_err(|e| format!("{path}: {e}"))?;
        g.apply_file(parsed).map_err(|e| format!("{path}: {e}"))?;
        g.note_config(path);
    }
    let flags = given.options().filter(|(name, _)| *name != "config");
    for (o, value) in flags.filter_map(|(name, value)| Some((named(name)?, value))) {
        let value = match o.arg {
            Arg::Flag => "true",
            _ => value,
        };
        g.apply_flag(o, value)?;
    }
    Ok(Some(g))
}

/// The error in a command line, in mongod's words.
fn in_mongods_words(e: Misuse) -> String {
    match e {
        Misuse::Unknown(name, None) => format!("unrecognised option '{name}'"),
        Misuse::Unknown(name, Some(near)) => {
            format!("unrecognised option '{name}': is '{near}' meant?")
        }
        Misuse::Twice(name) => format!("Multiple occurrences of option '{name}'"),
        Misuse::NoValue(name) => format!("the required argument for option '{name}' is missing"),
        other => other.to_string(),
    }
}

/// Prints the version in the form of `mongod --version`, of which tools read the first line.
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
    for o in page().options() {
        print!("{}", o.line(34));
    }
}
