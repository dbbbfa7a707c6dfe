//! Collections that routers write the documents of `$out` into, until these take their targets' names.
//!
//! A router that ends before that leaves its collection here. It is dropped when nobody has used it for a while, and
//! when the server starts again. After an election, those of the member that led before are not known: they go when
//! the server starts.

use muniment_exec::{Database, HalfWritten};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A collection that no router has written to for so long is dropped: its router must be gone.
const FORGOTTEN: Duration = Duration::from_secs(1800);

/// The collections, and when each was last used.
#[derive(Default)]
pub struct Outputs(Mutex<HashMap<String, (HalfWritten, Instant)>>);

impl Outputs {
    /// Notes that a router uses one.
    pub fn used(&self, half: &HalfWritten) {
        let entry = (half.clone(), muniment_op::now());
        self.0.lock().insert(half.temporary.clone(), entry);
    }

    /// Forgets one that has its target's name, or was dropped.
    pub fn ended(&self, half: &HalfWritten) {
        self.0.lock().remove(&half.temporary);
    }

    /// Drops those that nobody has used for a while.
    pub fn tick(&self, engine: &Database) {
        let since = muniment_op::now().checked_sub(FORGOTTEN);
        for half in since.map_or(Vec::new(), |since| self.take_unused_since(since)) {
            engine.discard_out(&half);
        }
    }

    /// Takes those out that nobody has used since a time.
    fn take_unused_since(&self, time: Instant) -> Vec<HalfWritten> {
        let mut all = self.0.lock();
        let gone = all.extract_if(|_, (_, used)| *used < time);
        gone.map(|(_, (half, _))| half).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_nobody_uses_is_taken_out_once() {
        let half = |name: &str| HalfWritten {
            target: "d.t".into(),
            temporary: name.into(),
            made: [1; 16],
            before: None,
            first: false,
        };
        let outputs = Outputs::default();
        let before = muniment_op::now();
        outputs.used(&half("a"));
        outputs.used(&half("b"));
        outputs.ended(&half("b"));
        assert!(outputs.take_unused_since(before).is_empty());
        let later = muniment_op::now() + Duration::from_secs(1);
        assert_eq!(outputs.take_unused_since(later), [half("a")]);
        assert!(outputs.take_unused_since(later).is_empty());
    }
}
