//! The commands on users.

use super::*;

#[test]
fn users_are_created_changed_and_dropped() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{createUser: 'all', pwd: 'pw', customData: {a: 1}, digestPassword: true,
          roles: ['read', {role: 'readWrite', db: 'other'}],
          authenticationRestrictions: [{clientSource: ['127.0.0.1/8'], serverAddress: ['127.0.0.1']}],
          mechanisms: ['SCRAM-SHA-256'], writeConcern: {w: 1}, comment: 'x'}",
    );
    let all = users(&mut c, "own", "{usersInfo: 'all'}").remove(0);
    assert_eq!(shown(&all, "_id"), "\"own.all\"");
    assert_eq!(shown(&all, "customData"), "{ a: 1 }");
    assert_eq!(shown(&all, "mechanisms"), "[ \"SCRAM-SHA-256\" ]");
    assert_eq!(
        shown(&all, "roles"),
        "[ { role: \"read\", db: \"own\" }, { role: \"readWrite\", db: \"other\" } ]"
    );
    assert!(matches!(
        all.as_doc().get("userId"),
        Some(Value::Binary { subtype: 4, .. })
    ));
    login(&mut server.connect(), "own", "all", "pw", SHA256).unwrap();
    expect(
        &mut c,
        "own",
        51003,
        &["{createUser: 'all', pwd: 'x', roles: []}"],
    );
    // The same name in another database is another user.
    run(&mut c, "other", "{createUser: 'all', pwd: 'x', roles: []}");
    expect(
        &mut c,
        "own",
        31,
        &[
            "{createUser: 'x', pwd: 'x', roles: ['nope']}",
            "{createUser: 'x', pwd: 'x', roles: ['root']}",
            "{createUser: 'x', pwd: 'x', roles: [{role: 'read', db: 'own'}, {role: 'x', db: 'y'}]}",
            "{grantRolesToUser: 'all', roles: ['nope']}",
            "{updateUser: 'all', roles: ['nope']}",
        ],
    );
    expect(
        &mut c,
        "own",
        2,
        &[
            "{createUser: 'x', roles: []}",
            "{createUser: '', pwd: 'x', roles: []}",
            "{createUser: 'x', pwd: 'x', roles: [], mechanisms: []}",
            "{createUser: 'x', pwd: 'x', roles: [], mechanisms: ['PLAIN']}",
            "{createUser: 'x', pwd: 'x', roles: [], authenticationRestrictions: [{clientSource: ['x']}]}",
            "{createUser: 'x', pwd: 'x', roles: [], authenticationRestrictions: [{other: ['::1']}]}",
            "{createUser: 'x', pwd: 'x', roles: [], digestPassword: false}",
            "{updateUser: 'all'}",
            "{updateUser: 'all', mechanisms: ['SCRAM-SHA-1']}",
        ],
    );
    expect(
        &mut c,
        "own",
        14,
        &[
            "{createUser: 'x', pwd: 1, roles: []}",
            "{createUser: 1, pwd: 'x', roles: []}",
            "{createUser: 'x', pwd: 'x', roles: 'read'}",
            "{createUser: 'x', pwd: 'x', roles: [], customData: 1}",
        ],
    );
    expect(
        &mut c,
        "own",
        40415,
        &["{createUser: 'x', pwd: 'x', roles: [], other: 1}"],
    );
    expect(&mut c, "own", 40414, &["{createUser: 'x', pwd: 'x'}"]);
    expect(
        &mut c,
        "own",
        50687,
        &["{createUser: 'x', pwd: '', roles: []}"],
    );
    // A privilege on all databases leaves local out.
    expect(
        &mut c,
        "local",
        13,
        &["{createUser: 'x', pwd: 'x', roles: []}"],
    );
    run(
        &mut c,
        "admin",
        "{createUser: 'member', pwd: 'pw', roles: ['__system'], mechanisms: ['SCRAM-SHA-1']}",
    );
    let mut member = server.connect();
    login(&mut member, "admin", "member", "pw", SHA1).unwrap();
    expect(
        &mut member,
        "local",
        2,
        &["{createUser: 'x', pwd: 'x', roles: []}"],
    );
    run(&mut c, "admin", "{dropUser: 'member'}");
    assert_eq!(
        ids(&mut c, "own", "{usersInfo: {forAllDBs: true}}"),
        ["admin.root", "other.all", "own.all"]
    );
    expect(
        &mut c,
        "own",
        11,
        &[
            "{updateUser: 'nobody', pwd: 'x'}",
            "{dropUser: 'nobody'}",
            "{grantRolesToUser: 'nobody', roles: ['read']}",
            "{revokeRolesFromUser: 'nobody', roles: ['read']}",
        ],
    );
    // Each field alone.
    let mut open = server.connect();
    login(&mut open, "own", "all", "pw", SHA256).unwrap();
    let id = shown(&all, "userId");
    run(&mut c, "own", "{updateUser: 'all', pwd: 'new'}");
    assert_eq!(
        login(&mut server.connect(), "own", "all", "pw", SHA256)
            .unwrap_err()
            .code()
            .0,
        18
    );
    login(&mut server.connect(), "own", "all", "new", SHA256).unwrap();
    run(&mut c, "own", "{updateUser: 'all', customData: {b: 2}}");
    run(&mut c, "own", "{updateUser: 'all', roles: ['dbAdmin']}");
    assert_eq!(code(&mut open, "own", "{find: 'c'}"), 13);
    assert_eq!(code(&mut open, "own", "{profile: -1}"), 0);
    run(
        &mut c,
        "own",
        "{updateUser: 'all', pwd: 'new', mechanisms: ['SCRAM-SHA-1', 'SCRAM-SHA-256']}",
    );
    login(&mut server.connect(), "own", "all", "new", SHA1).unwrap();
    run(
        &mut c,
        "own",
        "{updateUser: 'all', mechanisms: ['SCRAM-SHA-1']}",
    );
    assert_eq!(
        login(&mut server.connect(), "own", "all", "new", SHA256)
            .unwrap_err()
            .code()
            .0,
        18
    );
    login(&mut server.connect(), "own", "all", "new", SHA1).unwrap();
    let digest = Mechanism::Sha1.prepared("all", "digested").unwrap();
    let digested = doc! {
        "updateUser": "all", "pwd": digest.as_str(), "digestPassword": false,
        "mechanisms": ["SCRAM-SHA-1"].iter().collect::<muniment_value::ArrayBuf>(),
    };
    c.command("own", &digested).unwrap();
    login(&mut server.connect(), "own", "all", "digested", SHA1).unwrap();
    run(
        &mut c,
        "own",
        "{grantRolesToUser: 'all', roles: ['read', 'dbAdmin']}",
    );
    assert_eq!(code(&mut open, "own", "{find: 'c'}"), 0);
    run(
        &mut c,
        "own",
        "{revokeRolesFromUser: 'all', roles: ['dbAdmin', 'readWrite']}",
    );
    assert_eq!(code(&mut open, "own", "{profile: -1}"), 13);
    let all = users(&mut c, "own", "{usersInfo: 'all'}").remove(0);
    assert_eq!(shown(&all, "customData"), "{ b: 2 }");
    assert_eq!(shown(&all, "roles"), "[ { role: \"read\", db: \"own\" } ]");
    assert_eq!(shown(&all, "mechanisms"), "[ \"SCRAM-SHA-1\" ]");
    assert_eq!(shown(&all, "userId"), id, "it is still the same user");
    assert_eq!(whoami(&mut open).as_deref(), Some("all@own"));
    // Restrictions come into force on open connections as well.
    run(
        &mut c,
        "own",
        "{updateUser: 'all', authenticationRestrictions: [{clientSource: ['10.0.0.0/8']}]}",
    );
    assert!(is_logged_out(&mut open));
    assert_eq!(
        login(&mut open, "own", "all", "digested", SHA1)
            .unwrap_err()
            .code()
            .0,
        18
    );
    run(
        &mut c,
        "own",
        "{updateUser: 'all', authenticationRestrictions: []}",
    );
    login(&mut open, "own", "all", "digested", SHA1).unwrap();
    // Dropped.
    run(&mut c, "own", "{dropUser: 'all'}");
    assert!(is_logged_out(&mut open));
    expect(&mut c, "own", 11, &["{dropUser: 'all'}"]);
    for name in ["x", "y"] {
        user(&mut c, name, "[]");
    }
    let reply = run(&mut c, "own", "{dropAllUsersFromDatabase: 1}");
    assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(2));
    assert_eq!(
        ids(&mut c, "own", "{usersInfo: {forAllDBs: true}}"),
        ["admin.root", "other.all"]
    );
}

