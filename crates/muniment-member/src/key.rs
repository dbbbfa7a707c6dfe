//! The keys by which members of a set know each other: the file of `--keyFile`, and the proofs made
//! with what is in it.
//!
//! As in MongoDB the file holds a key of 6 to 1024 base64 characters, whose whitespace does not count,
//! or a YAML list of several: then a member proves that it knows any of them, so that keys can be
//! changed one member at a time (old and new on all, then the new one alone).
//!
//! Each key is stretched once, when the file is read (PBKDF2-HMAC-SHA-256). The salt is the same for all sets,
//! since the members of a cluster of shards prove themselves across sets, and before a set has joined.
//! Proofs are shown to the called side, which may be any address that a member was told to call, and with
//! a stretched key that side cannot try short keys quickly. A proof is an HMAC-SHA-256 with the stretched
//! key. It goes over words that nothing else begins with, and the exchange that the proof belongs to: both
//! sides' nonces, the caller, the called member, the set, and the side that proves, each with its length.
//! So no proof can be used again, for the other side, in another exchange or towards another member.
//!
//! Must not show a key, nor compare what depends on one in a time that depends on it, too.

use hmac::{Hmac, KeyInit, Mac};
use muniment_tls::Binding;
use muniment_value::{Error, Result};
use saphyr_parser::{Event, Marker, Parser};
use sha2::Sha256;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Characters of a key, as in MongoDB.
const LENGTHS: std::ops::RangeInclusive<usize> = 6..=1024;
/// Bytes of a file that holds the most keys of the greatest length, with room for comments.
const MOST_BYTES: u64 = 64 << 10;
/// Rounds of stretching: some 6 ms for each key, once, at the start.
const ROUNDS: u32 = 50_000;
/// The words that each proof begins with: they keep it from being taken for anything else.
const DOMAIN: &[u8] = b"Muniment: members of a cluster, version 3";

/// A file may hold at most so many keys, since the called side checks each proof against each of its keys.
pub const MOST: usize = 8;
/// Bytes of a nonce and of a proof.
pub const LEN: usize = 32;

/// A side's part of an exchange.
pub type Nonce = [u8; LEN];

/// The side that proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that has opened the connection.
    Caller,
    /// The member that was called.
    Called,
}

/// What a proof speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The set's name.
    pub set: String,
    /// The caller, as it calls itself.
    pub from: String,
    /// The member that is called, as the configuration says where it is.
    pub to: String,
    /// The caller's nonce.
    pub caller: Nonce,
    /// The nonce of the member that was called.
    pub called: Nonce,
    /// What both know their connection by, if it uses TLS. So a proof is of no use to one that stands between
    /// them with a certificate of its own.
    pub channel: Option<Binding>,
}

/// Keys of fewer characters can be guessed by somebody with many processors.
const SHORT: usize = 20;

/// The keys of a file, stretched.
pub struct Keys {
    keys: Vec<Box<[u8]>>,
    are_short: bool,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.keys.len())
    }
}

impl Keys {
    fn new(keys: Vec<Box<[u8]>>, are_short: bool) -> Keys {
        Keys { keys, are_short }
    }

    /// Whether one of them had few characters.
    pub fn are_short(&self) -> bool {
        self.are_short
    }

