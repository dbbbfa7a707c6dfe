//! The options of the audit log: its filter, its destinations, and what is refused at the start.

use super::*;

#[test]
fn the_filter_selects_events() {
    let filter = "{atype: {$in: ['createCollection', 'dropCollection']}, 'param.ns': {$ne: 'd.b'}}";
    let audited = Audited::start(&["--auditFilter", filter]);
    let mut c = audited.server.connect();
    for name in ["a", "b"] {
        run(&mut c, "d", &format!("{{create: '{name}'}}"));
        run(&mut c, "d", &format!("{{drop: '{name}'}}"));
    }
    let all = audited.events();
    let shown: Vec<_> = all
        .iter()
        .map(|e| (text(e, "atype"), param(e).get_str("ns").unwrap()))
        .collect();
    let wanted = [("createCollection", "d.a"), ("dropCollection", "d.a")];
    assert_eq!(shown, wanted);
}

#[test]
fn the_configuration_file_has_the_same_options() {
    let dir = tempfile::tempdir().unwrap();
    let (path, config) = (dir.path().join("audit.json"), dir.path().join("config"));
    let yaml = format!(
        "auditLog:\n  destination: file\n  format: JSON\n  path: {}\n  filter: '{{ atype: \"startup\" }}'\n\
         setParameter:\n  auditAuthorizationSuccess: true\n",
        path.display()
    );
    std::fs::write(&config, yaml).unwrap();
    let server = Server::start(
        ServerOptions::new()
            .arg("--config")
            .arg(config.to_str().unwrap()),
    );
    let mut c = server.connect();
    run(&mut c, "d", "{create: 'a'}");
    let events = events_in(&path);
    assert_eq!(events.len(), 1, "{events:?}");
    let options = param(&events[0]).get_doc("options").unwrap();
    let log = options.get_doc("auditLog").unwrap();
    assert_eq!(log.get_str("path"), path.to_str());
    let parameter = "{getParameter: 1, auditAuthorizationSuccess: 1}";
    let reply = run(&mut c, "admin", parameter);
    assert_eq!(shown(&reply, "auditAuthorizationSuccess"), "true");
}

#[test]
fn the_console_is_a_destination() {
    let server = Server::start(
        ServerOptions::new()
            .arg("--auditDestination")
            .arg("console"),
    );
    run(&mut server.connect(), "d", "{create: 'on_the_console'}");
    let log = server.log();
    let is_event = |line: &&str| line.starts_with("{\"atype\":\"createCollection\"");
    let line = log.lines().find(is_event);
    let line = line.unwrap_or_else(|| panic!("no event: {log}"));
    let event = DocBuf::from_json(line).unwrap();
    assert_eq!(param(&event).get_str("ns"), Some("d.on_the_console"));
}

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.json");
    let (path, missing) = (
        path.to_str().unwrap(),
        dir.path().join("no/such/dir/audit.json"),
    );
    let file = ["--auditDestination", "file"];
    let with = |more: &[&'static str]| [&file[..], &["--auditPath", path], more].concat();
    let table: [(Vec<&str>, &str); 13] = [
        (file.to_vec(), "--auditPath"),
        (vec!["--auditPath", path], "--auditDestination"),
        (vec!["--auditFilter", "{}"], "--auditDestination"),
        (vec!["--auditDestination", "nowhere"], "'nowhere'"),
        (
            vec!["--auditDestination", "syslog", "--auditPath", path],
            "--auditPath",
        ),
        (
            vec![
                "--auditDestination",
                "console",
                "--fork",
                "--logpath",
                "unused",
            ],
            "exclude each other",
        ),
        (with(&["--auditFormat", "BSON"]), "BSON is not supported"),
        (with(&["--auditSchema", "OCSF"]), "OCSF is not supported"),
        (with(&["--auditFilter", "{atype: {$nope: 1}}"]), "$nope"),
        (with(&["--auditFilter", "{atype: "]), "--auditFilter"),
        (
            [&file[..], &["--auditPath", missing.to_str().unwrap()]].concat(),
            "cannot open the audit log",
        ),
        (
            [&file[..], &["--auditPath", dir.path().to_str().unwrap()]].concat(),
            "not a directory",
        ),
        // The start itself has to be audited.
        (
            [&file[..], &["--auditPath", "/dev/full"]].concat(),
            "startup could not be written",
        ),
    ];
    for (args, why) in &table {
        let mut options = ServerOptions::new();
        for arg in args {
            options = options.arg(*arg);
        }
        let mut server = Server::prepare(options);
        assert!(server.try_start().is_err(), "{args:?}");
        assert!(server.log().contains(why), "{args:?}: {}", server.log());
    }
    // Its file may not take the name of one of the database.
    let mut server = Server::prepare(ServerOptions::new());
    let format = server.dir().join("FORMAT");
    let format = format.to_str().unwrap().to_string();
    server.set_args(&["--auditDestination", "file", "--auditPath", &format]);
    assert!(server.try_start().is_err());
    let log = server.log();
    assert!(log.contains("among the files of the database"), "{log}");
}
