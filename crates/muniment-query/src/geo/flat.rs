//! Shapes of the plane: `$box`, `$polygon`, `$center`.

use super::geometry::GeoPoint;

/// A shape of the plane.
#[derive(Clone, Debug)]
pub enum Flat {
    /// From the lower left to the upper right corner.
    Box {
        /// Least x and y.
        low: (f64, f64),
        /// Greatest x and y.
        high: (f64, f64),
    },
    /// The corners; the last is joined to the first.
    Polygon(Vec<(f64, f64)>),
    /// A circle.
    Circle {
        /// Its middle.
        center: (f64, f64),
        /// Its radius in the coordinates' unit.
        radius: f64,
    },
}

impl Flat {
    /// Whether a point is inside or on the boundary.
    pub fn has(&self, p: &GeoPoint) -> bool {
        let (x, y) = (p.x, p.y);
        match self {
            Flat::Box { low, high } => {
                (low.0..=high.0).contains(&x) && (low.1..=high.1).contains(&y)
            }
            Flat::Circle { center, radius } => in_circle(*center, *radius, (x, y)),
            Flat::Polygon(corners) => in_polygon(corners, x, y),
        }
    }

    /// A box that contains the shape, including its boundary after rounding: least x and y, greatest x and y.
    pub fn bounds(&self) -> ((f64, f64), (f64, f64)) {
        match self {
            Flat::Box { low, high } => (*low, *high),
            Flat::Circle { center, radius } => {
                let reach = |c: f64| radius + rounding(c, *radius);
                let (x, y) = (reach(center.0), reach(center.1));
                ((center.0 - x, center.1 - y), (center.0 + x, center.1 + y))
            }
            Flat::Polygon(corners) => {
                let mut low = (f64::INFINITY, f64::INFINITY);
                let mut high = (f64::NEG_INFINITY, f64::NEG_INFINITY);
                for (x, y) in corners {
                    low = (low.0.min(*x), low.1.min(*y));
                    high = (high.0.max(*x), high.1.max(*y));
                }
                (low, high)
            }
        }
    }
}

/// More than the rounding error of the sum of a coordinate and a radius.
pub(super) fn rounding(coordinate: f64, radius: f64) -> f64 {
    (coordinate.abs() + radius) * 4.0 * f64::EPSILON
}

/// If the point is exactly beside or above the middle, the radius is added instead of subtracting the
/// coordinates. 52 − 51.9999 is a little more than 0.0001 in floating point, while 51.9999 + 0.0001 is 52.
fn in_circle(center: (f64, f64), radius: f64, (x, y): (f64, f64)) -> bool {
    let reaches = |a: f64, b: f64| a.min(b) + radius >= a.max(b);
    if x == center.0 {
        reaches(y, center.1)
    } else if y == center.1 {
        reaches(x, center.0)
    } else {
        (x - center.0).hypot(y - center.1) <= radius
    }
}

/// Counts the sides that a line from the point to the right meets. Vertices, and points on horizontal and
/// vertical sides, belong to the polygon. A point on a slanting side is inside if that is a right side of the
/// polygon, and outside if it is a left one, as MongoDB counts.
fn in_polygon(corners: &[(f64, f64)], x: f64, y: f64) -> bool {
    let mut inside = false;
    let next = corners.iter().cycle().skip(1);
    for ((ax, ay), (bx, by)) in corners.iter().copied().zip(next.copied()) {
        let on_flat = ay == by && y == ay && (ax.min(bx)..=ax.max(bx)).contains(&x);
        if on_flat || (x, y) == (ax, ay) {
            return true;
        }
        if ay != by && y > ay.min(by) && y <= ay.max(by) {
            if ax == bx && x == ax {
                return true;
            }
            inside ^= x <= (y - ay) * (bx - ax) / (by - ay) + ax;
        }
    }
    inside
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn table_test() {
        let polygon = Flat::Polygon(vec![(0., 0.), (3., 6.), (6., 0.)]);
        let square = Flat::Box {
            low: (0., 0.),
            high: (6., 6.),
        };
        let circle = Flat::Circle {
            center: (0., 0.),
            radius: 5.,
        };
        let bow = Flat::Polygon(vec![(0., 0.), (10., 10.), (10., 0.), (0., 10.)]);
        for (x, y, want) in [(2., 2., true), (8., 8., false), (5., 5., true)] {
            let geojson = false;
            assert_eq!(bow.has(&GeoPoint { x, y, geojson }), want, "{x} {y}");
        }
        for (x, y, want) in [
            (3., 2., [true, true, true]),
            (0., 0., [true, true, true]),
            (3., 6., [true, true, false]),
            (1.5, 3., [false, true, true]),
            (4.5, 3., [true, true, false]),
            (3., 4., [true, true, true]),
            (1., 5., [false, true, false]),
            (-1., 1., [false, false, true]),
            (7., 0., [false, false, false]),
        ] {
            let p = GeoPoint {
                x,
                y,
                geojson: false,
            };
            assert_eq!(
                [polygon.has(&p), square.has(&p), circle.has(&p)],
                want,
                "{x} {y}"
            );
        }
    }
}
