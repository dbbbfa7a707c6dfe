//! `$group`: groups documents by the value of an expression and accumulates each group.
//!
//! Groups are in a hash table by the order-preserving encoding of their `_id`, so that 1 and 1.0 are one
//! group. Beyond the memory limit, the table is written out as a run sorted by that encoding, with the
//! partial states of each group; at the end the runs are merged and the states of equal groups combined.
//! Without spilling, groups come out in the order in which they first appeared.

use super::accumulators::{self, Accumulator};
use super::bucket::Buckets;
use super::external::{Merge, Record, Runs};
use super::parts::{self, Part};
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{CountOnly, DocStream, Stage, StageOp, Ticker, check_size};
use crate::bytes::{close, head, open, put};
use crate::context::{QueryContext, Runtime};
use crate::expr::arena::{build_doc, with_arena};
use crate::expr::{EvalContext, Expr};
use crate::meta::MetaSet;
use crate::needs::Needs;
use crate::running::Task;
use bytes::Bytes;
use muniment_op::{Account, Share};
use muniment_value::{Collation, Doc, DocBuf, Elem, Error, Result, Type, Value, ValueBuf};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$group",
    doc: "Accumulates documents by the value of an expression.",
    place: Place::ANYWHERE,
    spread: Spread::Halves(parts::of_group),
    rights: Rights::Input,
    parse,
};

#[derive(Debug)]
pub(super) struct Group {
    id: Key,
    fields: Vec<Field>,
    part: Part,
    collation: Collation,
    /// Whether MongoDB would run the stage in its other engine, which has its own codes for divisions by
    /// zero.
    first: bool,
    /// Whether that engine passes the documents to another stage; see [`Group::output`].
    handed_on: bool,
}

/// The value by which documents are grouped.
#[derive(Debug)]
pub(super) enum Key {
    /// The value of an expression.
    Value(Expr),
    /// An object with one field, in which a missing value becomes null, as in MongoDB. (An object with
    /// several fields distinguishes them.)
    Field(String, Expr),
    /// The bucket that contains the value of an expression.
    Bucket(Buckets),
}

impl Key {
    fn eval<'a>(&'a self, cx: &EvalContext<'a>) -> Result<Value<'a>> {
        match self {
            Key::Value(e) => Ok(e.eval(cx)?.unwrap_or(Value::Null)),
            Key::Field(name, e) => {
                let value = e.eval(cx)?.unwrap_or(Value::Null);
                let object = build_doc(cx.arena, |w| {
                    w.put(name, &value);
                    Ok(())
                })?;
                Ok(Value::Document(object))
            }
            Key::Bucket(b) => b.of(cx),
        }
    }
}

/// A field of the output, and its accumulator.
#[derive(Debug)]
pub(super) struct Field {
    pub name: String,
    pub spec: &'static accumulators::Spec,
    pub parsed: accumulators::Parsed,
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            15947,
            "a group's fields must be specified in an object",
        ));
    };
    let mut id = None;
    let mut fields: Vec<Field> = Vec::new();
    let mut part = Part::Whole;
    for f in d {
        if let Some(p) = Part::of(f, ctx) {
            part = p;
            continue;
        }
        if f.name() == "_id" {
            if id.is_some() {
                return Err(Error::location(
                    15948,
                    "a group's _id may only be specified once",
                ));
            }
            id = Some(parse_id(f.value(), ctx)?);
            continue;
        }
        fields.push(parse_field(f, ctx)?);
    }
    let id =
        id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
    stages.push(group(id, fields, part, ctx));
    Ok(())
}

/// Parses the `_id`, by which documents are grouped.
///
/// # Errors
/// 17390; those of the expression.
fn parse_id(id: Value<'_>, ctx: &QueryContext) -> Result<Key> {
    let whole = || Expr::parse(id, ctx).map(Key::Value);
    let Value::Document(fields) = id else {
        return whole();
    };
    let Some(first) = fields.first().filter(|f| !f.name().starts_with('$')) else {
        return whole();
    };
    let inclusion = |v: Value<'_>| v.is_number() || v.as_bool().is_some();
    if fields.iter().any(|f| inclusion(f.value())) {
        return Err(Error::location(
            17390,
            "$group does not support inclusion-style expressions",
        ));
    }
    // This also checks the names of the fields.
    let object = whole()?;
    if fields.count() > 1 {
        return Ok(object);
    }
    let value = Expr::parse(first.value(), ctx)?;
    if value.as_constant().is_some() {
        return Ok(object);
    }
    Ok(Key::Field(first.name().to_string(), value))
}

