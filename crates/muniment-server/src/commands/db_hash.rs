//! `dbHash`: an MD5 sum of every collection's documents, in the order of their `_id`s as in
//! MongoDB (two members that hold the same documents may number them differently), of capped
//! collections in their natural order.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use md5::{Digest, Md5};
use muniment_auth::action::Action;
use muniment_exec::stored_name;
use muniment_op::Interrupt;
use muniment_storage::{Collection, Direction, KeyRange, Snapshot};
use muniment_value::{ArrayBuf, DocBuf, Error, Result, Value, number};
use std::time::Instant;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dbHash",
    aliases: &["dbhash"],
    doc: "Hashes of a database's collections",
    kind: Kind::Read,
    read_concern: true,
    open_fields: true,
    is_read_operation: |_| true,
    run,
    runs_on: Some(RunsOn::Data),
    ..CommandSpec::new(Routed::Refused, Needs::database(&[Action::DbHash]))
};

/// System collections that are data like others.
fn is_hashed(name: &str) -> bool {
    match name.strip_prefix("system.") {
        None => true,
        Some(rest) => matches!(rest, "js" | "views" | "users" | "roles"),
    }
}

fn hex(sum: &[u8]) -> String {
    sum.iter().map(|b| format!("{b:02x}")).collect()
}

fn hash(cx: &CommandContext<'_>, snapshot: &Snapshot, c: &Collection) -> Result<String> {
    let mut sum = Md5::new();
    let mut n = 0_u32;
    let mut add = |d: &[u8]| {
        sum.update(d);
        n = n.wrapping_add(1);
        match n.is_multiple_of(256) {
            true => cx.op.check(),
            false => Ok(()),
        }
    };
    let ids = c.indexes().iter().find(|i| i.is_id()).cloned();
    match ids.filter(|_| c.is_numbered() && !c.is_capped()) {
        Some(index) => {
            let all = KeyRange::all();
            let mut cursor = snapshot.entries(c, &index, &all, Direction::Forward);
            while let Some(e) = cursor.next(&**cx.op)? {
                if let Some(d) = snapshot.get(c, &e.record_key)? {
                    add(&d)?;
                }
            }
        }
        None => {
            let mut cursor = snapshot.docs(c, &KeyRange::all(), Direction::Forward);
            while let Some((_, d)) = cursor.next(&**cx.op)? {
                add(&d)?;
            }
        }
    }
    Ok(hex(&sum.finalize()))
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let began = Instant::now();
    let mut wanted = Vec::new();
    if let Some(Value::Array(list)) = cx.request.body.get("collections") {
        for v in list.values() {
            match v {
                Value::String(name) => wanted.push(name),
                _ => {
                    return Err(Error::bad_value("collections entries have to be strings"));
                }
            }
        }
    }
    let snapshot = cx.engine().store.snapshot();
    let (mut hashes, mut uuids, mut capped) = (DocBuf::new(), DocBuf::new(), ArrayBuf::new());
    let mut all = Md5::new();
    for c in cx.engine().store.collections(cx.db()) {
        let ns = c.namespace();
        let name = ns.split_once('.').map_or("", |(_, name)| name);
        if !is_hashed(name) || !(wanted.is_empty() || wanted.contains(&name)) {
            continue;
        }
        let shown = stored_name(&c, name);
        if c.is_capped() {
            capped.push(shown.as_str());
        }
        let uuid = c.uuid();
        uuids.append(
            &shown,
            Value::Binary {
                subtype: 4,
                bytes: &uuid,
            },
        );
        let hash = hash(cx, &snapshot, &c)?;
        all.update(hash.as_bytes());
        hashes.append(&shown, hash.as_str());
    }
    let w = &mut cx.reply;
    w.field("host", cx.server.address.host.as_str());
    w.field("collections", hashes);
    w.field("capped", capped);
    w.field("uuids", uuids);
    w.field("md5", hex(&all.finalize()));
    w.field(
        "timeMillis",
        number::narrow(began.elapsed().as_millis() as i64),
    );
    Ok(())
}
