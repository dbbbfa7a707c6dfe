//! Copying the documents of a collection into the parts of another one, which has another shard key.
//!
//! A *round* asks each shard that has documents (a *donor*) which were changed, and then asks all donors for these as
//! they are now: a document may have gone from one donor to another in between, and what one donor says of an `_id`
//! holds for this donor alone. So after a round in which no donor can be written to, each `_id` that was ever touched
//! has been looked at on all of them, and is where it belongs, or nowhere.
//!
//! The documents go through this router. Each message has a number, so that one that comes late changes nothing.

use super::progress::Progress;
use crate::moving::{id_doc, next_of, plain_binary};
use crate::router::forward::run;
use crate::router::{Known, Router, SetPool};
use crate::uuid::uuid_value;
use muniment_op::Interrupt;
use muniment_shard::{RangeTable, Timestamp};
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value, doc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;

/// So many documents are asked for by their `_id`s at once.
const AT_ONCE: usize = 128;

/// `_id`s of documents, by what tells them apart: of numbers, and of texts under a collation, several are equal.
type Ids = BTreeMap<Vec<u8>, DocBuf>;

/// A shard that has documents.
struct Donor {
    set: Arc<SetPool>,
    /// Everything up to this time was copied.
    until: Mutex<Option<Timestamp>>,
}

/// See the module's head.
pub struct Copy<'c> {
    on: Arc<dyn Interrupt>,
    router: &'c Router,
    known: &'c Known,
    /// The new table, and the sets of its shards.
    table: &'c RangeTable,
    recipients: Vec<Arc<SetPool>>,
    temporary: String,
    /// By which `_id`s are compared.
    collation: Collation,
    donors: Vec<Donor>,
    /// Those that have to be looked at again.
    again: Mutex<Ids>,
    number: AtomicI64,
    progress: &'c Progress,
}

/// What a round has found.
pub struct Round {
    /// So many documents were looked at.
    pub touched: usize,
    /// A donor has more to tell.
    pub more: bool,
    /// Some have to be looked at again.
    pub again: bool,
}

impl<'c> Copy<'c> {
    /// Nothing is copied yet. `temporary` is the name of the new collection.
    ///
    /// # Errors
    /// 70 ShardNotFound.
    pub fn new(
        on: Arc<dyn Interrupt>,
        router: &'c Router,
        known: &'c Known,
        (table, temporary): (&'c RangeTable, String),
        progress: &'c Progress,
    ) -> Result<Copy<'c>> {
        let sets = table.shards().iter();
        let sets = sets.map(|name| router.catalog.shard(&*on, router, name));
        let recipients = sets.collect::<Result<_>>()?;
        let donors = known.all().into_iter().map(|shard| {
            Ok(Donor {
                set: Arc::clone(known.set(shard)?),
                until: Mutex::default(),
            })
        });
        let collation = known.collection.default_collation.as_ref();
        Ok(Copy {
            collation: Collation::parse_some(collation.map(|d| d.as_doc()))?,
            donors: donors.collect::<Result<_>>()?,
            on,
            router,
            known,
            table,
            recipients,
            temporary,
            again: Mutex::default(),
            number: AtomicI64::new(1),
            progress,
        })
    }

    /// The sets that have documents.
    pub fn donors(&self) -> impl Iterator<Item = &Arc<SetPool>> {
        self.donors.iter().map(|donor| &donor.set)
    }

    /// Copies all documents, and what sessions remember.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound for a document that can have no such key; those of the shards.
    pub fn rows(&self) -> Result<()> {
        let all = thread::scope(|threads| {
            let copies = self.donors.iter().enumerate();
            let copies =
                copies.map(|(lane, donor)| threads.spawn(move || self.rows_of(lane, donor)));
            let copies: Vec<_> = copies.collect();
            copies
                .into_iter()
                .map(|copy| copy.join())
                .collect::<Vec<_>>()
        });
        for one in all {
            one.unwrap_or_else(|_| Err(Error::internal("a thread that copies has panicked")))?;
        }
        // No message with a smaller number changes anything from here on.
        for lane in 0..self.donors.len() {
            for to in 0..self.recipients.len() {
                self.write((lane, to), DocBuf::new())?;
            }
        }
        Ok(())
    }

