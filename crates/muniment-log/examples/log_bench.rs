//! Measures the log on this machine: appends, commits with sync, recovery.
//!
//! `cargo run --release -p muniment-log --example log_bench [DIR]`

use muniment_io::Timestamp;
use muniment_log::{Log, LogOptions};
use muniment_value::Result;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Runs `threads` threads that append 120 bytes each time, and wait until they are durable if `sync`.
fn commits(dir: &Path, threads: usize, sync: bool) -> Result<()> {
    let dir = dir.join(format!("commits-{threads}-{sync}"));
    let log = Log::open(LogOptions::new(&dir), Timestamp::ZERO, &mut |_| Ok(()))?;
    let clock = Mutex::new(0);
    let done = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                while start.elapsed() < Duration::from_secs(3) {
                    let index = {
                        let Ok(mut clock) = clock.lock() else { return };
                        *clock += 1;
                        log.append(1, Timestamp(*clock), &[&[7; 120]])
                    };
                    match index {
                        Ok(index) if sync => {
                            if let Err(e) = log.wait_durable(index, &muniment_op::NeverInterrupted)
                            {
                                eprintln!("{e}");
                                return;
                            }
                        }
                        Ok(_) => {}
                        Err(e) => {
                            eprintln!("{e}");
                            return;
                        }
                    }
                    let n = done.fetch_add(1, Relaxed);
                    // Segments that are no longer needed are reused, as in a server.
                    if n % 200_000 == 199_999 {
                        let _ = log.trim(log.last().at);
                    }
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let n = done.load(Relaxed);
    let stats = log.stats();
    print!("{threads:3} threads: {:9.0}/s", n as f64 / seconds);
    if sync {
        let per_sync = n as f64 / stats.syncs.max(1) as f64;
        let micros = stats.sync_micros / stats.syncs.max(1);
        print!(", {per_sync:.1} commits a sync of {micros} us");
    }
    println!();
    Ok(())
}

fn recovery(dir: &Path, payload: usize) -> Result<()> {
    let dir = dir.join(format!("recovery-{payload}"));
    let log = Log::open(LogOptions::new(&dir), Timestamp::ZERO, &mut |_| Ok(()))?;
    let bytes = vec![7; payload];
    let count = (1u64 << 30) / (payload as u64 + 40);
    let start = Instant::now();
    for n in 1..=count {
        log.append(1, Timestamp(n), &[&bytes])?;
    }
    log.sync()?;
    println!("written in {:.1} s", start.elapsed().as_secs_f64());
    drop(log);
    for _ in 0..2 {
        let start = Instant::now();
        let (mut read, mut sum) = (0, 0u64);
        let log = Log::open(LogOptions::new(&dir), Timestamp::ZERO, &mut |r| {
            read += 1;
            sum += u64::from(r.payload.first().copied().unwrap_or_default());
            Ok(())
        })?;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "opened: {read} records of {payload} B ({sum}), {:.0} MB/s",
            1024.0 / seconds
        );
        let start = Instant::now();
        let mut reader = log.read(Timestamp::ZERO);
        while reader.next()?.is_some() {}
        let seconds = start.elapsed().as_secs_f64();
        println!("read by a reader: {:.0} MB/s", 1024.0 / seconds);
    }
    Ok(())
}

fn main() -> Result<()> {
    let base = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let dir = tempfile::tempdir_in(base)?;
    println!("appends of 120 B");
    for threads in [1, 16] {
        commits(dir.path(), threads, false)?;
    }
    println!("commit and sync");
    for threads in [1, 16, 64] {
        commits(dir.path(), threads, true)?;
    }
    println!("recovery of 1 GiB");
    for payload in [120, 4000] {
        recovery(dir.path(), payload)?;
    }
    Ok(())
}
