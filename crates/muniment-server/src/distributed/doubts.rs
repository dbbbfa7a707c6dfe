//! What goes on by itself: a participant that hears nothing asks the coordinator, and a new primary of the
//! coordinator's set has its decisions resolved.

use super::messages::Asking;
use super::own::{durable, own_set};
use super::{coordinate, decisions, participant};
use crate::options::SetAddress;
use crate::state::ServerState;
use muniment_exec::{OpContext, OpStart};
use muniment_logger::{Severity, guarded, now_ms};
use muniment_op::Interrupt;
use muniment_storage::{PreparedTransaction, TransactionId};
use muniment_value::{Code, Result, doc};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked for something to do.
const EVERY: Duration = Duration::from_millis(250);
/// The first pause before something is taken up: most end by themselves before. It doubles with each attempt.
const FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(8);
/// How long one question may take, since others wait for their turn.
const ASKING: Duration = Duration::from_secs(5);
/// An abort that a participant has asked for is forgotten after this time.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// When something is next taken up, and after which pause.
type Waits = HashMap<TransactionId, (Instant, Duration)>;

/// Goes on until the server ends. On a server that holds no part of a cluster it returns at once.
pub fn keep(server: &Arc<ServerState>) {
    if !server.options.role.may_be_shard() {
        return;
    }
    let mut doubts = Doubts::default();
    while !server.lifecycle.wait_for_stop_for(EVERY) {
        doubts.turn(server);
    }
}

/// What was heard nothing of for a while.
#[derive(Default)]
pub(crate) struct Doubts {
    prepared: Waits,
    stored: Waits,
}

impl Doubts {
    /// Takes up what is due.
    pub(crate) fn turn(&mut self, server: &Arc<ServerState>) {
        if !server.is_writable() {
            *self = Doubts::default();
            return;
        }
        let op = server.engine.operations.begin(OpStart {
            command: "transactionCoordinator",
            ..OpStart::default()
        });
        if server.lifecycle.is_stopping() {
            op.kill(Code::InterruptedAtShutdown);
        }
        let done = guarded(|| {
            ask(server, &op, &mut self.prepared)?;
            go_on(server, &op, &mut self.stored)
        });
        if let Ok(Err(e)) = done
            && e.code() == Code::DataCorruptionDetected
        {
            server.log.log(
                Severity::Warning,
                "TXN",
                5_047_001,
                "transactionCoordinator",
                "Transactions over shards could not be taken up; will try again",
                Some(&doc! { "error": server.log.error(&e) }),
            );
        }
    }
}

/// Those of these whose turn it is. The others are forgotten.
fn due(waits: &mut Waits, all: impl Iterator<Item = TransactionId>) -> Vec<TransactionId> {
    let now = muniment_op::now();
    let mut next = Waits::new();
    let mut found = Vec::new();
    for id in all {
        let (at, pause) = waits.remove(&id).unwrap_or((now + FIRST, FIRST));
        let is_due = at <= now;
        next.insert(
            id,
            match is_due {
                true => (now + pause, (pause * 2).min(LONGEST)),
                false => (at, pause),
            },
        );
        found.extend(is_due.then_some(id));
    }
    *waits = next;
    found
}

/// Asks for the decisions on what is prepared here.
fn ask(server: &ServerState, op: &Arc<OpContext>, waits: &mut Waits) -> Result<()> {
    let all: HashMap<TransactionId, PreparedTransaction> = server
        .engine
        .store
        .prepared()
        .into_iter()
        .map(|p| (p.id, p))
        .collect();
    for id in due(waits, all.keys().copied()) {
        let Some(prepared) = all.get(&id) else {
            continue;
        };
        op.check()?;
        // A set that cannot be asked now is asked again.
        let _ = settle(server, op, prepared);
    }
    Ok(())
}

fn settle(server: &ServerState, op: &Arc<OpContext>, prepared: &PreparedTransaction) -> Result<()> {
    let id = prepared.id;
    let coordinator = SetAddress::parse(&prepared.coordinator, 27018)?;
    let decision = match coordinator.name == own_set(server)?.name {
        true => super::messages::decision_of(participant::decision(server, op, id)?.as_doc()),
        false => Asking {
            server,
            op,
            until: muniment_op::now() + ASKING,
            id,
        }
        .decision(&coordinator)?,
    };
    match decision {
        Some(decision) => participant::resolve(server, op, id, decision),
        None => Ok(()),
    }
}

/// Has the participants resolve what is decided.
fn go_on(server: &ServerState, op: &Arc<OpContext>, waits: &mut Waits) -> Result<()> {
    let all = decisions::all(server, op)?;
    if all.is_empty() {
        waits.clear();
        return Ok(());
    }
    let due = due(waits, all.iter().map(|stored| stored.id));
    for stored in all.into_iter().filter(|stored| due.contains(&stored.id)) {
        op.check()?;
        let Some(_running) = server.distributed.try_begin(stored.id) else {
            continue;
        };
        if stored.participants.is_empty() && now_ms() - stored.at_ms < KEPT_MS {
            continue;
        }
        durable(server, op)?;
        coordinate::resume(server, op, stored)?;
    }
    Ok(())
}
