//! The events of what commands do to users, roles and collections.

use super::*;

/// Each command, the result, and the events that it leaves with their parameters.
fn check(audited: &Audited, c: &mut Connection, user: &str, table: &[(&str, &str, i32, &[&str])]) {
    for (db, cmd, code, wanted) in table {
        let before = audited.events().len();
        let (got, message) = told(c, db, cmd);
        assert_eq!(got, *code, "{db}: {cmd}: {message}");
        let all = audited.events();
        let new = all.get(before..).unwrap();
        let shown: Vec<String> = new
            .iter()
            .map(|e| format!("{} {}", text(e, "atype"), param(e).to_display()))
            .collect();
        let wanted: Vec<String> = wanted
            .iter()
            .map(|w| {
                let (atype, param) = w.split_once(' ').unwrap();
                format!("{atype} {}", shell(param).as_doc().to_display())
            })
            .collect();
        assert_eq!(shown, wanted, "{db}: {cmd}");
        for e in new {
            assert_eq!(result(e), i64::from(*code), "{cmd}: {e:?}");
            assert_eq!(who(e), user, "{cmd}: {e:?}");
        }
    }
}

#[test]
fn users_and_roles() {
    let audited = Audited::start(&["--auth"]);
    let mut c = audited.root();
    let first = audited.last("createUser");
    assert_eq!((who(&first).as_str(), result(&first)), ("", 0));
    let pwd = format!("pwd: '{PASSWORD}'");
    let create = format!("{{createUser: 'u', {pwd}, roles: ['read'], customData: {{a: 1}}}}");
    let again = format!("{{createUser: 'u', {pwd}, roles: []}}");
    let update = format!("{{updateUser: 'u', {pwd}}}");
    let missing = format!("{{updateUser: 'nobody', {pwd}}}");
    let privileges = "[{resource: {db: 'own', collection: 'c'}, actions: ['find']}]";
    let own = |name: &str, rest: &str| format!("{{{name}: 'r', {rest}}}");
    let with = |atype: &str, rest: &str| format!("{atype} {{role: 'r', db: 'own'{rest}}}");
    let both = format!("privileges: {privileges}, roles: ['read']");
    let read = ", roles: [{role: 'read', db: 'own'}]";
    let priv_ = format!(", privileges: {privileges}");
    check(
        &audited,
        &mut c,
        "root@admin",
        &[
            (
                "own",
                &create,
                0,
                &[
                    "createUser {user: 'u', db: 'own', passwordChanged: true, customData: {a: 1}, roles: [{role: 'read', db: 'own'}]}",
                ],
            ),
            (
                "own",
                &again,
                51003,
                &["createUser {user: 'u', db: 'own', passwordChanged: true, roles: []}"],
            ),
            (
                "own",
                &update,
                0,
                &["updateUser {user: 'u', db: 'own', passwordChanged: true}"],
            ),
            (
                "own",
                &missing,
                11,
                &["updateUser {user: 'nobody', db: 'own', passwordChanged: true}"],
            ),
            (
                "own",
                "{grantRolesToUser: 'u', roles: ['dbAdmin', {role: 'read', db: 'b'}]}",
                0,
                &[
                    "grantRolesToUser {user: 'u', db: 'own', roles: [{role: 'dbAdmin', db: 'own'}, {role: 'read', db: 'b'}]}",
                ],
            ),
            (
                "own",
                "{revokeRolesFromUser: 'u', roles: ['dbAdmin']}",
                0,
                &[
                    "revokeRolesFromUser {user: 'u', db: 'own', roles: [{role: 'dbAdmin', db: 'own'}]}",
                ],
            ),
            (
                "own",
                &own("createRole", &both),
                0,
                &[
                    "createCollection {ns: 'admin.system.roles'}",
                    &with("createRole", &format!("{read}{priv_}")),
                ],
            ),
            (
                "own",
                &own("updateRole", "roles: ['read']"),
                0,
                &[&with("updateRole", read)],
            ),
            (
                "own",
                &own("grantRolesToRole", "roles: ['read']"),
                0,
                &[&with("grantRolesToRole", read)],
            ),
            (
                "own",
                &own("revokeRolesFromRole", "roles: ['read']"),
                0,
                &[&with("revokeRolesFromRole", read)],
            ),
            (
                "own",
                &own(
                    "grantPrivilegesToRole",
                    &format!("privileges: {privileges}"),
                ),
                0,
                &[&with("grantPrivilegesToRole", &priv_)],
            ),
            (
                "own",
                &own(
                    "revokePrivilegesFromRole",
                    &format!("privileges: {privileges}"),
                ),
                0,
                &[&with("revokePrivilegesFromRole", &priv_)],
            ),
            ("own", "{dropRole: 'r'}", 0, &[&with("dropRole", "")]),
            ("own", "{dropRole: 'r'}", 31, &[&with("dropRole", "")]),
            (
                "own",
                "{dropAllRolesFromDatabase: 1}",
                0,
                &["dropAllRolesFromDatabase {db: 'own'}"],
            ),
            (
                "own",
                "{dropUser: 'u'}",
                0,
                &["dropUser {user: 'u', db: 'own'}"],
            ),
            (
                "own",
                "{dropAllUsersFromDatabase: 1}",
                0,
                &["dropAllUsersFromDatabase {db: 'own'}"],
            ),
        ],
    );
}

