//! `usersInfo`.

use super::accounts;
use super::cursor_reply::filter;
use crate::auth::{self, Asks, Needs, USERS};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_auth::names::UserName;
use muniment_auth::resource::Target;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value, doc};

const FIELDS: &[Field] = &[
    opt("showCredentials", Types::SAFE_BOOL),
    opt("showCustomData", Types::SAFE_BOOL),
    opt("showPrivileges", Types::SAFE_BOOL),
    opt("showAuthenticationRestrictions", Types::SAFE_BOOL),
    opt("filter", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "usersInfo",
    doc: "The users of a database, or of all",
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::Config, Needs::Of(needs))
};

/// A user may see the own name without more.
fn needs(asks: &Asks<'_>) -> bool {
    let one = |v: Value<'_>| match UserName::from_value(v, asks.request.db) {
        Ok(name) => {
            name == asks.user.name || asks.may_one(Target::Database(&name.db), Action::ViewUser)
        }
        Err(_) => true,
    };
    let all = |db: &str| asks.may_one(Target::Database(db), Action::ViewUser);
    let shown = match asks.target() {
        Value::Array(list) => list.values().all(one),
        Value::Document(d) if d.get("forAllDBs").is_some() => all(""),
        v @ (Value::Document(_) | Value::String(_)) => one(v),
        _ => all(asks.request.db),
    };
    shown && (!asks.has("showCredentials") || all(asks.request.db))
}

/// The filter for the users that the command asks for.
fn asked(cx: &CommandContext<'_>) -> Result<DocBuf> {
    let id = |v: Value<'_>| UserName::from_value(v, cx.db()).map(|name| name.id());
    Ok(match cx.target() {
        Value::Document(d) if d.get("forAllDBs").is_some_and(|v| v.truthy()) => DocBuf::new(),
        v @ (Value::Document(_) | Value::String(_)) => doc! { "_id": id(v)? },
        Value::Array(list) => {
            let ids: Vec<String> = list.values().map(id).collect::<Result<_>>()?;
            let ids: ArrayBuf = ids.iter().map(String::as_str).collect();
            doc! { "_id": doc! { "$in": ids } }
        }
        v if v.is_number() => accounts::of_db(cx.db()),
        v => {
            return Err(Error::bad_value(format!(
                "User and role names must be either strings or objects, but usersInfo got {}",
                v.type_name()
            )));
        }
    })
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = asked(cx)?;
    let matches = filter(cx.args.doc("filter"), cx.op)?;
    let mut users = ArrayBuf::new();
    for stored in auth::all(cx.server, USERS, wanted.as_doc())? {
        let shown = shown(cx, stored.as_doc())?;
        if let Some(f) = &matches
            && !f.matches(shown.as_doc(), cx.op.work())?
        {
            continue;
        }
        users.push(shown);
    }
    cx.reply.field("users", users);
    Ok(())
}

/// A stored user as the command shows it.
fn shown(cx: &CommandContext<'_>, stored: Doc<'_>) -> Result<DocBuf> {
    let asked = |field: &str, default: bool| cx.args.bool(field, default);
    let mut d = DocBuf::new();
    for e in stored {
        let shows = match e.name() {
            "credentials" => asked("showCredentials", false),
            "customData" => asked("showCustomData", true),
            "authenticationRestrictions" => false,
            _ => true,
        };
        if shows {
            d.append_elem(e);
        }
    }
    let credentials = stored.get_doc("credentials").unwrap_or(Doc::EMPTY);
    let mechanisms: ArrayBuf = credentials.iter().map(|e| e.name()).collect();
    d.append("mechanisms", mechanisms);
    let (privileges, restrictions) = (
        asked("showPrivileges", false),
        asked("showAuthenticationRestrictions", false),
    );
    if privileges {
        let granted = auth::privileges_of(cx.server, &accounts::roles_of(stored))?;
        let roles: Vec<_> = granted.roles.into_iter().collect();
        d.append("inheritedRoles", accounts::to_array(&roles));
        d.append("inheritedPrivileges", granted.privileges.to_array());
    }
    if privileges || restrictions {
        let own = stored
            .get_array("authenticationRestrictions")
            .unwrap_or(Doc::EMPTY);
        d.append("authenticationRestrictions", Value::Array(own));
    }
    Ok(d)
}
