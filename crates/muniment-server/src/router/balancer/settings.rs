//! What `config.settings` says of the balancer.

use crate::router::Router;
use crate::router::configuration::read;
use crate::router::forward::run;
use muniment_logger::local_offset;
use muniment_op::Interrupt;
use muniment_shard::balance::CHUNK_BYTES;
use muniment_value::{Doc, DocBuf, Result, array, doc, number};

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// False if the balancer is stopped.
    pub enabled: bool,
    /// The minutes of the day at which it may begin, and has to end, in the local time of the configuration's primary.
    pub window: Option<(u32, u32)>,
    /// The size of the ranges that are moved, in bytes.
    pub chunk_bytes: u64,
    /// Whether chunks that lie side by side are merged.
    pub merges: bool,
    /// Whether a move waits until the old rows are deleted.
    pub wait_for_delete: bool,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn read(on: &dyn Interrupt, router: &Router) -> Result<Settings> {
        let of = doc! { "_id": doc! { "$in": array!["balancer", "chunksize", "automerge"] } };
        Ok(Settings::of(&read(on, router, "settings", of)?))
    }

    /// Those of these documents. What cannot be understood counts as absent, but for a window: the balancer does
    /// nothing then, as something was meant.
    fn of(docs: &[DocBuf]) -> Settings {
        let find = |id: &str| {
            let found = docs.iter().find(|d| d.as_doc().get_str("_id") == Some(id));
            found.map_or(Doc::EMPTY, |d| d.as_doc())
        };
        let balancer = find("balancer");
        let stopped = balancer.get("stopped").is_some_and(|v| v.truthy());
        let off = balancer.get_str("mode") == Some("off");
        let window = balancer.get_doc("activeWindow").map(|w| {
            let minute = |name: &str| w.get_str(name).and_then(minute_of);
            minute("start").zip(minute("stop")).unwrap_or((0, 0))
        });
        let megabytes = find("chunksize")
            .get("value")
            .and_then(number::to_i64_clamped);
        let megabytes = megabytes.and_then(|n| u64::try_from(n).ok());
        let merges = find("automerge").get("enabled");
        Settings {
            enabled: !stopped && !off,
            window,
            chunk_bytes: megabytes
                .filter(|n| (1..=1024).contains(n))
                .map_or(CHUNK_BYTES, |n| n << 20),
            merges: merges.is_none_or(|v| v.truthy()),
            wait_for_delete: balancer.get("_waitForDelete").is_some_and(|v| v.truthy()),
        }
    }

    /// Whether the balancer may work at this time, in milliseconds since 1970.
    pub fn may_work(&self, now_ms: i64) -> bool {
        let seconds = now_ms / 1000 + local_offset(now_ms);
        let minute = u32::try_from(seconds.rem_euclid(86_400) / 60).unwrap_or(0);
        self.enabled && self.window.is_none_or(|window| is_within(window, minute))
    }
}

/// Whether a minute of the day is within a window, which may go over midnight.
fn is_within((start, stop): (u32, u32), minute: u32) -> bool {
    match start <= stop {
        true => (start..stop).contains(&minute),
        false => minute >= start || minute < stop,
    }
}

/// The minute of the day of a time such as "23:05".
fn minute_of(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute) = (hour.parse::<u32>().ok()?, minute.parse::<u32>().ok()?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

/// Starts or stops the balancer.
///
/// # Errors
/// Those of the configuration's set.
pub fn enable(on: &dyn Interrupt, router: &Router, enabled: bool) -> Result<()> {
    let mode = if enabled { "full" } else { "off" };
    let update = doc! {
        "q": doc! { "_id": "balancer" },
        "u": doc! { "$set": doc! { "stopped": !enabled, "mode": mode } },
        "upsert": true,
    };
    let command = doc! {
        "update": "settings", "updates": array![update], "writeConcern": doc! { "w": "majority" },
    };
    run(on, router, &router.config, "config", &command, true).map(drop)
}

/// Has the balancer begin its next round within a second. It would do so later by itself, so errors do not matter.
pub fn wake(on: &dyn Interrupt, router: &Router) {
    let wake = doc! { "_balancerState": 1, "wakes": true };
    let _ = run(on, router, &router.config, "admin", &wake, true);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn what_documents_say() {
        let none = Settings::of(&[]);
        assert!(none.enabled && none.merges && none.window.is_none());
        assert_eq!(none.chunk_bytes, CHUNK_BYTES);
        let window = doc! { "start": "23:00", "stop": "6:30" };
        let docs = [
            doc! { "_id": "balancer", "mode": "off", "activeWindow": window },
            doc! { "_id": "chunksize", "value": 2 },
            doc! { "_id": "automerge", "enabled": false },
        ];
        let some = Settings::of(&docs);
        assert!(!some.enabled && !some.merges && !some.may_work(0));
        assert_eq!(
            (some.window, some.chunk_bytes),
            (Some((1380, 390)), 2 << 20)
        );
        let wrong = doc! { "_id": "balancer", "activeWindow": doc! { "start": "25:00" } };
        assert!(!Settings::of(&[wrong]).may_work(0));
    }

    #[test]
    fn windows() {
        for (window, minute, want) in [
            ((60, 120), 59, false),
            ((60, 120), 60, true),
            ((60, 120), 120, false),
            ((1380, 390), 1400, true),
            ((1380, 390), 10, true),
            ((1380, 390), 400, false),
            ((0, 0), 0, false),
        ] {
            assert_eq!(is_within(window, minute), want, "{window:?} {minute}");
        }
    }
}
