//! What belongs to a user.

use super::*;

#[test]
fn cursors_sessions_and_operations_belong_to_their_user() {
    let server = auth_for_tests();
    let mut c = root(&server);
    run(&mut c, "own", "{insert: 'c', documents: [{}, {}, {}, {}]}");
    user(&mut c, "a", "['readWrite']");
    user(&mut c, "b", "['readWrite', 'dbOwner']");
    let (mut a, mut b) = (as_user(&server, "a"), as_user(&server, "b"));
    let open = |a: &mut Connection| {
        let reply = run(a, "own", "{find: 'c', batchSize: 1}");
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        cursor.get("id").unwrap().as_i64_exact().unwrap()
    };
    let id = open(&mut a);
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 1}}");
    expect(&mut b, "own", 13, &[&more]);
    let mut stranger = server.connect();
    expect(&mut stranger, "own", 13, &[&more]);
    let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}");
    let reply = run(&mut b, "own", &kill);
    assert_eq!(
        shown(&reply, "cursorsAlive"),
        format!("[ {id} ]"),
        "{reply:?}"
    );
    assert_eq!(shown(&reply, "cursorsKilled"), "[]", "{reply:?}");
    // On another connection of the same user.
    run(&mut as_user(&server, "a"), "own", &more);
    run(&mut a, "own", &more);
    let reply = run(&mut a, "own", &kill);
    assert_eq!(
        shown(&reply, "cursorsKilled"),
        format!("[ {id} ]"),
        "{reply:?}"
    );
    // Sessions.
    let uuid = "UUID('00112233-4455-6677-8899-aabbccddeeff')";
    run(
        &mut a,
        "own",
        &format!("{{find: 'c', lsid: {{id: {uuid}}}}}"),
    );
    let hex = uid_of(&mut c, "00112233-4455");
    let zeros = "00".repeat(32);
    for uid in [&hex, &zeros] {
        let lsid = format!("{{id: {uuid}, uid: HexData(0, '{uid}')}}");
        expect(
            &mut b,
            "own",
            13,
            &[
                &format!("{{find: 'c', lsid: {lsid}}}"),
                &format!("{{ping: 1, lsid: {lsid}}}"),
                &format!("{{endSessions: [{lsid}]}}"),
                &format!("{{refreshSessions: [{lsid}]}}"),
                &format!("{{killSessions: [{lsid}]}}"),
            ],
        );
    }
    expect(
        &mut b,
        "admin",
        13,
        &[
            "{killAllSessions: []}",
            "{killAllSessionsByPattern: []}",
            "{aggregate: 1, pipeline: [{$listLocalSessions: {allUsers: true}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$listLocalSessions: {users: [{user: 'a', db: 'own'}]}}], cursor: {}}",
        ],
    );
    let own = inprog(
        &mut b,
        "{aggregate: 1, pipeline: [{$listLocalSessions: {}}], cursor: {}}",
    );
    assert!(!own.contains("a@own"), "{own}");
    run(
        &mut a,
        "own",
        &format!("{{find: 'c', lsid: {{id: {uuid}, uid: HexData(0, '{hex}')}}}}"),
    );

    // Operations.
    run(
        &mut c,
        "admin",
        "{configureFailPoint: 'failCommand', mode: 'alwaysOn',
        data: {failCommands: ['count'], blockConnection: true, blockTimeMS: 8000}}",
    );
    std::thread::scope(|scope| {
        let victim =
            scope.spawn(move || told(&mut a, "own", "{count: 'c', comment: 'the victim'}"));
        let find = doc! { "currentOp": 1, "command.comment": "the victim" };
        let op = server.until("the operation runs", || {
            let reply = c.command("admin", &find).unwrap();
            let ops = reply.as_doc().get_array("inprog").unwrap();
            ops.first()?.value().as_doc()?.get("opid")?.as_i64_exact()
        });
        let kill = format!("{{killOp: 1, op: {op}}}");
        expect(
            &mut b,
            "admin",
            13,
            &[
                "{currentOp: 1}",
                "{currentOp: 1, $all: true}",
                "{currentOp: 1, $ownOps: false}",
                "{aggregate: 1, pipeline: [{$currentOp: {allUsers: true}}], cursor: {}}",
                &kill,
                "{killOp: 1, op: 123456789}",
            ],
        );
        for cmd in [
            "{currentOp: 1, $ownOps: true}",
            "{currentOp: 1, $ownOps: true, $all: true}",
            "{aggregate: 1, pipeline: [{$currentOp: {}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$currentOp: {idleConnections: true, idleCursors: true, idleSessions: true}}], cursor: {}}",
        ] {
            let shown = inprog(&mut b, cmd);
            assert!(!shown.contains("the victim"), "{cmd}: {shown}");
            assert!(
                shown.contains("currentOp") || shown.contains("aggregate"),
                "{cmd}: {shown}"
            );
        }
        for cmd in [
            "{currentOp: 1, $ownOps: true}",
            "{aggregate: 1, pipeline: [{$currentOp: {}}], cursor: {}}",
        ] {
            let shown = inprog(&mut as_user(&server, "a"), cmd);
            assert!(shown.contains("the victim"), "{cmd}: {shown}");
        }
        assert!(!victim.is_finished());
        expect(&mut as_user(&server, "a"), "admin", 0, &[&kill]);
        assert_eq!(victim.join().unwrap().0, 11_601);
    });
}

