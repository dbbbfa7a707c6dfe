//! `--topology`: the servers that an experiment starts for itself. Each form of the option belongs
//! to one experiment.

use super::shape::Shape;
use crate::lab::Preset;
use crate::process;
use crate::targets::Endpoint;
use muniment_load::fail::{Failure, Result};
use muniment_options::{Opt, Takes};
use std::path::PathBuf;

/// The option of every experiment that starts several servers.
pub(crate) const TOPOLOGY: Opt = Opt::new(
    "topology",
    "T",
    Takes::Checked(|v| check(v).map(drop).map_err(|e| e.0)),
    "two-dcs (w1): start four members in two data centres, with relays between them; \
     shards=server,1,2,4,6,8 (w5): start clusters of so many shards on this machine, one after the \
     other, and one server without a router",
);

/// The most shards of a cluster.
const MOST_SHARDS: usize = 64;

/// What holds the data of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// One server, which clients reach without a router.
    Server,
    /// So many shards, which clients reach through a router.
    Shards(usize),
}

impl Count {
    /// Its name in tables and figures.
    pub(crate) fn name(self) -> String {
        match self {
            Count::Server => "one server".into(),
            Count::Shards(1) => "1 shard".into(),
            Count::Shards(n) => format!("{n} shards"),
        }
    }

    /// The number of shards; 0 for one server.
    pub(crate) fn shards(self) -> usize {
        match self {
            Count::Server => 0,
            Count::Shards(n) => n,
        }
    }
}

/// The experiment that takes this topology; the others run as they do without one. `None` if there
/// is no such topology.
pub(crate) fn owner(text: &str) -> Option<&'static str> {
    check(text).ok()
}

/// The experiment that takes this topology.
///
/// # Errors
/// There is no topology of this name, or a number of shards makes no sense.
fn check(text: &str) -> Result<&'static str> {
    match text.split_once('=') {
        Some(("shards", counts)) => counts_of(counts).map(|_| "w5"),
        _ => match Shape::named(text, Preset::Smoke) {
            Ok(_) => Ok("w1"),
            Err(e) => Err(Failure(format!("{e}, and shards=server,1,2,4"))),
        },
    }
}

/// The numbers of shards that `--topology` asks for; `None` if it asks for something else.
pub(crate) fn shards(text: &str) -> Option<Vec<Count>> {
    counts_of(text.strip_prefix("shards=")?).ok()
}

/// Parses numbers of shards, `server,1,2`; each may be given once.
fn counts_of(text: &str) -> Result<Vec<Count>> {
    let mut all = Vec::new();
    for word in text.split(',').map(str::trim) {
        let count = match (word, word.parse()) {
            ("server", _) => Count::Server,
            (_, Ok(n)) if (1..=MOST_SHARDS).contains(&n) => Count::Shards(n),
            _ => {
                return Err(Failure(format!(
                    "shards are numbers from 1 to {MOST_SHARDS}, and 'server' for one server without a router, \
                     separated by commas"
                )));
            }
        };
        if all.contains(&count) {
            return Err(Failure(format!("{} is named twice", count.name())));
        }
        all.push(count);
    }
    Ok(all)
}

/// The program of the servers that a topology starts.
///
/// # Errors
/// The lab was given a server that runs already.
pub(crate) fn program(endpoint: &Endpoint) -> Result<PathBuf> {
    match endpoint {
        Endpoint::Embedded => process::own(),
        Endpoint::Program(p) => Ok(p.clone()),
        Endpoint::Server(_) => Err(Failure::new(
            "--topology starts its servers itself; those that run already are measured by --uri alone",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shards_are_counted_as_they_are_named() {
        let all = shards("shards=server, 1,8").unwrap();
        assert_eq!(all, [Count::Server, Count::Shards(1), Count::Shards(8)]);
        let names: Vec<String> = all.iter().map(|c| c.name()).collect();
        assert_eq!(names, ["one server", "1 shard", "8 shards"]);
        let numbers: Vec<usize> = all.iter().map(|c| c.shards()).collect();
        assert_eq!(numbers, [0, 1, 8]);
        assert_eq!(shards("two-dcs"), None);
        assert_eq!(
            [owner("two-dcs"), owner("shards=1")],
            [Some("w1"), Some("w5")]
        );
        for (bad, why) in [
            ("shards=0", "from 1 to 64"),
            ("shards=65", "from 1 to 64"),
            ("shards=", "'server' for one server"),
            ("shards=1,x", "from 1 to 64"),
            ("shards=2,2", "2 shards is named twice"),
            ("ring", "there is two-dcs, and shards=server,1,2,4"),
        ] {
            let e = TOPOLOGY.check(bad).unwrap_err();
            assert!(e.contains(why), "{bad}: {e}");
        }
    }
}
