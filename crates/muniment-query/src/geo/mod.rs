//! Geometry on the sphere and in the plane, for `$geoWithin`, `$geoIntersects` and `$near`, and for the keys
//! of 2dsphere and 2d indexes.
//!
//! GeoJSON is on the sphere, and its lines are arcs of great circles; legacy pairs with `$box`, `$polygon`
//! and `$center` are in the plane. Invariants: predicates are exact (see [`vector`]); nothing here knows an
//! index or the storage; hostile coordinates lead to an error, never to a panic or an endless loop.

pub mod cell;
pub mod cover;
pub mod flat;
pub mod geometry;
pub mod plane;
pub mod query;
pub mod sphere;
pub mod vector;

pub use geometry::{GeoPoint, Geometry};
pub use query::{GeoQuery, NearQuery};

/// The radius of the earth in metres that MongoDB uses.
pub const EARTH_RADIUS: f64 = 6_378_100.0;
