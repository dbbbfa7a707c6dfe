//! The shared parts of the write commands: the limit of a batch, and the reply.

use crate::context::CommandContext;
use muniment_exec::BulkOutcome;
use muniment_value::{Code, Error, Result, doc};

/// The most statements that one command may have.
pub(super) const MAX_BATCH: usize = 100_000;

/// 16 InvalidLength unless a command may have this many statements.
pub(crate) fn check_batch(n: usize) -> Result<()> {
    if (1..=MAX_BATCH).contains(&n) {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidLength,
        format!("Write batch sizes must be between 1 and {MAX_BATCH}. Got {n} operations."),
    ))
}

/// Writes `n`, `upserted`, `nModified` and `writeErrors`, and notes the commit.
///
/// # Errors
/// An error that ends the command as a whole, whatever part of it is stored: an interrupt, or that
/// this member is no longer primary.
pub(super) fn report(
    cx: &mut CommandContext<'_>,
    outcome: &BulkOutcome,
    modified: bool,
) -> Result<()> {
    cx.note_commit(outcome.commit);
    if cx.args.bool("ordered", true)
        && let Some(e) = outcome.errors.first()
    {
        // Statements after the first error were not tried.
        cx.op_count = cx.op_count.map(|n| n.min(e.index as u64 + 1));
    }
    if let Some(e) = outcome.errors.iter().find(|e| e.error.fails_command()) {
        return Err(e.error.clone());
    }
    let w = &mut cx.reply;
    w.field("n", outcome.n as i32);
    if modified {
        if !outcome.upserted.is_empty() {
            w.open_array("upserted");
            for (index, id) in &outcome.upserted {
                w.item(doc! { "index": *index as i32, "_id": id });
            }
            w.close();
        }
        w.field("nModified", outcome.modified as i32);
    }
    if !outcome.errors.is_empty() {
        w.open_array("writeErrors");
        for e in &outcome.errors {
            w.item(e.to_doc());
        }
        w.close();
    }
    Ok(())
}
