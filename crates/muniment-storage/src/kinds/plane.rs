//! 2d: the grid cells of legacy coordinate pairs.
//!
//! The location must be the first field. A document has a key for each of its locations, and none
//! without one. The key is the cell's hash as eight bytes. Fields after it hold the value at their path
//! (several values as one array) and give no bounds.

use super::literal::values_at;
use super::{IndexKind, KindSpec, NearIndex, number_option, set_option};
use crate::catalog::IndexSpec;
use muniment_query::filter::Pred;
use muniment_query::geo::NearQuery;
use muniment_query::geo::geometry::coordinate;
use muniment_query::geo::plane::Grid;
use muniment_query::running::Work;
use muniment_value::path::Path;
use muniment_value::{ArrayBuf, Code, Doc, Error, IndexKeys, Result, Value, ValueBuf};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: KindSpec = KindSpec {
    name: "2d",
    doc: "Legacy coordinate pairs in the plane, for $geoWithin and $near.",
    options: &["bits", "max", "min"],
    prepare,
    open,
};

/// The subtype by which a hash differs from other binary data.
const SUBTYPE: u8 = 128;

fn invalid(what: String) -> Error {
    Error::new(Code::InvalidOptions, what)
}

fn prepare(spec: &mut IndexSpec) -> Result<()> {
    super::refuse_collation(spec, SPEC.name)?;
    let bits = number_option(spec, "bits")?;
    let number = |v: Option<Value<'_>>, default: f64| v.map_or(Some(default), coordinate);
    let min = number(number_option(spec, "min")?, -180.0).unwrap_or(f64::NAN);
    let max = number(number_option(spec, "max")?, 180.0).unwrap_or(f64::NAN);
    let bits = match bits {
        None => 26,
        Some(Value::Decimal128(_)) => 0,
        Some(v) => coordinate(v).map_or(0, |b| b as i64),
    };
    if !(1..=32).contains(&bits) {
        return Err(invalid(format!(
            "bits for hash must be > 0 and <= 32, but {bits} bits were specified"
        )));
    }
    let area = max - min;
    if !(area > 0.0 && area.is_finite()) {
        return Err(invalid(format!(
            "region for hash must be valid and have positive area, but [{min}, {max}] was specified"
        )));
    }
    let special = |e: &muniment_value::Elem<'_>| e.value().as_str().is_some();
    let key = spec.key.as_doc();
    if key.iter().filter(special).count() > 1 {
        return Err(Error::location(16800, "can't have 2 geo fields"));
    }
    if !key.first().is_some_and(|e| special(&e)) {
        return Err(Error::location(16801, "2d has to be first in index"));
    }
    let given = spec.options.clone();
    let given = |name: &str| given.as_doc().get(name).is_some();
    if given("bits") {
        set_option(spec, "bits", bits as i32);
    }
    for (name, value) in [("min", min), ("max", max)] {
        if given(name) {
            set_option(spec, name, value);
        }
    }
    Ok(())
}

fn open(spec: &IndexSpec) -> Result<Arc<dyn IndexKind>> {
    let options = spec.options.as_doc();
    let number =
        |name: &str, default: f64| options.get(name).and_then(coordinate).unwrap_or(default);
    Ok(Arc::new(Plane {
        fields: spec
            .key
            .as_doc()
            .iter()
            .map(|e| (Path::new(e.name()), crate::index::descending(e.value())))
            .collect(),
        grid: Grid {
            bits: number("bits", 26.0) as u32,
            min: number("min", -180.0),
            max: number("max", 180.0),
        },
    }))
}

#[derive(Debug)]
struct Plane {
    fields: Vec<(Path, bool)>,
    grid: Grid,
}

impl Plane {
    fn hash(&self, location: Doc<'_>) -> Result<u64> {
        let mut values = location.values();
        let (Some(x), Some(y)) = (values.next(), values.next()) else {
            return Err(Error::location(13067, "geo field has only 1 element"));
        };
        let (Some(x), Some(y)) = (coordinate(x), coordinate(y)) else {
            return Err(Error::location(
                13026,
                format!(
                    "geo values must be 'legacy coordinate pairs' for 2d indexes: {}",
                    Value::Document(location).to_display()
                ),
            ));
        };
        self.grid.hash(x, y).ok_or_else(|| {
            Error::location(
                13027,
                format!(
                    "point not in interval of [ {}, {} ] :: caused by :: {}",
                    self.grid.min,
                    self.grid.max,
                    Value::Document(location).to_display()
                ),
            )
        })
    }
}

