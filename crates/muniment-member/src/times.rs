//! The cluster's time: what replies tell of it, and what requests bring.
//!
//! With a key file times are signed. Where users have to log in, a time counts only if it is signed, or if its
//! user may advance the clock: a client that sets it far ahead leaves little room for the times to come.

use super::ReplicaSet;
use super::timestamps::of;
use crate::signer::{Checked, HASH, Signature, Signer};
use muniment_storage::Timestamp;
use muniment_value::args::{Args, Field, Types, req};
use muniment_value::number::to_i64_clamped;
use muniment_value::{Code, Doc, Error, Result, Value};
use std::sync::atomic::Ordering;

const TIME: &[Field] = &[
    req("clusterTime", Types::TIMESTAMP),
    muniment_value::args::opt("signature", Types::OBJECT),
];

const SIGNATURE: &[Field] = &[req("hash", Types::BINARY), req("keyId", Types::NUMBER)];

/// `$clusterTime` up to its timestamp: a document of 88 bytes.
const BEFORE: &[u8] = b"\x03$clusterTime\0\x58\0\0\0\x11clusterTime\0";
/// What follows the timestamp, up to the hash of the signature.
const SIGNED: &[u8] = b"\x03signature\0\x33\0\0\0\x05hash\0\x14\0\0\0\0";
/// What follows the hash, up to the number of the key.
const KEY: &[u8] = b"\x12keyId\0";
/// The ends of the signature and of `$clusterTime`.
const ENDS: &[u8] = b"\0\0";
/// `operationTime` up to its timestamp.
const OPERATION: &[u8] = b"\x11operationTime\0";

/// Appends `$clusterTime` and `operationTime` to the reply that begins at `at` and is whole. A client that has not
/// logged in is not given a signature (`signed`), since short keys could be guessed by it.
pub fn append_times(set: &ReplicaSet, out: &mut Vec<u8>, at: usize, signed: bool) {
    let told = set.timed.load(Ordering::Acquire);
    // A closed connection gets no reply.
    if !told || out.len() < at + 5 {
        return;
    }
    let store = &set.home.engine.store;
    // The cluster's time is read last, so that it is never less than the operation's.
    let operation = store.visible();
    let signer = set.signer.as_ref().filter(|_| signed);
    append(out, at, store.clock(), operation, signer);
}

fn append(
    out: &mut Vec<u8>,
    at: usize,
    cluster: Timestamp,
    operation: Timestamp,
    signer: Option<&Signer>,
) {
    let signature = signer.map_or_else(Signature::default, |signer| signer.sign(cluster));
    // The end of the document.
    out.pop();
    out.reserve(BEFORE.len() + 88 + OPERATION.len() + 17);
    out.extend_from_slice(BEFORE);
    out.extend_from_slice(&cluster.0.to_le_bytes());
    out.extend_from_slice(SIGNED);
    out.extend_from_slice(&signature.hash);
    out.extend_from_slice(KEY);
    out.extend_from_slice(&signature.key_id.to_le_bytes());
    out.extend_from_slice(ENDS);
    out.extend_from_slice(OPERATION);
    out.extend_from_slice(&operation.0.to_le_bytes());
    out.push(0);
    let length = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    if let Some(head) = out.get_mut(at..at + 4) {
        head.copy_from_slice(&length.to_le_bytes());
    }
}

/// A time that a request brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTime {
    /// The time.
    pub at: Timestamp,
    /// What it was signed with. That of no member, if it is missing.
    pub signature: Signature,
}

/// Checks a request's `$clusterTime`.
///
/// # Errors
/// 2, 14, 40414, 40415.
pub fn parse(d: Doc<'_>) -> Result<ClusterTime> {
    let args = Args::parse("$clusterTime", TIME, d)?;
    let mut signature = Signature::default();
    if let Some(given) = args.doc("signature") {
        let given = Args::parse("$clusterTime.signature", SIGNATURE, given)?;
        if let Some(Value::Binary { bytes, .. }) = given.get("hash") {
            signature.hash = bytes.try_into().map_err(|_| {
                Error::bad_value(format!(
                    "$clusterTime.signature.hash has {} bytes, and a signature has {HASH}",
                    bytes.len()
                ))
            })?;
        }
        let id = given.get("keyId");
        signature.key_id = id.and_then(to_i64_clamped).unwrap_or_default();
    }
    let at = args.get("clusterTime").map_or(Timestamp::ZERO, of);
    Ok(ClusterTime { at, signature })
}

impl ReplicaSet {
    /// Takes the cluster's time that a client has heard of elsewhere: all later commits get times after it.
    /// Unless the client is `trusted`, a time that is not signed, or by a key that this member does not know,
    /// does not count.
    ///
    /// # Errors
    /// 204 TimeProofMismatch for a wrong signature; 205 ClusterTimeFailsRateLimiter when it is further ahead of the wall clock than
    /// `maxAcceptableLogicalClockDriftSecs` lets it be.
    pub fn hear(&self, told: &ClusterTime, trusted: impl FnOnce() -> bool) -> Result<()> {
        let time = told.at;
        if !self.timed.load(Ordering::Acquire) {
            return Ok(());
        }
        let store = &self.home.engine.store;
        if time <= store.clock() {
            return Ok(());
        }
        if !trusted() {
            let signer = self.signer.as_ref();
            match signer.map_or(Checked::Unknown, |s| s.check(time, &told.signature)) {
                Checked::Right => {}
                Checked::Unknown => return Ok(()),
                Checked::Wrong => {
                    return Err(Error::new(
                        Code::TimeProofMismatch,
                        format!("Proof does not match the cluster time {time}"),
                    ));
                }
            }
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
    use crate::key::Keys;
    use muniment_value::doc;

    #[test]
    fn a_reply_with_the_times_is_a_document() {
        let signer = Signer::new(&Keys::of_text("abcdef"));
        for signer in [None, Some(&signer)] {
            let mut out = b"before".to_vec();
            let at = out.len();
            out.extend_from_slice(doc! { "n": 1, "ok": 1.0 }.as_bytes());
            let time = Timestamp::new(7, 2);
            append(&mut out, at, time, Timestamp::new(6, 1), signer);
            let signature = signer.map_or_else(Signature::default, |s| s.sign(time));
            let wanted = doc! {
                "n": 1,
                "ok": 1.0,
                "$clusterTime": doc! {
                    "clusterTime": Value::Timestamp { t: 7, i: 2 },
                    "signature": doc! {
                        "hash": Value::Binary { subtype: 0, bytes: &signature.hash },
                        "keyId": signature.key_id,
                    },
                },
                "operationTime": Value::Timestamp { t: 6, i: 1 },
            };
            assert_eq!(&out[at..], wanted.as_bytes());
            let told = wanted.as_doc().get_doc("$clusterTime").unwrap();
            let at = time;
            assert_eq!(parse(told).unwrap(), ClusterTime { at, signature });
        }
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
            (
                doc! { "clusterTime": Value::Timestamp { t: 1, i: 1 },
                "signature": doc! { "hash": Value::Binary { subtype: 0, bytes: &[0; 19] }, "keyId": 0_i64 } },
                2,
            ),
        ] {
            assert_eq!(parse(d.as_doc()).unwrap_err().code().0, code, "{d:?}");
        }
    }
}
