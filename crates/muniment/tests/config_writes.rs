//! What a router writes into the configuration, while the primary of its set fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::{go_on, stopped};
use muniment_value::{Code, DocBuf, Result};
use muniment_wire::Connection;
use testkit::ask::{all, fails, run};
use testkit::{Cluster, Set, shell};

/// The command is done, and its client does not learn that.
const UNCONFIRMED: &str = "writeConcernError: {code: 64, errmsg: 'not confirmed'}";
/// The command is not done.
const REFUSED: &str = "errorCode: 2";

/// A cluster of two shards, of whose set of the configuration commands can be made to fail.
fn cluster() -> (Cluster, Connection) {
    cluster_with(1)
}

fn cluster_with(routers: usize) -> (Cluster, Connection) {
    let cluster = Cluster::prepare(2, 1, routers, &["--setParameter", "enableTestCommands=1"]);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    (cluster, c)
}

/// Has the configuration's primary refuse a command so many times.
fn refuses(cluster: &Cluster, command: &str, times: u32, code: Code) {
    let (mode, ends) = (
        format!("{{times: {times}}}"),
        format!("errorCode: {}", code.0),
    );
    cluster.config.fail_commands(&[command], &mode, &ends);
}

fn shards(c: &mut Connection, ns: &str) -> DocBuf {
    run(
        c,
        "admin",
        &format!("{{shardCollection: '{ns}', key: {{k: 1}}}}"),
    )
}

/// A transaction that its primary has not committed before it ended is unknown to the next one. So it is run again.
#[test]
fn a_change_of_the_configuration_is_repeated() {
    let (cluster, mut c) = cluster();
    let codes = [Code::NoSuchTransaction, Code::WriteConflict];
    for (i, code) in codes.into_iter().enumerate() {
        refuses(&cluster, "commitTransaction", 3, code);
        shards(&mut c, &format!("d.commit{i}"));
    }
    // A statement of the transaction meets a primary that is one no more.
    for i in 0..3 {
        refuses(
            &cluster,
            "delete",
            i + 1,
            Code::InterruptedDueToReplStateChange,
        );
        shards(&mut c, &format!("d.statement{i}"));
        run(&mut c, "d", &format!("{{drop: 'statement{i}'}}"));
    }
    let problems = run(&mut c, "admin", "{checkMetadataConsistency: 1, cursor: {}}");
    let problems = problems.as_doc().get_doc("cursor").unwrap();
    assert_eq!(problems.get_array("firstBatch").unwrap().count(), 0);
}

/// A client knows nothing of the router's transactions, so no error speaks of them.
#[test]
fn an_error_of_the_client_is_not_of_the_routers_transaction() {
    let (cluster, mut c) = cluster();
    refuses(&cluster, "commitTransaction", 100, Code::NoSuchTransaction);
    let divides = "{shardCollection: 'd.c', key: {k: 1}}";
    fails(
        &mut c,
        "admin",
        divides,
        Code::InterruptedDueToReplStateChange.0,
    );
    let reply = c.command_raw("admin", &shell(divides)).unwrap();
    assert!(reply.as_doc().get("errorLabels").is_none(), "{reply:?}");
    refuses(&cluster, "commitTransaction", 0, Code::NoSuchTransaction);
    shards(&mut c, "d.c");
}

/// The collection's shard is told that it stays before the configuration forgets it. A router that does not know whether
/// the configuration has must not take that back: the collection would be dropped as one that had gone elsewhere.
#[test]
fn a_collection_that_may_be_forgotten_is_not_dropped() {
    let (cluster, mut c) = cluster();
    let count = |c: &mut Connection| {
        let reply = run(c, "d", "{count: 'c'}");
        reply.as_doc().get("n").and_then(|n| n.as_i64_exact())
    };
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}]}",
    );
    for ends in [UNCONFIRMED, REFUSED] {
        run(&mut c, "admin", "{moveCollection: 'd.c', toShard: 's1'}");
        let back = "{moveCollection: 'd.c', toShard: 's0'}";
        let moved = stopped(&cluster, "duringUntrack", move |c| {
            c.command("admin", &shell(back))
        });
        cluster.config.fail_commands(&COMMIT, "{times: 1}", ends);
        go_on(&mut c);
        moved.join().unwrap().unwrap_err();
        for _ in 0..2 {
            assert_eq!(count(&mut c), Some(2), "{ends}");
            run(&mut c, "admin", "{flushRouterConfig: 1}");
        }
        run(&mut c, "admin", back);
        assert_eq!(count(&mut c), Some(2), "{ends}");
        let problems = all(&mut c, "d", "{checkMetadataConsistency: 1}");
        assert!(problems.is_empty(), "{problems:?}");
    }
}

