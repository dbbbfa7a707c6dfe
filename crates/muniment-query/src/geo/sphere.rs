//! Lines, loops and polygons on the sphere.
//!
//! Edges are the shorter arcs of great circles. Regions are closed: a point on the boundary is inside, and a
//! line that only touches a region intersects it. Two polygons, however, must overlap. Whether a point is "on
//! the boundary" is decided with a tolerance of half a centimetre (MongoDB's is a leaf cell), because a point
//! between two others is never exactly on the arc between them. The inside of a loop is on its left.

use super::cell::CellId;
use super::vector::{Crossing, V3, counts, crossing, distance_to_edge, ordered_ccw};
use super::{all, any};
use crate::running::Work;
use muniment_value::{Error, Result};
use std::f64::consts::FRAC_PI_2;

/// The cost of testing one edge, in the steps of [`Work::steps`].
const EDGE: usize = 16;

/// A point whose angle to a boundary is at most this counts as being on it: about half a centimetre.
const TOUCH: f64 = 1e-9;

/// A point.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// Where it is.
    pub p: V3,
}

impl Spot {
    /// A point.
    pub fn new(p: V3) -> Spot {
        Spot { p }
    }

    /// The leaf cell that contains it.
    pub fn leaf(&self) -> CellId {
        CellId::of_point(self.p)
    }

    /// Whether two points count as the same, which is so if they are in the same leaf cell.
    pub fn meets(&self, other: &Spot) -> bool {
        self.p.minus(other.p).norm2() < 1e-15 && self.leaf() == other.leaf()
    }

    /// Whether the point lies on an edge.
    fn on_edge(&self, a: V3, b: V3) -> bool {
        distance_to_edge(self.p, a, b) <= TOUCH
    }
}

/// A cap that bounds a shape: no part of the shape is farther from `center` than `radius`.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The middle.
    pub center: V3,
    /// The angle in radians; at least π if the cap covers everything.
    pub radius: f64,
}

impl Bound {
    /// The bound of the arcs between the points. If the points form a loop around at most half the sphere, it
    /// is the bound of the loop too.
    fn of(points: &[V3]) -> Bound {
        let sum = points
            .iter()
            .fold(V3::new(0.0, 0.0, 0.0), |s, p| s.plus(*p));
        let everything = Bound {
            center: V3::new(0.0, 0.0, 1.0),
            radius: 4.0,
        };
        if sum.norm2() < 1e-10 {
            return everything;
        }
        let center = sum.normalize();
        let radius = points.iter().map(|p| center.angle(*p)).fold(0.0, f64::max);
        // A cap of up to half the sphere is convex: if it contains the ends of an arc, it contains the arc.
        if radius > FRAC_PI_2 - 1e-9 {
            return everything;
        }
        Bound {
            center,
            radius: radius + 1e-8,
        }
    }

    fn may_hold(&self, p: V3) -> bool {
        self.radius > 3.2 || self.center.angle(p) <= self.radius
    }

    fn may_meet(&self, other: &Bound) -> bool {
        self.radius > 3.2
            || other.radius > 3.2
            || self.center.angle(other.center) <= self.radius + other.radius
    }
}

/// The arcs along some points.
#[derive(Clone, Debug)]
pub struct Line {
    points: Vec<V3>,
    bound: Bound,
}

impl Line {
    /// The line through the points; there must be at least two.
    pub fn new(points: Vec<V3>) -> Line {
        let bound = Bound::of(&points);
        Line { points, bound }
    }

    fn edges(&self) -> impl Iterator<Item = (V3, V3)> + Clone + '_ {
        self.points
            .iter()
            .copied()
            .zip(self.points.iter().copied().skip(1))
    }

    /// Whether the line goes through a point.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn has(&self, s: &Spot, work: Work<'_>) -> Result<bool> {
        if !self.bound.may_hold(s.p) {
            return Ok(false);
        }
        work.steps(self.points.len() * EDGE)?;
        Ok(self.edges().any(|(a, b)| s.on_edge(a, b)))
    }

    /// Whether two lines meet.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn meets(&self, other: &Line, work: Work<'_>) -> Result<bool> {
        if !self.bound.may_meet(&other.bound) {
            return Ok(false);
        }
        Ok(edges_meet(self.edges(), other.edges(), work)?
            || any(&other.points, |p| self.has(&Spot::new(*p), work))?
            || any(&self.points, |p| other.has(&Spot::new(*p), work))?)
    }

    /// The angle between a point and the line.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn distance(&self, p: V3, work: Work<'_>) -> Result<f64> {
        distance_to_edges(self.edges(), self.points.len(), p, work)
    }

    /// Its points.
    pub fn points(&self) -> &[V3] {
        &self.points
    }
}

