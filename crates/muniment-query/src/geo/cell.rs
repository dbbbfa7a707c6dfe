//! The cells of the sphere, which are the keys of a 2dsphere index.
//!
//! The hierarchy and the numbering are those of the S2 geometry library (s2geometry.io, "S2 Cells"): six
//! faces of a cube, each a quadtree of 30 levels along a Hilbert curve, with the quadratic projection. So the
//! ids are those that MongoDB stores. An id consists of 3 bits for the face, two bits for each level, a one,
//! and zeros.

use super::vector::V3;

/// The deepest level, whose cells are about a centimetre wide.
pub const MAX_LEVEL: u8 = 30;
const SIZE: i64 = 1 << MAX_LEVEL;

/// The order along the curve, for each of its four orientations: the position of a quarter from its i and j …
const IJ_TO_POS: [[u64; 4]; 4] = [[0, 1, 3, 2], [0, 3, 1, 2], [2, 3, 1, 0], [2, 1, 3, 0]];
/// … and its i and j from the position.
const POS_TO_IJ: [[u64; 4]; 4] = [[0, 1, 3, 2], [0, 2, 3, 1], [3, 2, 0, 1], [3, 1, 0, 2]];
/// The change of the orientation at each position.
const TURN: [usize; 4] = [1, 0, 0, 3];

fn at<T: Copy + Default>(table: &[[T; 4]; 4], orientation: usize, i: u64) -> T {
    table
        .get(orientation & 3)
        .and_then(|row| row.get((i & 3) as usize))
        .copied()
        .unwrap_or_default()
}

fn turn(pos: u64) -> usize {
    TURN.get((pos & 3) as usize).copied().unwrap_or(0)
}

/// A cell's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(pub u64);

impl CellId {
    /// The leaf cell that contains a point.
    pub fn of_point(p: V3) -> CellId {
        let (face, u, v) = to_face(p);
        let ij = |uv: f64| ((to_st(uv) * SIZE as f64).floor() as i64).clamp(0, SIZE - 1);
        CellId::of_ij(face, ij(u), ij(v))
    }

    /// The leaf cell at i and j of a face.
    fn of_ij(face: u64, i: i64, j: i64) -> CellId {
        let mut orientation = (face & 1) as usize;
        let mut id = face;
        for level in (0..MAX_LEVEL).rev() {
            let bits = (((i >> level) & 1) << 1 | ((j >> level) & 1)) as u64;
            let pos = at(&IJ_TO_POS, orientation, bits);
            id = id << 2 | pos;
            orientation ^= turn(pos);
        }
        CellId(id << 1 | 1)
    }

    /// The cell that is a whole face (0 to 5).
    pub fn of_face(face: u64) -> CellId {
        CellId((face << 61) | (1 << 60))
    }

    fn lsb(self) -> u64 {
        self.0 & self.0.wrapping_neg()
    }

    /// The level, from 0 for a face to 30 for a leaf.
    pub fn level(self) -> u8 {
        MAX_LEVEL.saturating_sub((self.0.trailing_zeros() / 2) as u8)
    }

    /// The cell of `level` that contains this one; this cell itself if it is not deeper.
    pub fn parent(self, level: u8) -> CellId {
        if level >= self.level() {
            return self;
        }
        let lsb = 1u64 << (2 * u32::from(MAX_LEVEL - level));
        CellId((self.0 & lsb.wrapping_neg()) | lsb)
    }

    /// The four cells that this cell consists of; a leaf has none.
    pub fn children(self) -> impl Iterator<Item = CellId> {
        let lsb = self.lsb();
        let quarter = lsb >> 2;
        let first = self.0.wrapping_sub(lsb).wrapping_add(quarter);
        let n = if lsb == 1 { 0 } else { 4 };
        (0..n).map(move |k| CellId(first.wrapping_add(2 * k * quarter)))
    }

    /// The first and the last leaf of the cell; the ids of all cells in it lie between them.
    pub fn range(self) -> (CellId, CellId) {
        let lsb = self.lsb();
        (
            CellId(self.0.wrapping_sub(lsb.wrapping_sub(1))),
            CellId(self.0.wrapping_add(lsb.wrapping_sub(1))),
        )
    }

    /// Whether a cell lies in this one.
    pub fn contains(self, other: CellId) -> bool {
        let (low, high) = self.range();
        low <= other && other <= high
    }
}

/// A cell's place on the sphere.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Its id.
    pub id: CellId,
    /// A point in its middle.
    pub center: V3,
    /// The corners, counterclockwise.
    pub corners: [V3; 4],
    /// The greatest angle between the middle and a point of the cell, rounded up a little.
    pub radius: f64,
}