#[test]
fn administrators_end_what_belongs_to_others() {
    let server = auth();
    let mut c = root(&server);
    run(&mut c, "own", "{insert: 'c', documents: [{}, {}, {}, {}]}");
    user(&mut c, "a", "['readWrite']");
    user(&mut c, "host", "[{role: 'hostManager', db: 'admin'}]");
    let (mut a, mut host) = (as_user(&server, "a"), as_user(&server, "host"));
    let open = |a: &mut Connection, session: &str| {
        let reply = run(a, "own", &format!("{{find: 'c', batchSize: 1{session}}}"));
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        cursor.get("id").unwrap().as_i64_exact().unwrap()
    };
    let session = "00112233-4455-6677-8899-aabbccddeeff";
    let lsid = format!(", lsid: {{id: UUID('{session}')}}");
    let of_session = open(&mut a, &lsid);
    let uid = uid_of(&mut c, session);
    let mut wrong = Vec::new();
    // killAnySession, by hostManager.
    let kill = format!("{{killSessions: [{{id: UUID('{session}'), uid: HexData(0, '{uid}')}}]}}");
    let (code, text) = told(&mut host, "admin", &kill);
    if code != 0 {
        wrong.push(format!("killSessions: {code} {text}"));
    }
    let more = format!("{{getMore: NumberLong('{of_session}'), collection: 'c'{lsid}}}");
    let (code, text) = told(&mut a, "own", &more);
    if code != 43 {
        wrong.push(format!("getMore after killSessions: {code} {text}"));
    }
    // killAnyCursor.
    for who in [&mut host, &mut c] {
        let id = open(&mut a, "");
        let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}");
        let reply = run(who, "own", &kill);
        if shown(&reply, "cursorsKilled") != format!("[ {id} ]") {
            wrong.push(format!("killCursors: {reply:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The right to end sessions of others is none to use them.
#[test]
fn a_right_to_end_a_session_is_none_to_use_it() {
    let server = auth();
    let mut r = root(&server);
    run(
        &mut r,
        "own",
        "{createUser: 'host', pwd: 'p', roles: [{role: 'hostManager', db: 'admin'}]}",
    );
    let session = "aaaaaaaa-0000-4000-8000-000000000001";
    run(
        &mut r,
        "own",
        &format!("{{ping: 1, lsid: {{id: UUID('{session}')}}}}"),
    );
    let uid = uid_of(&mut r, session);
    let mut c = server.connect();
    login(&mut c, "own", "host", "p", SHA1).unwrap();
    let lsid = format!("{{id: UUID('{session}'), uid: HexData(0, '{uid}')}}");
    for cmd in [
        "{ping: 1, lsid: L}",
        "{endSessions: [L]}",
        "{refreshSessions: [L]}",
    ] {
        assert_eq!(told(&mut c, "own", &cmd.replace('L', &lsid)).0, 13, "{cmd}");
    }
    run(&mut c, "own", &format!("{{killSessions: [{lsid}]}}"));
}

/// `user@db` names one user.
#[test]
fn names_do_not_read_alike() {
    let server = auth();
    let mut r = root(&server);
    run(&mut r, "c", "{createUser: 'a@b', pwd: 'p', roles: []}");
    assert_eq!(
        told(&mut r, "b@c", "{createUser: 'a', pwd: 'p', roles: []}").0,
        2
    );
}
