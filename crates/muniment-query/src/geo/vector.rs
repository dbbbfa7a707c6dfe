//! Points of the unit sphere and the exact predicates on them.
//!
//! [`sign`] is exact. Where floating point cannot decide, the determinant is computed as an exact sum of
//! products; where that is zero, a symbolic perturbation decides. So three different points are never
//! collinear, and all results are consistent with each other (Edelsbrunner and Mücke, "Simulation of
//! Simplicity"; the order of the perturbations is that of the S2 geometry library, Apache-2.0). Everything
//! that determines the side on which a point lies is built on this function.

use std::cmp::Ordering;

/// A vector. It is a point of the sphere if its length is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct V3 {
    /// Towards longitude 0, latitude 0.
    pub x: f64,
    /// Towards longitude 90, latitude 0.
    pub y: f64,
    /// Towards the north pole.
    pub z: f64,
}

impl V3 {
    /// A vector from its components.
    pub const fn new(x: f64, y: f64, z: f64) -> V3 {
        V3 { x, y, z }
    }

    /// The point at a longitude and a latitude in degrees.
    pub fn from_degrees(lng: f64, lat: f64) -> V3 {
        let (theta, phi) = (lng.to_radians(), lat.to_radians());
        let c = phi.cos();
        V3::new(theta.cos() * c, theta.sin() * c, phi.sin())
    }

    /// The scalar product.
    pub fn dot(self, o: V3) -> f64 {
        self.x * o.x + self.y * o.y + self.z * o.z
    }

    /// The vector product.
    pub fn cross(self, o: V3) -> V3 {
        V3::new(
            self.y * o.z - self.z * o.y,
            self.z * o.x - self.x * o.z,
            self.x * o.y - self.y * o.x,
        )
    }

    /// The sum.
    pub fn plus(self, o: V3) -> V3 {
        V3::new(self.x + o.x, self.y + o.y, self.z + o.z)
    }

    /// The difference.
    pub fn minus(self, o: V3) -> V3 {
        V3::new(self.x - o.x, self.y - o.y, self.z - o.z)
    }

    /// Every component times `k`.
    pub fn times(self, k: f64) -> V3 {
        V3::new(self.x * k, self.y * k, self.z * k)
    }

    /// The length squared.
    pub fn norm2(self) -> f64 {
        self.dot(self)
    }

    /// The vector with the same direction and length one (the zero vector stays as it is).
    pub fn normalize(self) -> V3 {
        let n = self.norm2().sqrt();
        if n > 0.0 { self.times(1.0 / n) } else { self }
    }

    /// The angle to another vector in radians. It is accurate for small and for large angles.
    pub fn angle(self, o: V3) -> f64 {
        self.cross(o).norm2().sqrt().atan2(self.dot(o))
    }

    /// A unit vector at right angles to this one. The result for a vector is always the same.
    pub fn ortho(self) -> V3 {
        let (x, y, z) = (self.x.abs(), self.y.abs(), self.z.abs());
        let mut other = V3::new(0.012, 0.0053, 0.00457);
        if x > y && x > z {
            other.z = 1.0;
        } else if y > z {
            other.x = 1.0;
        } else {
            other.y = 1.0;
        }
        self.cross(other).normalize()
    }

    /// A vector at right angles to both, even if they are nearly the same point.
    pub fn robust_cross(self, o: V3) -> V3 {
        let c = o.plus(self).cross(o.minus(self));
        if c == V3::new(0.0, 0.0, 0.0) {
            self.ortho()
        } else {
            c
        }
    }

    fn order(self, o: V3) -> Ordering {
        self.x
            .total_cmp(&o.x)
            .then(self.y.total_cmp(&o.y))
            .then(self.z.total_cmp(&o.z))
    }
}

/// The greatest error of (a × b) · c in floating point, for unit vectors.
const DETERMINANT_ERROR: f64 = 1.8274 * f64::EPSILON;

/// 1 if the points are counterclockwise, -1 if they are clockwise, 0 if two of them are the same.
pub fn sign(a: V3, b: V3, c: V3) -> i32 {
    let det = a.cross(b).dot(c);
    if det > DETERMINANT_ERROR {
        return 1;
    }
    if det < -DETERMINANT_ERROR {
        return -1;
    }
    if a == b || b == c || c == a {
        return 0;
    }
    // The points are sorted, and `parity` keeps the sign of the permutation.
    let mut p = [a, b, c];
    let mut parity = 1;
    for (i, j) in [(0, 1), (1, 2), (0, 1)] {
        if let (Some(x), Some(y)) = (p.get(i).copied(), p.get(j).copied())
            && x.order(y) == Ordering::Greater
        {
            p.swap(i, j);
            parity = -parity;
        }
    }
    let [a, b, c] = p;
    let exact = det3(a, b, c);
    parity
        * if exact != 0 {
            exact
        } else {
            perturbed(a, b, c)
        }
}

