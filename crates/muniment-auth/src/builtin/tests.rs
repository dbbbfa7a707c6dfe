#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::action::Action::{self, *};
use crate::resource::Target;

fn of(role: &str, db: &str) -> Privileges {
    privileges_of(&RoleName::new(role, db)).unwrap_or_else(|| panic!("{role}@{db}"))
}

/// Checks a role of admin (or, with a prefix "x:", of the database x): `yes` and `no` are pairs of a target and
/// an action; the target is "" for the cluster, "db" or "db/collection".
fn check(role: &str, yes: &[(&str, Action)], no: &[(&str, Action)]) {
    let (db, name) = role.split_once(':').unwrap_or(("admin", role));
    let p = of(name, db);
    for (expected, pairs) in [(true, yes), (false, no)] {
        for (target, action) in pairs {
            let t = match target.split_once('/') {
                Some((db, collection)) => Target::Collection(db, collection),
                None if target.is_empty() => Target::Cluster,
                None => Target::Database(target),
            };
            let found = p.allows(&t, &Actions::of(&[*action]));
            assert_eq!(found, expected, "{role}: {action} on '{target}'");
        }
    }
}

#[test]
fn users_of_a_database() {
    let others = [
        ("x/c", Insert),
        ("x/system.users", Find),
        ("x/system.buckets.c", Find),
        ("y/c", Find),
        ("x", DropDatabase),
        ("x", ViewUser),
        ("", ListDatabases),
    ];
    check(
        "x:read",
        &[
            ("x/c", Find),
            ("x/system.js", Find),
            ("x", ListCollections),
            ("x/c", ListIndexes),
        ],
        &others,
    );
    check(
        "x:readWrite",
        &[
            ("x/c", Find),
            ("x/c", Insert),
            ("x/c", Remove),
            ("x/system.js", Update),
            ("x/c", CreateIndex),
            ("x/c", DropCollection),
            ("x", RenameCollectionSameDB),
        ],
        &[
            ("x/system.users", Insert),
            ("x/system.users", Find),
            ("x/system.profile", Find),
            ("x", DropDatabase),
            ("x/c", CollMod),
            ("y/c", Insert),
        ],
    );
    check(
        "admin:readWrite",
        &[("admin/c", Insert)],
        &[("admin/system.users", Insert)],
    );
}

#[test]
fn administrators_of_a_database() {
    check(
        "x:dbAdmin",
        &[
            ("x/c", CollMod),
            ("x", DropDatabase),
            ("x/c", Validate),
            ("x", EnableProfiler),
            ("x/system.profile", Find),
            ("x/system.profile", DropCollection),
        ],
        &[
            ("x/c", Find),
            ("x/c", Insert),
            ("x/system.profile", Insert),
            ("x", CreateUser),
            ("y/c", CollMod),
        ],
    );
    check(
        "x:userAdmin",
        &[("x", CreateUser), ("x", GrantRole), ("x", ViewRole)],
        &[
            ("x/c", Find),
            ("y", CreateUser),
            ("x/system.users", Find),
            ("x/c", CreateCollection),
        ],
    );
    check(
        "x:dbOwner",
        &[
            ("x/c", Insert),
            ("x", DropDatabase),
            ("x", CreateUser),
            ("x/system.profile", Find),
        ],
        &[("y/c", Find), ("", Shutdown), ("x/system.users", Find)],
    );
    check(
        "x:enableSharding",
        &[("x/c", EnableSharding), ("x/c", ReshardCollection)],
        &[("y/c", EnableSharding), ("x/c", Find)],
    );
    check(
        "enableSharding",
        &[("y/c", EnableSharding)],
        &[("config/c", EnableSharding)],
    );
}

