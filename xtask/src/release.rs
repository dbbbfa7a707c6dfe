//! `cargo xtask release`: the binary that is given to people, optimised with a profile of itself.
//!
//! A request runs through much code, once. Laid out by what runs, and in what order, it touches a
//! quarter fewer cache lines. So the release build is made twice: one that counts what runs, with
//! the lab's experiments as its training, and one that uses the counts.
//!
//! The training is all experiments and all yardsticks: what never ran is taken for cold and made
//! small, so that what people do must be among it.

use crate::run::{cargo, check, command, output, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What the counting build runs: arguments, and whether a line that misses its target may pass. The
/// counting itself makes everything slower, so that yardsticks fail.
const TRAINING: &[(&[&str], bool)] = &[
    (&["bench", "--preset", "smoke"], false),
    (&["bench", "run", "orders", "--preset", "smoke"], false),
    (
        &["bench", "run", "point-update", "--preset", "smoke"],
        false,
    ),
    (&["bench", "yardsticks", "--preset", "smoke"], true),
];

/// What the result is called, beside the plain release build.
const NAME: &str = "muniment-profiled";

/// Builds, trains, builds again and says where the binary is.
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
        // Processes of one build add to four files together.
        c.env("LLVM_PROFILE_FILE", counts.join("%4m.profraw"));
        c.args(*args).arg("--out").arg(&out);
        let ended = check(&mut c);
        // What missed its target has written its results; what crashed has not.
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

/// The compiler: its own directory and the machine it compiles for.
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

    /// The program that adds counts up. It must be the compiler's own: the format changes.
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

    /// A release build in a directory of its own. With a target named, build scripts and macros
    /// are built without the flag.
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

/// The directory, empty.
fn fresh(dir: &Path) -> Result<(), String> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}
