//! What a shard owns of a sharded collection.
//!
//! The placement is a part of the collection's catalog entry: it goes through the log, to followers, into new
//! members and through recovery as the entry does, and a change of it has the collection alone. So a write unit,
//! which shares the collection from its first check to its commit, stores no document that the shard does not own
//! at that commit.
//!
//! Ranges move between shards. A shard therefore has rows that it does not own, which are called *foreign*: they
//! arrive, or were given away and are not cleaned yet. Readers do not see them. Which rows a reader owns depends on
//! the time of its view: a change of ranges counts from the time that the configuration has chosen for it, on all
//! shards alike.
//!
//! Stored form: `{timestamp, version, key, owned: [min, max, min, max, …], undecided?, stays?, saidBy?, changed?,
//! foreign?: [min, max, …], moving?: {id, range, arrives, complete?}, changes?: [{at, range, gained}, …], cleaned?,
//! forgotten?, swept?, refines?}`. Bounds are keys of [`ShardKey`] as binary; the ranges ascend and do not touch, and the last
//! bound is empty where a range has no end.

#[cfg(test)]
mod oracle;
mod ranges;

pub use ranges::{
    Owned, holds as lies_in, join as join_ranges, of_array as ranges_of_array,
    overlaps as ranges_overlap, to_array as ranges_to_array, without as ranges_without,
};

use muniment_shard::{Generation, ShardKey, Timestamp, Version};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use ranges::{holds, join, overlaps, without};
use std::sync::Arc;

/// At most so many changes are remembered. A read at a time before them is refused.
const MOST_CHANGES: usize = 1000;

/// A range that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// Tells the move from others of the collection.
    pub id: [u8; 16],
    /// The range.
    pub range: Owned,
    /// True where it arrives, false where it is about to be given away: nothing is written to it then.
    pub arrives: bool,
    /// Of an arriving one: everything that there was on the shard that gives it has arrived.
    pub complete: bool,
    /// The time from which on the router that moves has had the right to: see [`Placement::by_right`].
    pub right: Timestamp,
}

/// A range that was gained or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    /// From this time on.
    at: Timestamp,
    range: Owned,
    gained: bool,
}

/// What a shard owns of a sharded collection, and since when.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The time at which the collection was sharded; with its UUID this is the generation.
    pub timestamp: Timestamp,
    /// The newest version among the shard's chunks; zero if it has none.
    pub version: Version,
    /// The shard key.
    pub key: Arc<ShardKey>,
    /// The ranges, ascending, which do not touch.
    owned: Vec<Owned>,
    /// The command that shards the collection has not ended yet, or the configuration is about to decide on the move of
    /// a range from here or to here.
    pub undecided: bool,
    /// The collection stays here when its generation ends.
    pub stays: bool,
    /// The time from which on the router that says what this says has had the right to. It is kept while the collection
    /// `stays`, or is about to get a longer key: a router whose right is older cannot take that back, however late its
    /// message comes.
    pub said_by: Timestamp,
    /// The shard key is about to get more fields: documents that can have no key by that one are not stored any more.
    next_key: Option<Arc<ShardKey>>,
    /// The time from which on the ranges are what they are.
    changed: Timestamp,
    /// Where rows may be that are not owned.
    foreign: Vec<Owned>,
    /// The range that moves.
    moving: Option<Moving>,
    /// The changes of ranges, ascending by time.
    changes: Vec<Change>,
    /// Rows that a view before this time has owned may be deleted, for later views.
    cleaned: Timestamp,
    /// What was owned before this time is not known any more.
    forgotten: Timestamp,
    /// Views before this time may see rows that are deleted since.
    swept: Timestamp,
}

impl Placement {
    /// A placement of these ranges, in any order. Ranges that touch are joined.
    ///
    /// # Errors
    /// 2 BadValue if ranges overlap.
    pub fn new(
        timestamp: Timestamp,
        version: Version,
        key: Arc<ShardKey>,
        ranges: Vec<Owned>,
        undecided: bool,
    ) -> Result<Placement> {
        Ok(Placement {
            timestamp,
            version,
            key,
            owned: join(ranges)?,
            undecided,
            stays: false,
            said_by: Timestamp::default(),
            next_key: None,
            changed: Timestamp::default(),
            foreign: Vec::new(),
            moving: None,
            changes: Vec::new(),
            cleaned: Timestamp::default(),
            forgotten: Timestamp::default(),
            swept: Timestamp::default(),
        })
    }