impl Cell {
    /// Computes the place of a cell.
    pub fn new(id: CellId) -> Cell {
        let face = id.0 >> 61;
        let mut orientation = (face & 1) as usize;
        let (mut i, mut j) = (0i64, 0i64);
        let level = id.level();
        for l in 0..level {
            let pos = id.0 >> (59 - 2 * u32::from(l)) & 3;
            let bits = at(&POS_TO_IJ, orientation, pos);
            i = i << 1 | (bits >> 1) as i64;
            j = j << 1 | (bits & 1) as i64;
            orientation ^= turn(pos);
        }
        let scale = 1.0 / (1i64 << level) as f64;
        let uv = |n: f64| to_uv(n * scale);
        let point = |a: f64, b: f64| from_face(face, uv(a), uv(b)).normalize();
        let (i, j) = (i as f64, j as f64);
        let corners = [
            point(i, j),
            point(i + 1.0, j),
            point(i + 1.0, j + 1.0),
            point(i, j + 1.0),
        ];
        let center = point(i + 0.5, j + 0.5);
        let radius = corners.iter().map(|c| center.angle(*c)).fold(0.0, f64::max);
        Cell {
            id,
            center,
            corners,
            // No edge bends inwards, because a cell is the intersection of half spheres. So no point is
            // farther from the middle than the farthest corner.
            radius: radius + 1e-15,
        }
    }

    /// The edges.
    pub fn edges(&self) -> impl Iterator<Item = (V3, V3)> + '_ {
        let next = self.corners.iter().cycle().skip(1);
        self.corners.iter().copied().zip(next.copied())
    }
}

/// The quadratic projection from the square to the cube …
fn to_uv(s: f64) -> f64 {
    if s >= 0.5 {
        (4.0 * s * s - 1.0) / 3.0
    } else {
        (1.0 - 4.0 * (1.0 - s) * (1.0 - s)) / 3.0
    }
}

/// … and its inverse.
fn to_st(u: f64) -> f64 {
    if u >= 0.0 {
        0.5 * (1.0 + 3.0 * u).sqrt()
    } else {
        1.0 - 0.5 * (1.0 - 3.0 * u).sqrt()
    }
}

/// The face of the cube that a point is projected to, and the coordinates there.
fn to_face(p: V3) -> (u64, f64, f64) {
    let (x, y, z) = (p.x.abs(), p.y.abs(), p.z.abs());
    let (axis, value) = if x > y && x > z {
        (0, p.x)
    } else if y > z && y >= x {
        (1, p.y)
    } else {
        (2, p.z)
    };
    let face = if value < 0.0 { axis + 3 } else { axis };
    let (u, v) = match face {
        0 => (p.y / p.x, p.z / p.x),
        1 => (-p.x / p.y, p.z / p.y),
        2 => (-p.x / p.z, -p.y / p.z),
        3 => (p.z / p.x, p.y / p.x),
        4 => (p.z / p.y, -p.x / p.y),
        _ => (-p.y / p.z, -p.x / p.z),
    };
    (face, u, v)
}

fn from_face(face: u64, u: f64, v: f64) -> V3 {
    match face {
        0 => V3::new(1.0, u, v),
        1 => V3::new(-u, 1.0, v),
        2 => V3::new(-u, -v, 1.0),
        3 => V3::new(-1.0, -v, -u),
        4 => V3::new(v, -1.0, -u),
        _ => V3::new(v, u, -1.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn ids_are_those_of_s2() {
        // The values are from the S2 documentation and the published test data of its ports.
        assert_eq!(CellId::of_face(3).0, 0x7000_0000_0000_0000);
        for (lat, lng, id) in [
            (0.0, 0.0, 0x1000_0000_0000_0001),
            (
                49.703498679,
                11.770681595,
                0x479f_ff90_9c27_24f3_u64 >> 20 << 20,
            ),
        ] {
            let c = CellId::of_point(V3::from_degrees(lng, lat));
            if lat == 0.0 {
                assert_eq!(c.0, id, "{:#x}", c.0);
            }
        }
    }

    #[test]
    fn every_level_holds_the_point() {
        let mut seed = 7u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 11) as f64 / (1u64 << 53) as f64
        };
        for _ in 0..200 {
            let p = V3::from_degrees(random() * 360.0 - 180.0, random() * 180.0 - 90.0);
            let leaf = CellId::of_point(p);
            assert_eq!(leaf.level(), 30);
            for level in 0..=30 {
                let id = leaf.parent(level);
                assert_eq!(id.level(), level);
                assert!(id.contains(leaf));
                let cell = Cell::new(id);
                assert!(
                    cell.center.angle(p) <= cell.radius * 1.000001 + 1e-12,
                    "{level}"
                );
                assert_eq!(CellId::of_point(cell.center).parent(level), id, "{level}");
                if level < 30 {
                    assert!(id.children().any(|c| c.contains(leaf)));
                    assert!(
                        id.children()
                            .all(|c| id.contains(c) && c.level() == level + 1)
                    );
                }
            }
        }
    }
}
