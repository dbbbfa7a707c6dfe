//! What a router writes into the configuration, while the primary of its set fails.
#![allow(clippy::unwrap_used, missing_docs)]

use muniment_value::{Code, DocBuf};
use muniment_wire::Connection;
use testkit::ask::{fails, run};
use testkit::{Cluster, shell};

/// A cluster of two shards, of whose set of the configuration commands can be made to fail.
fn cluster() -> (Cluster, Connection) {
    let cluster = Cluster::prepare(2, 1, 1, &["--setParameter", "enableTestCommands=1"]);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    (cluster, c)
}

/// Has the configuration's primary refuse a command so many times.
fn refuses(cluster: &Cluster, command: &str, times: u32, code: Code) {
    let point = format!(
        "{{configureFailPoint: 'failCommand', mode: {{times: {times}}}, data: {{failCommands: ['{command}'], \
         errorCode: {}, failInternalCommands: true}}}}",
        code.0
    );
    let config = &cluster.config;
    run(&mut config.connect(config.primary()), "admin", &point);
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
    let config = &cluster.config;
    run(
        &mut config.connect(config.primary()),
        "admin",
        "{configureFailPoint: 'failCommand', mode: 'off'}",
    );
    shards(&mut c, "d.c");
}