    /// The same as of a time: the newest change of ranges in the collection.
    #[must_use]
    pub fn as_of(self, changed: Timestamp) -> Placement {
        Placement { changed, ..self }
    }

    /// The same, said by a router with this right.
    #[must_use]
    pub fn said_by(self, right: Timestamp) -> Placement {
        Placement {
            said_by: right,
            ..self
        }
    }

    /// The same while the configuration is about to forget the generation: routers wait, and the collection stays.
    #[must_use]
    pub fn staying(self) -> Placement {
        Placement {
            undecided: true,
            stays: true,
            ..self
        }
    }

    /// The same while the shard key is about to get more fields. Routers wait if it is `undecided` whether it does.
    #[must_use]
    pub fn refining(self, key: Arc<ShardKey>, undecided: bool) -> Placement {
        Placement {
            undecided,
            next_key: Some(key),
            ..self
        }
    }

    /// The key that the collection is about to have.
    pub fn next_key(&self) -> Option<&Arc<ShardKey>> {
        self.next_key.as_ref()
    }

    /// The same for a new generation that the collection gets with another name: routers wait until the shard is told
    /// what it owns.
    #[must_use]
    pub fn renamed(&self, at: Timestamp) -> Placement {
        Placement {
            timestamp: at,
            said_by: Timestamp::default(),
            ..self.clone().staying()
        }
    }

    /// The generation of the collection with this UUID.
    pub fn generation(&self, uuid: [u8; 16]) -> Generation {
        Generation {
            uuid,
            timestamp: self.timestamp,
        }
    }

    /// The ranges, ascending, which do not touch.
    pub fn owned(&self) -> &[Owned] {
        &self.owned
    }

    /// The time from which on the ranges are what they are.
    pub fn changed(&self) -> Timestamp {
        self.changed
    }

    /// Where rows may be that are not owned.
    pub fn foreign(&self) -> &[Owned] {
        &self.foreign
    }

    /// The range that moves.
    pub fn moving(&self) -> Option<&Moving> {
        self.moving.as_ref()
    }

    /// Rows that a view before this time has owned may be deleted, for later views.
    pub fn cleaned(&self) -> Timestamp {
        self.cleaned.max(self.forgotten)
    }

    /// What was owned before this time is not known any more.
    pub fn forgotten(&self) -> Timestamp {
        self.forgotten
    }

    /// Whether a key is owned.
    pub fn owns(&self, key: &[u8]) -> bool {
        holds(&self.owned, key)
    }

    /// Whether it says of the shard's ranges what another one says, and nothing moves.
    pub fn is_settled_as(&self, told: &Placement) -> bool {
        self.moving.is_none()
            && (self.undecided, self.stays) == (told.undecided, told.stays)
            && self.said_by == told.said_by
            && self.next_key == told.next_key
            && (self.timestamp, self.version) == (told.timestamp, told.version)
            && self.owned == told.owned
    }

    /// Whether a key was owned at a time.
    pub fn owned_at(&self, key: &[u8], at: Timestamp) -> bool {
        let later = self.changes.iter().rev().take_while(|c| c.at > at);
        later.fold(self.owns(key), |owned, change| {
            match holds(std::slice::from_ref(&change.range), key) {
                true => !change.gained,
                false => owned,
            }
        })
    }

    /// Whether there may be rows that a view of this time does not own.
    pub fn filters(&self, at: Timestamp) -> bool {
        let changed = self.changes.last().is_some_and(|c| c.at > at);
        !self.foreign.is_empty() || changed || self.swept > at
    }

    /// Whether every row that there is may be written: there is no foreign one, and nothing is about to be given away.
    pub(crate) fn takes_all_rows(&self) -> bool {
        self.foreign.is_empty() && self.moving.is_none()
    }

