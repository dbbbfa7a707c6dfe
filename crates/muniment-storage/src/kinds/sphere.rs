//! 2dsphere: the cells of the sphere that a geometry covers.
//!
//! A point is the leaf cell that it lies in, any other geometry a covering of a few cells; both as the
//! signed 64-bit numbers that MongoDB stores in version 3. Plain fields multiply the keys: there is one
//! for every cell with every combination of their values. From version 2 on a document without any of
//! the geometries has no key.

use super::literal::{plain_values, values_at};
use super::{IndexKind, KindSpec, NearIndex, number_option};
use crate::catalog::IndexSpec;
use muniment_query::filter::Pred;
use muniment_query::geo::cover::{covering, divided};
use muniment_query::geo::{Geometry, NearQuery};
use muniment_query::running::Work;
use muniment_value::path::Path;
use muniment_value::{Code, Doc, Error, IndexKeys, Result, Value, ValueBuf};
use std::sync::Arc;

/// The most cells of a geometry, and their coarsest and finest levels: MongoDB's defaults.
const MAX_CELLS: usize = 20;
const COARSEST_LEVEL: u8 = 0;
const FINEST_LEVEL: u8 = 23;

/// The most keys of a document: MongoDB's limit.
const MAX_KEYS: usize = 100_000;

const VERSION: &str = "2dsphereIndexVersion";
const COARSEST: &str = "coarsestIndexedLevel";
const FINEST: &str = "finestIndexedLevel";

/// The specification.
pub(super) const SPEC: KindSpec = KindSpec {
    name: "2dsphere",
    doc: "Geometries on the sphere, for $geoWithin, $geoIntersects and $near.",
    options: &[VERSION, COARSEST, FINEST],
    prepare,
    open,
};

fn prepare(spec: &mut IndexSpec) -> Result<()> {
    let version = match number_option(spec, VERSION)? {
        None => 3,
        Some(v) => v.as_i64_exact().unwrap_or(0),
    };
    if !(1..=3).contains(&version) || spec.options.as_doc().get(VERSION).is_some_and(is_decimal) {
        return Err(Error::new(
            Code::CannotCreateIndex,
            format!(
                "unsupported geo index version {{ {VERSION}: {version} }}, only support versions: \
                 [1,2,3]"
            ),
        ));
    }
    super::set_option(spec, VERSION, version as i32);
    levels(spec).map(drop)
}

/// The levels between which the cells of an index are: (coarsest, finest).
///
/// # Errors
/// 16747, 16748, 16749 for numbers that are no levels; 2 BadValue for a fraction, 14 TypeMismatch.
fn levels(spec: &IndexSpec) -> Result<(u8, u8)> {
    let level = |name: &str, default: u8| match number_option(spec, name)? {
        None => Ok(i64::from(default)),
        Some(v) => v.as_i64_exact().ok_or_else(|| {
            Error::bad_value(format!(
                "Expected field \"{name}\" to have a value exactly representable as a 64-bit \
                 integer, but found {name}: {}",
                v.to_display()
            ))
        }),
    };
    let finest = level(FINEST, FINEST_LEVEL)?;
    let coarsest = level(COARSEST, COARSEST_LEVEL)?;
    if coarsest < 0 {
        return Err(Error::location(16747, "coarsestIndexedLevel must be >= 0"));
    }
    if finest > 30 {
        return Err(Error::location(16748, "finestIndexedLevel must be <= 30"));
    }
    if finest < coarsest {
        return Err(Error::location(
            16749,
            "finestIndexedLevel must be >= coarsestIndexedLevel",
        ));
    }
    Ok((coarsest as u8, finest as u8))
}

fn is_decimal(v: Value<'_>) -> bool {
    matches!(v, Value::Decimal128(_))
}

fn open(spec: &IndexSpec) -> Result<Arc<dyn IndexKind>> {
    let fields = spec
        .key
        .as_doc()
        .iter()
        .map(|e| Field {
            path: Path::new(e.name()),
            descending: crate::index::descending(e.value()),
            geo: e.value().as_str().is_some(),
        })
        .collect();
    let version = spec.options.as_doc().get(VERSION);
    Ok(Arc::new(Sphere {
        fields,
        version: version.and_then(|v| v.as_i64_exact()).unwrap_or(3),
        levels: levels(spec)?,
    }))
}

#[derive(Debug)]
struct Field {
    path: Path,
    descending: bool,
    geo: bool,
}

#[derive(Debug)]
struct Sphere {
    fields: Vec<Field>,
    version: i64,
    /// The coarsest and the finest level of cells for geometries other than points.
    levels: (u8, u8),
}

/// The values of one field of the keys.
enum Parts<'a> {
    Cells(Vec<i64>),
    Values(Vec<Value<'a>>),
}

