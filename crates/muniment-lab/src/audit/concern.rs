//! Write concerns as the command line names them, and the promise of their acknowledgement.

use super::fault::Fault;
use super::judge::Promise;
use muniment_load::fail::{Failure, Result};
use muniment_value::{DocBuf, doc};
use std::time::Duration;

/// The ways in which a server is brought down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process ends; data that it gave to the operating system stay.
    Process,
    /// The data that were never synced are gone as well.
    Power,
    /// A fault hits a set that the lab started.
    Fault(Fault),
}

/// The kind of server whose acknowledgement promises something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// A Muniment with this commit interval.
    Muniment(Duration),
    /// A single server whose configuration is unknown.
    Other,
    /// A replica set whose primary is killed and replaced.
    Set,
}

/// A write concern.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Concern {
    /// Its name on the command line.
    pub name: String,
    /// The document that is sent with commands.
    pub doc: DocBuf,
    /// Whether the server sends no reply.
    pub unacknowledged: bool,
    journaled: bool,
    majority: bool,
    /// Whether `j: false` was given.
    unjournaled: bool,
}

/// Parses `w:0,w:1,j:true,majority,w:2+j:true,…`.
///
/// # Errors
/// Names the word that is no write concern, and lists those that exist.
pub(crate) fn parse_list(text: &str) -> Result<Vec<Concern>> {
    let mut all: Vec<Concern> = Vec::new();
    for word in text.split(',') {
        let c = parse(word)
            .ok_or_else(|| {
                Failure(format!(
                    "--concerns {text}: '{word}' is no write concern; there are w:N, w:MODE, majority, j:true, j:false and fsync:true, joined with +, as in w:0,w:1,j:true,majority,w:2+j:true"
                ))
            })?;
        if all.iter().any(|a| a.name == c.name) {
            return Err(Failure(format!(
                "--concerns {text}: '{word}' is there twice"
            )));
        }
        all.push(c);
    }
    Ok(all)
}

fn parse(word: &str) -> Option<Concern> {
    let mut doc = DocBuf::new();
    let mut w: Option<Option<i32>> = None; // `Some(None)` stands for a mode
    let mut c = Concern {
        name: word.to_string(),
        doc: doc! {},
        unacknowledged: false,
        journaled: false,
        majority: false,
        unjournaled: false,
    };
    for part in word.split('+') {
        let (name, value) = part.split_once(':').unwrap_or(("w", part));
        match (name, value) {
            ("w", _) if w.is_some() => return None,
            ("w", value) => match value.parse::<i32>() {
                Ok(n) if (0..=50).contains(&n) => {
                    doc.append("w", n);
                    w = Some(Some(n));
                }
                Ok(_) => return None,
                // A bare word other than `majority` is more likely a slip than the name of a mode,
                // so modes need `w:` in front.
                Err(_) if value.is_empty() || (value != "majority" && !part.contains(':')) => {
                    return None;
                }
                Err(_) => {
                    doc.append("w", value);
                    c.majority = value == "majority";
                    w = Some(None);
                }
            },
            ("j" | "fsync", _) if c.journaled || c.unjournaled => return None,
            ("j" | "fsync", "true") => {
                doc.append(name, true);
                c.journaled = true;
            }
            ("j", "false") => {
                doc.append("j", false);
                c.unjournaled = true;
            }
            _ => return None,
        }
    }
    match w {
        None => drop(doc.append("w", 1)),
        // Without a timeout, members that never acknowledge would hold the audit up for ever.
        Some(None | Some(2..)) => drop(doc.append("wtimeout", 10_000)),
        _ => {}
    }
    c.unacknowledged = w == Some(Some(0)) && !c.journaled;
    c.doc = doc;
    Some(c)
}

impl Concern {
    /// The promise that a server makes for it. Sources: our README, "Durability"; the MongoDB
    /// manual, "Write Concern": `j: true` is acknowledged once it is in the on-disk journal, and a
    /// majority's writes are not rolled back. What a single unknown server keeps under the other
    /// concerns depends on its configuration, so no promise is assumed.
    pub(crate) fn promise(&self, server: Server, crash: Crash) -> Promise {
        match (server, crash) {
            // A set of the lab's own computes its promise itself, see [`super::safety`].
            (_, Crash::Fault(_)) => Promise::Unknown,
            (Server::Muniment(_), Crash::Process) => Promise::NothingLost,
            (Server::Muniment(_), Crash::Power) if self.journaled || self.majority => {
                Promise::NothingLost
            }
            (Server::Muniment(interval), Crash::Power) => Promise::Within(interval),
            (Server::Other, _) if self.journaled => Promise::NothingLost,
            (Server::Set, _) if self.majority && !self.unjournaled => Promise::NothingLost,
            (Server::Other | Server::Set, _) => Promise::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn what_is_sent() {
        for (word, want, silent) in [
            ("w:0", doc! { "w": 0 }, true),
            ("w:1", doc! { "w": 1 }, false),
            ("j:true", doc! { "j": true, "w": 1 }, false),
            ("fsync:true", doc! { "fsync": true, "w": 1 }, false),
            ("w:0+j:true", doc! { "w": 0, "j": true }, false),
            (
                "majority",
                doc! { "w": "majority", "wtimeout": 10_000 },
                false,
            ),
            (
                "w:2+j:false",
                doc! { "w": 2, "j": false, "wtimeout": 10_000 },
                false,
            ),
            ("w:dc", doc! { "w": "dc", "wtimeout": 10_000 }, false),
        ] {
            let c = &parse_list(word).unwrap()[0];
            assert_eq!((&c.doc, c.unacknowledged), (&want, silent), "{word}");
        }
        assert_eq!(parse_list("w:0,w:1,majority").unwrap().len(), 3);
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("w:1,fast", "'fast' is no write concern"),
            ("w:-1", "'w:-1'"),
            ("w:1+w:2", "'w:1+w:2'"),
            ("j:true+j:false", "'j:true+j:false'"),
            ("j:maybe", "'j:maybe'"),
            ("", "'' is no"),
            ("w:1,w:1", "twice"),
        ] {
            let e = parse_list(text).unwrap_err().0;
            assert!(e.contains(why), "{text}: {e}");
        }
    }

    #[test]
    fn the_promises() {
        let interval = Duration::from_millis(100);
        let us = Server::Muniment(interval);
        let within = Promise::Within(interval);
        use Crash::{Power, Process};
        use Promise::{NothingLost, Unknown};
        for (word, ours, power, other, set) in [
            ("w:0", NothingLost, within, Unknown, Unknown),
            ("w:1", NothingLost, within, Unknown, Unknown),
            ("j:true", NothingLost, NothingLost, NothingLost, Unknown),
            ("majority", NothingLost, NothingLost, Unknown, NothingLost),
            (
                "w:majority+j:false",
                NothingLost,
                NothingLost,
                Unknown,
                Unknown,
            ),
        ] {
            let c = &parse_list(word).unwrap()[0];
            assert_eq!(c.promise(us, Process), ours, "{word}");
            assert_eq!(c.promise(us, Power), power, "{word}");
            assert_eq!(c.promise(Server::Other, Process), other, "{word}");
            assert_eq!(c.promise(Server::Set, Process), set, "{word}");
        }
    }
}