/// A collection of a case has so many documents.
const DOCUMENTS: usize = 40;

/// A command that changes where a collection is, in a database of its own, and what comes before it.
struct Case {
    before: &'static [&'static str],
    command: &'static str,
    at: &'static str,
    drops: bool,
}

impl Case {
    /// Makes the collection.
    fn prepare(&self, c: &mut Connection, db: &str) {
        let of = |text: &str| text.replace("DB", db);
        let home = of("{enableSharding: 'DB', primaryShard: 's0'}");
        run(c, "admin", &home);
        let documents = (0..DOCUMENTS).map(|i| format!("{{_id: {i}, k: {i}, n: 1}},"));
        let documents: String = documents.collect();
        run(c, db, &format!("{{insert: 'c', documents: [{documents}]}}"));
        let keys = ["{k: 1}", "{k: 1, n: 1}", "{_id: 'hashed'}"];
        let indexes = keys.map(|key| format!("{{key: {key}, name: \"{key}\"}}"));
        let indexes = indexes.join(", ");
        run(
            c,
            db,
            &format!("{{createIndexes: 'c', indexes: [{indexes}]}}"),
        );
        for step in self.before {
            run(c, "admin", &of(step));
        }
    }
}

const fn case(before: &'static [&'static str], command: &'static str) -> Case {
    Case {
        before,
        command,
        at: "admin",
        drops: false,
    }
}

/// `DB` stands for the database.
const CASES: [Case; 15] = [
    case(&[], "{shardCollection: 'DB.c', key: {k: 1}}"),
    case(&[], "{shardCollection: 'DB.c', key: {_id: 'hashed'}}"),
    case(&[], "{moveCollection: 'DB.c', toShard: 's1'}"),
    case(
        &["{moveCollection: 'DB.c', toShard: 's1'}"],
        "{moveCollection: 'DB.c', toShard: 's0'}",
    ),
    case(
        &["{shardCollection: 'DB.c', key: {_id: 'hashed'}}"],
        "{unshardCollection: 'DB.c', toShard: 's0'}",
    ),
    case(
        &["{shardCollection: 'DB.c', key: {_id: 'hashed'}}"],
        "{unshardCollection: 'DB.c', toShard: 's1'}",
    ),
    case(
        &[
            "{shardCollection: 'DB.c', key: {k: 1}}",
            "{split: 'DB.c', middle: {k: 20}}",
        ],
        "{moveChunk: 'DB.c', find: {k: 30}, to: 's1'}",
    ),
    case(
        &["{shardCollection: 'DB.c', key: {k: 1}}"],
        "{split: 'DB.c', middle: {k: 20}}",
    ),
    case(
        &[
            "{shardCollection: 'DB.c', key: {k: 1}}",
            "{split: 'DB.c', middle: {k: 10}}",
            "{split: 'DB.c', middle: {k: 20}}",
        ],
        "{mergeChunks: 'DB.c', bounds: [{k: {$minKey: 1}}, {k: 20}]}",
    ),
    case(
        &[
            "{shardCollection: 'DB.c', key: {k: 1}}",
            "{moveRange: 'DB.c', min: {k: 20}, toShard: 's1'}",
        ],
        "{refineCollectionShardKey: 'DB.c', key: {k: 1, n: 1}}",
    ),
    case(
        &[
            "{shardCollection: 'DB.c', key: {k: 1}}",
            "{moveRange: 'DB.c', min: {k: 20}, toShard: 's1'}",
        ],
        "{reshardCollection: 'DB.c', key: {_id: 'hashed'}}",
    ),
    case(
        &["{shardCollection: 'DB.c', key: {_id: 'hashed'}}"],
        "{renameCollection: 'DB.c', to: 'DB.renamed'}",
    ),
    Case {
        at: "DB",
        drops: true,
        ..case(
            &["{shardCollection: 'DB.c', key: {_id: 'hashed'}}"],
            "{drop: 'c'}",
        )
    },
    case(&[], "{movePrimary: 'DB', to: 's1'}"),
    case(
        &["{moveCollection: 'DB.c', toShard: 's1'}"],
        "{movePrimary: 'DB', to: 's1'}",
    ),
];

