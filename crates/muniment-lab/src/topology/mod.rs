//! Replica sets that the lab starts itself: their members are processes of this executable with
//! relays between them. Also the best latencies that such a set can reach.
//!
//! | module | what |
//! |---|---|
//! | [`shape`] | where the members are, the configuration document, which links there are: pure |
//! | [`cluster`] | the processes and relays, partitions, what is asked of members |
//! | [`floors`] | the least that a write concern costs where members are so far apart: pure |
//! | [`status`] | what replies of members say: pure |
//!
//! The configuration of a set holds one `host:port` for each member, the address at which the
//! member listens, and all members and clients see the same configuration. Near members and clients
//! therefore connect directly. A far member must connect through the relay of exactly this pair, so
//! that either direction between the two can be cut alone. The parameter [`ROUTES`] tells a member
//! at its start which other address to *dial* for a member; it changes neither names nor
//! identities, nor what `hello` says.
//! who it is, what `hello` says).

pub mod cluster;
pub mod floors;
pub mod shape;
pub mod status;

/// The server's parameter (`--setParameter NAME=HOST:PORT=HOST:PORT,…`) with the addresses to dial
/// instead of those that the configuration has for members.
pub const ROUTES: &str = "replMemberRoutes";
