//! The keys of a document in an index, by MongoDB's rules for paths through arrays.
//!
//! - A path without an array gives its value, or null if the path does not exist.
//! - An array on the path gives one key for each element. The rest of the path is looked up in each element
//!   (null for one that is not a document). An array at the end of the path gives its elements; an array
//!   among these is a value. An empty array is undefined at the end of a path, and null on the way.
//! - Fields of a compound index below the same array are paired element by element; two different arrays are
//!   refused.
//! - A numeric part directly after an array selects that element. If elements are documents with such a
//!   field, the path is refused as ambiguous.
//! - A sparse index has no key in which every field is missing.
//!
//! Invariants: in the common case, without arrays, each path is followed once, and nothing is allocated once
//! the buffers have grown. The number of path parts bounds the recursion.

use crate::collation::Collation;
use crate::keyenc::{TypeBits, encode_with_bits};
use crate::path::{Path, array_index};
use crate::{Code, Doc, Error, Result, Value};

/// Larger buffers are not kept from one document to the next.
const KEPT: usize = 1 << 20;
/// The memory of a key in addition to its bytes, here and where it is staged.
const PER_KEY: usize = 192;

/// Limits on the keys of one document in one index. The keys are counted while they are made, so that no more
/// than this is ever in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// The number of keys: MongoDB's `indexMaxNumGeneratedKeysPerDocument`.
    pub keys: usize,
    /// The bytes of all keys.
    pub bytes: usize,
}

impl KeyLimits {
    /// No limits, for a document that was accepted before.
    pub const NONE: KeyLimits = KeyLimits {
        keys: usize::MAX,
        bytes: usize::MAX,
    };
}

impl Default for KeyLimits {
    fn default() -> KeyLimits {
        KeyLimits {
            keys: 100_000,
            bytes: 64 << 20,
        }
    }
}

/// The keys of one document in one index. Reuse it, since the buffers keep their memory. Without a call of
/// [`IndexKeys::limit`] there may be any number of keys.
pub struct IndexKeys {
    /// The keys, each followed by its type bits.
    data: Vec<u8>,
    entries: Vec<Entry>,
    multikey: Vec<u64>,
    arrays: Vec<String>,
    /// The bytes of `arrays`.
    array_bytes: usize,
    bits: TypeBits,
    collation: Collation,
    limits: KeyLimits,
    /// Set once the limit on bytes is exceeded; nothing is added any more then.
    cut: bool,
}

impl Default for IndexKeys {
    fn default() -> IndexKeys {
        IndexKeys {
            data: Vec::new(),
            entries: Vec::new(),
            multikey: Vec::new(),
            arrays: Vec::new(),
            array_bytes: 0,
            bits: TypeBits::new(),
            collation: Collation::default(),
            limits: KeyLimits::NONE,
            cut: false,
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    key_end: usize,
    end: usize,
}

impl IndexKeys {
    /// An empty set of keys.
    pub fn new() -> IndexKeys {
        IndexKeys::default()
    }

    /// The keys, ascending and without duplicates, each with its type bits.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.entries.iter().map(|e| {
            (
                self.data.get(e.start..e.key_end).unwrap_or_default(),
                self.data.get(e.key_end..e.end).unwrap_or_default(),
            )
        })
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the document has no key, which can be so in a sparse index.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// For each field the path parts at which an array was entered: bit i for part i (bit 63 for all parts
    /// from 63 on). A part that selected an element by number does not count.
    pub fn multikey(&self) -> &[u64] {
        &self.multikey
    }

    /// True if an array was entered on any path.
    pub fn is_multikey(&self) -> bool {
        self.multikey.iter().any(|&m| m != 0)
    }

    /// The paths at which an index with open fields has found arrays: see [`IndexKeys::mark_array`].
    pub fn arrays(&self) -> &[String] {
        &self.arrays
    }

    /// Limits the keys of the following documents.
    pub fn limit(&mut self, limits: KeyLimits) {
        self.limits = limits;
    }

    /// True if the keys were refused because of their bytes.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The memory that the keys take, including that for staging them.
    pub fn memory(&self) -> usize {
        self.data.capacity() + self.array_bytes + self.entries.len() * PER_KEY
    }

