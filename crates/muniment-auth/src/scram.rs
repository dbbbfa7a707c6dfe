//! SCRAM (RFC 5802 and RFC 7677): both sides prove that they know a password, and neither sends it.
//!
//! The server keeps [`Credentials`], which say whether a proof is right but are of no use to make one. A login
//! takes two messages of each side: [`ClientFirst`] says who it is, [`Exchange::begin`] answers with the salt,
//! the client proves that it knows the password, and [`Exchange::finish`] proves in turn that the server has
//! that user's credentials. [`client`] is the other side.
//!
//! An unknown user gets [`Credentials::decoy`]: the exchange takes the same course and the same work to its
//! end, and fails there with the same error as a wrong password.
//!
//! Nothing is read of the system here: the caller brings the salts and the nonces.

pub mod client;
mod exchange;
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;

pub use exchange::{ClientFirst, Exchange};

use crate::prep::sasl_prep;
use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::digest::{Digest, Key};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use sha1::Sha1;
use sha2::Sha256;
use std::fmt;
use std::ops::RangeInclusive;
use zeroize::{Zeroize, Zeroizing};

/// A message may have at most so many bytes.
pub const MOST_PAYLOAD: usize = 4096;
/// The characters that one side's nonce may have.
pub const NONCE_CHARS: RangeInclusive<usize> = 8..=512;
/// The iterations that credentials may have. Fewer make passwords easy to guess for anybody that has seen an exchange;
/// a client that took any number could be kept busy for hours.
pub const ITERATIONS: RangeInclusive<u32> = 4096..=10_000_000;

/// Bytes of a block of both hash functions: the longest key that HMAC takes as it is.
const BLOCK: usize = 64;
/// What the keys and salts of unknown users are derived with, besides the server's secret.
const DECOY: &[u8] = b"Muniment: credentials of nobody, version 1";

/// Bytes that are zeroed when they are dropped.
type Secret = Zeroizing<Vec<u8>>;

/// A SCRAM mechanism: the hash function that the exchange goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// SCRAM-SHA-1, with MongoDB's digest in the place of the password.
    Sha1,
    /// SCRAM-SHA-256.
    Sha256,
}

impl Mechanism {
    /// Both mechanisms.
    pub const ALL: [Mechanism; 2] = [Mechanism::Sha1, Mechanism::Sha256];

    /// The mechanism's name, as clients ask for it.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Sha1 => "SCRAM-SHA-1",
            Mechanism::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism of this name. Case counts.
    pub fn from_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|m| m.name() == name)
    }

    /// The bytes of a salt, as in MongoDB: four fewer than the hash has.
    pub fn salt_len(self) -> usize {
        self.hash_len() - 4
    }

    /// The iterations of new credentials, if nobody has set another number.
    pub fn default_iterations(self) -> u32 {
        match self {
            Mechanism::Sha1 => 10_000,
            Mechanism::Sha256 => 15_000,
        }
    }

    /// The bytes of a hash, a key and a proof.
    pub fn hash_len(self) -> usize {
        match self {
            Mechanism::Sha1 => 20,
            Mechanism::Sha256 => 32,
        }
    }

    /// The password as this mechanism takes it: MongoDB's digest, or the password prepared by SASLprep.
    ///
    /// # Errors
    /// Those of [`sasl_prep`], for SCRAM-SHA-256; none for SCRAM-SHA-1.
    pub fn prepared(self, user: &str, password: &str) -> Result<Zeroizing<String>> {
        match self {
            Mechanism::Sha1 => Ok(password_digest(user, password)),
            Mechanism::Sha256 => Ok(Zeroizing::new(sasl_prep(password)?.into_owned())),
        }
    }

    fn hash(self, bytes: &[u8]) -> Secret {
        match self {
            Mechanism::Sha1 => Zeroizing::new(Sha1::digest(bytes).to_vec()),
            Mechanism::Sha256 => Zeroizing::new(Sha256::digest(bytes).to_vec()),
        }
    }

    /// The HMAC over the parts, one after the other.
    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Secret {
        let hashed = (key.len() > BLOCK).then(|| self.hash(key));
        let key = hashed.as_ref().map_or(key, |hashed| hashed);
        match self {
            Mechanism::Sha1 => mac::<Hmac<Sha1>>(key, parts),
            Mechanism::Sha256 => mac::<Hmac<Sha256>>(key, parts),
        }
    }

    /// RFC 5802's SaltedPassword, which takes the time that a login takes.
    fn salted(self, prepared: &str, salt: &[u8], iterations: u32) -> Secret {
        let mut salted = Zeroizing::new(vec![0; self.hash_len()]);
        let stretch = match self {
            Mechanism::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>,
            Mechanism::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>,
        };
        stretch(prepared.as_bytes(), salt, iterations, &mut salted);
        salted
    }

    fn client_key(self, salted: &[u8]) -> Secret {
        self.hmac(salted, &[b"Client Key"])
    }

    fn server_key(self, salted: &[u8]) -> Secret {
        self.hmac(salted, &[b"Server Key"])
    }
}

