//! Development tasks: `cargo xtask test`, `conformance`, `drivers`, `docs`, `example`, `release`,
//! `tidy`.

mod clients;
mod conformance;
mod deny;
mod docs;
mod drivers;
mod example;
mod pool;
mod release;
mod report;
mod run;
mod secured;
mod server;
mod test;
mod tidy;
mod unified;
mod versions;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <task>

  test [--only STEP]... [--skip STEP]... [--jobs N] [--long] [--engine NAME] [--suite PATH]
       [--list]
        Runs everything: tidy checks, licences, links of the documentation, unit tests, goldens,
        fault tests and the suites of the real clients, installing what those need below the
        target directory. Twice as many test programs as there are cores run at a time, or --jobs N.
        --long adds the long fault and fuzz-corpus runs (sets MUNIMENT_LONG=1).
        --engine memory runs all that needs no disk on that storage engine.
        --suite PATH takes the unified specification tests from there (a checkout of
        mongodb/specifications) instead of a driver's package: step `unified`. Its runner
        does one test, too: cargo run -p unified -- --help
  conformance --suite PATH [--filter FOLDER]... [--update] [--causes] [--bin PATH]
              [--workers N] [--depth N] [--set | --sharded]
        Runs the public suite documentdb/functional-tests (a checkout outside the repository)
        against a fresh server, a release build if --bin names no other, and prints passes,
        failures and skips per folder. A test that is in tests/conformance/passing.txt and
        fails is a failure of the run; --update writes that file. --filter names a folder or
        file below the suite's tests; --causes groups the failures by the first line of cause.
        --set runs what needs a replica set, against a set of one (passing-set.txt). --sharded runs
        the same as without it, against a router before two shards (differing-sharded.txt).
  drivers --driver node|pymongo --suite PATH [--uri URI] [--only PATH]...
        Runs a driver's own integration tests (a checkout of its repository, outside of ours)
        against a set of one: some ten minutes each. What is known to fail stands with its reason
        in tests/unified/known-failures-DRIVER.txt. --only names files or folders of the suite.
        --uri takes a deployment that runs, such as a set of three, of which less is known.
        The Node driver's packages are installed into the checkout.
  docs [--check]
        Writes the generated pages below docs/ (or fails when they are stale), the page of
        the example report among them.
  example [--bin PATH | --page]
        Makes docs/example-report anew: measures with a release build (--bin: with this one),
        some five minutes, and takes the pictures with Chromium. --page makes page and
        pictures of what was measured before, for when the report changes.
  release
        Builds the fastest binary: a release build that counts, all experiments as its training,
        and a release build laid out by the counts. Half an hour on two cores.
  tidy [--lower]
        Checks the house rules that no compiler checks. What may break one with a number until it
        is mended stands in xtask/src/tidy/exceptions.txt; --lower takes that list down to what
        is true by now.
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next();
    let rest: Vec<String> = args.collect();
    let result = match task.as_deref() {
        Some("test") => test::run(&rest),
        Some("conformance") => conformance::run(&rest),
        Some("docs") => docs::run(&rest),
        Some("drivers") => drivers::run(&rest),
        Some("example") => example::run(&rest),
        Some("release") => release::run(&rest),
        Some("tidy") => tidy::run(&rest),
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