/// The least angle between a point and edges, of which there are `n`.
fn distance_to_edges(
    edges: impl Iterator<Item = (V3, V3)>,
    n: usize,
    p: V3,
    work: Work<'_>,
) -> Result<f64> {
    work.steps(n * EDGE)?;
    Ok(edges
        .map(|(a, b)| distance_to_edge(p, a, b))
        .fold(f64::INFINITY, f64::min))
}

fn edges_meet(
    a: impl Iterator<Item = (V3, V3)>,
    b: impl Iterator<Item = (V3, V3)> + Clone,
    work: Work<'_>,
) -> Result<bool> {
    any_pair(a, b, |c| c != Crossing::None, work)
}

fn edges_cross(
    a: impl Iterator<Item = (V3, V3)>,
    b: impl Iterator<Item = (V3, V3)> + Clone,
    work: Work<'_>,
) -> Result<bool> {
    any_pair(a, b, |c| c == Crossing::Proper, work)
}

/// Whether an edge of `a` and one of `b` cross in a way that `wanted` accepts.
fn any_pair(
    a: impl Iterator<Item = (V3, V3)>,
    b: impl Iterator<Item = (V3, V3)> + Clone,
    wanted: impl Fn(Crossing) -> bool,
    work: Work<'_>,
) -> Result<bool> {
    for (p, q) in a {
        let mut n = 0;
        let found = b.clone().any(|(r, s)| {
            n += 1;
            wanted(crossing(p, q, r, s))
        });
        if found {
            return Ok(true);
        }
        work.steps(n * EDGE)?;
    }
    Ok(false)
}

/// The reasons why points do not form a loop.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Fewer than three different vertices.
    TooFew,
    /// The same vertex twice.
    Duplicate,
    /// Two of its edges cross.
    Crossing,
    /// The operation had to stop before that was known.
    Stopped(Error),
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::Stopped(e)
    }
}

/// A closed line that does not cross itself. The region on its left is inside.
#[derive(Clone, Debug)]
pub struct Loop {
    points: Vec<V3>,
    origin_inside: bool,
    bound: Bound,
}

/// The reference point from which the inside is determined. It is a place where a vertex is unlikely to be.
const ORIGIN: V3 = V3::new(
    -0.009_999_466_435_025_02,
    0.002_592_454_260_932_412,
    0.999_946_643_502_502,
);

impl Loop {
    /// A loop from its vertices. The first one is not repeated at the end.
    ///
    /// # Errors
    /// The fault of the points.
    pub fn new(points: Vec<V3>, work: Work<'_>) -> Result<Loop, Fault> {
        if points.len() < 3 {
            return Err(Fault::TooFew);
        }
        let mut sorted: Vec<[u64; 3]> = points
            .iter()
            .map(|p| [p.x.to_bits(), p.y.to_bits(), p.z.to_bits()])
            .collect();
        sorted.sort_unstable();
        if sorted.windows(2).any(|w| w.first() == w.last()) {
            return Err(Fault::Duplicate);
        }
        let mut l = Loop {
            bound: Bound::of(&points),
            points,
            origin_inside: false,
        };
        if l.crosses_itself(work)? {
            return Err(Fault::Crossing);
        }
        l.find_origin(work)?;
        Ok(l)
    }

    fn find_origin(&mut self, work: Work<'_>) -> Result<()> {
        self.origin_inside = false;
        let (Some(a), Some(b), Some(c)) =
            (self.points.first(), self.points.get(1), self.points.get(2))
        else {
            return Ok(());
        };
        let (a, b, c) = (*a, *b, *c);
        let inside = ordered_ccw(b.ortho(), a, c, b);
        self.origin_inside = inside != self.winds_around(b, work)?;
        Ok(())
    }

