//! Which commands may run in a transaction, and which of its errors a driver may try again after.

use super::elsewhere::is_mongodbs;
use crate::context::{CommandContext, Request};
use crate::generic::Generic;
use crate::namespace;
use crate::registry::{CommandSpec, Names, Statements};
use muniment_value::{ArrayBuf, Code, Error, Result, array};

/// Whether the driver may run the whole transaction again after this error.
pub fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::WriteConflict
            | Code::LockTimeout
            | Code::SnapshotUnavailable
            | Code::SnapshotTooOld
            | Code::NoSuchTransaction
            | Code::PreparedTransactionInProgress
    )
}

/// Whether a driver may send a retryable write, a commit or an abort again after this error.
pub fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::InterruptedAtShutdown
            | Code::InterruptedDueToReplStateChange
            | Code::NotWritablePrimary
            | Code::NotPrimaryNoSecondaryOk
            | Code::NotPrimaryOrSecondary
            | Code::PrimarySteppedDown
            | Code::ShutdownInProgress
            | Code::HostNotFound
            | Code::HostUnreachable
            | Code::NetworkTimeout
            | Code::SocketException
            | Code::ExceededTimeLimit
    )
}

/// Whether a driver may reopen a change stream where it ended, after this error.
pub fn is_resumable(code: Code) -> bool {
    is_retryable(code)
        || matches!(
            code,
            Code::CursorNotFound
                | Code(63)
                | Code::FailedToSatisfyReadPreference
                | Code::StaleEpoch
                | Code::RetryChangeStream
                | Code::StaleConfig
        )
}

/// Whether the same command may be sent again: a retryable write, or the end of a transaction.
fn may_be_sent_again(spec: &CommandSpec, generic: &Generic<'_>) -> bool {
    generic.txn_number.is_some() && (!generic.in_transaction() || ends(spec))
}

/// The `errorLabels` of a command's error, by which drivers know what they may try again.
pub fn labels(spec: &CommandSpec, generic: &Generic<'_>, code: Code) -> Option<ArrayBuf> {
    if may_be_sent_again(spec, generic) && is_retryable(code) {
        return Some(array!["RetryableWriteError"]);
    }
    let again = generic.in_transaction() && (is_transient(code) || is_retryable(code));
    again.then(|| array!["TransientTransactionError"])
}

/// True for the commands that end a transaction.
pub fn ends(spec: &CommandSpec) -> bool {
    spec.ends_transaction.is_some()
}

/// The labels for the error of a write concern, whose command has done its work.
pub fn labels_of_concern(
    spec: &CommandSpec,
    generic: &Generic<'_>,
    code: Code,
) -> Option<ArrayBuf> {
    let again = may_be_sent_again(spec, generic) && is_retryable(code);
    again.then(|| array!["RetryableWriteError"])
}

/// 125 CommandFailed: a command that ends a transaction was sent outside of one.
pub fn not_in_transaction(command: &str) -> Error {
    Error::new(
        Code::CommandFailed,
        format!("{command} must be run within a transaction"),
    )
}

fn refused(message: String) -> Result<()> {
    Err(Error::new(
        Code::OperationNotSupportedInTransaction,
        message,
    ))
}

fn cannot_run(name: &str) -> Result<()> {
    refused(format!(
        "Cannot run '{name}' in a multi-document transaction."
    ))
}

/// Refuses an unknown command that has no place in a transaction.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction.
pub fn check_unknown(request: &Request<'_>) -> Result<()> {
    if request.body.get("autocommit").is_some() && is_mongodbs(request.name) {
        return cannot_run(request.name);
    }
    Ok(())
}

/// Refuses a command that never runs in transactions. This is checked before anything else about the command.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction.
pub fn check_command(spec: &CommandSpec, generic: &Generic<'_>) -> Result<()> {
    if !generic.in_transaction() || spec.in_transactions {
        return Ok(());
    }
    if !spec.instead_in_transactions.is_empty() {
        return refused(format!(
            "Cannot run '{}' in a multi-document transaction. {}",
            spec.name, spec.instead_in_transactions
        ));
    }
    cannot_run(spec.name)
}

