//! Compactions in pieces: how a disk that is nearly full gets room again.
//!
//! A compaction that has no room for all that it writes is cut by key: what it has written of the keys
//! before some key takes the place of these keys in the tables that it reads, in one step of the
//! manifest, and then it goes on. Tables that it is through with go; of the others only the keys from
//! there on are left ([`Table::starting_at`]), and what their files have before is given back to the disk. So
//! it needs room for a piece, and each piece leaves at least as much as it took.
//!
//! The order is what makes it safe. A piece's tables and their names are durable before the manifest
//! names them; the manifest is durable before readers get the new state; and the fronts of files are
//! given back when nobody has the old one any more, while nobody holds the files ([`still`]). A crash in
//! between leaves either manifest, and all that it needs.
//!
//! [`still`]: super::still

use super::compact::Claimed;
use super::error::io;
use super::pick::Job;
use super::shared::{Claim, Edit, Shared};
use super::table::Table;
use muniment_io::Space;
use muniment_op::Interrupt;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a compaction waits for room that its last piece left and that readers still hold.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

impl Shared {
    /// The room there is beside what these jobs may write.
    pub(crate) fn space_beside<'a>(&self, jobs: impl Iterator<Item = &'a Claim>) -> Result<Space> {
        let dir = &self.options.dir;
        let space = self.options.disk.space(dir);
        let space = space.map_err(|e| io("asking for the space of", dir, &e))?;
        Ok(Space {
            free: space.free.saturating_sub(jobs.map(|c| c.bytes).sum()),
            ..space
        })
    }

    /// May a job write `bytes` where so many are free? One that would run into the end of the disk
    /// would have written for nothing, and taken the space of a flush.
    pub(crate) fn check_space(&self, bytes: u64, free: u64) -> Result<()> {
        if bytes <= free {
            return Ok(());
        }
        // In whole megabytes, so that the same cause has the same words for a while.
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

    /// Puts tables in place of what a job has read: of all of it, or of the keys before `key`.
    /// `names`: see [`Edit::names`]. When it fails nothing has changed, and the tables are thrown away.
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
            self.purge();
            self.trash.empty();
        }
        Ok(())
    }

    /// What is left of a job's tables from `key` on; notes what changes.
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

    /// Bytes of a job's next piece. Waits a moment for room that readers hold.
    ///
    /// # Errors
    /// 14031 if there is none; what `interrupt` says.
    pub(crate) fn next_piece(
        &self,
        claimed: &Claimed<'_>,
        interrupt: &dyn Interrupt,
    ) -> Result<u64> {
        let start = Instant::now();
        loop {
            let space = {
                let claims = self.claims.lock();
                self.space_beside(claims.iter().filter(|c| c.number != claimed.number))?
            };
            let enough = self.check_space(2 * self.options.least_piece(), space.free);
            let Err(e) = enough else {
                return Ok(self.options.piece(space));
            };
            interrupt.check()?;
            // Without threads nobody holds anything for a moment.
            let patient = self.options.background && !self.still.is_wanted();
            if !patient || start.elapsed() > PATIENCE {
                return Err(e);
            }
            self.wait(LOOK, || false);
            self.purge();
            self.trash.empty();
        }
    }
}
