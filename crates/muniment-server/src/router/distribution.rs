//! `$shardedDataDistribution`: how much each shard has of the sharded collections.

use super::Router;
use super::configuration::read;
use super::forward::run;
use muniment_op::Interrupt;
use muniment_shard::catalog::Collection;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use std::collections::BTreeMap;

/// Collections that a shard is asked about at once.
const AT_ONCE: usize = 500;

/// One document for each sharded collection: `{ns, shards: [{shardName, numOrphanedDocs, …}]}`.
///
/// # Errors
/// Those of the sets.
pub fn documents(on: &dyn Interrupt, router: &Router) -> Result<Vec<DocBuf>> {
    let mut names = Vec::new();
    for d in read(
        on,
        router,
        "collections",
        doc! { "unsplittable": doc! { "$ne": true } },
    )? {
        names.push(Collection::parse(d.as_doc())?.ns);
    }
    let mut parts: BTreeMap<String, ArrayBuf> = BTreeMap::new();
    for (shard, set) in router.catalog.shards(on, router)? {
        for page in names.chunks(AT_ONCE) {
            let list: ArrayBuf = page.iter().map(String::as_str).collect();
            let ask = doc! { "_shardSizes": 1, "namespaces": list };
            let reply = run(on, router, &set, "admin", &ask, true)?;
            let of = |name: &str| reply.as_doc().get_array(name).unwrap_or(Doc::EMPTY);
            let told = of("sizes").values().zip(of("details").values());
            for (ns, (bytes, details)) in page.iter().zip(told) {
                let details = details.as_doc().unwrap_or(Doc::EMPTY);
                let number = |name: &str| details.get(name).and_then(|v| v.as_i64_exact());
                let docs = number("docs").unwrap_or(0);
                let foreign = number("foreignDocs").unwrap_or(0);
                if docs + foreign == 0 {
                    continue;
                }
                parts.entry(ns.clone()).or_default().push(doc! {
                    "shardName": &shard,
                    "numOrphanedDocs": foreign,
                    "numOwnedDocuments": docs,
                    "ownedSizeBytes": bytes,
                    "orphanedSizeBytes": number("foreignBytes").unwrap_or(0),
                });
            }
        }
    }
    let all = names.into_iter().map(|ns| {
        let shards = parts.remove(&ns).unwrap_or_default();
        doc! { "ns": ns, "shards": shards }
    });
    Ok(all.collect())
}
