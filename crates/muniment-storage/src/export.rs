//! A whole store as rows of its trees, at one position of the log. A new member of a replica set is
//! filled with it (`import`).
//!
//! One view is held from the first chunk to the last, so the rows are one state, whatever is written
//! meanwhile. Some rows of the catalog's tree are as old as the last cut; their present values in memory
//! are given instead (multikey paths, numbers that were given, what is closed). These may be more than
//! at the position, but never less. Totals are counted anew by the import. Names that ended and notes of
//! dropped trees are left out: a member that has neither the log before the position nor the trees has
//! no use for them.
//!
//! Trees come in the order of their numbers, except for the catalog's, which is last: a member that has
//! it has everything. So a row tells what came before it, and a member that lost the connection can be
//! given the rest ([`Export::go_on_behind`]).

use crate::catalog::Entry;
use crate::catalog::names::{totals_bytes, totals_of};
use crate::inner::Inner;
use crate::keys;
use crate::sessions::SESSIONS;
use crate::store::{Store, damaged};
use crate::transaction::PREPARED;
use crate::view::Snapshot;
use bytes::Bytes;
use muniment_log::Position;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_tree::{Cursor, Direction, Range};
use muniment_value::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

/// Bytes of a chunk, about. It is small in tests, so that they have many chunks.
const CHUNK: usize = if cfg!(test) { 8 << 10 } else { 1 << 20 };
/// A chunk is given after about this time even if it has no row yet, so that the member sees that the
/// export goes on.
const SILENT: Duration = Duration::from_secs(2);

/// Rows of the catalog's tree.
type Meta = BTreeMap<Bytes, Bytes>;

/// Rows of one tree, ascending. It may have no rows; then it only says that more will come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The tree's number.
    pub tree: u32,
    /// It is the last chunk of all.
    pub last: bool,
    /// Keys and values.
    pub rows: Vec<(Bytes, Bytes)>,
}

impl Chunk {
    /// True for the catalog's tree, before which all other trees have come.
    pub fn is_of_catalog(&self) -> bool {
        self.tree == keys::META
    }

    /// The form in which it is sent: the number of the tree, whether it is the last, then each row's
    /// lengths and bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.rows.iter().map(|(k, v)| k.len() + v.len() + 10);
        let mut out = Vec::with_capacity(5 + bytes.sum::<usize>());
        out.extend_from_slice(&self.tree.to_le_bytes());
        out.push(u8::from(self.last));
        for (key, value) in &self.rows {
            keys::put_varint(key.len(), &mut out);
            keys::put_varint(value.len(), &mut out);
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        out
    }

    /// Reads [`Chunk::to_bytes`]; rows are slices of the bytes. `None` if it is malformed.
    pub fn from_bytes(bytes: &Bytes) -> Option<Chunk> {
        let tree = u32::from_le_bytes(*bytes.first_chunk()?);
        let last = match bytes.get(4)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let mut rows = Vec::new();
        let mut at = 5;
        while at < bytes.len() {
            let mut part = [0; 2];
            for len in &mut part {
                let (n, took) = keys::get_varint(bytes.get(at..)?)?;
                *len = n;
                at += took;
            }
            let [key, value] = part;
            let (middle, end) = (
                at.checked_add(key)?,
                at.checked_add(key)?.checked_add(value)?,
            );
            bytes.get(at..end)?;
            rows.push((bytes.slice(at..middle), bytes.slice(middle..end)));
            at = end;
        }
        Some(Chunk { tree, last, rows })
    }
}

/// A collection of an [`Export`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its full name.
    pub namespace: String,
    /// About how many documents it has: a write while the export began may be counted or not.
    pub documents: u64,
    /// The bytes of these documents, with the same precision.
    pub bytes: u64,
    /// Its trees, ascending: first that of the documents, then one for each index; with about the bytes
    /// that they take in files.
    pub trees: Vec<(u32, u64)>,
}

/// Gives a store's state, chunk by chunk. It ends with the last chunk or with an error.
pub struct Export {
    position: Position,
    view: Snapshot,
    bytes: u64,
    all: BTreeSet<u32>,
    collections: Vec<Exported>,
    /// The trees that are still to come.
    trees: VecDeque<u32>,
    current: Option<(u32, Box<dyn Cursor>)>,
    meta: Meta,
    /// The key at which the catalog goes on.
    catalog: Bound<Bytes>,
    /// The last chunk has come, or an error.
    ended: bool,
}

