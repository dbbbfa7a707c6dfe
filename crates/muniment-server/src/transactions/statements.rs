//! The statements of a retryable command.

use crate::context::Request;
use crate::registry::{CommandSpec, Statements};
use muniment_exec::StatementIds;
use muniment_value::args::Args;
use muniment_value::{Code, Doc, Error, Result, Value, number};
use std::collections::HashSet;

/// The statements of a retryable command, by their numbers.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Their ids.
    pub ids: StatementIds,
    /// The command returns the document as it was before (false) or after (true) the change; `None` for
    /// others.
    pub returns: Option<bool>,
}

/// How many statements a retryable command has.
pub fn statements(request: &Request<'_>, spec: &CommandSpec) -> usize {
    match spec.statements {
        Statements::List { field, .. } => request.documents(field).count(),
        Statements::One | Statements::None => 1,
    }
}

fn whole(v: Value<'_>) -> Option<i32> {
    number::to_i64_exact(v).and_then(|n| i32::try_from(n).ok())
}

impl Numbered {
    /// Reads the numbers that the command gives its statements.
    ///
    /// # Errors
    /// 72 for a statement that cannot be retried because it may change several documents; 2 and 16 for ids
    /// that do not give each statement one of its own.
    pub fn parse(args: &Args<'_>, request: &Request<'_>, spec: &CommandSpec) -> Result<Numbered> {
        let one = matches!(spec.statements, Statements::One);
        let each = (!one).then(|| args.array("stmtIds")).flatten();
        let all = statements(request, spec);
        let ids = match each {
            Some(each) => StatementIds::Each(check_ids(each, all)?),
            None => StatementIds::From(first_id(args, all)?),
        };
        if let Statements::List {
            field,
            many,
            many_text,
        } = spec.statements
            && request.documents(field).any(many)
        {
            return Err(Error::new(
                Code::InvalidOptions,
                format!("Cannot use retryable writes with {many_text}"),
            ));
        }
        let returns = one.then(|| args.bool("new", false));
        Ok(Numbered { ids, returns })
    }
}

/// The id of the first statement. The ids of the others follow on it.
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
