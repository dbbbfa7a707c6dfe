//! The grid of a 2d index: a square of the plane, halved alternately by x and y.
//!
//! A cell's hash consists of the interleaved bits of x and y, x first, at the top of 64 bits. So the hashes
//! of all points of a cell form one range.

use super::flat::{Flat, rounding};

/// A 2d index's grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// How often each axis is halved, 1 to 32.
    pub bits: u32,
    /// The least coordinate.
    pub min: f64,
    /// The greatest coordinate.
    pub max: f64,
}

/// A square of the grid.
#[derive(Clone, Copy, Debug)]
pub struct Square {
    /// Its lower left corner.
    pub low: (f64, f64),
    /// Its upper right corner.
    pub high: (f64, f64),
}

/// The relation of a region to a square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They have nothing in common.
    Apart,
    /// They may have something in common.
    Some,
    /// All of the square lies in the region.
    Whole,
}

impl Grid {
    /// The hash of a point; `None` outside of the grid.
    pub fn hash(&self, x: f64, y: f64) -> Option<u64> {
        let (i, j) = (self.scale(x)?, self.scale(y)?);
        let mut hash = 0u64;
        for bit in (0..32).rev() {
            hash = hash << 2 | u64::from(i >> bit & 1) << 1 | u64::from(j >> bit & 1);
        }
        let unused = 64 - 2 * self.bits.clamp(1, 32);
        Some(hash.checked_shr(unused).unwrap_or(0) << unused)
    }

    fn scale(&self, v: f64) -> Option<u32> {
        if !(self.min..=self.max).contains(&v) {
            return None;
        }
        let scaled = (v - self.min) * (4_294_967_296.0 / (self.max - self.min));
        // The greatest coordinate belongs to the last cell; the `as` conversion ensures this by stopping at
        // the greatest value of the type.
        Some(scaled as u32)
    }

    /// The width of a cell of the finest level.
    pub fn cell_size(&self) -> f64 {
        (self.max - self.min) / 2f64.powi(self.bits.clamp(1, 32) as i32)
    }

    /// The hashes of at most `max_cells` cells (or four, if that is less) that contain the region, as closed
    /// intervals in ascending order.
    pub fn covering(
        &self,
        region: &dyn Fn(&Square) -> Relation,
        max_cells: usize,
    ) -> Vec<(u64, u64)> {
        // Hashing moves a point by up to the width of a cell.
        let slack = self.cell_size() * 1.000_001;
        let around = |s: &Square| Square {
            low: (s.low.0 - slack, s.low.1 - slack),
            high: (s.high.0 + slack, s.high.1 + slack),
        };
        let mut out: Vec<(u64, u32)> = Vec::new();
        let mut level: Vec<(u64, Square)> = vec![(
            0,
            Square {
                low: (self.min, self.min),
                high: (self.max, self.max),
            },
        )];
        let mut depth = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            let mut rest = level.len();
            for (hash, square) in level {
                rest -= 1;
                let relation = region(&around(&square));
                if relation == Relation::Apart {
                    continue;
                }
                let crowded = out.len() + next.len() + rest + 4 > max_cells.max(4);
                if relation == Relation::Whole || depth >= self.bits.clamp(1, 32) || crowded {
                    out.push((hash, depth));
                    continue;
                }
                for (quarter, child) in square.quarters() {
                    if region(&around(&child)) != Relation::Apart {
                        next.push((hash | quarter << (62 - 2 * depth), child));
                    }
                }
            }
            level = next;
            depth += 1;
        }
        let mut list: Vec<(u64, u64)> = out
            .into_iter()
            .map(|(hash, depth)| {
                let below = u64::MAX.checked_shr(2 * depth).unwrap_or(0);
                (hash, hash | below)
            })
            .collect();
        list.sort_unstable();
        joined(list)
    }
}