#[test]
fn collections_and_indexes() {
    let audited = Audited::start(&[]);
    let mut c = audited.server.connect();
    check(
        &audited,
        &mut c,
        "",
        &[
            (
                "d",
                "{insert: 'a', documents: [{a: 1}]}",
                0,
                &["createDatabase {ns: 'd'}", "createCollection {ns: 'd.a'}"],
            ),
            ("d", "{insert: 'a', documents: [{a: 2}]}", 0, &[]),
            ("d", "{find: 'a'}", 0, &[]),
            (
                "d",
                "{update: 'b', updates: [{q: {}, u: {a: 1}, upsert: true}]}",
                0,
                &["createCollection {ns: 'd.b'}"],
            ),
            ("d", "{create: 'c'}", 0, &["createCollection {ns: 'd.c'}"]),
            (
                "d",
                "{create: 'c', capped: true, size: 1000}",
                48,
                &["createCollection {ns: 'd.c'}"],
            ),
            (
                "d",
                "{create: 'v', viewOn: 'a', pipeline: [{$match: {}}]}",
                0,
                &["createCollection {ns: 'd.v', viewOn: 'a', pipeline: [{$match: {}}]}"],
            ),
            (
                "d",
                "{createIndexes: 'a', indexes: [{key: {a: 1}, name: 'x'}, {key: {b: 1}, name: 'y'}]}",
                0,
                &[
                    "createIndex {ns: 'd.a', indexName: 'x', indexSpec: {v: 2, key: {a: 1}, name: 'x'}, indexBuildState: 'IndexBuildSucceeded'}",
                    "createIndex {ns: 'd.a', indexName: 'y', indexSpec: {v: 2, key: {b: 1}, name: 'y'}, indexBuildState: 'IndexBuildSucceeded'}",
                ],
            ),
            (
                "d",
                "{createIndexes: 'a', indexes: [{key: {a: 1}, name: 'x'}]}",
                0,
                &[],
            ),
            (
                "d",
                "{createIndexes: 'a', indexes: [{key: {z: 1}, name: 'x'}]}",
                86,
                &["createIndex {ns: 'd.a', indexName: 'x', indexSpec: {key: {z: 1}, name: 'x'}}"],
            ),
            (
                "d",
                "{dropIndexes: 'a', index: 'x'}",
                0,
                &["dropIndex {ns: 'd.a', indexName: 'x'}"],
            ),
            (
                "d",
                "{dropIndexes: 'a', index: 'nope'}",
                27,
                &["dropIndex {ns: 'd.a', indexName: 'nope'}"],
            ),
            (
                "d",
                "{dropIndexes: 'a', index: '*'}",
                0,
                &["dropIndex {ns: 'd.a', indexName: 'y'}"],
            ),
            (
                "admin",
                "{renameCollection: 'd.c', to: 'd.e'}",
                0,
                &["renameCollection {old: 'd.c', new: 'd.e'}"],
            ),
            (
                "admin",
                "{renameCollection: 'd.c', to: 'd.e'}",
                26,
                &["renameCollection {old: 'd.c', new: 'd.e'}"],
            ),
            (
                "admin",
                "{renameCollection: 'd.e', to: 'd.b', dropTarget: true}",
                0,
                &[
                    "dropCollection {ns: 'd.b'}",
                    "renameCollection {old: 'd.e', new: 'd.b'}",
                ],
            ),
            ("d", "{drop: 'v'}", 0, &["dropCollection {ns: 'd.v'}"]),
            ("d", "{drop: 'nope'}", 0, &[]),
            (
                "d",
                "{aggregate: 'a', pipeline: [{$out: {db: 'o', coll: 'x'}}], cursor: {}}",
                0,
                &["createDatabase {ns: 'o'}", "createCollection {ns: 'o.x'}"],
            ),
            (
                "d",
                "{aggregate: 'a', pipeline: [{$merge: {into: 'm'}}], cursor: {}}",
                0,
                &["createCollection {ns: 'd.m'}"],
            ),
            (
                "admin",
                "{applyOps: [{op: 'c', ns: 'd.$cmd', o: {create: 'p'}}]}",
                0,
                &["createCollection {ns: 'd.p'}"],
            ),
            (
                "admin",
                "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {insert: 1, document: {}}], nsInfo: [{ns: 'd.q'}, {ns: 'd.r'}]}",
                0,
                &[
                    "createCollection {ns: 'd.q'}",
                    "createCollection {ns: 'd.r'}",
                ],
            ),
            (
                "o",
                "{dropDatabase: 1}",
                0,
                &["dropCollection {ns: 'o.x'}", "dropDatabase {ns: 'o'}"],
            ),
            ("o", "{dropDatabase: 1}", 0, &[]),
        ],
    );
}

