//! Every road on which what is stored of users and roles changes: the change is in force with the next command
//! on connections that are open, of this member and of others.

use super::*;

/// A set of three members with a key file and a user `root`, who is logged in on the connection to the
/// primary.
pub struct Keyed {
    pub set: Set,
    pub primary: usize,
    pub root: Connection,
    _dir: tempfile::TempDir,
}

impl Keyed {
    pub fn new(args: &[&str]) -> Keyed {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::write(&key, "abcdef").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let mut options = ServerOptions::new().arg("--auth").arg("--keyFile");
        options = options.arg(key.to_str().unwrap());
        for arg in args {
            options = options.arg(*arg);
        }
        let set = Set::prepare(3, &options);
        let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
        set.initiate(&set.config(members.collect()));
        let primary = set.primary();
        let mut root = set.connect(primary);
        let create = "{createUser: 'root', pwd: 'rootpw', roles: ['root', '__system'], mechanisms: ['SCRAM-SHA-1'], writeConcern: {w: 3}}";
        run(&mut root, "admin", create);
        login(&mut root, "admin", "root", "rootpw", SHA1).unwrap();
        Keyed {
            set,
            primary,
            root,
            _dir: dir,
        }
    }
}

const READ: &str = "{find: 'c', $readPreference: {mode: 'secondaryPreferred'}}";

/// The open connections of one user, `u`, who reads `own.c` by the role `r` of the database `own`.
struct Open(Vec<Connection>);

impl Open {
    /// That all of them may read, or none, from now on.
    fn expect(&mut self, may: bool, how: &str) {
        for (i, c) in self.0.iter_mut().enumerate() {
            let (code, text) = told(c, "own", READ);
            assert_eq!(code == 0, may, "{how}: connection {i}: {code} {text}");
        }
    }
}

/// The role as it is stored, with or without what it allows.
fn stored(allows: bool) -> String {
    let privileges = match allows {
        true => "[{resource: {db: 'own', collection: 'c'}, actions: ['find']}]",
        false => "[]",
    };
    format!("{{_id: 'own.r', role: 'r', db: 'own', privileges: {privileges}, roles: []}}")
}

const WC: &str = "writeConcern: {w: 3, wtimeout: 60000}";

/// Commands that write into the stored users and roles, each with what holds afterwards.
fn writes() -> Vec<(&'static str, String, bool)> {
    let (yes, no) = (stored(true), stored(false));
    let none = "[]";
    let role = "[{role: 'r', db: 'own'}]";
    let all = "[{resource: {db: 'own', collection: 'c'}, actions: ['find']}]";
    vec![
        (
            "admin",
            format!(
                "{{delete: 'system.roles', deletes: [{{q: {{_id: 'own.r'}}, limit: 1}}], {WC}}}"
            ),
            false,
        ),
        (
            "admin",
            format!("{{insert: 'system.roles', documents: [{yes}], {WC}}}"),
            true,
        ),
        (
            "admin",
            format!(
                "{{update: 'system.roles', updates: [{{q: {{_id: 'own.r'}}, u: {{$set: {{privileges: []}}}}}}], {WC}}}"
            ),
            false,
        ),
        (
            "admin",
            format!(
                "{{findAndModify: 'system.roles', query: {{_id: 'own.r'}}, update: {yes}, {WC}}}"
            ),
            true,
        ),
        (
            "admin",
            format!(
                "{{bulkWrite: 1, ops: [{{update: 0, filter: {{_id: 'own.u'}}, updateMods: {{$set: {{roles: {none}}}}}}}], nsInfo: [{{ns: 'admin.system.users'}}], {WC}}}"
            ),
            false,
        ),
        (
            "admin",
            format!(
                "{{applyOps: [{{op: 'u', ns: 'admin.system.users', o2: {{_id: 'own.u'}}, o: {{$v: 2, diff: {{u: {{roles: {role}}}}}}}}}], {WC}}}"
            ),
            true,
        ),
        (
            "admin",
            format!(
                "{{applyOps: [{{op: 'd', ns: 'admin.system.roles', o: {{_id: 'own.r'}}}}], {WC}}}"
            ),
            false,
        ),
        (
            "own",
            format!("{{applyOps: [{{op: 'i', ns: 'admin.system.roles', o: {yes}}}], {WC}}}"),
            true,
        ),
        (
            "own",
            format!("{{updateRole: 'r', privileges: [], {WC}}}"),
            false,
        ),
        (
            "own",
            format!("{{grantPrivilegesToRole: 'r', privileges: {all}, {WC}}}"),
            true,
        ),
        ("own", format!("{{dropRole: 'r', {WC}}}"), false),
        (
            "own",
            format!("{{createRole: 'r', privileges: {all}, roles: [], {WC}}}"),
            false,
        ),
        (
            "own",
            format!("{{grantRolesToUser: 'u', roles: ['r'], {WC}}}"),
            true,
        ),
        (
            "admin",
            format!("{{delete: 'system.roles', deletes: [{{q: {{}}, limit: 0}}], {WC}}}"),
            false,
        ),
        (
            "admin",
            format!("{{insert: 'system.roles', documents: [{no}], {WC}}}"),
            false,
        ),
        (
            "admin",
            format!("{{insert: 'made', documents: [{yes}], {WC}}}"),
            false,
        ),
    ]
}