#[test]
fn roles_on_all_databases() {
    check(
        "readAnyDatabase",
        &[
            ("x/c", Find),
            ("admin/c", Find),
            ("", ListDatabases),
            ("x/system.js", Find),
        ],
        &[
            ("local/oplog.rs", Find),
            ("config/settings", Find),
            ("x/c", Insert),
            ("admin/system.users", Find),
            ("", ServerStatus),
        ],
    );
    check(
        "readWriteAnyDatabase",
        &[("x/c", Insert), ("x/c", Find), ("", ListDatabases)],
        &[
            ("local/c", Insert),
            ("config/c", Update),
            ("admin/system.users", Insert),
            ("x", DropDatabase),
        ],
    );
    check(
        "dbAdminAnyDatabase",
        &[
            ("x", DropDatabase),
            ("x/c", CollMod),
            ("", ApplyOps),
            ("x/system.profile", Find),
        ],
        &[("x/c", Find), ("local/c", CollMod), ("x", CreateUser)],
    );
    check(
        "userAdminAnyDatabase",
        &[
            ("x", CreateUser),
            ("admin", GrantRole),
            ("$external", CreateUser),
            ("admin/system.users", Find),
            ("", InvalidateUserCache),
        ],
        &[
            ("x/c", Find),
            ("admin/system.users", Update),
            ("local", CreateUser),
            ("", Shutdown),
        ],
    );
    check(
        "searchCoordinator",
        &[("x/c", Find), ("__mdb_internal_search/c", Insert)],
        &[("x/c", Insert), ("local/c", Find)],
    );
}

#[test]
fn roles_of_the_cluster() {
    check(
        "clusterMonitor",
        &[
            ("", ServerStatus),
            ("", Top),
            ("", Inprog),
            ("x/c", CollStats),
            ("x/c", IndexStats),
            ("x/system.profile", Find),
            ("local/oplog.rs", Find),
            ("config/shards", Find),
            ("local/system.replset", Find),
        ],
        &[
            ("x/c", Find),
            ("x/c", Insert),
            ("config/shards", Update),
            ("local/c", Insert),
            ("", Shutdown),
            ("", ReplSetConfigure),
            ("", Killop),
        ],
    );
    check(
        "clusterManager",
        &[
            ("", ReplSetConfigure),
            ("", AddShard),
            ("x/c", EnableSharding),
            ("config/settings", Update),
            ("local/c", Insert),
            ("local/system.replset", Find),
        ],
        &[
            ("x/c", Find),
            ("x/c", Insert),
            ("", Shutdown),
            ("local/system.replset", Update),
        ],
    );
    check(
        "hostManager",
        &[
            ("", Shutdown),
            ("", Killop),
            ("", SetParameter),
            ("", Fsync),
            ("x/c", KillCursors),
        ],
        &[
            ("x/c", Find),
            ("", ReplSetConfigure),
            ("x/c", Compact),
            ("", ServerStatus),
        ],
    );
    check(
        "clusterAdmin",
        &[
            ("", Shutdown),
            ("", ServerStatus),
            ("", AddShard),
            ("x", DropDatabase),
        ],
        &[("x/c", Find), ("x", CreateUser), ("config", DropDatabase)],
    );
    check(
        "directShardOperations",
        &[("", IssueDirectShardOperations)],
        &[("x/c", Find), ("", ServerStatus)],
    );
}

#[test]
fn backing_up_and_restoring() {
    check(
        "backup",
        &[
            ("x/c", Find),
            ("local/oplog.rs", Find),
            ("config/c", Find),
            ("admin/system.users", Find),
            ("admin/system.roles", Find),
            ("x/system.buckets.c", Find),
            ("config/settings", Update),
            ("x/system.views", ListIndexes),
            ("", ListDatabases),
        ],
        &[
            ("x/c", Insert),
            ("admin/system.users", Insert),
            ("config/c", Update),
            ("", Shutdown),
        ],
    );
    check(
        "restore",
        &[
            ("x/c", Insert),
            ("x/c", CreateIndex),
            ("admin/system.users", Insert),
            ("admin/system.version", Find),
            ("x/system.buckets.c", Insert),
            ("x/system.views", DropCollection),
            ("", BypassWriteBlockingMode),
            ("x", SetAuthenticationRestriction),
        ],
        &[
            ("x/c", Find),
            ("x/c", Remove),
            ("x/c", Update),
            ("x/system.profile", Insert),
            ("admin/system.roles", Insert),
            ("", Shutdown),
        ],
    );
}