/// The stage that groups by `id`.
pub(super) fn group(id: Key, fields: Vec<Field>, part: Part, ctx: &QueryContext) -> Stage {
    Stage::Other(Arc::new(Group {
        id,
        fields,
        part,
        collation: ctx.collation.clone(),
        first: false,
        handed_on: false,
    }))
}

/// Parses a field of the output, which must be an accumulator.
///
/// # Errors
/// 40234 to 40238 and 15952; those of the accumulator.
pub(super) fn parse_field(f: Elem<'_>, ctx: &QueryContext) -> Result<Field> {
    let name = f.name();
    if name.contains('.') {
        return Err(Error::location(
            40235,
            format!("The field name '{name}' cannot contain '.'"),
        ));
    }
    if name.starts_with('$') {
        return Err(Error::location(
            40236,
            format!("The field name '{name}' cannot be an operator name"),
        ));
    }
    let accumulator = match f.value() {
        Value::Document(d) => d.first().map(|a| (d, a)),
        _ => None,
    };
    let accumulator = accumulator.filter(|(_, a)| a.name().starts_with('$'));
    let Some((d, a)) = accumulator else {
        return Err(Error::location(
            40234,
            format!("The field '{name}' must be an accumulator object"),
        ));
    };
    if d.count() != 1 {
        return Err(Error::location(
            40238,
            format!("The field '{name}' must specify one accumulator"),
        ));
    }
    let spec = accumulators::find(a.name());
    if let Value::Array(_) = a.value() {
        return Err(Error::location(
            40237,
            format!("The {} accumulator is a unary operator", a.name()),
        ));
    }
    let spec = spec?;
    if spec.name == "$count" && a.value().as_doc().is_none_or(|d| !d.is_empty()) {
        return Err(Error::type_mismatch(
            "$count takes no arguments, i.e. $count:{}",
        ));
    }
    Ok(Field {
        name: name.to_string(),
        spec,
        parsed: spec.parse(a.value(), ctx)?,
    })
}

impl StageOp for Group {
    fn needs(&self, needs: &mut Needs) -> bool {
        if self.part == Part::Second {
            needs.whole();
            return true;
        }
        match &self.id {
            Key::Value(e) | Key::Field(_, e) => needs.expr(e),
            Key::Bucket(b) => needs.expr(b.by()),
        }
        self.fields.iter().for_each(|f| needs.expr(&f.parsed.expr));
        true
    }

    fn metadata(&self, _: MetaSet) -> MetaSet {
        MetaSet::NONE
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(GroupStream {
            spec: self,
            state: State::Reading(Box::new(Reading {
                source,
                table: Table::default(),
                runs: None,
                key: Vec::new(),
            })),
            rt: rt.clone(),
            ticker: Ticker::new(rt),
            share: Share::new(&rt.ledger, Account::Stages),
            done: Done::default(),
        }))
    }

    fn comes_first(&mut self, followed: bool) {
        self.first = true;
        self.handed_on = followed;
    }

    fn counts(&self) -> Option<CountOnly> {
        let Key::Value(id) = &self.id else {
            return None;
        };
        if self.part != Part::Whole {
            return None;
        }
        let id = ValueBuf::new(id.as_constant()?);
        let counting = |f: &Field| {
            f.spec.name == "$count"
                || (f.spec.name == "$sum"
                    && matches!(f.parsed.expr.as_constant(), Some(Value::Int32(1))))
        };
        self.fields.iter().all(counting).then(|| CountOnly {
            id: Some(id),
            fields: self.fields.iter().map(|f| f.name.clone()).collect(),
        })
    }
}

/// One group while it accumulates.
struct Entry {
    id: ValueBuf,
    states: Vec<Box<dyn Accumulator>>,
}

impl Entry {
    /// The bytes that the states hold.
    fn heap(&self) -> usize {
        self.states.iter().map(|s| s.heap()).sum()
    }
}

/// The most bytes that the states of one group may hold in the first part, which gives them early if they hold more:
/// a message between members has room for 16 MiB in one document. A state may take twice as much as a value than in
/// memory.
const MAX_STATES: usize = 4 << 20;

