//! Logging in: what is answered before it, both mechanisms, and what is no login.

use super::*;

/// The first user may be created by a client on this host; nothing else is possible without a login.
#[test]
fn before_a_login_only_a_handful_is_answered() {
    let server = auth();
    let mut c = server.connect();
    // Well-formed commands, too, and before there is a user.
    for (db, cmd) in [
        ("test", "{createUser: 'x', pwd: 'x', roles: []}"),
        ("admin", "{find: 'c'}"),
        ("admin", "{find: 'system.users'}"),
        ("admin", "{createRole: 'x', roles: [], privileges: []}"),
        ("admin", "{usersInfo: 1}"),
        ("admin", "{grantRolesToUser: 'x', roles: ['root']}"),
        (
            "admin",
            "{aggregate: 1, pipeline: [{$documents: [{}]}], cursor: {}}",
        ),
        ("test", "{insert: 'c', documents: [{}]}"),
        ("test", "{endSessions: []}"),
        ("admin", "{serverStatus: 1}"),
        ("admin", "{explain: {createUser: 'x', pwd: 'x', roles: []}}"),
        ("admin", "{bulkWrite: 1, ops: [], nsInfo: []}"),
    ] {
        let (code, text) = told(&mut c, db, cmd);
        assert!(code == 13 && text.contains(NEEDED), "{cmd}: {code} {text}");
    }
    make_root(&mut c);
    let wrong = answered_without(&server);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A command without a reply does nothing either.
    let mut other = server.connect();
    let insert = "{insert: 'c', documents: [{}], writeConcern: {w: 0}}";
    other.send_only("test", &shell(insert)).unwrap();
    run(&mut other, "test", "{ping: 1}");
    let n = run(&mut c, "test", "{count: 'c'}");
    assert_eq!(n.as_doc().get("n").unwrap().as_i64_exact(), Some(0));
}

#[test]
fn the_exception_for_the_first_user_ends_with_that() {
    let mut server = auth();
    let create = "{createUser: 'other', pwd: 'x', roles: ['root']}";
    let mut c = root(&server);
    let refused = |server: &Server| {
        let mut c = server.connect();
        for db in ["admin", "$external", "test"] {
            let (code, text) = told(&mut c, db, create);
            assert!(code == 13 && text.contains(NEEDED), "{db}: {code} {text}");
        }
        for cmd in [
            "{replSetGetStatus: 1}",
            "{replSetGetConfig: 1}",
            "{replSetInitiate: {}}",
        ] {
            assert_eq!(code(&mut c, "admin", cmd), 13, "{cmd}");
        }
    };
    refused(&server);
    if !testkit::persistent() {
        return;
    }
    server.restart();
    refused(&server);
    drop(c);
    c = server.connect();
    login(&mut c, "admin", "root", "rootpw", SHA1).unwrap();
    let reply = run(&mut c, "admin", "{dropAllUsersFromDatabase: 1}");
    assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(1));
    assert!(is_logged_out(&mut c));
    // No user is left, but there was one since the start.
    refused(&server);
    server.restart();
    // Now it holds again.
    let mut c = root(&server);
    assert_eq!(whoami(&mut c).as_deref(), Some("root@admin"));
    refused(&server);
}

