//! `startSession`.

use crate::auth::{self, Needs};
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_storage::SessionKey;
use muniment_value::{Value, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "startSession",
    doc: "Makes a logical session",
    open_fields: true,
    kind: Kind::Admin,
    run: |cx| {
        let id = super::random_uuid();
        let most = cx.server.parameters.most_sessions();
        let mut key = SessionKey::of_nobody(id);
        auth::own_session(cx.server, cx.local, &mut key, Action::Impersonate)?;
        cx.server.sessions.touch(&key, most)?;
        cx.reply.field(
            "id",
            doc! { "id": Value::Binary { subtype: 4, bytes: &id } },
        );
        cx.reply
            .field("timeoutMinutes", crate::sessions::TIMEOUT_MINUTES);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::Login)
};
