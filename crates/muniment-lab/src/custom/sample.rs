//! A sample of what a workload sends: a document of each template and a command of each operation.

use super::draw::{Shape, Shared};
use super::encode::{Encoder, Env, Hand};
use super::plan::Plan;
use super::template::Node;
use crate::distributions::counter::Counter;
use muniment_load::fail::{Context, Result};
use muniment_value::{Doc, JsonMode, validate};
use std::fmt::Write;
use std::sync::Arc;

/// The sample as text. Every sequence has a thousand numbers more than its start.
///
/// # Errors
/// A generator cannot start.
pub(crate) fn of(plan: &Plan) -> Result<String> {
    let sequences: Vec<(String, Arc<Counter>)> = plan
        .sequences
        .iter()
        .map(|(name, start)| (name.clone(), Arc::new(Counter::new(start + 1000))))
        .collect();
    let shared = Shared::default();
    let one = |node: &Node, shape: &Shape, name: &str| {
        let env = Env::new(&sequences, &shared, shape, name);
        let mut out = Vec::new();
        let mut hand = Hand::new(1, &sequences);
        Encoder::new(node, &env)?.write(&mut hand, &mut out);
        hand.acknowledge();
        validate(&out).context(name)?;
        let json = Doc::new(&out).to_json(JsonMode::Relaxed);
        Ok::<_, muniment_load::fail::Failure>((json, out.len()))
    };
    let mut o = String::new();
    for (name, node) in &plan.templates {
        let name = format!("[template.{name}]");
        let (json, size) = one(node, &Shape::Uniform, &name)?;
        let _ = writeln!(o, "{name} ({size} bytes)\n  {json}");
    }
    for phase in &plan.phases {
        for op in &phase.work {
            let name = format!("{}: {}", phase.name, op.name);
            let mut fields = op.body.clone();
            if let Some(d) = &op.document {
                fields.push(("documents".into(), Node::Array(vec![d.clone()])));
            }
            fields.extend(op.tail(&plan.database));
            let (json, _) = one(&Node::Document(fields), &op.shape, &name)?;
            let _ = writeln!(o, "{name}\n  {json}");
        }
    }
    Ok(o)
}
