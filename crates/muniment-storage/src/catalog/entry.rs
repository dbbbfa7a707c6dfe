//! A catalog entry as it is stored: a BSON document in the log and in the tree `META`, `{v, ns, uuid,
//! options, cappedSize?, cappedMax?, timeField?, indexes: [{id, state, spec}], pending?}`.
//!
//! Reading one never fails. What cannot be read of it is said ([`Entry::damage`],
//! [`IndexEntry::damage`]), and all the rest is there: the store opens, and closes the index or the
//! collection that it is about. The commit door reads every entry by the same function before it goes
//! into the log, and takes none that is damaged or is not read as it was written
//! ([`Entry::check_new`]).
//!
//! What is damaged of an index stays as it is stored, byte for byte, for as long as the index is there:
//! other changes of the collection write it again.

use super::{CollectionOptions, IndexSpec, too_deep};
use crate::collection::Collection;
use crate::definition::Definition;
use crate::index::{Index, is_id_pattern};
use muniment_op::Interrupt;
use muniment_query::{Filter, QueryContext};
use muniment_value::{
    ArrayBuf, Code, Doc, DocBuf, Elem, Error, MAX_DEPTH, MAX_MESSAGE_DEPTH, Result, Value, doc,
    nests_deeper, validate_depth,
};
use std::sync::Arc;

/// The version of an entry's form.
const LAYOUT_VERSION: i32 = 3;

/// Most bytes of a catalog entry: MongoDB's limit on what it keeps itself.
const MAX_ENTRY: usize = (16 << 20) + (16 << 10);

/// How deep the options of a collection and the specifications of its indexes stand in an entry.
const OPTIONS_DEPTH: usize = 1;
const SPEC_DEPTH: usize = 3;

/// A catalog entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub namespace: String,
    pub uuid: [u8; 16],
    pub options: CollectionOptions,
    pub indexes: Vec<IndexEntry>,
    /// A transaction made it that has not ended; a start drops it if nothing was ever in it.
    pub pending: bool,
    /// What of the collection itself cannot be read: the rest is what could be.
    pub damage: Option<Error>,
}

/// An index in a catalog entry.
#[derive(Clone, Debug)]
pub(crate) struct IndexEntry {
    pub id: u32,
    pub ready: bool,
    pub spec: Arc<IndexSpec>,
    /// Why the specification cannot be used: then it is [`IndexSpec::unreadable`].
    pub damage: Option<Error>,
}

/// 301, of something that an entry has not.
fn lacks(what: &str) -> Error {
    Error::new(
        Code::DataCorruptionDetected,
        format!("its catalog entry has no valid {what}"),
    )
}

impl Entry {
    /// The catalog entry of a collection, with these indexes.
    pub fn of(collection: &Collection, indexes: &[Arc<Index>]) -> Entry {
        Entry {
            namespace: collection.namespace(),
            uuid: collection.uuid(),
            options: (*collection.options()).clone(),
            indexes: indexes
                .iter()
                .map(|i| IndexEntry {
                    id: i.id,
                    ready: i.is_ready(),
                    spec: i.spec(),
                    damage: None,
                })
                .collect(),
            pending: collection.is_pending(),
            damage: None,
        }
    }