/// How the router's transactions on the configuration end.
const COMMIT: [&str; 1] = ["commitTransaction"];
/// What a router has a shard do.
const OF_SHARDS: [&str; 16] = [
    "_shardPlace",
    "_shardGive",
    "_shardReceive",
    "_shardCopy",
    "_shardClean",
    "_shardNote",
    "_shardRename",
    "_shardLeaveDatabase",
    "_shardRows",
    "_shardChanges",
    "_shardSessions",
    "_shardSizes",
    "create",
    "createIndexes",
    "drop",
    "collMod",
];

/// Runs all cases, each in so many ways. `does` runs a command of a database in one of them, and it may fail. Whatever the
/// router says: all documents are there for this router and for another one, the cluster is consistent, and the command
/// can be repeated.
fn no_document_is_lost(
    ways: u32,
    does: impl Fn(&Cluster, &mut Connection, u32, (&str, &DocBuf)) -> Result<DocBuf>,
) {
    let (cluster, mut c) = cluster_with(2);
    let mut other = cluster.routers[1].connect();
    let mut failed = 0;
    let rounds = CASES
        .iter()
        .flat_map(|case| (0..ways).map(move |way| (case, way)));
    for (number, (case, way)) in rounds.enumerate() {
        let db = format!("d{number}");
        let of = |text: &str| text.replace("DB", &db);
        case.prepare(&mut c, &db);
        let (at, command) = (of(case.at), shell(&of(case.command)));
        let first = does(&cluster, &mut c, way, (&at, &command));
        failed += usize::from(first.is_err());
        let what = format!("{}, way {way}: {first:?}", of(case.command));
        for again in 0..2 {
            let done = again == 1 || first.is_ok();
            for c in [&mut c, &mut other] {
                let mut count = |name| all(c, &db, &format!("{{find: '{name}'}}")).len();
                let found = count("c") + count("renamed");
                let wanted = if done && case.drops { 0 } else { DOCUMENTS };
                let may_be_gone = !done && case.drops && found == 0;
                assert!(
                    found == wanted || may_be_gone,
                    "{found} documents, {again}: {what}"
                );
            }
            let problems = all(&mut c, &db, "{checkMetadataConsistency: 1}");
            assert!(problems.is_empty(), "{problems:?}, {again}: {what}");
            // It may have been done already.
            let _ = c.command(&at, &command);
        }
    }
    // Otherwise nothing was in doubt.
    assert!(failed > 0, "no command has failed");
}

/// All cases, while commands of the router on a set are unconfirmed or refused, from the first one on or from a later one.
fn no_document_is_lost_in_doubt(of: impl Fn(&Cluster) -> &Set, commands: &[&str], skips: u32) {
    no_document_is_lost(2 * skips, |cluster, c, way, (at, command)| {
        let ends = [UNCONFIRMED, REFUSED][(way % 2) as usize];
        let mode = match way / 2 {
            0 => "'alwaysOn'".to_string(),
            skipped => format!("{{skip: {skipped}}}"),
        };
        of(cluster).fail_commands(commands, &mode, ends);
        let done = c.command(at, command);
        of(cluster).fail_commands(commands, "'off'", ends);
        done
    });
}

#[test]
fn no_change_loses_a_document_when_its_commit_is_in_doubt() {
    no_document_is_lost_in_doubt(|cluster| &cluster.config, &COMMIT, 4);
}

#[test]
fn no_change_loses_a_document_when_the_first_shard_is_in_doubt() {
    no_document_is_lost_in_doubt(|cluster| &cluster.shards[0], &OF_SHARDS, 6);
}

#[test]
fn no_change_loses_a_document_when_the_second_shard_is_in_doubt() {
    no_document_is_lost_in_doubt(|cluster| &cluster.shards[1], &OF_SHARDS, 6);
}

/// The time of a command is over at some step.
#[test]
fn no_change_loses_a_document_when_it_is_ended() {
    const MS: [i32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12];
    no_document_is_lost(MS.len() as u32, |_, c, way, (at, command)| {
        let mut command = command.clone();
        command.append("maxTimeMS", MS[way as usize]);
        c.command(at, &command)
    });
}
