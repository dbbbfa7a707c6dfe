//! `$rankFusion`: reciprocal rank fusion. A document's score is the sum of weight / (60 + rank) over the
//! inputs that contain it; ranks are counted from 1.

use super::super::Stage;
use super::super::registry::{Place, Spec};
use super::super::rights::{Right, Rights};
use super::super::spread::Spread;
use super::spec::parse;
use super::{Fusion, Input};
use crate::context::QueryContext;
use muniment_value::{ArrayBuf, Doc, DocBuf, Elem, Result, Value, doc, number};
use std::sync::Arc;

/// The stage's name.
pub(super) const NAME: &str = "$rankFusion";

pub(crate) const SPEC: Spec = Spec {
    name: NAME,
    doc: "Ranked results of several pipelines, by reciprocal rank fusion.",
    place: Place {
        in_facet: true,
        not_first: 10_170_100,
        ..Place::SOURCE
    },
    spread: Spread::Around,
    rights: Rights::Also(|operand, right| {
        let input = operand.as_doc().and_then(|d| d.get_doc("input"));
        let pipelines = input.and_then(|d| d.get_doc("pipelines"));
        for v in pipelines.unwrap_or(Doc::EMPTY).values() {
            if let Value::Array(stages) = v {
                right(Right::Stages(stages));
            }
        }
    }),
    parse: parse_stage,
};

/// The number that is added to every rank.
const CONSTANT: f64 = 60.0;

fn parse_stage(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let fusion: Fusion = parse(e, ctx)?;
    stages.push(Stage::Other(Arc::new(fusion)));
    Ok(())
}

/// The score of a document with these ranks in the inputs.
pub(super) fn score(inputs: &[Input], ranks: &[Option<u64>]) -> f64 {
    let parts = inputs.iter().zip(ranks).filter_map(|(input, rank)| {
        let rank = (*rank)? as f64;
        Some(input.weight * (1.0 / (CONSTANT + rank)))
    });
    // The method `sum` of an iterator begins with -0.0, which would be visible in the result.
    parts.fold(0.0, |a, b| a + b)
}

/// The details of how the score was computed: `{$meta: "scoreDetails"}`.
pub(super) fn details(inputs: &[Input], ranks: &[Option<u64>], score: f64) -> DocBuf {
    let mut all = ArrayBuf::new();
    for (input, rank) in inputs.iter().zip(ranks) {
        let mut d = doc! { "inputPipelineName": input.name.as_str() };
        match rank {
            Some(r) => {
                d.append(
                    "rank",
                    number::narrow(i64::try_from(*r).unwrap_or(i64::MAX)),
                );
                d.append("weight", input.weight);
                d.append("details", ArrayBuf::new());
            }
            None => {
                d.append("rank", "NA");
            }
        }
        all.push(d);
    }
    doc! {
        "value": score,
        "description": "value output by reciprocal rank fusion algorithm, computed as sum of \
                        (weight * (1 / (60 + rank))) across input pipelines from which this \
                        document is output, from:",
        "details": all,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::context::Runtime;
    use crate::stage::testing::{docs, run, table};

    #[test]
    fn table_of_rank_fusion() {
        let input = "[{_id:1,a:30,b:10},{_id:2,a:20,b:30},{_id:3,a:10,b:20}]";
        let fused = |spec: &str, then: &str| {
            format!(
                "[{{$facet:{{r:[{{$rankFusion:{{{spec}}}}}{then}]}}}},{{$unwind:'$r'}},{{$replaceWith:'$r'}}]"
            )
        };
        let both = "input:{pipelines:{p:[{$sort:{a:-1}}],q:[{$sort:{b:-1}}]}}";
        let ranks = "input:{pipelines:{p:[{$sort:{a:-1}},{$limit:1}]}},scoreDetails:true";
        let rows = [
            (
                fused(both, ""),
                "[{_id:2,a:20,b:30},{_id:1,a:30,b:10},{_id:3,a:10,b:20}]",
            ),
            (
                fused(
                    &format!("{both},combination:{{weights:{{q:0}}}}"),
                    ",{$project:{_id:1}}",
                ),
                "[{_id:1},{_id:2},{_id:3}]",
            ),
            (
                fused(
                    ranks,
                    ",{$project:{s:{$eq:[{$meta:'score'},{$divide:[1,61]}]},d:{$let:{vars:{d:{$meta:'scoreDetails'}},in:'$$d.details'}}}}",
                ),
                "[{_id:1,s:true,d:[{inputPipelineName:'p',rank:1,weight:1.0,details:[]}]}]",
            ),
            (
                fused("input:{pipelines:{p:[{$match:{}}]}}", ""),
                "9191100: ",
            ),
            (
                fused("input:{pipelines:{p:[{$sort:{a:1}},{$unset:'a'}]}}", ""),
                "9191103: ",
            ),
            (fused("input:{pipelines:{p:[]}}", ""), "9834300: "),
            (
                fused(&format!("{both},combination:{{weights:{{r:1}}}}"), ""),
                "9967500: ",
            ),
            (
                fused(&format!("{both},combination:{{weights:{{p:-1}}}}"), ""),
                "9460300: ",
            ),
            (
                fused(both, ",{$project:{x:{$meta:'scoreDetails'}}}"),
                "40218: ",
            ),
        ];
        for (pipeline, want) in &rows {
            let Some(code) = want.strip_suffix(": ") else {
                table(&[(input, pipeline.as_str(), want)]);
                continue;
            };
            let e = run(docs(input), pipeline, &Runtime::for_tests()).unwrap_err();
            assert_eq!(e.code().0.to_string(), code, "{pipeline}: {e}");
        }
    }

    #[test]
    fn a_fusion_that_spills_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let input = || {
            (0..2000_i32)
                .map(|i| muniment_value::doc! { "_id": i, "a": i * 7919 % 2000, "b": i * 31 % 50 })
                .collect::<Vec<_>>()
        };
        let fused = "[{$facet:{r:[{$rankFusion:{input:{pipelines:{p:[{$sort:{a:1}}],\
             q:[{$sort:{b:-1}},{$limit:900}]}}}},{$limit:100}]}}]";
        let small = Runtime {
            memory_limit: 40_000,
            scratch: Some(crate::Scratch::unlimited(dir.path())),
            ..Runtime::for_tests()
        };
        let want = run(input(), fused, &Runtime::for_tests()).unwrap();
        assert!(run(input(), fused, &small).unwrap() == want);
    }
}
