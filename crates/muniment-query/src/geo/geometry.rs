//! GeoJSON geometries and legacy coordinate pairs, as documents and queries hold them.
//!
//! Every geometry is a list of points, lines and polygons. A collection is one flat list: it is within
//! something if all its parts are, and it meets something if any of its parts does. Errors describe the fault
//! without a code, because the code depends on the caller: a query answers 2 BadValue, an index 16755, and a
//! match simply fails.

use super::sphere::{Fault, Line, Loop, Polygon, Spot};
use super::vector::V3;
use super::{all, any};
use crate::running::Work;
use muniment_value::{Doc, Error, Value, number};

/// The name of the coordinate reference system in which polygons may be larger than half the sphere and the
/// winding determines the inside.
const STRICT: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";
/// The names of the usual coordinate reference system.
const USUAL: [&str; 2] = ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"];

/// The deepest nesting of collections.
const MAX_DEPTH: usize = 8;

/// A description of the fault of a geometry.
pub type Wrong = String;

/// Why there is no geometry.
#[derive(Clone, Debug)]
pub enum Refused {
    /// What is wrong with it.
    Wrong(Wrong),
    /// The operation had to stop before that was known.
    Stopped(Error),
}

impl Refused {
    /// The error of a command; `wrong` makes it of what is wrong.
    pub fn into_error(self, wrong: impl FnOnce(Wrong) -> Error) -> Error {
        match self {
            Refused::Wrong(what) => wrong(what),
            Refused::Stopped(e) => e,
        }
    }
}

impl From<Wrong> for Refused {
    fn from(what: Wrong) -> Refused {
        Refused::Wrong(what)
    }
}

impl From<&str> for Refused {
    fn from(what: &str) -> Refused {
        Refused::Wrong(what.into())
    }
}

impl From<Error> for Refused {
    fn from(e: Error) -> Refused {
        Refused::Stopped(e)
    }
}

/// A point as it was written.
#[derive(Clone, Copy, Debug)]
pub struct GeoPoint {
    /// Longitude, or x.
    pub x: f64,
    /// Latitude, or y.
    pub y: f64,
    /// True if it is from GeoJSON, and so on the sphere. A legacy pair may be on the sphere or in the plane.
    pub geojson: bool,
}

impl GeoPoint {
    /// Whether it is a place on the sphere, which a legacy pair need not be.
    pub fn on_sphere(&self) -> bool {
        self.x.abs() <= 180.0 && self.y.abs() <= 90.0
    }

    /// The place on the sphere.
    pub fn vector(&self) -> V3 {
        V3::from_degrees(self.x, self.y)
    }
}

/// A geometry.
#[derive(Clone, Debug, Default)]
pub struct Geometry {
    /// Points.
    pub points: Vec<(GeoPoint, Spot)>,
    /// Lines.
    pub lines: Vec<Line>,
    /// Polygons.
    pub polygons: Vec<Polygon>,
    /// True for a polygon in the strict winding system.
    pub strict: bool,
    /// True if the geometry is a single point, and not a collection of one.
    pub single_point: bool,
    /// True if it is a legacy pair out of the sphere's range.
    pub off_sphere: bool,
}

impl Geometry {
    fn of_point(p: GeoPoint) -> Geometry {
        Geometry {
            points: vec![(p, Spot::new(p.vector()))],
            single_point: true,
            off_sphere: !p.on_sphere(),
            ..Geometry::default()
        }
    }

    /// The point, if the geometry is a single point.
    pub fn as_point(&self) -> Option<&GeoPoint> {
        match self.points.as_slice() {
            [(p, _)] if self.single_point => Some(p),
            _ => None,
        }
    }

