//! Change streams at a router: one stream of each shard, merged.
//!
//! A router opens its part of a stream on every shard, whatever the client watches, since a collection may be divided
//! and a database made while it is watched; and one on the configuration, where it sees shards that are added. Events
//! are in the order of their times, and those of one time in the order of the shards' numbers. Tokens name both, so
//! any router can resume from any token: each shard knows on which side of its own events a token is (`Start` in
//! `muniment_exec::changes`).
//!
//! An event is given when all other parts have promised that nothing comes before it: each reply of a shard says so up
//! to a token. A shard to which nothing happens promises nothing new by itself, so it is asked to come to the cluster's
//! time (`_changesUpTo`): it commits an empty record, unless it has a later one, and wakes the streams that routers
//! have there. That takes a message there and back, and a sync.
//!
//! | file | what |
//! |---|---|
//! | `open`, `opening` | runs the command; opens the parts |
//! | `part` | one shard's part: its cursor, the getMore that waits there, its promise |
//! | `merged` | the merged stream, and the waiting for all parts at once on the client's own thread |
//! | `look_up` | `fullDocument: "updateLookup"` in divided collections |
//!
//! Invariants: no event is left out or given twice, be it that shards are added or that the client resumes elsewhere;
//! the token of a batch is never later than an event that is still to come.

mod look_up;
mod merged;
mod open;
mod opening;
mod part;

pub use open::open;
