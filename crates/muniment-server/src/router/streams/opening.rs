//! What the parts of a stream are opened with, at its beginning and when a shard is added.

use super::part::{self, Part, stamp};
use crate::options::SetAddress;
use crate::placement::merging;
use crate::read_preference::ReadPreference;
use crate::router::forward::{Own, ask_own_of_all};
use crate::router::sharded::remote::Terms;
use crate::router::{Reach, Router, SetPool};
use muniment_query::stage::change_stream::{NAME, SHARD};
use muniment_storage::Timestamp;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, array, doc};
use muniment_wire::client;
use std::sync::Arc;

/// What a part of the stream is opened with. A shard that is added later is opened in the same way.
pub struct Opening {
    /// The database.
    pub db: String,
    /// `aggregate: …`, and other fields of the client's command.
    pub command: DocBuf,
    /// The options of `$changeStream`, without the beginning.
    pub options: DocBuf,
    /// The stages that run on shards, without the first.
    pub stages: ArrayBuf,
    pub begins: Begins,
    /// The read preference, which says which members are asked.
    pub preference: DocBuf,
    /// The shards that were added up to this time were read, and the configuration's part begins after it.
    pub known: Timestamp,
}

/// Where a stream begins.
pub enum Begins {
    /// At this time.
    At(Timestamp),
    /// After this token, which is of this time and the option's value.
    After(&'static str, DocBuf, Timestamp),
}

/// A shard of which a part is opened.
pub struct Shard {
    /// Its name; `None` for the configuration.
    pub name: Option<String>,
    /// Its set.
    pub set: Arc<SetPool>,
    /// When it was added. What has happened there before is not the cluster's.
    pub since: Timestamp,
}

impl Opening {
    /// The shard of a document of `config.shards`.
    ///
    /// # Errors
    /// 9 for an address that is none.
    pub fn shard(&self, router: &Router, d: Doc<'_>) -> Result<Option<Shard>> {
        let Some(host) = d.get_str("host") else {
            return Ok(None);
        };
        let since = match d.get("topologyTime") {
            Some(Value::Timestamp { t, i }) => Timestamp::new(t, i),
            _ => Timestamp::ZERO,
        };
        Ok(Some(Shard {
            name: Some(d.get_str("_id").unwrap_or_default().to_string()),
            set: router
                .catalog
                .reach(router, &SetAddress::parse(host, 27018)?),
            since,
        }))
    }

    /// Opens the parts of these shards.
    ///
    /// # Errors
    /// The first shard's that fails; no part is left open then.
    pub fn open(&self, terms: &Terms, shards: &[Shard]) -> Result<Vec<Part>> {
        let router = terms.router()?;
        let versions = merging(DocBuf::new());
        let preference = ReadPreference::parse(self.preference.as_doc())?;
        let commands: Vec<DocBuf> = shards.iter().map(|s| self.command(terms, s)).collect();
        let asked = shards.iter().zip(&commands).map(|(shard, command)| {
            let (db, reach) = match shard.name {
                None => ("config", Reach::Primary),
                Some(_) => (self.db.as_str(), Reach::of(Some(preference))),
            };
            Own {
                set: &shard.set,
                db,
                command,
                versions: Some(versions.as_doc()),
                reach,
            }
        });
        let replies = ask_own_of_all(&*terms.on, router, &asked.collect::<Vec<_>>());
        let mut parts = Vec::new();
        let mut failed = None;
        for (reply, shard) in replies.into_iter().zip(shards) {
            let part = reply.and_then(|reply| {
                client::check_ok(reply.body.as_doc())?;
                Part::new(terms, &shard.set, &reply, shard.name.clone())
            });
            match part {
                Ok(part) => parts.push(part),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        match failed {
            None => Ok(parts),
            Some(e) => {
                part::end(terms, router, &mut parts);
                Err(e)
            }
        }
    }

    /// The command that opens a shard's part.
    fn command(&self, terms: &Terms, shard: &Shard) -> DocBuf {
        let at = |at: Timestamp| doc! { "startAtOperationTime": stamp(at) };
        let mut options = match &self.begins {
            _ if shard.name.is_none() => at(self.known.plus(1)),
            Begins::At(time) => at(shard.since.max(*time)),
            Begins::After(_, _, time) if shard.since > *time => at(shard.since),
            Begins::After(name, token, _) => {
                let mut options = DocBuf::new();
                options.append(name, token);
                options
            }
        };
        options.append(SHARD, shard.set.name.as_str());
        let mut command = match shard.name {
            None => {
                let kinds = doc! { "$in": array!["insert", "delete"] };
                let changed = doc! { "$match": doc! { "operationType": kinds } };
                let stage = stage_of(&options);
                doc! { "aggregate": "shards", "pipeline": array![stage, changed] }
            }
            Some(_) => {
                options.append_all(self.options.as_doc());
                let mut stages = array![stage_of(&options)];
                self.stages.as_doc().values().for_each(|stage| {
                    stages.push(stage);
                });
                let mut command = self.command.clone();
                command.append("pipeline", stages);
                command.append_all(terms.reads.as_doc());
                command
            }
        };
        command.append("cursor", DocBuf::new());
        command.append_all(terms.session.as_doc());
        command
    }
}

fn stage_of(options: &DocBuf) -> DocBuf {
    let mut stage = DocBuf::new();
    stage.append(NAME, options);
    stage
}
