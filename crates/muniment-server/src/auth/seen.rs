//! Which databases a client is shown.

use super::User;
use crate::context::CommandContext;
use muniment_auth::action::Action;
use muniment_value::Result;
use std::sync::Arc;

/// The user whose databases alone are listed; `None` if all are.
///
/// # Errors
/// 13 Unauthorized for all databases.
pub fn databases(cx: &CommandContext<'_>) -> Result<Option<Arc<User>>> {
    let all = super::may_on_cluster(cx.server, cx.local, Action::ListDatabases);
    match (cx.args.get("authorizedDatabases"), all) {
        (Some(v), _) if v.truthy() => Ok(super::user_of(cx.server, cx.local)),
        (_, true) => Ok(None),
        (Some(_), false) => Err(super::refused(cx.spec, cx.request)),
        (None, false) => Ok(super::user_of(cx.server, cx.local)),
    }
}
