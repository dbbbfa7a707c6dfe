//! `killSessions`.

use super::{kill, sessions_of};
use crate::auth::{self, Needs};
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_storage::SessionKey;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killSessions",
    doc: "Interrupts what runs in logical sessions; an empty list: in all of the user",
    open_fields: true,
    kind: Kind::Admin,
    run: |cx| {
        let named = sessions_of(cx, Action::KillAnySession)?;
        let own = auth::user_of(cx.server, cx.local).map(|u| u.digest);
        let is_own = |key: &SessionKey| own.is_none_or(|own| key.user == own);
        kill(cx, &named, |key| named.is_empty() && is_own(key));
        Ok(())
    },
    ..CommandSpec::new(Routed::By(crate::router::relay::everywhere), Needs::Login)
};
