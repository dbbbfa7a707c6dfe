//! The server's side of an exchange.

use super::{
    Credentials, NONCE_CHARS, authentication_failed, decoded, field, malformed, printable,
    skip_extensions, text,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use muniment_value::Result;
use std::fmt;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

const FIRST: &str = "client's first";
const FINAL: &str = "client's final";

/// A client's first message: the user that it claims to be, and its nonce.
#[derive(Clone, Debug)]
pub struct ClientFirst {
    user: String,
    nonce: String,
    /// What comes before the message proper, and is repeated in the final message.
    gs2: String,
    /// The message proper.
    bare: String,
}

impl ClientFirst {
    /// Reads the first message.
    ///
    /// # Errors
    /// 2 BadValue for a message that is no such, that asks for channel binding or for an extension, or that
    /// wants to act as another user than it logs in. The error names the field, and not its value.
    pub fn parse(payload: &[u8]) -> Result<ClientFirst> {
        let all = text(FIRST, payload)?;
        let wrong = |what| malformed(FIRST, what);
        let (flag, rest) = all.split_once(',').ok_or_else(|| wrong("has no header"))?;
        match flag {
            "n" | "y" => {}
            _ if flag.starts_with("p=") => {
                return Err(wrong("asks for channel binding, p=, which is unsupported"));
            }
            _ => return Err(wrong("has a malformed header")),
        }
        let (acts_as, bare) = rest
            .split_once(',')
            .ok_or_else(|| wrong("has a malformed header"))?;
        let mut fields = bare.split(',');
        let user = decode_name(field(FIRST, &mut fields, "n")?)
            .ok_or_else(|| wrong("has a malformed n="))?;
        if !acts_as.is_empty() {
            let other = acts_as.strip_prefix("a=").and_then(decode_name);
            if other.as_ref() != Some(&user) {
                return Err(wrong("has an a= that is not its n="));
            }
        }
        let nonce = field(FIRST, &mut fields, "r")?;
        if !NONCE_CHARS.contains(&nonce.len()) || !printable(nonce) {
            return Err(wrong("has a malformed r="));
        }
        skip_extensions(FIRST, fields)?;
        Ok(ClientFirst {
            user,
            nonce: nonce.to_string(),
            gs2: format!("{flag},{acts_as},"),
            bare: bare.to_string(),
        })
    }

    /// The name of the user that wants to log in.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The client's nonce.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }
}

/// A name in which `=2C` stands for a comma and `=3D` for the equals sign. Neither may stand for itself.
fn decode_name(name: &str) -> Option<String> {
    let mut pieces = name.split('=');
    let mut decoded = pieces.next()?.to_string();
    for piece in pieces {
        let (sign, rest) = match piece.strip_prefix("2C") {
            Some(rest) => (',', rest),
            None => ('=', piece.strip_prefix("3D")?),
        };
        decoded.push(sign);
        decoded.push_str(rest);
    }
    (!decoded.is_empty()).then_some(decoded)
}

/// An exchange that waits for the client's proof.
pub struct Exchange {
    credentials: Credentials,
    known: bool,
    first: ClientFirst,
    /// The nonces of both sides.
    nonce: String,
    server_first: String,
    /// A proof has been tried. There is no second try.
    spent: bool,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Exchange");
        shown.field("mechanism", &self.credentials.mechanism());
        shown.finish_non_exhaustive()
    }
}

impl Exchange {
    /// Answers a first message: gives the exchange, and the server's first message.
    ///
    /// The server's nonce is random bytes in base64, 24 of them as MongoDB has, and never used before. `known`
    /// says that the user exists, with these credentials. If it does not, the credentials are a
    /// [`Credentials::decoy`], and the exchange fails at its end whatever the proof is.
    pub fn begin(
        first: ClientFirst,
        credentials: Credentials,
        server_nonce: &str,
        known: bool,
    ) -> (Exchange, String) {
        let nonce = format!("{}{server_nonce}", first.nonce);
        let salt = BASE64_STANDARD.encode(credentials.salt.as_slice());
        let server_first = format!("r={nonce},s={salt},i={}", credentials.iterations);
        let exchange = Exchange {
            credentials,
            known,
            first,
            nonce,
            server_first: server_first.clone(),
            spent: false,
        };
        (exchange, server_first)
    }

    /// The name of the user that wants to log in, and has only if [`Exchange::finish`] says so.
    pub fn user(&self) -> &str {
        self.first.user()
    }

    /// Checks the client's final message. The user has logged in if this gives a message, which is the server's
    /// final one. An exchange has one try.
    ///
    /// # Errors
    /// 2 BadValue for a message that is malformed, or that belongs to another exchange; the error names the
    /// field, and does not depend on the user. 18 AuthenticationFailed for a wrong proof, for a user that does
    /// not exist, and for a second try.
    pub fn finish(&mut self, payload: &[u8]) -> Result<String> {
        if std::mem::replace(&mut self.spent, true) {
            return Err(authentication_failed());
        }
        let all = text(FINAL, payload)?;
        let (unproven, proof) = all
            .rsplit_once(",p=")
            .ok_or_else(|| malformed(FINAL, "lacks p="))?;
        let mut fields = unproven.split(',');
        if field(FINAL, &mut fields, "c")? != BASE64_STANDARD.encode(&self.first.gs2) {
            return Err(malformed(FINAL, "has a c= that is not the first's header"));
        }
        if field(FINAL, &mut fields, "r")? != self.nonce {
            return Err(malformed(FINAL, "has an r= that is not the exchange's"));
        }
        skip_extensions(FINAL, fields)?;
        let len = self.credentials.mechanism.hash_len();
        let proof = decoded(FINAL, "p", proof, len)?;
        self.check(unproven, &proof)
    }

    /// Checks a proof. The work is the same for each.
    fn check(&self, unproven: &str, proof: &[u8]) -> Result<String> {
        let credentials = &self.credentials;
        let mechanism = credentials.mechanism;
        let spoken = [
            self.first.bare.as_bytes(),
            b",",
            self.server_first.as_bytes(),
            b",",
            unproven.as_bytes(),
        ];
        let signature = mechanism.hmac(&credentials.stored_key, &spoken);
        let pairs = proof.iter().zip(signature.iter());
        let client_key = Zeroizing::new(pairs.map(|(a, b)| a ^ b).collect::<Vec<u8>>());
        let stored = mechanism.hash(&client_key);
        let answer = mechanism.hmac(&credentials.server_key, &spoken);
        let answer = format!("v={}", BASE64_STANDARD.encode(answer.as_slice()));
        let right = stored.ct_eq(credentials.stored_key.as_slice());
        match bool::from(right & Choice::from(u8::from(self.known))) {
            true => Ok(answer),
            false => Err(authentication_failed()),
        }
    }
}
