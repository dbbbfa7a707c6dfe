//! `balancerCollectionStatus`: whether the balancer would move anything of a collection.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Routed};
use crate::router::Router;
use crate::router::balancer::{Settings, Survey, chunk_bytes, violation};
use crate::router::sharded::chunks::known_now;
use muniment_auth::action::Action;
use muniment_value::{Result, doc};
use std::collections::BTreeSet;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "balancerCollectionStatus",
    doc: "Whether the balancer would move anything of a collection",
    of_router: true,
    admin_only: true,
    ..CommandSpec::new(Routed::By(run), Needs::named(Action::EnableSharding))
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ns = cx.text_target()?;
    namespace::split(ns)?;
    let on = &**cx.op;
    let known = known_now(cx, router, ns)?;
    let settings = Settings::read(on, router)?;
    let survey = Survey::of(on, router, &[ns.to_string()])?;
    let plan = survey.plan(on, router, &known, (&settings, &BTreeSet::new()))?;
    let megabytes = chunk_bytes(&known, &settings) as f64 / f64::from(1 << 20);
    cx.reply.field("chunkSize", megabytes);
    cx.reply.field("balancerCompliant", plan.is_empty());
    let first = match plan.splits.is_empty() {
        true => plan.migrations.first().map(|m| violation(m.reason)),
        false => Some("zoneViolation"),
    };
    if let Some(first) = first {
        cx.reply.field("firstComplianceViolation", first);
        cx.reply.field("details", doc! {});
    }
    Ok(())
}
