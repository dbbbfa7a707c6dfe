//! `--shutdown`: ends the server that runs on a data directory, and waits until it has ended.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the server may take to end.
const PATIENCE: Duration = Duration::from_secs(600);
/// The interval between two checks of its lock.
const LOOK: Duration = Duration::from_millis(20);

/// Ends the server that runs on this directory.
pub fn main(dir: &Path) -> ExitCode {
    match end(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// True while a server uses the directory.
fn is_locked(lock: &File) -> bool {
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => true,
        Ok(()) => {
            let _ = lock.unlock();
            false
        }
        Err(TryLockError::Error(_)) => false,
    }
}

fn end(dir: &Path) -> Result<(), String> {
    let none = || {
        format!(
            "There doesn't seem to be a server running with dbpath: {}",
            dir.display()
        )
    };
    let path = dir.join("muniment.lock");
    let lock = File::open(&path).map_err(|_| none())?;
    if !is_locked(&lock) {
        return Err(none());
    }
    // The file has the number of the process that holds the lock. If it were not locked, the number would be
    // that of a process that has ended.
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let pid = text.trim().parse::<libc::pid_t>().ok().filter(|n| *n > 0);
    let pid = pid.ok_or_else(|| format!("{} names no process", path.display()))?;
    println!("killing process with pid: {pid}");
    // SAFETY: the function takes plain numbers.
    if unsafe { libc::kill(pid, libc::SIGTERM) } != 0 {
        let e = std::io::Error::last_os_error();
        return Err(format!("cannot end process {pid}: {e}"));
    }
    let until = Instant::now() + PATIENCE;
    while is_locked(&lock) {
        if Instant::now() > until {
            return Err(format!("process {pid} has not ended after {PATIENCE:?}"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
