//! Coverings: a few cells that together contain a region.

use super::cell::{Cell, CellId, MAX_LEVEL};
use super::geometry::Geometry;
use super::sphere::Cap;
use super::vector::V3;
use crate::running::Work;
use muniment_value::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The interface of a region that is to be covered.
pub trait Region {
    /// Whether a point is inside, and its angle to the boundary (or a lower bound for that).
    ///
    /// # Errors
    /// What stops the operation.
    fn reach(&self, p: V3, work: Work<'_>) -> Result<(bool, f64)>;
}

impl Region for Cap {
    fn reach(&self, p: V3, _: Work<'_>) -> Result<(bool, f64)> {
        let d = self.center.angle(p);
        Ok((d <= self.radius, (d - self.radius).abs()))
    }
}

/// The points whose angle to a center lies between two limits.
pub struct Ring {
    /// The middle.
    pub center: V3,
    /// The least angle in radians.
    pub inner: f64,
    /// The greatest angle.
    pub outer: f64,
}

impl Region for Ring {
    fn reach(&self, p: V3, _: Work<'_>) -> Result<(bool, f64)> {
        let d = self.center.angle(p);
        let out = (d - self.outer).abs();
        // A whole cap has no inner boundary, so its center is not near one.
        let near = if self.inner > 0.0 {
            out.min((d - self.inner).abs())
        } else {
            out
        };
        Ok(((self.inner..=self.outer).contains(&d), near))
    }
}

impl Region for Geometry {
    fn reach(&self, p: V3, work: Work<'_>) -> Result<(bool, f64)> {
        let mut near = f64::INFINITY;
        for (_, s) in &self.points {
            near = near.min(s.p.angle(p));
        }
        for l in &self.lines {
            near = near.min(l.distance(p, work)?);
        }
        for g in &self.polygons {
            let (inside, d) = g.reach(p, work)?;
            if inside {
                return Ok((true, d));
            }
            near = near.min(d);
        }
        Ok((false, near))
    }
}

struct Open {
    level: Reverse<u8>,
    cell: Cell,
    whole: bool,
}

impl PartialEq for Open {
    fn eq(&self, o: &Open) -> bool {
        self.level == o.level
    }
}
impl Eq for Open {}
impl PartialOrd for Open {
    fn partial_cmp(&self, o: &Open) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Open {
    fn cmp(&self, o: &Open) -> std::cmp::Ordering {
        self.level.cmp(&o.level)
    }
}

/// A cell, if the region may have a part in it.
fn open(id: CellId, region: &dyn Region, work: Work<'_>) -> Result<Option<Open>> {
    let cell = Cell::new(id);
    let (inside, d) = region.reach(cell.center, work)?;
    // The margin is a few leaf cells, which is the tolerance for points "on the boundary".
    let radius = cell.radius + 4e-9;
    Ok((inside || d <= radius).then(|| Open {
        level: Reverse(id.level()),
        cell,
        whole: inside && d > radius,
    }))
}

/// The cells among some in which the region may have a part.
fn open_all(
    cells: impl Iterator<Item = CellId>,
    region: &dyn Region,
    work: Work<'_>,
) -> Result<Vec<Open>> {
    cells
        .filter_map(|c| open(c, region, work).transpose())
        .collect()
}

/// Returns at most `max_cells` cells (or up to six, if that is less) that contain the region, none deeper
/// than `max_level`, in ascending order. It always divides the coarsest cell next.
///
/// # Errors
/// What stops the operation.
pub fn covering(
    region: &dyn Region,
    max_cells: usize,
    max_level: u8,
    work: Work<'_>,
) -> Result<Vec<CellId>> {
    let mut out = Vec::new();
    let faces = (0..6).map(CellId::of_face);
    let mut heap = BinaryHeap::from(open_all(faces, region, work)?);
    while let Some(next) = heap.pop() {
        let id = next.cell.id;
        if next.whole || id.level() >= max_level.min(MAX_LEVEL) {
            out.push(id);
            continue;
        }
        let children = open_all(id.children(), region, work)?;
        if children.len() <= 1 || out.len() + heap.len() + children.len() <= max_cells {
            heap.extend(children);
        } else {
            out.push(id);
        }
    }
    out.sort_unstable();
    Ok(out)
}

/// Divides the cells of a covering that are larger than those of `level`, and keeps the cells of that level
/// that meet the region; `None` if there are more than `most`.
///
/// # Errors
/// What stops the operation.
pub fn divided(
    cells: Vec<CellId>,
    region: &dyn Region,
    level: u8,
    most: usize,
    work: Work<'_>,
) -> Result<Option<Vec<CellId>>> {
    let (mut large, mut out): (Vec<_>, Vec<_>) = cells
        .into_iter()
        .partition(|c| c.level() < level.min(MAX_LEVEL));
    while let Some(id) = large.pop() {
        for child in open_all(id.children(), region, work)? {
            let child = child.cell.id;
            match child.level() < level {
                true => large.push(child),
                false => out.push(child),
            }
        }
        if out.len() > most {
            return Ok(None);
        }
    }
    out.sort_unstable();
    Ok(Some(out))
}

/// The cells of a covering and all cells in them, as closed intervals of ids taken as signed numbers. An
/// index has the keys of the geometries inside in these intervals. With `ancestors`, the larger cells that
/// contain them are included, because the key of a larger geometry may be one of those.
pub fn intervals(cells: &[CellId], ancestors: bool) -> Vec<(i64, i64)> {
    let mut list: Vec<(i64, i64)> = Vec::new();
    for c in cells {
        let (low, high) = c.range();
        list.push((low.0 as i64, high.0 as i64));
        if ancestors {
            list.extend((0..c.level()).map(|l| {
                let a = c.parent(l).0 as i64;
                (a, a)
            }));
        }
    }
    list.sort_unstable();
    let mut out: Vec<(i64, i64)> = Vec::with_capacity(list.len());
    for (low, high) in list {
        match out.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => out.push((low, high)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn coverings_hold_their_region() {
        let mut seed = 3u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 11) as f64 / (1u64 << 53) as f64
        };
        for _ in 0..60 {
            let center = V3::from_degrees(random() * 360. - 180., random() * 180. - 90.);
            let radius = random().powi(6) * 3.0;
            let cap = Cap { center, radius };
            let cells = covering(&cap, 20, MAX_LEVEL, Work::unasked()).unwrap();
            assert!(!cells.is_empty() && cells.len() <= 20, "{}", cells.len());
            let ring = Ring {
                center,
                inner: radius,
                outer: radius * 2.0,
            };
            let ring_cells = covering(&ring, 20, MAX_LEVEL, Work::unasked()).unwrap();
            let (u, v) = (center.ortho(), center.cross(center.ortho()));
            for _ in 0..50 {
                let (turn, r) = (random() * std::f64::consts::TAU, random() * radius * 2.0);
                let p = center
                    .times(r.cos())
                    .plus(u.times(r.sin() * turn.cos()))
                    .plus(v.times(r.sin() * turn.sin()))
                    .normalize();
                let leaf = CellId::of_point(p);
                let d = center.angle(p);
                let holds = |cells: &[CellId]| {
                    intervals(cells, false)
                        .iter()
                        .any(|(a, b)| *a <= leaf.0 as i64 && leaf.0 as i64 <= *b)
                };
                if d <= radius {
                    assert!(holds(&cells), "{radius} {d}");
                }
                if (ring.inner..=ring.outer).contains(&d) {
                    assert!(holds(&ring_cells), "{radius} {d}");
                }
            }
        }
    }
}
