//! Every wait of an operation ends when the operation has to end.

use super::*;
use crate::changes::feed::Waits;
use crate::cursor::{BatchLimits, CursorOwner};
use crate::operation::{OpContext, OpStart, ReplyRoom};
use crate::tickets::TicketPool;
use muniment_op::{Account, Client, Interrupt, Ledger, Share};
use muniment_storage::CollectionOptions;
use muniment_value::{Code, doc};
use std::time::Instant;

/// The time limit of a wait for something that never happens.
const NEVER: Duration = Duration::from_secs(600);
/// A wait has to end within this time, whatever else runs on the machine.
const SOON: Duration = Duration::from_secs(20);

/// Runs a wait for something that never happens, once for each thing that ends an operation.
fn ends<T: Send>(b: &Bench, what: &str, wait: impl Fn(&Arc<OpContext>) -> Result<T> + Sync) {
    for way in ["kill", "client", "deadline"] {
        let client = Arc::new(Client::new());
        let limit = Duration::from_millis(60);
        let op = b.engine.operations.begin(OpStart {
            of_client: Some(client.clone()),
            max_time: (way == "deadline").then_some(limit),
            ..OpStart::default()
        });
        std::thread::scope(|s| {
            let waits = s.spawn(|| {
                let error = wait(&op).err().expect(what);
                (error.code(), Instant::now())
            });
            while !op.sleeps() && !waits.is_finished() {
                std::thread::yield_now();
            }
            let (wanted, from) = match way {
                "kill" => {
                    let now = Instant::now();
                    b.engine.operations.kill(op.id());
                    (Code::Interrupted, now)
                }
                "client" => {
                    let now = Instant::now();
                    client.leave();
                    let grace = op.started() + muniment_op::GRACE;
                    (Code::ClientDisconnect, now.max(grace))
                }
                _ => (Code::MaxTimeMSExpired, op.started() + limit),
            };
            let (code, ended) = waits.join().unwrap();
            let late = ended.saturating_duration_since(from);
            println!("{what}, {way}: {late:?}");
            assert_eq!(code, wanted, "{what}, {way}");
            assert!(late < SOON, "{what}, {way}: {late:?}");
        });
        assert!(!op.sleeps(), "{what}, {way}");
    }
}

#[test]
fn tickets_and_memory_are_waited_for_no_longer_than_the_operation_runs() {
    let b = Bench::new();
    let pool = Arc::new(TicketPool::default());
    pool.set_total(1);
    let held = pool.acquire(&muniment_op::NeverInterrupted).unwrap();
    ends(&b, "ticket", |op| op.take_ticket(&pool).map(drop));
    drop(held);
    // None of the operations that gave up has kept a ticket.
    assert!(pool.acquire(&muniment_op::NeverInterrupted).is_ok());

    let ledger = Arc::new(Ledger::default());
    ledger.set_limit(Account::Commands, 1 << 20);
    let mut held = Share::new(&ledger, Account::Commands);
    held.holds(1 << 20);
    ends(&b, "memory for a command", |op| {
        op.make_room_for_command(&ledger, 1 << 20)
    });
    ledger.set_limit(Account::Replies, 1 << 20);
    let mut others = Share::new(&ledger, Account::Replies);
    others.holds(2 << 20);
    let room = ReplyRoom::new(&ledger, &Arc::default());
    ends(&b, "memory for a reply", |op| {
        room.grow(op, 1 << 20, true).map(drop)
    });
    let script = r#"{"$where": "sleep(600000) || true"}"#;
    b.insert_json(&[r#"{"_id": 1}"#]);
    ends(&b, "sleep of a script", |op| {
        let filter = j(script);
        let request = FindRequest {
            filter: filter.as_doc(),
            ..FindRequest::new(NS)
        };
        let mut cursor = b.engine.find(op, &request)?;
        cursor.next_doc(op)
    });
}

#[test]
fn what_comes_later_is_waited_for_no_longer_than_the_operation_runs() {
    let b = Bench::new();
    let ns = "test.capped";
    let options = CollectionOptions {
        capped_size: Some(1 << 20),
        document: doc! { "capped": true, "size": 1 << 20 },
        ..CollectionOptions::default()
    };
    b.engine
        .store
        .create_collection(ns, options, &*b.op)
        .unwrap();
    let d = [doc! { "_id": 1 }];
    b.engine
        .insert_many(&b.op, ns, &each(&d), InsertOptions::default())
        .unwrap();
    let get_more = |op: &Arc<OpContext>| {
        let request = FindRequest {
            tailable: true,
            await_data: true,
            ..FindRequest::new(ns)
        };
        let owner = CursorOwner::default();
        let cursor = b.engine.find(&b.op, &request)?;
        let (limits, mut out) = (BatchLimits::FIRST, Vec::new());
        let id = b
            .engine
            .first_batch(&b.op, cursor, owner.clone(), limits, &mut out)?;
        let request = GetMoreRequest {
            id,
            namespace: ns,
            batch_size: None,
            owner,
            await_time: Some(NEVER),
            await_time_given: true,
            is_late: &|| false,
            fails: &|| None,
        };
        b.engine.get_more(op, &request, &mut out).map(drop)
    };
    ends(&b, "awaitData of a capped collection", get_more);

    let feed = Arc::new(crate::changes::feed::Feed::default());
    let scope = crate::changes::scope::Scope::of("test", Some("c"), false);
    let store = &b.engine.store;
    ends(&b, "event of a change stream", |op| {
        let waits = Waits::alone(&scope, store.visible());
        feed.wait(store, &waits, op, Instant::now() + NEVER);
        op.check()
    });
    ends(&b, "entry of the oplog", |op| {
        store.wait_past(store.visible(), Instant::now() + NEVER, &**op)
    });
}
