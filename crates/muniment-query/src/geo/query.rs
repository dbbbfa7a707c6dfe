//! The operands of `$geoWithin`, `$geoIntersects` and `$near`, parsed.

use super::cell::MAX_LEVEL;
use super::cover::{Ring, covering, intervals};
use super::flat::Flat;
use super::geometry::{GeoPoint, Geometry, coordinate, legacy_pair, query_point};
use super::plane::{Grid, Relation, Square};
use super::sphere::Cap;
use super::vector::V3;
use super::{EARTH_RADIUS, all};
use crate::running::Work;
use muniment_value::path::{self, Path};
use muniment_value::{Doc, Error, Result, Value, ValueBuf};
use std::f64::consts::PI;
use std::sync::OnceLock;

/// The most cells in the covering of a query.
const QUERY_CELLS: usize = 20;

/// The shape of a query.
#[derive(Clone, Debug)]
pub enum Shape {
    /// `$geometry`.
    Geometry(Geometry),
    /// `$centerSphere`.
    Cap(Cap),
    /// `$box`, `$polygon`, `$center`.
    Flat(Flat),
}

/// `$geoWithin` or `$geoIntersects`.
#[derive(Clone, Debug)]
pub struct GeoQuery {
    /// True for `$geoIntersects`.
    pub intersects: bool,
    /// The shape.
    pub shape: Shape,
    /// The operand as it was written.
    pub source: ValueBuf,
    /// The keys of a 2dsphere field, once a planner has asked for them.
    intervals: OnceLock<Option<Vec<(i64, i64)>>>,
}

impl GeoQuery {
    /// Parses the operand of `$geoWithin` (`$within`) or `$geoIntersects`.
    ///
    /// # Errors
    /// 2 BadValue.
    pub fn parse(operand: Value<'_>, intersects: bool, work: Work<'_>) -> Result<GeoQuery> {
        let Value::Document(d) = operand else {
            return Err(Error::bad_value(
                "geometry must be specified as a sub-document of the geo query operator",
            ));
        };
        let mut shape = None;
        for e in d {
            if e.name() == "$uniqueDocs" {
                continue;
            }
            if shape.is_some() {
                return Err(Error::bad_value(format!(
                    "can't parse extra field: {}: {}",
                    e.name(),
                    e.value().to_display()
                )));
            }
            shape = Some(parse_shape(e.name(), e.value(), work)?);
        }
        let Some(shape) = shape else {
            return Err(Error::bad_value("geo query doesn't have any geometry"));
        };
        match (&shape, intersects) {
            (Shape::Geometry(g), false) if g.polygons.is_empty() => {
                return Err(Error::bad_value(format!(
                    "$geoWithin not supported with provided geometry: {}",
                    operand.to_display()
                )));
            }
            (Shape::Cap(_) | Shape::Flat(_), true) => {
                return Err(Error::bad_value(format!(
                    "$geoIntersects not supported with provided geometry: {}",
                    operand.to_display()
                )));
            }
            _ => {}
        }
        Ok(GeoQuery {
            intersects,
            shape,
            source: ValueBuf::new(operand),
            intervals: OnceLock::new(),
        })
    }

