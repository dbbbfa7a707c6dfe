//! Logins, logouts, and what users may do.

use super::*;

fn login_of(event: &DocBuf) -> (String, String, String) {
    let p = param(event);
    let field = |name: &str| p.get_str(name).unwrap().to_string();
    (field("user"), field("db"), field("mechanism"))
}

#[test]
fn logins_and_logouts() {
    let audited = Audited::start(&["--auth"]);
    let mut c = audited.root();
    let good = audited.last("authenticate");
    let named = |user: &str, db: &str| (user.into(), db.into(), "SCRAM-SHA-256".into());
    assert_eq!(login_of(&good), named("root", "admin"));
    assert_eq!((result(&good), who(&good)), (0, "root@admin".to_string()));
    let roles = good.as_doc().get_array("roles").unwrap().to_display();
    assert!(roles.contains("root"), "the roles of the new user: {roles}");
    for (user, password) in [("root", "wrong"), ("nobody", PASSWORD)] {
        let mut d = audited.server.connect();
        assert!(login(&mut d, "admin", user, password).is_err());
        let bad = audited.last("authenticate");
        assert_eq!(login_of(&bad), named(user, "admin"));
        assert_eq!((result(&bad), who(&bad)), (18, String::new()));
    }
    let plain = "{saslStart: 1, mechanism: 'PLAIN', payload: ''}";
    assert_eq!(told(&mut audited.server.connect(), "admin", plain).0, 334);
    let bad = audited.last("authenticate");
    assert_eq!((login_of(&bad).2.as_str(), result(&bad)), ("PLAIN", 334));
    assert_eq!(audited.of("logout").len(), 0);
    // Somebody who has not logged in cannot log out.
    run(&mut audited.server.connect(), "admin", "{logout: 1}");
    assert_eq!(audited.of("logout").len(), 0);
    let create = format!("{{createUser: 'gone', pwd: '{PASSWORD}', roles: []}}");
    run(&mut c, "own", &create);
    let mut gone = audited.server.connect();
    login(&mut gone, "own", "gone", PASSWORD).unwrap();
    run(&mut c, "own", "{dropUser: 'gone'}");
    assert_eq!(told(&mut gone, "own", "{find: 'c'}").0, 13);
    assert_eq!(who(&audited.last("logout")), "gone@own");
    // A connection that ends is a logout, too.
    let before = audited.of("logout").len();
    let mut ends = audited.server.connect();
    login(&mut ends, "admin", "root", PASSWORD).unwrap();
    drop(ends);
    audited.server.until("the end of the connection", || {
        (audited.of("logout").len() == before + 1).then_some(())
    });
    let reason = param(&audited.last("logout")).to_display();
    assert!(reason.contains("disconnected"), "{reason}");
    run(&mut c, "admin", "{logout: 1}");
    let out = audited.last("logout");
    assert_eq!(who(&out), "root@admin");
    let users = param(&out).get_array("initialUsers").unwrap();
    assert!(users.to_display().contains("root"));
    assert_eq!(param(&out).get_array("updatedUsers").unwrap().count(), 0);
}

#[test]
fn refusals_are_there_always() {
    let audited = Audited::start(&["--auth"]);
    let mut c = audited.root();
    let create = format!("{{createUser: 'low', pwd: '{PASSWORD}', roles: ['read']}}");
    run(&mut c, "own", &create);
    let mut low = audited.server.connect();
    let mut stranger = audited.server.connect();
    login(&mut low, "own", "low", PASSWORD).unwrap();
    let hidden = format!("{{createUser: 'x', pwd: '{PASSWORD}', roles: []}}");
    let table = [
        (
            "own",
            "{insert: 'c', documents: [{a: 'secret of nobody'}]}",
            "own.c",
            "secret of nobody",
        ),
        ("own", hidden.as_str(), "own.$cmd", "createUser: \"xxx\""),
        ("admin", "{shutdown: 1}", "admin.$cmd", "shutdown: 1"),
        ("other", "{find: 'c', filter: {a: 1}}", "other.c", "a: 1"),
        (
            "own",
            "{aggregate: 'c', pipeline: [{$lookup: {from: 'system.js', as: 'a', pipeline: []}}, {$out: 'd'}], cursor: {}}",
            "own.c",
            "$out",
        ),
    ];
    for (c, user) in [(&mut low, "low@own"), (&mut stranger, "")] {
        for (db, cmd, ns, args) in &table {
            let before = audited.of("authCheck").len();
            assert_eq!(told(c, db, cmd).0, 13, "{cmd}");
            let event = audited.last("authCheck");
            assert_eq!(audited.of("authCheck").len(), before + 1, "{cmd}");
            assert_eq!((result(&event), who(&event).as_str()), (13, user), "{cmd}");
            let p = param(&event);
            assert_eq!(p.get_str("ns"), Some(*ns), "{cmd}");
            let first = shell(cmd);
            let name = first.as_doc().first().unwrap().name();
            assert_eq!(p.get_str("command"), Some(name));
            let shown = p.get_doc("args").unwrap().to_display();
            assert!(shown.contains(args), "{cmd}: {shown}");
        }
    }
    // Strangers cannot fill the disk with few requests; of a user more is shown.
    let long = format!(
        "{{insert: 'c', documents: [{{a: '{}'}}]}}",
        "x".repeat(10_000)
    );
    for (c, least, most) in [(&mut stranger, 100, 2000), (&mut low, 10_000, 11_000)] {
        assert_eq!(told(c, "own", &long).0, 13);
        let all = std::fs::read_to_string(&audited.path).unwrap();
        let bytes = all.lines().last().unwrap().len();
        assert!((least..most).contains(&bytes), "{bytes} bytes");
    }
    let create = |e: &&DocBuf| text(e, "atype") == "createUser";
    let made = audited.events().iter().filter(create).count();
    assert_eq!(made, 2, "what was refused is no createUser");
}