    /// Whether ranges have come or gone, or a range arrives.
    pub(crate) fn has_moved(&self) -> bool {
        !self.foreign.is_empty() || !self.changes.is_empty() || self.swept != Timestamp::default()
    }

    /// Whether a document may be written: it is owned, and its range is not about to be given away. `key` is a buffer
    /// for its key.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound for a document that cannot have a key.
    pub fn takes(&self, doc: Doc<'_>, key: &mut Vec<u8>) -> Result<bool> {
        key.clear();
        self.key.write_key(doc, key)?;
        let leaves = |m: &&Moving| !m.arrives && holds(std::slice::from_ref(&m.range), key);
        Ok(self.owns(key) && self.moving.as_ref().filter(leaves).is_none())
    }

    /// Whether a document lies in the range that arrives; `key` is a buffer for its key.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound for a document that cannot have a key.
    pub fn arrives(&self, doc: Doc<'_>, key: &mut Vec<u8>) -> Result<bool> {
        key.clear();
        self.key.write_key(doc, key)?;
        let arrives = |m: &&Moving| m.arrives && holds(std::slice::from_ref(&m.range), key);
        Ok(self.moving.as_ref().filter(arrives).is_some())
    }

    /// Whether a document's row may give way to another document with its `_id`: it lies in the range that arrives, and
    /// the shard that gives it still takes writes. `key` is a buffer for its key.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound for a document that cannot have a key.
    pub fn may_be_displaced(&self, doc: Doc<'_>, key: &mut Vec<u8>) -> Result<bool> {
        Ok(self.arrives(doc, key)? && self.moving.as_ref().is_some_and(|m| !m.complete))
    }

    /// Whether a document's row may be cleaned: it is not owned, and does not arrive. `key` is a buffer for its key.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound for a document that cannot have a key.
    pub fn is_waste(&self, doc: Doc<'_>, key: &mut Vec<u8>) -> Result<bool> {
        Ok(!self.arrives(doc, key)? && !self.owns(key))
    }

    /// The ranges of foreign rows that may be cleaned: all but the one that arrives.
    pub fn waste(&self) -> Vec<Owned> {
        match self.moving.as_ref().filter(|m| m.arrives) {
            Some(moving) => without(&self.foreign, std::slice::from_ref(&moving.range)),
            None => self.foreign.clone(),
        }
    }

    /// The part of [`Placement::waste`] that lies in a range.
    pub fn waste_in(&self, range: &Owned) -> Vec<Owned> {
        let waste = self.waste();
        without(&waste, &without(&waste, std::slice::from_ref(range)))
    }

    /// Whether a document can have a key by the one that the collection is about to have. `buf` is a buffer.
    pub(crate) fn fits_next_key(&self, doc: Doc<'_>, buf: &mut Vec<u8>) -> bool {
        let Some(key) = &self.next_key else {
            return true;
        };
        buf.clear();
        key.write_key(doc, buf).is_ok()
    }

    /// The same with a key that has more fields. What was owned stays so, since the old key's bytes begin the new one's.
    fn by_longer(&self, key: &Arc<ShardKey>) -> Placement {
        let bound = |bytes: &Vec<u8>| key.bound_of_shorter(&self.key, bytes);
        let range = |(min, max): &Owned| (bound(min), max.as_ref().map(bound));
        let mut next = self.clone();
        next.owned = self.owned.iter().map(range).collect();
        next.foreign = self.foreign.iter().map(range).collect();
        for change in &mut next.changes {
            change.range = range(&change.range);
        }
        next.key = Arc::clone(key);
        next
    }

    /// Whether the command that shards the collection has not ended yet. It may say anything until then.
    pub fn begins(&self) -> bool {
        self.undecided && self.moving.is_none() && !self.stays && self.next_key.is_none()
    }

    /// What comes after this placement if the configuration says `next`. Rows of ranges that are lost become foreign;
    /// those that are gained cease to be. Nothing moves any more. A new generation begins anew, unless its key has more
    /// fields.
    #[must_use]
    pub fn followed_by(&self, next: Placement) -> Placement {
        match self.timestamp == next.timestamp {
            _ if self.begins() => next,
            true => self.changed_to(next),
            false if next.key.extends(&self.key) => self.by_longer(&next.key).changed_to(next),
            false => next,
        }
    }

