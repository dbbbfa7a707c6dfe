//! What a shard owns of a sharded collection: a unit stores no other documents.
//!
//! The unit shares the collection, so its placement cannot change before the unit's commit.

use super::WriteUnit;
use crate::placement::stale;
use muniment_value::{Code, Doc, Error, Result};

impl WriteUnit<'_> {
    /// Refuses a document that this shard does not own.
    ///
    /// # Errors
    /// 13388 StaleConfig; 61 ShardKeyNotFound if there is an array on the path of a field of the shard key.
    pub(super) fn must_own(&mut self, doc: &[u8]) -> Result<()> {
        let Some(placement) = &self.placement else {
            return Ok(());
        };
        match placement.owns_doc(Doc::new(doc), &mut self.key)? {
            true => Ok(()),
            false => Err(stale(
                &self.collection.namespace(),
                Some((self.collection.uuid(), placement)),
                "the document belongs to another shard",
            )),
        }
    }

    /// Refuses an update after which the document would belong to another shard. `touched(path)` false promises that
    /// the values at the path are the same.
    ///
    /// # Errors
    /// Those of [`WriteUnit::must_own`]; 283 WouldChangeOwningShard.
    pub(super) fn must_keep(
        &mut self,
        old: &[u8],
        new: &[u8],
        touched: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let Some(placement) = &self.placement else {
            return Ok(());
        };
        let mut fields = placement.key.fields().iter();
        let keeps_key = !fields.any(|f| touched(f.path.as_str()));
        self.must_own(old)?;
        if keeps_key {
            return Ok(());
        }
        self.must_own(new).map_err(|e| match e.code() {
            Code::StaleConfig => Error::new(
                Code::WouldChangeOwningShard,
                "after the update the document would belong to another shard",
            ),
            _ => e,
        })
    }
}