impl Store {
    /// Exports the state at the newest committed record (of a store that is no member of a replica set:
    /// the newest visible one).
    ///
    /// # Errors
    /// 301; what `interrupt` says while it waits for that record to be visible; as [`Store::position`].
    pub fn export(&self, interrupt: &dyn Interrupt) -> Result<Export> {
        let inner = &self.inner;
        let (position, view) = loop {
            inner.watch.check_open()?;
            let position = self.committed()?;
            // If there is no view, the record is not visible yet or the commit point has moved on, so
            // both are looked at again.
            if let Some(view) = self.snapshot_at(position.at) {
                break (position, view);
            }
            inner.wait_visible(interrupt)?;
            interrupt.check()?;
        };
        let (meta, all) = inner.exported_meta(&view, interrupt)?;
        let bytes = all.iter().map(|tree| inner.stored(*tree)).sum();
        Ok(Export {
            position,
            view,
            bytes,
            collections: inner.exported_collections(&all),
            trees: all.iter().copied().collect(),
            all,
            current: None,
            meta,
            catalog: Bound::Unbounded,
            ended: false,
        })
    }
}

impl Inner {
    fn stored(&self, tree: u32) -> u64 {
        self.trees.tree_bytes(muniment_tree::TreeId(tree))
    }

    /// The collections that still exist; one that was dropped meanwhile is not named.
    fn exported_collections(&self, trees: &BTreeSet<u32>) -> Vec<Exported> {
        let there = self.catalog.all();
        let there = there.iter().filter(|c| trees.contains(&c.id));
        let exported = there.map(|c| {
            let indexes = c.all_indexes();
            let ids = std::iter::once(c.id).chain(indexes.iter().map(|i| i.id));
            Exported {
                namespace: c.namespace(),
                documents: c.count(),
                bytes: c.data_bytes(),
                trees: ids
                    .filter(|id| trees.contains(id))
                    .map(|id| (id, self.stored(id)))
                    .collect(),
            }
        });
        let mut exported: Vec<_> = exported.collect();
        exported.sort_by(|a: &Exported, b| a.namespace.cmp(&b.namespace));
        exported
    }

    /// The rows of the catalog's tree, and the other trees.
    fn exported_meta(
        &self,
        view: &Snapshot,
        interrupt: &dyn Interrupt,
    ) -> Result<(Meta, BTreeSet<u32>)> {
        let mut rows = BTreeMap::new();
        let mut trees = BTreeSet::from([PREPARED, SESSIONS]);
        let mut all = range(view, keys::META, Bytes::new())?;
        while let Some((key, value)) = all.next(interrupt)? {
            match key.first() {
                Some(b'c') => {
                    let id = id_of(&key).ok_or_else(|| self.bad_key())?;
                    trees.insert(id);
                    trees.extend(
                        Entry::read(&value, id, &NeverInterrupted)
                            .indexes
                            .iter()
                            .map(|i| i.id),
                    );
                    rows.insert(key, value);
                }
                Some(b'm' | b'n' | b'w' | b'x') => {
                    rows.insert(key, value);
                }
                _ => {}
            }
        }
        // Rows of trees that do not exist any more are not needed.
        rows.retain(|key, _| id_of(key).is_some_and(|id| trees.contains(&id)));
        let there = self.catalog.all();
        for collection in there.iter().filter(|c| trees.contains(&c.id)) {
            let key = Bytes::from(keys::totals(collection.id));
            let [docs, bytes, last] = totals_of(rows.get(&key).map(|v| &**v));
            let last = collection.append().last.max(last);
            rows.insert(key, totals_bytes([docs, bytes, last]).into());
            // A closed index was not maintained here, so the other member must not use it either.
            let marks = collection.marks().into_iter();
            rows.extend(marks.filter_map(|(k, v)| Some((k.into(), v?.into()))));
            for index in collection
                .all_indexes()
                .iter()
                .filter(|i| trees.contains(&i.id))
            {
                let known = index.multikey().known();
                let entries = known.entries(index.id);
                rows.extend(entries.map(|(k, v)| (k.into(), v.into())));
            }
        }
        let next_id = self.catalog.next_id().to_le_bytes();
        rows.insert(keys::next_id().into(), next_id.to_vec().into());
        Ok((rows, trees))
    }

    fn bad_key(&self) -> Error {
        damaged(&self.home.path, "the key of a catalog entry")
    }
}

/// The number in a key of the catalog's tree.
pub(crate) fn id_of(key: &[u8]) -> Option<u32> {
    let id = key.get(1..)?.first_chunk()?;
    Some(u32::from_be_bytes(*id))
}

fn range(view: &Snapshot, tree: u32, low: Bytes) -> Result<Box<dyn Cursor>> {
    let all = view.raw_range(tree, Range { low, high: None }, Direction::Forward);
    all.ok_or_else(crate::watch::closed)
}

impl Export {
    /// The position of the state. The log goes on after it.
    pub fn position(&self) -> Position {
        self.position
    }

    /// About how many bytes its files will have. What is in memory, and how well it compresses, is not
    /// known.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its collections, by name.
    pub fn collections(&self) -> &[Exported] {
        &self.collections
    }

