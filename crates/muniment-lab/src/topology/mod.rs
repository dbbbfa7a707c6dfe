//! Replica sets that the lab starts itself: their members are processes of this executable with
//! relays between them. Also the best latencies that such a set can reach.
//!
//! | module | contents |
//! |---|---|
//! | [`shape`] | the members' places, the configuration document and the links: pure functions |
//! | `option` | `--topology`, the option that names what is started |
//! | [`cluster`] | the processes and relays, partitions, and questions to members |
//! | [`floors`] | the least latency of a write concern at given distances: pure functions |
//! | [`status`] | reads the replies of members: pure functions |
//! | `sharded` | a cluster of shards: its processes, and a collection divided over them |
//! | `slices` | gives processes a share of a core each, as if they were small machines |
//!
//! The configuration of a set holds one `host:port` for each member, the address at which the
//! member listens, and all members and clients see the same configuration. Near members and clients
//! therefore connect directly. A far member must connect through the relay of exactly this pair, so
//! that either direction between the two can be cut alone. The parameter [`ROUTES`] tells a member
//! at its start which other address to *dial* for a member; it changes neither names nor
//! identities, nor what `hello` says.

pub mod cluster;
pub mod floors;
pub(crate) mod option;
pub mod shape;
pub(crate) mod sharded;
pub(crate) mod slices;
pub mod status;

/// The server's parameter (`--setParameter NAME=HOST:PORT=HOST:PORT,…`) with the addresses to dial
/// instead of those that the configuration has for members.
pub const ROUTES: &str = "replMemberRoutes";