/// An HMAC with a key of at most a block, which is the same as with that key and zeros after it.
fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Secret {
    let mut block = Key::<M>::default();
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let mut mac = <M as KeyInit>::new(&block);
    block.as_mut_slice().zeroize();
    parts.iter().for_each(|part| mac.update(part));
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

/// What MongoDB has in the place of a password in SCRAM-SHA-1: the MD5 of user and password, in hexadecimal.
pub fn password_digest(user: &str, password: &str) -> Zeroizing<String> {
    let mut hash = Md5::new();
    for part in [user, ":mongo:", password] {
        hash.update(part);
    }
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
    let mut hex = Zeroizing::new(String::with_capacity(32));
    let hash = Zeroizing::new(<[u8; 16]>::from(hash.finalize()));
    for byte in hash.iter() {
        hex.push(digit(byte >> 4));
        hex.push(digit(byte & 15));
    }
    hex
}

/// The one error of every login that fails, whether the user is unknown or the password is wrong.
pub fn authentication_failed() -> Error {
    Error::new(Code::AuthenticationFailed, "Authentication failed.")
}

/// What the server keeps of a user's password, for one mechanism.
///
/// The keys are zeroed on drop, and `Debug` leaves them and the salt out.
#[derive(Clone)]
pub struct Credentials {
    mechanism: Mechanism,
    iterations: u32,
    salt: Secret,
    stored_key: Secret,
    server_key: Secret,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        shown.field("mechanism", &self.mechanism);
        shown.finish_non_exhaustive()
    }
}

impl Credentials {
    /// Makes credentials of a password. The salt is random bytes, [`Mechanism::salt_len`] of them.
    ///
    /// This takes milliseconds, the more the more iterations.
    ///
    /// # Errors
    /// Those of [`sasl_prep`]; 2 BadValue for a salt of another length, and for iterations out of
    /// [`ITERATIONS`].
    pub fn new(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        iterations: u32,
        salt: &[u8],
    ) -> Result<Credentials> {
        let prepared = mechanism.prepared(user, password)?;
        Credentials::with_prepared(mechanism, &prepared, iterations, salt)
    }

    /// Makes credentials of a password that is already prepared as by [`Mechanism::prepared`]: for clients that
    /// send the digest of SCRAM-SHA-1 instead of the password.
    ///
    /// # Errors
    /// 2 BadValue for a salt of another length than [`Mechanism::salt_len`], and for iterations out of
    /// [`ITERATIONS`].
    pub fn with_prepared(
        mechanism: Mechanism,
        prepared: &str,
        iterations: u32,
        salt: &[u8],
    ) -> Result<Credentials> {
        check_iterations(mechanism, iterations.into())?;
        if salt.len() != mechanism.salt_len() {
            return Err(wrong(mechanism, "salt", "has the wrong length"));
        }
        Ok(Credentials::derive(mechanism, prepared, iterations, salt))
    }

    fn derive(mechanism: Mechanism, prepared: &str, iterations: u32, salt: &[u8]) -> Credentials {
        let salted = mechanism.salted(prepared, salt, iterations);
        Credentials {
            mechanism,
            iterations,
            salt: Zeroizing::new(salt.to_vec()),
            stored_key: mechanism.hash(&mechanism.client_key(&salted)),
            server_key: mechanism.server_key(&salted),
        }
    }

    /// Credentials for a user that does not exist. No password matches them.
    ///
    /// Salt and keys follow from the server's secret and the name, so that who asks again finds the same salt,
    /// as it would for a user that exists. The iterations should be those of new credentials.
    pub fn decoy(
        mechanism: Mechanism,
        user: &str,
        db: &str,
        secret: &[u8],
        iterations: u32,
    ) -> Credentials {
        let user_len = (user.len() as u64).to_be_bytes();
        let derive = |what: &[u8], len: usize| {
            let name = mechanism.name().as_bytes();
            let parts = [DECOY, what, name, &user_len, user.as_bytes(), db.as_bytes()];
            let mut bytes = Mechanism::Sha256.hmac(secret, &parts);
            bytes.truncate(len);
            bytes
        };
        Credentials {
            mechanism,
            iterations,
            salt: derive(b" salt ", mechanism.salt_len()),
            stored_key: derive(b" stored ", mechanism.hash_len()),
            server_key: derive(b" server ", mechanism.hash_len()),
        }
    }

    /// The mechanism that these credentials are for.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The iterations that the password went through.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// The credentials as MongoDB keeps them in a user's document:
    /// `{iterationCount, salt, storedKey, serverKey}`, the latter three in base64.
    pub fn to_doc(&self) -> DocBuf {
        let base64 = |bytes: &Secret| Zeroizing::new(BASE64_STANDARD.encode(bytes.as_slice()));
        doc! {
            "iterationCount": i32::try_from(self.iterations).unwrap_or(i32::MAX),
            "salt": base64(&self.salt).as_str(),
            "storedKey": base64(&self.stored_key).as_str(),
            "serverKey": base64(&self.server_key).as_str(),
        }
    }

