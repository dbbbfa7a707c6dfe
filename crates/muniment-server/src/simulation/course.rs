//! What a run came to.

use crate::replica_set::simulation::seeds::Counted;

/// What a run came to.
#[derive(Debug, Default, Clone, Copy)]
pub struct Course {
    pub steps: u64,
    pub messages: u64,
    /// Messages that have come to a cut link.
    pub held_up: u64,
    pub crashes: u64,
    /// Crashes in the middle of something.
    pub falls: u64,
    pub restarts: u64,
    /// Members of sets of several that came to lead.
    pub elections: u64,
    /// Members that gave up records.
    pub rollbacks: u64,
    /// Primaries that were told to step down.
    pub stepdowns: u64,
    /// Routers that were killed.
    pub killed: u64,
    pub cuts: u64,
    /// Faults that were aimed at the messages of a move.
    pub aimed: u64,
    pub writes: u64,
    pub retries: u64,
    pub many: u64,
    pub scans: u64,
    pub reads: u64,
    pub counts: u64,
    /// Transactions whose outcome was told.
    pub transfers: u64,
    pub audits: u64,
    /// Moves that have succeeded.
    pub moves: u64,
    /// Moves that have failed.
    pub failed_moves: u64,
    /// Changes of the catalog.
    pub changes: u64,
    /// Changes of the catalog that have failed.
    pub failed_changes: u64,
    /// A sum of all that happened.
    pub trace: u64,
}

impl Course {
    /// Notes that something happens at a time.
    pub fn note(&mut self, at: u64, what: &[u8]) {
        for byte in at.to_le_bytes().iter().chain(what) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Counted for Course {
    fn add(&mut self, c: &Course) {
        self.steps += c.steps;
        self.messages += c.messages;
        self.held_up += c.held_up;
        self.crashes += c.crashes;
        self.falls += c.falls;
        self.restarts += c.restarts;
        self.elections += c.elections;
        self.rollbacks += c.rollbacks;
        self.stepdowns += c.stepdowns;
        self.killed += c.killed;
        self.cuts += c.cuts;
        self.aimed += c.aimed;
        self.writes += c.writes;
        self.retries += c.retries;
        self.many += c.many;
        self.scans += c.scans;
        self.reads += c.reads;
        self.counts += c.counts;
        self.transfers += c.transfers;
        self.audits += c.audits;
        self.moves += c.moves;
        self.failed_moves += c.failed_moves;
        self.changes += c.changes;
        self.failed_changes += c.failed_changes;
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("steps", self.steps),
            ("messages", self.messages),
            ("messages held up", self.held_up),
            ("crashes", self.crashes),
            ("falls", self.falls),
            ("restarts", self.restarts),
            ("elections", self.elections),
            ("rollbacks", self.rollbacks),
            ("stepdowns", self.stepdowns),
            ("killed routers", self.killed),
            ("cuts", self.cuts),
            ("aimed faults", self.aimed),
            ("writes", self.writes),
            ("retries", self.retries),
            ("writes of many documents", self.many),
            ("scans", self.scans),
            ("reads", self.reads),
            ("counts", self.counts),
            ("transfers", self.transfers),
            ("audits", self.audits),
            ("moves", self.moves),
            ("failed moves", self.failed_moves),
            ("changes of the catalog", self.changes),
            ("failed changes of the catalog", self.failed_changes),
        ]
    }
}