/// An exact sum of floating-point numbers: components in ascending order that do not overlap.
struct Expansion {
    parts: [f64; 32],
    len: usize,
}

impl Expansion {
    fn new() -> Expansion {
        Expansion {
            parts: [0.0; 32],
            len: 0,
        }
    }

    /// Adds a number without error (Shewchuk's grow-expansion).
    fn add(&mut self, value: f64) {
        let mut q = value;
        let mut n = 0;
        for i in 0..self.len {
            let e = self.parts.get(i).copied().unwrap_or(0.0);
            let sum = q + e;
            let bv = sum - q;
            let error = (q - (sum - bv)) + (e - bv);
            q = sum;
            if error != 0.0 {
                if let Some(p) = self.parts.get_mut(n) {
                    *p = error;
                }
                n += 1;
            }
        }
        if q != 0.0 {
            if let Some(p) = self.parts.get_mut(n) {
                *p = q;
            }
            n += 1;
        }
        self.len = n.min(self.parts.len());
    }

    /// Adds x · y · z without error.
    fn add_product(&mut self, x: f64, y: f64, z: f64) {
        let high = x * y;
        let low = x.mul_add(y, -high);
        for part in [low, high] {
            let h = part * z;
            self.add(part.mul_add(z, -h));
            self.add(h);
        }
    }

    fn sign(&self) -> i32 {
        match self.len.checked_sub(1).and_then(|i| self.parts.get(i)) {
            Some(top) if *top > 0.0 => 1,
            Some(top) if *top < 0.0 => -1,
            _ => 0,
        }
    }
}

/// The sign of the determinant of three vectors, exactly.
fn det3(a: V3, b: V3, c: V3) -> i32 {
    let mut e = Expansion::new();
    e.add_product(a.x, b.y, c.z);
    e.add_product(-a.x, b.z, c.y);
    e.add_product(a.y, b.z, c.x);
    e.add_product(-a.y, b.x, c.z);
    e.add_product(a.z, b.x, c.y);
    e.add_product(-a.z, b.y, c.x);
    e.sign()
}

/// The sign of x1 · y1 - x2 · y2, exactly.
fn det2(x1: f64, y1: f64, x2: f64, y2: f64) -> i32 {
    let mut e = Expansion::new();
    e.add_product(x1, y1, 1.0);
    e.add_product(-x2, y2, 1.0);
    e.sign()
}

fn of(n: f64) -> i32 {
    if n > 0.0 {
        1
    } else if n < 0.0 {
        -1
    } else {
        0
    }
}

/// The sign of the determinant of three different vectors, in ascending order, if the determinant itself is
/// zero: the sign after each component was moved by an infinitesimal amount.
fn perturbed(a: V3, b: V3, c: V3) -> i32 {
    let steps = [
        det2(b.x, c.y, b.y, c.x),
        det2(b.z, c.x, b.x, c.z),
        det2(b.y, c.z, b.z, c.y),
        det2(c.x, a.y, c.y, a.x),
        of(c.x),
        -of(c.y),
        det2(c.z, a.x, c.x, a.z),
        of(c.z),
        det2(a.x, b.y, a.y, b.x),
        -of(b.x),
        of(b.y),
        of(a.x),
    ];
    steps.into_iter().find(|s| *s != 0).unwrap_or(1)
}

/// True if b lies between a and c on the way counterclockwise, as seen from o.
pub fn ordered_ccw(a: V3, b: V3, c: V3, o: V3) -> bool {
    let votes = i32::from(sign(b, o, a) >= 0)
        + i32::from(sign(c, o, b) >= 0)
        + i32::from(sign(a, o, c) > 0);
    votes >= 2
}

/// How two edges meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// Not at all.
    None,
    /// They share a vertex.
    Shared,
    /// They meet at a point inside both.
    Proper,
}

/// How the edges ab and cd meet.
pub fn crossing(a: V3, b: V3, c: V3, d: V3) -> Crossing {
    if a == c || a == d || b == c || b == d {
        return Crossing::Shared;
    }
    if a == b || c == d {
        return Crossing::None;
    }
    // The edges cross if the triangles acb, cbd, bda and dac are all turned the same way.
    let acb = -sign(a, b, c);
    if sign(a, b, d) != acb {
        return Crossing::None;
    }
    let cbd = -sign(c, d, b);
    if cbd != acb {
        return Crossing::None;
    }
    if sign(c, d, a) == acb {
        Crossing::Proper
    } else {
        Crossing::None
    }
}