    /// Whether the two geometries have a point in common.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn meets(&self, other: &Geometry, work: Work<'_>) -> Result<bool, Error> {
        let one = |a: &Geometry, b: &Geometry| {
            let on_point = any(&a.points, |(_, p)| {
                Ok(any(&b.lines, |l| l.has(p, work))? || any(&b.polygons, |g| g.has(p, work))?)
            });
            Ok::<_, Error>(
                on_point? || any(&a.lines, |l| any(&b.polygons, |g| g.meets_line(l, work)))?,
            )
        };
        Ok(one(self, other)?
            || one(other, self)?
            || any(&self.points, |(_, p)| {
                work.steps(other.points.len())?;
                Ok(other.points.iter().any(|(_, q)| p.meets(q)))
            })?
            || any(&self.lines, |l| any(&other.lines, |m| l.meets(m, work)))?
            || any(&self.polygons, |g| {
                any(&other.polygons, |h| g.meets_polygon(h, work))
            })?)
    }

    /// Whether all of `other` lies in the polygons of this geometry. Each part must lie in a single polygon.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn contains(&self, other: &Geometry, work: Work<'_>) -> Result<bool, Error> {
        let among = &self.polygons;
        Ok(all(&other.points, |(_, p)| any(among, |g| g.has(p, work)))?
            && all(&other.lines, |l| any(among, |g| g.has_line(l, work)))?
            && all(&other.polygons, |h| any(among, |g| g.has_polygon(h, work)))?)
    }

    /// The angle in radians between a point and the nearest part of the geometry.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn distance(&self, p: V3, work: Work<'_>) -> Result<f64, Error> {
        let mut least = f64::INFINITY;
        for (_, s) in &self.points {
            least = least.min(s.p.angle(p));
        }
        for l in &self.lines {
            least = least.min(l.distance(p, work)?);
        }
        for g in &self.polygons {
            least = least.min(g.distance(p, work)?);
        }
        Ok(least)
    }

    /// The geometry that a document holds; `None` if the value is none.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn stored(v: Value<'_>, work: Work<'_>) -> Result<Option<Geometry>, Error> {
        match Geometry::from_storage(v, work) {
            Ok(g) => Ok(Some(g)),
            Err(Refused::Wrong(_)) => Ok(None),
            Err(Refused::Stopped(e)) => Err(e),
        }
    }

    /// Reads a geometry from a stored document: GeoJSON, or a legacy pair, which more elements may follow.
    ///
    /// # Errors
    /// What is wrong with it, or stops the operation.
    pub fn from_storage(v: Value<'_>, work: Work<'_>) -> Result<Geometry, Refused> {
        let (Value::Document(d) | Value::Array(d)) = v else {
            return Err("geo element must be an array or object".into());
        };
        if let Value::Document(d) = v
            && d.get("type").is_some_and(|t| t.as_str().is_some())
        {
            return geojson(d, 0, work);
        }
        Ok(Geometry::of_point(legacy_pair(d, true)?))
    }

    /// Reads a query's `$geometry`: GeoJSON, or a legacy pair.
    ///
    /// # Errors
    /// What is wrong with it, or stops the operation.
    pub fn from_query(v: Value<'_>, work: Work<'_>) -> Result<Geometry, Refused> {
        match v {
            Value::Document(d) if d.get("type").is_some() => geojson(d, 0, work),
            Value::Document(d) | Value::Array(d) => {
                let p = legacy_pair(d, false)?;
                if !p.on_sphere() {
                    return Err(out_of_bounds(&p).into());
                }
                Ok(Geometry::of_point(p))
            }
            _ => Err("geometry must be an array or object".into()),
        }
    }
}

/// Reads the point from which a query measures: GeoJSON, or a legacy pair.
///
/// # Errors
/// A description of its fault.
pub fn query_point(v: Value<'_>) -> Result<GeoPoint, Wrong> {
    let (Value::Document(d) | Value::Array(d)) = v else {
        return Err("Point must be an array or object".to_string());
    };
    let geojson = matches!(v, Value::Document(_))
        && (d.get("type").is_some() || d.get("coordinates").is_some());
    if !geojson {
        return legacy_pair(d, false);
    }
    // The type may be absent.
    if d.get("type").is_some_and(|t| t.as_str() != Some("Point")) {
        return Err(format!("Point expected: {}", v.to_display()));
    }
    crs(d, false)?;
    match d.get("coordinates") {
        Some(c) => position(c),
        None => Err(format!("Point must have coordinates: {}", v.to_display())),
    }
}

/// The value, if it is a finite number.
pub fn coordinate(v: Value<'_>) -> Option<f64> {
    if !v.is_number() {
        return None;
    }
    number::to_f64(v)
}

/// Reads a legacy pair: the first two elements of an array or document.
///
/// # Errors
/// A description of its fault.
pub fn legacy_pair(d: Doc<'_>, more_allowed: bool) -> Result<GeoPoint, Wrong> {
    let mut values = d.values();
    let (Some(x), Some(y)) = (values.next(), values.next()) else {
        return Err(format!(
            "Point must contain exactly two numbers: {}",
            Value::Array(d).to_display()
        ));
    };
    let (Some(x), Some(y)) = (coordinate(x), coordinate(y)) else {
        return Err(format!(
            "Point must only contain numeric elements: {}",
            Value::Array(d).to_display()
        ));
    };
    if !more_allowed && values.next().is_some() {
        return Err(format!(
            "Point must only contain two elements: {}",
            Value::Array(d).to_display()
        ));
    }
    if !x.is_finite() || !y.is_finite() {
        return Err(format!(
            "Point coordinates must be finite numbers: {}",
            Value::Array(d).to_display()
        ));
    }
    Ok(GeoPoint {
        x,
        y,
        geojson: false,
    })
}

