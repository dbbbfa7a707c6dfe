//! Which tests apply to this server: `runOnRequirements`, and rules for things that only a driver has.

use crate::failure::whole;
use crate::matching::same;
use crate::test::Deployment;
use bson::{Bson, Document};

/// The greatest minor version of schema 1 that the runner knows.
const SCHEMA: u64 = 28;

/// Folders whose tests are about what a driver does by itself, by the beginning of their name with `-`
/// instead of `_`, and the subject of the tests. (The names of a folder differ between distributions.)
const FOLDERS: &[(&str, &str)] = &[
    ("auth", "driver: authentication"),
    (
        "client-backpressure",
        "driver: backing off from an overloaded server",
    ),
    ("client-side-encryption", crate::entities::ENCRYPTION),
    ("client-side-operations-timeout", crate::ops::TIMEOUTS),
    ("connection-monitoring", POOL),
    ("connection-logging", POOL),
    ("csot", crate::ops::TIMEOUTS),
    ("data-lake", "another product: Atlas Data Lake"),
    ("discovery-and-monitoring", crate::ops::runner::MONITORING),
    ("handshake", "driver: its handshake"),
    ("load-balancer", "driver: load balancers"),
    ("mongodb-handshake", "driver: its handshake"),
    ("open-telemetry", "driver: tracing"),
    ("sdam", crate::ops::runner::MONITORING),
    (
        "server-discovery-and-monitoring",
        crate::ops::runner::MONITORING,
    ),
    ("server-selection", "driver: server selection"),
];

const POOL: &str = "driver: the connection pool";

/// The reason for leaving out a folder's tests, if there is one.
pub(crate) fn folder(name: &str) -> Option<&'static str> {
    let found = FOLDERS.iter().find(|(start, _)| name.starts_with(start));
    found.map(|(_, why)| *why)
}

/// The three numbers of a version. Missing ones are zero.
pub(crate) fn version(text: &str) -> Option<[u64; 3]> {
    let mut v = [0; 3];
    for (part, to) in text.split('.').zip(&mut v) {
        *to = part.split('-').next()?.parse().ok()?;
    }
    Some(v)
}

/// Whether the runner knows a file's `schemaVersion`.
pub(crate) fn schema_known(text: &str) -> bool {
    matches!(version(text), Some([1, minor, _]) if minor <= SCHEMA)
}

/// Why none of the `runOnRequirements` is met; `None` if one is, or there are none.
pub(crate) fn unmet(of: &Document, deployment: &Deployment) -> Option<String> {
    let Ok(all) = of.get_array("runOnRequirements") else {
        return None;
    };
    let mut why = None;
    for r in all.iter().filter_map(Bson::as_document) {
        // The requirement that passed most checks gives the best reason.
        match refusal(r, deployment) {
            None => return None,
            Some(new) => {
                let better = why.as_ref().is_none_or(|(rank, _)| new.0 > *rank);
                if better {
                    why = Some(new);
                }
            }
        }
    }
    why.map(|(_, text)| text)
}

/// The check that a requirement fails: its rank in the order of the checks, and its name.
fn refusal(r: &Document, deployment: &Deployment) -> Option<(u32, String)> {
    let topologies = r.get_array("topologies").ok();
    let name = deployment.topology.name();
    let fits = |t: &Bson| {
        t.as_str()
            .is_some_and(|t| t == name || (name == "sharded" && t == "sharded-replicaset"))
    };
    if topologies.is_some_and(|all| !all.iter().any(fits)) {
        return Some((0, format!("runOnRequirements: not for topology {name}")));
    }
    let bound = |field: &str| r.get_str(field).ok().and_then(version);
    if bound("minServerVersion").is_some_and(|v| deployment.version < v) {
        return Some((1, "runOnRequirements: for a newer server".into()));
    }
    if bound("maxServerVersion").is_some_and(|v| deployment.version > v) {
        return Some((1, "runOnRequirements: for an older server".into()));
    }
    if r.get_str("serverless").ok() == Some("require") {
        return Some((2, "runOnRequirements: serverless".into()));
    }
    if r.get_bool("auth").ok() == Some(true) || r.contains_key("authMechanism") {
        return Some((2, "runOnRequirements: authentication".into()));
    }
    if !matches!(r.get("csfle"), None | Some(Bson::Boolean(false))) {
        return Some((2, "runOnRequirements: client-side encryption".into()));
    }
    let parameters = r.get_document("serverParameters").ok();
    for (name, want) in parameters.into_iter().flatten() {
        let have = deployment.parameters.get(name);
        let fits = have.is_some_and(|have| {
            same(want, have) || (whole(want).is_some() && whole(want) == whole(have))
        });
        if !fits {
            return Some((3, format!("runOnRequirements: server parameter {name}")));
        }
    }
    None
}

/// The part of a test that is not compared, though the test runs.
pub(crate) fn not_compared(test: &Document) -> Option<&'static str> {
    if test.contains_key("expectLogMessages") {
        return Some("a driver's log messages");
    }
    if test.contains_key("expectTracingMessages") {
        return Some("a driver's tracing");
    }
    let events = test.get_array("expectEvents").ok();
    let others = events.into_iter().flatten().filter_map(Bson::as_document);
    let others = others.filter(|e| !matches!(e.get_str("eventType"), Err(_) | Ok("command")));
    others
        .map(|_| "a driver's events of pools and monitoring")
        .next()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::client::Topology;
    use bson::doc;

    #[test]
    fn requirements_are_compared_by_number_and_one_suffices() {
        let d = Deployment {
            address: String::new(),
            topology: Topology::Single,
            version: [8, 0, 16],
            parameters: doc! { "enableTestCommands": true },
        };
        for (list, met) in [
            (vec![], true),
            (vec![doc! { "minServerVersion": "8.0" }], true),
            (vec![doc! { "minServerVersion": "8.0.100" }], false),
            (vec![doc! { "maxServerVersion": "7.99" }], false),
            (vec![doc! { "maxServerVersion": "8.0.99" }], true),
            (vec![doc! { "topologies": ["replicaset"] }], false),
            (
                vec![
                    doc! { "topologies": ["replicaset"] },
                    doc! { "topologies": ["single"] },
                ],
                true,
            ),
            (vec![doc! { "auth": true }], false),
            (vec![doc! { "csfle": true }], false),
            (
                vec![doc! { "serverParameters": { "enableTestCommands": true } }],
                true,
            ),
            (
                vec![doc! { "serverParameters": { "enableTestCommands": false } }],
                false,
            ),
            (vec![doc! { "serverParameters": { "x": 1 } }], false),
        ] {
            let of = match list.is_empty() {
                true => doc! {},
                false => doc! { "runOnRequirements": list },
            };
            let why = unmet(&of, &d);
            assert_eq!(why.is_none(), met, "{of}: {why:?}");
        }
        assert!(schema_known("1.28") && schema_known("1") && !schema_known("0.1"));
        assert!(!schema_known("1.29") && !schema_known("2.0"));
        assert!(folder("discovery-and-monitoring").is_some() && folder("crud").is_none());
    }
}
