//! Which built-in role may run which command on which place, compared with `auth_matrix.txt`.
//!
//! No command of the matrix does anything: the fail point failCommand ends each with [`ALLOWED`] after its user
//! has been found to be allowed it, shutdown and fsync included. The commands in [`RUN`] check their user
//! while they run, and really run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_auth::scram::Mechanism;
use muniment_auth::scram::client::Client;
use muniment_value::{ArrayBuf, DocBuf, Value, doc};
use muniment_wire::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use testkit::{Server, ServerOptions, shell};

/// The code with which a command ends that its user may run.
const ALLOWED: i32 = 9_001;

/// The roles, each with its database.
const ROLES: [(&str, &str); 19] = [
    ("read", "own"),
    ("readWrite", "own"),
    ("dbAdmin", "own"),
    ("userAdmin", "own"),
    ("dbOwner", "own"),
    ("enableSharding", "admin"),
    ("readAnyDatabase", "admin"),
    ("readWriteAnyDatabase", "admin"),
    ("dbAdminAnyDatabase", "admin"),
    ("userAdminAnyDatabase", "admin"),
    ("clusterMonitor", "admin"),
    ("clusterManager", "admin"),
    ("hostManager", "admin"),
    ("clusterAdmin", "admin"),
    ("backup", "admin"),
    ("restore", "admin"),
    ("searchCoordinator", "admin"),
    ("root", "admin"),
    ("__system", "admin"),
];

const PLACES: [(&str, &str); 9] = [
    ("own", "c"),
    ("other", "c"),
    ("admin", "c"),
    ("config", "c"),
    ("local", "c"),
    ("own", "system.users"),
    ("own", "system.profile"),
    ("own", "system.js"),
    ("admin", "system.users"),
];

/// The commands whose user is checked while they run, and that change nothing as they are sent here.
const RUN: [&str; 9] = [
    "configureFailPoint",
    "endSessions",
    "getMore",
    "killCursors",
    "killOp",
    "killSessions",
    "listDatabases",
    "refreshSessions",
    "startSession",
];

/// Open to everybody, or judged by what the client has proven; and those that are about a session alone.
const WITHOUT_RIGHTS: [&str; 16] = [
    "_replSetProve",
    "abortTransaction",
    "authenticate",
    "buildInfo",
    "commitTransaction",
    "connectionStatus",
    "hello",
    "isMaster",
    "listCommands",
    "logout",
    "ping",
    "refreshLogicalSessionCacheNow",
    "saslContinue",
    "saslStart",
    "testVersion2",
    "whatsmyuri",
];