#[test]
fn what_is_allowed_is_there_if_asked_for() {
    let audited = Audited::start(&["--auth"]);
    let mut c = audited.root();
    let reads_and_writes = [
        ("find", "{find: 'c', filter: {a: 1}}"),
        ("insert", "{insert: 'c', documents: [{a: 1}]}"),
        ("aggregate", "{aggregate: 'c', pipeline: [], cursor: {}}"),
    ];
    let others = ["{ping: 1}", "{connectionStatus: 1}"];
    for (_, cmd) in reads_and_writes {
        run(&mut c, "own", cmd);
    }
    assert_eq!(audited.of("authCheck").len(), 0);
    let set = |on: bool| format!("{{setParameter: 1, auditAuthorizationSuccess: {on}}}");
    run(&mut c, "admin", &set(true));
    for (name, cmd) in reads_and_writes {
        run(&mut c, "own", cmd);
        let event = audited.last("authCheck");
        assert_eq!(param(&event).get_str("command"), Some(name));
        assert_eq!(param(&event).get_str("ns"), Some("own.c"));
        assert_eq!((result(&event), who(&event).as_str()), (0, "root@admin"));
    }
    for cmd in others {
        run(&mut c, "own", cmd);
    }
    run(&mut c, "admin", &set(false));
    run(&mut c, "own", "{find: 'c'}");
    // The last one is that which has switched it off.
    let n = reads_and_writes.len() + 1;
    assert_eq!(audited.of("authCheck").len(), n);
    assert_eq!(
        param(&audited.last("authCheck")).get_str("command"),
        Some("setParameter")
    );
    // Documents that come beside the command are shown with it.
    run(&mut c, "admin", &set(true));
    let sequence = [shell("{a: 'beside'}")];
    let body = shell("{insert: 'c'}");
    c.command_with("own", &body, &[("documents", &sequence)])
        .unwrap();
    let shown = param(&audited.last("authCheck")).to_display();
    assert!(shown.contains("beside"), "{shown}");
}

#[test]
fn no_password_and_no_key_is_in_the_log() {
    let set = "auditAuthorizationSuccess=true";
    let audited = Audited::start(&["--auth", "--setParameter", set]);
    let mut c = audited.root();
    let p = PASSWORD;
    let mut stranger = audited.server.connect();
    let commands = [
        format!("{{createUser: 'u', pwd: '{p}', roles: []}}"),
        format!("{{createUser: 'u', pwd: '{p}', roles: ['nope']}}"),
        format!("{{createUser: 'u', pwd: {{a: '{p}'}}, roles: []}}"),
        format!("{{createUser: 'u', pwd: '{p}', roles: [], other: 1}}"),
        format!("{{updateUser: 'u', pwd: '{p}'}}"),
        format!("{{updateUser: 'nobody', pwd: '{p}'}}"),
        format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: '{p}'}}"),
        format!("{{saslContinue: 1, conversationId: 1, payload: '{p}'}}"),
        format!("{{authenticate: 1, user: 'u', key: '{p}'}}"),
        format!("{{nope: 1, key: '{p}'}}"),
        format!("{{explain: {{createUser: 'x', pwd: '{p}', roles: []}}}}"),
        format!(
            "{{applyOps: [{{op: 'c', ns: 'own.$cmd', o: {{createUser: 'x', pwd: '{p}', roles: []}}}}]}}"
        ),
        format!(
            "{{applyOps: [{{op: 'i', ns: 'admin.system.users', o: {{_id: 'a', credentials: '{p}'}}}}]}}"
        ),
        format!("{{insert: 'system.users', documents: [{{_id: 'b', credentials: '{p}'}}]}}"),
        format!(
            "{{update: 'system.users', updates: [{{q: {{}}, u: {{$set: {{credentials: '{p}'}}}}}}]}}"
        ),
        format!("{{find: 'system.users', filter: {{credentials: '{p}'}}}}"),
    ];
    for cmd in &commands {
        for db in ["own", "admin"] {
            told(&mut c, db, cmd);
            told(&mut stranger, db, cmd);
        }
    }
    let log = std::fs::read_to_string(&audited.path).unwrap();
    assert!(log.lines().count() > commands.len());
    // A collection "own.system.users" is one like any other.
    let shown = |line: &&str| {
        ["storedKey", "StoredKey", "serverKey", "salt", PASSWORD]
            .iter()
            .any(|s| line.contains(s))
            && !line.contains("own.system.users")
    };
    let shown: Vec<&str> = log.lines().filter(shown).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}
