//! `create`.

use crate::args::{Field, Types, idle, opt, refused};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_storage::CollectionOptions;
use muniment_value::{Code, Error, Result, number};

/// Capped sizes are rounded up to a multiple of this, in bytes.
const CAPPED_STEP: u64 = 256;

const FIELDS: &[Field] = &[
    opt("capped", Types::SAFE_BOOL),
    opt("size", Types::NUMBER),
    opt("max", Types::NUMBER),
    opt("idIndex", Types::OBJECT),
    opt("autoIndexId", Types::SAFE_BOOL),
    idle(
        "flags",
        Types::NUMBER,
        "of the MMAPv1 engine; MongoDB ignores it since 4.2",
    ),
    refused("validator", Types::OBJECT),
    refused("validationLevel", Types::STRING),
    refused("validationAction", Types::STRING),
    refused("collation", Types::OBJECT),
    refused("viewOn", Types::STRING),
    refused("pipeline", Types::ARRAY),
    refused("timeseries", Types::OBJECT),
    refused("clusteredIndex", Types::SAFE_BOOL.or(Types::OBJECT)),
    refused("expireAfterSeconds", Types::NUMBER),
    refused("indexOptionDefaults", Types::OBJECT),
    refused("storageEngine", Types::OBJECT),
    refused("encryptedFields", Types::OBJECT),
    refused("changeStreamPreAndPostImages", Types::OBJECT),
    refused("temp", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "create",
    doc: "Creates a collection",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn options(cx: &CommandContext<'_>) -> Result<CollectionOptions> {
    let a = &cx.args;
    let mut o = CollectionOptions::default();
    let capped = a.bool("capped", false);
    let size = a.int("size", i64::MIN, 1 << 50)?;
    let max = a.int("max", i64::MIN, i64::from(i32::MAX))?;
    if !capped {
        if size.is_some() || max.is_some() {
            return Err(Error::new(
                Code::InvalidOptions,
                "the 'capped' field needs to be true when either the 'size' or 'max' fields are \
                 present",
            ));
        }
        return Ok(o);
    }
    let size = match size {
        None => {
            return Err(Error::new(
                Code::InvalidOptions,
                "the 'size' field is required when 'capped' is true",
            ));
        }
        Some(n) if n < 1 => {
            return Err(Error::location(
                51024,
                format!("BSON field 'size' value must be >= 1, actual value '{n}'"),
            ));
        }
        Some(n) => (n as u64).div_ceil(CAPPED_STEP) * CAPPED_STEP,
    };
    o.capped_size = Some(size);
    o.capped_max = max.filter(|n| *n > 0).map(|n| n as u64);
    o.document.append("capped", true);
    o.document.append("size", number::narrow(size as i64));
    if let Some(n) = o.capped_max {
        o.document.append("max", number::narrow(n as i64));
    }
    Ok(o)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    namespace::check_create(cx.db(), cx.collection_name())?;
    if let Some(id) = cx.args.doc("idIndex") {
        let key = id.get_doc("key").and_then(|k| k.first());
        let ascending = key.is_some_and(|e| {
            e.name() == "_id" && e.value().as_i64_exact() == Some(1)
        });
        if !ascending {
            return Err(Error::new(
                Code::BadValue,
                "The field 'key' for an _id index must be {_id: 1}",
            ));
        }
        if let Some(c) = id.get_doc("collation")
            && c.get_str("locale") != Some("simple")
        {
            return Err(Error::new(
                Code::NotImplemented,
                "BSON field 'create.idIndex.collation' is not supported",
            ));
        }
    }
    let auto_index_id = cx.args.get("autoIndexId").is_some();
    if !cx.args.bool("autoIndexId", true) {
        return Err(Error::location(
            50001,
            format!(
                "autoIndexId:false is not allowed for collection {} because it can be replicated",
                cx.ns()
            ),
        ));
    }
    let options = options(cx)?;
    let store = &cx.engine().store;
    let wanted = options.document.clone();
    match store.create_collection(cx.ns(), options) {
        Ok(_) => {}
        Err(e) if e.code() == Code::NamespaceExists => {
            // The same collection again is no error.
            let same = store
                .collection(cx.ns())
                .is_some_and(|c| c.options().document == wanted);
            if !same {
                return Err(Error::new(
                    Code::NamespaceExists,
                    format!("Collection {} already exists.", cx.ns()),
                ));
            }
        }
        Err(e) => return Err(e),
    }
    if auto_index_id {
        cx.reply.field(
            "note",
            "The autoIndexId option is deprecated and will be removed in a future release",
        );
    }
    cx.note_write();
    Ok(())
}
