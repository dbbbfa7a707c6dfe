//! fsync and fsyncUnlock on all sets of the cluster.

use super::forward::ask;
use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use muniment_value::{DocBuf, Result, doc, number};
use muniment_wire::client::check_ok;
use std::sync::Arc;

/// The shards, and after them the configuration's set if it is no shard: a router may read it as long as it can be.
fn all(cx: &CommandContext<'_>, router: &Router) -> Result<Vec<(String, Arc<SetPool>)>> {
    let mut all = router.catalog.shards(&**cx.op, router)?;
    if !all.iter().any(|(_, set)| set.name == router.config.name) {
        all.push(("config".to_string(), Arc::clone(&router.config)));
    }
    Ok(all)
}

/// Runs fsync, with or without a lock, on the primaries of all sets. If one of them cannot be locked, none stays locked.
///
/// # Errors
/// The first set's that fails.
pub fn sync(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let locks = cx.args.bool("lock", false);
    let (mut files, mut depth, mut told) = (0, 0, DocBuf::new());
    let mut done: Vec<Arc<SetPool>> = Vec::new();
    for (name, set) in all(cx, router)? {
        let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)
            .and_then(|reply| check_ok(reply.body.as_doc()).map(|()| reply.body));
        let reply = match reply {
            Ok(reply) => reply,
            Err(e) => {
                if locks {
                    let unlock = doc! { "fsyncUnlock": 1 };
                    for set in &done {
                        // What fails is for the operator to unlock: the error names the set that could not be locked.
                        let _ = ask(cx, router, set, unlock.as_doc(), Reach::Primary);
                    }
                }
                return Err(e.context(&format!("{name}: ")));
            }
        };
        files += number_of(&reply, "numFiles");
        depth = depth.max(number_of(&reply, "lockCount"));
        told.append(&name, reply);
        done.push(set);
    }
    if locks {
        cx.reply.field(
            "info",
            "now locked against writes, use db.fsyncUnlock() to unlock",
        );
        cx.reply.field("lockCount", depth);
        cx.reply
            .field("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
    } else {
        cx.reply.field("numFiles", number::narrow(files));
    }
    cx.reply.field("all", told);
    Ok(())
}

/// Runs fsyncUnlock on the primaries of all sets, the configuration's first. A set that is not locked does not keep others
/// from being unlocked.
///
/// # Errors
/// The first set's that fails, if all fail, or if one cannot be reached.
pub fn unlock(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let (mut depth, mut told) = (None, DocBuf::new());
    let (mut failed, mut unreached) = (None, None);
    for (name, set) in all(cx, router)?.into_iter().rev() {
        match ask(cx, router, &set, cx.request.body, Reach::Primary) {
            Ok(reply) => {
                match check_ok(reply.body.as_doc()) {
                    Ok(()) => depth = depth.max(Some(number_of(&reply.body, "lockCount"))),
                    Err(e) => drop(failed.get_or_insert(e)),
                }
                told.append(&name, reply.body);
            }
            // It may be locked still. The others go on all the same.
            Err(e) => unreached = Some(e.context(&format!("{name}: "))),
        }
    }
    match (unreached, depth, failed) {
        (Some(e), ..) | (None, None, Some(e)) => Err(e),
        (None, depth, _) => {
            cx.reply.field("info", "fsyncUnlock completed");
            cx.reply.field("lockCount", depth.unwrap_or(0));
            cx.reply.field("all", told);
            Ok(())
        }
    }
}

fn number_of(reply: &DocBuf, name: &str) -> i64 {
    let n = reply.as_doc().get(name);
    n.and_then(|v| v.as_i64_exact()).unwrap_or(0)
}