#[test]
fn both_mechanisms_log_in() {
    let server = auth();
    let mut admin = root(&server);
    run(
        &mut admin,
        "own",
        "{createUser: 'both', pwd: 'pä=,ss', roles: ['read']}",
    );
    run(
        &mut admin,
        "own",
        "{createUser: 'a=b,c', pwd: 'pw', roles: [], mechanisms: ['SCRAM-SHA-256']}",
    );
    user(&mut admin, "sha1", "[]");
    for mechanism in [SHA1, SHA256] {
        for skips in [false, true] {
            let mut c = server.connect();
            let mut client = client("both", "pä=,ss", mechanism);
            let first = client.first();
            let reply = sasl_start(&mut c, "own", mechanism, first.as_bytes(), skips).unwrap();
            assert!(!is_done(&reply));
            assert_eq!(
                reply.as_doc().get("conversationId").unwrap().as_i64_exact(),
                Some(1)
            );
            assert!(whoami(&mut c).is_none());
            let answer = client.next(&payload(&reply)).unwrap();
            let reply = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap();
            client.verify(&payload(&reply)).unwrap();
            assert_eq!(is_done(&reply), skips);
            if !skips {
                let last = sasl_continue(&mut c, "own", b"").unwrap();
                assert!(is_done(&last) && payload(&last).is_empty());
            }
            assert_eq!(whoami(&mut c).as_deref(), Some("both@own"));
            assert_eq!(code(&mut c, "own", "{find: 'c'}"), 0);
            assert_eq!(code(&mut c, "other", "{find: 'c'}"), 13);
            // The conversation is over.
            let again = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap_err();
            assert_eq!(again.code().0, 17, "{again}");
            assert_eq!(whoami(&mut c).as_deref(), Some("both@own"));
        }
        // With hello.
        let mut c = server.connect();
        let mut client = client("both", "pä=,ss", mechanism);
        let first = client.first();
        let hello = doc! {
            "hello": 1,
            "saslSupportedMechs": "own.both",
            "speculativeAuthenticate": doc! {
                "saslStart": 1,
                "mechanism": mechanism,
                "payload": binary(first.as_bytes()),
                "db": "own",
                "options": doc! { "skipEmptyExchange": true },
            },
        };
        let reply = c.command("admin", &hello).unwrap();
        let begun = reply
            .as_doc()
            .get_doc("speculativeAuthenticate")
            .unwrap()
            .to_buf();
        assert!(!is_done(&begun) && whoami(&mut c).is_none());
        let answer = client.next(&payload(&begun)).unwrap();
        let reply = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap();
        client.verify(&payload(&reply)).unwrap();
        assert!(is_done(&reply));
        assert_eq!(whoami(&mut c).as_deref(), Some("both@own"));
    }
    let mut c = server.connect();
    login(&mut c, "own", "a=b,c", "pw", SHA256).unwrap();
    assert_eq!(whoami(&mut c).as_deref(), Some("a=b,c@own"));
    // The mechanisms of a user.
    let mut c = server.connect();
    for (asked, mechanisms) in [
        ("'own.both'", Some("[ \"SCRAM-SHA-1\", \"SCRAM-SHA-256\" ]")),
        (
            "{user: 'both', db: 'own'}",
            Some("[ \"SCRAM-SHA-1\", \"SCRAM-SHA-256\" ]"),
        ),
        ("'own.sha1'", Some("[ \"SCRAM-SHA-1\" ]")),
        ("'own.nobody'", None),
        ("'other.both'", None),
    ] {
        let reply = run(
            &mut c,
            "admin",
            &format!("{{hello: 1, saslSupportedMechs: {asked}}}"),
        );
        let shown = reply
            .as_doc()
            .get("saslSupportedMechs")
            .map(|v| v.to_display());
        assert_eq!(shown.as_deref(), mechanisms, "{asked}");
    }
    // What cannot be begun with hello is left out of its reply.
    for mechanism in ["PLAIN", "MONGODB-X509", ""] {
        let cmd = format!(
            "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: '{mechanism}', \
             payload: HexData(0, '6e'), db: 'own'}}}}"
        );
        let reply = run(&mut c, "admin", &cmd);
        assert!(reply.as_doc().get("speculativeAuthenticate").is_none());
        let e = sasl_start(&mut c, "own", mechanism, b"n,,n=both,r=x", true).unwrap_err();
        assert_eq!(e.code().0, 334, "{e}");
    }
}

#[test]
fn an_unknown_user_and_a_wrong_password_look_the_same() {
    let server = auth();
    let mut admin = root(&server);
    run(
        &mut admin,
        "own",
        "{createUser: 'known', pwd: 'pw', roles: ['read']}",
    );
    user(&mut admin, "sha1", "[]");
    for mechanism in [SHA1, SHA256] {
        let mut c = server.connect();
        let (nonce, iterations, salt) = first_answer(&mut c, "known", mechanism);
        let (nonce2, iterations2, salt2) = first_answer(&mut c, "unknown", mechanism);
        assert_eq!((nonce, iterations), (nonce2, iterations2));
        assert_eq!(salt.len(), salt2.len());
        assert_ne!(salt, salt2);
        // The salt of a user who does not exist does not change either.
        assert_eq!(
            first_answer(&mut server.connect(), "unknown", mechanism).2,
            salt2
        );
        assert_ne!(first_answer(&mut c, "unknown2", mechanism).2, salt2);
        for (name, password) in [("known", "wrong"), ("unknown", "pw"), ("unknown", "wrong")] {
            let e = login(&mut c, "own", name, password, mechanism).unwrap_err();
            assert_eq!((e.code().0, e.message()), (18, FAILED), "{name}");
            assert!(is_logged_out(&mut c));
        }
        login(&mut c, "own", "known", "pw", mechanism).unwrap();
    }
    // A user without this mechanism, and a known user's name in another database.
    for (db, name) in [("own", "sha1"), ("other", "known"), ("admin", "known")] {
        let e = login(&mut server.connect(), db, name, "pw", SHA256).unwrap_err();
        assert_eq!((e.code().0, e.message()), (18, FAILED), "{db}.{name}");
    }
}

