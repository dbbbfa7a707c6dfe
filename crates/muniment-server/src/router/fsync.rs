//! fsync and fsyncUnlock on all sets of the cluster.

use super::forward::{ask, run};
use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::sets::Until;
use muniment_op::NeverInterrupted;
use muniment_value::{Code, DocBuf, Error, Result, doc, number};
use muniment_wire::client::check_ok;
use std::sync::Arc;
use std::time::Duration;

/// So long sets are unlocked again of which another one could not be locked.
const UNDOING: Duration = Duration::from_secs(10);

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
    let mut done = Vec::new();
    for (name, set) in all(cx, router)? {
        let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)
            .and_then(|reply| check_ok(reply.body.as_doc()).map(|()| reply.body));
        let reply = match reply {
            Ok(reply) => reply,
            Err(e) if locks => return Err(undone(router, &done, (&name, e))),
            Err(e) => return Err(e.context(&format!("{name}: "))),
        };
        files += number_of(&reply, "numFiles");
        depth = depth.max(number_of(&reply, "lockCount"));
        told.append(&name, reply);
        done.push((name, set));
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

/// Unlocks the sets that were locked, because another one could not be: the error for the client, which names those that
/// are locked still. The operation's own limits do not count, since one of them may be what it has failed by.
fn undone(router: &Router, done: &[(String, Arc<SetPool>)], failed: (&str, Error)) -> Error {
    let on = Until {
        on: &NeverInterrupted,
        until: muniment_op::now() + UNDOING,
    };
    let unlock = doc! { "fsyncUnlock": 1 };
    let locked = |set: &SetPool| run(&on, router, set, "admin", &unlock, false).is_err();
    let locked = done.iter().filter(|(_, set)| locked(set));
    let mut locked: Vec<&str> = locked.map(|(name, _)| name.as_str()).collect();
    let (name, e) = failed;
    // It may have been locked by a message whose reply did not come.
    locked.push(name);
    let why = format!(
        "{} may be locked; fsyncUnlock unlocks: {name}: ",
        locked.join(", ")
    );
    e.context(&why)
}

/// Runs fsyncUnlock on the primaries of all sets, the configuration's first. A set that is not locked does not keep others
/// from being unlocked.
///
/// # Errors
/// The first set's that fails, if none is locked; else that of a set that may be locked still.
pub fn unlock(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let (mut depth, mut told) = (None, DocBuf::new());
    let (mut failed, mut unreached) = (None, None);
    for (name, set) in all(cx, router)?.into_iter().rev() {
        match ask(cx, router, &set, cx.request.body, Reach::Primary) {
            Ok(reply) => {
                match check_ok(reply.body.as_doc()) {
                    Ok(()) => depth = depth.max(Some(number_of(&reply.body, "lockCount"))),
                    Err(e) if e.code() == Code::IllegalOperation => {
                        failed.get_or_insert(e);
                    }
                    Err(e) => unreached = Some(e.context(&format!("{name}: "))),
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