    /// Sets the collation whose keys replace the texts in the following keys.
    pub fn collate(&mut self, collation: &Collation) {
        if self.collation != *collation {
            self.collation = collation.clone();
        }
    }

    /// Empties the keys for another document, in an index with `fields` fields. An index kind that makes its
    /// own keys then calls [`IndexKeys::push`], [`IndexKeys::end_key`] and, at the end,
    /// [`IndexKeys::finish`].
    pub fn begin(&mut self, fields: usize) {
        if self.data.capacity() > KEPT {
            self.data = Vec::new();
            self.entries = Vec::new();
        }
        self.data.clear();
        self.entries.clear();
        self.multikey.clear();
        self.multikey.resize(fields, 0);
        self.arrays.clear();
        self.array_bytes = 0;
        self.bits.clear();
        self.cut = false;
    }

    /// Appends the value of the next field to the key that is being written.
    pub fn push(&mut self, v: Value<'_>, descending: bool) {
        if !self.cut {
            self.collation
                .encode_with_bits(v, descending, &mut self.data, &mut self.bits);
            self.cut = self.data.len() > self.limits.bytes;
        }
    }

    /// Does the same as [`IndexKeys::push`] for values that no collation applies to: names, hashes.
    pub fn push_plain(&mut self, v: Value<'_>, descending: bool) {
        if !self.cut {
            encode_with_bits(v, descending, &mut self.data, &mut self.bits);
            self.cut = self.data.len() > self.limits.bytes;
        }
    }

    /// Ends the key whose values were pushed since the last one.
    ///
    /// # Errors
    /// 201 CannotBuildIndexKeys beyond the limits.
    pub fn end_key(&mut self) -> Result<()> {
        self.end_key_with(&[])
    }

    /// Does the same as [`IndexKeys::end_key`], and adds bytes that the index kind keeps after the type bits.
    ///
    /// # Errors
    /// Those of [`IndexKeys::end_key`].
    pub fn end_key_with(&mut self, more: &[u8]) -> Result<()> {
        if self.cut || self.entries.len() >= self.limits.keys {
            return Err(self.refused());
        }
        let start = self.entries.last().map_or(0, |e| e.end);
        let key_end = self.data.len();
        self.data.extend_from_slice(self.bits.as_bytes());
        self.data.extend_from_slice(more);
        self.bits.clear();
        let end = self.data.len();
        self.entries.push(Entry {
            start,
            key_end,
            end,
        });
        Ok(())
    }

    /// 201 CannotBuildIndexKeys.
    #[cold]
    fn refused(&self) -> Error {
        let KeyLimits { keys, bytes } = self.limits;
        let what = match self.cut {
            true => format!("{bytes} bytes of keys (munimentIndexMaxKeyBytesPerDocument)"),
            false => format!("{keys} keys (indexMaxNumGeneratedKeysPerDocument)"),
        };
        Error::new(
            Code(201),
            format!("the document has too many keys in one index: at most {what} are possible"),
        )
    }

    /// Notes that part `part` of the path of field `field` went through an array.
    pub fn mark_multikey(&mut self, field: usize, part: usize) {
        if let Some(m) = self.multikey.get_mut(field) {
            *m |= 1 << part.min(63);
        }
    }

    /// Notes an array at `path`, for an index without a field for that path, that is, a wildcard index.
    pub fn mark_array(&mut self, path: &str) {
        if !self.cut && self.arrays.last().is_none_or(|last| last != path) {
            self.arrays.push(path.to_string());
            self.array_bytes += path.len() + size_of::<String>();
            self.cut = self.array_bytes > self.limits.bytes;
        }
    }

    /// Sorts the keys and drops duplicates. To be called after the last key.
    pub fn finish(&mut self) {
        self.arrays.sort_unstable();
        self.arrays.dedup();
        let IndexKeys { data, entries, .. } = self;
        let key = |e: &Entry| data.get(e.start..e.key_end).unwrap_or_default();
        entries.sort_by(|a, b| key(a).cmp(key(b)));
        entries.dedup_by(|a, b| key(a) == key(b));
    }
}

