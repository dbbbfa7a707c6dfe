//! The events of the server itself and of its connections.

use super::*;

#[test]
fn start_and_end() {
    let mut audited = Audited::start(&[]);
    let first = &audited.events()[0];
    assert_eq!((text(first, "atype"), result(first)), ("startup", 0));
    let options = param(first).get_doc("options").unwrap();
    let log = options.get_doc("auditLog").unwrap();
    assert_eq!(log.get_str("destination"), Some("file"));
    assert!(audited.server.terminate().success());
    let ends = audited.of("shutdown");
    assert_eq!((ends.len(), who(&ends[0]).as_str()), (1, ""));
    audited.server.start_again();
    let _ = audited
        .server
        .connect()
        .command("admin", &shell("{shutdown: 1, force: true}"));
    let ended = &mut audited.server;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while ended.is_running() {
        assert!(std::time::Instant::now() < end, "the server does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ends = audited.of("shutdown");
    assert_eq!(ends.len(), 2, "{ends:?}");
    let remote = ends[1].as_doc().get_doc("remote").unwrap();
    assert_eq!(remote.get_str("ip"), Some("127.0.0.1"));
    assert_eq!(audited.of("startup").len(), 2);
}

#[test]
fn an_event_names_the_connection() {
    let audited = Audited::start(&[]);
    let mut c = audited.server.connect();
    run(&mut c, "d", "{create: 'a'}");
    let status = run(&mut c, "admin", "{connectionStatus: 1}");
    let event = audited.last("createCollection");
    let d = event.as_doc();
    assert_eq!(shown(&event, "uuid"), shown(&status, "uuid"));
    assert!(matches!(d.get("ts"), Some(Value::DateTime(_))));
    let names: Vec<&str> = d.iter().map(|e| e.name()).collect();
    let wanted = [
        "atype", "ts", "uuid", "local", "remote", "users", "roles", "param", "result",
    ];
    assert_eq!(names, wanted);
    let end = |name: &str| {
        let end = d.get_doc(name).unwrap();
        let port = end.get("port").unwrap().as_i64_exact().unwrap();
        format!("{}:{port}", end.get_str("ip").unwrap())
    };
    assert_eq!(end("local"), c.stream().peer());
    assert_eq!(end("remote"), c.stream().local().unwrap());
    let mut d = audited.server.connect();
    run(&mut d, "d", "{create: 'b'}");
    let other = audited.last("createCollection");
    assert_ne!(shown(&other, "uuid"), shown(&event, "uuid"));
}

#[test]
fn messages_and_greetings_of_clients() {
    let audited = Audited::start(&["--auth"]);
    let mut c = audited.root();
    run(&mut c, "admin", "{logApplicationMessage: 'we begin'}");
    let event = audited.last("applicationMessage");
    assert_eq!(param(&event).get_str("msg"), Some("we begin"));
    assert_eq!(who(&event), "root@admin");
    for (db, cmd, code) in [
        ("admin", "{logApplicationMessage: 1}", 14),
        ("d", "{logApplicationMessage: 'x'}", 13),
    ] {
        assert_eq!(told(&mut c, db, cmd).0, code, "{cmd}");
    }
    let mut d = audited.server.connect();
    let create = format!("{{createUser: 'low', pwd: '{PASSWORD}', roles: []}}");
    run(&mut c, "own", &create);
    login(&mut d, "own", "low", PASSWORD).unwrap();
    let n = audited.of("applicationMessage").len();
    assert_eq!(told(&mut d, "admin", "{logApplicationMessage: 'x'}").0, 13);
    assert_eq!(audited.of("applicationMessage").len(), n);
    let hello = "{hello: 1, client: {driver: {name: 'mine', version: '1'}, os: {type: 'x'}}}";
    let mut e = audited.server.connect();
    for _ in 0..2 {
        run(&mut e, "admin", hello);
    }
    let mut greetings = audited.of("clientMetadata");
    greetings.retain(|e| param(e).to_display().contains("mine"));
    assert_eq!(greetings.len(), 1, "only the first hello tells something");
    let said = param(&greetings[0]).get_doc("clientMetadata").unwrap();
    let driver = said.get_doc("driver").unwrap();
    assert_eq!(driver.get_str("name"), Some("mine"));
}

#[test]
fn members_of_the_set_log_in_with_its_key() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "a key of the set that is long enough").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(key.path(), mode).unwrap();
    let file = key.path().to_str().unwrap();
    let audited = Audited::start(&["--replSet", "rs", "--autoInitiate", "--keyFile", file]);
    let mut c = audited.server.connect();
    let wrong = "{_replSetProve: 'rs', from: 'x', to: 'y', nonce: HexData(0, '00'), proofs: []}";
    assert_eq!(told(&mut c, "admin", wrong).0, 18);
    let event = audited.last("authenticate");
    assert_eq!(param(&event).get_str("user"), Some("__system"));
    assert_eq!(param(&event).get_str("mechanism"), Some("keyFile"));
    assert_eq!(result(&event), 18);
    // What is for members only is refused.
    let mut d = audited.server.connect();
    assert_eq!(told(&mut d, "admin", "{_replSetStream: 1}").0, 13);
    let event = audited.last("authCheck");
    assert_eq!(param(&event).get_str("command"), Some("_replSetStream"));
}
