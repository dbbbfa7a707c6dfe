//! Geometry on the sphere and in the plane: what `$geoWithin`, `$geoIntersects` and `$near` ask,
//! and what 2dsphere and 2d indexes have as keys.
//!
//! GeoJSON is on the sphere, its lines are arcs of great circles; legacy pairs with `$box`,
//! `$polygon` and `$center` are in the plane. Invariants: predicates are exact (see [`vector`]);
//! nothing here knows an index or the storage; hostile coordinates end in an error, never in a
//! panic or an endless loop.

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

/// The radius of the earth in metres that MongoDB computes with.
pub const EARTH_RADIUS: f64 = 6_378_100.0;
