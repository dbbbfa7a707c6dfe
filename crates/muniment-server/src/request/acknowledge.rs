//! The fourth step: waiting until what was written is acknowledged as the write concern asks.

use crate::context::CommandContext;
use crate::registry::{Kind, Names};
use crate::replica_set;
use crate::settings;
use muniment_member::KeptBack;
use muniment_value::{Code, Doc, DocBuf, Error, Result, doc};

/// The outcome of a command, as the client is told it.
pub struct Told {
    /// The result of the command. An error carries the write concern's error, too.
    pub result: Result<()>,
    /// The `writeConcernError` of a command that succeeded.
    pub concern: Option<DocBuf>,
}

/// Waits until the write is acknowledged as the command's write concern asks.
///
/// A failed command may have written a part of its batch, or it failed because its change had already been
/// made. The client relies on that state, so its write concern is awaited in these cases, too. A write
/// concern that cannot be satisfied is then reported beside the error. `kept_back` has the command's
/// record, if the other members are not sent it yet.
pub fn acknowledge(
    cx: &CommandContext<'_>,
    result: Result<()>,
    kept_back: Option<&KeptBack<'_>>,
) -> Told {
    let relied_on = match &result {
        Ok(()) => true,
        Err(e) => cx.commit.is_some() || cx.spec.kind == Kind::Ddl && is_done_already(e),
    };
    let (result, concern) = match relied_on.then(|| replica_set::acknowledge(cx, kept_back)) {
        Some(Ok(concern)) => (result, concern),
        Some(Err(e)) => (Err(e), None),
        None => (result, None),
    };
    let e = match result {
        Ok(()) => {
            return Told {
                result: Ok(()),
                concern,
            };
        }
        Err(e) => e,
    };
    let beside = concern.or_else(|| replica_set::write_concern_error(cx));
    let e = match beside {
        Some(concern) => e.with_extra(doc! { "writeConcernError": concern }),
        None => e,
    };
    // The code is changed before labels are chosen, because labels follow from the code that the client sees.
    let e = match cx.op.reads_newest() {
        true => e,
        false => unavailable(e),
    };
    Told {
        result: Err(e),
        concern: None,
    }
}

/// Whether a change of the catalog failed because it had already been made: the collection exists already, or
/// is already gone.
fn is_done_already(e: &Error) -> bool {
    matches!(
        e.code(),
        Code::NamespaceExists | Code::NamespaceNotFound | Code::IndexNotFound
    )
}

/// Turns the error of a read in the past, whose plan needs a collection or an index that its view does not
/// have, into SnapshotUnavailable, as in MongoDB.
fn unavailable(e: Error) -> Error {
    match e.code() {
        Code::QueryPlanKilled => Error::new(
            Code::SnapshotUnavailable,
            format!("Unable to read from a snapshot: {}", e.message()),
        ),
        _ => e,
    }
}

/// Puts in force at once what a client has written into the collections of settings, as MongoDB does.
pub fn take_settings(cx: &CommandContext<'_>) {
    if writes_to(cx, settings::DB) {
        settings::take_for_client(cx.server);
    }
}

/// Whether a command may have written to a database.
fn writes_to(cx: &CommandContext<'_>, db: &str) -> bool {
    let of = |ns: &str| ns.split_once('.').is_some_and(|(of, _)| of == db);
    let named = |d: Doc<'_>| d.get_str("ns").is_some_and(of);
    match (cx.spec.names, cx.spec.kind) {
        (Names::Elsewhere, _) => true,
        (Names::NsInfo, _) => cx.request.documents("nsInfo").any(named),
        (Names::Target, Kind::Write | Kind::Ddl) => cx.request.db == db,
        (Names::Target, _) => false,
    }
}