#[test]
fn altered_messages_log_nobody_in() {
    let server = auth();
    let mut admin = root(&server);
    user(&mut admin, "u", "['read']");
    let reset = || login(&mut server.connect(), "own", "u", "pw", SHA1).unwrap();
    // The first message.
    let long = format!("n,,n=u,r={}", "x".repeat(5000));
    for first in [
        "",
        "n",
        "n,,",
        "n,,n=u",
        "n,,r=nonceOfTheTests0000",
        "n,,n=,r=nonceOfTheTests000000000",
        "n,,n=u,r=",
        "y,,n=u",
        "p=tls-unique,,n=u,r=nonceOfTheTests000000000",
        "n,a=root,n=u,r=nonceOfTheTests000000000",
        "n,,m=x,n=u,r=nonceOfTheTests000000000",
        "n,,n=u=,r=nonceOfTheTests000000000",
        "n,,n=u\0,r=nonceOfTheTests000000000",
        &long,
    ] {
        let mut c = server.connect();
        let e = sasl_start(&mut c, "own", SHA1, first.as_bytes(), true);
        let e = e.expect_err(first);
        assert!(matches!(e.code().0, 2 | 9 | 17 | 18), "{first}: {e}");
        let e = sasl_continue(&mut c, "own", b"c=biws,r=x,p=x").unwrap_err();
        assert_eq!(e.code().0, 17, "{first}: {e}");
        assert!(is_logged_out(&mut c), "{first}");
    }
    let e = sasl_start(
        &mut server.connect(),
        "own",
        SHA1,
        b"n,,n=\xff,r=abcdefgh",
        true,
    );
    assert!(e.is_err());
    // The final message.
    let flipped = |text: &str| {
        // The first character of the proof.
        let (before, proof) = text.split_once(",p=").unwrap();
        let first = if proof.starts_with('A') { "B" } else { "A" };
        format!("{before},p={first}{}", &proof[1..])
    };
    type Alter<'a> = &'a dyn Fn(&str) -> String;
    let alterations: &[Alter<'_>] = &[
        &|_| String::new(),
        &flipped,
        &|t| t.replace("c=biws", "c=eSws"),
        &|t| t.replace("c=biws,", ""),
        &|t| t.replacen("nonceOfTheTests", "nonceOfTheTestz", 1),
        &|t| t.replacen(",p=", "x,p=", 1),
        &|t| t.replacen(",p=", ",z=1,p=", 1),
        &|t| t.split_once(",p=").unwrap().0.to_string(),
        &|t| format!("{},p=", t.split_once(",p=").unwrap().0),
        &|t| t[..t.len() - 4].to_string(),
        &|t| format!("{t}AAAA"),
        &|t| format!("{t},p=AAAA"),
        &|t| format!("{t}{}", "A".repeat(5000)),
        &|t| t.split_once(",p=").unwrap().1.to_string(),
    ];
    let mut old = String::new();
    for (i, alter) in alterations.iter().enumerate() {
        let mut c = server.connect();
        let mut client = client("u", "pw", SHA1);
        let reply = sasl_start(&mut c, "own", SHA1, client.first().as_bytes(), true).unwrap();
        let answer = client.next(&payload(&reply)).unwrap();
        let altered = alter(&answer);
        assert_ne!(altered, answer, "{i}");
        let e = sasl_continue(&mut c, "own", altered.as_bytes()).expect_err(&altered);
        assert_eq!((e.code().0, e.message()), (18, FAILED), "{i}: {altered}");
        // A conversation is for one try.
        let e = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap_err();
        assert_eq!(e.code().0, 17, "{i}: {e}");
        assert!(is_logged_out(&mut c), "{i}");
        old = answer;
        reset();
    }
    // An old message is of no use, in the same conversation's place or in another.
    let mut c = server.connect();
    let begin = |c: &mut Connection| {
        let mut client = client("u", "pw", SHA1);
        let reply = sasl_start(c, "own", SHA1, client.first().as_bytes(), true).unwrap();
        client.next(&payload(&reply)).unwrap()
    };
    begin(&mut c);
    assert_eq!(
        sasl_continue(&mut c, "own", old.as_bytes())
            .unwrap_err()
            .code()
            .0,
        18
    );
    // A conversation that another replaces is over.
    let first = begin(&mut c);
    begin(&mut c);
    assert_eq!(
        sasl_continue(&mut c, "own", first.as_bytes())
            .unwrap_err()
            .code()
            .0,
        18
    );
    // Another id, another connection.
    let answer = begin(&mut c);
    let other =
        doc! { "saslContinue": 1, "conversationId": 2, "payload": binary(answer.as_bytes()) };
    assert_eq!(c.command("own", &other).unwrap_err().code().0, 17);
    assert!(is_logged_out(&mut c));
    let answer = begin(&mut c);
    let mut d = server.connect();
    assert_eq!(
        sasl_continue(&mut d, "own", answer.as_bytes())
            .unwrap_err()
            .code()
            .0,
        17
    );
    assert!(is_logged_out(&mut d));
    // The same conversation is not affected.
    sasl_continue(&mut c, "own", answer.as_bytes()).unwrap();
    assert_eq!(whoami(&mut c).as_deref(), Some("u@own"));
}