    /// The edges.
    pub fn edges(&self) -> impl Iterator<Item = (V3, V3)> + Clone + '_ {
        let n = self.points.len();
        let next = self.points.iter().copied().cycle().skip(1).take(n);
        self.points.iter().copied().zip(next)
    }

    /// Its vertices.
    pub fn points(&self) -> &[V3] {
        &self.points
    }

    /// Sorts the edges by their southern ends, and compares two edges only if their latitudes overlap.
    fn crosses_itself(&self, work: Work<'_>) -> Result<bool> {
        struct Span {
            low: f64,
            high: f64,
            at: usize,
            a: V3,
            b: V3,
        }
        let n = self.points.len();
        let mut spans: Vec<Span> = self
            .edges()
            .enumerate()
            .map(|(at, (a, b))| {
                // An arc rises above its ends by less than the square of the distance between them.
                let rise = a.minus(b).norm2();
                Span {
                    low: a.z.min(b.z) - rise,
                    high: a.z.max(b.z) + rise,
                    at,
                    a,
                    b,
                }
            })
            .collect();
        spans.sort_by(|x, y| x.low.total_cmp(&y.low));
        for (i, s) in spans.iter().enumerate() {
            for t in spans.iter().skip(i + 1) {
                if t.low > s.high {
                    break;
                }
                work.steps(EDGE)?;
                let gap = s.at.abs_diff(t.at);
                if gap == 1 || gap == n - 1 {
                    continue;
                }
                if crossing(s.a, s.b, t.a, t.b) == Crossing::Proper {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reverses the loop if necessary, so that at most half the sphere is inside.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn normalize(&mut self, work: Work<'_>) -> Result<()> {
        if self.turning() < -1e-14 {
            self.points.reverse();
            self.find_origin(work)?;
        }
        Ok(())
    }

    /// The sum of the angles by which the boundary turns left. By Gauss and Bonnet it is 2π minus the area,
    /// so it is positive if less than half the sphere is inside.
    fn turning(&self) -> f64 {
        let n = self.points.len();
        let mut sum = 0.0;
        let mut third = self.points.iter().cycle().skip(2);
        for ((a, b), c) in self.edges().zip(third.by_ref().copied()).take(n) {
            let (u, v) = (a.robust_cross(b), b.robust_cross(c));
            let angle = u.angle(v);
            sum += if super::vector::sign(a, b, c) > 0 {
                angle
            } else {
                -angle
            };
        }
        sum
    }

    /// Whether `p` is inside, if `origin_inside` is right as it is now. Every crossing of the way from the
    /// origin to `p` with the loop changes the side.
    fn winds_around(&self, p: V3, work: Work<'_>) -> Result<bool> {
        work.steps(self.points.len() * EDGE)?;
        let crossings = self
            .edges()
            .filter(|(a, b)| counts(ORIGIN, p, *a, *b))
            .count();
        Ok(self.origin_inside ^ (crossings % 2 == 1))
    }

    /// Whether a point is inside. For a point exactly on the boundary, the result is that of one of the two
    /// sides.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn holds(&self, p: V3, work: Work<'_>) -> Result<bool> {
        self.winds_around(p, work)
    }

    /// Whether the boundary goes through a point.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn touches(&self, s: &Spot, work: Work<'_>) -> Result<bool> {
        work.steps(self.points.len() * EDGE)?;
        Ok(self.edges().any(|(a, b)| s.on_edge(a, b)))
    }

    /// The angle between a point and the boundary.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn distance(&self, p: V3, work: Work<'_>) -> Result<f64> {
        distance_to_edges(self.edges(), self.points.len(), p, work)
    }

    /// A point just inside of an edge.
    fn inner_point(&self) -> Option<V3> {
        let (a, b) = self.edges().next()?;
        let middle = a.plus(b).normalize();
        let left = a.robust_cross(b).normalize();
        let step = a.angle(b).min(1e-3) * 1e-4;
        Some(middle.plus(left.times(step)).normalize())
    }
}

/// A loop with holes, or a single loop that may be larger than half the sphere.
#[derive(Clone, Debug)]
pub struct Polygon {
    shell: Loop,
    holes: Vec<Loop>,
    /// Set if the shell may contain more than its bound does.
    big: bool,
}

