//! The file layer of the crate `powerloss`: where it is, and the disk it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory of this build's binaries (`target/debug`, …).
pub(crate) fn build_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    let dir = exe.parent().expect("a directory").to_owned();
    if dir.ends_with("deps") {
        dir.parent().expect("a directory").to_owned()
    } else {
        dir
    }
}

/// Builds the crate `powerloss` once a process; cargo does nothing if it is fresh. Cargo does
/// not build a shared library for a test that cannot link it, so this asks for it.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(lib) = std::env::var_os("POWERLOSS_LIB") {
            let lib = PathBuf::from(lib);
            let probe = lib.with_file_name("powerloss-probe");
            return (lib, probe);
        }
        let target = build_dir().parent().expect("a directory").to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let out = Command::new(cargo)
            .args(["build", "--quiet", "--package", "powerloss", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env_remove("LD_PRELOAD")
            .output()
            .expect("cargo runs");
        assert!(
            out.status.success(),
            "cargo build --package powerloss failed: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let debug = target.join("debug");
        (debug.join("libpowerloss.so"), debug.join("powerloss-probe"))
    })
}

/// The layer's shared library, for `LD_PRELOAD`.
pub fn layer() -> &'static Path {
    &built().0
}

/// The layer's test program.
pub fn probe() -> &'static Path {
    &built().1
}

/// Turns the layer's image in `shadow` into the directory `target`, which must not exist: the
/// disk as the power cut left it.
pub fn materialise(shadow: &Path, target: &Path) {
    let root = fs::read_to_string(shadow.join("root")).expect("the layer was active");
    directory(shadow, root.trim(), target);
}

fn directory(shadow: &Path, id: &str, target: &Path) {
    fs::create_dir(target).unwrap_or_else(|e| panic!("{}: {e}", target.display()));
    // A directory that was never synced is empty.
    let entries = fs::read_to_string(shadow.join("dirs").join(id)).unwrap_or_default();
    for line in entries.lines() {
        let mut parts = line.splitn(3, ' ');
        let (kind, id, name) = (parts.next(), parts.next(), parts.next());
        let (Some(kind), Some(id), Some(name)) = (kind, id, name) else {
            panic!("image entry {line:?}");
        };
        let path = target.join(name);
        let content = shadow.join("files").join(id);
        if kind == "d" {
            directory(shadow, id, &path);
        } else if content.exists() {
            fs::hard_link(content, &path).unwrap();
        } else {
            fs::write(&path, b"").unwrap();
        }
    }
}
