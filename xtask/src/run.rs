//! Running other programs, and the paths of files and directories.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Cargo's target directory.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::path::absolute(dir).unwrap_or_else(|_| root().join("target")),
        None => root().join("target"),
    }
}

/// The server binary that `cargo build` makes.
pub fn server_binary() -> PathBuf {
    target_dir().join("debug").join("muniment")
}

/// True in CI, where a missing toolchain is a failure and not skipped.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// Runs a command with inherited output. The error has the command and how it ended.
pub fn check(command: &mut Command) -> Result<(), String> {
    let shown = show(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|e| format!("cannot run {shown}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{shown}: {status}"))
    }
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let out = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot run {shown}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{shown}: {}", out.status));
    }
    String::from_utf8(out.stdout).map_err(|_| format!("{shown}: output is not UTF-8"))
}

fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    let line = words.join(" ");
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The path of a program on the PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Whether a program is on the PATH.
pub fn have(program: &str) -> bool {
    find(program).is_some()
}

/// The cargo that runs this program.
pub fn cargo() -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.current_dir(root());
    c
}

/// A command in a directory.
pub fn command(program: impl AsRef<OsStr>, dir: &Path) -> Command {
    let mut c = Command::new(program);
    c.current_dir(dir);
    c
}