/// The commands as they are sent, with DB, COLL and NS for the place. A command may be there several times.
const COMMANDS: &str = "
{_mergeAuthzCollections: 1, tempUsersCollection: 'NS', db: '', drop: false}
{_mergeAuthzCollections: 1, tempRolesCollection: 'NS', db: '', drop: true}
{_balancerState: 1}
{_changesUpTo: 1, time: Timestamp(1, 1)}
{_clusterAccounts: 1}
{_clusterCommit: 1, transaction: {}, participants: []}
{_clusterDecision: 1, transaction: {}}
{_clusterPrepare: 1, transaction: {}, coordinator: ''}
{_clusterResolve: 1, transaction: {}, outcome: {}}
{_replSetExport: 1}
{_replSetHandOver: 1, to: 1}
{_replSetStream: 1}
{_shardChanges: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000'), range: [], after: Timestamp(1, 1)}
{_shardClean: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000')}
{_shardCopy: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000'), lane: 0, number: 0}
{_shardCursors: 1, cursors: [], keep: false}
{_shardDropViews: 1, views: [], at: Timestamp(1, 1)}
{_shardGive: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000'), id: UUID('00000000-0000-4000-8000-000000000000'), range: []}
{_shardLeaveDatabase: 1, left: true, at: Timestamp(1, 1)}
{_shardMerge: 'COLL', operand: {into: 'COLL'}}
{_shardNote: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000'), o: {}}
{_shardOut: 'COLL', step: ''}
{_shardPlace: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000')}
{_shardReceive: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000'), id: UUID('00000000-0000-4000-8000-000000000000'), step: ''}
{_shardRename: 'COLL', to: 'd', uuid: UUID('00000000-0000-4000-8000-000000000000'), at: Timestamp(1, 1)}
{_shardRows: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000'), range: []}
{_shardSessions: 'COLL', uuid: UUID('00000000-0000-4000-8000-000000000000'), range: []}
{_shardSizes: 1, namespaces: []}
{_shardSplitPoints: 'COLL', keyPattern: {a: 1}, min: {a: 1}, max: {a: 2}}
{_shardStatement: 1, number: NumberLong(1), statement: 0}
{aggregate: 'COLL', pipeline: [], cursor: {}}
{aggregate: 'COLL', pipeline: [{$changeStream: {}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$collStats: {}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$indexStats: {}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$planCacheStats: {}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$listSearchIndexes: {}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$listCatalog: {}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$lookup: {from: 'd', pipeline: [], as: 'x'}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$out: 'd'}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$merge: 'd'}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$merge: {into: 'd', whenMatched: 'fail'}}], cursor: {}}
{aggregate: 'COLL', pipeline: [{$merge: {into: 'd', whenNotMatched: 'discard'}}], cursor: {}}
{aggregate: 1, pipeline: [{$changeStream: {}}], cursor: {}}
{aggregate: 1, pipeline: [{$documents: [{a: 1}]}], cursor: {}}
{aggregate: 1, pipeline: [{$currentOp: {}}], cursor: {}}
{aggregate: 1, pipeline: [{$currentOp: {allUsers: true}}], cursor: {}}
{aggregate: 1, pipeline: [{$listLocalSessions: {}}], cursor: {}}
{aggregate: 1, pipeline: [{$listLocalSessions: {allUsers: true}}], cursor: {}}
{aggregate: 1, pipeline: [{$listCatalog: {}}], cursor: {}}
{aggregate: 1, pipeline: [{$listClusterCatalog: {}}], cursor: {}}
{aggregate: 1, pipeline: [{$querySettings: {}}], cursor: {}}
{appendOplogNote: 1, data: {}}
{applyOps: []}
{applyOps: [{op: 'i', ns: 'NS', o: {_id: 1}}]}
{applyOps: [{op: 'u', ns: 'NS', o2: {_id: 1}, o: {$v: 2, diff: {u: {a: 1}}}}]}
{applyOps: [{op: 'd', ns: 'NS', o: {_id: 1}}]}
{applyOps: [{op: 'c', ns: 'DB.$cmd', o: {create: 'COLL'}}]}
{applyOps: [{op: 'c', ns: 'DB.$cmd', o: {drop: 'COLL'}}]}
{applyOps: [{op: 'c', ns: 'DB.$cmd', o: {dropDatabase: 1}}]}
{bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'NS'}]}
{bulkWrite: 1, ops: [{update: 0, filter: {}, updateMods: {$set: {a: 1}}}], nsInfo: [{ns: 'NS'}]}
{bulkWrite: 1, ops: [{delete: 0, filter: {}}], nsInfo: [{ns: 'NS'}]}
{cleanupOrphaned: 'NS'}
{cloneCollectionAsCapped: 'COLL', toCollection: 'd', size: 4096}
{collMod: 'COLL', validator: {}}
{collMod: 'COLL', viewOn: 'd', pipeline: []}
{collStats: 'COLL'}
{compact: 'COLL'}
{configureFailPoint: 'maxTimeNeverTimeOut', mode: 'off'}
{connPoolStats: 1}
{convertToCapped: 'COLL', size: 4096}
{count: 'COLL'}
{create: 'COLL'}
{create: 'COLL', viewOn: 'd', pipeline: []}
{createIndexes: 'COLL', indexes: [{key: {a: 1}, name: 'a'}]}
{createRole: 'x', roles: [], privileges: []}
{createRole: 'x', roles: [{role: 'read', db: 'own'}], privileges: []}
{createRole: 'x', roles: [], privileges: [{resource: {db: 'own', collection: ''}, actions: ['find']}]}
{createRole: 'x', roles: [], privileges: [{resource: {anyResource: true}, actions: ['anyAction']}]}
{createRole: 'x', roles: [], privileges: [], authenticationRestrictions: []}
{createSearchIndexes: 'COLL', indexes: []}
{createUser: 'x', pwd: 'x', roles: []}
{createUser: 'x', pwd: 'x', roles: [{role: 'read', db: 'own'}]}
{createUser: 'x', pwd: 'x', roles: [{role: 'root', db: 'admin'}]}
{createUser: 'x', pwd: 'x', roles: [], authenticationRestrictions: []}
{currentOp: 1}
{currentOp: 1, $ownOps: true}
{dataSize: 'NS'}
{dbHash: 1}
{dbStats: 1}
{delete: 'COLL', deletes: [{q: {}, limit: 1}]}
{distinct: 'COLL', key: 'a'}
{drop: 'COLL'}
{dropAllRolesFromDatabase: 1}
{dropAllUsersFromDatabase: 1}
{dropDatabase: 1}
{dropIndexes: 'COLL', index: '*'}
{dropRole: 'x'}
{dropSearchIndex: 'COLL', name: 'x'}
{dropUser: 'x'}
{endSessions: []}
{explain: {find: 'COLL'}}
{explain: {delete: 'COLL', deletes: [{q: {}, limit: 1}]}}
{filemd5: 1, root: 'fs'}
{find: 'COLL'}
{findAndModify: 'COLL', query: {}, remove: true}
{findAndModify: 'COLL', query: {}, update: {$set: {a: 1}}}
{findAndModify: 'COLL', query: {}, update: {$set: {a: 1}}, upsert: true}
{fsync: 1}
{fsyncUnlock: 1}
{getClusterParameter: '*'}
{getCmdLineOpts: 1}
{getDefaultRWConcern: 1}
{getDiagnosticData: 1}
{getLog: 'global'}
{getMore: NumberLong('5'), collection: 'COLL'}
{getParameter: '*'}
{getShardVersion: 'NS'}
{grantPrivilegesToRole: 'x', privileges: [{resource: {db: 'own', collection: ''}, actions: ['find']}]}
{grantRolesToRole: 'x', roles: [{role: 'read', db: 'own'}]}
{grantRolesToUser: 'x', roles: [{role: 'read', db: 'own'}]}
{grantRolesToUser: 'x', roles: [{role: 'root', db: 'admin'}]}
{hostInfo: 1}
{insert: 'COLL', documents: [{}]}
{insert: 'COLL', documents: [{}], bypassDocumentValidation: true}
{invalidateUserCache: 1}
{killAllSessions: []}
{killAllSessionsByPattern: []}
{killCursors: 'COLL', cursors: [NumberLong('5')]}
{killOp: 1, op: 123456789}
{killSessions: []}
{listCollections: 1}
{listCollections: 1, nameOnly: true}
{listCollections: 1, nameOnly: true, authorizedCollections: true}
{listDatabases: 1}
{listDatabases: 1, authorizedDatabases: false}
{listIndexes: 'COLL'}
{listSearchIndexes: 'COLL'}
{lockInfo: 1}
{logApplicationMessage: 'x'}
{logRotate: 1}
{rotateCertificates: 1}
{mapReduce: 'COLL', map: 'function() {}', reduce: 'function() {}', out: {inline: 1}}
{mapReduce: 'COLL', map: 'function() {}', reduce: 'function() {}', out: 'd'}
{mapReduce: 'COLL', map: 'function() {}', reduce: 'function() {}', out: {merge: 'd'}}
{planCacheClear: 'COLL'}
{planCacheClearFilters: 'COLL'}
{planCacheListFilters: 'COLL'}
{planCacheSetFilter: 'COLL', query: {}, indexes: [{}]}
{profile: -1}
{profile: 0}
{reIndex: 'COLL'}
{refreshSessions: []}
{removeQuerySettings: 'x'}
{renameCollection: 'NS', to: 'DB.d'}
{renameCollection: 'NS', to: 'DB.d', dropTarget: true}
{renameCollection: 'NS', to: 'third.d'}
{replSetAbortPrimaryCatchUp: 1}
{replSetFreeze: 1}
{replSetGetConfig: 1}
{replSetGetRBID: 1}
{replSetGetStatus: 1}
{replSetHeartbeat: 'x'}
{replSetInitiate: {}}
{replSetMaintenance: 1}
{replSetReconfig: {}}
{replSetResizeOplog: 1, size: 1000}
{replSetStepDown: 1}
{replSetStepUp: 1}
{replSetSyncFrom: 'x:1'}
{revokePrivilegesFromRole: 'x', privileges: [{resource: {db: 'own', collection: ''}, actions: ['find']}]}
{revokeRolesFromRole: 'x', roles: [{role: 'read', db: 'own'}]}
{revokeRolesFromUser: 'x', roles: [{role: 'read', db: 'own'}]}
{rolesInfo: 1}
{rolesInfo: 'x'}
{serverStatus: 1}
{setClusterParameter: {x: {}}}
{setDefaultRWConcern: 1}
{setFeatureCompatibilityVersion: '8.0', confirm: true}
{setIndexCommitQuorum: 'COLL'}
{setParameter: 1, logLevel: 0}
{setQuerySettings: 'x', settings: {}}
{shutdown: 1}
{startSession: 1}
{top: 1}
{update: 'COLL', updates: [{q: {}, u: {$set: {a: 1}}}]}
{update: 'COLL', updates: [{q: {}, u: {$set: {a: 1}}, upsert: true}]}
{updateRole: 'x', roles: [{role: 'read', db: 'own'}]}
{updateRole: 'x', privileges: []}
{updateSearchIndex: 'COLL', definition: {}, name: 'x'}
{updateUser: 'x', pwd: 'x'}
{updateUser: 'x', customData: {}}
{updateUser: 'x', roles: [{role: 'read', db: 'own'}]}
{updateUser: 'x', authenticationRestrictions: []}
{usersInfo: 1}
{usersInfo: 'x'}
{usersInfo: 'x', showCredentials: true}
{usersInfo: {forAllDBs: true}}
{usersInfo: {forAllDBs: true}, showCredentials: true}
{validate: 'COLL'}
{validateDBMetadata: 1, apiParameters: {}}
";

/// A command's name, and whether it runs in admin only.
type Known = BTreeMap<String, bool>;

fn known(c: &mut Connection) -> Known {
    let reply = c.command("admin", &doc! { "listCommands": 1 }).unwrap();
    let commands = reply.as_doc().get_doc("commands").unwrap();
    let one = |e: muniment_value::Elem<'_>| {
        let d = e.value().as_doc().unwrap();
        let admin = d.get("adminOnly").is_some_and(|v| v.truthy());
        (e.name().to_string(), admin)
    };
    commands.iter().map(one).collect()
}

fn name_of(command: &str) -> &str {
    let name = command.trim_start_matches('{');
    name.split_once(':').unwrap().0
}

fn binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

fn login(c: &mut Connection, user: &str) {
    let mut client = Client::new(Mechanism::Sha1, user, "pw", "nonceOfTheMatrixTests").unwrap();
    let first = client.first();
    let start = doc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": binary(first.as_bytes()),
        "options": doc! { "skipEmptyExchange": true },
    };
    let payload = |reply: DocBuf| match reply.as_doc().get("payload") {
        Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
        _ => panic!("{reply:?}"),
    };
    let server_first = payload(c.command("admin", &start).unwrap());
    let answer = client.next(&server_first).unwrap();
    let go_on = doc! {
        "saslContinue": 1, "conversationId": 1, "payload": binary(answer.as_bytes()),
    };
    client
        .verify(&payload(c.command("admin", &go_on).unwrap()))
        .unwrap();
}

fn create(c: &mut Connection, name: &str, role: &str, db: &str) {
    let cmd = format!(
        "{{createUser: '{name}', pwd: 'pw', roles: [{{role: '{role}', db: '{db}'}}], \
         mechanisms: ['SCRAM-SHA-1']}}"
    );
    c.command("admin", &shell(&cmd)).unwrap();
}

/// The results of all commands on all places for one user: whether each is allowed.
fn results(server: &Server, user: &str, known: &Known) -> Vec<Vec<bool>> {
    let mut c = server.connect();
    login(&mut c, user);
    let mut all = Vec::new();
    for command in COMMANDS.lines().filter(|l| !l.is_empty()) {
        let admin_only = known.get(name_of(command)).unwrap();
        let mut row = Vec::new();
        for (db, collection) in PLACES {
            let cmd = command
                .replace("NS", &format!("{db}.{collection}"))
                .replace("COLL", collection)
                .replace("DB.", &format!("{db}."));
            let at = if *admin_only { "admin" } else { db };
            let reply = c.command(at, &shell(&cmd));
            row.push(reply.err().is_none_or(|e| e.code().0 != 13));
        }
        all.push(row);
    }
    all
}

/// The lines of one command: the places with the same roles share a line.
fn lines(command: &str, allowed: &[Vec<bool>], out: &mut String) {
    let mut groups: Vec<(Vec<String>, String)> = Vec::new();
    for (place, (db, collection)) in PLACES.iter().enumerate() {
        let of_role = ROLES.iter().zip(allowed).filter(|(_, row)| row[place]);
        let roles: Vec<&str> = of_role.map(|((name, _), _)| *name).collect();
        let roles = match roles.len() {
            0 => "nobody".to_string(),
            n if n == ROLES.len() => "everybody".to_string(),
            _ => roles.join(" "),
        };
        let place = format!("{db}.{collection}");
        match groups.iter_mut().find(|(_, of)| *of == roles) {
            Some((places, _)) => places.push(place),
            None => groups.push((vec![place], roles)),
        }
    }
    writeln!(out, "{command}").unwrap();
    for (places, roles) in groups {
        let places = match places.len() {
            n if n == PLACES.len() => "everywhere".to_string(),
            _ => places.join(" "),
        };
        writeln!(out, "  {places}: {roles}").unwrap();
    }
}

#[test]
fn each_role_may_run_what_the_table_says() {
    let options = ServerOptions::new().arg("--auth").arg("--setParameter");
    let server = Server::start(options.arg("enableTestCommands=1"));
    let mut c = server.connect();
    create(&mut c, "first", "root", "admin");
    login(&mut c, "first");
    for (role, db) in ROLES {
        create(&mut c, role, role, db);
    }
    let known = known(&mut c);
    // Every command is in the matrix.
    let sent: BTreeSet<&str> = COMMANDS
        .lines()
        .filter(|l| !l.is_empty())
        .map(name_of)
        .collect();
    let missing: Vec<&String> = known
        .keys()
        .filter(|n| !sent.contains(n.as_str()) && !WITHOUT_RIGHTS.contains(&n.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in the matrix: {missing:?}");
    // From here on no command does anything.
    let failing: ArrayBuf = sent.iter().filter(|n| !RUN.contains(n)).collect();
    let fail = doc! {
        "configureFailPoint": "failCommand",
        "mode": "alwaysOn",
        "data": doc! { "failCommands": failing, "errorCode": ALLOWED },
    };
    c.command("admin", &fail).unwrap();
    let all: Vec<Vec<Vec<bool>>> = std::thread::scope(|scope| {
        let one = |(role, _): (&'static str, &str)| {
            let (server, known) = (&server, &known);
            scope.spawn(move || results(server, role, known))
        };
        let running = ROLES.map(one);
        running.map(|t| t.join().unwrap()).into()
    });
    let mut text = String::new();
    for (i, command) in COMMANDS.lines().filter(|l| !l.is_empty()).enumerate() {
        let rows: Vec<Vec<bool>> = all.iter().map(|of_role| of_role[i].clone()).collect();
        lines(command, &rows, &mut text);
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/auth_matrix.txt");
    if std::env::var_os("MUNIMENT_UPDATE_GOLDENS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let wanted = std::fs::read_to_string(&golden).unwrap_or_default();
    let mut command = "";
    let mut wrong = Vec::new();
    let kept: Vec<&str> = wanted.lines().collect();
    for line in text.lines() {
        if !line.starts_with(' ') {
            command = line;
        }
        if !kept.contains(&line) {
            wrong.push(format!("{command}\n{line}"));
        }
    }
    assert!(
        wrong.is_empty() && text == wanted,
        "MUNIMENT_UPDATE_GOLDENS=1 writes auth_matrix.txt anew. What is new:\n{}",
        wrong.join("\n")
    );
}