/// Computes the keys of `doc` in an index on `fields` (each a path and whether it is descending), which
/// replace those in `out`.
///
/// # Errors
/// 171 CannotIndexParallelArrays; 16746 for an ambiguous numeric part; 201 beyond the limits.
pub fn index_keys(
    doc: Doc<'_>,
    fields: &[(Path, bool)],
    sparse: bool,
    out: &mut IndexKeys,
) -> Result<()> {
    out.begin(fields.len());
    let mut missing = 0;
    for (path, descending) in fields {
        let (_, found) = follow(doc, path.parts());
        match found {
            Found::Value(v) => out.push(v, *descending),
            Found::Missing => {
                missing += 1;
                out.push(Value::Null, *descending);
            }
            Found::Array(..) => return with_arrays(doc, fields, sparse, out),
        }
    }
    if sparse && missing == fields.len() {
        out.begin(fields.len());
        return Ok(());
    }
    out.end_key()
}

/// The result of following a path up to an array.
#[derive(Clone, Copy)]
enum Found<'a> {
    Missing,
    /// The value at the end of the path; an array that counts as a value is one, too.
    Value(Value<'a>),
    /// An array on the way or at the end.
    Array(Doc<'a>),
}

/// Follows `parts` to the end or to the first array. Returns how many parts that took.
#[inline]
fn follow<'a>(doc: Doc<'a>, parts: &[String]) -> (usize, Found<'a>) {
    let mut at = doc;
    for (i, part) in parts.iter().enumerate() {
        match at.get(part) {
            Some(Value::Array(a)) => return (i + 1, Found::Array(a)),
            Some(v) if i + 1 == parts.len() => return (i + 1, Found::Value(v)),
            Some(Value::Document(d)) => at = d,
            _ => break,
        }
    }
    (parts.len(), Found::Missing)
}

/// Follows `parts` from the element of `array` that the first of them selects, as [`follow`] does.
#[inline]
fn select<'a>(array: Doc<'a>, parts: &[String]) -> (usize, Found<'a>) {
    let Some((part, rest)) = parts.split_first() else {
        return (0, Found::Missing);
    };
    match array_index(part).and_then(|n| array.values().nth(n)) {
        Some(Value::Array(inner)) => (1, Found::Array(inner)),
        Some(v) if rest.is_empty() => (1, Found::Value(v)),
        Some(Value::Document(d)) => {
            let (n, found) = follow(d, rest);
            (n + 1, found)
        }
        _ => (parts.len(), Found::Missing),
    }
}

/// One field while its path is followed.
#[derive(Clone, Copy)]
struct Field<'a, 'p> {
    descending: bool,
    /// The whole path.
    parts: &'p [String],
    /// The remaining parts.
    rest: &'p [String],
    state: State<'a>,
}

#[derive(Clone, Copy)]
enum State<'a> {
    /// The path is to be looked up in the current document.
    Open,
    /// The path is to be looked up in this array, of which the next part selects an element.
    Selecting(Doc<'a>),
    Done(Value<'a>),
    Missing,
}

fn with_arrays(
    doc: Doc<'_>,
    fields: &[(Path, bool)],
    sparse: bool,
    out: &mut IndexKeys,
) -> Result<()> {
    out.begin(fields.len());
    let fields: Vec<Field<'_, '_>> = fields
        .iter()
        .map(|(path, descending)| Field {
            descending: *descending,
            parts: path.parts(),
            rest: path.parts(),
            state: State::Open,
        })
        .collect();
    expand(doc, fields, sparse, out)?;
    out.finish();
    Ok(())
}

/// The array that fields enter on their way.
struct Entered<'a> {
    array: Doc<'a>,
    /// The places of the fields that enter it.
    fields: Vec<usize>,
    /// True if a field has selected an element that is an array itself, so that the array counts as a value.
    whole: bool,
}

