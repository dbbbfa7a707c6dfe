//! The bodies of the fuzz targets `sasl` and `accounts`, which are shared with the test that replays their
//! corpora. They panic if an invariant of the crate does not hold, so production code must never call them.

use crate::names::{RoleName, UserName};
use crate::privilege::Privileges;
use crate::resource::Target;
use crate::restrictions::Restrictions;
use crate::scram::{Credentials, Mechanism};
use muniment_value::{Doc, Value, validate};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads `data` as the messages of a client that logs in.
pub fn sasl(data: &[u8]) {
    crate::scram::fuzzing::sasl(data);
}

/// Reads `data` as a document of a user or a role, as it is stored or as a command has it: names, credentials,
/// roles, privileges and restrictions. What can be read has to come back when it is written and read again.
pub fn accounts(data: &[u8]) {
    // The length and the end are made to fit, so that mutations get past those checks.
    let mut data = data.to_vec();
    let len = data.len() as u32;
    if let (Some(head), true) = (data.get_mut(..4), len > 4) {
        head.copy_from_slice(&len.to_le_bytes());
    }
    if let Some(last) = data.last_mut() {
        *last = 0;
    }
    let Ok(d) = validate(&data) else { return };
    credentials(d);
    names(d);
    if let Some(list) = d.get_array("privileges") {
        privileges(list);
    }
    if let Some(list) = d.get_array("authenticationRestrictions") {
        restrictions(list);
    }
}

fn credentials(d: Doc<'_>) {
    let all = d.get_doc("credentials").unwrap_or(Doc::EMPTY);
    for mechanism in Mechanism::ALL {
        let Some(stored) = all.get_doc(mechanism.name()) else {
            continue;
        };
        if let Ok(c) = Credentials::from_doc(mechanism, stored) {
            let written = c.to_doc();
            let again = Credentials::from_doc(mechanism, written.as_doc());
            assert!(again.is_ok_and(|again| again.to_doc() == written));
        }
    }
}

fn names(d: Doc<'_>) {
    let default = d.get_str("db").unwrap_or_default();
    for e in d {
        if let Ok(user) = UserName::from_value(e.value(), default) {
            assert_eq!(user.id(), format!("{}.{}", user.db, user.user));
            let written = user.to_doc();
            let again = UserName::from_value(Value::Document(written.as_doc()), "other");
            assert_eq!(again.ok(), Some(user));
        }
        let Value::Array(list) = e.value() else {
            continue;
        };
        for role in RoleName::from_array(list, default).unwrap_or_default() {
            let written = role.to_doc();
            let again = RoleName::from_value(Value::Document(written.as_doc()), "other");
            assert_eq!(again.ok().as_ref(), Some(&role));
            let builtin = crate::builtin::privileges_of(&role);
            assert_eq!(builtin.is_some(), crate::builtin::is_builtin(&role));
        }
    }
}

fn privileges(list: Doc<'_>) {
    let Ok(all) = Privileges::from_array(list) else {
        return;
    };
    let written = all.to_array();
    let again = Privileges::from_array(written.as_doc());
    assert!(again.is_ok_and(|again| again == all), "{written:?}");
    assert!(all.covers(&all) && all.covers(&Privileges::new()));
    let targets = [
        Target::Cluster,
        Target::Database("x"),
        Target::Collection("x", "c"),
        Target::Collection("admin", "system.users"),
        Target::Collection("x", "system.buckets.c"),
    ];
    for p in all.iter() {
        let one = Privileges::from_iter([p.clone()]);
        assert!(all.covers(&one));
        // More privileges never allow less.
        for target in &targets {
            assert!(!one.allows(target, &p.actions) || all.allows(target, &p.actions));
        }
    }
    let mut twice = all.clone();
    twice.merge(&all);
    assert_eq!(twice, all);
    let mut none = all.clone();
    all.iter().for_each(|p| none.remove(p));
    assert!(none.is_empty(), "{none:?}");
}

