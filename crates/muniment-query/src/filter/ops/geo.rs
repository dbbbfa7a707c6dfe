//! `$geoWithin`, `$geoIntersects` and the `$near` family.
//!
//! `$near` not only selects documents but also orders them. Only a geospatial index can answer it, so the
//! planner removes it from the filter, and no document is ever matched against it.

use super::OpSpec;
use crate::filter::parse::{FieldOperand, Parser};
use crate::filter::{FieldOp, Pred};
use crate::geo::{GeoQuery, NearQuery};
use crate::running::Work;
use muniment_value::{Error, Result, Value, ValueBuf};
use std::sync::Arc;

/// `$geoWithin`.
pub(super) const WITHIN: OpSpec = OpSpec::field(
    "$geoWithin",
    "The geometry lies in a polygon, a box or a circle.",
    |p, o| shape("$geoWithin", p, o, false),
);

/// `$within`, the old name.
pub(super) const OLD_WITHIN: OpSpec =
    OpSpec::field("$within", "The old name of $geoWithin.", |p, o| {
        shape("$geoWithin", p, o, false)
    });

/// `$geoIntersects`.
pub(super) const INTERSECTS: OpSpec = OpSpec::field(
    "$geoIntersects",
    "The geometry has a point in common with another.",
    |p, o| shape("$geoIntersects", p, o, true),
);

/// `$near`.
pub(super) const NEAR: OpSpec = OpSpec::field(
    "$near",
    "Documents by their distance from a point.",
    |p, o| near("$near", p, o),
);

/// `$nearSphere`.
pub(super) const NEAR_SPHERE: OpSpec = OpSpec::field(
    "$nearSphere",
    "Documents by their distance from a point on the sphere.",
    |p, o| near("$nearSphere", p, o),
);

/// `$geoNear`, an old name of `$near`.
pub(super) const GEO_NEAR: OpSpec = OpSpec::field("$geoNear", "An old name of $near.", |p, o| {
    near("$geoNear", p, o)
});

/// `$minDistance`.
pub(super) const MIN_DISTANCE: OpSpec = OpSpec::field(
    "$minDistance",
    "Beside $near with a legacy point: the least distance.",
    |_, o| beside("$minDistance", o),
);

/// `$maxDistance`.
pub(super) const MAX_DISTANCE: OpSpec = OpSpec::field(
    "$maxDistance",
    "Beside $near with a legacy point: the greatest distance.",
    |_, o| beside("$maxDistance", o),
);

/// `$uniqueDocs`.
pub(super) const UNIQUE_DOCS: OpSpec = OpSpec::field(
    "$uniqueDocs",
    "Beside $near; without effect: a document always comes once.",
    |_, o| beside("$uniqueDocs", o),
);

#[derive(Debug)]
struct Geo {
    name: &'static str,
    query: GeoQuery,
}

fn shape(
    name: &'static str,
    p: &Parser<'_>,
    o: &FieldOperand<'_>,
    intersects: bool,
) -> Result<Option<Pred>> {
    let mut others = o.siblings.iter().filter(|e| e.name() != "$comment").skip(1);
    if let Some(e) = others.next() {
        return Err(Error::bad_value(format!(
            "can't parse extra field: {}: {}",
            e.name(),
            e.value().to_display()
        )));
    }
    let query = GeoQuery::parse(o.value, intersects, p.ctx.task.work())?;
    Ok(Some(Pred::Other(Arc::new(Geo { name, query }))))
}

impl FieldOp for Geo {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operand(&self) -> ValueBuf {
        self.query.source.clone()
    }

    fn matches(&self, value: Option<Value<'_>>, work: Work<'_>) -> Result<bool> {
        value.map_or(Ok(false), |v| self.query.matches(v, work))
    }

    fn geo(&self) -> Option<&GeoQuery> {
        Some(&self.query)
    }
}

#[derive(Debug)]
pub(super) struct Near(pub Arc<NearQuery>);

fn near(name: &'static str, p: &mut Parser<'_>, o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    if !p.planned {
        return Err(crate::filter::near::not_here());
    }
    if p.inside > 0 {
        return Err(Error::bad_value(format!(
            "{name} can only be applied to the top-level document"
        )));
    }
    p.saw_near = true;
    let query = NearQuery::parse(name, o.value, o.siblings)?;
    Ok(Some(Pred::Other(Arc::new(Near(Arc::new(query))))))
}

impl FieldOp for Near {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn operand(&self) -> ValueBuf {
        self.0.source.clone()
    }

    fn matches(&self, _: Option<Value<'_>>, _: Work<'_>) -> Result<bool> {
        Ok(false)
    }