/// Whether edges that share a vertex count as crossing. The rule makes counting separate inside from outside:
/// they cross if ab comes after cd, counterclockwise around the vertex from a fixed direction.
fn vertex_crossing(a: V3, b: V3, c: V3, d: V3) -> bool {
    if a == b || c == d {
        return false;
    }
    if a == d {
        return ordered_ccw(a.ortho(), c, b, a);
    }
    if b == c {
        return ordered_ccw(b.ortho(), d, a, b);
    }
    if a == c {
        return ordered_ccw(a.ortho(), d, b, a);
    }
    if b == d {
        return ordered_ccw(b.ortho(), c, a, b);
    }
    false
}

/// Whether ab crosses cd when crossings are counted.
pub fn counts(a: V3, b: V3, c: V3, d: V3) -> bool {
    match crossing(a, b, c, d) {
        Crossing::None => false,
        Crossing::Proper => true,
        Crossing::Shared => vertex_crossing(a, b, c, d),
    }
}

/// The angle between a point and the edge ab, in radians.
pub fn distance_to_edge(p: V3, a: V3, b: V3) -> f64 {
    let ends = p.angle(a).min(p.angle(b));
    if a == b {
        return ends;
    }
    let n = a.robust_cross(b);
    // The nearest point of the great circle lies on the edge if p is between the planes that go through the
    // axis and each end.
    if n.cross(a).dot(p) > 0.0 && b.cross(n).dot(p) > 0.0 {
        let on_circle = p.minus(n.times(p.dot(n) / n.norm2()));
        return p.angle(on_circle.normalize()).min(ends);
    }
    ends
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn p(lng: f64, lat: f64) -> V3 {
        V3::from_degrees(lng, lat)
    }

    #[test]
    fn sign_is_exact_and_consistent() {
        let points = [
            p(0.0, 0.0),
            p(10.0, 0.0),
            p(20.0, 0.0),
            p(10.0, 1e-13),
            V3::new(1.0, 0.0, 0.0),
            V3::new(-1.0, 0.0, 0.0),
            V3::new(0.0, 0.0, 1.0),
            p(45.0, 45.0),
            p(45.0 + 1e-14, 45.0),
        ];
        for a in points {
            for b in points {
                for c in points {
                    let s = sign(a, b, c);
                    assert_eq!(s == 0, a == b || b == c || a == c, "{a:?} {b:?} {c:?}");
                    assert_eq!(s, sign(b, c, a));
                    assert_eq!(s, -sign(c, b, a));
                }
            }
        }
        assert_eq!(sign(p(0.0, 0.0), p(10.0, 0.0), p(5.0, 1.0)), 1);
        assert_eq!(sign(p(0.0, 0.0), p(10.0, 0.0), p(5.0, -1.0)), -1);
    }

    #[test]
    fn edges_cross() {
        let x = |a: (f64, f64), b: (f64, f64), c: (f64, f64), d: (f64, f64)| {
            crossing(p(a.0, a.1), p(b.0, b.1), p(c.0, c.1), p(d.0, d.1))
        };
        for (a, b, c, d, want) in [
            ((-1., -1.), (1., 1.), (-1., 1.), (1., -1.), Crossing::Proper),
            ((-1., -1.), (1., 1.), (2., 1.), (1., -1.), Crossing::None),
            ((0., 0.), (1., 1.), (1., 1.), (2., 0.), Crossing::Shared),
            (
                (179., 0.),
                (-179., 0.),
                (180., 1.),
                (180., -1.),
                Crossing::Proper,
            ),
        ] {
            assert_eq!(x(a, b, c, d), want, "{a:?} {b:?} {c:?} {d:?}");
            assert_eq!(x(b, a, c, d), want);
            assert_eq!(x(c, d, a, b), want);
        }
    }

    #[test]
    fn distances_are_spherical() {
        let d = p(0.0, 0.0).angle(p(1.0, 0.0));
        assert!((d - 1f64.to_radians()).abs() < 1e-15);
        let d = distance_to_edge(p(5.0, 1.0), p(0.0, 0.0), p(10.0, 0.0));
        assert!((d - 1f64.to_radians()).abs() < 1e-12);
        let d = distance_to_edge(p(12.0, 0.0), p(0.0, 0.0), p(10.0, 0.0));
        assert!((d - 2f64.to_radians()).abs() < 1e-12);
    }
}
