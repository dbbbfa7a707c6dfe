//! `updateUser`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Asks, Needs, USERS};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Secret};
use muniment_auth::action::Action;
use muniment_auth::resource::Target;
use muniment_auth::scram::Mechanism;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Doc, DocBuf, Error, Result, Value};

const FIELDS: &[Field] = &[
    opt("pwd", Types::STRING),
    opt("customData", Types::OBJECT),
    opt("roles", Types::ARRAY),
    opt("digestPassword", Types::BOOL),
    opt("authenticationRestrictions", Types::ARRAY),
    opt("mechanisms", Types::ARRAY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("updateUser", audit::user_with_roles)),
    secret: Secret::Always,
    ..accounts::command(
        "updateUser",
        "Changes a user",
        FIELDS,
        Needs::Of(needs),
        run,
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let here = Target::Database(asks.request.db);
    let own = asks.target().as_str() == Some(&asks.user.name.user)
        && asks.request.db == asks.user.name.db;
    let has = |field: &str| asks.request.body.get(field).is_some();
    let may =
        |any: Action, mine: Action| asks.may_one(here, any) || (own && asks.may_one(here, mine));
    let password = has("pwd") || has("mechanisms");
    (!password || may(Action::ChangePassword, Action::ChangeOwnPassword))
        && (!has("customData") || may(Action::ChangeCustomData, Action::ChangeOwnCustomData))
        // The roles that the user has until then are taken away, whichever they are.
        && (!has("roles")
            || (asks.may_one(Target::Database(""), Action::RevokeRole)
                && accounts::may_grant(asks, "roles", Action::GrantRole)))
        && accounts::may_restrict(asks)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let name = accounts::user(cx)?;
    let has = |field: &str| cx.args.get(field).is_some();
    let fields = [
        "pwd",
        "customData",
        "roles",
        "authenticationRestrictions",
        "mechanisms",
    ];
    if !fields.iter().any(|f| has(f)) {
        return Err(Error::bad_value(
            "Must specify at least one field to update in updateUser",
        ));
    }
    if name.db == accounts::EXTERNAL && has("pwd") {
        return Err(Error::bad_value(
            "Cannot set the password for users defined on the '$external' database",
        ));
    }
    accounts::check_restrictions(cx)?;
    let roles = has("roles").then(|| accounts::named_roles(cx, &name.db));
    let roles = roles.transpose()?;
    let mechanisms = accounts::mechanisms(cx)?;
    let new = cx.args.str("pwd");
    let new = new
        .map(|p| accounts::credentials(cx, &name.user, p, &mechanisms))
        .transpose()?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let stored = accounts::stored_user(cx, &name)?;
    let stored = stored.as_doc();
    accounts::check_roles(server, roles.as_deref().unwrap_or_default())?;
    let credentials = match new {
        Some(new) => Some(new),
        None if has("mechanisms") => Some(fewer(stored, &mechanisms)?),
        None => None,
    };
    let roles = roles.map(|r| accounts::to_array(&r));
    let mut fields = Vec::new();
    if let Some(c) = &credentials {
        fields.push(("credentials", Some(Value::Document(c.as_doc()))));
    }
    if let Some(d) = cx.args.doc("customData") {
        fields.push(("customData", Some(Value::Document(d))));
    }
    if let Some(r) = &roles {
        fields.push(("roles", Some(Value::Array(r.as_doc()))));
    }
    if let Some(list) = cx.args.array("authenticationRestrictions") {
        fields.push(("authenticationRestrictions", Some(Value::Array(list))));
    }
    let user = accounts::with(stored, &fields);
    auth::replace(cx, USERS, user.as_doc())
}

/// The stored credentials, for some of their mechanisms alone.
///
/// # Errors
/// 2 BadValue for a mechanism of which there are none.
fn fewer(stored: Doc<'_>, mechanisms: &[Mechanism]) -> Result<DocBuf> {
    let all = stored.get_doc("credentials").unwrap_or(Doc::EMPTY);
    let mut kept = DocBuf::new();
    for mechanism in mechanisms {
        let Some(one) = all.get_doc(mechanism.name()) else {
            return Err(Error::bad_value(
                "mechanisms field must be a subset of previously set mechanisms",
            ));
        };
        kept.append(mechanism.name(), Value::Document(one));
    }
    Ok(kept)
}
