//! `_mergeAuthzCollections`, by which mongorestore restores users and roles.

use super::*;

const FROM: &str = "tempUsersCollection: 'admin.tempusers', tempRolesCollection: 'admin.temproles'";

fn merge(more: &str) -> String {
    format!("{{_mergeAuthzCollections: 1, {FROM}, {more}}}")
}

/// Copies what is stored, as mongorestore does with the files of a dump.
fn dump(c: &mut Connection) {
    for (from, to) in [("system.users", "tempusers"), ("system.roles", "temproles")] {
        let all = c.find_all("admin", &doc! { "find": from }).unwrap();
        let insert = doc! { "insert": to };
        let reply = c.command_with("admin", &insert, &[("documents", &all)]);
        assert_eq!(code_in(&reply.unwrap()), 0);
    }
}

fn names(c: &mut Connection) -> Vec<String> {
    let all = ["system.users", "system.roles"].map(|from| {
        let find = doc! { "find": from, "sort": doc! { "_id": 1 } };
        c.find_all("admin", &find).unwrap()
    });
    let id = |d: &DocBuf| d.as_doc().get_str("_id").unwrap().to_string();
    all.iter().flatten().map(id).collect()
}

#[test]
fn users_and_roles_are_restored() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{createRole: 'r', roles: [], privileges: []}",
    );
    run(
        &mut c,
        "own",
        "{createUser: 'a', pwd: 'before', roles: ['read', 'r']}",
    );
    run(
        &mut c,
        "other",
        "{createUser: 'a', pwd: 'before', roles: []}",
    );
    dump(&mut c);
    run(&mut c, "own", "{updateUser: 'a', pwd: 'after', roles: []}");
    run(&mut c, "own", "{createUser: 'later', pwd: 'x', roles: []}");
    run(&mut c, "own", "{dropAllRolesFromDatabase: 1}");
    run(&mut c, "other", "{dropUser: 'a'}");

    // Those of one database; others stay.
    let mut open = server.connect();
    login(&mut open, "own", "a", "after", SHA256).unwrap();
    run(&mut c, "admin", &merge("db: 'own', drop: false"));
    assert!(whoami(&mut open).is_some());
    login(&mut server.connect(), "own", "a", "before", SHA256).unwrap();
    assert!(login(&mut server.connect(), "own", "a", "after", SHA256).is_err());
    let known = names(&mut c);
    for (name, there) in [("own.r", true), ("own.later", true), ("other.a", false)] {
        assert_eq!(known.iter().any(|n| n == name), there, "{name}: {known:?}");
    }
    let roles = users(&mut c, "own", "{usersInfo: 'a'}").remove(0);
    assert!(shown(&roles, "roles").contains("\"r\""));
    // All of them, and no others.
    run(
        &mut c,
        "admin",
        &merge("db: '', drop: true, writeConcern: {w: 1}"),
    );
    let known = names(&mut c);
    for (name, there) in [("own.a", true), ("own.later", false), ("other.a", true)] {
        assert_eq!(known.iter().any(|n| n == name), there, "{name}: {known:?}");
    }
    login(&mut server.connect(), "other", "a", "before", SHA1).unwrap();
    let find = "{find: 'system.version', filter: {_id: 'authSchema'}}";
    assert!(shown(&run(&mut c, "admin", find), "cursor").contains("currentVersion: 5"));
}

