//! Large records, of which all readers at the same place share one copy: a transaction may take hundreds of
//! megabytes, and many readers may follow the log.

use crate::{Position, Weight};
use bytes::Bytes;
use muniment_value::Result;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Payloads longer than this are shared. Smaller ones fit into the buffer that each reader has anyway.
pub(crate) const LARGE: usize = 256 << 10;

/// A record that is in memory.
struct Held {
    bytes: Vec<u8>,
    payload: Range<usize>,
    /// The booking of its memory, which ends with it.
    _weight: Weight,
}

struct Owner(Arc<Held>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes.get(self.0.payload.clone()).unwrap_or_default()
    }
}

/// The large records that a reader still has.
#[derive(Default)]
pub(crate) struct LargeRecords(Mutex<Vec<(Position, Weak<Held>)>>);

impl LargeRecords {
    /// The payload of a record. If no reader has it in memory, `read` reads it, and returns the record's
    /// bytes and the range of the payload in them. Only one thread reads at a time.
    pub(crate) fn get(
        &self,
        position: Position,
        read: impl FnOnce() -> Result<(Vec<u8>, Range<usize>, Weight)>,
    ) -> Result<Bytes> {
        let mut all = self.0.lock();
        all.retain(|(_, held)| held.strong_count() > 0);
        let found = all.iter().find(|(p, _)| *p == position);
        if let Some(held) = found.and_then(|(_, held)| held.upgrade()) {
            return Ok(Bytes::from_owner(Owner(held)));
        }
        let (bytes, payload, weight) = read()?;
        let held = Arc::new(Held {
            bytes,
            payload,
            _weight: weight,
        });
        all.push((position, Arc::downgrade(&held)));
        Ok(Bytes::from_owner(Owner(held)))
    }
}