#[test]
fn one_user_at_a_time_and_logging_out() {
    let server = auth();
    let mut admin = root(&server);
    user(&mut admin, "a", "['read']");
    user(&mut admin, "b", "['readWrite']");
    let mut c = as_user(&server, "a");
    let e = login(&mut c, "own", "b", "pw", SHA1).unwrap_err();
    assert_eq!(e.code().0, 17, "{e}");
    assert_eq!(whoami(&mut c).as_deref(), Some("a@own"));
    assert_eq!(code(&mut c, "own", "{insert: 'c', documents: [{}]}"), 13);
    // A try that fails leaves the login as it was; the same user again is fine.
    assert_eq!(
        login(&mut c, "own", "a", "wrong", SHA1)
            .unwrap_err()
            .code()
            .0,
        18
    );
    assert_eq!(whoami(&mut c).as_deref(), Some("a@own"));
    login(&mut c, "own", "a", "pw", SHA1).unwrap();
    // Without being proven, nothing changes.
    let first = client("b", "pw", SHA1).first();
    sasl_start(&mut c, "own", SHA1, first.as_bytes(), true).unwrap();
    assert_eq!(whoami(&mut c).as_deref(), Some("a@own"));
    for db in ["own", "admin"] {
        run(&mut c, db, "{logout: 1}");
        assert!(is_logged_out(&mut c));
        // A conversation does not outlive it.
        assert_eq!(sasl_continue(&mut c, "own", b"x").unwrap_err().code().0, 17);
        login(&mut c, "own", "b", "pw", SHA1).unwrap();
        run(&mut c, "own", "{insert: 'c', documents: [{}]}");
        assert_eq!(whoami(&mut c).as_deref(), Some("b@own"));
    }
}