fn out_of_bounds(p: &GeoPoint) -> Wrong {
    format!(
        "Longitude/latitude is out of bounds, lng: {} lat: {}",
        p.x, p.y
    )
}

fn show(v: Option<Value<'_>>) -> String {
    v.map_or_else(|| "EOO".to_string(), |v| v.to_display())
}

/// Reads a position: an array (or object) that begins with two numbers, which more may follow.
fn position(v: Value<'_>) -> Result<GeoPoint, Wrong> {
    let (Value::Array(d) | Value::Document(d)) = v else {
        return Err(format!(
            "GeoJSON coordinates must be an array: {}",
            v.to_display()
        ));
    };
    let mut p = legacy_pair(d, true)?;
    p.geojson = true;
    if !p.on_sphere() {
        return Err(out_of_bounds(&p));
    }
    Ok(p)
}

fn array(v: Option<Value<'_>>) -> Result<Doc<'_>, Wrong> {
    match v {
        Some(Value::Array(a)) => Ok(a),
        other => Err(format!(
            "GeoJSON coordinates must be an array of coordinates: {}",
            show(other)
        )),
    }
}

/// Reads the positions of a line or ring, and drops a position that is equal to the one before it.
fn positions(v: Option<Value<'_>>) -> Result<Vec<V3>, Wrong> {
    let mut out: Vec<V3> = Vec::new();
    for v in array(v)?.values() {
        let p = position(v)?.vector();
        if out.last() != Some(&p) {
            out.push(p);
        }
    }
    Ok(out)
}

fn line(v: Option<Value<'_>>) -> Result<Line, Wrong> {
    let points = positions(v)?;
    if points.len() < 2 {
        return Err(format!(
            "GeoJSON LineString must have at least 2 vertices: {}",
            show(v)
        ));
    }
    Ok(Line::new(points))
}

fn ring(v: Value<'_>, work: Work<'_>) -> Result<Loop, Refused> {
    let shown = || v.to_display();
    let mut points = positions(Some(v))?;
    if points.is_empty() || points.first() != points.last() || points.len() < 2 {
        return Err(format!("Loop is not closed: {}", shown()).into());
    }
    points.pop();
    Loop::new(points, work).map_err(|fault| {
        Refused::Wrong(match fault {
            Fault::TooFew => format!("Loop must have at least 3 different vertices: {}", shown()),
            Fault::Duplicate => format!("Loop is not valid: {} Duplicate vertices", shown()),
            Fault::Crossing => format!("Loop is not valid: {} Edges cross", shown()),
            Fault::Stopped(e) => return Refused::Stopped(e),
        })
    })
}

fn polygon(v: Option<Value<'_>>, strict: bool, work: Work<'_>) -> Result<Polygon, Refused> {
    let rings = array(v)?;
    let mut loops = Vec::new();
    for r in rings.values() {
        loops.push(ring(r, work)?);
    }
    let mut loops = loops.into_iter();
    let Some(shell) = loops.next() else {
        return Err("Polygon has no loops.".into());
    };
    let holes: Vec<Loop> = loops.collect();
    if strict {
        if !holes.is_empty() {
            return Err(format!(
                "Only one simple loop is allowed in a big polygon: {}",
                show(v)
            )
            .into());
        }
        return Ok(Polygon::big(shell));
    }
    Polygon::new(shell, holes, work)?.ok_or_else(|| {
        Refused::Wrong(format!(
            "Secondary loops not contained by first exterior loop - secondary loops must be \
             holes: {}",
            show(v)
        ))
    })
}

/// Reads the coordinate reference system. The result is true for strict winding.
fn crs(d: Doc<'_>, strict_allowed: bool) -> Result<bool, Wrong> {
    let Some(crs) = d.get("crs") else {
        return Ok(false);
    };
    let Value::Document(crs) = crs else {
        return Err("GeoJSON CRS must be an object".to_string());
    };
    if crs.get_str("type") != Some("name") {
        return Err("GeoJSON CRS must have field \"type\": \"name\"".to_string());
    }
    let Some(properties) = crs.get_doc("properties") else {
        return Err("CRS must have field \"properties\" which is an object".to_string());
    };
    let Some(name) = properties.get_str("name") else {
        return Err("In CRS, \"properties.name\" must be a string".to_string());
    };
    if USUAL.contains(&name) {
        return Ok(false);
    }
    if name != STRICT {
        return Err(format!("Unknown CRS name: {name}"));
    }
    if !strict_allowed {
        return Err("Strict winding order CRS is only supported by Polygon".to_string());
    }
    Ok(true)
}

/// Reads GeoJSON. The recursion is bounded by [`MAX_DEPTH`].
fn geojson(d: Doc<'_>, depth: usize, work: Work<'_>) -> Result<Geometry, Refused> {
    let mut g = Geometry::default();
    let kind = d.get_str("type").unwrap_or_default();
    let strict = crs(d, kind == "Polygon")?;
    let coordinates = d.get("coordinates");
    let each = |f: &mut dyn FnMut(Value<'_>) -> Result<(), Refused>| {
        let items = array(coordinates)?;
        if items.is_empty() {
            return Err(format!("{kind} coordinates must have at least 1 element").into());
        }
        items.values().try_for_each(f)
    };
    match kind {
        "Point" => {
            let v = coordinates.ok_or("Point must have coordinates")?;
            g = Geometry::of_point(position(v)?);
        }
        "LineString" => g.lines.push(line(coordinates)?),
        "Polygon" => {
            g.polygons.push(polygon(coordinates, strict, work)?);
            g.strict = strict;
        }
        "MultiPoint" => each(&mut |v| {
            let p = position(v)?;
            g.points.push((p, Spot::new(p.vector())));
            Ok(())
        })?,
        "MultiLineString" => each(&mut |v| {
            g.lines.push(line(Some(v))?);
            Ok(())
        })?,
        "MultiPolygon" => each(&mut |v| {
            g.polygons.push(polygon(Some(v), false, work)?);
            Ok(())
        })?,
        "GeometryCollection" => {
            if depth >= MAX_DEPTH {
                return Err("GeometryCollections nest too deeply".into());
            }
            let Some(Value::Array(parts)) = d.get("geometries") else {
                return Err("GeometryCollection geometries must be an array".into());
            };
            if parts.is_empty() {
                return Err("GeometryCollection geometries must have at least 1 element".into());
            }
            for part in parts.values() {
                let Value::Document(part) = part else {
                    return Err("Element of \"geometries\" must be an object".into());
                };
                if part.get_str("type") == Some("GeometryCollection") {
                    return Err("GeometryCollections cannot be nested".into());
                }
                let one = geojson(part, depth + 1, work)?;
                g.points.extend(one.points);
                g.lines.extend(one.lines);
                g.polygons.extend(one.polygons);
                g.strict |= one.strict;
            }
        }
        other => return Err(format!("unknown GeoJSON type: {other}").into()),
    }
    Ok(g)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::DocBuf;

    fn stored(json: &str) -> Result<Geometry, Refused> {
        let d = DocBuf::from_json(&format!("{{\"v\": {json}}}")).unwrap();
        Geometry::from_storage(d.as_doc().get("v").unwrap(), Work::unasked())
    }

    #[test]
    fn table_test() {
        for (json, parts) in [
            ("[1, 2]", [1, 0, 0]),
            ("[1, 2, 3]", [1, 0, 0]),
            (r#"{"lng": 1, "lat": 2}"#, [1, 0, 0]),
            (r#"{"type": "Point", "coordinates": [1, 2, 7]}"#, [1, 0, 0]),
            (
                r#"{"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}"#,
                [2, 0, 0],
            ),
            (
                r#"{"type": "LineString", "coordinates": [[1, 2], [3, 4]]}"#,
                [0, 1, 0],
            ),
            (
                r#"{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}"#,
                [0, 0, 1],
            ),
            (
                r#"{"type": "GeometryCollection", "geometries": [
                    {"type": "Point", "coordinates": [1, 2]},
                    {"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]]]}]}"#,
                [1, 1, 0],
            ),
        ] {
            let g = stored(json).unwrap();
            assert_eq!(
                [g.points.len(), g.lines.len(), g.polygons.len()],
                parts,
                "{json}"
            );
        }
        for json in [
            "5",
            "[1]",
            r#"["a", 2]"#,
            "{}",
            r#"{"type": "Point", "coordinates": [181, 0]}"#,
            r#"{"type": "Point", "coordinates": [0, 90.5]}"#,
            r#"{"type": "Point"}"#,
            r#"{"type": "point", "coordinates": [0, 0]}"#,
            r#"{"type": "LineString", "coordinates": [[1, 2], [1, 2]]}"#,
            r#"{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}"#,
            r#"{"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}"#,
            r#"{"type": "MultiPoint", "coordinates": []}"#,
            r#"{"type": "GeometryCollection", "geometries": []}"#,
            r#"{"type": "Point", "coordinates": [0, 0], "crs": {"type": "name", "properties": {"name": "x"}}}"#,
        ] {
            assert!(stored(json).is_err(), "{json}");
        }
    }
}