/// Follows the fields that are on their way, each to a value or to an array. Returns the array, if there is
/// one.
///
/// # Errors
/// 171 CannotIndexParallelArrays if the fields come to different arrays.
#[inline]
fn enter<'a>(doc: Doc<'a>, fields: &mut [Field<'a, '_>]) -> Result<Option<Entered<'a>>> {
    let mut array: Option<(Doc<'a>, &str)> = None;
    let mut entering: Vec<usize> = Vec::new();
    let mut whole = false;
    for (i, f) in fields.iter_mut().enumerate() {
        let (used, found) = match f.state {
            State::Done(_) | State::Missing => continue,
            State::Open => follow(doc, f.rest),
            State::Selecting(a) => {
                let (used, found) = select(a, f.rest);
                whole |= used == 1 && matches!(found, Found::Array(_));
                (used, found)
            }
        };
        let name = f.rest.get(used.wrapping_sub(1)).map_or("", String::as_str);
        f.rest = f.rest.get(used..).unwrap_or_default();
        f.state = match found {
            Found::Missing => State::Missing,
            Found::Value(v) => State::Done(v),
            Found::Array(a) => {
                match array {
                    Some((other, other_name)) if !std::ptr::eq(other.as_bytes(), a.as_bytes()) => {
                        return Err(Error::new(
                            Code::CannotIndexParallelArrays,
                            format!("cannot index parallel arrays [{name}] [{other_name}]"),
                        ));
                    }
                    _ => array = Some((a, name)),
                }
                entering.push(i);
                State::Open
            }
        };
    }
    Ok(array.map(|(array, _)| Entered {
        array,
        fields: entering,
        whole,
    }))
}

/// Writes the keys of `fields`. Those that are open are looked up in `doc`.
fn expand<'a>(
    doc: Doc<'a>,
    mut fields: Vec<Field<'a, '_>>,
    sparse: bool,
    out: &mut IndexKeys,
) -> Result<()> {
    let Some(entered) = enter(doc, &mut fields)? else {
        return emit(&fields, sparse, out);
    };
    let Entered {
        array,
        fields: entering,
        whole,
    } = entered;

    // The array is iterated, so that even a damaged array gives a key.
    let empty = array.first().is_none();
    let mut by_element = false;
    let mut open = false;
    for &i in &entering {
        let Some(f) = fields.get_mut(i) else { continue };
        open |= !f.rest.is_empty();
        let index = f.rest.first().and_then(|p| array_index(p));
        if index.is_some_and(|n| array.values().nth(n).is_some()) {
            f.state = State::Selecting(array);
            refuse_ambiguous(array, f.rest)?;
            continue;
        }
        by_element = true;
        if f.rest.is_empty() && whole && !empty {
            continue; // the array is a value itself
        }
        let part = (f.parts.len() - f.rest.len()).saturating_sub(1);
        out.mark_multikey(i, part);
    }

    let mut each = |value: Value<'a>, out: &mut IndexKeys| -> Result<()> {
        let at_end = match value {
            Value::Undefined if empty => value,
            _ if whole => Value::Array(array),
            _ => value,
        };
        for &i in &entering {
            if let Some(f) = fields.get_mut(i)
                && f.rest.is_empty()
            {
                f.state = State::Done(at_end);
            }
        }
        if !open {
            return emit(&fields, sparse, out);
        }
        let inner = match value {
            Value::Document(d) => d,
            _ => Doc::EMPTY,
        };
        expand(inner, fields.clone(), sparse, out)
    };
    if empty {
        return each(Value::Undefined, out);
    }
    if !by_element {
        // Every field selects its element by number, so all elements give the same keys. Once is enough, and
        // bounds the work that a hostile path can cause.
        return each(Value::Null, out);
    }
    for value in array.values() {
        each(value, out)?;
    }
    Ok(())
}

/// Refuses a path whose next part both selects an element of `array` and names a field of one of its
/// documents.
fn refuse_ambiguous(array: Doc<'_>, rest: &[String]) -> Result<()> {
    let Some(part) = rest.first() else {
        return Ok(());
    };
    let named = |v: Value<'_>| v.as_doc().is_some_and(|d| d.get_elem(part).is_some());
    if !array.values().any(named) {
        return Ok(());
    }
    Err(Error::location(
        16746,
        format!(
            "Ambiguous field name found in array (do not use numeric field names in embedded \
             elements in an array), field: '{part}' for array: {}",
            Value::Array(array).to_display()
        ),
    ))
}

