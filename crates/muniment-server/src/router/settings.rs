//! Settings of the whole cluster: default concerns and cluster parameters. The configuration's set and each shard have
//! them stored, and in force, for themselves.
//!
//! Invariant: one router at a time sets them, and what is set is first in the configuration. A shard that is added
//! takes its settings from there after it is in the list of shards, so it has the newest whether or not they change
//! meanwhile. A command that fails at a shard may be repeated.

use super::configuration::read;
use super::forward::{ask, run};
use super::relay::back;
use super::sharded::lease::Lease;
use super::{Reach, Router, SetPool};
use crate::cluster_parameters;
use crate::concern::STORED_DEFAULTS;
use crate::context::CommandContext;
use muniment_value::{DocBuf, Result, doc};
use muniment_wire::client;
use std::sync::Arc;

/// What the right to change settings is called.
const LEASE: &str = "config.settings";

/// Runs a command that sets something, on the configuration's set and then on all shards.
///
/// # Errors
/// The first set's that fails.
pub fn set(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let lease = Lease::take(cx, router, LEASE, cx.spec.name)?;
    let done = set_all(cx, router);
    lease.give_back(cx, router, done)
}

fn set_all(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let config = Arc::clone(&router.config);
    let first = ask(cx, router, &config, cx.request.body, Reach::Primary)?;
    client::check_ok(first.body.as_doc())?;
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        if set.name != config.name {
            let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)?;
            client::check_ok(reply.body.as_doc())?;
        }
    }
    back(cx, router, &config, &first)
}

/// Has a set that became a shard take the settings of the cluster.
///
/// # Errors
/// Those of the sets.
pub fn adopt(cx: &CommandContext<'_>, router: &Router, shard: &SetPool) -> Result<()> {
    if shard.name == router.config.name {
        return Ok(());
    }
    let lease = Lease::take(cx, router, LEASE, "addShard")?;
    let done = take_over(cx, router, shard);
    lease.give_back(cx, router, done)
}

fn take_over(cx: &CommandContext<'_>, router: &Router, shard: &SetPool) -> Result<()> {
    let name = |ns: &'static str| ns.split_once('.').map_or(ns, |(_, name)| name);
    let mut commands = Vec::new();
    let (ns, id) = STORED_DEFAULTS;
    let stored = read(&**cx.op, router, name(ns), doc! { "_id": id })?;
    let mut command = doc! { "setDefaultRWConcern": 1 };
    for field in ["defaultReadConcern", "defaultWriteConcern"] {
        let d = stored.first().and_then(|d| d.as_doc().get_doc(field));
        // An empty one takes away what the set had.
        command.append(field, d.map_or_else(DocBuf::new, |d| d.to_buf()));
    }
    commands.push(command);
    let parameters = name(cluster_parameters::NAMESPACE);
    for stored in read(&**cx.op, router, parameters, DocBuf::new())? {
        let (mut id, mut value) = ("", DocBuf::new());
        for e in stored.as_doc() {
            match e.name() {
                "_id" => id = e.value().as_str().unwrap_or_default(),
                "clusterParameterTime" => {}
                _ => {
                    value.append_elem(e);
                }
            }
        }
        let mut parameter = DocBuf::new();
        parameter.append(id, value);
        commands.push(doc! { "setClusterParameter": parameter });
    }
    for command in &commands {
        run(&**cx.op, router, shard, "admin", command, true)?;
    }
    Ok(())
}
