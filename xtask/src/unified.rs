//! The drivers' unified specification tests, run by the program in `crates/unified`. They come from the
//! source package of a driver, which the package manager fetches, or from a given directory.

use crate::clients::{ensure, once, suite_dir, venv};
use crate::run::{cargo, check, root, target_dir};
use crate::server::{SET, Server};
use crate::test::{Outcome, missing};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable with the directory of the tests, if it is not that of the package.
pub const SUITE: &str = "MUNIMENT_UNIFIED_SUITE";

/// The deployments that the tests run against: the topology, and the list of known failures.
const DEPLOYMENTS: &[(&str, &str)] = &[
    ("single", "known-failures.txt"),
    ("replicaset", "known-failures-replicaset.txt"),
    ("sharded", "known-failures-sharded.txt"),
];

/// Runs all tests that apply to the server. Without a directory the package is fetched once, which takes a
/// minute.
pub fn run() -> Result<Outcome, String> {
    let suite = match std::env::var_os(SUITE) {
        Some(dir) => PathBuf::from(dir),
        None if ensure("python3", "python3") => package()?,
        None => return missing("python3"),
    };
    check(cargo().args(["build", "--workspace", "--bin", "unified"]))?;
    for (topology, known) in DEPLOYMENTS {
        // The last one is what the tests are connected to.
        let servers = deployment(topology, &crate::run::server_binary())?;
        let server = servers.last().ok_or("there is no server")?;
        let mut command = Command::new(target_dir().join("debug").join("unified"));
        command
            .arg("--suite")
            .arg(&suite)
            .args(["--uri", &server.uri()])
            .args(["--topology", topology])
            .arg("--known")
            .arg(root().join("tests/unified").join(known));
        check(&mut command)?;
    }
    Ok(Outcome::Passed)
}

/// The servers of a deployment: `single`, `replicaset`, `sharded` or `divided`. Those of a cluster are a configuration,
/// two shards or (`divided`) three, and a router, which is the last one.
pub fn deployment(topology: &str, binary: &Path) -> Result<Vec<Server>, String> {
    let start = |arguments: &[&str]| Server::start_with(binary, arguments);
    match topology {
        "single" => Ok(vec![start(&[])?]),
        "replicaset" => Ok(vec![start(SET)?]),
        _ => {
            let set = |name, role| start(&["--replSet", name, "--autoInitiate", role]);
            let config = set("cfg", "--configsvr")?;
            let names = ["s0", "s1", "s2"].iter();
            let names = names.take(if topology == "divided" { 3 } else { 2 });
            let shards = names.clone().map(|name| set(name, "--shardsvr"));
            let shards = shards.collect::<Result<Vec<_>, _>>()?;
            let router = Server::start_router(binary, &format!("cfg/{}", config.host()))?;
            for (name, shard) in names.zip(&shards) {
                check(
                    Command::new(venv("current")?.join("bin/python"))
                        .args(["-c", ADD_SHARD])
                        .arg(router.port().to_string())
                        .arg(format!("{name}/{}", shard.host())),
                )?;
            }
            let mut all = vec![config];
            all.extend(shards);
            all.push(router);
            Ok(all)
        }
    }
}

/// Makes a set a shard.
const ADD_SHARD: &str = "
import pymongo, sys
pymongo.MongoClient('127.0.0.1', int(sys.argv[1])).admin.command('addShard', sys.argv[2])
";

/// The tests in the package: its `test` directory, below the target directory. PyMongo's own tests and their
/// certificates are there, too.
pub fn package() -> Result<PathBuf, String> {
    let requirements = suite_dir("python").join("requirements-unified.txt");
    let inputs = std::fs::read_to_string(&requirements)
        .map_err(|e| format!("{}: {e}", requirements.display()))?;
    let dir = target_dir().join("clients").join("unified");
    let tests = dir.join("test");
    // The pip and the Python are those of PyMongo's own suite.
    let bin = venv("current")?.join("bin");
    once(&dir, &inputs, || {
        let scratch = dir.join("package");
        let _ = std::fs::remove_dir_all(&scratch);
        let _ = std::fs::remove_dir_all(&tests);
        check(
            Command::new(bin.join("pip"))
                .args(["download", "--quiet", "--disable-pip-version-check"])
                .args(["--no-deps", "--dest"])
                .arg(&scratch)
                .arg("-r")
                .arg(&requirements),
        )?;
        let archive = only(&scratch)?;
        let unpacked = scratch.join("unpacked");
        check(
            Command::new(bin.join("python"))
                .args(["-m", "tarfile", "-e"])
                .arg(&archive)
                .arg(&unpacked),
        )?;
        let from = only(&unpacked)?.join("test");
        std::fs::rename(&from, &tests).map_err(|e| format!("{}: {e}", from.display()))?;
        std::fs::remove_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))
    })?;
    Ok(tests)
}

/// The only entry of a directory.
fn only(dir: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let all: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    match all.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(format!("{} has not one entry: {all:?}", dir.display())),
    }
}
