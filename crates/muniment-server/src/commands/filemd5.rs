//! `filemd5`: the checksum of a GridFS file, which old drivers ask for.

use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use crate::router::Router;
use crate::router::place::OF_CONFIG;
use crate::router::relay::database;
use crate::router::sharded::host::documents;
use bytes::Bytes;
use md5::{Digest, Md5};
use muniment_auth::action::Action;
use muniment_auth::resource::Target as On;
use muniment_exec::FindRequest;
use muniment_value::args::{Field, Types, opt, refused};
use muniment_value::{Doc, DocBuf, Error, Result, Value, array, doc, number};

const FIELDS: &[Field] = &[
    opt("root", Types::STRING),
    opt("partialOk", Types::SAFE_BOOL),
    refused("md5state", Types::BINARY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "filemd5",
    doc: "The MD5 checksum of a file in GridFS",
    kind: Kind::Read,
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Data),
    ..CommandSpec::new(Routed::By(run_routed), Needs::Of(needs))
};

fn needs(asks: &Asks<'_>) -> bool {
    let root = asks.request.body.get_str("root").unwrap_or("fs");
    let chunks = format!("{root}.chunks");
    asks.may_one(On::Collection(asks.request.db, &chunks), Action::Find)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let ns = format!("{}.{}", cx.db(), chunks_of(cx));
    let (filter, sort) = wanted(cx);
    let request = FindRequest {
        filter: filter.as_doc(),
        sort: sort.as_doc(),
        ..FindRequest::new(&ns)
    };
    let mut cursor = cx.engine().find(cx.op, &request)?;
    answer(cx, &mut |cx| cursor.next_doc(cx.op))
}

/// The router reads the chunks, from all shards that have some.
fn run_routed(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    if OF_CONFIG.contains(&cx.db()) || cx.db() == "local" {
        return database(cx, router);
    }
    let (filter, sort) = wanted(cx);
    let stages = array![doc! { "$match": filter }, doc! { "$sort": sort }];
    let mut found = documents(cx, &chunks_of(cx), stages.as_doc())?;
    answer(cx, &mut |_| found.next())
}

/// The collection with the chunks.
fn chunks_of(cx: &CommandContext<'_>) -> String {
    format!("{}.chunks", cx.args.str("root").unwrap_or("fs"))
}

/// The filter that finds the file's chunks, and their order.
fn wanted(cx: &CommandContext<'_>) -> (DocBuf, DocBuf) {
    let filter = doc! { "files_id": cx.target() };
    (filter, doc! { "files_id": 1, "n": 1 })
}

/// What gives the next chunk, or none after the last one.
type Next<'n> = &'n mut dyn FnMut(&CommandContext<'_>) -> Result<Option<Bytes>>;

/// Answers with the checksum of chunks.
fn answer(cx: &mut CommandContext<'_>, next: Next<'_>) -> Result<()> {
    let partial = cx.args.bool("partialOk", false);
    let (mut md5, mut chunks) = (Md5::new(), 0_i64);
    while let Some(d) = next(cx)? {
        let d = Doc::new(&d);
        let n = d.get("n").and_then(number::to_i64_exact);
        if n != Some(chunks) {
            if partial {
                break;
            }
            return Err(Error::location(
                10_040,
                format!("chunks out of order: expected chunk {chunks} of the file"),
            ));
        }
        match d.get("data") {
            Some(Value::Binary { bytes, .. }) => md5.update(bytes),
            _ => {
                return Err(Error::location(
                    50_847,
                    format!(
                        "The element that calls binData() must be type of BinData, in chunk {chunks}"
                    ),
                ));
            }
        }
        chunks += 1;
    }
    let digest: [u8; 16] = md5.finalize().into();
    let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    cx.reply.field("numChunks", number::narrow(chunks));
    cx.reply.field("md5", hex.as_str());
    Ok(())
}
