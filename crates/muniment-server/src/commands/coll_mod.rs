//! `collMod`.

use super::drop_indexes::same_pattern;
use crate::args::{Args, Field, Types, opt, refused};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_storage::IndexSpec;
use muniment_value::{Code, Error, Result, Value, number};

const FIELDS: &[Field] = &[
    opt("index", Types::OBJECT),
    refused("validator", Types::OBJECT),
    refused("validationLevel", Types::STRING),
    refused("validationAction", Types::STRING),
    refused("viewOn", Types::STRING),
    refused("pipeline", Types::ARRAY),
    refused("cappedSize", Types::NUMBER),
    refused("cappedMax", Types::NUMBER),
    refused("expireAfterSeconds", Types::NUMBER.or(Types::STRING)),
    refused("timeseries", Types::OBJECT),
    refused("changeStreamPreAndPostImages", Types::OBJECT),
    refused("dryRun", Types::SAFE_BOOL),
];

const INDEX: &[Field] = &[
    opt("name", Types::STRING),
    opt("keyPattern", Types::OBJECT),
    opt("expireAfterSeconds", Types::NUMBER),
    opt("hidden", Types::SAFE_BOOL),
    refused("unique", Types::SAFE_BOOL),
    refused("prepareUnique", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "collMod",
    doc: "Changes an index's expiry or hides it",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let collection = cx.engine().store.collection(cx.ns()).ok_or_else(|| {
        Error::new(
            Code::NamespaceNotFound,
            format!("ns does not exist: {}", cx.ns()),
        )
    })?;
    let Some(index) = cx.args.doc("index") else {
        return Ok(());
    };
    let a = Args::parse("collMod.index", INDEX, index)?;
    let options = |m: &str| Error::new(Code::InvalidOptions, m.to_string());
    let (name, pattern) = (a.str("name"), a.doc("keyPattern"));
    if name.is_some() == pattern.is_some() {
        return Err(options(if name.is_some() {
            "Cannot specify both key pattern and name."
        } else {
            "Must specify either index name or key pattern."
        }));
    }
    let (ttl, hidden) = (a.get("expireAfterSeconds"), a.get("hidden"));
    if ttl.is_none() && hidden.is_none() {
        return Err(options(
            "no expireAfterSeconds, hidden, unique, or prepareUnique field",
        ));
    }
    let indexes = collection.indexes();
    let old = indexes
        .iter()
        .map(|i| i.spec())
        .find(|s| match (name, pattern) {
            (Some(n), _) => s.name == n,
            (_, Some(p)) => same_pattern(s.key.as_doc(), p),
            _ => false,
        })
        .ok_or_else(|| {
            Error::new(
                Code::IndexNotFound,
                format!(
                    "cannot find index {} for ns {}",
                    Value::Document(index).to_display(),
                    cx.ns()
                ),
            )
        })?;
    let mut new: IndexSpec = (*old).clone();
    if old.name == "_id_" {
        return Err(Error::new(
            Code::BadValue,
            "can't hide _id index or make it expire",
        ));
    }
    if let Some(v) = ttl {
        if old.key.as_doc().count() != 1 {
            return Err(options(
                "TTL indexes are single-field indexes, compound indexes do not support TTL",
            ));
        }
        let n = number::to_i64_clamped(v).unwrap_or(-1);
        if !(0..=i64::from(i32::MAX)).contains(&n) {
            return Err(options(
                "TTL index 'expireAfterSeconds' option must be within an acceptable range",
            ));
        }
        new.expire_after_seconds = Some(n);
    }
    if let Some(v) = hidden {
        new.hidden = v.truthy();
    }
    let new = new.with_document();
    if new != *old {
        cx.engine().store.modify_index(&collection, new.clone())?;
        cx.note_write();
    }
    let w = &mut cx.reply;
    if old.expire_after_seconds != new.expire_after_seconds {
        if let Some(n) = old.expire_after_seconds {
            w.field("expireAfterSeconds_old", n);
        }
        if let Some(n) = new.expire_after_seconds {
            w.field("expireAfterSeconds_new", n);
        }
    }
    if old.hidden != new.hidden {
        w.field("hidden_old", old.hidden);
        w.field("hidden_new", new.hidden);
    }
    Ok(())
}
