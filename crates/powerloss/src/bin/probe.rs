//! The program with which the layer is tested. It does the file operations that its arguments name in its
//! working directory, and then kills itself as a crash would.
//!
//! `write F OFFSET TEXT`, `rawwrite F TEXT` (by system call, without libc), `append F TEXT`, `truncate F
//! SIZE`, `sync F` (also for a directory), `rename A B`, `rawrename A B` (by system call, without libc),
//! `remove F`, `mkdir D`, `map F`, `space` (prints the free space according to statvfs), `budget FILE N`.
//! `expect-full write …` requires ENOSPC.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Error, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    for step in args.join(" ").split(" ; ") {
        let words: Vec<&str> = step.split_whitespace().collect();
        let (full, words) = match words.split_first() {
            Some((&"expect-full", rest)) => (true, rest),
            _ => (false, words.as_slice()),
        };
        let done = run(words);
        let was_full = done
            .as_ref()
            .is_err_and(|e| e.raw_os_error() == Some(libc::ENOSPC));
        if full != was_full || (!full && done.is_err()) {
            eprintln!("{step}: {done:?}");
            std::process::exit(1);
        }
    }
    // SAFETY: the calls take plain numbers. They end this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

fn run(words: &[&str]) -> io::Result<()> {
    let number = |s: &str| s.parse::<u64>().map_err(Error::other);
    let edit = |f: &str| {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(f)
    };
    match *words {
        ["write", f, at, text] => edit(f)?.write_all_at(text.as_bytes(), number(at)?),
        ["rawwrite", f, text] => {
            let fd = edit(f)?;
            // SAFETY: the pointer and the length are those of `text`.
            let n = unsafe {
                libc::syscall(libc::SYS_write, fd.as_raw_fd(), text.as_ptr(), text.len())
            };
            assert_eq!(n as usize, text.len());
            Ok(())
        }
        ["append", f, text] => OpenOptions::new()
            .create(true)
            .append(true)
            .open(f)?
            .write_all(text.as_bytes()),
        ["overwrite", f, text] => fs::write(f, text),
        ["truncate", f, size] => edit(f)?.set_len(number(size)?),
        ["sync", f] => File::open(f)?.sync_all(),
        ["datasync", f] => File::open(f)?.sync_data(),
        ["rename", a, b] => fs::rename(a, b),
        ["rawrename", a, b] => {
            let (a, b) = (format!("{a}\0"), format!("{b}\0"));
            // SAFETY: both paths end with a zero.
            match unsafe { libc::syscall(libc::SYS_rename, a.as_ptr(), b.as_ptr()) } {
                0 => Ok(()),
                _ => Err(Error::last_os_error()),
            }
        }
        ["remove", f] => fs::remove_file(f),
        ["mkdir", d] => fs::create_dir(d),
        ["map", f] => {
            let fd = OpenOptions::new().read(true).write(true).open(f)?;
            let rw = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the mapping is new, and nothing reads it.
            unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    rw,
                    libc::MAP_SHARED,
                    fd.as_raw_fd(),
                    0,
                )
            };
            Ok(())
        }
        ["budget", f, n] => fs::write(f, n),
        ["space"] => {
            // SAFETY: zeros are valid, and the path ends with a zero.
            let free = unsafe {
                let mut st: libc::statvfs = std::mem::zeroed();
                libc::statvfs(c".".as_ptr(), &mut st);
                st.f_bavail * st.f_frsize
            };
            println!("{free}");
            Ok(())
        }
        _ => Err(Error::other("unknown step")),
    }
}