/// The bytes that a group needs in addition to its values, for the headers of four allocations.
const GROUP_OVERHEAD: usize = 64;
/// The bytes for its place in the table, a part of which is free.
const PLACE: usize = 2 * (size_of::<Box<[u8]>>() + size_of::<usize>());
/// The bytes that an accumulator needs in addition to those that it reports.
const STATE_OVERHEAD: usize = 64;

#[derive(Default)]
struct Table {
    places: HashMap<Box<[u8]>, usize>,
    entries: Vec<Entry>,
    bytes: usize,
}

impl Table {
    /// The bytes of the table, including free places.
    fn memory(&self) -> usize {
        self.bytes + self.places.capacity() * PLACE + self.entries.capacity() * size_of::<Entry>()
    }
}

struct GroupStream {
    spec: Arc<Group>,
    state: State,
    rt: Runtime,
    ticker: Ticker,
    /// The memory of the groups.
    share: Share,
    done: Done,
}

/// The figures of the stage, for explain.
#[derive(Default)]
struct Done {
    /// The most bytes that the accumulators of each field have had in memory. Only a watched stage records
    /// this.
    memory: Vec<usize>,
    output: u64,
    spills: u64,
    spilled_groups: u64,
    spilled_bytes: u64,
}

impl Done {
    /// Records the memory of the table, before it is given out or spilled.
    fn holds(&mut self, table: &Table) {
        let fields = table.entries.first().map_or(0, |e| e.states.len());
        self.memory.resize(fields.max(self.memory.len()), 0);
        for (i, most) in self.memory.iter_mut().enumerate() {
            let states = table.entries.iter().filter_map(|e| e.states.get(i));
            let bytes = states.map(|s| STATE_OVERHEAD + s.heap()).sum();
            *most = (*most).max(bytes);
        }
    }

    /// Records that a table is spilled.
    fn spills(&mut self, table: &Table) {
        self.spills += 1;
        self.spilled_groups += table.entries.len() as u64;
    }
}

/// The input, and the groups of its documents so far.
struct Reading {
    source: Box<dyn DocStream>,
    table: Table,
    runs: Option<Runs>,
    /// For scratch.
    key: Vec<u8>,
}

enum State {
    Reading(Box<Reading>),
    Memory(std::vec::IntoIter<Entry>),
    Merging { merge: Merge, next: Option<Record> },
    Done,
}

impl Group {
    fn states(&self, id: Value<'_>, task: &Task) -> Result<Vec<Box<dyn Accumulator>>> {
        let fields = self.fields.iter();
        fields.map(|f| f.parsed.state(id, task)).collect()
    }

    /// The error of an expression, with the code that it has in this stage.
    fn error(&self, e: Error) -> Error {
        match e.message() {
            "can't $divide by zero" if self.first => Error::location(4_848_401, e.message()),
            "can't $mod by zero" if self.first => Error::location(4_848_403, e.message()),
            _ => e,
        }
    }

    /// Adds a document to its group, and returns the group's place.
    fn add(
        &self,
        table: &mut Table,
        doc: Doc<'_>,
        key: &mut Vec<u8>,
        task: &Task,
    ) -> Result<usize> {
        if self.part == Part::Second {
            return self.add_states(table, doc, key, task);
        }
        with_arena(task.work(), |arena| {
            let cx = EvalContext::new(doc, arena);
            let id = self.id.eval(&cx).map_err(|e| self.error(e))?;
            let at = self.place(table, id, key, task)?;
            let Some(entry) = table.entries.get_mut(at) else {
                return Err(misplaced());
            };
            for (f, s) in self.fields.iter().zip(&mut entry.states) {
                let v = f.parsed.expr.eval(&cx).map_err(|e| self.error(e))?;
                let before = s.heap();
                s.add(v)?;
                table.bytes = (table.bytes + s.heap()).saturating_sub(before);
            }
            Ok(at)
        })
    }