    /// Whether a stored value satisfies the query.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn matches(&self, v: Value<'_>, work: Work<'_>) -> Result<bool> {
        if !matches!(v, Value::Document(_) | Value::Array(_)) {
            return Ok(false);
        }
        let Some(g) = Geometry::stored(v, work)? else {
            return Ok(false);
        };
        // A geometry larger than half the sphere is never stored as such.
        if g.strict {
            return Ok(false);
        }
        match &self.shape {
            Shape::Flat(flat) => Ok(g.as_point().is_some_and(|p| flat.has(p))),
            _ if g.off_sphere => Ok(false),
            Shape::Geometry(q) if self.intersects => q.meets(&g, work),
            Shape::Geometry(q) => q.contains(&g, work),
            Shape::Cap(cap) => Ok(g.points.iter().all(|(_, s)| cap.has(s))
                && g.lines.iter().all(|l| cap.has_line(l))
                && all(&g.polygons, |p| cap.has_polygon(p, work))?),
        }
    }

    /// Finds the keys that [`GeoQuery::sphere_intervals`] tells: for a shape of many vertices that takes
    /// long.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn cover(&self, work: Work<'_>) -> Result<()> {
        if self.intervals.get().is_none() {
            let cells = match &self.shape {
                Shape::Flat(_) => None,
                Shape::Cap(cap) => Some(covering(cap, QUERY_CELLS, MAX_LEVEL, work)?),
                Shape::Geometry(g) => Some(covering(g, QUERY_CELLS, MAX_LEVEL, work)?),
            };
            let _ = self
                .intervals
                .set(cells.map(|cells| intervals(&cells, true)));
        }
        Ok(())
    }

    /// The keys of a 2dsphere field outside of which there is no match; `None` for a shape of the
    /// plane, and before [`GeoQuery::cover`].
    pub fn sphere_intervals(&self) -> Option<&[(i64, i64)]> {
        self.intervals.get()?.as_deref()
    }

    /// The keys of a 2d field among which all matches are found; `None` for a shape for which a 2d index is
    /// not used.
    pub fn plane_intervals(&self, grid: &Grid) -> Option<Vec<(u64, u64)>> {
        match &self.shape {
            Shape::Geometry(_) => None,
            Shape::Flat(flat) => Some(grid.covering(&|s| s.with(flat), QUERY_CELLS)),
            Shape::Cap(cap) => {
                Some(grid.covering(&|s| with_cap(s, cap.center, cap.radius), QUERY_CELLS))
            }
        }
    }
}

/// The relation of a square, in degrees, to a cap, computed from the latitudes and longitudes that the cap
/// reaches.
fn with_cap(s: &Square, center: V3, radius: f64) -> Relation {
    let slack = 1e-7;
    let lat = center.z.clamp(-1.0, 1.0).asin();
    let lng = center.y.atan2(center.x).to_degrees();
    let (south, north) = (
        (lat - radius).to_degrees() - slack,
        (lat + radius).to_degrees() + slack,
    );
    if south <= -90.0 || north >= 90.0 {
        return s
            .with_box((f64::NEG_INFINITY, south), (f64::INFINITY, north))
            .min_some();
    }
    let reach = (radius.sin() / lat.cos())
        .clamp(-1.0, 1.0)
        .asin()
        .to_degrees()
        + slack;
    // The cap may reach across the date line on either side, so it is also compared a full turn away.
    [-360.0, 0.0, 360.0]
        .iter()
        .map(|turn| s.with_box((lng - reach + turn, south), (lng + reach + turn, north)))
        .find(|r| *r != Relation::Apart)
        .unwrap_or(Relation::Apart)
        .min_some()
}

impl Relation {
    /// A bounding box does not show whether something is wholly inside the shape, so `Whole` becomes `Some`.
    fn min_some(self) -> Relation {
        match self {
            Relation::Apart => Relation::Apart,
            _ => Relation::Some,
        }
    }
}

fn wrong(what: String) -> Error {
    Error::bad_value(what)
}

fn parse_shape(name: &str, v: Value<'_>, work: Work<'_>) -> Result<Shape> {
    match name {
        "$geometry" => Geometry::from_query(v, work)
            .map(Shape::Geometry)
            .map_err(|refused| refused.into_error(wrong)),
        "$box" => {
            let [low, high] = corners(v, name)?;
            Ok(Shape::Flat(Flat::Box {
                low: (low.0.min(high.0), low.1.min(high.1)),
                high: (low.0.max(high.0), low.1.max(high.1)),
            }))
        }
        "$polygon" => {
            let list = points(v, name)?;
            if list.len() < 3 {
                return Err(Error::bad_value("Polygon must have at least 3 points"));
            }
            Ok(Shape::Flat(Flat::Polygon(list)))
        }
        "$center" => {
            let (center, radius) = circle(v, name)?;
            Ok(Shape::Flat(Flat::Circle {
                center: (center.x, center.y),
                radius,
            }))
        }
        "$centerSphere" => {
            let (center, radius) = circle(v, name)?;
            if !center.on_sphere() {
                return Err(Error::bad_value(format!(
                    "Spherical circle center out of bounds: {}",
                    v.to_display()
                )));
            }
            Ok(Shape::Cap(Cap {
                center: center.vector(),
                radius: radius.min(4.0),
            }))
        }
        other => Err(Error::bad_value(format!("unknown geo specifier: {other}"))),
    }
}

