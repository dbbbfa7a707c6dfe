//! `cargo xtask release`: the released binary, optimized with a profile of itself.
//!
//! A request runs through much code once. If the code is laid out by what runs, and in which order, it
//! touches a quarter fewer cache lines. So the release is built twice: once to count what runs, with the
//! lab's experiments as training, and once with these counts.
//!
//! The training consists of all experiments and all yardsticks: code that has not run is optimized for size,
//! so the training has to include everything that people do.

use crate::run::{cargo, check, command, output, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The arguments with which the counting build runs, and whether a missed target is allowed. The counting
/// makes everything slower, so yardsticks miss theirs.
const TRAINING: &[(&[&str], bool)] = &[
    (&["bench", "--preset", "smoke"], false),
    (&["bench", "run", "orders", "--preset", "smoke"], false),
    (
        &["bench", "run", "point-update", "--preset", "smoke"],
        false,
    ),
    (&["bench", "yardsticks", "--preset", "smoke"], true),
];

/// The name of the result, next to the plain release build.
const NAME: &str = "muniment-profiled";

/// Builds, trains, builds again, and prints the path of the binary.
pub fn run(args: &[String]) -> Result<(), String> {
    if let Some(other) = args.first() {
        return Err(format!("release does not know '{other}'"));
    }
    let began = Instant::now();
    let rustc = Rustc::ask()?;
    let profdata = rustc.profdata()?;
    let work = target_dir().join("release-profile");
    let counts = work.join("counts");
    fresh(&counts)?;

    println!("=== a build that counts");
    let counting = rustc.build(
        &work.join("counting"),
        &format!("-Cprofile-generate={}", counts.display()),
    )?;

    println!("=== training");
    for (args, may_miss) in TRAINING {
        let out = work.join("results");
        fresh(&out)?;
        let mut c = command(&counting, &work);
        // The processes of one build add their counts to four files.
        c.env("LLVM_PROFILE_FILE", counts.join("%4m.profraw"));
        c.args(*args).arg("--out").arg(&out);
        let ended = check(&mut c);
        // A run that has missed its target has written its results; one that has crashed has not.
        if !(*may_miss && out.join("results.json").is_file()) {
            ended?;
        }
    }
    let merged = work.join("merged.profdata");
    check(
        Command::new(&profdata)
            .args(["merge", "-o"])
            .arg(&merged)
            .arg(&counts),
    )?;

    println!("=== the build that uses the counts");
    let built = rustc.build(
        &work.join("using"),
        &format!("-Cprofile-use={}", merged.display()),
    )?;
    let to = target_dir().join("release");
    let copied = std::fs::create_dir_all(&to).and_then(|()| std::fs::copy(&built, to.join(NAME)));
    let bytes = copied.map_err(|e| format!("{}: {e}", to.display()))?;
    println!(
        "{}: {} MB, {} s",
        to.join(NAME).display(),
        bytes / 1_000_000,
        began.elapsed().as_secs()
    );
    Ok(())
}

/// The compiler: its directory and the machine that it compiles for.
struct Rustc {
    sysroot: PathBuf,
    host: String,
}

impl Rustc {
    fn ask() -> Result<Rustc, String> {
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let version = output(Command::new("rustc").arg("-vV"))?;
        let host = version.lines().find_map(|l| l.strip_prefix("host: "));
        Ok(Rustc {
            sysroot: PathBuf::from(sysroot.trim()),
            host: host.ok_or("rustc -vV names no host")?.to_owned(),
        })
    }

    /// The program that adds up the counts. It must be the compiler's own, because the format changes.
    fn profdata(&self) -> Result<PathBuf, String> {
        let tools = self.sysroot.join("lib/rustlib").join(&self.host);
        let path = tools.join("bin/llvm-profdata");
        if !path.is_file() {
            check(Command::new("rustup").args(["component", "add", "llvm-tools"]))?;
        }
        match path.is_file() {
            true => Ok(path),
            false => Err(format!(
                "{} is missing: it comes with the toolchain's component llvm-tools",
                path.display()
            )),
        }
    }

    /// A release build in a directory of its own. With an explicit target, build scripts and macros are built
    /// without the flag.
    fn build(&self, dir: &Path, flag: &str) -> Result<PathBuf, String> {
        let flags = match std::env::var("RUSTFLAGS") {
            Ok(given) => format!("{given} {flag}"),
            Err(_) => flag.to_owned(),
        };
        check(
            cargo()
                .args(["build", "--release", "--package", "muniment"])
                .args(["--target", &self.host])
                .arg("--target-dir")
                .arg(dir)
                .env("RUSTFLAGS", flags),
        )?;
        Ok(dir.join(&self.host).join("release").join("muniment"))
    }
}

/// Makes the directory, or empties it.
fn fresh(dir: &Path) -> Result<(), String> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}
