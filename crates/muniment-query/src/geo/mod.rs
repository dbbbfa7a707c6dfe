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

use muniment_value::Result;

/// Whether a test that can fail holds of any.
///
/// # Errors
/// The first that the test raises.
fn any<T>(list: impl IntoIterator<Item = T>, test: impl FnMut(T) -> Result<bool>) -> Result<bool> {
    let mut test = test;
    for x in list {
        if test(x)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a test that can fail holds of all.
///
/// # Errors
/// The first that the test raises.
fn all<T>(list: impl IntoIterator<Item = T>, test: impl FnMut(T) -> Result<bool>) -> Result<bool> {
    let mut test = test;
    Ok(!any(list, |x| Ok(!test(x)?))?)
}

/// The radius of the earth in metres that MongoDB uses.
pub const EARTH_RADIUS: f64 = 6_378_100.0;
