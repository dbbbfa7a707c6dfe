//! The file layer of the crate `powerloss`, and the program with which it is tested.

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

/// The layer's shared library in a file, for `LD_PRELOAD`.
pub fn layer() -> &'static Path {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let bytes = powerloss_image::LAYER.expect("the layer is for Linux with glibc");
        let file = build_dir().join("powerloss-layer.so");
        // The file is renamed into place, because another test process may have the old one loaded.
        let fresh = file.with_extension(std::process::id().to_string());
        fs::write(&fresh, bytes).unwrap();
        fs::rename(fresh, &file).unwrap();
        file
    })
}

/// The layer's test program. For a test, cargo does not build the programs of another crate, so this calls
/// cargo, which does nothing if the program is up to date.
pub fn probe() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = build_dir().parent().expect("a directory").to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let out = Command::new(cargo)
            .args(["build", "--quiet", "--package", "powerloss"])
            .args(["--bin", "powerloss-probe", "--target-dir"])
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
        target.join("debug").join("powerloss-probe")
    })
}

/// Does the same as [`powerloss_image::materialise`].
pub fn materialise(shadow: &Path, target: &Path) {
    powerloss_image::materialise(shadow, target).expect("an image of the disk");
}
