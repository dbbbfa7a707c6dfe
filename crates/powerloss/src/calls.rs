//! The replaced calls of the C library. Each makes its system call itself and notes the change; calls that
//! only change names need no replacement, see the documentation of the crate.
//!
//! # Safety
//! All functions here have the contracts of the C functions with the same names.

#![allow(clippy::missing_safety_doc, missing_docs)]

use crate::object::{self, Object, lock};
use crate::{budget, config, enter, fatal, image};
use libc::{c_char, c_int, c_long, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t, syscall};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

fn set_errno(n: c_int) {
    // SAFETY: the location belongs to this thread.
    unsafe { *libc::__errno_location() = n };
}

/// Makes a write of up to `wanted` bytes by `call`, which is told how many it may write, and notes the range
/// to which it went according to `at`.
fn writing(
    o: &Object,
    wanted: u64,
    call: impl FnOnce(u64) -> c_long,
    at: impl FnOnce(u64) -> u64,
) -> ssize_t {
    let granted = enter(|| budget::take(wanted)).unwrap_or(wanted);
    if granted == 0 && wanted > 0 {
        set_errno(libc::ENOSPC);
        return -1;
    }
    // The lock is held during the call, so that the position that is read afterwards belongs to this write.
    let mut unsynced = lock(&o.unsynced);
    let n = call(granted);
    let written = u64::try_from(n).unwrap_or(0);
    if written > 0 {
        let start = at(written);
        unsynced.write(start, start + written);
    }
    drop(unsynced);
    if written < granted {
        enter(|| budget::give_back(granted - written));
    }
    n as ssize_t
}

