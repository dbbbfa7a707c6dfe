//! `killOp`.

use crate::auth::{self, Needs};
use crate::registry::{CommandSpec, Kind, Routed};
use crate::router;
use muniment_auth::action::Action;
use muniment_value::args::{Types, opt};
use muniment_value::{Code, Error, Result, Value, number};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killOp",
    doc: "Interrupts an operation; at a router also one of a shard (`shard:number`)",
    open_fields: true,
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt("op", Types::ANY)],
    run: |cx| {
        if let (Some(router), Some(Value::String(op))) = (&cx.server.router, cx.args.get("op")) {
            // The shard knows of no users: all that runs there is the router's.
            if auth::user_of(cx.server, cx.local).is_some()
                && !auth::may_on_cluster(cx.server, cx.local, Action::Killop)
            {
                return Err(auth::refused(cx.spec, cx.request));
            }
            let (shard, id) = router::operations::kill(&**cx.op, router, op)?;
            cx.reply
                .field("shard", shard.as_str())
                .field("shardid", number::narrow(id));
            return Ok(());
        }
        let id = operation(cx.args.get("op"))?;
        // A user may end the own operations without more.
        if let Some(user) = auth::user_of(cx.server, cx.local)
            && !auth::may_on_cluster(cx.server, cx.local, Action::Killop)
        {
            let op = cx.engine().operations.get(id);
            if op.is_none_or(|op| op.user() != Some(&*user.key)) {
                return Err(auth::refused(cx.spec, cx.request));
            }
        }
        cx.engine().operations.kill(id);
        cx.reply.field("info", "attempting to kill op");
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::Login)
};

/// The operation that `op` names: a whole number of 32 bits, which may be given as a signed one.
///
/// # Errors
/// 4 NoSuchKey if `op` is missing; 14 TypeMismatch if it is no number; 2 BadValue for a fraction; 26823 for a
/// number that is no operation's.
fn operation(op: Option<Value<'_>>) -> Result<u32> {
    let Some(v) = op else {
        return Err(Error::new(Code::NoSuchKey, "Missing expected field \"op\""));
    };
    if !v.is_number() {
        return Err(Error::type_mismatch(format!(
            "Expected field \"op\" to have numeric type, but found {}",
            v.type_name()
        )));
    }
    let n = number::to_i64_exact(v).ok_or_else(|| {
        Error::bad_value(format!(
            "Expected field \"op\" to have a value exactly representable as a 64-bit integer, but \
             found op: {}",
            v.to_display()
        ))
    })?;
    let signed = i32::try_from(n).map(i32::cast_unsigned);
    signed.or_else(|_| u32::try_from(n)).map_err(|_| {
        Error::location(
            26823,
            format!("invalid op : {n}. Op ID cannot be represented with 32 bits"),
        )
    })
}
