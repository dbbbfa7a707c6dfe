//! `createUser`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Needs, USERS};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Secret};
use muniment_auth::action::Action;
use muniment_auth::resource::Target;
use muniment_value::args::{Field, Types, opt, req};
use muniment_value::{DocBuf, Error, Result, Value, doc};

const FIELDS: &[Field] = &[
    opt("pwd", Types::STRING),
    opt("customData", Types::OBJECT),
    req("roles", Types::ARRAY),
    opt("digestPassword", Types::BOOL),
    opt("authenticationRestrictions", Types::ARRAY),
    opt("mechanisms", Types::ARRAY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("createUser", audit::user_with_roles)),
    secret: Secret::Always,
    before_first_user: |request| matches!(request.db, "admin" | accounts::EXTERNAL),
    ..accounts::command(
        "createUser",
        "Creates a user",
        FIELDS,
        Needs::Of(|asks| {
            asks.may_one(Target::Database(asks.request.db), Action::CreateUser)
                && accounts::may_grant(asks, "roles", Action::GrantRole)
                && accounts::may_restrict(asks)
        }),
        run,
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let name = accounts::user(cx)?;
    if name.db == "local" {
        return Err(Error::bad_value(
            "Cannot create users in the local database",
        ));
    }
    // Cursors, sessions and operations know a user by `user@db`.
    if name.db.contains('@') {
        return Err(Error::bad_value(format!(
            "Cannot create users in the database '{}', whose name has an '@'",
            name.db
        )));
    }
    let roles = accounts::named_roles(cx, &name.db)?;
    accounts::check_restrictions(cx)?;
    let external = name.db == accounts::EXTERNAL;
    let credentials = match (cx.args.str("pwd"), external) {
        (Some(password), false) => {
            let mechanisms = accounts::mechanisms(cx)?;
            accounts::credentials(cx, &name.user, password, &mechanisms)?
        }
        (None, true) => doc! { "external": true },
        (Some(_), true) => {
            return Err(Error::bad_value(
                "Cannot set the password for users defined on the '$external' database",
            ));
        }
        (None, false) => {
            return Err(Error::bad_value(
                "Must provide a 'pwd' field for all user documents, except those with '$external' as \
                 the user's source db",
            ));
        }
    };
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    // Another client may have created the first user meanwhile.
    if auth::is_unknown(server, cx.local) && !auth::localhost_exception(server, cx.conn) {
        return Err(auth::refused(cx.spec, cx.request));
    }
    accounts::check_roles(server, &roles)?;
    if auth::find(server, USERS, &name.id())?.is_some() {
        return Err(Error::location(
            51003,
            format!("User \"{}@{}\" already exists", name.user, name.db),
        ));
    }
    let id = super::random_uuid();
    let mut user = DocBuf::new();
    user.append("_id", name.id().as_str());
    user.append(
        "userId",
        Value::Binary {
            subtype: 4,
            bytes: &id,
        },
    );
    user.append("user", name.user.as_str());
    user.append("db", name.db.as_str());
    user.append("credentials", credentials);
    user.append_some("customData", cx.args.doc("customData"));
    user.append("roles", accounts::to_array(&roles));
    if let Some(list) = cx.args.array("authenticationRestrictions") {
        user.append("authenticationRestrictions", Value::Array(list));
    }
    auth::replace(cx, USERS, user.as_doc())
}
