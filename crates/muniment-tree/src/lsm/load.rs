//! Fills an empty engine with rows that come in the order of their keys. They are written straight into
//! tables of one level, without a memtable and without a later merge.

use super::LsmTrees;
use super::flush::Open;
use super::options::LsmOptions;
use super::output::Output;
use super::shared::{Edit, Shared};
use super::state::{DEPTH, Run, State};
use super::table::internal_key;
use crate::trees::TreeId;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::NeverInterrupted;
use muniment_value::{Error, Result};

/// A row: its tree, key and value.
pub type Row = (TreeId, Bytes, Bytes);

impl LsmTrees {
    /// Writes the rows that `next` returns, each as if it had been put at `at`, and makes them durable. Trees
    /// must ascend, and so must the keys in each. The persisted cut does not change: the caller then puts the
    /// missing rows and seals at `at`. At least one row must be among them, whose absence shows that a crash
    /// came before.
    ///
    /// # Errors
    /// If the engine is not empty, or the rows are not in order; those of `next`; 14031 OutOfDiskSpace; I/O
    /// errors. Nothing was written then.
    pub fn load(&self, at: Timestamp, next: &mut dyn FnMut() -> Result<Option<Row>>) -> Result<()> {
        self.shared.fill(at, next)
    }
}

impl Shared {
    fn fill(&self, at: Timestamp, next: &mut dyn FnMut() -> Result<Option<Row>>) -> Result<()> {
        let open = Open {
            shared: self,
            interrupt: &NeverInterrupted,
        };
        let _working = self.still.work(&open)?;
        if !is_empty(&self.state()) {
            return Err(Error::internal("only an empty engine can be loaded"));
        }
        let names = self.names();
        let mut output = Output::new(self, DEPTH, Run::default(), Vec::new(), &self.flushed);
        let mut last: Option<Vec<u8>> = None;
        while let Some((tree, key, value)) = next()? {
            let key = internal_key(tree, &key);
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(Error::internal(format!(
                    "the rows to be loaded are not in order: {key:02x?}"
                )));
            }
            output.add(&key, at, Some(&value))?;
            last = Some(key);
        }
        let add = output.finish()?;
        if add.is_empty() {
            return Ok(());
        }
        let bytes = add.iter().map(|table| table.len()).sum();
        let edit = Edit {
            names: Some(names),
            level: level(&self.options, bytes),
            add: add.clone(),
            ..Edit::default()
        };
        self.commit(edit).inspect_err(|_| {
            for table in &add {
                table.condemn();
            }
        })
    }
}

/// The first level that may hold this many bytes.
fn level(options: &LsmOptions, bytes: u64) -> usize {
    let fits = |level: &usize| options.capacity(*level) >= bytes;
    (1..=DEPTH).find(fits).unwrap_or(DEPTH)
}

fn is_empty(state: &State) -> bool {
    state.active.is_empty() && state.sealed.is_empty() && state.levels.tables().next().is_none()
}
