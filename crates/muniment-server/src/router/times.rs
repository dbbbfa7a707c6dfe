//! The time of the cluster that a router has heard of, with the signature of the member that told it.

use muniment_member::times_of;
use muniment_storage::Timestamp;
use muniment_value::{Doc, DocBuf};
use muniment_wire::DocWriter;
use parking_lot::Mutex;

/// See the module's head.
#[derive(Default)]
pub struct Times(Mutex<Option<(Timestamp, DocBuf)>>);

impl Times {
    /// Takes the `$clusterTime` of a reply, if it is the newest.
    pub fn heard(&self, reply: Doc<'_>) {
        let Some(told) = reply.get_doc("$clusterTime") else {
            return;
        };
        let Some(at) = told.get("clusterTime").map(times_of) else {
            return;
        };
        let mut newest = self.0.lock();
        if newest.as_ref().is_none_or(|(before, _)| *before < at) {
            *newest = Some((at, told.to_buf()));
        }
    }

    /// The newest of those that were heard of and this one, as `$clusterTime`.
    pub fn newest_of(&self, other: Option<Doc<'_>>) -> Option<DocBuf> {
        self.with_newest(other, |newest| newest.map(|d| d.to_buf()))
    }

    /// Writes what [`Times::newest_of`] gives.
    pub fn write_newest(&self, other: Option<Doc<'_>>, w: &mut DocWriter<'_>) {
        self.with_newest(other, |newest| {
            if let Some(newest) = newest {
                w.field("$clusterTime", newest);
            }
        });
    }

    fn with_newest<T>(&self, other: Option<Doc<'_>>, show: impl FnOnce(Option<Doc<'_>>) -> T) -> T {
        let newest = self.0.lock();
        let known = newest.as_ref().map(|(at, _)| *at);
        let at = |d: Doc<'_>| d.get("clusterTime").map(times_of);
        let newer = other.filter(|d| at(*d) > known);
        show(newer.or(newest.as_ref().map(|(_, told)| told.as_doc())))
    }

    /// Appends the newest to the reply that begins at `start` and is whole.
    pub fn append(&self, out: &mut Vec<u8>, start: usize) {
        let newest = self.0.lock();
        // A closed connection gets no reply.
        let Some((at, newest)) = newest.as_ref().filter(|_| out.len() >= start + 5) else {
            return;
        };
        let reply = out.get(start..).map_or(Doc::EMPTY, Doc::new);
        let has_operation = reply.get("operationTime").is_some();
        out.pop();
        out.extend_from_slice(b"\x03$clusterTime\0");
        out.extend_from_slice(newest.as_bytes());
        // Errors of the router's own have none. Nothing that the client has seen is later.
        if !has_operation {
            out.extend_from_slice(b"\x11operationTime\0");
            out.extend_from_slice(&at.0.to_le_bytes());
        }
        out.push(0);
        let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
        if let Some(head) = out.get_mut(start..start + 4) {
            head.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// The newest, without its signature; zero before any.
    pub fn at(&self) -> Timestamp {
        let newest = self.0.lock();
        newest.as_ref().map_or(Timestamp::ZERO, |(at, _)| *at)
    }

    /// The newest, as `$clusterTime`.
    pub fn newest(&self) -> Option<DocBuf> {
        self.0.lock().as_ref().map(|(_, told)| told.clone())
    }
}
