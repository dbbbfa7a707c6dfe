//! Writing what a donor tells, in commits of a fair size.

use muniment_exec::OpContext;
use muniment_op::Interrupt;
use muniment_storage::{Staged, WriteUnit};
use muniment_value::Result;

/// Bytes that are written in one commit, about.
const COMMIT: usize = 1 << 20;

/// Stages a change, after committing what is staged if that is much or in the way; `open` opens the next unit.
///
/// # Errors
/// Those of the change and of writing.
pub(super) fn stage<'s, T>(
    mut unit: WriteUnit<'s>,
    open: impl Fn() -> Result<WriteUnit<'s>>,
    op: &OpContext,
    mut change: impl FnMut(&mut WriteUnit<'s>) -> Staged<T>,
) -> Result<(WriteUnit<'s>, T)> {
    loop {
        let staged = change(&mut unit)?;
        if staged.is_err() || unit.staged_bytes() >= COMMIT || unit.is_pressed() {
            unit.commit()?;
            op.check()?;
            unit = open()?;
        }
        if let Ok(done) = staged {
            return Ok((unit, done));
        }
    }
}
