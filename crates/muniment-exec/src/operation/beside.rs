//! An operation as seen by a second thread that works for it, such as the thread of its JavaScript
//! engine.

use super::OpContext;
use muniment_op::{Interrupt, Sleepers};
use muniment_value::{Code, Error, Result};
use std::sync::Weak;
use std::time::Instant;

/// The reference is weak: the operation keeps the engine alive, so the engine must not keep the
/// operation alive.
pub(super) struct Beside(pub Weak<OpContext>);

impl Interrupt for Beside {
    fn check(&self) -> Result<()> {
        match self.0.upgrade() {
            Some(op) => op.check(),
            None => Err(Error::new(Code::Interrupted, "operation was interrupted")),
        }
    }

    fn check_but_for(&self, code: Code) -> Result<()> {
        match self.0.upgrade() {
            Some(op) => op.check_but_for(code),
            None => self.check(),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        if let Some(op) = self.0.upgrade() {
            op.sleepers(show);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.0.upgrade()?.wakes_at()
    }
}