    fn rows_of(&self, lane: usize, donor: &Donor) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            // The view has every change of ownership.
            // Changes are asked for from the first reply's time on, so no later one may be of an earlier time.
            let least = donor.until.lock().unwrap_or_default();
            let least = least.max(self.known.changed);
            let mut more = doc! { "least": least.to_value() };
            more.append_some("after", after.as_deref().map(plain_binary));
            let reply = self.ask(donor, "_shardRows", more)?;
            let reply = reply.as_doc();
            {
                let mut until = donor.until.lock();
                *until = until.or(time(reply, "at"));
            }
            let mut parts: Vec<ArrayBuf> =
                self.recipients.iter().map(|_| ArrayBuf::new()).collect();
            for doc in docs(reply, "docs") {
                self.progress.copied(doc);
                if let Some(part) = parts.get_mut(self.owner(doc)?) {
                    part.push(doc);
                }
            }
            for (to, part) in parts.into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
                self.write((lane, to), doc! { "docs": part, "first": true })?;
            }
            match next_of(reply) {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let mut after: Option<Vec<u8>> = None;
        loop {
            let mut more = DocBuf::new();
            more.append_some("least", donor.until.lock().map(|at| at.to_value()));
            more.append_some("after", after.as_deref().map(plain_binary));
            let reply = self.ask(donor, "_shardSessions", more)?;
            self.remember(lane, reply.as_doc())?;
            match next_of(reply.as_doc()) {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// What tells the `_id` of a document from others.
    fn key_of(&self, doc: Doc<'_>) -> Vec<u8> {
        self.collation
            .encoded(doc.get("_id").unwrap_or(Value::Null))
    }

    /// The recipient of a document.
    fn owner(&self, doc: Doc<'_>) -> Result<usize> {
        Ok(self.table.owner(&self.table.key().key_of(doc)?))
    }

    /// Has all recipients remember what sessions remember on a donor.
    fn remember(&self, lane: usize, reply: Doc<'_>) -> Result<()> {
        let sessions = reply.get_array("sessions").unwrap_or(Doc::EMPTY);
        if sessions.is_empty() {
            return Ok(());
        }
        for to in 0..self.recipients.len() {
            self.write((lane, to), doc! { "sessions": Value::Array(sessions) })?;
        }
        Ok(())
    }

    /// One round. With a time for each donor, nothing is written to it after that time.
    ///
    /// # Errors
    /// 11000 DuplicateKey if a shard would get two documents with one `_id`; those of [`Copy::rows`].
    pub fn round(&self, least: Option<&[Timestamp]>) -> Result<Round> {
        let mut touched: Ids = std::mem::take(&mut *self.again.lock());
        let before = touched.len();
        let mut more = false;
        let lane = self.donors.len();
        for (i, donor) in self.donors.iter().enumerate() {
            let until = *donor.until.lock();
            let mut ask = doc! { "after": until.unwrap_or_default().to_value() };
            let least = least.and_then(|all| all.get(i));
            ask.append_some("least", least.map(|at| at.to_value()));
            let reply = self.ask(donor, "_shardChanges", ask)?;
            let reply = reply.as_doc();
            for doc in docs(reply, "docs").chain(docs(reply, "gone")) {
                let id = id_doc(doc);
                touched.insert(self.key_of(id.as_doc()), id);
            }
            self.remember(lane, reply)?;
            more |= reply.get("more").is_some_and(|v| v.truthy());
            let now = time(reply, "until");
            // Where nothing is written any more, all has to be told.
            more |= least.is_some_and(|least| now.is_none_or(|now| now < *least));
            *donor.until.lock() = now.or(until);
        }
        let count = touched.len();
        let ids: Vec<DocBuf> = touched.into_values().collect();
        for part in ids.chunks(AT_ONCE) {
            self.bring(part, least.is_some())?;
        }
        self.progress.changed(count);
        Ok(Round {
            // Those that are looked at once more are no measure of what clients write.
            touched: count - before,
            more,
            again: !self.again.lock().is_empty(),
        })
    }

    /// Has these documents be where they belong, as they are now.
    fn bring(&self, ids: &[DocBuf], frozen: bool) -> Result<()> {
        // Each with the recipient that it belongs to.
        let mut now: BTreeMap<Vec<u8>, Vec<(usize, DocBuf)>> = BTreeMap::new();
        for donor in &self.donors {
            let mut rest = ids;
            while !rest.is_empty() {
                let list: ArrayBuf = rest.iter().collect();
                let mut ask = doc! { "ids": list };
                ask.append_some("least", donor.until.lock().map(|at| at.to_value()));
                let reply = self.ask(donor, "_shardChanges", ask)?;
                let reply = reply.as_doc();
                for doc in docs(reply, "docs") {
                    let of = now.entry(self.key_of(doc)).or_default();
                    of.push((self.owner(doc)?, doc.to_buf()));
                }
                let told = reply
                    .get("told")
                    .and_then(|v| v.as_i64_exact())
                    .unwrap_or(0);
                let told = usize::try_from(told).unwrap_or(0).max(1);
                rest = rest.get(told..).unwrap_or_default();
            }
        }
        let mut there = |id: &DocBuf| now.remove(&self.key_of(id.as_doc())).unwrap_or_default();
        let all: Vec<_> = ids.iter().map(|id| (id, there(id))).collect();
        for to in 0..self.recipients.len() {
            let (mut docs, mut gone) = (ArrayBuf::new(), ArrayBuf::new());
            for (id, there) in &all {
                let mut own = there.iter().filter(|(owner, _)| *owner == to);
                match (own.next(), own.next()) {
                    (None, _) => {
                        gone.push(*id);
                    }
                    (Some((_, doc)), None) => {
                        docs.push(doc);
                    }
                    _ if frozen => return Err(self.two_of(id)),
                    // It was on its way from one donor to another.
                    _ => {
                        let mut again = self.again.lock();
                        again.insert(self.key_of(id.as_doc()), (*id).clone());
                    }
                }
            }
            self.write((self.donors.len(), to), doc! { "docs": docs, "gone": gone })?;
        }
        Ok(())
    }

    fn two_of(&self, id: &DocBuf) -> Error {
        let id = id.as_doc().get("_id").unwrap_or(Value::Null).to_display();
        Error::new(
            Code::DuplicateKey,
            format!(
                "two documents of {} with _id {id} would come to one shard",
                self.known.ns()
            ),
        )
    }

    fn ask(&self, donor: &Donor, command: &str, more: DocBuf) -> Result<DocBuf> {
        self.on.check()?;
        let mut body = DocBuf::new();
        body.append(command, self.known.name());
        body.append("uuid", uuid_value(&self.known.collection.generation.uuid));
        body.append_all(more.as_doc());
        let set = &donor.set;
        run(&*self.on, self.router, set, self.known.db(), &body, true)
    }

    /// Writes on a recipient. Those that have to be looked at again are noted.
    fn write(&self, (lane, to): (usize, usize), what: DocBuf) -> Result<()> {
        self.on.check()?;
        let Some(set) = self.recipients.get(to) else {
            return Ok(());
        };
        let (db, name) = self.temporary.split_once('.').unwrap_or_default();
        let mut body = doc! {
            "_shardCopy": name, "uuid": uuid_value(&self.table.generation().uuid),
            "lane": i64::try_from(lane).unwrap_or(0), "number": self.number.fetch_add(1, Relaxed),
        };
        body.append_all(what.as_doc());
        let reply = run(&*self.on, self.router, set, db, &body, true)?;
        let mut again = self.again.lock();
        for id in docs(reply.as_doc(), "again") {
            again.insert(self.key_of(id), id.to_buf());
        }
        Ok(())
    }
}

fn docs<'d>(reply: Doc<'d>, name: &str) -> impl Iterator<Item = Doc<'d>> {
    let all = reply.get_array(name).unwrap_or(Doc::EMPTY);
    all.values().filter_map(|v| v.as_doc())
}

fn time(reply: Doc<'_>, name: &str) -> Option<Timestamp> {
    match reply.get(name) {
        Some(Value::Timestamp { t, i }) => Some(Timestamp::new(t, i)),
        _ => None,
    }
}
