#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::super::store::{COUNTS, LINKS, NODES};
use super::*;
use muniment_load::fake;
use muniment_load::meter::Board;
use muniment_value::{DocBuf, Value, array};

const LINK: LinkKey = LinkKey {
    id1: 7,
    link_type: 0,
    id2: 9,
};

fn names(d: Doc<'_>) -> Vec<&str> {
    d.iter().map(|e| e.name()).collect()
}

/// The number of the transaction, which must be an int64.
fn number(d: Doc<'_>) -> Option<i64> {
    match d.get("txnNumber") {
        Some(Value::Int64(n)) => Some(n),
        _ => None,
    }
}

fn session(d: Doc<'_>) -> DocBuf {
    d.get_doc("lsid").unwrap().to_buf()
}

/// The reply of a healthy server that has transactions.
fn healthy(command: &str) -> DocBuf {
    match command {
        "findAndModify" => doc! { "value": doc! { "visibility": 0 }, "ok": 1.0 },
        "find" => doc! { "cursor": doc! { "id": 0_i64, "firstBatch": array![] }, "ok": 1.0 },
        _ => doc! { "n": 1, "ok": 1.0 },
    }
}

fn refusal(code: i32, label: Option<&str>) -> DocBuf {
    let mut d = doc! { "ok": 0.0, "errmsg": "no", "code": code, "codeName": "No" };
    if let Some(l) = label {
        d.append("errorLabels", array![l]);
    }
    d
}

/// Makes a requester of v2 that talks to a script, and a record of its messages.
fn requester(
    transactions: bool,
    answer: impl FnMut(usize, &str) -> DocBuf + Send + 'static,
) -> (Requester, fake::Heard) {
    let mut answer = answer;
    let (address, heard) = fake::server(move |n, d| answer(n, d.first().unwrap().name()));
    let graph = Graph::new(Profile::V2, 1000);
    let conn = Conn::connect(&muniment_load::access::Peer::open(&address)).unwrap();
    (Requester::new(conn, &graph, 1, transactions), heard)
}

/// Runs one operation; returns its result and the number of repeated tries.
fn operate(r: &mut Requester, operation: Operation, next: Next) -> (Result<u64>, u64) {
    let board = Arc::new(Board::default());
    let mut meter = Meter::new(board.clone());
    r.next = Some((operation, next));
    let done = r.operate(&mut meter);
    drop(meter);
    let retried = board.total()[operation.names().0]
        .statuses
        .get(RETRIED)
        .copied();
    (done, retried.unwrap_or(0))
}

#[test]
fn a_link_and_its_count_are_one_transaction() {
    let (mut r, heard) = requester(true, |_, command| healthy(command));
    assert_eq!(
        operate(&mut r, Operation::UpdateLink, Next::Put { key: LINK }).0,
        Ok(1)
    );
    assert_eq!(
        operate(&mut r, Operation::DeleteLink, Next::Hide { key: LINK }).0,
        Ok(1)
    );
    let all = heard.all();
    let sent: Vec<Vec<&str>> = all.iter().map(|d| names(d.as_doc())).collect();
    assert_eq!(
        sent[0],
        [
            "findAndModify",
            "query",
            "fields",
            "update",
            "upsert",
            "new",
            "$db",
            "lsid",
            "txnNumber",
            "startTransaction",
            "autocommit"
        ]
    );
    assert_eq!(
        sent[1],
        [
            "update",
            "updates",
            "$db",
            "lsid",
            "txnNumber",
            "autocommit"
        ]
    );
    assert_eq!(
        sent[2],
        [
            "commitTransaction",
            "$db",
            "lsid",
            "txnNumber",
            "autocommit"
        ]
    );
    let d = |i: usize| all[i].as_doc();
    assert_eq!(d(0).get_str("findAndModify"), Some(LINKS));
    assert_eq!(d(1).get_str("update"), Some(COUNTS));
    assert_eq!(d(2).get_str("$db"), Some("admin"));
    for i in 0..3 {
        assert_eq!(number(d(i)), Some(1));
        assert!(matches!(d(i).get("autocommit"), Some(Value::Bool(false))));
        assert_eq!(session(d(i)), session(d(0)));
    }
    let Some(Value::Binary { subtype: 4, bytes }) = d(0).get_doc("lsid").unwrap().get("id") else {
        panic!("the session's id is no UUID");
    };
    assert_eq!((bytes.len(), bytes[6] >> 4, bytes[8] >> 6), (16, 4, 2));
    // The delete finds the link hidden already, so there is nothing to count; its transaction has a
    // new number.
    assert_eq!(sent[3][0], "findAndModify");
    assert_eq!(sent[4][0], "commitTransaction");
    assert_eq!(number(d(4)), Some(2));
    assert_eq!(all.len(), 5);
}

#[test]
fn a_conflict_begins_anew_and_is_counted() {
    // The count is refused twice: first with an error label, then with an error code alone.
    let mut refused = 0;
    let (mut r, heard) = requester(true, move |_, command| match command {
        "update" if refused < 2 => {
            refused += 1;
            match refused {
                1 => refusal(251, Some("TransientTransactionError")),
                _ => refusal(112, None),
            }
        }
        other => healthy(other),
    });
    let (done, retries) = operate(&mut r, Operation::AddLink, Next::Put { key: LINK });
    assert_eq!((done, retries), (Ok(1), 2));
    let all = heard.all();
    let sent: Vec<(&str, i64)> = all
        .iter()
        .map(|d| {
            let d = d.as_doc();
            (d.first().unwrap().name(), number(d).unwrap())
        })
        .collect();
    assert_eq!(
        sent,
        [
            ("findAndModify", 1),
            ("update", 1),
            ("abortTransaction", 1),
            ("findAndModify", 2),
            ("update", 2),
            ("abortTransaction", 2),
            ("findAndModify", 3),
            ("update", 3),
            ("commitTransaction", 3),
        ]
    );
    assert!(all[3].as_doc().get("startTransaction").is_some());
}