#[test]
fn users_are_shown_in_every_form() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{createUser: 'a', pwd: 'pw', roles: ['read'], customData: {n: 1}}",
    );
    user(&mut c, "b", "['readWrite']");
    run(&mut c, "other", "{createUser: 'a', pwd: 'pw', roles: []}");
    for (db, cmd, wanted) in [
        ("own", "{usersInfo: 1}", vec!["own.a", "own.b"]),
        ("admin", "{usersInfo: 1}", vec!["admin.root"]),
        ("own", "{usersInfo: 'a'}", vec!["own.a"]),
        ("own", "{usersInfo: 'nobody'}", vec![]),
        (
            "own",
            "{usersInfo: {user: 'a', db: 'other'}}",
            vec!["other.a"],
        ),
        (
            "own",
            "{usersInfo: {forAllDBs: true}}",
            vec!["admin.root", "other.a", "own.a", "own.b"],
        ),
        (
            "own",
            "{usersInfo: ['a', {user: 'a', db: 'other'}, 'nobody']}",
            vec!["other.a", "own.a"],
        ),
        ("own", "{usersInfo: []}", vec![]),
        (
            "own",
            "{usersInfo: 1, filter: {'customData.n': 1}}",
            vec!["own.a"],
        ),
        (
            "own",
            "{usersInfo: 1, filter: {roles: {role: 'readWrite', db: 'own'}}}",
            vec!["own.b"],
        ),
        (
            "own",
            "{usersInfo: {forAllDBs: true}, filter: {user: 'a'}}",
            vec!["other.a", "own.a"],
        ),
        (
            "own",
            "{usersInfo: 1, filter: {credentials: {$exists: true}}}",
            vec![],
        ),
    ] {
        assert_eq!(ids(&mut c, db, cmd), wanted, "{cmd}");
    }
    expect(
        &mut c,
        "own",
        2,
        &[
            "{usersInfo: true}",
            "{usersInfo: {user: 'a'}}",
            "{usersInfo: [1]}",
        ],
    );
    let mut one = |options: &str| {
        let cmd = format!("{{usersInfo: 'a'{options}}}");
        users(&mut c, "own", &cmd).remove(0)
    };
    let plain = one("");
    for field in ["credentials", "inheritedRoles", "inheritedPrivileges"] {
        assert!(plain.as_doc().get(field).is_none(), "{plain:?}");
    }
    assert_eq!(
        shown(&one(", showCustomData: false"), "customData"),
        "nothing"
    );
    let with = one(", showCredentials: true");
    let credentials = with.as_doc().get_doc("credentials").unwrap();
    for mechanism in [SHA1, SHA256] {
        let names: Vec<&str> = credentials
            .get_doc(mechanism)
            .unwrap()
            .iter()
            .map(|e| e.name())
            .collect();
        assert_eq!(names, ["iterationCount", "salt", "storedKey", "serverKey"]);
    }
    let with = one(", showPrivileges: true");
    assert_eq!(
        shown(&with, "inheritedRoles"),
        "[ { role: \"read\", db: \"own\" } ]"
    );
    let privileges = shown(&with, "inheritedPrivileges");
    assert!(
        privileges.contains("\"find\"") && !privileges.contains("\"insert\""),
        "{privileges}"
    );
    // Without the right, a user sees nobody else, and no credentials.
    let mut a = as_user(&server, "b");
    assert_eq!(ids(&mut a, "own", "{usersInfo: 'b'}"), ["own.b"]);
    expect(
        &mut a,
        "own",
        13,
        &[
            "{usersInfo: 1}",
            "{usersInfo: 'a'}",
            "{usersInfo: ['b', 'a']}",
            "{usersInfo: {forAllDBs: true}}",
            "{usersInfo: {forAllDBs: false}}",
            "{usersInfo: {user: 'a', db: 'other'}}",
            "{usersInfo: 'b', showCredentials: true}",
            "{usersInfo: 'b', showCredentials: 1}",
        ],
    );
    // The right in one database is none in others.
    user(&mut c, "admin1", "['userAdmin']");
    let mut d = as_user(&server, "admin1");
    assert_eq!(
        ids(&mut d, "own", "{usersInfo: 1}"),
        ["own.a", "own.admin1", "own.b"]
    );
    expect(
        &mut d,
        "own",
        13,
        &[
            "{usersInfo: {user: 'a', db: 'other'}}",
            "{usersInfo: {user: 'a', db: 'other'}, showCredentials: true}",
            "{usersInfo: ['a', {user: 'a', db: 'other'}]}",
            "{usersInfo: {forAllDBs: true}}",
            "{createUser: 'x', pwd: 'x', roles: [{role: 'read', db: 'other'}]}",
            "{createUser: 'x', pwd: 'x', roles: [{role: 'root', db: 'admin'}]}",
            "{grantRolesToUser: 'admin1', roles: [{role: 'root', db: 'admin'}]}",
            "{updateUser: 'admin1', roles: [{role: 'root', db: 'admin'}]}",
            "{createRole: 'x', privileges: [], roles: [{role: 'read', db: 'other'}]}",
            "{createRole: 'x', privileges: [{resource: {db: 'other', collection: ''}, actions: ['find']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {cluster: true}, actions: ['shutdown']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {anyResource: true}, actions: ['anyAction']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {db: '', collection: 'c'}, actions: ['find']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {db: '', system_buckets: 'c'}, actions: ['find']}], roles: []}",
        ],
    );
}

