//! The power-loss layer (crate `powerloss`) for programs that start a server with it: its bytes, the
//! variables that control it, and the directory that a power cut would have left.

use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The layer's shared library, which has to be written to a file and preloaded; `None` on systems other than
/// Linux with glibc, whose calls it replaces.
#[cfg(has_layer)]
pub const LAYER: Option<&[u8]> = Some(include_bytes!(env!("POWERLOSS_LAYER")));
/// The layer's shared library, which has to be written to a file and preloaded; `None` on systems other than
/// Linux with glibc, whose calls it replaces.
#[cfg(not(has_layer))]
pub const LAYER: Option<&[u8]> = None;

/// The layer's settings for a process; see the documentation of the crate `powerloss`.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The file with [`LAYER`]'s bytes.
    pub library: PathBuf,
    /// The directory that is watched.
    pub dir: PathBuf,
    /// The directory of the disk's image; `None` keeps none.
    pub shadow: Option<PathBuf>,
    /// Whether a sync of a file also makes its name durable, as on ext4.
    pub ordered: bool,
    /// The microseconds that each sync takes longer.
    pub sync_us: u64,
    /// The file with the number of bytes that may be written.
    pub budget: Option<PathBuf>,
    /// The file with the milliseconds by which the wall clock is ahead.
    pub clock: Option<PathBuf>,
}

impl Settings {
    /// Calls [`cut_power`] if there is an image.
    ///
    /// # Errors
    /// The errors of [`cut_power`].
    pub fn cut_power(&self) -> Result<()> {
        match &self.shadow {
            Some(shadow) => cut_power(shadow, &self.dir),
            None => Err(Error::other("no image of the disk is kept")),
        }
    }

    /// Lets `command` run with the layer.
    pub fn apply(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("POWERLOSS_DIR", &self.dir);
        if let Some(shadow) = &self.shadow {
            command
                .env("POWERLOSS_SHADOW", shadow)
                .env(
                    "POWERLOSS_DIRS",
                    if self.ordered { "ordered" } else { "strict" },
                )
                .env("POWERLOSS_SYNC_US", self.sync_us.to_string());
        }
        if let Some(budget) = &self.budget {
            command.env("POWERLOSS_BUDGET", budget);
        }
        if let Some(clock) = &self.clock {
            command.env("POWERLOSS_CLOCK", clock);
        }
    }
}

/// Turns the layer's image in `shadow` into the directory `target`, which must not exist and then has what
/// the power cut left. Both must be on one file system.
///
/// # Errors
/// If the layer was not active (there is no image), or a file could not be made.
pub fn materialise(shadow: &Path, target: &Path) -> Result<()> {
    let root = fs::read_to_string(shadow.join("root"))
        .map_err(|e| Error::new(e.kind(), format!("there is no image of the disk: {e}")))?;
    directory(shadow, root.trim(), target)
}

/// Cuts the power of a machine whose process has ended: `dir` then has what the disk had according to the
/// image in `shadow`. The next process begins a new image there.
///
/// # Errors
/// The errors of [`materialise`]; `dir` is unchanged then.
pub fn cut_power(shadow: &Path, dir: &Path) -> Result<()> {
    let left = dir.with_extension("left");
    materialise(shadow, &left)?;
    fs::remove_dir_all(dir)?;
    fs::rename(left, dir)?;
    fs::remove_dir_all(shadow)
}

fn directory(shadow: &Path, id: &str, target: &Path) -> Result<()> {
    let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", target.display()));
    fs::create_dir(target).map_err(named)?;
    // A directory that was never synced is empty.
    let entries = fs::read_to_string(shadow.join("dirs").join(id)).unwrap_or_default();
    for line in entries.lines() {
        let mut parts = line.splitn(3, ' ');
        let (kind, id, name) = (parts.next(), parts.next(), parts.next());
        let (Some(kind), Some(id), Some(name)) = (kind, id, name) else {
            return Err(Error::other(format!("image entry {line:?}")));
        };
        let path = target.join(name);
        let content = shadow.join("files").join(id);
        if kind == "d" {
            directory(shadow, id, &path)?;
        } else if content.exists() {
            fs::hard_link(content, &path).map_err(named)?;
        } else {
            fs::write(&path, b"").map_err(named)?;
        }
    }
    Ok(())
}
