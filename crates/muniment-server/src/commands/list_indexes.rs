//! `listIndexes`.

use super::cursor_reply::answer;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed, RunsOn, Target};
use muniment_auth::action::Action;
use muniment_exec::{Source, TimeSeries};
use muniment_storage::Collection;
use muniment_value::args::{Field, Types, idle, opt};
use muniment_value::{Code, DocBuf, Error, Result, doc};

const FIELDS: &[Field] = &[
    opt("cursor", Types::OBJECT),
    idle(
        "includeBuildUUIDs",
        Types::SAFE_BOOL,
        "builds that run are not listed",
    ),
    opt("includeIndexBuildInfo", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listIndexes",
    doc: "The indexes of a collection",
    target: Target::CollectionOrUuid,
    read_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Readable),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::anywhere),
        Needs::collection(&[Action::ListIndexes]),
    )
};

/// The `_id` index of a clustered collection as the reply shows it.
pub(super) fn clustered_id(collection: &Collection) -> Option<DocBuf> {
    let options = collection.options();
    let listed = options.document.as_doc().get_doc("clusteredIndex")?;
    let mut d = listed.to_buf();
    d.append("clustered", true);
    Some(d)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let source = cx.source()?;
    if let Source::Generated(_) = source {
        // MongoDB's oplog has no indexes, either.
        return answer(cx, cx.ns(), Vec::new());
    }
    source.refuse_view(cx.ns())?;
    // The indexes of a bucket collection are shown with the fields of buckets.
    let series = source.buckets().and_then(|c| TimeSeries::of(c));
    // A collection that a transaction has created but not committed does not exist for this command.
    let collection = source.stored().filter(|c| !c.is_pending());
    let collection = collection.ok_or_else(|| {
        Error::new(
            Code::NamespaceNotFound,
            format!("ns does not exist: {}", cx.ns()),
        )
    })?;
    let build_info = cx.args.bool("includeIndexBuildInfo", false);
    if build_info && cx.args.bool("includeBuildUUIDs", false) {
        return Err(Error::new(
            Code::InvalidOptions,
            "The includeBuildUUIDs flag and includeIndexBuildInfo flag cannot both be set to true",
        ));
    }
    let all = collection
        .listed_indexes()
        .iter()
        .map(|i| match clustered_id(collection).filter(|_| i.is_id()) {
            Some(clustered) => clustered,
            None => match &series {
                Some(s) => s.index_of_buckets(i.spec().document.as_doc()),
                None => i.spec().document.clone(),
            },
        })
        .map(|listed| match build_info {
            true => doc! { "spec": &listed },
            false => listed,
        })
        .collect();
    answer(cx, cx.ns(), all)
}