    /// Adds the states of a group that a shard has accumulated.
    fn add_states(
        &self,
        table: &mut Table,
        doc: Doc<'_>,
        key: &mut Vec<u8>,
        task: &Task,
    ) -> Result<usize> {
        let mut elems = doc.iter();
        let mut next = |name: &str| {
            let e = elems.next().filter(|e| e.is_named(name));
            e.ok_or_else(|| {
                Error::internal(format!(
                    "a shard's group has no '{name}' where it should be"
                ))
            })
        };
        let id = next("_id")?;
        let at = self.place(table, id.value(), key, task)?;
        let Some(entry) = table.entries.get_mut(at) else {
            return Err(misplaced());
        };
        for (f, s) in self.fields.iter().zip(&mut entry.states) {
            let before = s.heap();
            s.merge(next(&f.name)?.value())?;
            table.bytes = (table.bytes + s.heap()).saturating_sub(before);
        }
        Ok(at)
    }

    /// The place of the group with this `_id`, which is made if it does not exist. `key` is for scratch.
    fn place(
        &self,
        table: &mut Table,
        id: Value<'_>,
        key: &mut Vec<u8>,
        task: &Task,
    ) -> Result<usize> {
        key.clear();
        self.collation.encode(id, false, key);
        if let Some(at) = table.places.get(key.as_slice()) {
            return Ok(*at);
        }
        let at = table.entries.len();
        let id = ValueBuf::new(id);
        table.bytes += GROUP_OVERHEAD + 2 * key.len() + self.fields.len() * STATE_OVERHEAD;
        table.places.insert(key.as_slice().into(), at);
        let states = self.states(id.as_value(), task)?;
        table.entries.push(Entry { id, states });
        Ok(at)
    }

    /// A group's document. If another stage takes it, MongoDB's engine passes minKey and maxKey wrapped in a
    /// document, and code as a string, so this does the same. The first part gives the states of the
    /// accumulators.
    fn output(&self, entry: &Entry) -> Result<Bytes> {
        let mut out = Vec::with_capacity(64);
        let start = open(&mut out);
        put(&mut out, b"_id", &entry.id);
        if self.handed_on {
            hand_on(&mut out, start + 4);
        }
        for (f, s) in self.fields.iter().zip(&entry.states) {
            let at = out.len();
            match self.part {
                Part::First => s.save(f.name.as_bytes(), &mut out),
                _ => accumulators::write_result(s.as_ref(), f.name.as_bytes(), &mut out)?,
            }
            if self.handed_on {
                hand_on(&mut out, at);
            }
        }
        close(&mut out, start);
        check_size(out.len())?;
        Ok(out.into())
    }

    /// Writes the table as a run, and empties it.
    fn spill(&self, table: &mut Table, runs: &mut Runs, ticker: &Ticker) -> Result<()> {
        let Table {
            places,
            mut entries,
            ..
        } = std::mem::take(table);
        let mut sorted: Vec<(Box<[u8]>, usize)> = places.into_iter().collect();
        sorted.sort_unstable();
        // The records are made one by one, because together they would take as much memory as the table.
        let records = sorted.into_iter().filter_map(|(key, at)| {
            let Entry { id, states } = entries.get_mut(at)?;
            let mut doc = Vec::new();
            let start = open(&mut doc);
            put(&mut doc, b"_", &*id);
            for s in states.drain(..) {
                s.save(b"s", &mut doc);
            }
            close(&mut doc, start);
            Some((key, doc))
        });
        runs.write(records, ticker)
    }

    /// Merges a spilled group into `entry`, or begins an entry with it.
    fn fold(&self, entry: Option<Entry>, doc: Doc<'_>, task: &Task) -> Result<Entry> {
        let mut elems = doc.iter();
        let id = elems
            .next()
            .ok_or_else(|| Error::internal("a spilled group has no _id"))?;
        let mut entry = match entry {
            Some(entry) => entry,
            None => Entry {
                id: ValueBuf::new(id),
                states: self.states(id.value(), task)?,
            },
        };
        for (s, partial) in entry.states.iter_mut().zip(elems) {
            s.merge(partial.value())?;
        }
        Ok(entry)
    }
}

/// The error of a table that is damaged.
fn misplaced() -> Error {
    Error::internal("a group is not where its table says")
}