/// Refuses a transaction's write to one of MongoDB's own collections. This is checked when the statement
/// runs, so that the error ends the transaction.
///
/// # Errors
/// 50791; for findAndModify 50781.
pub fn check_write(cx: &CommandContext<'_>, namespace: &str) -> Result<()> {
    let collection = namespace.split_once('.').map_or("", |(_, name)| name);
    let system = collection.starts_with("system.") && !collection.starts_with("system.buckets.");
    if !cx.generic.in_transaction() || !system {
        return Ok(());
    }
    let code = match cx.spec.statements {
        Statements::One => 50781,
        _ => 50791,
    };
    Err(Error::location(
        code,
        format!("Cannot write to system collection {namespace} within a transaction."),
    ))
}

/// Checks the arguments of a command that may run in transactions. `of_config`: the server holds a cluster's
/// configuration, which routers change by transactions on the database `config`.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction; 72 InvalidOptions for its concerns.
pub fn check<'r>(
    of_config: bool,
    spec: &CommandSpec,
    generic: &Generic<'_>,
    namespace: &'r str,
    request: &Request<'r>,
) -> Result<()> {
    let starts = generic.start_transaction.is_some();
    let db = namespace.split_once('.').map_or(namespace, |(db, _)| db);
    // The commands that end a transaction, and bulkWrite, run in "admin", which is not what they write to.
    // bulkWrite names its namespaces, and its cursor belongs to "admin", too.
    let own = (!spec.admin_only && namespace != namespace::OF_BULK_WRITE).then_some(db);
    let also = || {
        let named = (spec.names == Names::NsInfo).then(|| request.documents("nsInfo"));
        named.into_iter().flatten().filter_map(|d| d.get_str("ns"))
    };
    let of = |ns: &'r str| ns.split_once('.').map_or(ns, |(db, _)| db);
    let mut databases = own.into_iter().chain(also().map(of));
    let barred = |db: &&str| match *db {
        "admin" | "local" => true,
        "config" => !of_config,
        _ => false,
    };
    if let Some(db) = databases.find(barred) {
        return Err(namespace::not_in_transaction(db));
    }
    let mut names = std::iter::once(namespace).chain(also());
    let barred = names.find(|ns| {
        let collection = ns.split_once('.').map_or("", |(_, name)| name);
        matches!(collection, "system.profile" | "system.views")
    });
    if let Some(ns) = barred {
        return refused(format!(
            "Cannot run command against the '{ns}' collection in a transaction."
        ));
    }
    match starts.then(|| cannot_start(spec.name)).flatten() {
        Some(message) => refused(message.into()),
        None => check_concerns(spec, generic),
    }
}

/// Why a command cannot be the first of a transaction, if it cannot.
fn cannot_start(name: &str) -> Option<&'static str> {
    Some(match name {
        "killCursors" => {
            "Cannot run killCursors as the first operation in a multi-document transaction."
        }
        "commitTransaction" => "Cannot start a transaction with a commit",
        "abortTransaction" => "Cannot start a transaction with an abort",
        _ => return None,
    })
}

/// Checks the concerns of a command in a transaction.
///
/// # Errors
/// 72 InvalidOptions.
fn check_concerns(spec: &CommandSpec, generic: &Generic<'_>) -> Result<()> {
    let invalid = |message: &str| Err(Error::new(Code::InvalidOptions, message));
    if generic.write_concern.is_some() && !ends(spec) {
        return invalid("writeConcern is not allowed within a multi-statement transaction");
    }
    if let Some(concern) = generic.read_concern {
        if generic.start_transaction.is_none() {
            return invalid("Only the first command in a transaction may specify a readConcern");
        }
        if !matches!(
            concern.get_str("level"),
            None | Some("local" | "majority" | "snapshot")
        ) {
            return invalid(
                "The readConcern level must be either 'local' (default), 'majority' or \
                 'snapshot' in order to run in a transaction",
            );
        }
    }
    Ok(())
}
