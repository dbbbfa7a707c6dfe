//! When a change is in force.

use super::*;

#[test]
fn changes_are_in_force_at_the_next_command() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    );
    run(
        &mut c,
        "own",
        "{createRole: 'r', roles: [], privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['r', 'dbAdmin']");
    let mut u = as_user(&server, "u");
    let find = "{find: 'c', batchSize: 1}";
    // A cursor that was opened before needs the right, too.
    let cursor = run(&mut u, "own", find);
    let cursor = cursor
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get("id")
        .unwrap()
        .as_i64_exact()
        .unwrap();
    let more = format!("{{getMore: NumberLong('{cursor}'), collection: 'c', batchSize: 1}}");
    run(&mut u, "own", &more);
    run(&mut c, "own", "{revokeRolesFromUser: 'u', roles: ['r']}");
    expect(&mut u, "own", 13, &[&more, find]);
    expect(&mut u, "own", 0, &["{collStats: 'c'}"]);
    run(&mut c, "own", "{grantRolesToUser: 'u', roles: ['r']}");
    expect(&mut u, "own", 0, &[find]);
    run(
        &mut c,
        "own",
        "{revokePrivilegesFromRole: 'r', privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find']}]}",
    );
    expect(&mut u, "own", 13, &[find]);
    // The documents themselves are changed by a client.
    expect(&mut c, "admin", 0, &["{find: 'system.users'}"]);
    for (how, cmd) in [
        ("dropped", "{dropUser: 'u'}"),
        ("all dropped", "{dropAllUsersFromDatabase: 1}"),
    ] {
        run(&mut c, "own", cmd);
        assert!(is_logged_out(&mut u), "{how}");
        // Another user of the same name.
        user(&mut c, "u", "['readWrite']");
        assert!(is_logged_out(&mut u), "{how}");
        login(&mut u, "own", "u", "pw", SHA1).unwrap();
        run(&mut u, "own", find);
    }
    // Between two commands.
    run(&mut c, "own", "{dropUser: 'u'}");
    user(&mut c, "u", "['readWrite']");
    assert!(is_logged_out(&mut u));
    login(&mut u, "own", "u", "pw", SHA1).unwrap();
    let delete = "{delete: 'system.users', deletes: [{q: {_id: 'own.u'}, limit: 1}]}";
    run(&mut c, "admin", delete);
    assert!(is_logged_out(&mut u));
    assert_eq!(
        login(&mut u, "own", "u", "pw", SHA1).unwrap_err().code().0,
        18
    );
    user(&mut c, "u", "['readWrite']");
    login(&mut u, "own", "u", "pw", SHA1).unwrap();
    let update = "{update: 'system.users', updates: [{q: {_id: 'own.u'}, u: {$set: {roles: []}}}]}";
    run(&mut c, "admin", update);
    expect(&mut u, "own", 13, &[find]);
    assert_eq!(whoami(&mut u).as_deref(), Some("u@own"));
    // A login that has begun, and ends after its user is gone.
    let mut d = server.connect();
    let mut begun = client("u", "pw", SHA1);
    let reply = sasl_start(&mut d, "own", SHA1, begun.first().as_bytes(), true).unwrap();
    run(&mut c, "own", "{dropUser: 'u'}");
    let answer = begun.next(&payload(&reply)).unwrap();
    assert!(sasl_continue(&mut d, "own", answer.as_bytes()).is_err());
    assert!(is_logged_out(&mut d));
    // The root user drops itself.
    run(&mut c, "admin", "{dropUser: 'root'}");
    assert!(is_logged_out(&mut c));
}

#[test]
fn changes_on_the_primary_are_in_force_on_secondaries() {
    if !testkit::persistent() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "abcdef").unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let options = ServerOptions::new().arg("--auth").arg("--keyFile");
    let set = Set::prepare(3, &options.arg(key.to_str().unwrap()));
    let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    set.initiate(&set.config(members.collect()));
    let primary = set.primary();
    let secondary = (primary + 1) % 3;
    let mut c = set.connect(primary);
    let wc = "writeConcern: {w: 3}";
    run(
        &mut c,
        "admin",
        &format!("{{createUser: 'root', pwd: 'rootpw', roles: ['root'], {wc}}}"),
    );
    login(&mut c, "admin", "root", "rootpw", SHA1).unwrap();
    let create = |roles: &str| {
        format!("{{createUser: 'u', pwd: 'pw', roles: {roles}, mechanisms: ['SCRAM-SHA-1'], {wc}}}")
    };
    run(&mut c, "own", &create("['read']"));
    let mut s = set.connect(secondary);
    let find = "{find: 'c', $readPreference: {mode: 'secondary'}}";
    let (refused, text) = told(&mut s, "own", find);
    assert!(refused == 13 && text.contains(NEEDED), "{text}");
    // There is no exception on a secondary either.
    assert_eq!(code(&mut s, "admin", &create("['root']")), 13);
    login(&mut s, "own", "u", "pw", SHA1).unwrap();
    expect(&mut s, "own", 0, &[find]);
    run(
        &mut c,
        "own",
        &format!("{{revokeRolesFromUser: 'u', roles: ['read'], {wc}}}"),
    );
    expect(&mut s, "own", 13, &[find]);
    assert_eq!(whoami(&mut s).as_deref(), Some("u@own"));
    run(
        &mut c,
        "own",
        &format!(
            "{{createRole: 'r', roles: [], privileges: [{{resource: {{db: 'own', collection: 'c'}}, actions: ['find']}}], {wc}}}"
        ),
    );
    run(
        &mut c,
        "own",
        &format!("{{grantRolesToUser: 'u', roles: ['r'], {wc}}}"),
    );
    expect(&mut s, "own", 0, &[find]);
    run(
        &mut c,
        "own",
        &format!("{{updateRole: 'r', privileges: [], {wc}}}"),
    );
    expect(&mut s, "own", 13, &[find]);
    run(&mut c, "own", &format!("{{dropUser: 'u', {wc}}}"));
    assert!(is_logged_out(&mut s));
    run(&mut c, "own", &create("['read']"));
    assert!(is_logged_out(&mut s));
    login(&mut s, "own", "u", "pw", SHA1).unwrap();
    run(
        &mut c,
        "admin",
        &format!("{{delete: 'system.users', deletes: [{{q: {{_id: 'own.u'}}, limit: 1}}], {wc}}}"),
    );
    assert!(is_logged_out(&mut s));
}

/// A user that expires is logged out.
#[test]
fn a_user_that_expires_is_logged_out() {
    let options = ServerOptions::new().arg("--auth");
    let server = Server::start(options.arg("--setParameter").arg("ttlMonitorSleepSecs=1"));
    let mut r = root(&server);
    user(&mut r, "u", "['readWrite']");
    let mut c = as_user(&server, "u");
    assert_eq!(code(&mut c, "own", "{insert: 'c', documents: [{}]}"), 0);
    run(
        &mut r,
        "admin",
        "{createIndexes: 'system.users', indexes: [{key: {'customData.d': 1}, name: 'd', expireAfterSeconds: 0}]}",
    );
    run(
        &mut r,
        "own",
        "{updateUser: 'u', customData: {d: ISODate('2020-01-01T00:00:00Z')}}",
    );
    server.until("it is logged out", || is_logged_out(&mut c).then_some(()));
    assert_eq!(code(&mut c, "own", "{insert: 'c', documents: [{}]}"), 13);
}