/// Rewrites the last element, which is at `at`, in the way in which MongoDB's engine passes it on.
fn hand_on(out: &mut Vec<u8>, at: usize) {
    let odd = |t: u8| {
        [Type::MinKey, Type::MaxKey, Type::Code]
            .iter()
            .any(|o| *o as u8 == t)
    };
    let rewrite = |name: &[u8], v: Value<'_>, out: &mut Vec<u8>| match v {
        Value::MinKey | Value::MaxKey => {
            head(out, Type::Document, name);
            let start = open(out);
            put(out, b"", &v);
            close(out, start);
        }
        Value::Code(s) => put(out, name, &Value::String(s)),
        v => put(out, name, &v),
    };
    let first = out.get(at).copied().unwrap_or(0);
    if !odd(first) && first != Type::Array as u8 {
        return;
    }
    let mut copy = Vec::with_capacity(out.len() - at + 8);
    let start = open(&mut copy);
    copy.extend_from_slice(out.get(at..).unwrap_or_default());
    close(&mut copy, start);
    let Some(e) = Doc::new(&copy).first() else {
        return;
    };
    match e.value() {
        Value::Array(a) if a.iter().any(|e| odd(e.ty() as u8)) => {
            out.truncate(at);
            head(out, Type::Array, e.name_bytes());
            let start = open(out);
            for item in a {
                rewrite(item.name_bytes(), item.value(), out);
            }
            close(out, start);
        }
        Value::Array(_) => {}
        v => {
            out.truncate(at);
            rewrite(e.name_bytes(), v, out);
        }
    }
}

impl GroupStream {
    /// Reads documents to the end, or until a group is to be given early.
    fn consume(&mut self, input: &mut Reading) -> Result<Option<Bytes>> {
        while let Some(doc) = input.source.next()? {
            self.ticker.tick()?;
            let table = &mut input.table;
            let at = self
                .spec
                .add(table, Doc::new(&doc), &mut input.key, self.ticker.task())?;
            if self.spec.part == Part::First
                && let Some(entry) = table.entries.get_mut(at)
                && entry.heap() > MAX_STATES
            {
                let early = self.spec.output(entry)?;
                let states = self.spec.states(entry.id.as_value(), self.ticker.task())?;
                table.bytes = table.bytes.saturating_sub(entry.heap());
                entry.states = states;
                return Ok(Some(early));
            }
            let memory = table.memory();
            if self.share.holds(memory) || memory > self.rt.memory_limit {
                let runs = match &mut input.runs {
                    Some(r) => r,
                    None => input.runs.insert(Runs::new(&self.rt, "$group")?),
                };
                if self.rt.watched {
                    self.done.holds(table);
                }
                self.done.spills(table);
                self.spec.spill(table, runs, &self.ticker)?;
                self.share.holds(0);
            }
        }
        Ok(None)
    }

    /// Begins to give the groups, after the last document.
    fn finish(&mut self, input: Reading) -> Result<State> {
        let Reading {
            source,
            mut table,
            runs,
            ..
        } = input;
        drop(source);
        if self.rt.watched {
            self.done.holds(&table);
        }
        let Some(mut runs) = runs else {
            return Ok(State::Memory(table.entries.into_iter()));
        };
        if !table.entries.is_empty() {
            self.done.spills(&table);
            self.spec.spill(&mut table, &mut runs, &self.ticker)?;
        }
        self.share.holds(0);
        self.done.spilled_bytes = runs.bytes();
        let mut merge = runs.merge()?;
        let next = merge.next()?;
        Ok(State::Merging { merge, next })
    }

    /// The next group of those that were spilled.
    fn fold_next(&mut self, merge: &mut Merge, next: &mut Option<Record>) -> Result<Option<Entry>> {
        let Some(first) = next.take() else {
            return Ok(None);
        };
        let task = self.ticker.task();
        let mut folded = self.spec.fold(None, Doc::new(&first.doc), task)?;
        while let Some(r) = merge.next()? {
            let full = self.spec.part == Part::First && folded.heap() > MAX_STATES;
            if full || r.key != first.key {
                *next = Some(r);
                break;
            }
            folded = self.spec.fold(Some(folded), Doc::new(&r.doc), task)?;
            // This is a single group, which cannot be spilled.
            self.share
                .try_hold(merge.memory() + folded.heap() + r.doc.len())?;
        }
        Ok(Some(folded))
    }