fn restrictions(list: Doc<'_>) {
    let Ok(r) = Restrictions::parse(list) else {
        return;
    };
    let addresses: [IpAddr; 4] = [
        Ipv4Addr::LOCALHOST.into(),
        Ipv4Addr::new(10, 1, 2, 3).into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
    ];
    for client in addresses {
        for server in addresses {
            let one = r.allow(Some(client), Some(server));
            let mapped = r.allow(Some(client.to_canonical()), Some(server.to_canonical()));
            assert_eq!(one, mapped);
            // To know less of a connection never allows more.
            assert!(one || !r.allow(Some(client), None));
            assert!(one || !r.allow(None, Some(server)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    fn logins() -> Vec<Vec<u8>> {
        let first = "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL";
        let last = "c=biws,r=fyko+d2lbbFgONRv9qkxdawL,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
        let messages = [
            (first, last),
            (first, ""),
            (first, ",x=more,y=and more"),
            ("y,a=us=2Cer,n=us=2Cer,r=12345678,t=1", ",t=1"),
            ("p=tls-unique,,n=user,r=12345678", last),
            ("n,,m=ext,n=user,r=12345678", last),
            (
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "",
            ),
            ("I\u{ad}X \u{2168} \u{aa}", ""),
        ];
        let mechanisms = [0, 1]
            .iter()
            .flat_map(|m| messages.iter().map(move |t| (m, t)));
        mechanisms
            .map(|(m, (first, last))| [&[*m], first.as_bytes(), &[0xFF], last.as_bytes()].concat())
            .collect()
    }

    fn documents() -> Vec<Vec<u8>> {
        let credentials = |m: Mechanism| {
            let salt = vec![1; m.salt_len()];
            Credentials::with_prepared(m, "password", 4096, &salt)
                .unwrap()
                .to_doc()
        };
        let address =
            doc! { "clientSource": array!["10.1.0.0/16", "::1"], "serverAddress": array!["::/0"] };
        let user = doc! {
            "_id": "x.ann", "userId": Value::Binary { subtype: 4, bytes: &[7; 16] },
            "user": "ann", "db": "x",
            "credentials": doc! {
                "SCRAM-SHA-1": credentials(Mechanism::Sha1),
                "SCRAM-SHA-256": credentials(Mechanism::Sha256),
            },
            "roles": array![doc! { "role": "read", "db": "x" }, "readWrite"],
            "authenticationRestrictions": array![address, doc! { "clientSource": array!["127.0.0.1"] }],
        };
        let privilege = |resource: muniment_value::DocBuf, action: &str| {
            doc! { "resource": resource, "actions": array![action, "find"] }
        };
        let role = doc! {
            "_id": "admin.r", "role": "r", "db": "admin",
            "roles": array![doc! { "role": "root", "db": "admin" }],
            "privileges": array![
                privilege(doc! { "db": "x", "collection": "" }, "insert"),
                privilege(doc! { "db": "", "collection": "c" }, "anyAction"),
                privilege(doc! { "db": "x", "system_buckets": "c" }, "remove"),
                privilege(doc! { "cluster": true }, "shutdown"),
                privilege(doc! { "anyResource": true }, "update"),
            ],
        };
        let names =
            doc! { "user": doc! { "user": "a.b", "db": "x" }, "db": "y", "r": array!["a", "b"] };
        [user, role, names].map(|d| d.as_bytes().to_vec()).into()
    }

    /// Runs the seeds, all that they begin with, and the corpus.
    fn replay(target: &str, body: fn(&[u8]), seeds: &[Vec<u8>]) {
        for s in seeds {
            (0..=s.len()).for_each(|n| body(&s[..n]));
        }
        let dir = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("MUNIMENT_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            for (i, s) in seeds.iter().enumerate() {
                std::fs::write(format!("{dir}/seed-{i:02}"), s).unwrap();
            }
        }
        let mut n = 0;
        for file in std::fs::read_dir(&dir).unwrap() {
            body(&std::fs::read(file.unwrap().path()).unwrap());
            n += 1;
        }
        assert!(n >= seeds.len(), "{dir} has {n} files");
    }

    #[test]
    fn seeds_and_corpora() {
        replay("sasl", sasl, &logins());
        replay("accounts", accounts, &documents());
    }
}
