//! The client's side of an exchange: for members that call each other, and for the lab.

use super::{
    ITERATIONS, Mechanism, NONCE_CHARS, Secret, authentication_failed, decoded, field, malformed,
    printable, skip_extensions, text,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use muniment_value::{Code, Error, Result};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const FIRST: &str = "server's first";
const FINAL: &str = "server's final";
/// What comes before the first message: no channel binding, and nobody else to act as.
const GS2: &str = "n,,";

/// A client that logs in: [`Client::first`], then [`Client::next`] with the server's answer, then
/// [`Client::verify`] with the second.
pub struct Client {
    mechanism: Mechanism,
    prepared: Zeroizing<String>,
    nonce: String,
    /// The first message without its header.
    bare: String,
    /// What the server has to answer to the proof.
    expected: Option<Secret>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Client");
        shown.field("mechanism", &self.mechanism);
        shown.finish_non_exhaustive()
    }
}

/// What the server's first message says.
pub(super) struct ServerFirst<'a> {
    text: &'a str,
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: u32,
}

impl<'a> ServerFirst<'a> {
    pub(super) fn parse(payload: &'a [u8], own_nonce: &str) -> Result<ServerFirst<'a>> {
        let wrong = |what| malformed(FIRST, what);
        let text = text(FIRST, payload)?;
        let mut fields = text.split(',');
        let nonce = field(FIRST, &mut fields, "r")?;
        let added = nonce.strip_prefix(own_nonce).unwrap_or_default();
        if !NONCE_CHARS.contains(&added.len()) || !printable(added) {
            return Err(wrong("has an r= that does not follow from the client's"));
        }
        let salt = BASE64_STANDARD
            .decode(field(FIRST, &mut fields, "s")?)
            .map_err(|_| wrong("has s= not in base64"))?;
        let iterations = field(FIRST, &mut fields, "i")?;
        let digits = iterations.bytes().all(|b| b.is_ascii_digit());
        let iterations = match iterations.parse() {
            Ok(n) if digits && ITERATIONS.contains(&n) => n,
            _ => return Err(wrong("has i= out of bounds")),
        };
        skip_extensions(FIRST, fields)?;
        Ok(ServerFirst {
            text,
            nonce,
            salt,
            iterations,
        })
    }
}

impl Client {
    /// A client that logs in as this user. The nonce is random bytes in base64, never used before.
    ///
    /// # Errors
    /// Those of [`crate::prep::sasl_prep`]; 2 BadValue for an empty user name, and for a nonce that is too short,
    /// too long or not printable.
    pub fn new(mechanism: Mechanism, user: &str, password: &str, nonce: &str) -> Result<Client> {
        let prepared = mechanism.prepared(user, password)?;
        Client::with_prepared(mechanism, user, prepared, nonce)
    }

    /// A client with a password that is already prepared as by [`Mechanism::prepared`].
    ///
    /// # Errors
    /// 2 BadValue for an empty user name, and for a nonce that is too short, too long or not printable.
    pub fn with_prepared(
        mechanism: Mechanism,
        user: &str,
        prepared: Zeroizing<String>,
        nonce: &str,
    ) -> Result<Client> {
        if user.is_empty() || user.contains('\0') {
            return Err(Error::bad_value("SCRAM: the user name is empty or has NUL"));
        }
        if !NONCE_CHARS.contains(&nonce.len()) || !printable(nonce) {
            return Err(Error::bad_value("SCRAM: the client's nonce is malformed"));
        }
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Ok(Client {
            mechanism,
            prepared,
            nonce: nonce.to_string(),
            bare: format!("n={user},r={nonce}"),
            expected: None,
        })
    }

    /// The first message.
    pub fn first(&self) -> String {
        format!("{GS2}{}", self.bare)
    }

    /// The final message, which answers the server's first. This takes milliseconds, the more the more
    /// iterations the server asks for.
    ///
    /// # Errors
    /// 2 BadValue for a message that is malformed, that does not belong to this exchange, or that asks for fewer
    /// than 4096 iterations or for absurdly many.
    pub fn next(&mut self, server_first: &[u8]) -> Result<String> {
        let server = ServerFirst::parse(server_first, &self.nonce)?;
        let salted = self
            .mechanism
            .salted(&self.prepared, &server.salt, server.iterations);
        let (answer, expected) = self.answer(&salted, &server);
        self.expected = Some(expected);
        Ok(answer)
    }

    /// The final message, and what the server has to say to it.
    pub(super) fn answer(&self, salted: &[u8], server: &ServerFirst<'_>) -> (String, Secret) {
        let mechanism = self.mechanism;
        let header = BASE64_STANDARD.encode(GS2);
        let unproven = format!("c={header},r={}", server.nonce);
        let spoken = [
            self.bare.as_bytes(),
            b",",
            server.text.as_bytes(),
            b",",
            unproven.as_bytes(),
        ];
        let client_key = mechanism.client_key(salted);
        let signature = mechanism.hmac(&mechanism.hash(&client_key), &spoken);
        let pairs = client_key.iter().zip(signature.iter());
        let proof: Vec<u8> = pairs.map(|(a, b)| a ^ b).collect();
        let expected = mechanism.hmac(&mechanism.server_key(salted), &spoken);
        let proof = BASE64_STANDARD.encode(proof);
        (format!("{unproven},p={proof}"), expected)
    }

    /// Checks that the server knows the user's credentials, too. Only then is it the server that was meant.
    ///
    /// # Errors
    /// 18 AuthenticationFailed if the server refuses the proof or gives a wrong one; 2 BadValue for a message
    /// that is malformed, and one that no proof went before.
    pub fn verify(&mut self, server_final: &[u8]) -> Result<()> {
        let expected = self
            .expected
            .take()
            .ok_or_else(|| malformed(FINAL, "comes before the client's"))?;
        let text = text(FINAL, server_final)?;
        if text.starts_with("e=") {
            return Err(authentication_failed());
        }
        let mut fields = text.split(',');
        let value = field(FINAL, &mut fields, "v")?;
        skip_extensions(FINAL, fields)?;
        let given = decoded(FINAL, "v", value, self.mechanism.hash_len())?;
        match bool::from(given.ct_eq(expected.as_slice())) {
            true => Ok(()),
            false => Err(Error::new(
                Code::AuthenticationFailed,
                "the server does not prove that it knows the user's credentials",
            )),
        }
    }
}
