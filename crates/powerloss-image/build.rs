//! Builds the layer (crate `powerloss`) with another cargo, so that its bytes can be part of a program: cargo
//! has no stable way to depend on the shared library of another crate. The inner cargo has its own target
//! directory, so it does not wait for the outer one's lock. Its only dependency (libc) is also one of the
//! programs with this crate in them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables in which the outer cargo tells its children about itself, and those that would instrument the
/// layer.
const NOT_FOR_THE_LAYER: &[&str] = &[
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MAKEFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CLIPPY_ARGS",
    "LD_PRELOAD",
    "MAKEFLAGS",
    "MFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "__CARGO_DEFAULT_LIB_METADATA",
];

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|e| format!("{name}: {e}"))
}

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_layer)");
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["../powerloss/Cargo.toml", "../powerloss/src"] {
        println!("cargo::rerun-if-changed={file}");
    }
    // The layer replaces glibc's calls in a dynamically linked program on Linux.
    let is = |name: &str, want: &str| std::env::var(name).is_ok_and(|v| v == want);
    if !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "gnu") {
        return;
    }
    match build() {
        Ok(library) => {
            println!("cargo::rustc-cfg=has_layer");
            println!("cargo::rustc-env=POWERLOSS_LAYER={}", library.display());
        }
        Err(why) => println!("cargo::error=the power-loss layer: {why}"),
    }
}

fn build() -> Result<PathBuf, String> {
    let out = PathBuf::from(variable("OUT_DIR")?).join("layer");
    let target = variable("TARGET")?;
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .args(["build", "--package", "powerloss", "--lib", "--release"])
        .args(["--locked", "--target", &target])
        .args(["--config", "profile.release.debug=false"])
        .args(["--config", "profile.release.strip=true"])
        .arg("--target-dir")
        .arg(&out)
        .current_dir(Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../powerloss"));
    for name in NOT_FOR_THE_LAYER {
        cargo.env_remove(name);
    }
    let done = cargo.output().map_err(|e| format!("starting cargo: {e}"))?;
    if !done.status.success() {
        return Err(format!(
            "cargo build --package powerloss failed: {}",
            String::from_utf8_lossy(&done.stderr).replace('\n', " | ")
        ));
    }
    Ok(out.join(target).join("release").join("libpowerloss.so"))
}
