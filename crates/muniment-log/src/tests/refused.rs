//! Writes that a disk refused, and rolls that no record followed: whatever a power cut leaves of them, the
//! log opens, and no refused record in it is followed by later ones.

use super::*;
use muniment_io::sim::{EIO, Fault, Op};
use muniment_io::{Disk, File, Open};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A disk that performs the next write of `refuses` bytes and reports an error.
#[derive(Clone)]
struct Liar {
    disk: SimDisk,
    refuses: Arc<AtomicUsize>,
}

struct LiarsFile {
    file: Arc<dyn File>,
    refuses: Arc<AtomicUsize>,
}

impl Disk for Liar {
    fn open(&self, path: &Path, how: Open) -> std::io::Result<Arc<dyn File>> {
        Ok(Arc::new(LiarsFile {
            file: Disk::open(&self.disk, path, how)?,
            refuses: self.refuses.clone(),
        }))
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        Disk::rename(&self.disk, from, to)
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        Disk::remove(&self.disk, path)
    }
    fn list(&self, dir: &Path) -> std::io::Result<Vec<String>> {
        Disk::list(&self.disk, dir)
    }
    fn create_dir(&self, dir: &Path) -> std::io::Result<()> {
        Disk::create_dir(&self.disk, dir)
    }
    fn sync_dir(&self, dir: &Path) -> std::io::Result<()> {
        Disk::sync_dir(&self.disk, dir)
    }
    fn space(&self, dir: &Path) -> std::io::Result<muniment_io::Space> {
        self.disk.space(dir)
    }
}

impl File for LiarsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_at(buf, offset)?;
        match self.refuses.compare_exchange(buf.len(), 0, SeqCst, SeqCst) {
            Ok(_) => Err(std::io::Error::from_raw_os_error(EIO)),
            Err(_) => Ok(()),
        }
    }
    fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }
    fn free_front(&self, end: u64) -> std::io::Result<()> {
        self.file.free_front(end)
    }
}

#[test]
fn a_refused_segment_is_not_followed_by_what_came_after_its_successor() {
    for seed in 0..1000 {
        let liar = Liar {
            disk: SimDisk::new(),
            refuses: Arc::default(),
        };
        let options = LogOptions {
            disk: Arc::new(liar.clone()),
            ..options(&liar.disk)
        };
        let (log, _) = open_from(options, Timestamp::ZERO).unwrap();
        log.append(0, ts(1), &[&payload(1, 10)]).unwrap();
        log.sync().unwrap();
        // The begin and the header of a segment with one record.
        liar.refuses
            .store(crate::format::BEGIN + crate::format::HEAD, SeqCst);
        let big = payload(2, 20_000);
        log.append(0, ts(2), &[&big]).unwrap_err();
        assert_eq!(liar.refuses.load(SeqCst), 0);
        log.append(0, ts(2), &[&payload(2, 600)]).unwrap();
        // The records are so long that each begins a segment.
        for n in 3..5 {
            log.append(0, ts(n), &[&payload(n, 7000)]).unwrap();
        }
        log.abandon();
        let (_, seen) = open(&liar.disk.power_cut(seed)).unwrap();
        let refused = seen.get(1).is_some_and(|r| r.3.len() == big.len());
        assert!(!refused || seen.len() == 2, "seed {seed}");
    }
}

#[test]
fn begins_that_no_record_followed_may_be_lost() {
    for (rolls, refusals) in [(2, 0), (4, 0), (0, 3), (0, 4), (1, 3)] {
        for seed in 0..200 {
            let disk = SimDisk::new();
            let (log, _) = open(&disk).unwrap();
            for _ in 0..3 {
                append(&log, 100).unwrap();
            }
            log.sync().unwrap();
            for _ in 0..rolls {
                log.roll().unwrap();
            }
            for n in 0..refusals {
                // The first failing append comes in a valid segment; each later one first writes a begin.
                let begin = u64::from(n > 0);
                disk.inject(Fault::new(Op::Write, EIO).on(".log").after(begin).times(1));
                append(&log, 100).unwrap_err();
                disk.heal();
            }
            log.abandon();
            // All records are in the trees.
            let cut = disk.power_cut(seed);
            let (log, seen) = open_from(options(&cut), ts(3)).unwrap();
            assert_eq!(
                (seen.len(), log.last().index),
                (0, 3),
                "{rolls} {refusals} {seed}"
            );
            append(&log, 100).unwrap();
            log.sync().unwrap();
            log.abandon();
            let (_, seen) = open_from(options(&cut.power_cut(seed)), ts(3)).unwrap();
            check(&seen, 4);
            assert_eq!(seen.len(), 1);
        }
    }
}

#[test]
fn a_start_that_could_not_sync_its_renames_is_made_up_for() {
    let mut cuts = 0;
    for seed in 0..800 {
        let disk = SimDisk::new();
        let (log, _) = open(&disk).unwrap();
        for _ in 0..13 {
            append(&log, 3000).unwrap();
        }
        log.sync().unwrap();
        // The spare segment is made and never used.
        let settled = |log: &Log| log.settle().unwrap();
        settled(&log);
        log.abandon();
        disk.inject(Fault::new(Op::SyncDir, EIO).times(1));
        let first = open_from(options(&disk), ts(13));
        disk.heal();
        if first.is_ok() {
            continue;
        }
        let (log, _) = open_from(options(&disk), ts(13)).unwrap();
        let cut: Arc<Mutex<Option<SimDisk>>> = Arc::default();
        let (at, n) = (seed as usize / 4 % 60, AtomicUsize::new(0));
        let (hooked, taken) = (disk.clone(), cut.clone());
        disk.set_hook(move |_, _| {
            if n.fetch_add(1, SeqCst) == at {
                *taken.lock() = Some(hooked.power_cut(seed));
            }
        });
        for _ in 0..7 {
            append(&log, 3000).unwrap();
        }
        log.abandon();
        disk.clear_hook();
        if let Some(cut) = cut.lock().take() {
            cuts += 1;
            open(&cut).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }
    assert!(cuts > 100, "{cuts}");
}