    /// Reads a file of keys.
    ///
    /// # Errors
    /// 2 BadValue for a file that others may read, and for what is no key; the disk's.
    pub fn read(path: &Path) -> Result<Keys> {
        let shown = path.display();
        let cannot = |e| Error::from(e).context(&format!("cannot read the key file {shown}: "));
        let file = File::open(path).map_err(cannot)?;
        let mode = file.metadata().map_err(cannot)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(Error::bad_value(format!(
                "permissions on {shown} are too open: only its owner may have any on a key file \
                 (chmod 600)"
            )));
        }
        let mut text = String::new();
        file.take(MOST_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(cannot)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(Error::bad_value(format!(
                "the key file {shown} has more than {MOST_BYTES} bytes"
            )));
        }
        let keys = Keys::parse(&text)
            .map_err(|why| Error::bad_value(format!("security key in {shown}: {why}")))?;
        Ok(keys.stretched())
    }

    fn stretched(&self) -> Keys {
        let stretch = |key: &[u8]| pbkdf2::pbkdf2_hmac_array::<Sha256, LEN>(key, DOMAIN, ROUNDS);
        let keys = self.keys.iter().map(|key| Box::from(stretch(key)));
        Keys::new(keys.collect(), self.are_short)
    }

    fn parse(text: &str) -> std::result::Result<Keys, String> {
        let keys = items(text)?;
        let keys: Vec<_> = keys
            .iter()
            .map(|k| key(k))
            .collect::<std::result::Result<_, _>>()?;
        match keys.len() {
            0 => Err("there is none".to_string()),
            n if n > MOST => Err(format!("there are {n}, and at most {MOST} are taken")),
            _ => {
                let are_short = keys.iter().any(|key| key.len() < SHORT);
                Ok(Keys::new(keys, are_short))
            }
        }
    }

    /// The keys as they were stretched.
    pub(crate) fn stretched_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    /// The keys of a text, not stretched.
    #[cfg(test)]
    pub(crate) fn of_text(text: &str) -> Keys {
        Keys::parse(text).unwrap_or(Keys::new(Vec::new(), false))
    }

    /// A proof by each key.
    pub fn proofs(&self, side: Side, exchange: &Exchange) -> Vec<[u8; LEN]> {
        let all = self.keys.iter().filter_map(|key| mac(key, side, exchange));
        all.map(|mac| mac.finalize().into_bytes().into()).collect()
    }

    /// The key that one of the proofs was made with, alone.
    pub fn proven<'p>(
        &self,
        side: Side,
        exchange: &Exchange,
        proofs: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Option<Keys> {
        let known = |key: &[u8]| {
            mac(key, side, exchange).is_some_and(|mac| {
                let mut proofs = proofs.clone();
                // In constant time for each.
                proofs.any(|proof| mac.clone().verify_slice(proof).is_ok())
            })
        };
        let key = self.keys.iter().find(|key| known(key))?;
        Some(Keys::new(vec![key.clone()], self.are_short))
    }
}

/// `None` for no key at all; there is one of any length.
fn mac(key: &[u8], side: Side, exchange: &Exchange) -> Option<Hmac<Sha256>> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?;
    let side: &[u8] = match side {
        Side::Caller => b"caller",
        Side::Called => b"called",
    };
    let (set, from, to) = (&exchange.set, &exchange.from, &exchange.to);
    let names = [DOMAIN, side, set.as_bytes(), from.as_bytes(), to.as_bytes()];
    for part in names
        .into_iter()
        .chain([&exchange.caller[..], &exchange.called])
    {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    // Without TLS nothing is added, so that members of older versions come to the same proof.
    if let Some(channel) = &exchange.channel {
        mac.update(channel);
    }
    Some(mac)
}

/// The scalars of the file, which is YAML: the only one, or those of its list.
fn items(text: &str) -> std::result::Result<Vec<String>, String> {
    let mut items = Vec::new();
    let mut in_list = false;
    for event in Parser::new_from_str(text) {
        // The parser's own words may quote the key, so that only the place is told.
        let (event, span) = event.map_err(|e| at(e.marker(), "it is not YAML"))?;
        match event {
            Event::Scalar(text, ..) => items.push(text.into_owned()),
            Event::SequenceStart(..) if !in_list && items.is_empty() => in_list = true,
            Event::DocumentStart(_) if in_list || !items.is_empty() => {
                return Err(at(&span.start, "a second document begins"));
            }
            Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_) => {
                return Err(at(&span.start, "it is neither a key nor a list of keys"));
            }
            _ => {}
        }
    }
    Ok(items)
}

fn at(place: &Marker, why: &str) -> String {
    format!("line {}, column {}: {why}", place.line(), place.col() + 1)
}

fn key(item: &str) -> std::result::Result<Box<[u8]>, String> {
    let key: String = item.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    // Which character it is would tell of the key.
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    if !key.chars().all(is_base64) {
        return Err("it has characters that are not base64".to_string());
    }
    if !LENGTHS.contains(&key.len()) {
        return Err(format!(
            "it has length {}, must be between {} and {} chars",
            key.len(),
            LENGTHS.start(),
            LENGTHS.end()
        ));
    }
    Ok(key.into_bytes().into_boxed_slice())
}

