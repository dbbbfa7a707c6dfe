//! Limits how fast connections are accepted, with a token bucket: it fills at the given rate, and each
//! connection takes one token. Connections without a token wait in a queue of limited length, or are closed.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The parameters of the limit.
pub struct Settings {
    /// ingressConnectionEstablishmentRateLimiterEnabled.
    pub enabled: AtomicBool,
    /// ingressConnectionEstablishmentRatePerSec.
    pub rate: AtomicI64,
    /// ingressConnectionEstablishmentBurstCapacitySecs.
    pub burst_secs: AtomicI64,
    /// ingressConnectionEstablishmentMaxQueueDepth.
    pub queue_depth: AtomicI64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            enabled: AtomicBool::new(false),
            rate: AtomicI64::new(i64::from(i32::MAX)),
            burst_secs: AtomicI64::new(1),
            queue_depth: AtomicI64::new(0),
        }
    }
}

/// The token bucket.
pub struct Limiter {
    tokens: f64,
    filled: Instant,
}

impl Limiter {
    /// A full bucket.
    pub fn new(now: Instant) -> Limiter {
        Limiter {
            tokens: f64::MAX,
            filled: now,
        }
    }

    /// Takes a token. True if a connection may be accepted now.
    pub fn take(&mut self, settings: &Settings, now: Instant) -> bool {
        if !settings.enabled.load(Relaxed) {
            *self = Limiter::new(now);
            return true;
        }
        let rate = settings.rate.load(Relaxed).max(1) as f64;
        let most = (rate * settings.burst_secs.load(Relaxed).max(1) as f64).max(1.0);
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(most);
        self.filled = now;
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }

    /// How long it takes until there is a token.
    pub fn wait(&self, settings: &Settings) -> Duration {
        let rate = settings.rate.load(Relaxed).max(1) as f64;
        Duration::from_secs_f64(((1.0 - self.tokens) / rate).clamp(0.001, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_faster_than_the_rate_and_a_burst() {
        let settings = Settings::default();
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        assert!((0..1000).all(|_| limiter.take(&settings, start)));
        settings.enabled.store(true, Relaxed);
        settings.rate.store(10, Relaxed);
        settings.burst_secs.store(2, Relaxed);
        let at = |ms| start + Duration::from_millis(ms);
        let burst = (0..100).filter(|_| limiter.take(&settings, at(0))).count();
        assert_eq!(burst, 20);
        assert!(limiter.wait(&settings) <= Duration::from_millis(100));
        let second = (0..100)
            .filter(|n| limiter.take(&settings, at(n * 10)))
            .count();
        assert_eq!(second, 9);
        // A long pause fills the bucket for one burst and no more.
        let later = (0..100)
            .filter(|_| limiter.take(&settings, at(60_000)))
            .count();
        assert_eq!(later, 20);
    }
}