#[test]
fn what_a_failing_command_has_changed_is_told_of() {
    let audited = Audited::start(&[]);
    let mut c = audited.server.connect();
    let twice =
        "{createIndexes: 'a', indexes: [{key: {a: 1}, name: 'x'}, {key: {a: 1}, name: 'x'}]}";
    assert_eq!(told(&mut c, "d", twice).0, 68);
    let created = audited.last("createCollection");
    assert_eq!(
        (param(&created).get_str("ns"), result(&created)),
        (Some("d.a"), 0)
    );
    let failed = audited.last("createIndex");
    assert_eq!(
        (param(&failed).get_str("indexName"), result(&failed)),
        (Some("x"), 68)
    );
}

#[test]
fn writes_to_the_stored_users() {
    let audited = Audited::start(&[]);
    let mut c = audited.server.connect();
    let insert = "{insert: 'system.users', documents: [{_id: 'd.u', user: 'u', db: 'd', roles: [], \
                  credentials: {x: 'KEY'}}]}";
    run(&mut c, "admin", insert);
    let event = audited.last("directAuthMutation");
    let wanted = "{ns: 'admin.system.users', document: {_id: 'd.u', user: 'u', db: 'd', roles: []}, \
                  operation: 'insert'}";
    assert_eq!(param(&event).to_buf(), shell(wanted));
    let direct = [
        (
            "update",
            "{update: 'system.users', updates: [{q: {}, u: {$set: {credentials: {x: 'KEY2'}}}}]}",
        ),
        (
            "findAndModify",
            "{findAndModify: 'system.users', query: {}, update: {$set: {a: 1}}}",
        ),
        (
            "bulkWrite",
            "{bulkWrite: 1, ops: [{delete: 0, filter: {_id: 'd.none'}}, {update: 0, filter: {}, updateMods: {$set: {a: 2}}}], nsInfo: [{ns: 'admin.system.users'}]}",
        ),
        (
            "applyOps",
            "{applyOps: [{op: 'd', ns: 'admin.system.users', o: {_id: 'd.u'}}]}",
        ),
    ];
    for (n, (operation, cmd)) in direct.iter().enumerate() {
        run(&mut c, "admin", cmd);
        assert_eq!(audited.of("directAuthMutation").len(), n + 2, "{cmd}");
        let event = audited.last("directAuthMutation");
        assert_eq!(param(&event).get_str("operation"), Some(*operation));
    }
    let n = direct.len() + 1;
    // These change nothing there, and the commands for users have events of their own.
    run(
        &mut c,
        "admin",
        "{delete: 'system.users', deletes: [{q: {_id: 'none'}, limit: 1}]}",
    );
    run(&mut c, "d", "{insert: 'system', documents: [{}]}");
    run(&mut c, "d", "{createUser: 'w', pwd: 'x', roles: []}");
    assert_eq!(audited.of("directAuthMutation").len(), n);
    let log = std::fs::read_to_string(&audited.path).unwrap();
    assert!(!log.contains("KEY"), "{log}");
}

#[test]
fn a_new_configuration_of_the_set() {
    let audited = Audited::start(&["--replSet", "rs", "--autoInitiate"]);
    let mut c = audited.server.connect();
    audited.server.until("a primary", || {
        let reply = run(&mut c, "admin", "{hello: 1}");
        let leads = reply.as_doc().get("isWritablePrimary");
        leads.filter(|v| v.truthy()).map(|_| ())
    });
    let reply = run(&mut c, "admin", "{replSetGetConfig: 1}");
    let config = reply.as_doc().get_doc("config").unwrap();
    let mut next = DocBuf::new();
    for e in config {
        match e.name() {
            "version" => next.append("version", e.value().as_i64_exact().unwrap() + 1),
            _ => next.append_elem(e),
        };
    }
    c.command("admin", &doc! { "replSetReconfig": &next })
        .unwrap();
    let event = audited.last("replSetReconfig");
    let version = |which: &str| {
        let config = param(&event).get_doc(which).unwrap();
        config.get("version").unwrap().as_i64_exact().unwrap()
    };
    assert_eq!(version("old") + 1, version("new"));
    assert_eq!(result(&event), 0);
    assert!(told(&mut c, "admin", "{replSetReconfig: {_id: 'rs'}}").0 != 0);
    assert!(result(&audited.last("replSetReconfig")) != 0);
}
