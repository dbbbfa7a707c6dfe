//! `reIndex`: builds a collection's indexes anew.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::Action;
use muniment_exec::Source;
use muniment_value::{ArrayBuf, Code, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "reIndex",
    doc: "Builds all indexes of a collection anew; the old ones serve until then",
    kind: Kind::Ddl,
    target: Target::Collection,
    run,
    ..CommandSpec::new(Routed::Refused, Needs::collection(&[Action::ReIndex]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    namespace::check_collection(cx.db(), cx.collection_name())?;
    let source = cx.source()?;
    source.refuse_view_like(cx.ns())?;
    let Source::Collection(collection) = source else {
        return Err(Error::new(
            Code::NamespaceNotFound,
            "collection does not exist",
        ));
    };
    let before = super::create_indexes::counted(&collection);
    // The index on `_id` is not rebuilt: documents are found by it, so it must never lack entries.
    let others: Vec<_> = collection.indexes().iter().map(|i| i.spec()).collect();
    for spec in others.iter().filter(|s| s.name != "_id_") {
        let spec = (**spec).clone();
        cx.engine()
            .store
            .replace_index(&collection, spec, &**cx.op)?;
    }
    cx.note_write();
    let specs: ArrayBuf = collection
        .indexes()
        .iter()
        .map(|i| i.spec().document.clone())
        .collect();
    let after = super::create_indexes::counted(&collection);
    cx.reply.field("nIndexesWas", before as i32);
    cx.reply.field("nIndexes", after as i32);
    cx.reply.field("indexes", specs);
    Ok(())
}
