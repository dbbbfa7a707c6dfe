//! The `errorLabels` of a failed command, by which drivers know what they may try again.

use super::{Caller, Early};
use crate::generic::Generic;
use crate::registry::CommandSpec;
use crate::transactions;
use muniment_exec::OpContext;
use muniment_value::{Code, Error, array};

/// Adds its labels to the error of a command that ran, or was about to run, as `op`.
pub fn labelled(
    caller: &Caller<'_>,
    spec: &CommandSpec,
    generic: &Generic<'_>,
    op: &OpContext,
    e: Error,
) -> Early {
    // A command that failed before it ran may have been about to open or continue a change stream.
    let of_stream = || (spec.is_change_stream)(caller.server, caller.request.body);
    let labels = match e.code() {
        _ if !op.is_of_change_stream() && !of_stream() => {
            transactions::labels(spec, generic, e.code())
        }
        Code::ChangeStreamFatalError | Code::ChangeStreamHistoryLost => {
            Some(array!["NonResumableChangeStreamError"])
        }
        code => transactions::is_resumable(code).then(|| array!["ResumableChangeStreamError"]),
    };
    Early::Failed(e, labels)
}