impl Polygon {
    /// A polygon from a shell and its holes. Each hole must lie in the shell, or else the result is `None`.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn new(mut shell: Loop, mut holes: Vec<Loop>, work: Work<'_>) -> Result<Option<Polygon>> {
        shell.normalize(work)?;
        for h in &mut holes {
            h.normalize(work)?;
            // A hole may touch the shell in one point, but not along an edge.
            let mut touching = 0;
            for p in &h.points {
                let touches = shell.touches(&Spot::new(*p), work)?;
                touching += usize::from(touches);
                if touching > 1 || !touches && !shell.holds(*p, work)? {
                    return Ok(None);
                }
            }
            if edges_cross(h.edges(), shell.edges(), work)? {
                return Ok(None);
            }
        }
        for (i, h) in holes.iter().enumerate() {
            for other in holes.iter().skip(i + 1) {
                let inside = |l: &Loop, in_: &Loop| match l.inner_point() {
                    Some(p) if in_.bound.may_hold(p) => in_.holds(p, work),
                    _ => Ok(false),
                };
                if edges_cross(h.edges(), other.edges(), work)?
                    || inside(h, other)?
                    || inside(other, h)?
                {
                    return Ok(None);
                }
            }
        }
        Ok(Some(Polygon {
            shell,
            holes,
            big: false,
        }))
    }

    /// A polygon from a loop whose inside is on the left, however large that is.
    pub fn big(shell: Loop) -> Polygon {
        Polygon {
            shell,
            holes: Vec::new(),
            big: true,
        }
    }

    fn loops(&self) -> impl Iterator<Item = &Loop> + Clone {
        std::iter::once(&self.shell).chain(&self.holes)
    }

    fn edges(&self) -> impl Iterator<Item = (V3, V3)> + Clone + '_ {
        self.loops().flat_map(Loop::edges)
    }

    fn may_hold(&self, p: V3) -> bool {
        self.big || self.shell.bound.may_hold(p)
    }

    fn may_meet(&self, bound: &Bound) -> bool {
        self.big || self.shell.bound.may_meet(bound)
    }

    /// Whether a point is inside, without the tolerance at the boundary.
    fn holds(&self, p: V3, work: Work<'_>) -> Result<bool> {
        Ok(self.may_hold(p)
            && self.shell.holds(p, work)?
            && !any(&self.holes, |h| h.holds(p, work))?)
    }

    /// Whether a point is inside or on the boundary.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn has(&self, s: &Spot, work: Work<'_>) -> Result<bool> {
        Ok(self.may_hold(s.p)
            && (self.holds(s.p, work)? || any(self.loops(), |l| l.touches(s, work))?))
    }

    /// Whether every point of the edges is inside or on the boundary.
    fn has_edges(
        &self,
        edges: impl Iterator<Item = (V3, V3)> + Clone,
        work: Work<'_>,
    ) -> Result<bool> {
        let inside = |p: V3| self.has(&Spot::new(p), work);
        let within = all(edges.clone(), |(a, b)| {
            Ok(inside(a)? && inside(b)? && inside(a.plus(b).normalize())?)
        });
        Ok(within? && !edges_cross(self.edges(), edges, work)?)
    }

    /// Whether a line lies in the polygon.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn has_line(&self, line: &Line, work: Work<'_>) -> Result<bool> {
        self.has_edges(line.edges(), work)
    }

    /// Whether another polygon lies in this one.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn has_polygon(&self, other: &Polygon, work: Work<'_>) -> Result<bool> {
        let of_other = |p: Option<V3>| p.map_or(Ok(false), |p| other.holds(p, work));
        if !self.has_edges(other.edges(), work)?
            || !other
                .shell
                .inner_point()
                .map_or(Ok(true), |p| self.holds(p, work))?
            || any(&self.holes, |h| of_other(h.inner_point()))?
        {
            return Ok(false);
        }
        // The region outside of a big loop counts as a hole too.
        Ok(!self.big
            || !any(self.shell.edges(), |(a, b)| {
                of_other(Some(a.plus(b).normalize()))
            })?)
    }

    /// Whether the polygon has a point in common with a line.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn meets_line(&self, line: &Line, work: Work<'_>) -> Result<bool> {
        if !self.may_meet(&line.bound) {
            return Ok(false);
        }
        Ok(any(&line.points, |p| self.has(&Spot::new(*p), work))?
            || edges_meet(self.edges(), line.edges(), work)?
            || self.touches_line(line, work)?)
    }

    fn touches_line(&self, line: &Line, work: Work<'_>) -> Result<bool> {
        let points = self.loops().flat_map(|l| l.points.iter());
        any(points, |p| line.has(&Spot::new(*p), work))
    }

    /// Whether the polygon overlaps another one. Neighbours that only share their boundary do not overlap, as
    /// in MongoDB.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn meets_polygon(&self, other: &Polygon, work: Work<'_>) -> Result<bool> {
        if !other.big && !self.may_meet(&other.shell.bound) {
            return Ok(false);
        }
        // The cheap test of one point of each polygon comes first.
        let inside = |a: &Polygon, b: &Polygon| match b.shell.inner_point() {
            Some(p) => a.holds(p, work),
            None => Ok(false),
        };
        let reaches = |a: &Polygon, b: &Polygon| {
            let points = b.edges().flat_map(|(p, q)| [p, p.plus(q).normalize()]);
            any(points, |p| {
                Ok(a.holds(p, work)? && a.boundary_distance(p, work)? > TOUCH)
            })
        };
        Ok(inside(self, other)?
            || inside(other, self)?
            || edges_cross(self.edges(), other.edges(), work)?
            || reaches(self, other)?
            || reaches(other, self)?)
    }

    /// The angle between a point and the polygon; zero if the point is inside.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn distance(&self, p: V3, work: Work<'_>) -> Result<f64> {
        match self.holds(p, work)? {
            true => Ok(0.0),
            false => self.boundary_distance(p, work),
        }
    }

    fn boundary_distance(&self, p: V3, work: Work<'_>) -> Result<f64> {
        self.loops().try_fold(
            f64::INFINITY,
            |least, l| Ok(least.min(l.distance(p, work)?)),
        )
    }

    /// Whether a point is inside, and its angle to the boundary.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn reach(&self, p: V3, work: Work<'_>) -> Result<(bool, f64)> {
        Ok((self.holds(p, work)?, self.boundary_distance(p, work)?))
    }

    /// The shell's vertices.
    pub fn shell(&self) -> &Loop {
        &self.shell
    }
}