#[test]
fn root_has_what_people_need() {
    check(
        "root",
        &[
            ("x/c", Find),
            ("x/c", Insert),
            ("x", DropDatabase),
            ("x", CreateUser),
            ("admin/system.users", Find),
            ("admin/system.roles", Validate),
            ("local/oplog.rs", Find),
            ("config/settings", Update),
            ("config/system.preimages", Remove),
            ("x/system.anything", Validate),
            ("x/system.buckets.c", Find),
            ("", Shutdown),
            ("", ReplSetConfigure),
            ("", ApplyOps),
            ("", QuerySettings),
        ],
        &[
            ("", Internal),
            ("", AnyAction),
            ("x/c", Internal),
            ("", Impersonate),
            ("x/system.views", Insert),
            ("admin/system.roles", Update),
        ],
    );
    for name in [
        "backup",
        "restore",
        "clusterAdmin",
        "dbAdminAnyDatabase",
        "readWriteAnyDatabase",
    ] {
        assert!(of("root", "admin").covers(&of(name, "admin")), "{name}");
        assert!(!of(name, "admin").covers(&of("root", "admin")), "{name}");
    }
    for name in ["dbOwner", "read", "userAdmin"] {
        assert!(of("root", "admin").covers(&of(name, "x")), "{name}");
    }
}

#[test]
fn the_system_may_do_everything() {
    let p = of("__system", "admin");
    for t in [
        Target::Cluster,
        Target::Database("local"),
        Target::Collection("x", "c"),
        Target::Collection("admin", "system.users"),
    ] {
        assert!(p.allows(&t, &Actions::ALL));
    }
    for name in builtin_names("admin") {
        assert!(p.covers(&of(name, "admin")), "{name}");
    }
}

#[test]
fn which_roles_there_are() {
    let every: Vec<_> = builtin_names("x").collect();
    assert_eq!(
        every,
        [
            "dbAdmin",
            "dbOwner",
            "enableSharding",
            "read",
            "readWrite",
            "userAdmin"
        ]
    );
    let admin: Vec<_> = builtin_names("admin").collect();
    assert!(admin.is_sorted() && admin.len() == ROLES.len());
    assert!(is_builtin(&RoleName::new("root", "admin")));
    assert!(!is_builtin(&RoleName::new("root", "x")));
    assert!(!is_builtin(&RoleName::new("Read", "x")));
    assert!(!is_builtin(&RoleName::new("read", "$external")));
    assert!(privileges_of(&RoleName::new("clusterAdmin", "x")).is_none());
}

#[test]
fn the_table_is_sound() {
    for r in ROLES {
        assert!(!r.purpose.is_empty());
        for name in r.includes {
            let part = ROLES.iter().find(|p| p.name == *name).unwrap();
            assert!(part.everywhere || !r.everywhere, "{name} in {}", r.name);
            assert!(!part.includes.contains(&r.name), "a circle of {name}");
        }
        let p = of(r.name, "admin");
        assert!(!p.is_empty());
        let printed = p.to_array();
        assert_eq!(
            Privileges::from_array(printed.as_doc()).unwrap(),
            p,
            "{}",
            r.name
        );
        let any = p
            .iter()
            .any(|p| p.actions.contains(AnyAction) || p.actions.contains(Internal));
        assert_eq!(any, r.name == "__system");
    }
}

/// Prints what a check costs. Run with `--release --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_check() {
    let mut p = of("root", "admin");
    p.merge(&of("readWrite", "shop"));
    let target = Target::Collection("shop", "orders");
    let actions = Actions::of(&[Find, Update]);
    let began = std::time::Instant::now();
    let n = 1_000_000u32;
    for _ in 0..n {
        assert!(std::hint::black_box(&p).allows(std::hint::black_box(&target), &actions));
    }
    let denied = Actions::of(&[Internal]);
    let middle = std::time::Instant::now();
    for _ in 0..n {
        assert!(!std::hint::black_box(&p).allows(std::hint::black_box(&target), &denied));
    }
    println!(
        "allowed {:?}, denied {:?}",
        (middle - began) / n,
        middle.elapsed() / n
    );
}
