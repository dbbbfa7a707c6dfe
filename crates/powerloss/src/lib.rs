//! A file layer for tests, loaded with `LD_PRELOAD` (Linux): it keeps beside a directory the
//! image of what would be on the disk if the power went out now, and it plays a full disk and a clock
//! that is wrong.
//!
//! | variable | meaning |
//! |---|---|
//! | `POWERLOSS_DIR` | the directory that is watched, absolute |
//! | `POWERLOSS_SHADOW` | where the image is kept; without it only the budget works |
//! | `POWERLOSS_DIRS` | `strict` (default): a directory's entries are durable as of its own last sync. `ordered`: also as of the last sync of a file in it, as with ext4 |
//! | `POWERLOSS_SYNC_US` | microseconds that each sync takes longer |
//! | `POWERLOSS_IGNORE_SYNC` | `1`: syncs succeed and make nothing durable, as on a disk that lies |
//! | `POWERLOSS_BUDGET` | a file with a decimal number: the bytes that this process may write below the directory, from its start; beyond, `ENOSPC`. Up to three further numbers: the writes that may be made, the syncs that succeed before one fails with `EIO`, and a round, whose change begins both counts anew. Read at every call, so the test can change it |
//! | `POWERLOSS_CLOCK` | a file with a decimal number: by so many milliseconds the wall clock is ahead, or slow if it is negative. Read at every call; it works without a directory |
//!
//! The model is POSIX taken at its word. A file's content survives as of the file's last
//! `fsync` or `fdatasync`; a name survives as of the last `fsync` of its directory. A name
//! whose file was never synced survives as an empty file. A sync that was cut off leaves some of
//! the ranges it had to write.
//!
//! The image: `root` (the id of the top directory), `dirs/ID` (a directory's durable entries,
//! lines of kind `f` or `d`, id, name) and `files/ID` (a file's durable content). An id is inode
//! number and birth time. Directories are photographed when synced rather than tracked, so
//! renames and removals count even when they bypass libc, and a file of entries is replaced by
//! rename, so killing the process between any two instructions leaves an image that some power
//! cut could have left. `testkit` turns the image back into a directory.
//!
//! What is not modelled ends the process with a message instead of passing silently: writable
//! shared mappings and `O_SYNC` below the directory, and writes by raw system calls, which a
//! comparison of whole files finds now and then. Not seen at all: raw system calls that sync
//! (the engine and the standard library make none).

#![cfg(target_os = "linux")]

mod budget;
mod calls;
mod clock;
mod image;
mod object;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What the environment asks for.
struct Config {
    dir: PathBuf,
    shadow: Option<PathBuf>,
    ordered: bool,
    sync_delay: std::time::Duration,
    lying: bool,
}

/// The configuration, or `None` when the process is not watched.
fn config() -> Option<&'static Config> {
    static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
    let made = CONFIG.get_or_init(|| {
        // Without the canonical form, paths that /proc reports would not match.
        let dir = std::fs::canonicalize(std::env::var_os("POWERLOSS_DIR")?).ok()?;
        let us = std::env::var("POWERLOSS_SYNC_US").ok();
        let config = Config {
            dir,
            shadow: std::env::var_os("POWERLOSS_SHADOW").map(PathBuf::from),
            ordered: std::env::var_os("POWERLOSS_DIRS").is_some_and(|v| v == "ordered"),
            sync_delay: std::time::Duration::from_micros(
                us.and_then(|n| n.parse().ok()).unwrap_or(0),
            ),
            lying: std::env::var_os("POWERLOSS_IGNORE_SYNC").is_some_and(|v| v == "1"),
        };
        image::prepare(&config);
        Some(config)
    });
    made.as_ref()
}

/// The image begins before the program's first call, not with it.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        enter(config);
    }
    begin
};

/// Ends the process: the layer cannot go on telling the truth.
fn fatal(what: &str) -> ! {
    let line = format!("powerloss: {what}\n");
    // SAFETY: the pointer and the length are those of `line`.
    unsafe {
        libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len());
        libc::abort()
    }
}

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

/// Runs `f`, whose own file calls go straight to the kernel; `None` when called from there, or
/// while the thread ends.
fn enter<T>(f: impl FnOnce() -> T) -> Option<T> {
    let entered = INSIDE.try_with(|inside| !inside.replace(true));
    if entered != Ok(true) {
        return None;
    }
    // SAFETY: errno is the caller's to see; our own calls must not change it.
    let errno = unsafe { *libc::__errno_location() };
    let result = f();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    let _ = INSIDE.try_with(|inside| inside.set(false));
    Some(result)
}