    /// Reads what [`Credentials::to_doc`] has made, or MongoDB. Other fields are ignored.
    ///
    /// # Errors
    /// 2 BadValue for a field that is missing, of another type, out of range, or of a length that the mechanism
    /// does not have. The error names the field, and not its value.
    pub fn from_doc(mechanism: Mechanism, doc: Doc<'_>) -> Result<Credentials> {
        let iterations = match doc.get("iterationCount") {
            Some(n) if n.is_number() => n.as_i64_exact().unwrap_or(0),
            Some(_) => return Err(wrong(mechanism, "iterationCount", "is not a number")),
            None => return Err(wrong(mechanism, "iterationCount", "is missing")),
        };
        let bytes = |name: &str, len: usize| {
            let text = match doc.get(name) {
                Some(Value::String(text)) => text,
                Some(_) => return Err(wrong(mechanism, name, "is not a string")),
                None => return Err(wrong(mechanism, name, "is missing")),
            };
            match BASE64_STANDARD.decode(text).map(Zeroizing::new) {
                Ok(bytes) if bytes.len() == len => Ok(bytes),
                Ok(_) => Err(wrong(mechanism, name, "has the wrong length")),
                Err(_) => Err(wrong(mechanism, name, "is not base64")),
            }
        };
        Ok(Credentials {
            mechanism,
            iterations: check_iterations(mechanism, iterations)?,
            salt: bytes("salt", mechanism.salt_len())?,
            stored_key: bytes("storedKey", mechanism.hash_len())?,
            server_key: bytes("serverKey", mechanism.hash_len())?,
        })
    }
}

/// The error for a field of credentials.
fn wrong(mechanism: Mechanism, field: &str, why: &str) -> Error {
    let name = mechanism.name();
    Error::bad_value(format!("{name} credentials: {field} {why}"))
}

fn check_iterations(mechanism: Mechanism, iterations: i64) -> Result<u32> {
    match u32::try_from(iterations) {
        Ok(n) if ITERATIONS.contains(&n) => Ok(n),
        _ => {
            let (least, most) = ITERATIONS.into_inner();
            let why = format!("must be from {least} to {most}");
            Err(wrong(mechanism, "iterationCount", &why))
        }
    }
}

/// The error for a message that is not what the exchange asks for. It does not have what the other side sent.
fn malformed(message: &str, what: &str) -> Error {
    Error::bad_value(format!("SCRAM: the {message} message {what}"))
}

/// A message as text.
fn text<'a>(message: &str, payload: &'a [u8]) -> Result<&'a str> {
    if payload.len() > MOST_PAYLOAD {
        return Err(malformed(message, "is too long"));
    }
    match std::str::from_utf8(payload) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(malformed(message, "is not text")),
    }
}

/// The value of a message's next field, which must be the named one.
fn field<'a>(message: &str, fields: &mut std::str::Split<'a, char>, name: &str) -> Result<&'a str> {
    let found = fields.next().unwrap_or_default();
    if found.starts_with("m=") {
        return Err(malformed(message, "asks for an extension, m="));
    }
    let value = found.strip_prefix(name).and_then(|v| v.strip_prefix('='));
    match value {
        Some(value) if !value.is_empty() => Ok(value),
        Some(_) => Err(malformed(message, &format!("has an empty {name}="))),
        None => Err(malformed(message, &format!("lacks {name}="))),
    }
}

/// Passes over the optional fields at a message's end, which nobody has to know, if they look as they should.
fn skip_extensions<'a>(message: &str, fields: impl Iterator<Item = &'a str>) -> Result<()> {
    for field in fields {
        match field.as_bytes() {
            // The letters that have a meaning have it at their own places only.
            [
                b'a' | b'c' | b'e' | b'i' | b'm' | b'n' | b'p' | b'r' | b's' | b'v',
                b'=',
                ..,
            ] => {
                return Err(malformed(message, "has a field at the wrong place"));
            }
            [name, b'=', _, ..] if name.is_ascii_alphabetic() => {}
            _ => return Err(malformed(message, "has a malformed extension")),
        }
    }
    Ok(())
}

/// True for characters that a nonce may have.
fn printable(nonce: &str) -> bool {
    nonce.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

/// The bytes of a field in base64, which must be as many as they should.
fn decoded(message: &str, name: &str, value: &str, len: usize) -> Result<Secret> {
    match BASE64_STANDARD.decode(value).map(Zeroizing::new) {
        Ok(bytes) if bytes.len() == len => Ok(bytes),
        Ok(_) => Err(malformed(
            message,
            &format!("has {name}= of a wrong length"),
        )),
        Err(_) => Err(malformed(message, &format!("has {name}= not in base64"))),
    }
}