/// Commands that a client may not use for it: nothing changes.
const REFUSED: [(&str, &str); 8] = [
    (
        "admin",
        "{aggregate: 'made', pipeline: [{$merge: {into: 'system.roles', whenMatched: 'replace'}}], cursor: {}}",
    ),
    ("admin", "{drop: 'system.roles'}"),
    (
        "admin",
        "{aggregate: 'made', pipeline: [{$out: 'system.roles'}], cursor: {}}",
    ),
    (
        "admin",
        "{mapReduce: 'made', map: 'function() { emit(this._id, this) }', reduce: 'function(k, v) { return v[0] }', out: {merge: 'system.roles'}}",
    ),
    (
        "admin",
        "{renameCollection: 'admin.made', to: 'admin.system.roles', dropTarget: true}",
    ),
    (
        "admin",
        "{renameCollection: 'admin.system.roles', to: 'admin.gone'}",
    ),
    ("admin", "{dropDatabase: 1}"),
    (
        "admin",
        "{insert: 'system.roles', documents: [{}], lsid: {id: UUID('11111111-1111-4111-8111-111111111111')}, txnNumber: NumberLong(1), startTransaction: true, autocommit: false}",
    ),
];

#[test]
fn a_change_on_any_road_is_in_force_everywhere() {
    if !testkit::persistent() {
        return;
    }
    let mut s = Keyed::new(&["--setParameter", "ttlMonitorSleepSecs=1"]);
    run(
        &mut s.root,
        "own",
        &format!(
            "{{createRole: 'r', privileges: [{{resource: {{db: 'own', collection: 'c'}}, actions: ['find']}}], roles: [], {WC}}}"
        ),
    );
    run(
        &mut s.root,
        "own",
        &format!("{{createUser: 'u', pwd: 'pw', roles: ['r'], mechanisms: ['SCRAM-SHA-1'], {WC}}}"),
    );
    let mut open = Open((0..3).map(|i| s.set.connect(i)).collect());
    for c in &mut open.0 {
        login(c, "own", "u", "pw", SHA1).unwrap();
    }
    open.expect(true, "at first");
    let mut wrong = Vec::new();
    for (db, cmd, may) in writes() {
        match told(&mut s.root, db, &cmd) {
            (0, _) => open.expect(may, &cmd),
            (code, text) => panic!("{cmd}: {code} {text}"),
        }
    }
    open.expect(false, "before the commands that are refused");
    for (db, cmd) in REFUSED {
        let (code, text) = told(&mut s.root, db, cmd);
        if code == 0 {
            wrong.push(format!("{cmd}: {text}"));
        }
    }
    open.expect(false, "after the commands that are refused");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The role expires, which no command says.
    let allow = format!(
        "{{updateRole: 'r', privileges: [{{resource: {{db: 'own', collection: 'c'}}, actions: ['find']}}], {WC}}}"
    );
    run(&mut s.root, "own", &allow);
    open.expect(true, "before the role expires");
    let index = format!(
        "{{createIndexes: 'system.roles', indexes: [{{key: {{d: 1}}, name: 'd', expireAfterSeconds: 0}}], {WC}}}"
    );
    run(&mut s.root, "admin", &index);
    let expires = format!(
        "{{update: 'system.roles', updates: [{{q: {{_id: 'own.r'}}, u: {{$set: {{d: ISODate('2020-01-01T00:00:00Z')}}}}}}], {WC}}}"
    );
    run(&mut s.root, "admin", &expires);
    for (i, c) in open.0.iter_mut().enumerate() {
        let lost = || (code(c, "own", READ) == 13).then_some(());
        s.set.members[i].until("the role has expired", lost);
    }
}

/// A member that is down keeps a write concern waiting; what was revoked is gone before that.
#[test]
fn a_revocation_that_waits_for_a_member_is_in_force_at_once() {
    if !testkit::persistent() {
        return;
    }
    let mut s = Keyed::new(&[]);
    let create = "{createUser: 'u', pwd: 'pw', roles: ['read'], mechanisms: ['SCRAM-SHA-1']}";
    run(&mut s.root, "own", create);
    let mut u = s.set.connect(s.primary);
    login(&mut u, "own", "u", "pw", SHA1).unwrap();
    expect(&mut u, "own", 0, &[READ]);
    let down = (s.primary + 1) % 3;
    s.set.members[down].terminate();
    let mut waiting = Vec::new();
    for (revoke, give) in [
        (
            "{revokeRolesFromUser: 'u', roles: ['read'], ",
            "{grantRolesToUser: 'u', roles: ['read']}",
        ),
        (
            "{updateUser: 'u', roles: [], ",
            "{updateUser: 'u', roles: ['read']}",
        ),
        ("{dropUser: 'u', ", create),
    ] {
        // The reply can only come when the client gives up.
        let waits = format!("{revoke} writeConcern: {{w: 3}}}}");
        s.root.send_command("own", &shell(&waits), 0, &[]).unwrap();
        let server = &s.set.members[s.primary];
        let refused_now = || (code(&mut u, "own", READ) == 13).then_some(());
        server.until("the revocation is in force", refused_now);
        let mut other = s.set.connect(s.primary);
        login(&mut other, "admin", "root", "rootpw", SHA1).unwrap();
        waiting.push(std::mem::replace(&mut s.root, other));
        let shown = inprog(&mut s.root, "{currentOp: 1, nwritten: 1}");
        assert_eq!(shown.matches("opid").count(), waiting.len(), "{shown}");
        run(&mut s.root, "own", give);
        if is_logged_out(&mut u) {
            login(&mut u, "own", "u", "pw", SHA1).unwrap();
        }
        expect(&mut u, "own", 0, &[READ]);
    }
}