#[test]
fn a_user_changes_only_what_the_rights_allow() {
    let server = auth();
    let mut c = root(&server);
    run(&mut c, "own", "{createRole: 'self', roles: [], privileges: [
        {resource: {db: 'own', collection: ''}, actions: ['changeOwnPassword', 'changeOwnCustomData']}]}");
    user(&mut c, "me", "['self']");
    user(&mut c, "you", "[]");
    run(&mut c, "other", "{createUser: 'me', pwd: 'pw', roles: []}");
    let mut d = as_user(&server, "me");
    run(&mut d, "own", "{updateUser: 'me', customData: {a: 1}}");
    expect(
        &mut d,
        "own",
        13,
        &[
            "{updateUser: 'you', pwd: 'x'}",
            "{updateUser: 'you', customData: {}}",
            "{updateUser: 'me', roles: ['dbOwner']}",
            "{updateUser: 'me', pwd: 'x', roles: []}",
            "{updateUser: 'me', authenticationRestrictions: []}",
            "{grantRolesToUser: 'me', roles: ['self']}",
            "{dropUser: 'me'}",
        ],
    );
    expect(&mut d, "other", 13, &["{updateUser: 'me', pwd: 'x'}"]);
    run(
        &mut d,
        "own",
        "{updateUser: 'me', pwd: 'changed', mechanisms: ['SCRAM-SHA-1']}",
    );
    login(&mut server.connect(), "own", "me", "changed", SHA1).unwrap();
    let mut d = as_user(&server, "you");
    expect(
        &mut d,
        "own",
        13,
        &[
            "{updateUser: 'you', pwd: 'x'}",
            "{updateUser: 'you', customData: {}}",
        ],
    );
}

