//! What a run came to.

use super::seeds::Counted;

/// What a run came to.
#[derive(Debug, Default, Clone, Copy)]
pub struct Course {
    pub elections: u64,
    pub committed: u64,
    pub acknowledged: u64,
    pub given_up: u64,
    pub crashes: u64,
    pub falls: u64,
    pub retries: u64,
    pub restarts: u64,
    pub reads: u64,
    pub flushes: u64,
    pub configs: u64,
    pub steps: u64,
    pub disk_faults: u64,
    /// Looks at a member that gathers records for one that is far away.
    pub gathering: u64,
    /// Looks at a member that gathers records for a sync.
    pub unsynced: u64,
    /// Commands that a grammar drew.
    pub drawn: u64,
    /// Members that lost their disks.
    pub emptied: u64,
    /// Members that were filled.
    pub filled: u64,
    /// Members that were locked.
    pub locked: u64,
    /// Those that had set something aside when the lock ended.
    pub set_aside: u64,
    /// Copies of their directories.
    pub copied: u64,
    /// A sum of all that happened.
    pub trace: u64,
}

impl Course {}

impl Counted for Course {
    fn add(&mut self, c: &Course) {
        self.elections += c.elections;
        self.committed += c.committed;
        self.acknowledged += c.acknowledged;
        self.given_up += c.given_up;
        self.crashes += c.crashes;
        self.falls += c.falls;
        self.retries += c.retries;
        self.restarts += c.restarts;
        self.reads += c.reads;
        self.flushes += c.flushes;
        self.configs += c.configs;
        self.disk_faults += c.disk_faults;
        self.gathering += c.gathering;
        self.unsynced += c.unsynced;
        self.drawn += c.drawn;
        self.emptied += c.emptied;
        self.filled += c.filled;
        self.locked += c.locked;
        self.set_aside += c.set_aside;
        self.copied += c.copied;
        self.steps += c.steps;
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("elections", self.elections),
            ("committed", self.committed),
            ("acknowledged", self.acknowledged),
            ("given up", self.given_up),
            ("crashes", self.crashes),
            ("falls", self.falls),
            ("retries", self.retries),
            ("restarts", self.restarts),
            ("reads", self.reads),
            ("flushes", self.flushes),
            ("configs", self.configs),
            ("disk faults", self.disk_faults),
            ("gathering", self.gathering),
            ("unsynced", self.unsynced),
            ("drawn", self.drawn),
            ("emptied", self.emptied),
            ("filled", self.filled),
            ("locked", self.locked),
            ("set aside", self.set_aside),
            ("copied", self.copied),
        ]
    }
}