impl IndexKind for Plane {
    fn name(&self) -> &'static str {
        SPEC.name
    }

    fn keys(&self, doc: Doc<'_>, out: &mut IndexKeys, _: Work<'_>) -> Result<()> {
        out.begin(self.fields.len());
        let Some((path, _)) = self.fields.first() else {
            return Ok(());
        };
        let mut found = Vec::new();
        values_at(doc, path, 0, out, &mut found);
        let mut hashes = Vec::new();
        for v in found {
            let (Value::Document(d) | Value::Array(d)) = v else {
                continue;
            };
            // The array is either a location itself or an array of locations.
            match d.values().next() {
                None => {}
                Some(first) if first.is_number() => hashes.push(self.hash(d)?),
                Some(_) => {
                    for location in d.values() {
                        let (Value::Document(l) | Value::Array(l)) = location else {
                            return Err(Error::location(
                                13654,
                                format!(
                                    "location object expected, location array not in correct \
                                     format: {}",
                                    v.to_display()
                                ),
                            ));
                        };
                        hashes.push(self.hash(l)?);
                    }
                }
            }
        }
        if hashes.len() > 1 {
            out.mark_multikey(0, path.parts().len().saturating_sub(1));
        }
        let mut others = Vec::new();
        for (i, (path, descending)) in self.fields.iter().enumerate().skip(1) {
            let mut found = Vec::new();
            values_at(doc, path, i, out, &mut found);
            let value = match found.as_slice() {
                [] => ValueBuf::new(Value::Null),
                [one] => ValueBuf::new(*one),
                many => {
                    let all: ArrayBuf = many.iter().copied().collect();
                    ValueBuf::new(all)
                }
            };
            others.push((value, *descending));
        }
        for hash in hashes {
            out.push(
                Value::Binary {
                    subtype: SUBTYPE,
                    bytes: &hash.to_be_bytes(),
                },
                false,
            );
            for (v, descending) in &others {
                out.push(v.as_value(), *descending);
            }
            out.end_key()?;
        }
        out.finish();
        Ok(())
    }

    /// This holds for every field: those after the location are not like a plain index's either.
    fn transforms(&self, _: usize) -> bool {
        true
    }

    fn bounds(&self, field: usize, pred: &Pred) -> Option<Vec<(ValueBuf, ValueBuf)>> {
        match pred {
            Pred::Other(op) if field == 0 => {
                Some(as_values(op.geo()?.plane_intervals(&self.grid)?))
            }
            _ => None,
        }
    }

    fn near(&self) -> Option<&dyn NearIndex> {
        Some(self)
    }
}

impl NearIndex for Plane {
    fn stage(&self) -> &'static str {
        "GEO_NEAR_2D"
    }

    fn serves(&self, field: usize, near: &NearQuery) -> bool {
        field == 0 && !near.center.geojson
    }

    fn check(&self, near: &NearQuery) -> Result<()> {
        let (x, y) = (near.center.x, near.center.y);
        match self.grid.hash(x, y) {
            Some(_) => Ok(()),
            None => Err(Error::location(
                16433,
                format!(
                    "point ({x}, {y}) of a geo near query is not in the interval of [ {}, {} ]",
                    self.grid.min, self.grid.max
                ),
            )),
        }
    }

    fn farthest(&self, near: &NearQuery) -> f64 {
        near.farthest(Some(&self.grid))
    }

    fn ring(
        &self,
        near: &NearQuery,
        inner: f64,
        outer: f64,
        _: Work<'_>,
    ) -> Result<Vec<(ValueBuf, ValueBuf)>> {
        Ok(as_values(near.plane_ring(&self.grid, inner, outer)))
    }
}

fn as_values(list: Vec<(u64, u64)>) -> Vec<(ValueBuf, ValueBuf)> {
    let value = |h: u64| {
        ValueBuf::new(Value::Binary {
            subtype: SUBTYPE,
            bytes: &h.to_be_bytes(),
        })
    };
    list.into_iter()
        .map(|(a, b)| (value(a), value(b)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::DocBuf;

    fn index(spec: &str) -> Result<Arc<dyn IndexKind>> {
        let d = DocBuf::from_json(&format!("{{\"name\": \"x\", {spec}}}")).unwrap();
        open(&IndexSpec::parse(d.as_doc())?)
    }

    #[test]
    fn documents_have_a_key_for_each_location() {
        let one = index(r#""key": {"a": "2d", "b": 1}"#).unwrap();
        let keys = |json: &str| {
            let mut out = IndexKeys::new();
            one.keys(
                DocBuf::from_json(json).unwrap().as_doc(),
                &mut out,
                Work::unasked(),
            )
            .map(|()| (out.len(), out.is_multikey()))
        };
        for (json, want) in [
            (r#"{"a": [1, 2]}"#, (1, false)),
            (r#"{"a": {"lng": 1, "lat": 2}, "b": [1, 2]}"#, (1, false)),
            (r#"{"a": [[1, 2], [3, 4]]}"#, (2, true)),
            (r#"{"a": null}"#, (0, false)),
            ("{}", (0, false)),
            (r#"{"a": [180, -180]}"#, (1, false)),
        ] {
            assert_eq!(keys(json).unwrap(), want, "{json}");
        }
        for (json, code) in [
            (r#"{"a": [181, 0]}"#, 13027),
            (r#"{"a": [1]}"#, 13067),
            (r#"{"a": [1, "x"]}"#, 13026),
            (r#"{"a": {"type": "Point", "coordinates": [0, 0]}}"#, 13654),
        ] {
            assert_eq!(keys(json).unwrap_err().code(), Code(code), "{json}");
        }
    }

    #[test]
    fn options_are_checked() {
        assert!(index(r#""key": {"a": "2d"}, "bits": 32, "min": -500, "max": 500"#).is_ok());
        for (spec, code) in [
            (r#""key": {"a": "2d"}, "bits": 0"#, 72),
            (r#""key": {"a": "2d"}, "bits": 33"#, 72),
            (r#""key": {"a": "2d"}, "min": 5, "max": 5"#, 72),
            (r#""key": {"a": "2d"}, "min": "x""#, 14),
            (r#""key": {"b": 1, "a": "2d"}"#, 16801),
            (r#""key": {"b": "2d", "a": "2d"}"#, 16800),
        ] {
            assert_eq!(index(spec).err().unwrap().code(), Code(code), "{spec}");
        }
    }
}
