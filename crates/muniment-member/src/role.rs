//! What a member of a set is at a time, as clients and other members are told.

/// What the member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No configuration yet.
    Startup,
    /// It takes writes.
    Primary,
    /// It follows.
    Secondary,
    /// It follows, and is in maintenance.
    Recovering,
    /// It copies another member's data.
    Startup2,
    /// It votes, and stores nothing.
    Arbiter,
    /// The configuration does not name this server.
    Removed,
}

impl Role {
    /// `myState` and its name.
    pub fn state(self) -> (i32, &'static str) {
        match self {
            Role::Startup => (0, "STARTUP"),
            Role::Primary => (1, "PRIMARY"),
            Role::Secondary => (2, "SECONDARY"),
            Role::Recovering => (3, "RECOVERING"),
            Role::Startup2 => (5, "STARTUP2"),
            Role::Arbiter => (7, "ARBITER"),
            Role::Removed => (10, "REMOVED"),
        }
    }

    /// The name of a state that another member reports.
    pub fn name_of(state: i32) -> &'static str {
        let all = [
            Role::Startup,
            Role::Primary,
            Role::Secondary,
            Role::Recovering,
            Role::Startup2,
            Role::Arbiter,
            Role::Removed,
        ];
        let found = all.iter().map(|r| r.state()).find(|(n, _)| *n == state);
        found.map_or("UNKNOWN", |(_, name)| name)
    }
}
