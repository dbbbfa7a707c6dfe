//! A file layer for tests, loaded with `LD_PRELOAD` (Linux). Next to a directory, it keeps an image of what
//! would be on the disk if the power went out now. It can also play a full disk and a wrong clock.
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
//! The model takes POSIX literally. The content of a file survives as of the file's last `fsync` or
//! `fdatasync`; a name survives as of the last `fsync` of its directory. A name whose file was never synced
//! survives as an empty file. A sync that was interrupted has written some of its ranges.
//!
//! The image: `root` (the id of the top directory), `dirs/ID` (a directory's durable entries, lines with kind
//! `f` or `d`, id, name) and `files/ID` (a file's durable content). An id is inode number and birth time.
//! Directories are recorded when they are synced, and not tracked, so renames and removals count even if they
//! bypass libc. A file of entries is replaced by a rename, so killing the process between any two
//! instructions leaves an image that some power cut could have left. `testkit` turns the image back into a
//! directory.
//!
//! Things that are not modelled end the process with a message, instead of passing silently: writable shared
//! mappings and `O_SYNC` below the directory, and writes by raw system calls, which an occasional comparison
//! of whole files detects. Raw system calls that sync are not noticed at all (the engine and the standard
//! library make none).

#![cfg(target_os = "linux")]

mod budget;
mod calls;
mod clock;
mod image;
mod object;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The settings from the environment.
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
        // Without the canonical form, the paths in /proc would not match.
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

/// The image begins before the program's first call, not with that call.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        enter(config);
    }
    begin
};

/// Ends the process, because the layer cannot keep a correct image any more.
fn fatal(what: &str) -> ! {
    let line = format!("powerloss: {what}\n");
    // SAFETY: the pointer and the length are those of `line`.
    unsafe {
        libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len());
        libc::abort()
    }
}

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

/// Runs `f`, whose own file calls go straight to the kernel. `None` if it is called from there, or while the
/// thread ends.
fn enter<T>(f: impl FnOnce() -> T) -> Option<T> {
    let entered = INSIDE.try_with(|inside| !inside.replace(true));
    if entered != Ok(true) {
        return None;
    }
    // SAFETY: errno belongs to this thread. It is restored, since the layer's own calls must not change it
    // for the caller.
    let errno = unsafe { *libc::__errno_location() };
    let result = f();
    // SAFETY: the same as above.
    unsafe { *libc::__errno_location() = errno };
    let _ = INSIDE.try_with(|inside| inside.set(false));
    Some(result)
}