    /// Goes on after this row of this tree, whatever came before; `None`: from the beginning. An export
    /// that has ended can go on, too. If it ended by an error of the storage, the error comes again.
    ///
    /// # Errors
    /// 2 BadValue: no such tree is in it. The store was closed.
    pub fn go_on_behind(&mut self, row: Option<(u32, &[u8])>) -> Result<()> {
        self.ended = false;
        self.current = None;
        self.trees.clear();
        self.catalog = Bound::Unbounded;
        if let Some((_, key)) = row.filter(|(tree, _)| *tree == keys::META) {
            self.catalog = Bound::Excluded(Bytes::copy_from_slice(key));
            return Ok(());
        }
        if let Some((tree, _)) = row.filter(|(tree, _)| !self.all.contains(tree)) {
            self.ended = true;
            let what = format!("the copy has no tree {tree}");
            return Err(Error::new(Code::BadValue, what));
        }
        let behind = row.map_or(Bound::Unbounded, |(tree, _)| Bound::Excluded(tree));
        self.trees
            .extend(self.all.range((behind, Bound::Unbounded)));
        if let Some((tree, key)) = row {
            // The least key that is greater.
            let low = [key, &[0]].concat();
            self.current = Some((tree, range(&self.view, tree, low.into())?));
        }
        Ok(())
    }

    /// The next chunk; `None` after the last one, and after damage. `operation` is asked during a long
    /// way over deleted rows; after it was stopped, another operation can go on.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; what stops `operation`.
    pub fn read(&mut self, operation: &dyn Interrupt) -> Result<Option<Chunk>> {
        let next = self.chunk(operation);
        self.ended |= next.is_err() && operation.check().is_ok();
        next
    }

    fn chunk(&mut self, operation: &dyn Interrupt) -> Result<Option<Chunk>> {
        if self.ended {
            return Ok(None);
        }
        let begun = Instant::now();
        loop {
            let (tree, cursor) = match &mut self.current {
                Some(current) => current,
                none => match self.trees.pop_front() {
                    Some(tree) => none.insert((tree, range(&self.view, tree, Bytes::new())?)),
                    None => return Ok(Some(self.catalog_chunk())),
                },
            };
            let mut chunk = Chunk {
                tree: *tree,
                ..Chunk::default()
            };
            let mut bytes = 0;
            while bytes < CHUNK {
                let (key, value) = match cursor.next(operation) {
                    Ok(Some(row)) => row,
                    Ok(None) => {
                        self.current = None;
                        break;
                    }
                    // The chunk is given first. The cursor reports the error again at the next call,
                    // when no rows can be lost.
                    Err(_) if !chunk.rows.is_empty() => return Ok(Some(chunk)),
                    Err(e) => return Err(e),
                };
                bytes += key.len() + value.len();
                chunk.rows.push((key, value));
                // The member that waits for the chunk has to see that the export goes on.
                if chunk.rows.len().is_multiple_of(64) && begun.elapsed() > SILENT {
                    break;
                }
            }
            if !chunk.rows.is_empty() || begun.elapsed() > SILENT {
                return Ok(Some(chunk));
            }
        }
    }

    fn catalog_chunk(&mut self) -> Chunk {
        let mut chunk = Chunk {
            tree: keys::META,
            last: true,
            rows: Vec::new(),
        };
        let from = (self.catalog.clone(), Bound::Unbounded);
        let mut bytes = 0;
        for (key, value) in self.meta.range::<Bytes, _>(from) {
            if bytes >= CHUNK {
                chunk.last = false;
                break;
            }
            bytes += key.len() + value.len();
            chunk.rows.push((key.clone(), value.clone()));
        }
        if let Some((key, _)) = chunk.rows.last() {
            self.catalog = Bound::Excluded(key.clone());
        }
        self.ended = chunk.last;
        chunk
    }
}

impl Iterator for Export {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Result<Chunk>> {
        self.read(&NeverInterrupted).transpose()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_chunk_is_read_as_it_was_written_and_never_beyond_its_end() {
        let row = |k: &str, v: &str| (Bytes::from(k.to_owned()), Bytes::from(v.to_owned()));
        let chunk = Chunk {
            tree: 77,
            last: true,
            rows: vec![row("", ""), row("a", &"v".repeat(300)), row("b", "")],
        };
        let bytes = Bytes::from(chunk.to_bytes());
        assert_eq!(Chunk::from_bytes(&bytes).unwrap(), chunk);
        assert_eq!(
            Chunk::from_bytes(&Bytes::from_static(&[7, 0, 0, 0, 2])),
            None
        );
        for cut in 0..bytes.len() {
            if let Some(part) = Chunk::from_bytes(&bytes.slice(..cut)) {
                assert!(chunk.rows.starts_with(&part.rows));
            }
        }
    }
}