impl Parts<'_> {
    fn len(&self) -> usize {
        match self {
            Parts::Cells(c) => c.len(),
            Parts::Values(v) => v.len(),
        }
    }
}

fn cannot_extract(doc: Doc<'_>, what: &str) -> Error {
    Error::location(
        16755,
        format!(
            "Can't extract geo keys: {}  {what}",
            Value::Document(doc).to_display()
        ),
    )
}

fn too_many_keys() -> Error {
    Error::new(
        Code::CannotBuildIndexKeys,
        format!("Index key generation exceeded the limit of {MAX_KEYS} keys for a document"),
    )
}

impl Sphere {
    /// The cells of the geometries at a field's path; `None` when there is none.
    fn cells(
        &self,
        doc: Doc<'_>,
        i: usize,
        field: &Field,
        out: &mut IndexKeys,
        work: Work<'_>,
    ) -> Result<Option<Vec<i64>>> {
        let mut found = Vec::new();
        values_at(doc, &field.path, i, out, &mut found);
        if let [one] = found.as_slice() {
            let nothing = match one {
                Value::Null | Value::Undefined => true,
                Value::Document(d) | Value::Array(d) => d.is_empty(),
                _ => false,
            };
            if nothing && self.version >= 2 {
                return Ok(None);
            }
        }
        if found.is_empty() {
            return Ok(None);
        }
        let last = field.path.parts().len().saturating_sub(1);
        let mut cells = Vec::new();
        for v in found {
            let g = Geometry::from_storage(v, work);
            let g = g.map_err(|e| e.into_error(|what| cannot_extract(doc, &what)))?;
            if g.strict {
                return Err(cannot_extract(
                    doc,
                    "can't index geometry with strict winding order",
                ));
            }
            if g.off_sphere {
                return Err(cannot_extract(doc, "longitude/latitude is out of bounds"));
            }
            match g.points.as_slice() {
                [(_, spot)] if g.single_point => cells.push(spot.leaf().0 as i64),
                _ => {
                    let (coarsest, finest) = self.levels;
                    let around = covering(&g, MAX_CELLS, finest, work)?;
                    let all = divided(around, &g, coarsest, MAX_KEYS, work)?;
                    let all = all.ok_or_else(too_many_keys)?;
                    cells.extend(all.into_iter().map(|c| c.0 as i64));
                }
            }
        }
        if cells.len() > 1 {
            out.mark_multikey(i, last);
        }
        Ok(Some(cells))
    }
}

impl IndexKind for Sphere {
    fn name(&self) -> &'static str {
        SPEC.name
    }

    fn keys(&self, doc: Doc<'_>, out: &mut IndexKeys, work: Work<'_>) -> Result<()> {
        out.begin(self.fields.len());
        let mut parts = Vec::with_capacity(self.fields.len());
        let mut some_geo = false;
        for (i, field) in self.fields.iter().enumerate() {
            if field.geo {
                let cells = self.cells(doc, i, field, out, work)?;
                some_geo |= cells.is_some();
                parts.push(match cells {
                    Some(c) => Parts::Cells(c),
                    None => Parts::Values(vec![Value::Null]),
                });
            } else {
                let mut values = Vec::new();
                plain_values(doc, &field.path, i, out, &mut values);
                parts.push(Parts::Values(values));
            }
        }
        if !some_geo && self.version >= 2 {
            out.begin(self.fields.len());
            return Ok(());
        }
        let total = parts.iter().fold(1usize, |n, p| n.saturating_mul(p.len()));
        if total > MAX_KEYS {
            return Err(too_many_keys());
        }
        for mut n in 0..total {
            for (field, part) in self.fields.iter().zip(&parts) {
                let len = part.len().max(1);
                let at = n % len;
                n /= len;
                match part {
                    Parts::Cells(c) => {
                        out.push(Value::Int64(c.get(at).copied().unwrap_or(0)), false);
                    }
                    Parts::Values(v) => {
                        let v = v.get(at).copied().unwrap_or(Value::Null);
                        out.push(v, field.descending);
                    }
                }
            }
            out.end_key()?;
        }
        out.finish();
        Ok(())
    }

    fn transforms(&self, field: usize) -> bool {
        self.fields.get(field).is_some_and(|f| f.geo)
    }

    fn bounds(&self, field: usize, pred: &Pred) -> Option<Vec<(ValueBuf, ValueBuf)>> {
        let Pred::Other(op) = pred else {
            return None;
        };
        if !self.transforms(field) {
            return None;
        }
        Some(as_values(op.geo()?.sphere_intervals()?))
    }

    fn needs_cover(&self) -> bool {
        true
    }

    fn leaves_out(&self) -> bool {
        self.version >= 2
    }

    fn near(&self) -> Option<&dyn NearIndex> {
        Some(self)
    }
}

