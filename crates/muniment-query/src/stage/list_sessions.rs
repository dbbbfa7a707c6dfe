//! `$listLocalSessions` and `$listSessions`.

use super::registry::{Input, Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, idl, report};
use crate::context::QueryContext;
use muniment_value::{Code, Doc, Elem, Error, Result, Value};

pub(crate) const LOCAL: Spec = Spec {
    name: "$listLocalSessions",
    doc: "One document per session that this server holds in memory.",
    place: Place::REPORT.needs(Input::Nothing),
    spread: Spread::Alone,
    rights: Rights::Instead(others),
    parse: |e, ctx, stages| parse("$listLocalSessions", e, ctx, stages),
};

pub(crate) const ALL: Spec = Spec {
    name: "$listSessions",
    doc: "One document per session; on config.system.sessions.",
    place: Place::REPORT,
    spread: Spread::Alone,
    rights: Rights::Instead(others),
    parse: parse_all,
};

/// A user may list the own sessions, and needs a right for those of others.
fn others<'a>(operand: Value<'a>, right: &mut dyn FnMut(Right<'a>)) {
    let d = operand.as_doc().unwrap_or(Doc::EMPTY);
    if ["allUsers", "users"]
        .iter()
        .any(|f| d.get(f).is_some_and(|v| v.truthy()))
    {
        right(Right::Cluster("listSessions"));
    }
}

fn parse_all(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    if ctx.db != "config" || ctx.collection != "system.sessions" {
        return Err(Error::new(
            Code::InvalidNamespace,
            "$listSessions may only be run against config.system.sessions",
        ));
    }
    parse("$listSessions", e, ctx, stages)
}

fn parse(
    stage: &'static str,
    e: Elem<'_>,
    ctx: &QueryContext,
    stages: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::type_mismatch(format!(
            "{stage} options must be specified in an object, but found: {}",
            e.value().type_name()
        )));
    };
    idl::only(stage, d, &["users", "allUsers"])?;
    let all = match d.get("allUsers") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(b)) => b,
        Some(v) => return Err(idl::wrong_type(stage, "allUsers", v, "bool")),
    };
    let named = match d.get("users") {
        None | Some(Value::Null) => 0,
        Some(Value::Array(users)) => count_users(stage, users)?,
        Some(v) => return Err(idl::wrong_type(stage, "users", v, "array")),
    };
    if all && named > 0 {
        return Err(Error::new(
            Code::UnsupportedFormat,
            format!(
                "{stage} may not specify {{allUsers:true}} and {{users:[...]}} at the same time"
            ),
        ));
    }
    stages.push(report::stage(stage, d, ctx));
    Ok(())
}

/// Checks `users`, and returns how many users are named (null counts as none).
fn count_users(stage: &str, users: Doc<'_>) -> Result<usize> {
    let mut n = 0;
    for v in users.values() {
        let user = match v {
            Value::Null => continue,
            Value::Document(user) => user,
            v => return Err(idl::wrong_type(stage, "users", v, "object")),
        };
        let within = format!("{stage}.users");
        idl::only(&within, user, &["user", "db"])?;
        for field in ["user", "db"] {
            if matches!(user.get(field), None | Some(Value::Null)) {
                return Err(idl::missing(&within, field));
            }
            idl::string(&within, user, field)?;
        }
        n += 1;
    }
    Ok(n)
}