    fn changed_to(&self, mut next: Placement) -> Placement {
        let gained = without(&next.owned, &self.owned);
        let lost = without(&self.owned, &next.owned);
        let at = next.changed;
        next.changes = self.changes.clone();
        for (ranges, gained) in [(&lost, false), (&gained, true)] {
            let new = ranges.iter().map(|range| Change {
                at,
                range: range.clone(),
                gained,
            });
            next.changes.extend(new);
        }
        (next.cleaned, next.forgotten) = (self.cleaned, self.forgotten);
        next.swept = self.swept;
        let excess = next.changes.len().saturating_sub(MOST_CHANGES);
        if let Some(last) = next.changes.drain(..excess).next_back() {
            next.forgotten = next.forgotten.max(last.at);
        }
        next.foreign = without(&self.foreign, &gained);
        next.foreign.extend(lost);
        next.foreign = join(next.foreign).unwrap_or_default();
        next
    }

    /// The same with a range that arrives: its rows are foreign until it is owned.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if another range moves; 2 BadValue if a part of it is owned.
    pub fn receiving(&self, id: [u8; 16], range: Owned) -> Result<Placement> {
        let moving = self.free(id, range, true)?;
        if self
            .moving
            .as_ref()
            .is_some_and(|m| m.range == moving.range)
        {
            // The step came twice. What has happened since counts.
            return Ok(self.clone());
        }
        if self.owned.iter().any(|own| overlaps(own, &moving.range)) {
            return Err(Error::bad_value(
                "the shard owns a part of the range that is to arrive",
            ));
        }
        let mut next = self.clone();
        next.foreign = without(&next.foreign, std::slice::from_ref(&moving.range));
        next.foreign.push(moving.range.clone());
        next.foreign = join(next.foreign)?;
        next.moving = Some(moving);
        Ok(next)
    }

    /// The same with a range that is about to be given away: nothing is written to it, and routers wait.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if another range moves; 2 BadValue if a part of it is not owned.
    pub fn giving(&self, id: [u8; 16], range: Owned) -> Result<Placement> {
        let moving = self.free(id, range, false)?;
        if !without(std::slice::from_ref(&moving.range), &self.owned).is_empty() {
            return Err(Error::bad_value(
                "the shard does not own all of the range that it is to give away",
            ));
        }
        let mut next = self.clone();
        next.undecided = true;
        next.moving = Some(moving);
        Ok(next)
    }

    /// The same while all documents are about to be in another collection, which takes the place of this one: nothing is
    /// written, and routers wait.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if a range moves.
    pub fn giving_all(&self, id: [u8; 16]) -> Result<Placement> {
        let moving = self.free(id, (self.key.lowest(), None), false)?;
        let mut next = self.clone();
        next.undecided = true;
        next.moving = Some(moving);
        Ok(next)
    }

    /// The same, with the time from which on the router that moves has had the right to. One whose right is older cannot
    /// end the move, however late its message comes.
    #[must_use]
    pub fn by_right(mut self, right: Timestamp) -> Placement {
        if let Some(moving) = &mut self.moving {
            moving.right = moving.right.max(right);
        }
        self
    }

    fn free(&self, id: [u8; 16], range: Owned, arrives: bool) -> Result<Moving> {
        let other = self
            .moving
            .as_ref()
            .is_some_and(|m| m.id != id || m.arrives != arrives);
        if other || (self.undecided && self.moving.is_none()) {
            return Err(Error::new(
                Code::ConflictingOperationInProgress,
                "another change of the collection's ranges has not ended on this shard",
            ));
        }
        Ok(Moving {
            id,
            range,
            arrives,
            complete: false,
            right: Timestamp::default(),
        })
    }

    /// The same after everything has arrived. Routers wait from here on: the configuration chooses a time for the
    /// change that is later than this one, and a view of that time or later must not be read as one of a shard that
    /// does not own the range.
    #[must_use]
    pub fn completed(&self) -> Placement {
        let mut next = self.clone();
        if let Some(moving) = &mut next.moving {
            moving.complete = true;
            next.undecided = true;
        }
        next
    }

