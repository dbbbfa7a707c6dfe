//! Damage to files of the kinds that worn disks and careless people cause.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Flips bit `bit` (0 to 7) of the byte at `offset`.
pub fn flip_bit(file: &Path, offset: u64, bit: u8) {
    let f = OpenOptions::new().read(true).write(true).open(file);
    let f = f.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut byte = [0];
    f.read_exact_at(&mut byte, offset)
        .unwrap_or_else(|e| panic!("{} at {offset}: {e}", file.display()));
    byte[0] ^= 1 << bit;
    f.write_all_at(&byte, offset).unwrap();
}

/// Cuts a file to `size` bytes.
pub fn truncate_file(file: &Path, size: u64) {
    let f = OpenOptions::new().write(true).open(file);
    f.and_then(|f| f.set_len(size))
        .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// All files below `dir`, sorted by path.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(d) = dirs.pop() {
        for entry in fs::read_dir(&d).unwrap_or_else(|e| panic!("{}: {e}", d.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
