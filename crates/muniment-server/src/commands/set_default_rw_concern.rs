//! `setDefaultRWConcern`: the defaults are stored in `config.settings`, so that a restart keeps them.

use crate::auth::Needs;
use crate::concern::{
    Levels, Provenance, ReadsIn, STORED_DEFAULTS, WriteConcern, check_read_concern,
};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use crate::settings;
use crate::settings::DefaultConcern;
use crate::state::ServerState;
use muniment_auth::action::Action;
use muniment_exec::{OpContext, StatementOutcome, UpdateStatement};
use muniment_logger::{Severity, now_ms};
use muniment_member::W;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};

/// Where the defaults are stored, and the `_id` they are stored under.
const NAMESPACE: &str = STORED_DEFAULTS.0;
const ID: &str = STORED_DEFAULTS.1;

const FIELDS: &[Field] = &[
    opt("defaultReadConcern", Types::OBJECT),
    opt("defaultWriteConcern", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "setDefaultRWConcern",
    doc: "Sets the default read and write concern",
    kind: Kind::Admin,
    admin_only: true,
    write_concern: true,
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Primary),
    ..CommandSpec::new(
        Routed::Everywhere,
        Needs::cluster(&[Action::SetDefaultRWConcern]),
    )
};

fn parse_write(d: Doc<'_>, member: bool) -> Result<Option<WriteConcern>> {
    if d.is_empty() {
        return Ok(None);
    }
    if d.get("w").is_none() {
        return Err(Error::bad_value(
            "missing w field, which is required for a default write concern",
        ));
    }
    let mut wc = WriteConcern::parse(d, WriteConcern::IMPLICIT, member)?;
    if wc.w == W::Nodes(0) {
        return Err(Error::bad_value(
            "Default write concern must be at least w:1",
        ));
    }
    wc.provenance = Provenance::CustomDefault;
    Ok(Some(wc))
}

fn parse_read(d: Doc<'_>, member: bool) -> Result<Option<String>> {
    let place = match member {
        true => ReadsIn::Set,
        false => ReadsIn::Standalone,
    };
    let levels = Levels {
        command: COMMAND.name,
        others: true,
        snapshots: false,
    };
    check_read_concern(d, levels, place)?;
    if let Some(level @ "linearizable") = d.get_str("level") {
        return Err(Error::bad_value(format!(
            "level: '{level}' is not suitable for the default read concern"
        )));
    }
    if d.get("afterClusterTime").is_some() {
        return Err(Error::bad_value(
            "'afterClusterTime' is not suitable for the default read concern",
        ));
    }
    Ok(d.get_str("level").map(str::to_string))
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let (read, write) = (
        cx.args.doc("defaultReadConcern"),
        cx.args.doc("defaultWriteConcern"),
    );
    if read.is_none() && write.is_none() {
        return Err(Error::new(
            Code::BadValue,
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be \
             present",
        ));
    }
    let member = cx.server.replica_set.is_some();
    let write = write.map(|d| parse_write(d, member)).transpose()?;
    let read = read.map(|d| parse_read(d, member)).transpose()?;
    let outcome = settings::change(cx.server, || {
        let mut new = cx.server.settings.default_concern.read().clone();
        if let Some(write) = write {
            new.write = write;
        }
        if let Some(read) = read {
            new.read = read;
        }
        store(cx, new)
    })?;
    cx.note_commit(outcome.commit);
    super::get_default_rw_concern::write(cx)
}

fn store(cx: &CommandContext<'_>, mut new: DefaultConcern) -> Result<StatementOutcome> {
    new.set_at_ms = Some(now_ms());
    let mut stored = DocBuf::new();
    if let Some(w) = &new.write {
        stored.append("defaultWriteConcern", w.to_doc());
    }
    if let Some(level) = &new.read {
        stored.append("defaultReadConcern", doc! { "level": level.as_str() });
    }
    stored.append(
        "updateWallClockTime",
        Value::DateTime(new.set_at_ms.unwrap_or_default()),
    );
    let filter = doc! { "_id": ID };
    let statement = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(filter.as_doc(), Value::Document(stored.as_doc()))
    };
    let outcome = cx.engine().update(cx.op, NAMESPACE, &statement)?;
    *cx.server.settings.default_concern.write() = new;
    Ok(outcome)
}

/// Puts the stored defaults in force, for [`settings::take`]. Defaults that cannot be read are logged as a
/// warning and change nothing.
pub fn load(server: &ServerState) {
    if server.engine.store.collection(NAMESPACE).is_none() {
        *server.settings.default_concern.write() = DefaultConcern::default();
        return;
    }
    let member = server.replica_set.is_some();
    let op = OpContext::internal("setDefaultRWConcern");
    let filter = doc! { "_id": ID };
    let request = muniment_exec::FindRequest {
        filter: filter.as_doc(),
        ..muniment_exec::FindRequest::new(NAMESPACE)
    };
    let found = server
        .engine
        .find(&op, &request)
        .and_then(|mut c| c.next_doc(&op));
    let restored = found.and_then(|d| {
        let Some(d) = d else { return Ok(None) };
        let d = Doc::new(&d);
        Ok(Some(DefaultConcern {
            write: d
                .get_doc("defaultWriteConcern")
                .map(|d| parse_write(d, member))
                .transpose()?
                .flatten(),
            read: d
                .get_doc("defaultReadConcern")
                .map(|d| parse_read(d, member))
                .transpose()?
                .flatten(),
            set_at_ms: match d.get("updateWallClockTime") {
                Some(Value::DateTime(ms)) => Some(ms),
                _ => None,
            },
        }))
    });
    match restored {
        Ok(Some(c)) => *server.settings.default_concern.write() = c,
        Ok(None) => *server.settings.default_concern.write() = DefaultConcern::default(),
        Err(e) => server.log.log(
            Severity::Warning,
            "CONTROL",
            21_380,
            "readWriteConcernDefaults",
            "The stored default read and write concern cannot be used",
            Some(&doc! { "error": server.log.error(&e) }),
        ),
    }
}
