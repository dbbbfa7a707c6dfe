//! Compactions in pieces, which free room on a disk that is nearly full.
//!
//! A compaction that has no room for all of its output is cut by key. After it has written the versions of
//! all keys below some key, this output takes the place of these keys in the input tables, in one step of the
//! manifest. Then the compaction continues. Input tables that are consumed are removed; the others keep only
//! the keys from there on ([`Table::starting_at`]), and the front of their files is given back to the disk.
//! So the compaction only needs room for a piece, and each piece frees at least as much as it took.
//!
//! The order makes this safe. The tables of a piece and their names are durable before the manifest names
//! them; the manifest is durable before readers get the new state; and the fronts of files are given back
//! when no reader has the old state any more and the files are not held ([`still`]). A crash in between
//! leaves one of the two manifests, with everything that it needs.
//!
//! [`still`]: super::still

use super::compact::Claimed;
use super::error::io;
use super::flush::Open;
use super::idle::For;
use super::pick::Job;
use super::shared::{Claim, Edit, Shared};
use super::table::Table;
use muniment_io::Space;
use muniment_op::Interrupt;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a compaction waits for room that its last piece has freed and that readers still hold.
const PATIENCE: Duration = Duration::from_secs(2);

impl Shared {
    /// The room on the disk, without what these jobs may still write.
    pub(crate) fn space_beside<'a>(&self, jobs: impl Iterator<Item = &'a Claim>) -> Result<Space> {
        let dir = &self.options.dir;
        let space = self.options.disk.space(dir);
        let space = space.map_err(|e| io("asking for the space of", dir, &e))?;
        Ok(Space {
            free: space.free.saturating_sub(jobs.map(|c| c.bytes).sum()),
            ..space
        })
    }

    /// Checks whether a job may write `bytes` when `free` bytes are free. A job that ran into the end of the
    /// disk would have written in vain, and taken the room of a flush.
    pub(crate) fn check_space(&self, bytes: u64, free: u64) -> Result<()> {
        if bytes <= free {
            return Ok(());
        }
        // Whole megabytes keep the text of an error the same for a while.
        Err(Error::new(
            Code::OutOfDiskSpace,
            format!(
                "out of disk space in {}: a compaction needs {} MB, and {} MB are free for it",
                self.options.dir.display(),
                bytes.div_ceil(1 << 20),
                free >> 20
            ),
        ))
    }

    /// Replaces the input that a job has read by tables: all of it, or the keys before `key`. For `names` see
    /// [`Edit::names`]. If it fails, nothing has changed and the tables are removed.
    pub(crate) fn put_in_place(
        &self,
        job: &mut Job,
        add: Vec<Arc<Table>>,
        names: u64,
        key: Option<&[u8]>,
    ) -> Result<()> {
        let mut edit = Edit {
            level: job.output,
            names: (!add.is_empty()).then_some(names),
            add: add.clone(),
            ..Edit::default()
        };
        let changed = Self::rest(&job.inputs, key, &mut edit)
            .and_then(|rest| self.commit(edit).map(|()| rest))
            .inspect_err(|_| add.iter().for_each(|table| table.condemn()));
        let rest = changed?;
        self.failures.forget(job.tables());
        job.inputs = rest;
        self.dropped.forget(&self.state(), self.persisted());
        if key.is_some() {
            self.trash.empty();
        }
        Ok(())
    }

    /// The rest of a job's tables from `key` on. Notes the changes in `edit`.
    fn rest(
        inputs: &[Vec<Arc<Table>>],
        key: Option<&[u8]>,
        edit: &mut Edit,
    ) -> Result<Vec<Vec<Arc<Table>>>> {
        let mut rest = Vec::with_capacity(inputs.len());
        for run in inputs {
            let mut left = Vec::with_capacity(run.len());
            for table in run {
                match key.filter(|key| *key <= table.last()) {
                    None => edit.remove.push(table.clone()),
                    Some(key) if key <= table.first() => left.push(table.clone()),
                    Some(key) => {
                        let part = Arc::new(table.starting_at(key)?);
                        edit.narrow.push(part.clone());
                        left.push(part);
                    }
                }
            }
            rest.push(left);
        }
        Ok(rest)
    }

    /// The size of a job's next piece. Waits a moment for room that readers hold.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace if there is no room; those of `interrupt`.
    pub(crate) fn next_piece(
        &self,
        claimed: &Claimed<'_>,
        interrupt: &dyn Interrupt,
    ) -> Result<u64> {
        // Without threads no reader can let go of anything meanwhile.
        let patience = match self.options.background {
            true => PATIENCE,
            false => Duration::ZERO,
        };
        self.room_for_piece(claimed.number, Instant::now() + patience, interrupt)
    }

    /// The size of the next piece of the job with this number, if there is room for it by `until`. Does not
    /// wait while the files are to stand still.
    ///
    /// The thread is called when a reader or another job has let go of a file, when a file was removed, when
    /// another job ends, which gives back the room that it has claimed, and when the files are to stand still.
    pub(crate) fn room_for_piece(
        &self,
        number: u64,
        until: Instant,
        interrupt: &dyn Interrupt,
    ) -> Result<u64> {
        let open = Open {
            shared: self,
            interrupt,
        };
        let mut none = None;
        let look = || {
            self.trash.empty();
            let found = self.piece_beside(number);
            match found {
                Err(e) if e.code() == Code::OutOfDiskSpace && !self.still.is_wanted() => {
                    none = Some(e);
                    None
                }
                found => Some(found),
            }
        };
        match self.idle.wait_for_until(For::Room, &open, until, look)? {
            Some(found) => found,
            None => Err(none.unwrap_or_else(|| Error::internal("there was no room"))),
        }
    }

    /// The size of the next piece of the job with this number, if there is room for it now.
    fn piece_beside(&self, number: u64) -> Result<u64> {
        let space = {
            let claims = self.claims.lock();
            self.space_beside(claims.iter().filter(|c| c.number != number))?
        };
        self.check_space(2 * self.options.least_piece(), space.free)?;
        Ok(self.options.piece(space))
    }
}
