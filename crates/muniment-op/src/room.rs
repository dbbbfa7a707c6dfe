//! Waiting for room in the ledger.

use crate::interrupt::Interrupt;
use crate::ledger::{Ledger, Refused};
use muniment_value::Result;
use std::time::Instant;

impl Ledger {
    /// Waits until `hold` is not refused any more. It is called at once and whenever there may be room.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit if there was no room by `until`; the error of `on`.
    pub fn wait_for_room(
        &self,
        on: &dyn Interrupt,
        until: Instant,
        mut hold: impl FnMut() -> std::result::Result<(), Refused>,
    ) -> Result<()> {
        let Err(refused) = hold() else {
            return Ok(());
        };
        let mut last = refused;
        let ready = || hold().map_err(|refused| last = refused).ok();
        match self.freed.wait_for_until(refused, on, until, ready)? {
            Some(()) => Ok(()),
            None => Err(last.into()),
        }
    }
}
