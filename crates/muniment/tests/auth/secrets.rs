//! Passwords and keys are shown nowhere.

use super::*;

#[test]
fn passwords_and_keys_appear_nowhere() {
    let server = auth_for_tests();
    let mut c = root(&server);
    let mut texts: Vec<String> = Vec::new();
    for db in ["admin", "own"] {
        run(&mut c, db, "{profile: 2, slowms: 0}");
        run(&mut c, db, "{find: 'c'}");
    }
    run(&mut c, "admin", "{setParameter: 1, logLevel: 1}");
    user(&mut c, "low", "['read']");
    let mut low = as_user(&server, "low");
    run(
        &mut c,
        "own",
        &format!("{{createUser: 'u', pwd: '{PASSWORD}', roles: ['read']}}"),
    );
    for mechanism in [SHA1, SHA256] {
        login(&mut server.connect(), "own", "u", PASSWORD, mechanism).unwrap();
        assert!(login(&mut server.connect(), "own", "nobody", PASSWORD, mechanism).is_err());
        login(&mut server.connect(), "own", "u", PASSWORD, mechanism).unwrap();
    }
    run(
        &mut c,
        "own",
        &format!("{{updateUser: 'u', pwd: '{PASSWORD}'}}"),
    );
    // A wrong one.
    assert!(login(&mut server.connect(), "own", "low", PASSWORD, SHA1).is_err());
    let p = PASSWORD;
    let plain = format!("\0u\0{p}");
    let plain: String = plain.bytes().map(|b| format!("{b:02x}")).collect();
    let malformed = [
        format!("{{createUser: 'x', pwd: '{p}', roles: 1}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: ['nope']}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [1]}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], other: 1}}"),
        format!("{{createUser: 'x', pwd: '{p}'}}"),
        format!("{{createUser: 1, pwd: '{p}', roles: []}}"),
        format!("{{createUser: 'u', pwd: '{p}', roles: []}}"),
        format!("{{createUser: 'x', pwd: {{a: '{p}'}}, roles: []}}"),
        format!("{{createUser: 'x', pwd: ['{p}'], roles: []}}"),
        format!("{{createUser: 'x', pwd: '{p}', pwd: '{p}', roles: []}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], mechanisms: ['PLAIN']}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], digestPassword: false}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], maxTimeMS: 'x'}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], writeConcern: {{w: 'x'}}}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], readConcern: {{level: 'x'}}}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], lsid: 1}}"),
        format!("{{createUser: 'x', pwd: '{p}\\u0007', roles: []}}"),
        format!("{{updateUser: 'nobody', pwd: '{p}'}}"),
        format!("{{updateUser: 'u', pwd: '{p}', roles: 1}}"),
        format!("{{updateUser: 'u', pwd: '{p}', mechanisms: 1}}"),
        format!("{{saslStart: 1, mechanism: 'PLAIN', payload: HexData(0, '{plain}')}}"),
        format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: HexData(0, '{plain}')}}"),
        format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: '{p}'}}"),
        format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: {{a: '{p}'}}}}"),
        format!("{{saslContinue: 1, conversationId: 1, payload: '{p}'}}"),
        format!("{{saslContinue: 1, conversationId: '{p}', payload: 1}}"),
        format!("{{explain: {{createUser: 'x', pwd: '{p}', roles: []}}}}"),
        format!("{{explain: {{updateUser: 'u', pwd: '{p}'}}}}"),
        format!("{{explain: {{saslStart: 1, mechanism: 'PLAIN', payload: '{p}'}}}}"),
        format!(
            "{{applyOps: [{{op: 'c', ns: 'own.$cmd', o: {{createUser: 'x', pwd: '{p}', roles: []}}}}]}}"
        ),
        format!("{{authenticate: 1, user: 'u', nonce: 'x', key: '{p}'}}"),
        format!(
            "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: '{p}', db: 'own'}}}}"
        ),
        format!(
            "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: 'PLAIN', payload: HexData(0, '{plain}'), db: 'own'}}}}"
        ),
    ];
    let mut stranger = server.connect();
    for cmd in &malformed {
        for db in ["own", "admin"] {
            // The key of a speculative login is that of a hello, which anybody may send.
            for who in [&mut c, &mut low, &mut stranger] {
                let (_, text) = told(who, db, cmd);
                texts.push(format!("{cmd}: {text}"));
            }
        }
    }
    let mut wrong = Vec::new();
    for text in &texts {
        let (cmd, reply) = text.rsplit_once("}: ").unwrap();
        if reply.contains(PASSWORD) {
            wrong.push(format!("the reply to {cmd}}}: {reply}"));
        }
    }
    // While it runs.
    run(
        &mut c,
        "admin",
        "{configureFailPoint: 'failCommand', mode: 'alwaysOn', data: {
        failCommands: ['createUser', 'updateUser', 'saslStart', 'saslContinue', 'hello'],
        blockConnection: true, blockTimeMS: 1000, appName: 'blocked'}}",
    );
    let hello = "{hello: 1, client: {driver: {name: 'x', version: '1'}, os: {type: 'x'}, application: {name: 'blocked'}}}";
    let begin = client("u", PASSWORD, SHA1).first();
    let hex: String = begin.bytes().map(|b| format!("{b:02x}")).collect();
    let shown: Vec<String> = std::thread::scope(|scope| {
        let commands = [
            format!("{{createUser: 'blocked', pwd: '{p}', roles: []}}"),
            format!("{{updateUser: 'u', pwd: '{p}'}}"),
            format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: HexData(0, '{hex}')}}"),
            format!("{{saslContinue: 1, conversationId: 1, payload: HexData(0, '{hex}')}}"),
            format!(
                "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: HexData(0, '{hex}'), db: 'own'}}}}"
            ),
        ];
        let n = commands.len();
        for cmd in commands {
            let mut d = server.connect();
            // Login first: the fail point is about connections that have told their name.
            login(&mut d, "admin", "root", "rootpw", SHA1).unwrap();
            scope.spawn(move || {
                let _ = d.command("admin", &shell(hello));
                d.command("own", &shell(&cmd)).map(|_| ())
            });
        }
        // First all greet, then all run their commands.
        let mut seen = Vec::new();
        for _ in 0..100 {
            let ops = inprog(&mut c, "{currentOp: 1, $all: true, $truncateOps: false}");
            let ended = !ops.contains("\"blocked\"") && seen.len() > 2 * n;
            seen.push(ops);
            if ended {
                break;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        seen
    });
    let seen = |s: &String| s.contains("\"blocked\"") && s.contains("active: true");
    assert!(shown.iter().any(seen), "it was never seen");
    run(
        &mut c,
        "admin",
        "{configureFailPoint: 'failCommand', mode: 'off'}",
    );
    // Everything that shows commands.
    let mut places = vec![("the log", server.log())];
    for name in ["global", "startupWarnings"] {
        places.push(("getLog", inprog(&mut c, &format!("{{getLog: '{name}'}}"))));
    }
    for db in ["admin", "own"] {
        let all = c.find_all(db, &doc! { "find": "system.profile" }).unwrap();
        assert!(!all.is_empty(), "{db}");
        let all: Vec<String> = all.iter().map(|d| d.as_doc().to_display()).collect();
        places.push(("system.profile", all.join("\n")));
    }
    places.push(("currentOp", shown.join("\n")));
    places.push(("serverStatus", inprog(&mut c, "{serverStatus: 1}")));
    let stored = c
        .find_all("admin", &doc! { "find": "system.users" })
        .unwrap();
    let mut words: Vec<String> = vec![
        PASSWORD.to_string(),
        NONCE.to_string(),
        "rootpw".to_string(),
    ];
    // As base64 and as hexadecimal digits, in which bytes are shown.
    for text in [PASSWORD, NONCE] {
        words.push(text.bytes().map(|b| format!("{b:02X}")).collect());
        words.push(text.bytes().map(|b| format!("{b:02x}")).collect());
    }
    // "Recognisable" and "nonceOfTheTests" at each of the three places in which base64 can begin.
    words.extend(
        [
            "UmVjb2duaXNhYmxl",
            "JlY29nbmlzYWJsZ",
            "SZWNvZ25pc2FibG",
            "bm9uY2VPZlRoZVRlc3Rz",
        ]
        .map(String::from),
    );
    for d in &stored {
        for e in d.as_doc().get_doc("credentials").unwrap().iter() {
            let one = e.value().as_doc().unwrap();
            for field in ["salt", "storedKey", "serverKey"] {
                words.push(one.get_str(field).unwrap().to_string());
            }
        }
    }
    for (place, text) in &places {
        for word in &words {
            for line in text.lines().filter(|l| l.contains(word.as_str())) {
                let at = line.find(word.as_str()).unwrap();
                let from = (at.saturating_sub(200)..=at)
                    .find(|i| line.is_char_boundary(*i))
                    .unwrap();
                let to = (at + 40..)
                    .find(|i| line.is_char_boundary((*i).min(line.len())))
                    .unwrap();
                wrong.push(format!(
                    "{place}: {word}: …{}…",
                    &line[from..to.min(line.len())]
                ));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The password is in no file either.
    for file in testkit::files_below(&server.dir()) {
        let Ok(bytes) = std::fs::read(&file) else {
            continue;
        };
        let found = bytes
            .windows(PASSWORD.len())
            .any(|w| w == PASSWORD.as_bytes());
        assert!(!found, "{}", file.display());
    }
}

/// What a client itself writes of a user's credentials is not recorded.
#[test]
fn written_credentials_are_not_recorded() {
    let server = auth();
    let mut r = root(&server);
    user(&mut r, "u", "[]");
    run(&mut r, "admin", "{profile: 2, slowms: 0}");
    run(
        &mut r,
        "admin",
        "{update: 'system.users', updates: [{q: {_id: 'own.u'}, u: {$set: {'credentials.X.storedKey': 'RecognisableKey'}}}]}",
    );
    let reply = run(&mut r, "admin", "{find: 'system.profile'}");
    let records = reply.as_doc().to_display();
    assert!(records.contains("system.users"), "{records}");
    assert!(!records.contains("RecognisableKey"), "{records}");
    assert!(!server.log().contains("RecognisableKey"));
}
