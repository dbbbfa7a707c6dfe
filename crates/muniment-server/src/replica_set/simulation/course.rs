//! What a run came to.

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
    /// A sum of all that happened.
    pub trace: u64,
}

impl Course {
    /// What has to happen in some seed.
    pub fn figures(&self) -> [(&'static str, u64); 14] {
        [
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
        ]
    }

    pub fn add(&mut self, c: &Course) {
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
        self.steps += c.steps;
    }
}