    /// The same without a move, after which an arriving range's rows are waste.
    #[must_use]
    pub fn still(&self) -> Placement {
        let mut next = self.clone();
        next.undecided &= next.moving.is_none();
        next.moving = None;
        next
    }

    /// When something of these ranges was given away for the last time, as far as that is remembered.
    pub fn lost_at(&self, ranges: &[Owned]) -> Option<Timestamp> {
        let lost = self.changes.iter().filter(|c| !c.gained);
        let lost = lost.filter(|c| ranges.iter().any(|r| overlaps(r, &c.range)));
        lost.map(|c| c.at).max()
    }

    /// The same before the rows of these ranges are deleted: readers that began when the shard owned them end.
    #[must_use]
    pub fn cleaning(&self, ranges: &[Owned]) -> Placement {
        let mut next = self.clone();
        let newest = self.lost_at(ranges).unwrap_or_default();
        next.cleaned = next.cleaned.max(newest);
        next
    }

    /// The same after the rows of these ranges were deleted, by commits before this time.
    #[must_use]
    pub fn cleaned_of(&self, ranges: &[Owned], by: Timestamp) -> Placement {
        let mut next = self.cleaning(ranges);
        next.swept = next.swept.max(by);
        next.foreign = without(&next.foreign, ranges);
        next
    }

    /// The same without the changes up to a time, before which nobody reads any more.
    #[must_use]
    pub fn forgetting(&self, until: Timestamp) -> Placement {
        let mut next = self.clone();
        next.changes.retain(|c| c.at > until);
        let forgotten = self.changes.iter().map(|c| c.at).filter(|at| *at <= until);
        next.forgotten = next.forgotten.max(forgotten.max().unwrap_or_default());
        if next.swept <= until {
            next.swept = Timestamp::default();
        }
        next
    }

    /// The time of the oldest change that is remembered, or at which rows were deleted.
    pub fn oldest_change(&self) -> Option<Timestamp> {
        let swept = Some(self.swept).filter(|at| *at != Timestamp::default());
        self.changes.first().map(|c| c.at).or(swept)
    }

    /// The stored form.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = doc! {
            "timestamp": self.timestamp.to_value(),
            "version": self.version.to_value(),
            "key": self.key.pattern(),
            "owned": ranges::to_array(&self.owned),
        };
        d.append_some("undecided", self.undecided.then_some(true));
        d.append_some("stays", self.stays.then_some(true));
        let some = |at: Timestamp| (at != Timestamp::default()).then(|| at.to_value());
        d.append_some("saidBy", some(self.said_by));
        d.append_some("changed", some(self.changed));
        if !self.foreign.is_empty() {
            d.append("foreign", ranges::to_array(&self.foreign));
        }
        if let Some(m) = &self.moving {
            let mut moving = doc! {
                "id": Value::Binary { subtype: 4, bytes: &m.id },
                "range": ranges::to_array(std::slice::from_ref(&m.range)),
                "arrives": m.arrives,
            };
            moving.append_some("complete", m.complete.then_some(true));
            moving.append_some("right", some(m.right));
            d.append("moving", moving);
        }
        if !self.changes.is_empty() {
            let changes: ArrayBuf = self.changes.iter().map(Change::to_doc).collect();
            d.append("changes", changes);
        }
        d.append_some("cleaned", some(self.cleaned));
        d.append_some("forgotten", some(self.forgotten));
        d.append_some("swept", some(self.swept));
        d.append_some("refines", self.next_key.as_ref().map(|key| key.pattern()));
        d
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// 9 FailedToParse, which names the field; those of [`ShardKey::parse`] and of [`Placement::new`].
    pub fn parse(d: Doc<'_>) -> Result<Placement> {
        let numbers = |name: &str| match d.get(name) {
            Some(Value::Timestamp { t, i }) => Ok((t, i)),
            _ => Err(lacks(name)),
        };
        let some = |name: &str| match d.get(name) {
            None => Ok(Timestamp::default()),
            Some(Value::Timestamp { t, i }) => Ok(Timestamp::new(t, i)),
            Some(_) => Err(lacks(name)),
        };
        let (t, i) = numbers("timestamp")?;
        let (major, minor) = numbers("version")?;
        let key = ShardKey::parse(d.get_doc("key").ok_or_else(|| lacks("key"))?)?;
        let owned = d.get_array("owned").ok_or_else(|| lacks("owned"))?;
        let owned = ranges::of_array(owned).ok_or_else(|| lacks("owned"))?;
        let undecided = d.get("undecided").is_some_and(|v| v.truthy());
        let (timestamp, version) = (Timestamp::new(t, i), Version::new(major, minor));
        let mut placement = Placement::new(timestamp, version, Arc::new(key), owned, undecided)?;
        placement.changed = some("changed")?;
        placement.said_by = some("saidBy")?;
        placement.stays = d.get("stays").is_some_and(|v| v.truthy());
        placement.cleaned = some("cleaned")?;
        placement.forgotten = some("forgotten")?;
        placement.swept = some("swept")?;
        if let Some(pattern) = d.get_doc("refines") {
            placement.next_key = Some(Arc::new(ShardKey::parse(pattern)?));
        }
        if let Some(foreign) = d.get_array("foreign") {
            let foreign = ranges::of_array(foreign).ok_or_else(|| lacks("foreign"))?;
            placement.foreign = join(foreign)?;
        }
        if let Some(moving) = d.get_doc("moving") {
            let moving = Moving::parse(moving).ok_or_else(|| lacks("moving"))?;
            placement.moving = Some(moving);
        }
        for change in d.get_array("changes").unwrap_or(Doc::EMPTY).values() {
            let change = change.as_doc().and_then(Change::parse);
            placement
                .changes
                .push(change.ok_or_else(|| lacks("changes"))?);
        }
        Ok(placement)
    }
}

