//! Writes for moves of ranges between shards.

/// What a unit does for the move of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// It writes documents of the range that arrives.
    In,
    /// It deletes rows that are not owned.
    Out,
    /// It writes documents of a collection that is to take the place of another one, where they are already.
    Copy,
}
