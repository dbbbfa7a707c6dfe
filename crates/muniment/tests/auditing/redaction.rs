//! `redactClientLogData`: the log shows nothing of what clients send and store.

use super::*;

const SECRET: &str = "card-4711-0815";

/// Commands whose log lines would have the secret: slow ones, failing ones, and a validator that only warns.
fn provoke(c: &mut Connection) {
    let s = SECRET;
    run(c, "d", "{profile: 0, slowms: -1}");
    for cmd in [
        format!("{{insert: 'c', documents: [{{_id: '{s}'}}]}}"),
        format!("{{find: 'c', filter: {{a: {{$in: ['{s}', {{b: '{s}'}}]}}}}, comment: '{s}'}}"),
        format!(
            "{{aggregate: 'c', pipeline: [{{$match: {{a: '{s}'}}}}], cursor: {{batchSize: 0}}}}"
        ),
        format!("{{update: 'c', updates: [{{q: {{a: '{s}'}}, u: {{$set: {{b: '{s}'}}}}}}]}}"),
        format!("{{insert: 'c', documents: [{{_id: '{s}'}}]}}"),
        format!("{{find: 'c', filter: {{$expr: {{$toInt: '{s}'}}}}}}"),
        format!("{{find: 'c', filter: {{a: {{$regex: '(', $options: '{s}'}}}}}}"),
    ] {
        told(c, "d", &cmd);
    }
    let opened = format!("{{find: 'c', filter: {{b: {{$ne: '{s}'}}}}, batchSize: 0}}");
    let reply = run(c, "d", &opened);
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
    let more = doc! { "getMore": id, "collection": "c" };
    c.command("d", &more).unwrap();
    let create = "{create: 'v', validator: {a: 1}, validationAction: 'warn'}";
    told(c, "d", create);
    run(
        c,
        "d",
        &format!("{{insert: 'v', documents: [{{_id: '{s}', a: '{s}'}}]}}"),
    );
    run(c, "d", "{drop: 'c'}");
    run(c, "d", "{drop: 'v'}");
    run(c, "d", "{profile: 0, slowms: 100}");
}

/// What is in the log since it had this length.
fn since(server: &Server, from: usize) -> String {
    server.log().get(from..).unwrap_or_default().to_string()
}

#[test]
fn values_of_clients_are_not_in_the_log() {
    let server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    provoke(&mut c);
    let shown = server.log();
    let times = shown.matches(SECRET).count();
    assert!(times > 8, "the test provokes too little: {shown}");
    assert!(shown.contains("Document would fail validation"));
    let from = shown.len();
    run(
        &mut c,
        "admin",
        "{setParameter: 1, redactClientLogData: true}",
    );
    provoke(&mut c);
    let hidden = since(&server, from);
    assert!(!hidden.contains(SECRET), "{hidden}");
    // What helps to find a problem is still there.
    for wanted in [
        "\"ns\":\"d.c\"",
        "\"filter\":{\"a\":{\"$in\":[\"###\",{\"b\":\"###\"}]}}",
        "\"originatingCommand\":{\"find\":\"###\"",
        "\"errMsg\":\"###\"",
        "\"planSummary\"",
        "Document would fail validation",
    ] {
        assert!(hidden.contains(wanted), "no {wanted} in {hidden}");
    }
    // The same lines are kept for getLog.
    let kept = run(&mut c, "admin", "{getLog: 'global'}")
        .as_doc()
        .to_display();
    assert!(kept.contains("###"));
    let from = server.log().len();
    run(
        &mut c,
        "admin",
        "{setParameter: 1, redactClientLogData: false}",
    );
    provoke(&mut c);
    assert!(since(&server, from).contains(SECRET));
}

#[test]
fn the_option_holds_from_the_start() {
    for args in [
        &["--redactClientLogData"][..],
        &["--setParameter", "redactClientLogData=true"],
    ] {
        let options = args.iter().fold(ServerOptions::new(), |o, a| o.arg(*a));
        let server = Server::start(options);
        let mut c = server.connect();
        provoke(&mut c);
        assert!(!server.log().contains(SECRET), "{args:?}: {}", server.log());
        let asked = "{getParameter: 1, redactClientLogData: 1}";
        let reply = run(&mut c, "admin", asked);
        assert_eq!(shown(&reply, "redactClientLogData"), "true", "{args:?}");
    }
}
