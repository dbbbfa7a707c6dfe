//! The servers that can be measured: the embedded server, a server that runs already, or another
//! program that is started as the embedded one is, so that two builds can be compared.

use crate::uri::{self, Uri};
use muniment_load::fail::{Failure, Result};
use muniment_options::{Given, Opt};
use std::path::PathBuf;

/// The origin of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A fresh server of this executable.
    Embedded,
    /// A server that runs already.
    Server(Uri),
    /// A fresh server of this other executable, which must understand `serve --port 0 --portFile
    /// FILE`.
    Program(PathBuf),
}

impl Endpoint {
    /// Whether the server was running before the lab and is not ended by it.
    pub fn is_external(&self) -> bool {
        matches!(self, Endpoint::Server(_))
    }
}

/// A target with the name by which it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name that tables show.
    pub name: String,
    /// The origin of the server.
    pub endpoint: Endpoint,
}

/// Parses `name=mongodb://…`, `name=embedded` or `name=/path/to/muniment`.
///
/// # Errors
/// There is no name, the lab cannot use the connection string, or the program does not exist.
pub(crate) fn parse(text: &str) -> Result<Named> {
    let fail = |why: &str| {
        let text = uri::redacted(text);
        Err(Failure(format!("--target {text}: {why}")))
    };
    let Some((name, what)) = text.split_once('=') else {
        return fail("it must be NAME=URI, NAME=embedded or NAME=PROGRAM");
    };
    if name.is_empty() || name.contains(':') || name.contains('/') {
        return fail("give the target a short name in front of '='");
    }
    let endpoint = if what == "embedded" {
        Endpoint::Embedded
    } else if what.starts_with("mongodb") {
        Endpoint::Server(uri::parse(what).map_err(|e| e.while_doing(&format!("--target {name}")))?)
    } else {
        let program = PathBuf::from(what);
        if !program.is_file() {
            return fail(&format!(
                "'{what}' is neither 'embedded' nor mongodb://… nor a program's file"
            ));
        }
        Endpoint::Program(program)
    };
    Ok(Named {
        name: name.to_string(),
        endpoint,
    })
}

/// The endpoint of a list that has at most one target; an empty list stands for the embedded
/// server.
pub(crate) fn only(targets: &[Named]) -> Endpoint {
    match targets {
        [only] => only.endpoint.clone(),
        _ => Endpoint::Embedded,
    }
}

/// The options that name the servers to measure.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::text(
        "uri",
        "URI",
        "measure this server, mongodb://[user:password@]host[:port][,host…][/[db]][?options] (default: an embedded server \
         on a free port with temporary files)",
    ),
    Opt::text(
        "target",
        "NAME=T",
        "measure this target: a connection string, 'embedded', or the file of a program that is \
         started as the embedded server is. Given several times, the targets take turns and are \
         compared with the first",
    ),
];

/// The targets of a command line, in order; an empty list stands for the embedded server.
///
/// # Errors
/// A target that cannot be used, or a second one where only one is allowed.
pub(crate) fn of(given: &Given) -> Result<Vec<Named>> {
    let mut all: Vec<Named> = Vec::new();
    for (option, value) in given.options() {
        let target = match option {
            "uri" => {
                let uri = uri::parse(value)?;
                Named {
                    name: uri.hosts.join(","),
                    endpoint: Endpoint::Server(uri),
                }
            }
            "target" => parse(value)?,
            _ => continue,
        };
        if given.has("uri") && !all.is_empty() {
            return Err(Failure::new(
                "--uri is the only target: give several as --target NAME=URI",
            ));
        }
        if all.iter().any(|t| t.name == target.name) {
            return Err(Failure(format!(
                "--target {}: this name has been given already",
                target.name
            )));
        }
        all.push(target);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_three_kinds() {
        assert_eq!(parse("a=embedded").unwrap().endpoint, Endpoint::Embedded);
        let n = parse("b=mongodb://h:1/?directConnection=true").unwrap();
        assert_eq!(n.name, "b");
        assert!(n.endpoint.is_external());
        let me = std::env::current_exe().unwrap();
        let n = parse(&format!("old={}", me.display())).unwrap();
        assert_eq!(n.endpoint, Endpoint::Program(me));
    }

    #[test]
    fn one_uri_or_several_targets() {
        let given = |all: &[(usize, &str)]| {
            let mut given = Given::default();
            for (option, value) in all {
                given.add(&OPTIONS[*option], value.into()).unwrap();
            }
            of(&given)
        };
        assert_eq!(given(&[]).unwrap(), []);
        assert_eq!(given(&[(1, "a=embedded")]).unwrap().len(), 1);
        assert_eq!(given(&[(0, "mongodb://h")]).unwrap()[0].name, "h:27017");
        let e = given(&[(1, "a=embedded"), (1, "a=embedded")])
            .unwrap_err()
            .0;
        assert!(e.contains("has been given already"), "{e}");
        let e = given(&[(1, "a=embedded"), (0, "mongodb://h")])
            .unwrap_err()
            .0;
        assert!(e.contains("--uri is the only target"), "{e}");
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("mongodb://h", "must be NAME=URI"),
            ("=embedded", "a short name"),
            ("mongodb://h/?w=1", "a short name"),
            ("a=/no/such/program", "neither 'embedded'"),
            ("a=mongodb://h:0", "0 is no port"),
        ] {
            let e = parse(text).unwrap_err().0;
            assert!(e.contains(why), "{text}: {e}");
        }
    }
}
