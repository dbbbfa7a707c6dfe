//! What a retryable command says of its statements.

use crate::args::Args;
use crate::context::Request;
use crate::registry::CommandSpec;
use muniment_exec::StatementIds;
use muniment_value::{Code, Doc, Error, Result, Value, number};
use std::collections::HashSet;

/// The statements of a retryable command.
#[derive(Clone, Debug)]
pub struct Statements {
    /// Their ids.
    pub ids: StatementIds,
    /// The command returns the document as it is before (false) or after (true) the change.
    pub returns: Option<bool>,
}

/// The field of a command's statements.
fn field(spec: &CommandSpec) -> &'static str {
    match spec.name {
        "insert" => "documents",
        "update" => "updates",
        "delete" => "deletes",
        _ => "ops",
    }
}

/// How many statements a retryable command has.
pub fn statements(request: &Request<'_>, spec: &CommandSpec) -> usize {
    match spec.name {
        "findAndModify" => 1,
        _ => request.documents(field(spec)).count(),
    }
}

fn whole(v: Value<'_>) -> Option<i32> {
    number::to_i64_exact(v).and_then(|n| i32::try_from(n).ok())
}

impl Statements {
    /// As the command says.
    ///
    /// # Errors
    /// 72 for a statement that cannot be retried, since it may change several documents; 2 and 16 for
    /// ids that are not one of its own for each statement.
    pub fn parse(args: &Args<'_>, request: &Request<'_>, spec: &CommandSpec) -> Result<Statements> {
        let one = spec.name == "findAndModify";
        let each = (!one).then(|| args.array("stmtIds")).flatten();
        let ids = match each {
            Some(all) => {
                StatementIds::Each(check_ids(all, request.documents(field(spec)).count())?)
            }
            None => StatementIds::From(first_id(args, statements(request, spec))?),
        };
        let many = |d: Doc<'_>| match spec.name {
            "delete" => d.get("limit").and_then(whole) == Some(0),
            "update" | "bulkWrite" => d.get("multi").is_some_and(|v| v.truthy()),
            _ => false,
        };
        if spec.name != "insert" && request.documents(field(spec)).any(many) {
            let what = match spec.name {
                "delete" => "limit=0",
                _ => "multi=true",
            };
            return Err(Error::new(
                Code::InvalidOptions,
                format!("Cannot use retryable writes with {what}"),
            ));
        }
        let returns = one.then(|| args.bool("new", false));
        Ok(Statements { ids, returns })
    }
}

/// The id of the first of so many statements, whose ids follow on each other.
fn first_id(args: &Args<'_>, statements: usize) -> Result<i32> {
    let Some(given) = args.get("stmtId") else {
        return Ok(0);
    };
    let behind = i32::try_from(statements.saturating_sub(1)).ok();
    let first = whole(given).filter(|first| *first >= 0);
    let fits = |(first, behind): &(i32, i32)| first.checked_add(*behind).is_some();
    first
        .zip(behind)
        .filter(fits)
        .map(|(first, _)| first)
        .ok_or_else(|| {
            Error::bad_value(format!(
                "BSON field 'stmtId' is {}; the ids of the {statements} statements from there on \
                 have to be whole numbers from 0 to 2147483647",
                given.to_display()
            ))
        })
}

fn check_ids(ids: Doc<'_>, statements: usize) -> Result<Vec<i32>> {
    let all: Vec<i32> = ids
        .values()
        .filter_map(whole)
        .filter(|id| *id >= 0)
        .collect();
    let given = ids.values().count();
    if given != statements {
        return Err(Error::new(
            Code::InvalidLength,
            format!(
                "The size of the statement ids array ({given}) does not match the number of \
                 operations ({statements})"
            ),
        ));
    }
    let distinct: HashSet<&i32> = all.iter().collect();
    if distinct.len() < given {
        return Err(Error::bad_value(
            "The statement ids must be distinct numbers from 0 on",
        ));
    }
    Ok(all)
}
