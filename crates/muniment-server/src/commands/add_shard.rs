//! `addShard`: a replica set becomes a shard of the cluster.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::options::SetAddress;
use crate::registry::CommandSpec;
use crate::router::configuration::read;
use crate::router::{Router, SetPool, forward, settings};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, idle, opt};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc};
use muniment_wire::client;

const FIELDS: &[Field] = &[
    opt("name", Types::STRING),
    idle("maxSize", Types::NUMBER, "older versions only"),
];

/// The name of the configuration's set as a shard.
pub const CONFIG: &str = "config";

/// The databases that each server has for itself.
const OWN: [&str; 3] = ["admin", "config", "local"];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "addShard",
    aliases: &["addshard"],
    doc: "Makes a replica set a shard of the cluster",
    fields: FIELDS,
    ..CommandSpec::of_cluster(run, Needs::cluster(&[Action::AddShard]))
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let text = cx.text_target()?;
    if !text.contains('/') {
        return Err(Error::new(
            Code::OperationFailed,
            format!(
                "{text} names no replica set: a shard is a set, if only of one member, and its address is \
                 setName/host:port,host:port"
            ),
        ));
    }
    let address = SetAddress::parse(text, 27018)?;
    let wanted = cx.args.str("name");
    let name = wanted.unwrap_or(&address.name);
    if name.is_empty() || name == CONFIG {
        return Err(Error::bad_value(format!(
            "a shard cannot be named '{name}'"
        )));
    }
    let added = add(cx, router, wanted, &address)?;
    cx.reply.field("shardAdded", added);
    Ok(())
}

/// Makes a set a shard with this name, or that of the set. The name that it has, which is another one if it is a shard
/// already.
///
/// # Errors
/// 96 OperationFailed for a set that cannot be a shard; 20 IllegalOperation if there is another shard with its name;
/// those of the set and of the configuration's.
pub fn add(
    cx: &CommandContext<'_>,
    router: &Router,
    wanted: Option<&str>,
    address: &SetAddress,
) -> Result<String> {
    let name = wanted.unwrap_or(&address.name);
    let set = router.catalog.reach(router, address);
    set.look(&**cx.op)?;
    let databases = match known(cx, router, (name, wanted.is_some()), address)? {
        Some((before, false)) => return Ok(before),
        // An earlier call was cut off before all databases were noted, as the field `addingDatabases` says.
        Some((before, true)) if before != name => return Ok(before),
        Some(_) => databases_of(cx, router, &set)?,
        None => {
            let databases = check(cx, router, name, &set)?;
            // Change streams show what happens there later than this.
            let at = router.times.at();
            let (t, i) = (at.seconds(), at.increment());
            let shard = doc! {
                "_id": name, "host": set.text(), "state": 1, "topologyTime": Value::Timestamp { t, i },
                "addingDatabases": true,
            };
            let insert = doc! {
                "insert": "shards", "documents": array![shard],
                "writeConcern": doc! { "w": "majority" },
            };
            store(cx, router, &insert)?;
            databases
        }
    };
    router.catalog.shards(&**cx.op, router)?;
    settings::adopt(cx, router, &set)?;
    // Databases that the shard had before are the cluster's from now on.
    for db in databases {
        let wanted = Some(Some(name));
        let on = router.catalog.database(&**cx.op, router, &db, wanted)?;
        if on.is_some_and(|on| on.name != set.name) {
            return Err(Error::new(
                Code::OperationFailed,
                format!(
                    "the shard is added, but its database '{db}' was made on another one meanwhile: drop it on \
                     the shard itself"
                ),
            ));
        }
    }
    let whole = doc! {
        "q": doc! { "_id": name }, "u": doc! { "$unset": doc! { "addingDatabases": "" } },
    };
    let update = doc! {
        "update": "shards", "updates": array![whole], "writeConcern": doc! { "w": "majority" },
    };
    store(cx, router, &update)?;
    Ok(name.to_string())
}

