//! Development tasks: `cargo xtask test`, `cargo xtask docs`, `cargo xtask tidy`.

mod clients;
mod docs;
mod run;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <task>

  test [--only STEP]... [--skip STEP]... [--long] [--list]
        Runs everything: tidy checks, unit tests, goldens, fault tests and the suites of the
        real clients, installing what those need below the target directory.
        --long adds the long fault and fuzz-corpus runs (sets MUNIMENT_LONG=1).
  docs [--check]
        Writes the generated pages below docs/ (or fails when they are stale).
  tidy
        Checks the house rules that no compiler checks.
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next();
    let rest: Vec<String> = args.collect();
    let result = match task.as_deref() {
        Some("test") => test::run(&rest),
        Some("docs") => docs::run(&rest),
        Some("tidy") => tidy::run(),
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("there is no task '{other}'\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