impl NearIndex for Sphere {
    fn stage(&self) -> &'static str {
        "GEO_NEAR_2DSPHERE"
    }

    fn serves(&self, field: usize, near: &NearQuery) -> bool {
        near.spherical && self.transforms(field)
    }

    fn farthest(&self, near: &NearQuery) -> f64 {
        near.farthest(None)
    }

    fn ring(
        &self,
        near: &NearQuery,
        inner: f64,
        outer: f64,
        work: Work<'_>,
    ) -> Result<Vec<(ValueBuf, ValueBuf)>> {
        let ring = near.sphere_ring(inner, outer, work)?;
        Ok(as_values(&ring))
    }
}

fn as_values(list: &[(i64, i64)]) -> Vec<(ValueBuf, ValueBuf)> {
    let value = |cell: i64| ValueBuf::new(Value::Int64(cell));
    list.iter().map(|(a, b)| (value(*a), value(*b))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::DocBuf;

    fn index(key: &str) -> Arc<dyn IndexKind> {
        let d = DocBuf::from_json(&format!("{{\"name\": \"x\", \"key\": {key}}}")).unwrap();
        let spec = IndexSpec::parse(d.as_doc()).unwrap();
        assert!(matches!(
            spec.document.as_doc().get(VERSION),
            Some(Value::Int32(3))
        ));
        open(&spec).unwrap()
    }

    fn keys(index: &dyn IndexKind, json: &str) -> Result<(usize, bool)> {
        let mut out = IndexKeys::new();
        index.keys(
            DocBuf::from_json(json).unwrap().as_doc(),
            &mut out,
            Work::unasked(),
        )?;
        Ok((out.len(), out.is_multikey()))
    }

    #[test]
    fn cells_lie_between_the_levels() {
        let with = |options: &str| {
            let json = format!(r#"{{"name": "x", "key": {{"a": "2dsphere"}}, {options}}}"#);
            let spec = IndexSpec::parse(DocBuf::from_json(&json).unwrap().as_doc())?;
            open(&spec)
        };
        let line = r#"{"a": {"type": "LineString", "coordinates": [[0, 0], [3, 0.5]]}}"#;
        let cells = |options: &str| keys(&*with(options).unwrap(), line).unwrap().0;
        // There are fewer cells if they may not be small, and more if they may not be large.
        assert!(cells(r#""finestIndexedLevel": 3"#) <= 6);
        assert!(cells(r#""coarsestIndexedLevel": 12"#) > 50);
        let code = |options: &str| with(options).err().unwrap().code();
        assert_eq!(code(r#""coarsestIndexedLevel": -1"#), Code(16747));
        assert_eq!(code(r#""finestIndexedLevel": 31"#), Code(16748));
        assert_eq!(code(r#""coarsestIndexedLevel": 24"#), Code(16749));
        assert_eq!(code(r#""finestIndexedLevel": "a""#), Code::TypeMismatch);
        assert_eq!(code(r#""finestIndexedLevel": 1.5"#), Code::BadValue);
        let deep = with(r#""coarsestIndexedLevel": 30, "finestIndexedLevel": 30"#).unwrap();
        assert_eq!(
            keys(&*deep, line).unwrap_err().code(),
            Code::CannotBuildIndexKeys
        );
    }

    #[test]
    fn documents_have_the_keys_of_their_cells() {
        let one = index(r#"{"a": "2dsphere"}"#);
        let two = index(r#"{"a": "2dsphere", "b": 1}"#);
        let point = r#"{"type": "Point", "coordinates": [1, 2]}"#;
        for (json, want) in [
            (r#"{"a": [1, 2]}"#.to_string(), (1, false)),
            (format!(r#"{{"a": {point}}}"#), (1, false)),
            ("{}".to_string(), (0, false)),
            (r#"{"a": null, "b": 5}"#.to_string(), (0, false)),
            (r#"{"a": []}"#.to_string(), (0, false)),
        ] {
            assert_eq!(keys(&*one, &json).unwrap(), want, "{json}");
        }
        let (n, multikey) = keys(&*two, &format!(r#"{{"a": {point}, "b": [1, 2, 3]}}"#)).unwrap();
        assert_eq!((n, multikey), (3, true));
        let line = r#"{"a": {"type": "LineString", "coordinates": [[0, 0], [20, 30]]}}"#;
        let (n, multikey) = keys(&*one, line).unwrap();
        assert!(n > 1 && n <= MAX_CELLS && multikey);
        for bad in [
            r#"{"a": "x"}"#,
            r#"{"a": 5}"#,
            r#"{"a": [200, 0]}"#,
            r#"{"a": {"type": "Point"}}"#,
            r#"{"a": [{"type": "Point", "coordinates": [0, 0]}]}"#,
        ] {
            assert_eq!(keys(&*one, bad).unwrap_err().code(), Code(16755), "{bad}");
        }
    }
}