    /// The stored form.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = doc! {
            "v": LAYOUT_VERSION,
            "ns": self.namespace.as_str(),
            "uuid": Value::Binary { subtype: 4, bytes: &self.uuid },
            "options": &self.options.document,
        };
        d.append_some("cappedSize", self.options.capped_size.map(|n| n as i64));
        d.append_some("cappedMax", self.options.capped_max.map(|n| n as i64));
        d.append_some("timeField", self.options.time_field.as_deref());
        let indexes: ArrayBuf = self
            .indexes
            .iter()
            .map(|i| {
                doc! {
                    "id": i64::from(i.id),
                    "state": if i.ready { "ready" } else { "building" },
                    "spec": &i.spec.document,
                }
            })
            .collect();
        d.append("indexes", indexes);
        d.append_some("pending", self.pending.then_some(true));
        d
    }

    /// Reads the stored form of the entry of collection `id`, whatever it is. An `operation` that ends
    /// meanwhile makes the entry look damaged, so only a check that may fail is given one.
    pub fn read(bytes: &[u8], id: u32, operation: &dyn Interrupt) -> Entry {
        let d = Doc::new(bytes);
        let mut read = Reading {
            whole: validate_depth(bytes, MAX_MESSAGE_DEPTH).err(),
            damage: None,
        };
        if d.get("v").and_then(|v| v.as_i64_exact()) != Some(i64::from(LAYOUT_VERSION)) {
            read.say(lacks("v"));
        }
        let size = |name: &str| {
            d.get(name)
                .and_then(|v| v.as_i64_exact())
                .map(|n| n.max(0) as u64)
        };
        let options = read.options(d);
        let mut entry = Entry {
            namespace: match d.get_str("ns").filter(|ns| ns.contains('.')) {
                Some(ns) => ns.to_string(),
                None => {
                    read.say(lacks("ns"));
                    format!("damaged.collection-{id}")
                }
            },
            uuid: read.uuid(d, id),
            options: CollectionOptions {
                capped_size: size("cappedSize"),
                capped_max: size("cappedMax"),
                time_field: read.time_field(d, options.as_doc()),
                without_ids: false,
                document: options,
            },
            indexes: read.indexes(d, operation),
            pending: d.get("pending").is_some_and(|v| v.truthy()),
            damage: None,
        };
        // Without it its documents would be looked for under other keys.
        if let Err(e) = entry.options.collation() {
            read.say(e.context("its collation: "));
        }
        let id_index = entry.indexes.iter().find(|i| is_id_pattern(&i.spec.key));
        if let Some(e) = id_index.and_then(|i| i.damage.clone()) {
            read.say(e.context("its index '_id_': "));
        }
        let options = &entry.options;
        let needs_id = options.capped_size.is_none() && options.time_field.is_none();
        let has_id = entry.indexes.iter().any(|i| is_id_pattern(&i.spec.key));
        if needs_id && !has_id {
            read.say(lacks("index on _id"));
        }
        // Whatever else is wrong with it.
        let any = read.damage.is_some() || entry.indexes.iter().any(|i| i.damage.is_some());
        if let Some(e) = read.whole.take().filter(|_| !any) {
            read.say(e);
        }
        entry.damage = read.damage;
        entry
    }

    /// Checks that what clients defined can be read again, with all that is wrapped around it.
    /// `stored` is the stored form; `before` is what the entry replaces.
    ///
    /// # Errors
    /// 15 Overflow; 10334 BSONObjectTooLarge.
    pub fn check(&self, stored: Doc<'_>, before: Option<&Entry>) -> Result<()> {
        // Specifications were checked when they were parsed.
        let held = before.map(|b| b.options.document.as_doc());
        for e in self.options.document.as_doc() {
            let same = held.and_then(|held| held.get_elem(e.name()));
            // One that is there already may stay: earlier versions took deeper ones.
            if same.is_some_and(|same| same.as_bytes() == e.as_bytes()) {
                continue;
            }
            let mut own = DocBuf::new();
            own.append_elem(e);
            if nests_deeper(own.as_doc(), MAX_DEPTH) {
                return Err(too_deep(&format!("An option of {}", self.namespace)));
            }
        }
        let bytes = stored.byte_len();
        // An entry that is larger already may get smaller.
        if bytes > MAX_ENTRY && before.is_none_or(|b| b.to_doc().as_bytes().len() < bytes) {
            return Err(Error::new(
                Code::BSONObjectTooLarge,
                format!(
                    "the options and indexes of {} would take {bytes} bytes of the catalog; at \
                     most {MAX_ENTRY} are allowed",
                    self.namespace
                ),
            ));
        }
        Ok(())
    }

    /// What keeps the entry, which was read of `stored`, from going into the log: it is damaged, or
    /// would be read as something else than was written. What was damaged in `held` may stay so.
    ///
    /// # Errors
    /// The reason.
    pub fn check_new(
        &self,
        stored: &[u8],
        held: Option<&Collection>,
        operation: &dyn Interrupt,
    ) -> Result<()> {
        let before = held.map(Collection::all_indexes).unwrap_or_default();
        if let Some(e) = &self.damage {
            return Err(e.clone());
        }
        for i in &self.indexes {
            let was = before.iter().any(|b| b.id == i.id && b.is_damaged());
            if let Some(e) = i.damage.clone().filter(|_| !was) {
                return Err(e.context(&format!("its index '{}': ", i.spec.name)));
            }
        }
        let raw = |options: &CollectionOptions| {
            let validator = options.document.as_doc().get_elem("validator");
            validator.map(|v| v.raw_value().to_vec())
        };
        let held = held.map(Collection::options);
        if held.is_none_or(|held| raw(&held) != raw(&self.options)) {
            self.options
                .validator(QueryContext::new().on_behalf_of(operation))?;
        }
        if self.to_doc().as_bytes() != stored {
            return Err(Error::internal("it would not be read as it was written"));
        }
        Ok(())
    }
}

/// What is wrong with an entry that is being read.
struct Reading {
    /// With all of it, as BSON: then each part is looked at by itself.
    whole: Option<Error>,
    damage: Option<Error>,
}

impl Reading {
    fn say(&mut self, e: Error) {
        self.damage.get_or_insert(e);
    }