fn list<'a>(v: Value<'a>, name: &str) -> Result<Doc<'a>> {
    match v {
        Value::Array(d) | Value::Document(d) => Ok(d),
        _ => Err(Error::bad_value(format!("{name} must be an array"))),
    }
}

fn pair(v: Value<'_>) -> Result<(f64, f64)> {
    let (Value::Array(d) | Value::Document(d)) = v else {
        return Err(Error::bad_value(format!(
            "Point must be an array or object: {}",
            v.to_display()
        )));
    };
    let p = legacy_pair(d, false).map_err(wrong)?;
    Ok((p.x, p.y))
}

fn points(v: Value<'_>, name: &str) -> Result<Vec<(f64, f64)>> {
    list(v, name)?.values().map(pair).collect()
}

fn corners(v: Value<'_>, name: &str) -> Result<[(f64, f64); 2]> {
    let all = points(v, name)?;
    match all.as_slice() {
        [low, high, ..] => Ok([*low, *high]),
        _ => Err(Error::bad_value(format!("{name} needs two corners"))),
    }
}

fn circle(v: Value<'_>, name: &str) -> Result<(GeoPoint, f64)> {
    let Value::Array(d) = v else {
        return Err(Error::bad_value(format!("{name} must be an array")));
    };
    let mut values = d.values();
    let (Some(center), Some(radius), None) = (values.next(), values.next(), values.next()) else {
        return Err(Error::bad_value(format!(
            "{name} needs a center and a radius: {}",
            v.to_display()
        )));
    };
    let (x, y) = pair(center)?;
    let radius = coordinate(radius)
        .filter(|r| *r >= 0.0)
        .ok_or_else(|| Error::bad_value("radius must be a non-negative number"))?;
    let center = GeoPoint {
        x,
        y,
        geojson: false,
    };
    Ok((center, radius))
}

/// `$near`, `$nearSphere`, or a `$geoNear` stage, which give documents by their distance from a point.
#[derive(Clone, Debug)]
pub struct NearQuery {
    /// The point from which distances are measured.
    pub center: GeoPoint,
    /// True if distances are measured on the sphere.
    pub spherical: bool,
    /// The least distance in the unit of [`NearQuery::distance`].
    pub min: f64,
    /// The greatest distance.
    pub max: f64,
    /// The operand as it was written.
    pub source: ValueBuf,
    /// The operator's name.
    pub name: &'static str,
}