/// Random bytes, which nobody else has.
///
/// # Errors
/// If the system has none: then there is no proof.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::internal(format!("no random bytes: {e}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        let keys = Keys::parse(text).unwrap();
        let all = keys.keys.iter();
        all.map(|k| String::from_utf8(k.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn a_file_holds_a_key_or_a_list() {
        for (text, wanted) in [
            ("abc\ndef\n", &["abcdef"][..]),
            ("  a b\tc d e f==  ", &["abcdef=="]),
            ("'abcdef'", &["abcdef"]),
            ("# ours\nabc\ndef # its end", &["abcdef"]),
            ("abc\r\ndef\r\n", &["abcdef"]),
            ("+/cdef==", &["+/cdef=="]),
            ("---\n- abcdef\n- ghi\n  jkl\n...", &["abcdef", "ghijkl"]),
            ("- \"abcdef\"\n- 'ghijkl'", &["abcdef", "ghijkl"]),
            ("-\n  abcdef", &["abcdef"]),
            ("[abcdef, 'ghijkl']", &["abcdef", "ghijkl"]),
        ] {
            assert_eq!(parsed(text), wanted, "{text:?}");
        }
        assert_eq!(parsed(&"a".repeat(1024))[0].len(), 1024);
        for (text, why) in [
            ("", "none"),
            ("# nothing", "none"),
            ("abcde", "length 5"),
            (&"a".repeat(1025), "length 1025"),
            ("abcdef\n- ghijkl", "not base64"),
            (
                "abc # its beginning\ndef",
                "line 1, column 5: it is not YAML",
            ),
            ("- abcdef\nghijkl", "it is not YAML"),
            ("abcdef\n---\nghijkl", "line 2, column 1: a second document"),
            ("- abcdef\n-\n", "length 0"),
            ("abc_def", "not base64"),
            ("key: abcdef", "line 1, column 1: it is neither"),
            ("- [abcdef]", "line 1, column 3: it is neither"),
            ("- &a abcdef\n- *a", "line 2, column 3: it is neither"),
            ("---\n...", "length 0"),
            ("äbcdef", "not base64"),
            (&"- abcdef\n".repeat(9), "at most 8"),
        ] {
            let e = Keys::parse(text).unwrap_err();
            assert!(e.contains(why), "{text:?}: {e}");
        }
    }

    #[test]
    fn files_that_others_may_read_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abcdef").unwrap();
        let read = |mode| {
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
            Keys::read(file.path())
        };
        for mode in [0o600, 0o400, 0o700] {
            read(mode).unwrap();
        }
        for mode in [0o640, 0o604, 0o610, 0o602] {
            let e = read(mode).unwrap_err();
            assert!(e.message().contains("are too open"), "{e}");
        }
        std::fs::write(file.path(), vec![b' '; 1 << 20]).unwrap();
        let e = read(0o600).unwrap_err();
        assert!(e.message().contains("more than"), "{e}");
        assert!(Keys::read(Path::new("/nowhere/key")).is_err());
    }

    #[test]
    fn a_key_is_stretched() {
        let keys = |text: &str| Keys::parse(text).unwrap().stretched().keys;
        let one = keys("abcdef");
        assert_eq!(one, keys("abc def"));
        assert_ne!(&*one[0], b"abcdef");
        assert_ne!(one, keys("abcdeg"));
        assert_eq!(keys("- abcdeg\n- abcdef")[1], one[0]);
    }

    fn exchange() -> Exchange {
        Exchange {
            set: "rs0".into(),
            from: "a:1".into(),
            to: "b:2".into(),
            caller: [1; LEN],
            called: [2; LEN],
            channel: None,
        }
    }

    #[test]
    fn a_proof_is_of_one_side_of_one_exchange() {
        let ours = Keys::parse("- oldold\n- newnew").unwrap();
        let theirs = Keys::parse("newnew").unwrap();
        let strange = Keys::parse("strange").unwrap();
        let proofs = ours.proofs(Side::Caller, &exchange());
        assert_eq!(proofs.len(), 2);
        let proves = |keys: &Keys, side, exchange: &Exchange| {
            keys.proven(side, exchange, proofs.iter().map(|p| &p[..]))
        };
        let common = proves(&theirs, Side::Caller, &exchange()).unwrap();
        assert_eq!(&*common.keys[0], b"newnew");
        assert_eq!(format!("{common:?}"), "1 keys");
        assert!(proves(&strange, Side::Caller, &exchange()).is_none());
        assert!(proves(&theirs, Side::Called, &exchange()).is_none());
        let others: [fn(&mut Exchange); 7] = [
            |e| e.set = "rs1".into(),
            |e| e.from = "a:2".into(),
            |e| e.to = "c:2".into(),
            |e| e.caller = [3; LEN],
            |e| e.called = [3; LEN],
            |e| e.channel = Some([4; 32]),
            // The same bytes in a row, otherwise parted.
            |e| (e.from, e.to) = ("a:1b".into(), ":2".into()),
        ];
        for change in others {
            let mut other = exchange();
            change(&mut other);
            assert!(proves(&theirs, Side::Caller, &other).is_none(), "{other:?}");
        }
        let cut = [&proofs[1][..31]];
        assert!(
            theirs
                .proven(Side::Caller, &exchange(), cut.into_iter())
                .is_none()
        );
        assert!(
            theirs
                .proven(Side::Caller, &exchange(), [].into_iter())
                .is_none()
        );
    }
}