    fn uuid(&mut self, d: Doc<'_>, id: u32) -> [u8; 16] {
        if let Some(Value::Binary { bytes, .. }) = d.get("uuid")
            && let Ok(uuid) = <[u8; 16]>::try_from(bytes)
        {
            return uuid;
        }
        self.say(lacks("uuid"));
        // One of its own all the same.
        u128::from(id).to_be_bytes()
    }

    /// The options that can be read.
    fn options(&mut self, d: Doc<'_>) -> DocBuf {
        let Some(stored) = d.get_doc("options") else {
            self.say(lacks("options"));
            return DocBuf::new();
        };
        if self.whole.is_none() {
            return stored.to_buf();
        }
        let mut options = DocBuf::new();
        for e in stored {
            match alone(e, OPTIONS_DEPTH) {
                Ok(()) => {
                    options.append_elem(e);
                }
                Err(why) => self.say(why.context(&format!("its option '{}': ", e.name()))),
            }
        }
        options
    }

    /// The time field, which the options of a time series tell as well.
    fn time_field(&mut self, d: Doc<'_>, options: Doc<'_>) -> Option<String> {
        let told = options.get_doc("timeseries");
        let told = told.and_then(|series| series.get_str("timeField"));
        let held = d.get_str("timeField");
        if held.is_none() && told.is_some() {
            self.say(lacks("timeField"));
        }
        held.or(told).map(str::to_string)
    }

    fn indexes(&mut self, d: Doc<'_>, operation: &dyn Interrupt) -> Vec<IndexEntry> {
        let Some(stored) = d.get_array("indexes") else {
            self.say(lacks("indexes"));
            return Vec::new();
        };
        let mut indexes = Vec::new();
        for v in stored.values() {
            let i = v.as_doc();
            let id = i
                .and_then(|i| i.get("id"))
                .and_then(|v| v.as_i64_exact())
                .and_then(|n| u32::try_from(n).ok());
            let (Some(i), Some(id)) = (i, id) else {
                self.say(lacks("indexes.id"));
                continue;
            };
            let stored = i.get_doc("spec");
            let read = stored.ok_or_else(|| lacks("indexes.spec"));
            let (spec, damage) = match read.and_then(|stored| IndexSpec::read(stored, operation)) {
                Ok(spec) => (spec, None),
                Err(e) => {
                    let stored = stored.unwrap_or(Doc::new(&[]));
                    (Arc::new(IndexSpec::unreadable(id, stored)), Some(e))
                }
            };
            indexes.push(IndexEntry {
                id,
                ready: i.get_str("state") == Some("ready"),
                spec,
                damage,
            });
        }
        indexes
    }
}

/// Checks one element of a document that stands so deep in an entry.
fn alone(e: Elem<'_>, depth: usize) -> Result<()> {
    let mut d = DocBuf::new();
    d.append_elem(e);
    validate_depth(d.as_bytes(), MAX_MESSAGE_DEPTH - depth).map(drop)
}

impl CollectionOptions {
    /// The filter that documents have to match, if there is one, parsed with `cx`.
    ///
    /// # Errors
    /// What parsing it raises.
    pub(crate) fn validator(&self, cx: QueryContext) -> Result<Option<Filter>> {
        let validator = self.document.as_doc().get_doc("validator");
        let Some(validator) = validator.filter(|v| !v.is_empty()) else {
            return Ok(None);
        };
        Filter::parse(validator, &cx.with_collation(self.collation()?))
            .map(Some)
            .map_err(|e| e.context("its validator: "))
    }
}

impl IndexSpec {
    /// Reads a specification that is stored, and that an index can be opened by.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn read(stored: Doc<'_>, operation: &dyn Interrupt) -> Result<Arc<IndexSpec>> {
        if let Some(known) = Definition::stored(stored) {
            return Ok(known.spec.clone());
        }
        validate_depth(stored.as_bytes(), MAX_MESSAGE_DEPTH - SPEC_DEPTH)?;
        let spec = Arc::new(IndexSpec::parse(stored)?);
        Ok(Definition::of(&spec, operation)?.spec.clone())
    }

    /// What can be known of a specification that cannot be used. It is shown and stored as it is.
    pub(crate) fn unreadable(id: u32, stored: Doc<'_>) -> IndexSpec {
        let is = |name: &str| stored.get(name).is_some_and(|v| v.truthy());
        let name = stored.get_str("name").filter(|n| !n.is_empty());
        let key = stored.get_doc("key");
        let key = key.filter(|k| validate_depth(k.as_bytes(), MAX_DEPTH).is_ok());
        let mut spec = IndexSpec::id_index(&muniment_value::Collation::SIMPLE);
        spec.name = name.map_or_else(|| format!("damaged-{id}"), str::to_string);
        spec.key = key.map(|k| k.to_buf()).unwrap_or_default();
        spec.unique = is("unique");
        spec.prepare_unique = is("prepareUnique");
        spec.hidden = is("hidden");
        spec.document = stored.to_buf();
        spec
    }
}
