//! The beginning of every connection between members: both show that they know a key (`--keyFile`)
//! before anything of the set is told or taken.
//!
//! MongoDB's members log in as a user, `__system`, by SCRAM, since their connections are those of
//! clients. Ours speak among themselves only, have no users, and no password that was stored by
//! somebody who must not know it, which is what SCRAM's salts and rounds are for; a challenge to each
//! side is enough. `_replSetProve` goes twice: the caller sends a nonce and gets one, then sends its
//! proofs and gets one back. The caller proves first, so that a stranger that merely connects is given
//! nothing by which keys could be guessed. A stranger that has a member call it, by naming its own
//! address in a configuration, does get proofs to guess by: therefore a key has to be long.
//!
//! A caller without a key says so, and a member takes it only if it has no key either: both have one, or
//! neither has. Over TLS the proofs speak of the connection, too, by its certificate. With `--clusterAuthMode
//! x509` and `sendX509` the caller shows its certificate instead of a key, and checks that of the other.
//!
//! Invariants: what only members may send (`Access::Member`) is refused with 13 on a connection
//! without a proof when there is a key; a proof holds for its connection alone, and for the member that
//! the caller meant. Must not go on with a connection that failed. Without
//! TLS the proofs cannot keep an attacker on the wire between two members from changing what these send
//! afterwards.

use super::ReplicaSet;
use super::host_port::HostPort;
use super::key::{Exchange, MOST, Nonce, Side, random};
use crate::caller::{binary, bytes_of, failed};
use muniment_logger::hostname;
use muniment_tls::{Binding, Certificate};
use muniment_value::{Doc, DocBuf, Result, Value, doc};

/// The name of a member, which is a host and its port, has at most so many bytes.
pub const LONGEST: usize = 270;

/// How far the caller of a connection has proven that it is a member.
#[derive(Debug, Default)]
pub enum Proof {
    /// Not at all.
    #[default]
    None,
    /// It was given a nonce.
    Challenged(Exchange),
    /// It has proven that it knows a key.
    Given,
    /// It has failed to prove it: the connection ends.
    Failed,
}

/// What a member sees of the caller of a connection that uses TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'s> {
    /// The caller's certificate.
    pub shown: Option<&'s Certificate>,
    /// What both know the connection by.
    pub channel: Option<&'s Binding>,
}

/// Answers `_replSetProve`; `before`: how far the caller of the connection had proven that it is a member, and
/// `seen` is what TLS says of it. After any failure the caller has to begin again with another connection.
///
/// # Errors
/// 18 if the caller does not know a key, or one side has none.
pub fn answer(
    set: &ReplicaSet,
    body: Doc<'_>,
    before: Proof,
    seen: Seen<'_>,
) -> Result<(Proof, DocBuf)> {
    if let Some(Value::Bool(true)) = body.get("x509") {
        return match set.home.trust.knows(seen.shown) {
            true => Ok((Proof::Given, DocBuf::new())),
            false => Err(failed(format!(
                "{} accepts no certificate of {}: members have organisation, unit and domain component in \
                 common, and --clusterAuthMode says whether certificates count",
                set.home.address.host,
                body.get_str("from").unwrap_or_default(),
            ))),
        };
    }
    match (body.get("proofs"), before) {
        (Some(_), Proof::Challenged(exchange)) => prove_back(set, body, &exchange),
        (Some(_), _) => Err(failed("proofs without a challenge")),
        (None, _) => challenge(set, body, seen),
    }
}

fn challenge(set: &ReplicaSet, body: Doc<'_>, seen: Seen<'_>) -> Result<(Proof, DocBuf)> {
    let named = |name: &str| body.get_str(name).unwrap_or_default().to_string();
    let (from, to) = (named("from"), named("to"));
    let names = [&from, &to].into_iter().map(String::len);
    if names.max() > Some(LONGEST) {
        return Err(failed("a name that is longer than any"));
    }
    let caller = bytes_of(body.get("nonce")).and_then(|b| Nonce::try_from(b).ok());
    let keys = set.home.trust.keys.as_ref();
    let keys = keys.filter(|_| set.home.trust.by.takes_key());
    match (caller, keys) {
        (None, None) if set.home.trust.is_asked() => {
            return Err(failed(format!(
                "{} asks for the certificate of a member, and {from} shows none",
                set.home.address.host
            )));
        }
        (None, None) => return Ok((Proof::None, DocBuf::new())),
        (Some(_), None) => {
            return Err(failed(format!(
                "{} has no key file, and {from} has one",
                set.home.address.host
            )));
        }
        (None, Some(_)) => {
            return Err(failed(format!(
                "{} has a key file, and {from} has none",
                set.home.address.host
            )));
        }
        (Some(_), Some(_)) => {}
    }
    if !is_own(set, &to) {
        return Err(failed(format!(
            "{from} means {to}, which {} is not",
            set.home.address.host
        )));
    }
    let exchange = Exchange {
        set: body
            .get_str("_replSetProve")
            .unwrap_or_default()
            .to_string(),
        from,
        to,
        caller: caller.unwrap_or_default(),
        called: random()?,
        channel: seen.channel.copied(),
    };
    let reply = doc! { "nonce": binary(&exchange.called) };
    Ok((Proof::Challenged(exchange), reply))
}

/// Whether this server is the one that the caller means: by its name in the configuration that it knows, or
/// by another one of its own addresses, which a configuration that it does not know yet may name. An
/// attacker that controls how names resolve gains nothing by that: a greeting says by its number which
/// member is meant.
fn is_own(set: &ReplicaSet, to: &str) -> bool {
    let member = set.member();
    let own = member.own();
    own.is_some_and(|own| own.host == to)
        || HostPort::parse(to).is_ok_and(|to| to.is_own(set.home.address.port, &hostname()))
}

fn prove_back(set: &ReplicaSet, body: Doc<'_>, exchange: &Exchange) -> Result<(Proof, DocBuf)> {
    let proofs = body.get_array("proofs").unwrap_or(Doc::EMPTY);
    let proofs = proofs.values().take(MOST);
    let proofs = proofs.filter_map(|v| bytes_of(Some(v)));
    let keys = set.home.trust.keys.as_ref();
    let common = keys.and_then(|keys| keys.proven(Side::Caller, exchange, proofs));
    let proof = common.and_then(|key| key.proofs(Side::Called, exchange).pop());
    let proof = proof.ok_or_else(|| {
        failed(format!(
            "the key files of {} and {} have no key in common",
            exchange.from, set.home.address.host
        ))
    })?;
    Ok((Proof::Given, doc! { "proof": binary(&proof) }))
}