#[test]
fn restrictions_keep_this_host_out() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "admin",
        "{createRole: 'far', privileges: [], roles: [],
        authenticationRestrictions: [{clientSource: ['10.1.0.0/16']}]}",
    );
    run(
        &mut c,
        "admin",
        "{createRole: 'near', privileges: [], roles: [],
        authenticationRestrictions: [{clientSource: ['127.0.0.0/8']}]}",
    );
    run(
        &mut c,
        "admin",
        "{createRole: 'farther', privileges: [], roles: ['far']}",
    );
    for (i, (restrictions, roles, allowed)) in [
        ("[]", "[]", true),
        ("[{clientSource: ['127.0.0.1']}]", "[]", true),
        ("[{clientSource: ['::1', '127.0.0.1/32']}]", "[]", true),
        ("[{serverAddress: ['127.0.0.0/8']}]", "[]", true),
        (
            "[{clientSource: ['10.0.0.1']}, {clientSource: ['127.0.0.1']}]",
            "[]",
            true,
        ),
        ("[{clientSource: ['10.0.0.1']}]", "[]", false),
        ("[{clientSource: ['127.0.0.2']}]", "[]", false),
        ("[{serverAddress: ['10.0.0.1']}]", "[]", false),
        (
            "[{clientSource: ['127.0.0.1'], serverAddress: ['10.0.0.1']}]",
            "[]",
            false,
        ),
        ("[]", "[{role: 'near', db: 'admin'}]", true),
        ("[]", "[{role: 'far', db: 'admin'}]", false),
        ("[]", "[{role: 'farther', db: 'admin'}]", false),
        (
            "[{clientSource: ['127.0.0.1']}]",
            "[{role: 'far', db: 'admin'}]",
            false,
        ),
        (
            "[{clientSource: ['10.1.0.1']}]",
            "[{role: 'near', db: 'admin'}]",
            false,
        ),
    ]
    .iter()
    .enumerate()
    {
        let cmd = format!(
            "{{createUser: 'u{i}', pwd: 'pw', roles: {roles}, mechanisms: ['SCRAM-SHA-1'], \
             authenticationRestrictions: {restrictions}}}"
        );
        run(&mut c, "own", &cmd);
        let mut d = server.connect();
        match login(&mut d, "own", &format!("u{i}"), "pw", SHA1) {
            Ok(()) => assert!(allowed, "{cmd}"),
            Err(e) => {
                assert!(!allowed, "{cmd}: {e}");
                assert_eq!((e.code().0, e.message()), (18, FAILED));
                assert!(is_logged_out(&mut d));
                // So that the next try need not wait.
                login(&mut d, "admin", "root", "rootpw", SHA1).unwrap();
            }
        }
    }
}

/// A login that has begun ends with the password that it began with.
#[test]
fn a_login_does_not_outlive_its_password() {
    let server = auth();
    let mut r = root(&server);
    let create = "{createUser: 'tom', pwd: 'old', roles: []}";
    let changes = [
        vec!["{updateUser: 'tom', pwd: 'new'}"],
        vec!["{dropUser: 'tom'}"],
        vec![
            "{dropUser: 'tom'}",
            "{createUser: 'tom', pwd: 'old', roles: ['dbOwner']}",
        ],
    ];
    for change in &changes {
        run(&mut r, "own", create);
        let mut c = server.connect();
        let mut tom = client("tom", "old", SHA1);
        let reply = sasl_start(&mut c, "own", SHA1, tom.first().as_bytes(), true).unwrap();
        let proof = tom.next(&payload(&reply)).unwrap();
        for cmd in change {
            run(&mut r, "own", cmd);
        }
        let e = sasl_continue(&mut c, "own", proof.as_bytes()).unwrap_err();
        assert_eq!((e.code().0, e.message()), (18, FAILED), "{change:?}");
        run(&mut r, "own", "{dropAllUsersFromDatabase: 1}");
    }
}

