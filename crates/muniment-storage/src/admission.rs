//! Which commits may go to the engine, and when: back-pressure, and the re-opening of an engine that a failed write has poisoned.
//!
//! fjall lets writers run until it has four sealed memtables or thirty runs in level 0 and then
//! stops them in steps of 100 ms. We slow them down before that, in proportion, by handing out
//! the bytes a second that flushes and compactions are known to keep up with.
//!
//! After a write to the journal has failed, fjall refuses all further ones for good. What was
//! acknowledged is in the journal file, so the engine is opened anew in place as soon as a probe
//! can be written; until then reads are served and writes are refused.

use crate::engine::{Engine, EngineSnapshot, Pressure, out_of_disk};
use crate::store::Inner;
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The pressure is looked at again after so many bytes.
const LOOK_EVERY: u64 = 128 << 10;
/// The journal is synced early after so many bytes: fjall syncs it with its mutex held whenever it
/// flushes a memtable, so what is dirty then is what every writer waits for.
const SYNC_EVERY: u64 = 4 << 20;
/// The longest time one commit is held back.
const MAX_DELAY: Duration = Duration::from_millis(120);

/// The state of admission.
pub(crate) struct Admission {
    since_look: AtomicU64,
    since_sync: AtomicU64,
    /// Bytes a second that may be committed; 0: as many as come.
    rate: AtomicU64,
    /// When the bytes admitted so far are paid for.
    paid: Mutex<Instant>,
    /// A write has failed: the engine must be opened anew.
    broken: AtomicBool,
    delayed_micros: AtomicU64,
}

impl Admission {
    /// Nothing is held back.
    pub fn new() -> Admission {
        Admission {
            since_look: AtomicU64::new(0),
            since_sync: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            paid: Mutex::new(Instant::now()),
            broken: AtomicBool::new(false),
            delayed_micros: AtomicU64::new(0),
        }
    }

    /// Microseconds that commits were held back, all together.
    pub fn delayed_micros(&self) -> u64 {
        self.delayed_micros.load(Relaxed)
    }

    fn delay(&self, bytes: u64, rate: u64) {
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let now = Instant::now();
        let wait = {
            let mut paid = self.paid.lock();
            *paid = (*paid).max(now) + cost;
            // What nobody could have waited for is forgiven.
            *paid = (*paid).min(now + MAX_DELAY * 2);
            paid.saturating_duration_since(now)
        };
        // Shorter sleeps cost more than they hold back; the debt is kept.
        if wait >= Duration::from_millis(1) {
            std::thread::sleep(wait.min(MAX_DELAY));
            self.delayed_micros
                .fetch_add(wait.min(MAX_DELAY).as_micros() as u64, Relaxed);
        }
    }
}

/// Bytes a second under this pressure; 0 is no limit.
fn rate(p: Pressure) -> u64 {
    let sealed = match p.sealed {
        0 | 1 => u64::MAX,
        2 => 48 << 20,
        _ => 4 << 20,
    };
    let runs = match p.l0_runs {
        0..=10 => u64::MAX,
        // 128 MiB/s at 11, halved with every run: 1 MiB/s at 18, where fjall would stop at 30.
        n => (128u64 << 20) >> (n - 11).min(7),
    };
    match sealed.min(runs) {
        u64::MAX => 0,
        rate => rate,
    }
}