    /// The next group, or one that is given early.
    fn next_output(&mut self) -> Result<Option<Bytes>> {
        let state = std::mem::replace(&mut self.state, State::Done);
        let mut state = match state {
            State::Reading(mut input) => {
                if let Some(early) = self.consume(&mut input)? {
                    self.state = State::Reading(input);
                    return Ok(Some(early));
                }
                self.finish(*input)?
            }
            state => state,
        };
        self.ticker.tick()?;
        let entry = match &mut state {
            State::Memory(entries) => entries.next(),
            State::Merging { merge, next } => self.fold_next(merge, next)?,
            State::Reading(_) | State::Done => None,
        };
        let Some(entry) = entry else { return Ok(None) };
        self.state = state;
        self.spec.output(&entry).map(Some)
    }
}

impl DocStream for GroupStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let doc = self.next_output()?;
        self.done.output += doc.as_ref().map_or(0, |d| d.len() as u64);
        Ok(doc)
    }

    fn tell(&self, d: &mut DocBuf) {
        let mut memory = DocBuf::new();
        for (i, f) in self.spec.fields.iter().enumerate() {
            let most = self.done.memory.get(i).copied().unwrap_or(0);
            memory.append(&f.name, most as i64);
        }
        let done = &self.done;
        d.append("maxAccumulatorMemoryUsageBytes", memory);
        d.append("totalOutputDataSizeBytes", done.output as i64);
        d.append("usedDisk", done.spills > 0);
        d.append("spills", done.spills as i64);
        d.append("spilledDataStorageSize", done.spilled_bytes as i64);
        d.append("numBytesSpilledEstimate", done.spilled_bytes as i64);
        d.append("spilledRecords", done.spilled_groups as i64);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::stage::Pipeline;
    use crate::stage::testing::{run, table};
    use crate::update::testing::json_array;
    use muniment_value::doc;

    #[test]
    fn table_of_group() {
        table(&[
            (
                "[{a:1,b:2},{a:2,b:3},{a:1.0,b:4}]",
                "[{$group:{_id:'$a',n:{$sum:'$b'}}}]",
                "[{_id:1,n:6},{_id:2,n:3}]",
            ),
            (
                "[{a:1},{}]",
                "[{$group:{_id:null,n:{$sum:1}}}]",
                "[{_id:null,n:2}]",
            ),
            (
                "[{a:null},{}]",
                "[{$group:{_id:'$a',n:{$count:{}}}}]",
                "[{_id:null,n:2}]",
            ),
            (
                "[{a:1,b:1},{a:1,b:2},{a:1,b:1}]",
                "[{$group:{_id:{x:'$a',y:'$b'}}}]",
                "[{_id:{x:1,y:1}},{_id:{x:1,y:2}}]",
            ),
            ("[]", "[{$group:{_id:null,n:{$sum:1}}}]", "[]"),
            (
                "[{h:{p:'x'}},{},{h:null},{h:{}},{h:{p:null}},{h:7}]",
                "[{$group:{_id:{p:'$h.p'},n:{$sum:1}}}]",
                "[{_id:{p:'x'},n:1},{_id:{p:null},n:5}]",
            ),
            (
                "[{a:1},{b:2}]",
                "[{$group:{_id:{q:'$nope'},n:{$sum:1}}}]",
                "[{_id:{q:null},n:2}]",
            ),
            (
                "[{a:1},{b:2}]",
                "[{$group:{_id:{q:'$$REMOVE'},n:{$sum:1}}}]",
                "[{_id:{q:null},n:2}]",
            ),
            (
                "[{a:1},{b:2}]",
                "[{$facet:{x:[{$group:{_id:{q:'$a'}}}]}}]",
                "[{x:[{_id:{q:1}},{_id:{q:null}}]}]",
            ),
            // With several fields, or with an object in the only field, missing and null are distinguished.
            (
                "[{a:1},{a:1,b:null}]",
                "[{$group:{_id:{x:'$a',y:'$b'}}}]",
                "[{_id:{x:1}},{_id:{x:1,y:null}}]",
            ),
            (
                "[{},{a:null}]",
                "[{$group:{_id:{x:{y:'$a'}}}}]",
                "[{_id:{x:{}}},{_id:{x:{y:null}}}]",
            ),
            ("[{}]", "[{$group:{_id:{}}}]", "[{_id:{}}]"),
            ("[{}]", "[{$group:{_id:{x:'c'}}}]", "[{_id:{x:'c'}}]"),
            (
                "[]",
                "[{$group:{_id:{r:1,q:{$foo:1}}}}]",
                "17390: $group does not support inclusion-style expressions",
            ),
            (
                "[]",
                "[{$group:{_id:{x:1}}}]",
                "17390: $group does not support inclusion-style expressions",
            ),
            (
                "[]",
                "[{$group:{_id:{'a.b':'$x'}}}]",
                "16412: FieldPath field names may not contain '.'. Consider using $getField or \
                 $setField. Found: 'a.b'",
            ),
            (
                "[]",
                "[{$group:{_id:{'':'$x'}}}]",
                "15998: FieldPath field names may not be empty strings.",
            ),
            (
                "[]",
                "[{$group:5}]",
                "15947: a group's fields must be specified in an object",
            ),
            (
                "[]",
                "[{$group:{}}]",
                "15955: a group specification must include an _id",
            ),
            (
                "[]",
                "[{$group:{_id:1,n:1}}]",
                "40234: The field 'n' must be an accumulator object",
            ),
            (
                "[]",
                "[{$group:{_id:1,n:{$sum:1,$avg:1}}}]",
                "40238: The field 'n' must specify one accumulator",
            ),
            (
                "[]",
                "[{$group:{_id:1,n:{$foo:1}}}]",
                "15952: unknown group operator '$foo'",
            ),
            (
                "[{a:0}]",
                "[{$group:{_id:1,r:{$sum:{$divide:[1,'$a']}}}}]",
                "4848401: can't $divide by zero",
            ),
            (
                "[{a:0}]",
                "[{$unwind:'$a'},{$group:{_id:{$mod:[1,'$a']}}}]",
                "16610: can't $mod by zero",
            ),
            (
                "[]",
                "[{$group:{_id:1,'a.b':{$sum:1}}}]",
                "40235: The field name 'a.b' cannot contain '.'",
            ),
            (
                "[]",
                "[{$group:{_id:1,n:{$sum:[1,2]}}}]",
                "40237: The $sum accumulator is a unary operator",
            ),
        ]);
    }

    #[test]
    fn spilled_groups_agree_with_those_in_memory() {
        let input = || -> Vec<DocBuf> {
            (0..4000)
                .map(|i: i32| {
                    let v = (i * 7919) % 101;
                    doc! { "k": (i * 31) % 500, "v": v, "d": f64::from(v) / 4.0 }
                })
                .collect()
        };
        let pipeline = "[{$group:{_id:'$k',sum:{$sum:'$v'},avg:{$avg:'$d'},min:{$min:'$v'},\
             max:{$max:'$v'},first:{$first:'$v'},last:{$last:'$v'},all:{$push:'$v'},\
             set:{$addToSet:'$v'},n:{$count:{}},fn:{$firstN:{n:3,input:'$v'}},\
             ln:{$lastN:{n:3,input:'$v'}},mn:{$minN:{n:3,input:'$v'}},top:{$topN:{n:2,sortBy:{v:1},\
             output:'$d'}},bot:{$bottomN:{n:2,sortBy:{v:1},output:'$d'}},med:{$median:{input:'$v',\
             method:'approximate'}},dev:{$stdDevPop:'$v'}}},{$sort:{_id:1}},\
             {$unset:['dev','set']}]";
        let dir = tempfile::tempdir().unwrap();
        let spilling = Runtime {
            memory_limit: 100_000,
            scratch: Some(crate::Scratch::unlimited(dir.path())),
            ..Runtime::for_tests()
        };
        let want = run(input(), pipeline, &Runtime::for_tests()).unwrap();
        let got = run(input(), pipeline, &spilling).unwrap();
        assert_eq!(want.len(), 500);
        assert!(got == want);
        let refusing = Runtime {
            scratch: None,
            ..spilling
        };
        let e = run(input(), pipeline, &refusing).unwrap_err();
        assert_eq!(e.code().0, 292);
    }

    #[test]
    fn a_group_that_was_spilled_is_folded_within_the_limits() {
        let dir = tempfile::tempdir().unwrap();
        let rt = Runtime {
            memory_limit: 1 << 20,
            scratch: Some(crate::Scratch::unlimited(dir.path())),
            ..Runtime::for_tests()
        };
        rt.ledger.set_limit(Account::Stages, 4 << 20);
        let text = "x".repeat(10_000);
        let input = |n: i32| -> Vec<DocBuf> {
            (0..n)
                .map(|i| doc! { "i": i, "v": text.as_str() })
                .collect()
        };
        let all = "[{$group:{_id:null,all:{$push:'$v'}}},{$project:{n:{$size:'$all'}}}]";
        let got = run(input(150), all, &rt).unwrap();
        assert_eq!(
            got[0].as_doc().get("n").and_then(|v| v.as_i64_exact()),
            Some(150)
        );
        assert!(rt.ledger.total().peak < 5 << 20);
        // This puts 10 MB into one group.
        let e = run(input(1000), all, &rt).unwrap_err();
        assert_eq!(e.code().0, 146, "{e:?}");
        assert!(rt.ledger.total().peak < 6 << 20, "{:?}", rt.ledger.total());
        // The same amount in separate groups is possible.
        let each = "[{$group:{_id:'$i',all:{$push:'$v'}}},{$count:'n'}]";
        let got = run(input(1000), each, &rt).unwrap();
        assert_eq!(
            got[0].as_doc().get("n").and_then(|v| v.as_i64_exact()),
            Some(1000)
        );
        assert_eq!(rt.ledger.total().used, 0);
    }

    #[test]
    fn windows_and_buckets_book_what_they_hold() {
        let dir = tempfile::tempdir().unwrap();
        let rt = Runtime {
            scratch: Some(crate::Scratch::unlimited(dir.path())),
            ..Runtime::for_tests()
        };
        rt.ledger.set_limit(Account::Stages, 2 << 20);
        let text = "x".repeat(10_000);
        let input = || -> Vec<DocBuf> {
            (0..600)
                .map(|i| doc! { "i": i, "v": text.as_str() })
                .collect()
        };
        for pipeline in [
            "[{$setWindowFields:{sortBy:{i:1},output:{a:{$push:'$v',window:{documents:[-500,0]}}}}},\
             {$project:{i:1}}]",
            "[{$setWindowFields:{sortBy:{i:1},output:{a:{$push:'$v',window:{documents:\
             ['unbounded','current']}}}}},{$project:{i:1}}]",
            "[{$bucketAuto:{groupBy:'$i',buckets:1,output:{a:{$push:'$v'}}}},{$project:{_id:1}}]",
        ] {
            let e = run(input(), pipeline, &rt).unwrap_err();
            assert_eq!(e.code().0, 146, "{pipeline}: {e:?}");
            assert!(rt.ledger.total().peak <= 4 << 20, "{:?}", rt.ledger.total());
            assert_eq!(rt.ledger.total().used, 0);
        }
    }

    #[test]
    fn an_accumulator_holds_no_more_than_its_limit() {
        let megabyte = "x".repeat(1 << 20);
        let input = || -> Vec<DocBuf> {
            (0..101)
                .map(|i| doc! { "v": format!("{i}{megabyte}") })
                .collect()
        };
        // A group as a whole may hold more than one accumulator.
        let rt = Runtime {
            memory_limit: 1 << 30,
            ..Runtime::for_tests()
        };
        for accumulator in ["$push", "$addToSet"] {
            let pipeline = format!("[{{$group:{{_id:null,all:{{{accumulator}:'$v'}}}}}}]");
            let e = run(input(), &pipeline, &rt).unwrap_err();
            assert_eq!(e.code().0, 146, "{accumulator}: {e:?}");
        }
        // A document of a $facet can hold less.
        let e = run(input(), "[{$facet:{all:[{$match:{}}]}}]", &rt).unwrap_err();
        assert_eq!(e.code().0, 4_031_700);
    }

    #[test]
    fn counting_groups_are_recognised() {
        let count = |p: &str| {
            Pipeline::parse(json_array(p).as_doc(), &QueryContext::new())
                .unwrap()
                .count_only()
                .and_then(|c| c.result(5))
        };
        assert_eq!(
            count("[{$group:{_id:1,n:{$sum:1}}}]").unwrap(),
            doc! { "_id": 1, "n": 5 }
        );
        assert_eq!(count("[{$count:'x'}]").unwrap(), doc! { "x": 5 });
        assert!(count("[{$group:{_id:'$a',n:{$sum:1}}}]").is_none());
        assert!(count("[{$group:{_id:1,n:{$sum:2}}}]").is_none());
        assert!(count("[{$match:{a:1}},{$count:'x'}]").is_none());
    }
}
