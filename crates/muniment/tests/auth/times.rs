//! The cluster's time is signed: only a time that a member has signed moves the clock of another member, or that of
//! a user with the right to advance it.

use super::roads::Keyed;
use super::*;
use muniment_value::{Doc, array};

/// The `$clusterTime` of a reply.
fn told_time(reply: &DocBuf) -> DocBuf {
    let time = reply.as_doc().get_doc("$clusterTime").unwrap();
    time.to_buf()
}

/// Its seconds.
fn seconds(time: Doc<'_>) -> u32 {
    match time.get("clusterTime") {
        Some(Value::Timestamp { t, .. }) => t,
        other => panic!("{other:?}"),
    }
}

/// The same, so many seconds later, with the signature that it had.
fn later(time: Doc<'_>, by: u32) -> DocBuf {
    let mut d = DocBuf::new();
    for e in time {
        match e.value() {
            Value::Timestamp { t, i } => d.append("clusterTime", Value::Timestamp { t: t + by, i }),
            _ => d.append_elem(e),
        };
    }
    d
}

fn unsigned(t: u32) -> DocBuf {
    doc! { "clusterTime": Value::Timestamp { t, i: 1 } }
}

fn ping(c: &mut Connection, time: &DocBuf) -> Result<DocBuf> {
    c.command("admin", &doc! { "ping": 1, "$clusterTime": time })
}

#[test]
fn times_count_that_a_member_has_signed() {
    let mut keyed = Keyed::new(&[]);
    run(
        &mut keyed.root,
        "own",
        "{createUser: 'u', pwd: 'pw', roles: ['readWrite'], writeConcern: {w: 3, wtimeout: 60000}}",
    );
    let user = |member: usize| {
        let mut c = keyed.set.connect(member);
        login(&mut c, "own", "u", "pw", SHA1).unwrap();
        c
    };
    let mut all: Vec<_> = (0..3).map(user).collect();
    let id = |reply: &DocBuf| {
        let time = told_time(reply);
        let signature = time.as_doc().get_doc("signature").unwrap();
        signature.get("keyId").unwrap().to_display()
    };
    let ids: Vec<_> = all
        .iter_mut()
        .map(|c| id(&c.command("admin", &doc! { "ping": 1 }).unwrap()))
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0] && *id != "0"), "{ids:?}");

    // A client that has not logged in gets none: it could guess a short key by it.
    let mut stranger = keyed.set.connect(0);
    let reply = stranger.command("admin", &doc! { "hello": 1 }).unwrap();
    assert_eq!(id(&reply), "0");
    // Nor does it make the server wait for a time.
    let far = Value::Timestamp { t: u32::MAX, i: 1 };
    let asks = doc! { "hello": 1, "readConcern": doc! { "afterClusterTime": far } };
    let began = Instant::now();
    stranger.command("admin", &asks).unwrap();
    assert!(began.elapsed() < Duration::from_secs(4));

    // What the user makes up is not heard, and a signature is of its own time.
    let primary = keyed.primary;
    let real = told_time(&all[primary].command("admin", &doc! { "ping": 1 }).unwrap());
    let now = seconds(real.as_doc());
    let reply = ping(&mut all[primary], &unsigned(now + 3000)).unwrap();
    assert!(seconds(told_time(&reply).as_doc()) < now + 1000);
    let e = ping(&mut all[primary], &later(real.as_doc(), 3000)).unwrap_err();
    assert_eq!(e.code().0, 204, "{e}");
    assert!(e.message().contains("does not match"), "{e}");
    ping(&mut all[primary], &real).unwrap();

    // One that may advance the clock does so.
    let reply = ping(&mut keyed.root, &unsigned(now + 3000)).unwrap();
    let ahead = told_time(&reply);
    assert!(seconds(ahead.as_doc()) >= now + 3000);
    // A client brings it to the next member, which has not heard of it.
    let other = (primary + 1) % 3;
    let reply = all[other].command("admin", &doc! { "ping": 1 }).unwrap();
    assert!(seconds(told_time(&reply).as_doc()) < now + 1000);
    // A client that has not logged in cannot, although it is signed.
    ping(&mut keyed.set.connect(other), &ahead).unwrap();
    let reply = all[other].command("admin", &doc! { "ping": 1 }).unwrap();
    assert!(seconds(told_time(&reply).as_doc()) < now + 1000);
    let reply = ping(&mut all[other], &ahead).unwrap();
    assert!(seconds(told_time(&reply).as_doc()) >= now + 3000);
}

/// A follower waits for what its primary has, although the client brings no signature that it could check, as
/// while keys are changed.
#[test]
fn reads_after_a_time_wait_until_the_member_hears_of_it() {
    let keyed = Keyed::new(&[]);
    let mut primary = keyed.root;
    let other = (keyed.primary + 1) % 3;
    run(
        &mut primary,
        "own",
        "{createUser: 'u', pwd: 'pw', roles: ['readWrite'], writeConcern: {w: 3, wtimeout: 60000}}",
    );
    let mut follower = keyed.set.connect(other);
    login(&mut follower, "own", "u", "pw", SHA1).unwrap();
    for n in 0..30 {
        let insert = doc! { "insert": "c", "documents": array![doc! { "_id": n }] };
        let reply = primary.command("own", &insert).unwrap();
        let after = reply.as_doc().get("operationTime").unwrap();
        let find = doc! {
            "find": "c", "filter": doc! { "_id": n },
            "readConcern": doc! { "afterClusterTime": after },
            "$readPreference": doc! { "mode": "secondary" },
        };
        let reply = follower.command("own", &find).unwrap();
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let batch = cursor.get_array("firstBatch").unwrap();
        assert_eq!(batch.iter().count(), 1, "{n}");
    }
    // There is no end of times that nobody has told it of.
    let far = Value::Timestamp { t: u32::MAX, i: 1 };
    let find = doc! {
        "find": "c",
        "readConcern": doc! { "afterClusterTime": far },
        "$readPreference": doc! { "mode": "secondary" },
    };
    let e = follower.command("own", &find).unwrap_err();
    assert_eq!(e.code().0, 72, "{e}");
}