impl NearQuery {
    /// Parses `$near`, `$nearSphere` or `$geoNear` with the operators next to it.
    ///
    /// # Errors
    /// 2 BadValue; 34413 for a wrong operator next to it; 16893 to 16896 for distances.
    pub fn parse(name: &'static str, operand: Value<'_>, siblings: Doc<'_>) -> Result<NearQuery> {
        let mut q = NearQuery {
            center: GeoPoint {
                x: 0.0,
                y: 0.0,
                geojson: false,
            },
            spherical: name == "$nearSphere",
            min: 0.0,
            max: f64::INFINITY,
            source: ValueBuf::new(operand),
            name,
        };
        if q.parse_legacy(operand, siblings)? {
            return Ok(q);
        }
        if siblings.count() > 1 {
            return Err(Error::bad_value(
                "geo near accepts just one argument when querying for a GeoJSON point. Extra field \
                 found",
            ));
        }
        let (Value::Document(d) | Value::Array(d)) = operand else {
            return Err(Error::bad_value(format!(
                "geo near query argument is not an object: {}",
                operand.to_display()
            )));
        };
        let mut found = false;
        for e in d {
            let v = e.value();
            match e.name() {
                "$geometry" => {
                    let point = match v {
                        Value::Document(_) | Value::Array(_) => query_point(v),
                        _ => Err("$geometry must be an object".to_string()),
                    };
                    q.center = point.map_err(|what| {
                        Error::bad_value(format!(
                            "invalid point in geo near query $geometry argument: {}  {what}",
                            v.to_display()
                        ))
                    })?;
                    if !q.center.geojson {
                        return Err(Error::bad_value(format!(
                            "$near requires geojson point, given {}",
                            v.to_display()
                        )));
                    }
                    q.spherical = true;
                    found = true;
                }
                "$minDistance" => q.min = metres(v, "$minDistance")?,
                "$maxDistance" => q.max = metres(v, "$maxDistance")?,
                other => {
                    return Err(Error::bad_value(format!(
                        "invalid argument in geo near query: {other}"
                    )));
                }
            }
        }
        if !found {
            return Err(Error::bad_value("$geometry is required for geo near query"));
        }
        Ok(q)
    }

    /// Parses a legacy point with distances next to it, in the unit of its coordinates or, on the sphere, in
    /// radians.
    fn parse_legacy(&mut self, operand: Value<'_>, siblings: Doc<'_>) -> Result<bool> {
        let mut found = false;
        for e in siblings {
            let v = e.value();
            let distance = |at_least: i32, what: &str| -> Result<f64> {
                let n = coordinate(v)
                    .ok_or_else(|| Error::location(at_least, format!("{what} must be a number")))?;
                if n >= 0.0 {
                    Ok(n)
                } else {
                    Err(Error::location(
                        at_least + 1,
                        format!("{what} must be non-negative"),
                    ))
                }
            };
            match e.name() {
                n if n == self.name => {
                    let (Value::Document(d) | Value::Array(d)) = operand else {
                        continue;
                    };
                    if d.first().is_some_and(|f| f.name().starts_with('$')) {
                        continue;
                    }
                    // The array can hold the greatest distance as its third element.
                    if let Value::Array(list) = operand
                        && list.count() == 3
                        && let Some(max) = list.values().nth(2).and_then(coordinate)
                        && let Ok(p) = legacy_pair(list, true)
                    {
                        if max < 0.0 || max.is_nan() {
                            return Err(Error::bad_value("max distance must be non-negative"));
                        }
                        self.max = max;
                        self.center = p;
                        found = true;
                        continue;
                    }
                    let Ok(p) = query_point(operand) else {
                        continue;
                    };
                    self.center = p;
                    self.spherical |= p.geojson;
                    found = true;
                }
                "$near" | "$nearSphere" | "$geoNear" => {
                    return Ok(false);
                }
                "$minDistance" => self.min = distance(16893, "$minDistance")?,
                "$maxDistance" => self.max = distance(16895, "$maxDistance")?,
                "$uniqueDocs" => {}
                other => {
                    return Err(Error::location(
                        34413,
                        format!("invalid argument in geo near query: {other}"),
                    ));
                }
            }
        }
        if found && self.spherical && !self.center.on_sphere() {
            return Err(Error::bad_value(
                "Legacy point is out of bounds for spherical query",
            ));
        }
        Ok(found)
    }

    /// Whether distances are in metres, which is so if they are measured from a GeoJSON point. Otherwise they
    /// are radians on the sphere, and in the unit of the coordinates in the plane.
    pub fn metres(&self) -> bool {
        self.spherical && self.center.geojson
    }

