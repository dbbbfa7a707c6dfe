//! Measures the disk's own price of durability: the time to write 4 KiB and call fdatasync. A
//! server whose `j: true` latency is below it did not make the write durable.
//!
//! The file is made beforehand, as good servers preallocate their journals: a write that makes a
//! file longer forces the sync to write the file system's own journal too, which an honest server
//! need not wait for.

use muniment_load::fail::{Context, Result};
use muniment_load::hist::Latency;
use muniment_load::stop;
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The bytes of one write.
const BLOCK: usize = 4096;

/// The blocks of the file; after the last one, writing continues at the start.
const BLOCKS: usize = 256;

/// Writes and syncs in `dir` until `count` writes are done or `limit` has passed, but at least 3
/// times.
pub(crate) fn write_and_sync(dir: &Path, count: usize, limit: Duration) -> Result<Latency> {
    let path = dir.join("muniment-bench-fdatasync.tmp");
    let what = format!("measuring the disk with {}", path.display());
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&path)
        .context(&what)?;
    let mut latency = Latency::new();
    let mut measure = || -> std::io::Result<()> {
        file.write_all(&vec![0; BLOCK * count.min(BLOCKS)])?;
        file.sync_data()?;
        let block = [0x5A; BLOCK];
        let begin = Instant::now();
        for i in 0..count {
            if stop::asked() || (i >= 3 && begin.elapsed() > limit) {
                break;
            }
            if i % BLOCKS == 0 {
                file.seek(SeekFrom::Start(0))?;
            }
            let t = Instant::now();
            file.write_all(&block)?;
            file.sync_data()?;
            latency.record(t.elapsed().as_nanos() as u64);
        }
        Ok(())
    };
    let result = measure();
    // The probe's file is removed even if the measurement failed.
    let _ = std::fs::remove_file(&path);
    result.context(&what)?;
    Ok(latency)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn leaves_nothing_behind() {
        let dir = std::env::temp_dir().join(format!("lab-disk-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let l = write_and_sync(&dir, 5, Duration::from_secs(5)).unwrap();
        assert!(l.count() >= 3);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
        assert!(write_and_sync(&dir, 1, Duration::ZERO).is_err());
    }
}