/// The beginning of a write of `n` bytes that has just moved the position of `fd`.
fn behind(fd: c_int, n: u64) -> u64 {
    // SAFETY: the call takes plain numbers.
    let end = unsafe { syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) };
    u64::try_from(end).unwrap_or(0).saturating_sub(n)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t {
    let call = |n: u64| unsafe { syscall(libc::SYS_write, fd, buf, n) };
    match object::of(fd) {
        None => call(n as u64) as ssize_t,
        Some(o) => writing(&o, n as u64, call, |n| behind(fd, n)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, buf: *const c_void, n: size_t, at: off_t) -> ssize_t {
    let call = |n: u64| unsafe { syscall(libc::SYS_pwrite64, fd, buf, n, at) };
    match object::of(fd) {
        None => call(n as u64) as ssize_t,
        Some(o) => writing(&o, n as u64, call, |_| at as u64),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, buf: *const c_void, n: size_t, at: off_t) -> ssize_t {
    unsafe { pwrite64(fd, buf, n, at) }
}

/// The parts of a vectored write, and the sum of their bytes.
unsafe fn parts<'a>(iov: *const iovec, count: c_int) -> (&'a [iovec], u64) {
    let n = usize::try_from(count).unwrap_or(0);
    if iov.is_null() {
        return (&[], 0);
    }
    let v = unsafe { std::slice::from_raw_parts(iov, n) };
    (v, v.iter().map(|p| p.iov_len as u64).sum())
}

/// The beginning of a vectored write that `granted` bytes allow: whole parts, or a piece of the first one.
/// Callers have to expect a short write anyway.
fn cut(v: &[iovec], granted: u64) -> Vec<iovec> {
    let mut left = granted;
    let mut cut = Vec::new();
    for p in v {
        let n = (p.iov_len as u64).min(left);
        cut.push(iovec {
            iov_base: p.iov_base,
            iov_len: n as usize,
        });
        left -= n;
        if left == 0 {
            break;
        }
    }
    cut
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    match object::of(fd) {
        None => unsafe { syscall(libc::SYS_writev, fd, iov, count) as ssize_t },
        Some(o) => {
            let (v, total) = unsafe { parts(iov, count) };
            let call = |granted: u64| {
                let v = cut(v, granted);
                unsafe { syscall(libc::SYS_writev, fd, v.as_ptr(), v.len()) }
            };
            writing(&o, total, call, |n| behind(fd, n))
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    match object::of(fd) {
        None => unsafe { syscall(libc::SYS_pwritev, fd, iov, count, at, 0) as ssize_t },
        Some(o) => {
            let (v, total) = unsafe { parts(iov, count) };
            let call = |granted: u64| {
                let v = cut(v, granted);
                unsafe { syscall(libc::SYS_pwritev, fd, v.as_ptr(), v.len(), at, 0) }
            };
            writing(&o, total, call, |_| at as u64)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t {
    unsafe { pwritev64(fd, iov, count, at) }
}

fn truncated(o: &Object, size: off_t) {
    lock(&o.unsynced).truncate(size as u64);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, size: off_t) -> c_int {
    let n = unsafe { syscall(libc::SYS_ftruncate, fd, size) };
    if n == 0
        && let Some(o) = object::of(fd)
    {
        truncated(&o, size);
    }
    n as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(fd: c_int, size: off_t) -> c_int {
    unsafe { ftruncate64(fd, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    let call = || unsafe { syscall(libc::SYS_fallocate, fd, mode, at, len) as c_int };
    let Some(o) = object::of(fd) else {
        return call();
    };
    let wanted = u64::try_from(len).unwrap_or(0);
    if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
        // This frees room, and changes bytes as a write of zeros does.
        let mut unsynced = lock(&o.unsynced);
        let n = call();
        if n == 0 {
            unsynced.write(at as u64, at as u64 + wanted);
        }
        return n;
    }
    let granted = enter(|| budget::take(wanted)).unwrap_or(wanted);
    if granted < wanted {
        enter(|| budget::give_back(granted));
        set_errno(libc::ENOSPC);
        return -1;
    }
    let n = call();
    if n == 0 {
        lock(&o.unsynced).write(at as u64, at as u64 + wanted);
    }
    n
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    unsafe { fallocate64(fd, mode, at, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
    match unsafe { fallocate64(fd, 0, at, len) } {
        0 => 0,
        _ => unsafe { *libc::__errno_location() },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    unsafe { posix_fallocate64(fd, at, len) }
}

/// Notes that the kernel has written somewhere into the file.
fn all_changed(fd: c_int) {
    if let Some(o) = object::of(fd) {
        lock(&o.unsynced).whole = true;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    n: size_t,
    flags: c_uint,
) -> ssize_t {
    let r = unsafe {
        syscall(
            libc::SYS_copy_file_range,
            from,
            from_at,
            to,
            to_at,
            n,
            flags,
        )
    };
    all_changed(to);
    r as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    let r = unsafe { syscall(libc::SYS_sendfile, to, from, at, n) };
    all_changed(to);
    r as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    unsafe { sendfile64(to, from, at, n) }
}

fn synced(fd: c_int, real: c_long) -> c_int {
    let object: Option<Arc<Object>> = object::of(fd);
    if object.is_some() && enter(budget::sync_fails).unwrap_or(false) {
        // The data that was not on the disk is not there now; the next sync may write it.
        set_errno(libc::EIO);
        return -1;
    }
    match (object, config()) {
        (Some(o), Some(c)) if c.shadow.is_some() => {
            if !c.lying {
                enter(|| image::sync(c, &o, fd));
            }
            0
        }
        _ => unsafe { syscall(real, fd) as c_int },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    synced(fd, libc::SYS_fsync)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    synced(fd, libc::SYS_fdatasync)
}

fn opened(fd: c_long, flags: c_int) -> c_int {
    let fd = fd as c_int;
    if fd < 0 {
        return fd;
    }
    object::forget(fd);
    let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if writable
        && flags & (libc::O_TRUNC | libc::O_EXCL | libc::O_SYNC | libc::O_DSYNC) != 0
        && let Some(o) = object::of(fd)
    {
        if flags & libc::O_DSYNC != 0 {
            fatal("O_SYNC and O_DSYNC are not modelled");
        }
        if flags & libc::O_EXCL != 0 {
            // The file is new. If its id was in use before, within one tick of the clock, that file is gone.
            lock(&o.unsynced).whole = true;
        }
        if flags & libc::O_TRUNC != 0 {
            truncated(&o, 0);
        }
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let fd = unsafe { syscall(libc::SYS_openat, at, path, flags, mode) };
    opened(fd, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    unsafe { openat64(at, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    unsafe { creat64(path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    object::forget(fd);
    unsafe { syscall(libc::SYS_close, fd) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from == to {
        return unsafe { syscall(libc::SYS_fcntl, from, libc::F_GETFD) as c_int }.min(0) | to;
    }
    unsafe { dup3(from, to, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    object::forget(to);
    unsafe { syscall(libc::SYS_dup3, from, to, flags) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if fd >= 0 && shared && prot & libc::PROT_WRITE != 0 && object::of(fd).is_some() {
        fatal("writable shared mappings are not modelled");
    }
    unsafe { syscall(libc::SYS_mmap, addr, len, prot, flags, fd, at) as *mut c_void }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    unsafe { mmap64(addr, len, prot, flags, fd, at) }
}

/// The id of the file that loses its last name when `path` is removed.
unsafe fn last_name(at: c_int, path: *const c_char) -> Option<String> {
    // The path is relative to a directory other than the working one. The only effect is that the file's
    // content is kept.
    if at != libc::AT_FDCWD || path.is_null() || config()?.shadow.is_none() {
        return None;
    }
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let parent = path.parent()?.canonicalize().ok()?;
    let meta = path.symlink_metadata().ok()?;
    if !parent.starts_with(&config()?.dir) || std::os::unix::fs::MetadataExt::nlink(&meta) != 1 {
        return None;
    }
    object::identity(path, false).map(|(id, _)| id)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    let dead = enter(|| unsafe { last_name(at, path) }).flatten();
    let n = unsafe { syscall(libc::SYS_unlinkat, at, path, flags) };
    if let (0, Some(id)) = (n, dead) {
        image::removed(id);
    }
    n as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

/// Makes a full disk report that it is full.
fn clip(st: &mut libc::statvfs64) {
    if let Some(left) = enter(budget::left).flatten() {
        let free = left / st.f_frsize.max(1);
        st.f_bavail = free.min(st.f_bavail);
        st.f_bfree = free.min(st.f_bfree);
    }
}

/// Fills `to` from the kernel's answer.
unsafe fn vfs(failed: c_long, from: &libc::statfs64, to: *mut libc::statvfs64) -> c_int {
    if failed != 0 {
        return -1;
    }
    // SAFETY: this is plain data for which zeros are valid.
    let mut st: libc::statvfs64 = unsafe { std::mem::zeroed() };
    st.f_bsize = from.f_bsize as _;
    st.f_frsize = if from.f_frsize > 0 {
        from.f_frsize
    } else {
        from.f_bsize
    } as _;
    st.f_blocks = from.f_blocks;
    st.f_bfree = from.f_bfree;
    st.f_bavail = from.f_bavail;
    st.f_files = from.f_files;
    st.f_ffree = from.f_ffree;
    st.f_favail = from.f_ffree;
    st.f_namemax = from.f_namelen as _;
    clip(&mut st);
    unsafe { to.write(st) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn statvfs64(path: *const c_char, to: *mut libc::statvfs64) -> c_int {
    let mut st: libc::statfs64 = unsafe { std::mem::zeroed() };
    let n = unsafe { syscall(libc::SYS_statfs, path, &mut st) };
    unsafe { vfs(n, &st, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn statvfs(path: *const c_char, to: *mut libc::statvfs64) -> c_int {
    unsafe { statvfs64(path, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatvfs64(fd: c_int, to: *mut libc::statvfs64) -> c_int {
    let mut st: libc::statfs64 = unsafe { std::mem::zeroed() };
    let n = unsafe { syscall(libc::SYS_fstatfs, fd, &mut st) };
    unsafe { vfs(n, &st, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatvfs(fd: c_int, to: *mut libc::statvfs64) -> c_int {
    unsafe { fstatvfs64(fd, to) }
}