impl Inner {
    /// May a commit of `bytes` go to the engine? Waits when flushes or compactions are behind.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; 91 when the store is closed.
    pub fn admit(&self, engine: &Engine, bytes: usize) -> Result<()> {
        self.check_open()?;
        let a = &self.admission;
        if a.broken.load(Relaxed) {
            return Err(out_of_disk(&self.path));
        }
        self.space.admit(bytes as u64)?;
        // An empty commit costs, too: its batch has a head and a counter.
        let bytes = bytes as u64 + 128;
        if a.since_sync.fetch_add(bytes, Relaxed) + bytes > SYNC_EVERY {
            a.since_sync.store(0, Relaxed);
            self.wake.notify_all();
        }
        if a.since_look.fetch_add(bytes, Relaxed) + bytes > LOOK_EVERY {
            a.since_look.store(0, Relaxed);
            engine.seal_full()?;
            a.rate.store(rate(engine.pressure()), Relaxed);
        }
        match a.rate.load(Relaxed) {
            0 => {}
            rate => {
                a.delay(bytes, rate);
                // Ended sooner than the next look would see.
                a.rate.store(self::rate(engine.pressure()), Relaxed);
            }
        }
        Ok(())
    }

    /// Notes that a write to the engine has failed.
    pub fn write_failed(&self) {
        self.admission.broken.store(true, SeqCst);
        self.wake.notify_all();
    }

    /// True while the engine is out of order.
    pub fn is_broken(&self) -> bool {
        self.admission.broken.load(SeqCst)
    }

    /// Called every commit interval by the flusher.
    pub fn mind_the_engine(&self) {
        let healthy = || self.engine().and_then(|e| e.healthy()).is_ok();
        if !self.is_broken() && (self.journal.failure().is_some() || !healthy()) {
            self.write_failed();
        }
        if self.is_broken()
            && self.space.admit(0).is_ok()
            && crate::space::probe(&self.path).is_ok()
        {
            self.reopen();
        }
    }

    /// Opens the engine anew in place. Gives up for now if somebody holds on to the old one.
    fn reopen(&self) {
        let Some(_ddl) = self.ddl.try_lock_for(Duration::from_millis(500)) else {
            return;
        };
        // No commit is under way, nor will one be.
        let Some(_gate) = self.gate.try_write_for(Duration::from_millis(500)) else {
            if let Some(engine) = &*self.engine.read() {
                engine.rescue();
            }
            return;
        };
        let mut slot = self.engine.write();
        let patience = Instant::now() + Duration::from_millis(500);
        while slot.as_ref().is_some_and(|e| Arc::strong_count(e) > 1) {
            if Instant::now() > patience {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Its drop waits for the workers; their last references go a moment later.
        *slot = None;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let path = self.engine_path();
            let opened = crate::journal_check::check(&path, false)
                .and_then(|()| Engine::open(&path, self.cache_bytes))
                .map(Arc::new)
                .and_then(|engine| {
                    // After a failed fsync the kernel may take pages for clean that are not on
                    // the disk: write everything that only the journal has once more.
                    engine.flush_all()?;
                    self.load_catalog(&EngineSnapshot::new(engine.clone()))?;
                    Ok(engine)
                });
            match opened {
                Ok(engine) => {
                    *slot = Some(engine);
                    break;
                }
                // Readers wait meanwhile: without an engine there is nothing to read.
                Err(_) if !self.closed.load(SeqCst) => {}
                Err(_) => return,
            }
        }
        drop(slot);
        self.journal.reopened();
        self.admission.broken.store(false, SeqCst);
        self.start_reclaim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_falls_with_the_pressure() {
        let p = |sealed, l0_runs| rate(Pressure { sealed, l0_runs });
        assert_eq!(p(1, 10), 0);
        assert!(p(2, 0) > p(3, 0));
        assert!(p(0, 11) > p(0, 12) && p(0, 12) > p(0, 15));
        assert_eq!(p(0, 18), 1 << 20);
        assert_eq!(p(0, 60), 1 << 20);
        assert_eq!(p(3, 60), 1 << 20);
    }

    #[test]
    fn a_delay_is_global_and_bounded() {
        let a = Admission::new();
        let start = Instant::now();
        for _ in 0..10 {
            a.delay(1 << 20, 100 << 20);
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(80), "{took:?}");
        let start = Instant::now();
        a.delay(100 << 20, 1 << 20);
        let took = start.elapsed();
        assert!(took < MAX_DELAY + Duration::from_millis(100), "{took:?}");
    }
}
