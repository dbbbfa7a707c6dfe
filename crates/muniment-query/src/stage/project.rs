//! `$project`: includes, excludes and computes fields.

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{Stage, Transform};
use crate::context::{MatchInfo, QueryContext};
use crate::needs::Needs;
use crate::projection::Projection;
use crate::running::Work;
use muniment_value::{Doc, Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$project",
    doc: "Includes, excludes and computes fields.",
    place: Place::UPDATE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            15969,
            "$project specification must be an object",
        ));
    };
    let p = Projection::parse_stage(d, ctx)
        .map_err(|e| e.parsing_context("Invalid $project :: caused by :: "))?;
    stages.push(Stage::Project(Arc::new(p)));
    Ok(())
}

impl Transform for Projection {
    fn needs(&self, needs: &mut Needs) -> bool {
        Projection::needs(self, needs)
    }

    fn transform(&self, doc: Doc<'_>, out: &mut Vec<u8>, work: Work<'_>) -> Result<()> {
        self.apply(doc, MatchInfo::default(), out, work)
    }

    fn may_touch(&self, path: &str) -> bool {
        Projection::may_touch(self, path)
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_project() {
        table(&[
            ("[{_id:1,a:1,b:2}]", "[{$project:{a:1}}]", "[{_id:1,a:1}]"),
            ("[{_id:1,a:1,b:2}]", "[{$project:{a:0}}]", "[{_id:1,b:2}]"),
            (
                "[{_id:1,a:1,b:2}]",
                "[{$project:{_id:0,c:'$b'}}]",
                "[{c:2}]",
            ),
            (
                "[{_id:1,a:1,b:2}]",
                "[{$project:{c:{$add:['$a','$b']}}}]",
                "[{_id:1,c:3}]",
            ),
            (
                "[]",
                "[{$project:{}}]",
                "51272: Invalid $project :: caused by :: projection specification must have at least \
              one field",
            ),
            (
                "[]",
                "[{$project:{a:1,b:0}}]",
                "31254: Invalid $project :: caused by :: Cannot do exclusion on field b in inclusion \
              projection",
            ),
            (
                "[]",
                "[{$project:1}]",
                "15969: $project specification must be an object",
            ),
        ]);
    }
}
