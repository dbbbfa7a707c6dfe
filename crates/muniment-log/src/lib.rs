//! The one log. It is the journal, and will be the oplog and the raft log.
//!
//! Must not know trees, BSON or commands: a payload is bytes.
