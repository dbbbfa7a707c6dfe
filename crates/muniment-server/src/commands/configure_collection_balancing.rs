//! `configureCollectionBalancing`: how the balancer treats a collection.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::forward::run as ask;
use crate::router::sharded::chunks::known_now;
use crate::uuid::uuid_value;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, DocBuf, Error, Result, array, doc, number};

const FIELDS: &[Field] = &[
    opt("chunkSize", Types::NUMBER),
    opt("defragmentCollection", Types::SAFE_BOOL),
    opt("enableAutoMerger", Types::SAFE_BOOL),
    opt("enableBalancing", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "configureCollectionBalancing",
    doc: "Says how the balancer treats a collection",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::SplitChunk)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    if cx.args.bool("defragmentCollection", false) {
        return Err(Error::new(
            Code::CommandNotSupported,
            "defragmentCollection is not there yet: mergeAllChunksOnShard merges what lies side by side",
        ));
    }
    let known = known_now(cx, router, ns)?;
    let (mut set, mut unset) = (DocBuf::new(), DocBuf::new());
    if let Some(size) = cx.args.get("chunkSize").and_then(number::to_f64) {
        let bytes = size * f64::from(1 << 20);
        match bytes {
            0.0 => unset.append("maxChunkSizeBytes", ""),
            1.0..=1_073_741_824.0 => set.append("maxChunkSizeBytes", bytes as i64),
            _ => {
                return Err(Error::bad_value(format!(
                    "Chunk size '{size}' out of range [0, 1024]"
                )));
            }
        };
    }
    if cx.args.get("enableAutoMerger").is_some() {
        set.append("enableAutoMerge", cx.args.bool("enableAutoMerger", true));
    }
    if cx.args.get("enableBalancing").is_some() {
        set.append("noBalance", !cx.args.bool("enableBalancing", true));
    }
    let mut change = DocBuf::new();
    for (name, fields) in [("$set", set), ("$unset", unset)] {
        if !fields.as_doc().is_empty() {
            change.append(name, fields);
        }
    }
    if change.as_doc().is_empty() {
        return Ok(());
    }
    let uuid = uuid_value(&known.collection.generation.uuid);
    let update = doc! { "q": doc! { "_id": ns, "uuid": uuid }, "u": change };
    let command = doc! {
        "update": "collections", "updates": array![update],
        "writeConcern": doc! { "w": "majority" },
    };
    ask(&**cx.op, router, &router.config, "config", &command, true)?;
    router.tables.refresh(&**cx.op, router, ns).map(drop)
}
