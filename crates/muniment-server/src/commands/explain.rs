//! `explain`.

use super::{explain_reply, query_shape};
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::generic::Generic;
use crate::namespace;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Secret, Target};
use muniment_exec::{Explainable, Verbosity, omitted};
use muniment_value::args::{Args, Field, Types, opt};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value};

const FIELDS: &[Field] = &[opt("verbosity", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "explain",
    doc: "How a command would be executed",
    kind: Kind::Read,
    read_concern: true,
    api_v1: true,
    fields: FIELDS,
    secret: Secret::Within,
    run,
    ..CommandSpec::new(
        Routed::By(crate::router::sharded::explain::run),
        Needs::Of(needs),
    )
};

/// To explain a command takes what it takes to run it.
fn needs(asks: &Asks<'_>) -> bool {
    let command = asks.target().as_doc().unwrap_or(Doc::EMPTY);
    asks.may_run(asks.request.db, command)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let verbosity = match cx.args.str("verbosity") {
        None | Some("allPlansExecution") => Verbosity::AllPlansExecution,
        Some("queryPlanner") => Verbosity::QueryPlanner,
        Some("executionStats") => Verbosity::ExecutionStats,
        Some(other) => {
            return Err(Error::bad_value(format!(
                "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
            )));
        }
    };
    let command = cx.typed_target(Types::OBJECT)?;
    let command = command.as_doc().unwrap_or(Doc::EMPTY);
    let name = command.first().map_or("", |e| e.name());
    let spec = crate::registry::find(name).ok_or_else(|| {
        Error::new(
            Code::CommandNotFound,
            format!("Explain failed due to unknown command: {name}"),
        )
    })?;
    if let Some(db) = command.get_str("$db")
        && db != cx.db()
    {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!(
                "Mismatched $db in explain command. Expected {} but got {db}",
                cx.db()
            ),
        ));
    }
    let mut generic = Generic::default();
    let args = Args::parse_with(spec.name, spec.fields, command.iter().skip(1), |e| {
        generic.take(spec.name, e)
    })?;
    let target = command.first().map_or(Value::Null, |e| e.value());
    let collection = match spec.target {
        Target::Collection | Target::CollectionOrUuid => {
            Some(namespace::collection_of(cx.db(), target)?)
        }
        Target::CollectionOrDatabase if target.is_number() => None,
        Target::CollectionOrDatabase => Some(namespace::collection_of(cx.db(), target)?),
        Target::CollectionUnchecked | Target::Cursor | Target::Anything => None,
    };
    let ns = format!("{}.{}", cx.db(), collection.unwrap_or("$cmd.aggregate"));
    let of = Explained {
        args,
        generic,
        namespace: &ns,
        collection,
        verbosity,
        command,
    };
    match spec.explain {
        Some(explain) => explain(cx, &of),
        None => Err(Error::new(
            Code::IllegalOperation,
            format!("Cannot explain cmd: {}", spec.name),
        )),
    }
}

/// The only statement of an explained write command. Its statements may also come as a document sequence
/// beside the explain command.
///
/// # Errors
/// 16 InvalidLength.
pub(super) fn statement<'a>(
    cx: &CommandContext<'a>,
    of: &Explained<'a, '_>,
    field: &str,
) -> Result<Doc<'a>> {
    let mut all = match cx.request.sequence(field) {
        Some(s) => s.map(Value::Document).collect::<Vec<_>>(),
        None => of
            .args
            .array(field)
            .into_iter()
            .flat_map(|a| a.values())
            .collect(),
    };
    match (all.pop(), all.is_empty()) {
        (Some(Value::Document(d)), true) => Ok(d),
        _ => Err(Error::new(
            Code::InvalidLength,
            format!(
                "explained write batches must be of size 1: {}.{field}",
                of.command.first().map_or("", |e| e.name())
            ),
        )),
    }
}

/// An upper bound for the parts of a reply beside the plan and the command, in bytes.
const AROUND: usize = 4096;

/// The command as it was sent, with its database at the end.
fn with_db(command: Doc<'_>, db: &str) -> DocBuf {
    let mut d = DocBuf::new();
    for e in command.iter().filter(|e| e.name() != "$db") {
        d.append_elem(e);
    }
    d.append("$db", db);
    d
}

/// Explains and answers.
pub(super) fn answer(
    cx: &mut CommandContext<'_>,
    what: &Explainable<'_>,
    verbosity: Verbosity,
    command: Doc<'_>,
) -> Result<()> {
    let explained = cx.engine().explain(cx.op, what, verbosity)?;
    let db = cx.db().to_string();
    let w = &mut cx.reply;
    w.elements(explained.as_doc());
    let reads = matches!(
        what,
        Explainable::Find(_)
            | Explainable::Aggregate(_)
            | Explainable::Distinct(_)
            | Explainable::Count(_)
    );
    if reads {
        w.field("queryShapeHash", query_shape::hash(command).as_str());
    }
    // The command is left out if the reply would otherwise be too large for a document.
    let whole = explained.as_doc().byte_len() + command.byte_len() + AROUND;
    if whole < muniment_query::bytes::MAX_DOCUMENT {
        w.field("command", with_db(command, db.as_str()));
    } else {
        w.field("warning", omitted("command").as_str());
    }
    explain_reply::write_server(cx);
    Ok(())
}
