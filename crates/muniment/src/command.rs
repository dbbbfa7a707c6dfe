//! What a command of the program is, and the running of those that only print.

use crate::BAD_OPTIONS;
use muniment_lab::stdout::give;
use muniment_options::{Command, Group, HELP, Misuse, Page};
use std::ffi::OsString;
use std::process::ExitCode;

/// One command.
pub struct Spec {
    /// The first word after `muniment`.
    pub name: &'static str,
    /// Its arguments, where it is listed.
    pub arguments: &'static str,
    /// What it does in one line, without a full stop.
    pub about: &'static str,
    /// Its page, and what it takes.
    pub page: fn() -> Page,
    /// The commands that may follow it.
    pub below: fn() -> Vec<Command>,
    /// Does it.
    pub run: fn(Vec<OsString>) -> ExitCode,
}

/// A command that prints something, and takes no options.
pub fn printed() -> Page {
    Page {
        groups: vec![Group::untitled(&[HELP])],
        words: true,
        ..Page::default()
    }
}

/// Runs such a command: prints its page, or what `text` makes of its words.
pub fn print(
    command: &Spec,
    args: &[OsString],
    text: impl FnOnce(&[&str]) -> Result<String, String>,
) -> ExitCode {
    let page = (command.page)();
    let text = page
        .parse(args.iter().cloned())
        .and_then(|given| match given.has("help") {
            true => Ok(Ok(page.text())),
            false => Ok(text(&given.text_words()?)),
        })
        .unwrap_or_else(|e: Misuse| Err(e.to_string()));
    let (why, code) = match text.map(|text| give(&text)) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(e)) => (e.to_string(), ExitCode::FAILURE),
        Err(why) => (why, ExitCode::from(BAD_OPTIONS)),
    };
    eprintln!("muniment {}: {why}", command.name);
    code
}

/// An argument as it is typed into a shell.
pub fn word(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./:,@%+".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_string(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}