#[test]
fn what_cannot_be_a_user_or_a_role_changes_nothing() {
    let server = auth();
    let mut c = root(&server);
    expect(
        &mut c,
        "admin",
        2,
        &["{_mergeAuthzCollections: 1, db: '', drop: false}"],
    );
    let other = "{_mergeAuthzCollections: 1, tempUsersCollection: 'own.c', db: '', drop: true}";
    expect(&mut c, "admin", 2, &[other]);
    expect(&mut c, "own", 13, &[&merge("db: '', drop: false")]);
    expect(
        &mut c,
        "admin",
        40414,
        &[&merge("db: ''"), &merge("drop: true")],
    );
    let good = "{_id: 'own.good', user: 'good', db: 'own', roles: []}";
    let wrong_key = "{_id: 'own.x', user: 'x', db: 'own', roles: [], credentials: {'SCRAM-SHA-1': {iterationCount: 1}}}";
    for (to, bad) in [
        (
            "tempusers",
            "{_id: 'own.y', user: 'x', db: 'own', roles: []}",
        ),
        ("tempusers", "{_id: 'own.x', user: 'x', db: 'own'}"),
        (
            "tempusers",
            "{_id: 'own.x', user: 'x', db: 'own', roles: [1]}",
        ),
        ("tempusers", "{user: 'x'}"),
        ("tempusers", wrong_key),
        (
            "temproles",
            "{_id: 'own.read', role: 'read', db: 'own', roles: [], privileges: []}",
        ),
        (
            "temproles",
            "{_id: 'own.x', role: 'x', db: 'own', roles: []}",
        ),
        (
            "temproles",
            "{_id: 'own.x', role: 'x', db: 'own', roles: [], privileges: [{resource: {cluster: true}, actions: ['shutdown']}]}",
        ),
    ] {
        for temp in ["tempusers", "temproles"] {
            run(
                &mut c,
                "admin",
                &format!("{{delete: '{temp}', deletes: [{{q: {{}}, limit: 0}}]}}"),
            );
        }
        run(
            &mut c,
            "admin",
            &format!("{{insert: 'tempusers', documents: [{good}]}}"),
        );
        run(
            &mut c,
            "admin",
            &format!("{{insert: '{to}', documents: [{bad}]}}"),
        );
        let (code, text) = told(&mut c, "admin", &merge("db: '', drop: true"));
        assert_ne!(code, 0, "{bad}");
        assert!(!text.contains("iterationCount: 1"), "{text}");
        assert_eq!(names(&mut c), ["admin.root"], "{bad}");
    }
}

#[test]
fn only_those_who_may_make_any_user_may_restore() {
    let server = auth();
    let mut c = root(&server);
    for (user, role) in [
        ("r", "restore"),
        ("u", "userAdminAnyDatabase"),
        ("b", "backup"),
    ] {
        run(
            &mut c,
            "admin",
            &format!("{{createUser: '{user}', pwd: 'x', roles: ['{role}']}}"),
        );
    }
    run(
        &mut c,
        "own",
        "{createUser: 'o', pwd: 'x', roles: ['dbOwner']}",
    );
    for (db, user, code) in [
        ("admin", "r", 0),
        ("admin", "u", 0),
        ("admin", "b", 13),
        ("own", "o", 13),
    ] {
        let mut c = server.connect();
        login(&mut c, db, user, "x", SHA256).unwrap();
        assert_eq!(
            told(&mut c, "admin", &merge("db: '', drop: false")).0,
            code,
            "{user}"
        );
    }
}

#[test]
fn what_is_restored_is_not_shown() {
    let server = Server::start(ServerOptions::new().arg("--auth").arg("--slowms=-1"));
    let mut c = root(&server);
    run(&mut c, "admin", "{profile: 2, slowms: -1}");
    let users = [shell("{_id: 'own.x', credentials: {k: 'storedKeyOfX'}}")];
    let insert = doc! { "insert": "tempusers" };
    c.command_with("admin", &insert, &[("documents", &users)])
        .unwrap();
    run(
        &mut c,
        "admin",
        "{insert: 'tempusers', documents: [{_id: 'own.y', credentials: {k: 'storedKeyOfX'}}]}",
    );
    run(
        &mut c,
        "admin",
        "{find: 'tempusers', filter: {'credentials.k': 'storedKeyOfX'}}",
    );
    run(&mut c, "admin", "{profile: 0}");
    let seen = c
        .find_all("admin", &doc! { "find": "system.profile" })
        .unwrap();
    assert!(seen.len() >= 3);
    assert!(
        seen.iter()
            .all(|d| d.as_doc().get_str("user") == Some("root@admin"))
    );
    let seen = seen.iter().map(|d| d.as_doc().to_display());
    for text in seen.chain([server.log()]) {
        assert!(!text.contains("storedKeyOfX"), "{text}");
    }
}