fn lacks(what: &str) -> Error {
    Error::failed_to_parse(format!("a placement has no valid {what}"))
}

impl Moving {
    fn parse(d: Doc<'_>) -> Option<Moving> {
        let Some(Value::Binary { bytes, .. }) = d.get("id") else {
            return None;
        };
        Some(Moving {
            id: <[u8; 16]>::try_from(bytes).ok()?,
            range: ranges::of_array(d.get_array("range")?)?.pop()?,
            arrives: d.get("arrives")?.as_bool()?,
            complete: d.get("complete").is_some_and(|v| v.truthy()),
            right: match d.get("right") {
                Some(Value::Timestamp { t, i }) => Timestamp::new(t, i),
                _ => Timestamp::default(),
            },
        })
    }
}

impl Change {
    fn to_doc(&self) -> DocBuf {
        doc! {
            "at": self.at.to_value(),
            "range": ranges::to_array(std::slice::from_ref(&self.range)),
            "gained": self.gained,
        }
    }

    fn parse(d: Doc<'_>) -> Option<Change> {
        let Some(Value::Timestamp { t, i }) = d.get("at") else {
            return None;
        };
        Some(Change {
            at: Timestamp::new(t, i),
            range: ranges::of_array(d.get_array("range")?)?.pop()?,
            gained: d.get("gained")?.as_bool()?,
        })
    }
}