/// The name of the shard, and whether it is still being added, if there is already one with this name or this set. Whether
/// the command names it counts, too.
fn known(
    cx: &CommandContext<'_>,
    router: &Router,
    (name, is_named): (&str, bool),
    address: &SetAddress,
) -> Result<Option<(String, bool)>> {
    for d in read(&**cx.op, router, "shards", DocBuf::new())? {
        let d = d.as_doc();
        let (id, host) = (d.get_str("_id").unwrap_or_default(), d.get_str("host"));
        let same = host.is_some_and(|h| h.split('/').next() == Some(&address.name));
        let is_known = |h: &String| host.is_some_and(|all| all.contains(h.as_str()));
        if same && !address.hosts.iter().any(is_known) {
            return Err(Error::new(
                Code::IllegalOperation,
                format!(
                    "there is already a shard of a set with this name at {}",
                    host.unwrap_or_default()
                ),
            ));
        }
        match (id == name, same) {
            (_, true) if id == name || !is_named => {
                let adding = d.get("addingDatabases").is_some_and(|v| v.truthy());
                return Ok(Some((id.to_string(), adding)));
            }
            (true, _) | (_, true) => {
                return Err(Error::new(
                    Code::IllegalOperation,
                    format!(
                        "there is already the shard '{id}' at {}",
                        host.unwrap_or_default()
                    ),
                ));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Checks that a set may become a shard; the databases that it has.
fn check(
    cx: &CommandContext<'_>,
    router: &Router,
    name: &str,
    set: &SetPool,
) -> Result<Vec<String>> {
    let failed = |why: String| Error::new(Code::OperationFailed, why);
    let info = forward::run(
        &**cx.op,
        router,
        set,
        "admin",
        &doc! { "buildInfo": 1 },
        true,
    )?;
    if info.as_doc().get("muniment").is_none() {
        return Err(failed(format!(
            "the set {} is none of Muniment's: the shards of a cluster are of one kind",
            set.name
        )));
    }
    let hello = forward::run(&**cx.op, router, set, "admin", &doc! { "hello": 1 }, true)?;
    if hello.as_doc().get("configsvr").is_some() && name != CONFIG {
        return Err(failed(format!(
            "the set {} holds the configuration of a cluster, which becomes a shard of it by \
             transitionFromDedicatedConfigServer",
            set.name
        )));
    }
    let names = databases_of(cx, router, set)?;
    for d in read(&**cx.op, router, "databases", DocBuf::new())? {
        let (db, primary) = (d.as_doc().get_str("_id"), d.as_doc().get_str("primary"));
        if let Some(db) = db.filter(|db| names.iter().any(|n| n.eq_ignore_ascii_case(db))) {
            return Err(failed(format!(
                "can't add shard '{}' because a local database '{db}' exists in another {}",
                set.text(),
                primary.unwrap_or_default()
            )));
        }
    }
    Ok(names)
}

/// Inserts into the configuration, or updates it.
fn store(cx: &CommandContext<'_>, router: &Router, insert: &DocBuf) -> Result<()> {
    let config = &router.config;
    let reply = forward::run(&**cx.op, router, config, "config", insert, false)?;
    let errors = reply.as_doc().get_array("writeErrors");
    let Some(e) = errors.and_then(|all| all.first()?.value().as_doc()) else {
        return Ok(());
    };
    let code = client::code_of(e).unwrap_or(Code::UnknownError);
    Err(Error::new(code, e.get_str("errmsg").unwrap_or_default()))
}

/// The databases that a set has, but for those that each has for itself.
fn databases_of(cx: &CommandContext<'_>, router: &Router, set: &SetPool) -> Result<Vec<String>> {
    let list = doc! { "listDatabases": 1, "nameOnly": true };
    let there = forward::run(&**cx.op, router, set, "admin", &list, true)?;
    let there = there.as_doc().get_array("databases").unwrap_or(Doc::EMPTY);
    let names = there
        .values()
        .filter_map(|d| d.as_doc()?.get_str("name").map(str::to_string))
        .filter(|name| !OWN.contains(&name.as_str()))
        .collect();
    Ok(names)
}
