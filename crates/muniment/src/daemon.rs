//! `--fork`: puts the process into the background before any thread starts. The parent waits until the child
//! tells it that it serves.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::ExitCode;

/// The child's end of the pipe, through which it tells the parent whether the start succeeded.
pub struct Parent(File);

/// The process that this is after the fork.
pub enum Side {
    /// The parent, which has to end with this code.
    Parent(ExitCode),
    /// The child.
    Child(Parent),
}

/// Forks. The parent prints what mongod prints and waits for the child.
///
/// # Errors
/// If the system cannot fork.
pub fn fork() -> io::Result<Side> {
    let mut fds = [0; 2];
    // SAFETY: the two descriptors are written into the array.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new, and nothing else owns them.
    let (mut read, write) = unsafe { (File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1])) };
    println!("about to fork child process, waiting until server is ready for connections.");
    io::stdout().flush()?;
    // SAFETY: no other thread runs yet.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(read);
            // SAFETY: this is a plain call that concerns only this process.
            unsafe { libc::setsid() };
            let null = File::options().read(true).write(true).open("/dev/null")?;
            for fd in 0..3 {
                // SAFETY: both descriptors are open.
                unsafe { libc::dup2(null.as_raw_fd(), fd) };
            }
            Ok(Side::Child(Parent(write)))
        }
        pid => {
            drop(write);
            println!("forked process: {pid}");
            let mut said = String::new();
            read.read_to_string(&mut said)?;
            if said == "ok" {
                println!("child process started successfully, parent exiting");
                return Ok(Side::Parent(ExitCode::SUCCESS));
            }
            let (code, why) = said
                .split_once(' ')
                .unwrap_or(("1", "it ended without a word"));
            println!("ERROR: child process failed, exited with {code}");
            println!("{why}");
            println!(
                "To see additional information in this output, start without the \"--fork\" option."
            );
            Ok(Side::Parent(ExitCode::from(code.parse().unwrap_or(1))))
        }
    }
}

impl Parent {
    /// Tells the parent that the server answers.
    pub fn started(mut self) {
        let _ = self.0.write_all(b"ok");
    }

    /// Tells the parent that the server does not start.
    pub fn failed(mut self, code: u8, why: &str) {
        let _ = write!(self.0, "{code} {why}");
    }
}
