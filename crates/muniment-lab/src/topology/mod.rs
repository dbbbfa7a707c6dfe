//! Replica sets that the lab starts itself: members as processes of this executable, relays between
//! them, and what such a set can do at best.
//!
//! | module | what |
//! |---|---|
//! | [`shape`] | where the members are, the configuration document, which links there are: pure |
//! | [`cluster`] | the processes and relays, partitions, what is asked of members |
//! | [`floors`] | the least that a write concern costs where members are so far apart: pure |
//! | [`status`] | what replies of members say: pure |
//!
//! The configuration of a set holds one `host:port` for each member, and all members and clients
//! see the same one: the address at which the member listens. So near members and clients reach it
//! directly. A member that is far away must come through the relay of just this pair, whose way
//! there and back can be cut alone: it is told so at its start by the parameter [`ROUTES`], which
//! names another address to *dial* for a member, and changes nothing else (what a member is called,
//! who it is, what `hello` says).

pub mod cluster;
pub mod floors;
pub mod shape;
pub mod status;

/// The server's parameter (`--setParameter NAME=HOST:PORT=HOST:PORT,…`): what is dialled instead of
/// the address that the configuration has for a member.
pub const ROUTES: &str = "replMemberRoutes";