/// A command that changes a user, and one that drops it, at the same time.
#[test]
fn a_user_who_is_dropped_does_not_come_back() {
    let server = auth();
    let mut c = root(&server);
    let mut d = server.connect();
    login(&mut d, "admin", "root", "rootpw", SHA1).unwrap();
    for drop in ["{dropUser: 'u'}", "{dropAllUsersFromDatabase: 1}"] {
        let until = Instant::now() + Duration::from_secs(2);
        let mut round = 0;
        while Instant::now() < until {
            round += 1;
            run(&mut c, "$external", "{createUser: 'u', roles: []}");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for i in 0..20 {
                        let cmd = format!("{{updateUser: 'u', customData: {{i: {i}}}}}");
                        let code = code(&mut d, "$external", &cmd);
                        assert!(matches!(code, 0 | 11), "{code}");
                    }
                });
                std::thread::sleep(Duration::from_micros(100 * (round % 20)));
                run(&mut c, "$external", drop);
            });
            let left = ids(&mut c, "$external", "{usersInfo: 1}");
            assert!(left.is_empty(), "{drop}, round {round}: {left:?} is back");
        }
    }
}

/// What cannot be read in the collections of users and roles allows nothing.
#[test]
fn damaged_users_and_roles_allow_nothing() {
    let server = auth();
    let mut c = root(&server);
    // Only members may write roles without the commands for them.
    run(
        &mut c,
        "admin",
        "{createUser: 'member', pwd: 'pw', roles: ['__system'], mechanisms: ['SCRAM-SHA-1']}",
    );
    let mut member = server.connect();
    login(&mut member, "admin", "member", "pw", SHA1).unwrap();
    run(
        &mut c,
        "own",
        "{createRole: 'r', roles: [], privileges: [
            {resource: {db: 'own', collection: ''}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['r']");
    let mut u = as_user(&server, "u");
    run(&mut u, "own", "{find: 'c'}");
    for damage in [
        "{privileges: 1}",
        "{privileges: [1]}",
        "{privileges: [{resource: 1, actions: ['find']}]}",
        "{privileges: [{resource: {db: 'own', collection: ''}, actions: ['nonsense']}]}",
        "{privileges: [{}], roles: 7}",
    ] {
        let update = format!(
            "{{update: 'system.roles', updates: [{{q: {{_id: 'own.r'}}, u: {{$set: {damage}}}}}]}}"
        );
        run(&mut member, "admin", &update);
        assert_ne!(code(&mut u, "own", "{find: 'c'}"), 0, "{damage}");
        // A driver must still be able to shake hands and to ask who it is.
        expect(
            &mut u,
            "admin",
            0,
            &["{hello: 1}", "{ping: 1}", "{logout: 1}"],
        );
        let _ = login(&mut u, "own", "u", "pw", SHA1);
        run(
            &mut c,
            "own",
            "{updateRole: 'r', roles: [], privileges: [
            {resource: {db: 'own', collection: ''}, actions: ['find']}]}",
        );
        login(&mut u, "own", "u", "pw", SHA1).unwrap();
        run(&mut u, "own", "{find: 'c'}");
    }
    for damage in [
        "{credentials: 1}",
        "{credentials: {'SCRAM-SHA-1': 1}}",
        "{'credentials.SCRAM-SHA-1': {iterationCount: 1, salt: 'x', storedKey: 'x', serverKey: 'x'}}",
        "{'credentials.SCRAM-SHA-1.iterationCount': 0}",
        "{'credentials.SCRAM-SHA-1.iterationCount': NumberLong('99999999999')}",
        "{'credentials.SCRAM-SHA-1.salt': ''}",
        "{authenticationRestrictions: [1]}",
        "{authenticationRestrictions: [{clientSource: 1}]}",
    ] {
        let name = "{_id: 'own.u'}";
        let update =
            format!("{{update: 'system.users', updates: [{{q: {name}, u: {{$set: {damage}}}}}]}}");
        run(&mut member, "admin", &update);
        let e = login(&mut server.connect(), "own", "u", "pw", SHA1);
        assert!(e.is_err(), "{damage}");
        run(&mut c, "own", "{dropUser: 'u'}");
        user(&mut c, "u", "['r']");
        login(&mut server.connect(), "own", "u", "pw", SHA1).unwrap();
    }
}