/// Of several clients that create a first user at once, one does.
#[test]
fn there_is_one_first_user() {
    for _ in 0..5 {
        let server = auth();
        let clients: Vec<Connection> = (0..8).map(|_| server.connect()).collect();
        let created: Vec<i64> = std::thread::scope(|scope| {
            let threads: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(n, mut c)| {
                    let cmd = format!("{{createUser: 'u{n}', pwd: 'p', roles: ['root']}}");
                    scope.spawn(move || code(&mut c, "admin", &cmd))
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(
            created.iter().filter(|c| **c == 0).count(),
            1,
            "{created:?}"
        );
        assert!(created.iter().all(|c| matches!(c, 0 | 13)), "{created:?}");
    }
}

/// A client that has not logged in does not move the set's clock.
#[test]
fn strangers_do_not_set_the_clock() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "abcdef").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options = ServerOptions::new()
        .arg("--replSet")
        .arg("rs0")
        .arg("--autoInitiate");
    let server = Server::start(options.arg("--keyFile").arg(key.to_str().unwrap()));
    server.until("it is primary", || {
        let reply = server
            .connect()
            .command("admin", &doc! { "hello": 1 })
            .ok()?;
        (reply.as_doc().get("isWritablePrimary")?.as_bool()?).then_some(())
    });
    let mut c = server.connect();
    make_root(&mut c);
    let mut r = server.connect();
    login(&mut r, "admin", "root", "rootpw", SHA1).unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let later = now.as_secs() + 300 * 86_400;
    let cmd = format!(
        "{{ping: 1, $clusterTime: {{clusterTime: Timestamp({later}, 1), signature: {{hash: HexData(0, '0000000000000000000000000000000000000000'), keyId: NumberLong(0)}}}}}}"
    );
    run(&mut server.connect(), "admin", &cmd);
    let reply = run(&mut r, "own", "{insert: 'c', documents: [{}]}");
    let time = reply.as_doc().get("operationTime").unwrap().to_display();
    assert!(!time.contains(&later.to_string()), "{time}");
}

#[test]
fn passwords_are_stretched_as_often_as_the_parameters_say() {
    let options = ServerOptions::new().arg("--auth");
    let options = options
        .arg("--setParameter")
        .arg("scramSHA256IterationCount=6000");
    let server = Server::start(options);
    let mut c = root(&server);
    run(
        &mut c,
        "admin",
        "{setParameter: 1, scramIterationCount: 7000}",
    );
    for bad in ["4999", "'many'", "1000001"] {
        let set = format!("{{setParameter: 1, scramIterationCount: {bad}}}");
        assert_ne!(code(&mut c, "admin", &set), 0, "{bad}");
    }
    run(&mut c, "own", "{createUser: 'ann', pwd: 'p', roles: []}");
    let offered = |user: &str, mechanism: &str| {
        let first = client(user, "p", mechanism);
        let first = first.first().as_bytes().to_vec();
        let reply = sasl_start(&mut server.connect(), "own", mechanism, &first, true).unwrap();
        let text = String::from_utf8(payload(&reply)).unwrap();
        text.rsplit_once("i=").unwrap().1.to_string()
    };
    // A user that does not exist looks the same.
    for user in ["ann", "nobody"] {
        assert_eq!(offered(user, SHA256), "6000", "{user}");
        assert_eq!(offered(user, SHA1), "7000", "{user}");
    }
    for mechanism in [SHA256, SHA1] {
        login(&mut server.connect(), "own", "ann", "p", mechanism).unwrap();
    }
    // What was stored before stays as it is.
    run(
        &mut c,
        "admin",
        "{setParameter: 1, scramIterationCount: 9000}",
    );
    assert_eq!(offered("ann", SHA1), "7000");
    run(&mut c, "own", "{updateUser: 'ann', pwd: 'p'}");
    assert_eq!(offered("ann", SHA1), "9000");
    let shown = run(
        &mut c,
        "admin",
        "{getParameter: 1, authenticationMechanisms: 1}",
    );
    let shown = shown.as_doc().to_display();
    assert!(shown.contains("MONGODB-X509") && shown.contains(SHA256));
}

#[test]
fn names_that_clients_choose_are_kept_and_logged_in_part() {
    let server = auth();
    let _root = root(&server);
    let long = "\u{1}".repeat(3000);
    let longest = "x".repeat(60_000);
    let before = server.log().len();
    for mechanism in [SHA1, SHA256] {
        let first = client(&long, "p", mechanism);
        let first = first.first().as_bytes().to_vec();
        let e = sasl_start(&mut server.connect(), "own", mechanism, &first, true);
        assert_eq!(e.unwrap_err().code().0, 18);
    }
    let cmd = doc! { "saslStart": 1, "mechanism": &*longest, "payload": binary(b"n,,n=a,r=b") };
    let e = server.connect().command("own", &cmd).unwrap_err();
    assert!(e.code().0 == 334 && e.message().len() < 300, "{e}");
    let cmd = doc! { "authenticate": 1, "mechanism": "MONGODB-X509", "user": &*longest };
    let e = server.connect().command("$external", &cmd).unwrap_err();
    assert_eq!(e.code().0, 18);
    // The database of a login that comes with a hello.
    let first = client("ann", "p", SHA256);
    let login = doc! {
        "saslStart": 1, "mechanism": SHA256, "db": &*longest,
        "payload": binary(first.first().as_bytes()),
    };
    let hello = doc! { "hello": 1, "speculativeAuthenticate": login };
    let reply = server.connect().command("admin", &hello).unwrap();
    assert!(reply.as_doc().get("speculativeAuthenticate").is_none());
    assert!(server.log().len() < before + 16_000, "{}", server.log());
}
