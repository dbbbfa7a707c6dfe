//! `muniment doctor`: finds the damage in a data directory, and repairs it.

use crate::BAD_OPTIONS;
use crate::command::Spec;
use muniment_options::{Group, HELP, Opt, Page};
use muniment_server::doctor;
use muniment_storage::Repaired;
use muniment_value::Code;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code for a data directory that cannot be used, which is mongod's EXIT_UNCAUGHT.
const UNCAUGHT: u8 = 100;

/// `muniment doctor`.
pub const COMMAND: Spec = Spec {
    name: "doctor",
    arguments: "DIR",
    about: "what is damaged in a data directory (muniment doctor --help)",
    page,
    below: Vec::new,
    run: main,
};

fn page() -> Page {
    Page {
        head: "\
Usage: muniment doctor DIR [--repair-catalog]

Lists what is damaged in a data directory that no server has open: collections and indexes whose
catalog entries cannot be read, or to which the log could not be applied. A server closes these and
serves everything else. Nothing is changed without:

"
        .into(),
        groups: vec![Group::untitled(&[REPAIR, HELP])],
        foot: "
The exit code is 0 if nothing is damaged (any more), 1 if something is or could not be put right, 2 for
bad arguments, and 100 if the directory cannot be used.
"
        .into(),
        words: true,
        files: true,
        ..Page::default()
    }
}

const REPAIR: Opt = Opt::flag(
    "repair-catalog",
    "put it right: an index is built anew, or dropped if its specification cannot be used; \
                 a collection keeps its documents, with the options that can be read, and its indexes \
                 are built anew; a validator that cannot be read goes. What is lost is told. Not for a \
                 member of a replica set of several, whose log is not its own: then it says what can be \
                 done",
);

/// Checks a directory, or repairs it.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let page = page();
    let (dir, repair) = match arguments(&page, args) {
        Ok(Some(found)) => found,
        Ok(None) => {
            print!("{}", page.text());
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("muniment doctor: {e}\n\n{}", page.text());
            return ExitCode::from(BAD_OPTIONS);
        }
    };
    let done = match repair {
        true => doctor::repair(&dir),
        false => Ok(Repaired::default()),
    };
    let mut failed = false;
    let found = done.and_then(|repaired| {
        repaired.done.iter().for_each(|line| println!("{line}"));
        let told = |line: &String| eprintln!("muniment doctor: {line}");
        repaired.failed.iter().for_each(told);
        failed = !repaired.failed.is_empty();
        doctor::examine(&dir)
    });
    match found {
        Ok(damages) if damages.is_empty() => {
            println!("nothing is damaged in {}", dir.display());
            match failed {
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            }
        }
        Ok(damages) => {
            damages.iter().for_each(|line| println!("{line}"));
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("muniment doctor: {}", e.message());
            ExitCode::from(match e.code() {
                Code::BadValue => BAD_OPTIONS,
                _ => UNCAUGHT,
            })
        }
    }
}

/// The directory, and whether to repair it; `None` if the help was asked for.
fn arguments(page: &Page, args: Vec<OsString>) -> Result<Option<(PathBuf, bool)>, String> {
    let given = page.parse(args).map_err(|e| e.to_string())?;
    if given.has("help") {
        return Ok(None);
    }
    match given.words() {
        [] => Err("the data directory is missing".to_string()),
        [dir] => Ok(Some((dir.into(), given.has("repair-catalog")))),
        [_, more, ..] => Err(format!("unexpected argument '{}'", more.to_string_lossy())),
    }
}