/// Joins ranges that touch; they come in ascending order.
fn joined(list: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(list.len());
    for (low, high) in list {
        match joined.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

impl Square {
    /// Its quarters, each with the two bits that it adds to the hash.
    fn quarters(self) -> impl Iterator<Item = (u64, Square)> {
        let middle = (
            (self.low.0 + self.high.0) / 2.0,
            (self.low.1 + self.high.1) / 2.0,
        );
        (0..4u64).map(move |quarter| {
            let (right, upper) = (quarter & 2 != 0, quarter & 1 != 0);
            let pick = |second: bool, low: f64, mid: f64, high: f64| {
                if second { (mid, high) } else { (low, mid) }
            };
            let (x0, x1) = pick(right, self.low.0, middle.0, self.high.0);
            let (y0, y1) = pick(upper, self.low.1, middle.1, self.high.1);
            let square = Square {
                low: (x0, y0),
                high: (x1, y1),
            };
            (quarter, square)
        })
    }

    /// The least and the greatest distance of the square's points from a point.
    pub fn distances(&self, x: f64, y: f64) -> (f64, f64) {
        let away = |v: f64, low: f64, high: f64| (low - v).max(v - high).max(0.0);
        let far = |v: f64, low: f64, high: f64| (v - low).abs().max((high - v).abs());
        (
            away(x, self.low.0, self.high.0).hypot(away(y, self.low.1, self.high.1)),
            far(x, self.low.0, self.high.0).hypot(far(y, self.low.1, self.high.1)),
        )
    }

    /// The square's relation to the box between two corners.
    pub fn with_box(&self, low: (f64, f64), high: (f64, f64)) -> Relation {
        let apart = self.high.0 < low.0
            || self.low.0 > high.0
            || self.high.1 < low.1
            || self.low.1 > high.1;
        if apart {
            return Relation::Apart;
        }
        let whole = low.0 <= self.low.0
            && self.high.0 <= high.0
            && low.1 <= self.low.1
            && self.high.1 <= high.1;
        if whole {
            Relation::Whole
        } else {
            Relation::Some
        }
    }

    /// The square's relation to a shape.
    pub fn with(&self, shape: &Flat) -> Relation {
        let (low, high) = shape.bounds();
        match (self.with_box(low, high), shape) {
            (relation, Flat::Box { .. }) => relation,
            (Relation::Apart, _) => Relation::Apart,
            (_, Flat::Circle { center, radius }) => {
                let slack = rounding(center.0, *radius) + rounding(center.1, *radius);
                self.with_ring(*center, 0.0, radius + slack)
            }
            // The box around a polygon does not show whether the square is inside the polygon.
            (_, Flat::Polygon(_)) => Relation::Some,
        }
    }

    /// The square's relation to the points between two distances from a center.
    pub fn with_ring(&self, center: (f64, f64), inner: f64, outer: f64) -> Relation {
        let (near, far) = self.distances(center.0, center.1);
        if near > outer || far < inner {
            Relation::Apart
        } else if near >= inner && far <= outer {
            Relation::Whole
        } else {
            Relation::Some
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const GRID: Grid = Grid {
        bits: 26,
        min: -180.0,
        max: 180.0,
    };

    #[test]
    fn hashes_are_within_the_grid() {
        assert_eq!(GRID.hash(-180.0, -180.0), Some(0));
        assert!(GRID.hash(180.0, 180.0).is_some());
        assert_eq!(GRID.hash(180.1, 0.0), None);
        assert_eq!(GRID.hash(f64::NAN, 0.0), None);
        // The first bit is that of x.
        assert_eq!(GRID.hash(0.0, -180.0).map(|h| h >> 62), Some(2));
        let coarse = Grid { bits: 1, ..GRID };
        assert_eq!(coarse.hash(90.0, 90.0), Some(3 << 62));
    }

    #[test]
    fn coverings_hold_their_points() {
        let shapes = [
            Flat::Box {
                low: (-10., 5.),
                high: (3.5, 7.25),
            },
            Flat::Circle {
                center: (100., -20.),
                radius: 12.,
            },
            Flat::Polygon(vec![(0., 0.), (5., 50.), (60., 10.)]),
            Flat::Box {
                low: (1., 1.),
                high: (1., 1.),
            },
        ];
        for grid in [GRID, Grid { bits: 3, ..GRID }, Grid { bits: 32, ..GRID }] {
            for shape in &shapes {
                let ranges = grid.covering(&|s| s.with(shape), 20);
                let (low, high) = shape.bounds();
                for i in 0..=20 {
                    for j in 0..=20 {
                        let x = low.0 + (high.0 - low.0) * f64::from(i) / 20.;
                        let y = low.1 + (high.1 - low.1) * f64::from(j) / 20.;
                        let p = super::super::GeoPoint {
                            x,
                            y,
                            geojson: false,
                        };
                        let hash = grid.hash(x, y).unwrap();
                        let held = ranges.iter().any(|(a, b)| *a <= hash && hash <= *b);
                        assert!(held || !shape.has(&p), "{shape:?} {x} {y}");
                    }
                }
            }
        }
    }
}
