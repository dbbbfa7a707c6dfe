//! A catalog entry as it is stored: a BSON document in the log and in the tree `META`, `{v, ns,
//! uuid, options, cappedSize?, cappedMax?, timeField?, indexes: [{id, state, spec}], pending?,
//! guest?, placement?}`.
//!
//! Reading an entry never fails, since one damaged entry must not keep the store from opening. What
//! cannot be read is reported in [`Entry::damage`] and [`IndexEntry::damage`], and the store closes
//! that collection or that index alone. The commit door reads every entry by the same function
//! before it goes into the log, and refuses one that is damaged or would be read as something else
//! than was written ([`Entry::check_new`]).
//!
//! The damaged specification of an index stays as it is stored, byte for byte, for as long as the
//! index is there: other changes of the collection write it again.

use super::{CollectionOptions, IndexSpec, too_deep};
use crate::collection::Collection;
use crate::definition::Definition;
use crate::index::{Index, is_id_pattern};
use crate::placement::Placement;
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

/// How deep the options of a collection and the specifications of its indexes are nested in an
/// entry.
const OPTIONS_DEPTH: usize = 1;
const SPEC_DEPTH: usize = 3;

/// A catalog entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub namespace: String,
    pub uuid: [u8; 16],
    pub options: CollectionOptions,
    pub indexes: Vec<IndexEntry>,
    /// A transaction that has not ended made the collection. When the server starts, the collection
    /// is dropped if it never held a document.
    pub pending: bool,
    /// What this shard owns of the collection, if it is sharded.
    pub placement: Option<Arc<Placement>>,
    /// The reason why the collection itself cannot be used. The other fields hold what could be read.
    pub damage: Option<Error>,
}

/// An index in a catalog entry.
#[derive(Clone, Debug)]
pub(crate) struct IndexEntry {
    pub id: u32,
    pub ready: bool,
    pub spec: Arc<IndexSpec>,
    /// The reason why the specification cannot be used. `spec` is then made by
    /// [`IndexSpec::unreadable`].
    pub damage: Option<Error>,
}

/// The error 301 DataCorruptionDetected for a part that is missing in an entry.
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
            placement: collection.placement(),
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
        d.append_some("guest", self.options.guest.then_some(true));
        let ended =
            Some(self.options.ended).filter(|at| *at != muniment_shard::Timestamp::default());
        d.append_some("ended", ended.map(|at| at.to_value()));
        d.append_some("placement", self.placement.as_ref().map(|p| p.to_doc()));
        d
    }

    /// Reads the stored form of the entry of collection `id`, whatever the bytes are. If
    /// `operation` is interrupted meanwhile, the entry looks damaged. So only a check is given the
    /// running operation: it fails then, and nothing is closed.
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
                guest: d.get("guest").is_some_and(|v| v.truthy()),
                ended: match d.get("ended") {
                    Some(Value::Timestamp { t, i }) => muniment_shard::Timestamp::new(t, i),
                    _ => muniment_shard::Timestamp::default(),
                },
                document: options,
            },
            indexes: read.indexes(d, operation),
            pending: d.get("pending").is_some_and(|v| v.truthy()),
            placement: read.placement(d),
            damage: None,
        };
        // Under another collation its documents would be looked for under the wrong keys.
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
        // Damage to the whole is reported only if no part of it was found damaged.
        let any = read.damage.is_some() || entry.indexes.iter().any(|i| i.damage.is_some());
        if let Some(e) = read.whole.take().filter(|_| !any) {
            read.say(e);
        }
        entry.damage = read.damage;
        entry
    }

    /// Checks that what clients defined can be read again, with everything that is wrapped around
    /// it in messages. `stored` is the stored form; `before` is the entry that this one replaces.
    ///
    /// # Errors
    /// 15 Overflow; 10334 BSONObjectTooLarge.
    pub fn check(&self, stored: Doc<'_>, before: Option<&Entry>) -> Result<()> {
        // Index specifications are not checked here: parsing them has done it.
        let held = before.map(|b| b.options.document.as_doc());
        for e in self.options.document.as_doc() {
            let same = held.and_then(|held| held.get_elem(e.name()));
            // An option that is stored already may stay: earlier versions took deeper ones.
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
        // An entry that is too large already may be replaced by a smaller one.
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

    /// Checks that the entry, which was read from `stored`, may go into the log. It may not if it is
    /// damaged, or if it would be read as something else than was written. Indexes that are damaged in
    /// `held` already may stay so, because other changes of the collection have to remain possible.
    ///
    /// # Errors
    /// The reason why it may not.
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
        let held = held.map(Collection::options);
        if held.is_none_or(|held| held.raw_validator() != self.options.raw_validator()) {
            self.options
                .validator(QueryContext::new().on_behalf_of(operation))?;
        }
        if self.to_doc().as_bytes() != stored {
            return Err(Error::internal("it would not be read as it was written"));
        }
        Ok(())
    }
}

/// What was found wrong with an entry while it is being read.
struct Reading {
    /// The bytes as a whole are not valid BSON; each part is then checked by itself.
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
        // It needs a UUID that no other collection has, and its id is unique.
        u128::from(id).to_be_bytes()
    }

    /// The options, without those that cannot be read.
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

    /// The time field. The options of a time series name it as well, so it survives if one of them
    /// is damaged.
    fn time_field(&mut self, d: Doc<'_>, options: Doc<'_>) -> Option<String> {
        let told = options.get_doc("timeseries");
        let told = told.and_then(|series| series.get_str("timeField"));
        let held = d.get_str("timeField");
        if held.is_none() && told.is_some() {
            self.say(lacks("timeField"));
        }
        held.or(told).map(str::to_string)
    }

    /// Without its placement a shard would take documents of other shards.
    fn placement(&mut self, d: Doc<'_>) -> Option<Arc<Placement>> {
        let stored = d.get("placement")?;
        match Placement::parse(stored.as_doc().unwrap_or(Doc::EMPTY)) {
            Ok(placement) => Some(Arc::new(placement)),
            Err(e) => {
                self.say(lacks("placement").context(e.message()));
                None
            }
        }
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

/// Checks one element of a document that is nested `depth` levels deep in an entry.
fn alone(e: Elem<'_>, depth: usize) -> Result<()> {
    let mut d = DocBuf::new();
    d.append_elem(e);
    validate_depth(d.as_bytes(), MAX_MESSAGE_DEPTH - depth).map(drop)
}

impl CollectionOptions {
    /// The validator's bytes, if there is one.
    pub(crate) fn raw_validator(&self) -> Option<&[u8]> {
        let validator = self.document.as_doc().get_elem("validator");
        validator.map(|v| v.raw_value())
    }

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
    /// Reads a stored specification. An index can be opened by the result.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub(crate) fn read(stored: Doc<'_>, operation: &dyn Interrupt) -> Result<Arc<IndexSpec>> {
        if let Some(known) = Definition::stored(stored) {
            return Ok(known.spec.clone());
        }
        validate_depth(stored.as_bytes(), MAX_MESSAGE_DEPTH - SPEC_DEPTH)?;
        let spec = Arc::new(IndexSpec::parse(stored)?);
        Ok(Definition::of(&spec, operation)?.spec.clone())
    }

    /// A stand-in for a stored specification that cannot be used, with the fields of it that can be
    /// read. Its document is what is stored, so that it is shown and stored again unchanged.
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
