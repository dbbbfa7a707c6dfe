//! Changes of the catalog: a collection that one client alone uses is divided, moved, dropped and made again, with its
//! database, and indexes of the other one come and go.

use super::clients::{Client, DB, ROWS, Said, must, number};
use super::cluster::{FIRST_ROUTER, ROUTERS, SHARDS, shard_name, short};
use super::world::MS;
use muniment_value::{Code, Doc, DocBuf, array, doc};

/// The collection.
const TABLE: &str = "t";

/// What the client does.
pub(super) struct Admin {
    client: Client,
    next_id: i64,
}

impl Admin {
    pub(super) fn new(client: Client) -> Admin {
        Admin { client, next_id: 0 }
    }

    pub(super) fn live(&mut self) {
        while !self.client.is_over() {
            let of = self.client.below(ROUTERS as u64) as usize;
            self.client.router = FIRST_ROUTER + of;
            self.client.pause_if_down();
            match self.client.below(16) {
                0..=3 => self.insert(),
                4..=5 => self.increment(),
                6 => self.drop(),
                7 => self.index(),
                8..=9 => self.move_database(),
                10..=11 => self.move_range(),
                12..=13 => self.divide(),
                _ => look(&mut self.client),
            }
            let pause = self.client.below(200) * MS;
            self.client.here.sleep(pause);
        }
    }

    /// Asks for something that may not be possible now.
    fn ask(&mut self, command: &DocBuf) {
        super::faults::aim(&mut self.client.here.world.lock());
        let done = matches!(self.client.send(command, "admin"), Said::Done(_));
        let mut inner = self.client.here.world.lock();
        match done {
            true => inner.course.changes += 1,
            false => inner.course.failed_changes += 1,
        }
    }

    fn insert(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let insert = doc! { "insert": TABLE, "documents": array![doc! { "_id": id, "n": 0_i64 }] };
        let Some(reply) = self.client.insist(insert) else {
            return;
        };
        if number(reply.as_doc(), "n") != 1 {
            self.client
                .fails(format!("an insert into {TABLE} says {reply:?}"));
        }
        let mut inner = self.client.here.world.lock();
        inner.oracle.table.insert(id, 0);
    }

    fn increment(&mut self) {
        let id = {
            let mut inner = self.client.here.world.lock();
            let inner = &mut *inner;
            let ids: Vec<i64> = inner.oracle.table.keys().copied().collect();
            match ids.is_empty() {
                true => return,
                false => inner.random.pick(&ids),
            }
        };
        let u = doc! { "q": doc! { "_id": id }, "u": doc! { "$inc": doc! { "n": 1_i64 } } };
        let update = doc! { "update": TABLE, "updates": array![u] };
        let Some(reply) = self.client.insist(update) else {
            return;
        };
        if number(reply.as_doc(), "n") != 1 {
            self.client
                .fails(format!("an update of {id} in {TABLE} says {reply:?}"));
        }
        let mut inner = self.client.here.world.lock();
        *inner.oracle.table.get_mut(&id).unwrap() += 1;
    }

    /// Drops the collection, whatever it takes.
    fn drop(&mut self) {
        loop {
            self.client.pause_if_down();
            let drop = doc! { "drop": TABLE, "writeConcern": doc! { "w": "majority" } };
            match self.client.send(&drop, DB) {
                Said::Done(_) | Said::Failed(Code::NamespaceNotFound, _) => break,
                Said::Failed(..) | Said::Lost => {}
            }
            if self.client.here.world.lock().ends {
                return;
            }
            // What is under way must not drop what is made later.
            self.client.here.sleep(3000 * MS);
        }
        let mut inner = self.client.here.world.lock();
        inner.oracle.table.clear();
        inner.course.changes += 1;
        drop(inner);
        look(&mut self.client);
    }

    fn divide(&mut self) {
        let ns = format!("{DB}.{TABLE}");
        self.ask(&doc! { "shardCollection": ns, "key": doc! { "_id": 1 } });
    }

    fn move_range(&mut self) {
        let ns = format!("{DB}.{TABLE}");
        let at = self.client.below(self.next_id as u64 + 1) as i64;
        let to = shard_name(1 + self.client.below(SHARDS as u64) as usize);
        self.ask(&doc! { "moveRange": ns, "min": doc! { "_id": at }, "toShard": to });
    }

    fn move_database(&mut self) {
        let to = shard_name(1 + self.client.below(SHARDS as u64) as usize);
        self.ask(&doc! { "movePrimary": DB, "to": to });
    }

    /// An index of the other collection comes or goes.
    fn index(&mut self) {
        let command = match self.client.below(2) {
            0 => create_index(),
            _ => doc! { "dropIndexes": ROWS, "index": "n_1" },
        };
        drop(self.client.send(&command, DB));
    }
}

fn create_index() -> DocBuf {
    let index = doc! { "key": doc! { "n": 1 }, "name": "n_1" };
    doc! { "createIndexes": ROWS, "indexes": array![index] }
}

/// Reads the collection, and compares it with what its client was told.
pub(super) fn look(client: &mut Client) {
    let filter = doc! { "find": TABLE, "filter": DocBuf::new(), "batchSize": 1000 };
    let Some(found) = client.read(filter.clone()) else {
        return;
    };
    let mut inner = client.here.world.lock();
    let mut found: Vec<(i64, i64)> = found.iter().map(|seen| (seen.id, seen.n)).collect();
    found.sort_unstable();
    let wanted: Vec<(i64, i64)> = inner.oracle.table.iter().map(|(id, n)| (*id, *n)).collect();
    if found != wanted {
        let filter = short(filter.as_doc());
        inner.fail(format!("{filter} finds {found:?} instead of {wanted:?}"));
    }
    inner.course.reads += 1;
}

/// At the end all shards have the same indexes, and a collection that is dropped is gone everywhere.
pub(super) fn end(client: &mut Client) {
    must(client, &create_index(), DB);
    must(
        client,
        &doc! { "drop": TABLE, "writeConcern": doc! { "w": "majority" } },
        DB,
    );
    {
        let mut inner = client.here.world.lock();
        inner.oracle.table.clear();
    }
    look(client);
    let check = doc! { "checkMetadataConsistency": 1 };
    for _ in 0..50 {
        match client.send(&check, DB) {
            Said::Done(reply) => {
                let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
                let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
                if batch.values().next().is_some() {
                    client.fails(format!("at the end the catalogs differ: {batch:?}"));
                }
                return;
            }
            Said::Failed(code, text) => {
                if !client.may_fail(&check, code, &text) {
                    return;
                }
            }
            Said::Lost => {}
        }
        client.here.sleep(200 * MS);
    }
}