    /// The distance of a geometry; `None` if it has none. (In the plane, only a point has one.)
    ///
    /// # Errors
    /// What stops the operation.
    pub fn distance(&self, g: &Geometry, work: Work<'_>) -> Result<Option<f64>> {
        if !self.spherical {
            let from = &self.center;
            let distance = |p: &GeoPoint| (p.x - from.x).hypot(p.y - from.y);
            return Ok(g.as_point().map(distance));
        }
        if g.off_sphere || g.strict {
            return Ok(None);
        }
        // The radians are computed from metres, so that they are rounded as MongoDB rounds them.
        let metres = g.distance(self.center.vector(), work)? * EARTH_RADIUS;
        Ok(Some(match self.metres() {
            true => metres,
            false => metres / EARTH_RADIUS,
        }))
    }

    /// The distance of the nearest of the geometries at `path`, and that geometry.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn nearest<'a>(
        &self,
        doc: Doc<'a>,
        path: &Path,
        work: Work<'_>,
    ) -> Result<Option<(f64, Value<'a>)>> {
        let mut best: Option<(f64, Value<'a>)> = None;
        let mut consider = |v: Value<'a>| -> Result<bool> {
            let Some(g) = Geometry::stored(v, work)? else {
                return Ok(false);
            };
            if let Some(d) = self.distance(&g, work)?
                && best.as_ref().is_none_or(|(b, _)| d < *b)
            {
                best = Some((d, v));
            }
            Ok(true)
        };
        let mut result = Ok(());
        path::visit(doc, path.parts(), &mut |v, _| {
            let considered = match v {
                None => Ok(()),
                Some(v) => consider(v).and_then(|is_geometry| match v {
                    Value::Array(list) if !is_geometry => {
                        list.values().try_for_each(|v| consider(v).map(drop))
                    }
                    _ => Ok(()),
                }),
            };
            result = considered;
            result.is_err()
        });
        result.map(|()| best)
    }

    /// The angle of a distance on the sphere, in radians.
    fn angle(&self, distance: f64) -> f64 {
        if self.metres() {
            distance / EARTH_RADIUS
        } else {
            distance
        }
    }

    /// The greatest distance that is possible.
    pub fn farthest(&self, grid: Option<&Grid>) -> f64 {
        let all = match (self.spherical, grid) {
            (true, _) if self.metres() => PI * EARTH_RADIUS * 1.000_001,
            (true, _) => PI * 1.000_001,
            (false, Some(g)) => {
                let far = |v: f64| (v - g.min).abs().max((g.max - v).abs());
                far(self.center.x).hypot(far(self.center.y)) * 1.000_001
            }
            (false, None) => f64::INFINITY,
        };
        self.max.min(all)
    }

    /// The keys of a 2dsphere field that geometries between two distances can have.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn sphere_ring(&self, inner: f64, outer: f64, work: Work<'_>) -> Result<Vec<(i64, i64)>> {
        // The margin is for the rounding of distances.
        let (inner, outer) = (self.angle(inner), self.angle(outer));
        let ring = Ring {
            center: self.center.vector(),
            inner: inner - 1e-9,
            outer: outer + 1e-9,
        };
        let cells = covering(&ring, QUERY_CELLS, MAX_LEVEL, work)?;
        Ok(intervals(&cells, true))
    }

    /// The keys of a 2d field that points between two distances can have.
    pub fn plane_ring(&self, grid: &Grid, inner: f64, outer: f64) -> Vec<(u64, u64)> {
        let c = &self.center;
        if self.spherical {
            let (center, radius) = (c.vector(), self.angle(outer) + 1e-9);
            return grid.covering(&|s| with_cap(s, center, radius), QUERY_CELLS);
        }
        let slack = 1e-9 * (1.0 + outer);
        grid.covering(
            &|s| s.with_ring((c.x, c.y), inner - slack, outer + slack),
            QUERY_CELLS,
        )
    }
}

fn metres(v: Value<'_>, what: &str) -> Result<f64> {
    let n = coordinate(v).ok_or_else(|| Error::bad_value(format!("{what} must be a number")))?;
    if n >= 0.0 && n.is_finite() {
        return Ok(n);
    }
    Err(Error::bad_value(format!("{what} must be non-negative")))
}