/// All points within an angle of a center.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// The middle.
    pub center: V3,
    /// The angle in radians.
    pub radius: f64,
}

impl Cap {
    fn holds(&self, p: V3) -> bool {
        self.center.angle(p) <= self.radius
    }

    /// Whether a point is inside, with the tolerance of [`TOUCH`].
    pub fn has(&self, s: &Spot) -> bool {
        self.center.angle(s.p) <= self.radius + TOUCH
    }

    fn has_edges(&self, mut edges: impl Iterator<Item = (V3, V3)>) -> bool {
        // A point is outside of the cap if it is near the point on the other side of the sphere.
        let other_side = self.center.times(-1.0);
        let rest = std::f64::consts::PI - self.radius;
        edges.all(|(a, b)| {
            self.holds(a) && self.holds(b) && distance_to_edge(other_side, a, b) >= rest - 1e-15
        })
    }

    /// Whether a line lies in the cap.
    pub fn has_line(&self, line: &Line) -> bool {
        self.has_edges(line.edges())
    }

    /// Whether a polygon lies in the cap.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn has_polygon(&self, polygon: &Polygon, work: Work<'_>) -> Result<bool> {
        Ok(self.has_edges(polygon.shell.edges())
            && (self.radius >= std::f64::consts::PI
                || !polygon.holds(self.center.times(-1.0), work)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const WORK: Work<'static> = Work::unasked();

    fn points(list: &[(f64, f64)]) -> Vec<V3> {
        list.iter().map(|(x, y)| V3::from_degrees(*x, *y)).collect()
    }

    fn ring(list: &[(f64, f64)]) -> Loop {
        Loop::new(points(list), WORK).unwrap()
    }

    fn with_holes(shell: Loop, holes: Vec<Loop>) -> Option<Polygon> {
        Polygon::new(shell, holes, WORK).unwrap()
    }

    fn polygon(list: &[(f64, f64)]) -> Polygon {
        with_holes(ring(list), Vec::new()).unwrap()
    }

    fn spot(x: f64, y: f64) -> Spot {
        Spot::new(V3::from_degrees(x, y))
    }

    const SQUARE: [(f64, f64); 4] = [(-10., -10.), (10., -10.), (10., 10.), (-10., 10.)];

    #[test]
    fn either_winding_is_the_small_side() {
        let mut turned = SQUARE;
        turned.reverse();
        for list in [SQUARE, turned] {
            let p = polygon(&list);
            for (x, y, inside) in [
                (0., 0., true),
                (9.999, 0., true),
                (10., 0., true),
                (10., 10., true),
                (10.001, 0., false),
                (180., 0., false),
                (0., 90., false),
            ] {
                let has = p.has(&spot(x, y), WORK).unwrap();
                assert_eq!(has, inside, "{x} {y}");
            }
            let distance = |x, y| p.distance(V3::from_degrees(x, y), WORK).unwrap();
            assert_eq!(distance(0., 0.), 0.0);
            let d = distance(11., 0.).to_degrees();
            assert!((d - 1.0).abs() < 1e-9, "{d}");
        }
        let mut turned = SQUARE;
        turned.reverse();
        let big = Polygon::big(ring(&turned));
        assert!(!big.has(&spot(0., 0.), WORK).unwrap() && big.has(&spot(50., 50.), WORK).unwrap());
    }

    #[test]
    fn holes_and_neighbours() {
        let hole = ring(&[(-1., -1.), (1., -1.), (1., 1.), (-1., 1.)]);
        let outside = ring(&[(20., 20.), (30., 20.), (30., 30.)]);
        let shell = || ring(&SQUARE);
        assert!(with_holes(shell(), vec![outside]).is_none());
        let p = with_holes(shell(), vec![hole]).unwrap();
        assert!(
            p.has(&spot(5., 5.), WORK).unwrap()
                && !p.has(&spot(0., 0.), WORK).unwrap()
                && p.has(&spot(1., 1.), WORK).unwrap()
        );
        let in_hole = polygon(&[(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5)]);
        assert!(
            !p.has_polygon(&in_hole, WORK).unwrap() && !p.meets_polygon(&in_hole, WORK).unwrap()
        );
        let around_hole = polygon(&[(-2., -2.), (2., -2.), (2., 2.), (-2., 2.)]);
        assert!(
            !p.has_polygon(&around_hole, WORK).unwrap()
                && p.meets_polygon(&around_hole, WORK).unwrap()
        );
        let whole = polygon(&SQUARE);
        assert!(
            whole.has_polygon(&p, WORK).unwrap()
                && whole.has_polygon(&whole, WORK).unwrap()
                && !p.has_polygon(&whole, WORK).unwrap()
        );
        let beside = polygon(&[(10., -10.), (20., -10.), (20., 10.), (10., 10.)]);
        assert!(
            !whole.meets_polygon(&beside, WORK).unwrap()
                && !whole.has_polygon(&beside, WORK).unwrap()
        );
        let over = polygon(&[(5., -5.), (15., -5.), (15., 5.), (5., 5.)]);
        assert!(
            whole.meets_polygon(&over, WORK).unwrap() && whole.meets_polygon(&whole, WORK).unwrap()
        );
        let line = Line::new(points(&[(-20., 0.), (20., 0.)]));
        assert!(whole.meets_line(&line, WORK).unwrap() && !whole.has_line(&line, WORK).unwrap());
        assert!(
            whole
                .has_line(&Line::new(points(&[(-5., 0.), (5., 0.)])), WORK)
                .unwrap()
        );
    }

    #[test]
    fn boundaries_at_the_date_line_and_the_pole() {
        let p = polygon(&[(179., 88.), (180., 88.), (180., 90.), (179., 90.)]);
        assert!(p.has(&spot(180., 89.), WORK).unwrap() && p.has(&spot(179.5, 89.), WORK).unwrap());
        assert!(!p.has(&spot(-179., 89.), WORK).unwrap());
        let line = Line::new(points(&[(180., 0.), (180., 10.)]));
        assert!(
            line.has(&spot(180., 5.), WORK).unwrap() && line.has(&spot(-180., 5.), WORK).unwrap()
        );
    }

    #[test]
    fn faults_are_found() {
        let bow = points(&[(0., 0.), (2., 2.), (2., 0.), (0., 2.)]);
        let fault = |points| Loop::new(points, WORK).unwrap_err();
        assert!(matches!(fault(bow), Fault::Crossing));
        let few = points(&[(0., 0.), (2., 2.)]);
        assert!(matches!(fault(few), Fault::TooFew));
        let twice = points(&[(0., 0.), (2., 2.), (0., 0.), (0., 2.)]);
        assert!(matches!(fault(twice), Fault::Duplicate));
    }

    #[test]
    fn caps_hold_what_is_within_their_radius() {
        let cap = Cap {
            center: V3::from_degrees(0., 0.),
            radius: 1f64.to_radians(),
        };
        assert!(cap.has(&spot(1., 0.)) && !cap.has(&spot(1.001, 0.)));
        let line = |x: f64| Line::new(points(&[(0., 0.), (x, 0.)]));
        assert!(cap.has_line(&line(0.9)) && !cap.has_line(&line(1.1)));
        let large = Cap {
            center: V3::from_degrees(0., 0.),
            radius: 170f64.to_radians(),
        };
        assert!(!large.has_line(&Line::new(points(&[(175., 0.), (-175., 0.)]))));
        assert!(!large.has_line(&Line::new(points(&[(165., 0.), (-165., 0.)]))));
        assert!(large.has_polygon(&polygon(&SQUARE), WORK).unwrap());
    }
}