fn emit(fields: &[Field<'_, '_>], sparse: bool, out: &mut IndexKeys) -> Result<()> {
    let missing = |f: &Field<'_, '_>| !matches!(f.state, State::Done(_));
    if sparse && fields.iter().all(missing) {
        return Ok(());
    }
    for f in fields {
        let value = match f.state {
            State::Done(v) => v,
            _ => Value::Null,
        };
        out.push(value, f.descending);
    }
    out.end_key()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{DocBuf, keyenc};

    fn keys(json: &str, paths: &[&str], sparse: bool) -> Result<(Vec<String>, Vec<u64>)> {
        let doc = DocBuf::from_json(json)?;
        let fields: Vec<_> = paths
            .iter()
            .map(|p| (Path::new(p.trim_start_matches('-')), p.starts_with('-')))
            .collect();
        let mut out = IndexKeys::new();
        // The same buffers are used twice, and nothing may be left over.
        index_keys(
            DocBuf::from_json(r#"{"a":[9,8]}"#)?.as_doc(),
            &fields,
            false,
            &mut out,
        )?;
        index_keys(doc.as_doc(), &fields, sparse, &mut out)?;
        let mut texts = Vec::new();
        for (mut key, mut bits) in out.iter() {
            let mut values = Vec::new();
            for (_, descending) in &fields {
                let (v, rest) = keyenc::decode(key, *descending, &mut bits)?;
                values.push(v.as_value().to_display());
                key = rest;
            }
            assert!(key.is_empty() && bits.is_empty());
            texts.push(values.join("|"));
        }
        Ok((texts, out.multikey().to_vec()))
    }

    #[test]
    fn keys_follow_mongodbs_rules() {
        for (json, paths, want, multikey) in [
            (
                r#"{"a": 1, "b": "x"}"#,
                &["a", "-b"][..],
                &["1|\"x\""][..],
                &[0, 0][..],
            ),
            (r#"{"b": 1}"#, &["a"], &["null"], &[0]),
            (r#"{"a": {"b": 1.5}}"#, &["a.b"], &["1.5"], &[0]),
            (r#"{"a": {"b": 1}}"#, &["a"], &["{ b: 1 }"], &[0]),
            (r#"{"a": 5}"#, &["a.b"], &["null"], &[0]),
            (r#"{"a": [3, 1, 3, 1.0]}"#, &["a"], &["1", "3"], &[1]),
            (r#"{"a": [3, 1, 2]}"#, &["-a"], &["3", "2", "1"], &[1]),
            (r#"{"a": []}"#, &["a"], &["undefined"], &[1]),
            (r#"{"a": []}"#, &["a.b"], &["null"], &[1]),
            (r#"{"a": [[1, 2], []]}"#, &["a"], &["[]", "[ 1, 2 ]"], &[1]),
            (
                r#"{"a": [{"b": 1}, {"b": 2}, {}, 7]}"#,
                &["a.b"],
                &["null", "1", "2"],
                &[1],
            ),
            (
                r#"{"a": [{"b": [1, 2]}, {"b": 3}]}"#,
                &["a.b"],
                &["1", "2", "3"],
                &[3],
            ),
            (
                r#"{"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}], "d": 9}"#,
                &["a.b", "d", "a.c"],
                &["1|9|2", "3|9|4"],
                &[1, 0, 1],
            ),
            (
                r#"{"a": [{"b": [1, 2], "c": 5}, {"c": 6}]}"#,
                &["a.b", "a.c"],
                &["null|6", "1|5", "2|5"],
                &[3, 1],
            ),
            (
                r#"{"a": [1, {"b": 2}]}"#,
                &["a", "a.b"],
                &["1|null", "{ b: 2 }|2"],
                &[1, 1],
            ),
            // Elements are selected by number.
            (r#"{"a": [5, {"b": 4}, 3]}"#, &["a.1.b"], &["4"], &[0]),
            (r#"{"a": [5, [2, 4]]}"#, &["a.1"], &["[ 2, 4 ]"], &[0]),
            (r#"{"a": [5, 6]}"#, &["a.1"], &["6"], &[0]),
            (r#"{"a": [5, 6]}"#, &["a.7"], &["null"], &[1]),
            (r#"{"a": [{"7": 1}, 6]}"#, &["a.7"], &["null", "1"], &[1]),
            (
                r#"{"a": [[{"b": 1}, {"b": 2}]]}"#,
                &["a.0.b"],
                &["1", "2"],
                &[2],
            ),
            (r#"{"a": [5, 6]}"#, &["a", "a.0"], &["5|5", "6|5"], &[1, 0]),
        ] {
            let (texts, mask) = keys(json, paths, false).unwrap();
            assert_eq!(
                (&texts[..], &mask[..]),
                (
                    want.to_vec()
                        .iter()
                        .map(|s| s.to_string())
                        .collect::<Vec<_>>()
                        .as_slice(),
                    multikey
                ),
                "{json} {paths:?}"
            );
        }
    }

    #[test]
    fn sparse_leaves_out_what_is_missing() {
        let sparse = |json, paths| keys(json, paths, true).unwrap().0;
        assert!(sparse(r#"{"c": 1}"#, &["a", "b"]).is_empty());
        assert_eq!(sparse(r#"{"b": 1}"#, &["a", "b"]), ["null|1"]);
        assert_eq!(sparse(r#"{"a": null}"#, &["a"]), ["null"]);
        assert_eq!(sparse(r#"{"a": [{"b": 1}, 2]}"#, &["a.b"]), ["1"]);
        assert!(sparse(r#"{"a": []}"#, &["a.b"]).is_empty());
        assert_eq!(sparse(r#"{"a": []}"#, &["a"]), ["undefined"]);
    }

    #[test]
    fn documents_that_cannot_be_indexed_are_refused() {
        let e = keys(r#"{"a": [1], "b": [2]}"#, &["a", "b"], false).unwrap_err();
        assert_eq!(e.code(), Code::CannotIndexParallelArrays);
        assert_eq!(e.message(), "cannot index parallel arrays [b] [a]");
        let e = keys(r#"{"a": {"x": [1], "y": [2]}}"#, &["a.x", "a.y"], false).unwrap_err();
        assert_eq!(e.message(), "cannot index parallel arrays [y] [x]");
        let e = keys(r#"{"a": [{"b": [1], "c": [2]}]}"#, &["a.b", "a.c"], false).unwrap_err();
        assert_eq!(e.code(), Code::CannotIndexParallelArrays);
        let e = keys(r#"{"a": [{"0": 1}]}"#, &["a.0"], false).unwrap_err();
        assert_eq!(e.code(), Code(16746));
    }

    #[test]
    fn numbered_parts_do_not_multiply_the_work() {
        // There are 30 levels of arrays with three elements, and a path of numbers. If each level walked all
        // elements, this would take 3^30 steps.
        let mut v = crate::ValueBuf::new(1);
        for _ in 0..30 {
            v = crate::ValueBuf::new(crate::array![v.as_value(), 0, 0]);
        }
        let doc = crate::doc! { "a": v.as_value() };
        let path = format!("a{}", ".0".repeat(29));
        let mut out = IndexKeys::new();
        index_keys(doc.as_doc(), &[(Path::new(&path), false)], false, &mut out).unwrap();
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn keys_are_counted_while_they_are_made() {
        let elements: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        let json = format!(
            r#"{{"a": [{}], "p": "{}"}}"#,
            elements.join(","),
            "x".repeat(1000)
        );
        let doc = DocBuf::from_json(&json).unwrap();
        let fields = [(Path::new("a"), false), (Path::new("p"), false)];
        let mut out = IndexKeys::new();
        let mut make = |limits: KeyLimits| {
            out.limit(limits);
            let made = index_keys(doc.as_doc(), &fields, false, &mut out);
            (made.map_err(|e| e.code().0), out.is_cut(), out.memory())
        };
        let bytes = KeyLimits {
            bytes: 100_000,
            ..KeyLimits::NONE
        };
        let (made, cut, memory) = make(bytes);
        assert!(made == Err(201) && cut && memory < 400_000, "{memory}");
        let keys = |keys| KeyLimits {
            keys,
            ..KeyLimits::NONE
        };
        let (made, cut, _) = make(keys(999));
        assert!(made == Err(201) && !cut);
        assert_eq!(make(keys(1000)).0, Ok(()));
        assert_eq!(make(KeyLimits::NONE).0, Ok(()));
        assert_eq!(out.len(), 1000);
    }
}
