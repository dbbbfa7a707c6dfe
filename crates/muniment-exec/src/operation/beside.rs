//! An operation as a thread knows it that works for it beside its own: that of its JavaScript engine.

use super::OpContext;
use muniment_op::{Interrupt, Sleepers};
use muniment_value::{Code, Error, Result};
use std::sync::Weak;
use std::time::Instant;

/// It does not keep the operation alive, which keeps the engine alive.
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