    fn near(&self) -> Option<&Arc<NearQuery>> {
        Some(&self.0)
    }
}

fn beside(name: &str, o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let near =
        |e: muniment_value::Elem<'_>| matches!(e.name(), "$near" | "$nearSphere" | "$geoNear");
    if o.siblings.iter().any(near) {
        return Ok(None);
    }
    Err(Error::bad_value(format!("unknown operator: {name}")))
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{matches, refused};

    const SQUARE: &str = "{'type': 'Polygon', 'coordinates': [[[-10, -10], [10, -10], [10, 10], [-10, 10], [-10, -10]]]}";

    #[test]
    fn table_test() {
        matches(
            &format!("{{'a': {{'$geoWithin': {{'$geometry': {SQUARE}}}}}}}"),
            &[
                "{'a': [1, 1]}",
                "{'a': {'type': 'Point', 'coordinates': [10, 10]}}",
                "{'a': [{'type': 'Point', 'coordinates': [50, 50]}, {'x': 1, 'y': 2}]}",
                "{'a': {'type': 'LineString', 'coordinates': [[0, 0], [5, 5]]}}",
            ],
            &[
                "{'a': [11, 1]}",
                "{'a': null}",
                "{'a': 'x'}",
                "{}",
                "{'a': {'type': 'LineString', 'coordinates': [[0, 0], [50, 5]]}}",
                "{'a': {'type': 'Point'}}",
            ],
        );
        matches(
            &format!("{{'a': {{'$geoIntersects': {{'$geometry': {SQUARE}}}}}}}"),
            &[
                "{'a': {'type': 'LineString', 'coordinates': [[0, 0], [50, 5]]}}",
                "{'a': {'type': 'LineString', 'coordinates': [[-50, 0], [50, 5]]}}",
                "{'a': {'type': 'Polygon', 'coordinates': [[[9, 0], [20, 0], [20, 5], [9, 0]]]}}",
            ],
            &["{'a': {'type': 'LineString', 'coordinates': [[20, 0], [50, 5]]}}"],
        );
        matches(
            "{'a': {'$geoWithin': {'$center': [[0, 0], 5]}}}",
            &[
                "{'a': [3, 4]}",
                "{'a': [[30, 4], [1, 1]]}",
                "{'a': {'x': 0, 'y': 5}}",
            ],
            &["{'a': [4, 4]}", "{'a': []}"],
        );
        matches(
            "{'a': {'$geoWithin': {'$box': [[0, 0], [5, 5]]}}}",
            &["{'a': [0, 5]}"],
            &["{'a': [0, 6]}", "{'a': [-1, 5]}"],
        );
        matches(
            "{'a': {'$geoWithin': {'$centerSphere': [[0, 0], 0.1]}}}",
            &[
                "{'a': [5.7, 0]}",
                "{'a': {'type': 'Point', 'coordinates': [0, 5.7]}}",
            ],
            &["{'a': [5.8, 0]}", "{'a': [200, 0]}"],
        );
    }

    #[test]
    fn wrong_operands_are_refused() {
        for f in [
            "{'a': {'$geoWithin': {'$geometry': {'type': 'Point', 'coordinates': [0, 0]}}}}",
            "{'a': {'$geoWithin': {'$box': [[0, 0]]}}}",
            "{'a': {'$geoWithin': {'$center': [[0, 0], -1]}}}",
            "{'a': {'$geoWithin': {'$polygon': [[0, 0], [1, 1]]}}}",
            "{'a': {'$geoWithin': {}}}",
            "{'a': {'$geoIntersects': {'$box': [[0, 0], [1, 1]]}}}",
            "{'a': {'$near': {'$geometry': {'type': 'LineString', 'coordinates': [[0, 0], [1, 1]]}}}}",
            "{'a': {'$near': {}}}",
            "{'a': {'$not': {'$near': [0, 0]}}}",
            "{'$or': [{'a': {'$near': [0, 0]}}, {'b': 1}]}",
            "{'a': {'$near': [0, 0]}, 'b': {'$near': [0, 0]}}",
            "{'a': {'$elemMatch': {'b': {'$near': [0, 0]}}}}",
            "{'a': {'$maxDistance': 1}}",
        ] {
            refused(f, 2);
        }
        refused("{'a': {'$near': [0, 0], '$eq': 1}}", 34413);
        refused("{'a': {'$near': [0, 0], '$minDistance': -1}}", 16894);
        refused("{'a': {'$near': [0, 0], '$maxDistance': 'x'}}", 16895);
    }
}
