//! Asking the primary, on behalf of an operation of another member.

use crate::set::ReplicaSet;
use muniment_consensus::MemberId;
use muniment_exec::OpContext;
use muniment_op::{Interrupt, Sleepers, question};
use muniment_value::{Code, DocBuf, Error, Result};
use muniment_wire::{Connection, Stream};
use std::time::{Duration, Instant};

/// How long the primary may take for each step of letting us connect.
const CONNECTING: Duration = Duration::from_secs(5);

/// Has the primary run a command, and returns its reply, be it an error. Meanwhile the operation gives its
/// ticket to others. The primary has to answer `within` this time, if it is given.
///
/// # Errors
/// 10107 if nobody knows of a primary; 6 HostUnreachable and 9001 if it cannot be reached; 18 if one of the
/// two does not know the set's key; 11602 if it leads no more; 262 if it does not answer in time; what the
/// operation says while it waits.
pub fn ask_primary(
    set: &ReplicaSet,
    op: &OpContext,
    db: &str,
    command: DocBuf,
    within: Option<Duration>,
) -> Result<DocBuf> {
    let not_primary = || Error::new(Code::NotWritablePrimary, "not primary");
    let member = set.member();
    let leader = member.leader;
    let other = leader.filter(|leader| *leader != member.id);
    let host = set.host_of(&member, other).ok_or_else(not_primary)?;
    let asking = Asking {
        set,
        op,
        leader,
        until: within.map(|time| Instant::now() + time),
    };
    op.without_ticket(|| {
        let c = set.caller().call(host, CONNECTING)?;
        ask(c, db, command, &asking)
    })?
}

/// An operation that waits for what the primary does, while that one leads.
pub struct Asking<'a> {
    /// The set.
    pub set: &'a ReplicaSet,
    /// The operation.
    pub op: &'a OpContext,
    /// The primary that was asked.
    pub leader: Option<MemberId>,
    /// When the wait ends at the latest.
    pub until: Option<Instant>,
}

impl Interrupt for Asking<'_> {
    fn check(&self) -> Result<()> {
        self.op.check()?;
        if self.set.member().leader != self.leader {
            return Err(changed());
        }
        match self.until.is_some_and(|until| Instant::now() >= until) {
            true => Err(Error::new(
                Code::ExceededTimeLimit,
                "the primary has not answered in time",
            )),
            false => Ok(()),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.op.sleepers(show);
        show(&self.set.watchers);
    }

    fn wakes_at(&self) -> Option<Instant> {
        let both = [self.op.wakes_at(), self.until];
        both.into_iter().flatten().min()
    }
}

/// 11602.
fn changed() -> Error {
    Error::new(
        Code::InterruptedDueToReplStateChange,
        "the primary that was asked is none any more",
    )
}

/// Sends the command from a thread of its own, so that the thread that waits for the answer can be
/// interrupted.
fn ask(mut c: Connection, db: &str, command: DocBuf, asking: &Asking<'_>) -> Result<DocBuf> {
    c.set_timeout(None)?;
    let socket: Stream = c.stream().try_clone()?;
    let (teller, answer) = question();
    let db = db.to_string();
    std::thread::Builder::new()
        .name("forward".to_string())
        .stack_size(1 << 20)
        .spawn(move || {
            teller.tell(c.command_raw(&db, &command));
        })?;
    match answer.wait(asking) {
        Ok(Some(reply)) => reply,
        Ok(None) => Err(Error::internal(
            "the thread that asks the primary has ended",
        )),
        Err(e) => {
            // The primary ends a command whose connection was closed.
            let _ = socket.shutdown();
            Err(e)
        }
    }
}