/// The error 13388 StaleConfig: what the client, a router, knows of the collection is not what is so here.
/// Routers then read the configuration again, and no client of theirs sees it. `held` is the UUID of
/// the collection that is here, and its placement: the error says which generation that is.
pub fn stale(namespace: &str, held: Option<([u8; 16], &Placement)>, why: &str) -> Error {
    let mut extra = doc! { "ns": namespace };
    if let Some((uuid, placement)) = held {
        let bytes = uuid.as_slice();
        extra.append("uuid", Value::Binary { subtype: 4, bytes });
        extra.append("timestamp", placement.timestamp.to_value());
        extra.append("undecided", placement.undecided);
        if let Some(moving) = placement.moving() {
            let bytes = moving.id.as_slice();
            extra.append("moving", Value::Binary { subtype: 4, bytes });
        }
    }
    Error::new(Code::StaleConfig, format!("{namespace}: {why}")).with_extra(extra)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn key() -> Arc<ShardKey> {
        Arc::new(ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap())
    }

    fn at(n: i32) -> Vec<u8> {
        key().key_of(doc! { "a": n }.as_doc()).unwrap()
    }

    fn placed(ranges: Vec<Owned>) -> Result<Placement> {
        let (t, v) = (Timestamp::new(7, 1), Version::new(1, 2));
        Placement::new(t, v, key(), ranges, false)
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        let p = placed(vec![
            (at(20), None),
            (at(0), Some(at(5))),
            (at(5), Some(at(10))),
        ])
        .unwrap();
        assert_eq!(p.owned(), [(at(0), Some(at(10))), (at(20), None)]);
        let mut buf = Vec::new();
        for (n, owned) in [(-1, false), (0, true), (9, true), (10, false), (20, true)] {
            let is = p.takes(doc! { "a": n }.as_doc(), &mut buf).unwrap();
            assert_eq!(is, owned, "{n}");
        }
        let array = doc! { "a": muniment_value::array![1] };
        assert!(p.takes(array.as_doc(), &mut buf).is_err());
        let again = Placement::parse(p.to_doc().as_doc()).unwrap();
        assert_eq!(again.to_doc(), p.to_doc());
        assert!(!placed(Vec::new()).unwrap().owns(&at(0)));
    }

    /// What was given away is foreign by the longer key, too, and was owned at the time at which it was.
    #[test]
    fn a_key_gets_more_fields() {
        let longer = Arc::new(ShardKey::parse(doc! { "a": 1, "b": 1 }.as_doc()).unwrap());
        let of = |ranges: Vec<Owned>, key: &Arc<ShardKey>, time: u32, changed: u32| {
            let (t, v) = (Timestamp::new(time, 1), Version::new(changed, 0));
            let p = Placement::new(t, v, Arc::clone(key), ranges, false).unwrap();
            p.as_of(Timestamp::new(changed, 0))
        };
        let both = of(vec![(at(0), Some(at(20)))], &key(), 7, 8);
        let one = both.followed_by(of(vec![(at(0), Some(at(10)))], &key(), 7, 20));
        let wide = |n: i32| longer.bound_of_shorter(&key(), &at(n));
        let told = of(vec![(wide(0), Some(wide(10)))], &longer, 30, 20);
        let marked = one.clone().refining(Arc::clone(&longer), true);
        assert_eq!(marked.followed_by(one.clone()).to_doc(), one.to_doc());
        for before in [&one, &marked] {
            let before = Placement::parse(before.to_doc().as_doc()).unwrap();
            let after = before.followed_by(told.clone());
            assert_eq!(after.foreign(), [(wide(10), Some(wide(20)))]);
            let mut buf = Vec::new();
            for (a, owned) in [(5, true), (10, false), (15, false), (20, false)] {
                let doc = doc! { "a": a, "b": 7 };
                assert_eq!(after.takes(doc.as_doc(), &mut buf).unwrap(), owned, "{a}");
                let then = after.owned_at(&buf, Timestamp::new(19, 0));
                assert_eq!(then, a < 20, "{a}");
            }
        }
        let mut buf = Vec::new();
        let array = doc! { "a": 5, "b": muniment_value::array![1] };
        assert!(!marked.fits_next_key(array.as_doc(), &mut buf));
        assert!(marked.fits_next_key(doc! { "a": 5 }.as_doc(), &mut buf));
        // Another key is that of another generation, which begins anew.
        let other = Arc::new(ShardKey::parse(doc! { "b": 1, "a": 1 }.as_doc()).unwrap());
        let anew = of(vec![(other.lowest(), None)], &other, 30, 20);
        assert!(one.followed_by(anew).foreign().is_empty());
    }

    #[test]
    fn ranges_that_cannot_be() {
        assert!(placed(vec![(at(0), Some(at(5))), (at(4), None)]).is_err());
        assert!(placed(vec![(at(0), None), (at(4), None)]).is_err());
        assert!(placed(vec![(at(3), Some(at(3)))]).is_err());
        let e = Placement::parse(doc! { "timestamp": 1 }.as_doc()).unwrap_err();
        assert!(e.message().contains("timestamp"), "{e}");
    }
}
