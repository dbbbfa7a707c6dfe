//! The cluster's time: what replies tell of it, and what requests bring.

use super::ReplicaSet;
use super::timestamps::of;
use muniment_storage::Timestamp;
use muniment_value::args::{Args, Field, Types, req};
use muniment_value::{Code, Doc, Error, Result};
use std::sync::atomic::Ordering;

const TIME: &[Field] = &[
    req("clusterTime", Types::TIMESTAMP),
    muniment_value::args::opt("signature", Types::OBJECT),
];

const SIGNATURE: &[Field] = &[req("hash", Types::BINARY), req("keyId", Types::NUMBER)];

/// `$clusterTime` up to its timestamp: a document of 88 bytes.
const BEFORE: &[u8] = b"\x03$clusterTime\0\x58\0\0\0\x11clusterTime\0";
/// What follows the timestamp: an empty signature, as times are signed only with authentication.
const SIGNED: &[u8] = b"\x03signature\0\x33\0\0\0\
    \x05hash\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x12keyId\0\0\0\0\0\0\0\0\0\0\0";
/// `operationTime` up to its timestamp.
const OPERATION: &[u8] = b"\x11operationTime\0";

/// Appends `$clusterTime` and `operationTime` to the reply that begins at `at` and is whole.
pub fn append_times(set: &ReplicaSet, out: &mut Vec<u8>, at: usize) {
    let told = set.timed.load(Ordering::Acquire);
    // A closed connection gets no reply.
    if !told || out.len() < at + 5 {
        return;
    }
    let store = &set.home.engine.store;
    // The cluster's time is read last, so that it is never less than the operation's.
    let operation = store.visible();
    append(out, at, store.clock(), operation);
}

fn append(out: &mut Vec<u8>, at: usize, cluster: Timestamp, operation: Timestamp) {
    // The end of the document.
    out.pop();
    out.reserve(BEFORE.len() + SIGNED.len() + OPERATION.len() + 17);
    out.extend_from_slice(BEFORE);
    out.extend_from_slice(&cluster.0.to_le_bytes());
    out.extend_from_slice(SIGNED);
    out.extend_from_slice(OPERATION);
    out.extend_from_slice(&operation.0.to_le_bytes());
    out.push(0);
    let length = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    if let Some(head) = out.get_mut(at..at + 4) {
        head.copy_from_slice(&length.to_le_bytes());
    }
}

/// Checks a request's `$clusterTime`.
///
/// # Errors
/// 14, 40414, 40415.
pub fn parse(d: Doc<'_>) -> Result<Timestamp> {
    let args = Args::parse("$clusterTime", TIME, d)?;
    if let Some(signature) = args.doc("signature") {
        Args::parse("$clusterTime.signature", SIGNATURE, signature)?;
    }
    Ok(args.get("clusterTime").map_or(Timestamp::ZERO, of))
}

impl ReplicaSet {
    /// Takes the cluster's time that a client has heard of elsewhere: all later commits get times after it.
    ///
    /// # Errors
    /// 205 ClusterTimeFailsRateLimiter when it is further ahead of the wall clock than
    /// `maxAcceptableLogicalClockDriftSecs` lets it be.
    pub fn hear(&self, time: Timestamp) -> Result<()> {
        if !self.timed.load(Ordering::Acquire) {
            return Ok(());
        }
        let store = &self.home.engine.store;
        if time <= store.clock() {
            return Ok(());
        }
        let now = self.home.machine.clock.now_ms() / 1000;
        let most = self
            .home
            .parameters
            .clock_drift_secs
            .load(Ordering::Relaxed);
        if i64::from(time.seconds()) > now.saturating_add(most) {
            return Err(Error::new(
                Code::ClusterTimeFailsRateLimiter,
                format!(
                    "New cluster time, {}, is too far from this node's wall clock time, {now}.",
                    time.seconds()
                ),
            ));
        }
        store.advance_clock(time);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{Value, doc};

    #[test]
    fn a_reply_with_the_times_is_a_document() {
        let mut out = b"before".to_vec();
        let at = out.len();
        out.extend_from_slice(doc! { "n": 1, "ok": 1.0 }.as_bytes());
        append(&mut out, at, Timestamp::new(7, 2), Timestamp::new(6, 1));
        let wanted = doc! {
            "n": 1,
            "ok": 1.0,
            "$clusterTime": doc! {
                "clusterTime": Value::Timestamp { t: 7, i: 2 },
                "signature": doc! {
                    "hash": Value::Binary { subtype: 0, bytes: &[0; 20] },
                    "keyId": 0_i64,
                },
            },
            "operationTime": Value::Timestamp { t: 6, i: 1 },
        };
        assert_eq!(&out[at..], wanted.as_bytes());
        let told = wanted.as_doc().get_doc("$clusterTime").unwrap();
        assert_eq!(parse(told).unwrap(), Timestamp::new(7, 2));
    }

    #[test]
    fn malformed_times() {
        for (d, code) in [
            (doc! {}, 40414),
            (doc! { "clusterTime": 1 }, 14),
            (
                doc! { "clusterTime": Value::Timestamp { t: 1, i: 1 }, "x": 1 },
                40415,
            ),
            (
                doc! { "clusterTime": Value::Timestamp { t: 1, i: 1 }, "signature": doc! {} },
                40414,
            ),
            (
                doc! { "clusterTime": Value::Timestamp { t: 1, i: 1 },
                "signature": doc! { "hash": 1, "keyId": 0_i64 } },
                14,
            ),
        ] {
            assert_eq!(parse(d.as_doc()).unwrap_err().code().0, code, "{d:?}");
        }
    }
}