#[test]
fn an_unknown_outcome_is_asked_for_again_with_the_same_number() {
    let (mut r, heard) = requester(true, |n, command| match (n, command) {
        (1, "commitTransaction") => refusal(91, Some("UnknownTransactionCommitResult")),
        _ => healthy(command),
    });
    let message = r.store.add_node(5, b"x");
    let next = Next::Retried {
        message,
        transaction: true,
    };
    assert_eq!(operate(&mut r, Operation::AddNode, next), (Ok(1), 1));
    let all = heard.all();
    assert_eq!(all[0].as_doc().get_str("insert"), Some(NODES));
    assert_eq!(names(all[1].as_doc())[0], "commitTransaction");
    assert!(all[1].as_doc().get("writeConcern").is_none());
    let again = all[2].as_doc();
    assert_eq!(number(again), number(all[1].as_doc()));
    assert_eq!(
        again.get_doc("writeConcern").unwrap().get_str("w"),
        Some("majority")
    );
    assert_eq!(all.len(), 3);
}

#[test]
fn retries_end_and_other_errors_are_not_retried() {
    let (mut r, heard) = requester(true, |_, command| match command {
        "find" => refusal(11600, None),
        _ => refusal(112, Some("TransientTransactionError")),
    });
    let next = || Next::List {
        key: LINK,
        newest: i64::MAX,
        history: None,
    };
    let (done, retries) = operate_failing(&mut r, Operation::GetLinkList, next());
    assert_eq!(done.unwrap_err().0, "no (11600 No)");
    assert_eq!((retries, heard.all().len()), (0, 2));
    let begin = Instant::now();
    let (done, retries) = operate_failing(&mut r, Operation::AddLink, Next::Put { key: LINK });
    assert!(done.is_err());
    assert_eq!(retries, u64::from(TRIES) - 1);
    // The pauses grow by 20 ms each.
    assert!(begin.elapsed() >= pause(1) * (1..TRIES).sum::<u32>());
    assert_eq!(heard.all().len(), 2 + 2 * TRIES as usize);
}

/// Runs an operation as [`operate`] does, for operations that fail.
fn operate_failing(r: &mut Requester, operation: Operation, next: Next) -> (Result<u64>, u64) {
    let mut meter = Meter::new(Arc::new(Board::default()));
    r.next = Some((operation, next));
    let done = r.operate(&mut meter);
    (done, r.retries)
}

#[test]
fn without_transactions_there_are_single_commands() {
    let mut conflicts = 1;
    let (mut r, heard) = requester(false, move |_, command| {
        if command == "update" && conflicts > 0 {
            conflicts -= 1;
            return refusal(112, None);
        }
        healthy(command)
    });
    let (done, retries) = operate(&mut r, Operation::UpdateLink, Next::Put { key: LINK });
    assert_eq!((done, retries), (Ok(1), 1));
    let message = r.store.update_node(5, b"x");
    let next = Next::Retried {
        message,
        transaction: false,
    };
    assert_eq!(operate(&mut r, Operation::UpdateNode, next).0, Ok(1));
    r.finish().unwrap();
    let all = heard.all();
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|d| d.as_doc().get("lsid").is_none()));
}

#[test]
fn a_node_is_changed_outside_the_session() {
    let (mut r, heard) = requester(true, |_, command| healthy(command));
    let message = r.store.update_node(5, b"x");
    let next = Next::Retried {
        message,
        transaction: false,
    };
    assert_eq!(operate(&mut r, Operation::UpdateNode, next).0, Ok(1));
    r.finish().unwrap();
    let all = heard.all();
    assert_eq!(names(all[0].as_doc()), ["update", "updates", "$db"]);
    assert_eq!(names(all[1].as_doc()), ["endSessions", "$db"]);
}

#[test]
fn whether_there_are_transactions_is_tried() {
    let support = |answer: fn(&str) -> DocBuf| {
        let (address, heard) = fake::server(move |_, d| answer(d.first().unwrap().name()));
        let mut conn = Conn::connect(&muniment_load::access::Peer::open(&address)).unwrap();
        (transaction::unsupported(&mut conn), heard)
    };
    let (yes, heard) = support(healthy);
    assert_eq!(yes, Ok(None));
    let sent: Vec<String> = heard
        .all()
        .iter()
        .map(|d| d.as_doc().first().unwrap().name().into())
        .collect();
    assert_eq!(sent, ["find", "commitTransaction", "endSessions"]);
    let (no, _) = support(|_| {
        doc! {
            "ok": 0.0, "code": 20, "codeName": "IllegalOperation",
            "errmsg": "Transaction numbers are only allowed on a replica set member or mongos",
        }
    });
    let why = no.unwrap().unwrap();
    assert!(
        why.starts_with("Transaction numbers are only") && why.contains("20"),
        "{why}"
    );
    // A server that refuses every use says nothing about transactions, so it must not count as one
    // without them.
    let (broken, _) = support(|_| refusal(13, None));
    assert!(broken.unwrap_err().0.starts_with("trying a transaction: "));
}
