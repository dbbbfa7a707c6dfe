//! Running `$setWindowFields`: sorting, partitions, and the windows that walk over them.

use super::super::accumulators::{Accumulator, Sliding};
use super::super::sorter::Sorter;
use super::super::spool::{Cursor, Spool};
use super::super::{DocStream, Ticker, check_size};
use super::frame::{self, Frame};
use super::{Framed, Function, Order, Row, Rowwise, SetWindowFields};
use crate::bytes::{close, open, put, set_path};
use crate::context::Runtime;
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use crate::meta::carry;
use crate::running::{Task, Work};
use bytes::Bytes;
use muniment_op::{Account, Share};
use muniment_value::{Doc, Error, Result, Value, ValueBuf, cmp_values};
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) struct WindowStream {
    spec: Arc<SetWindowFields>,
    input: Input,
    /// The first document of the next partition, with the key of that partition.
    pending: Option<(Bytes, Bytes)>,
    partition: Option<Partition>,
    /// The memory of the windows.
    share: Share,
    rt: Runtime,
    ticker: Ticker,
}

enum Input {
    Fresh(Box<dyn DocStream>),
    /// Nothing to sort, and only one partition.
    Plain(Box<dyn DocStream>),
    Sorted(Box<Sorter>),
    Done,
}

/// The documents of a partition and the windows over them.
struct Partition {
    spool: Spool,
    current: Cursor,
    runners: Vec<Runner>,
}

enum Runner {
    Window(Box<Window>),
    Rowwise(Box<dyn Rowwise>),
}

/// One field's window.
struct Window {
    state: State,
    low: Edge,
    high: Edge,
}

enum State {
    Growing(Box<dyn Accumulator>),
    Sliding(Box<dyn Sliding>),
}

impl State {
    fn heap(&self) -> usize {
        match self {
            State::Growing(s) => s.heap(),
            State::Sliding(s) => s.heap(),
        }
    }
}

/// An end of a window: its position, and the next document with its sort value.
struct Edge {
    cursor: Cursor,
    ahead: Option<(Bytes, ValueBuf)>,
    passed: u64,
}

impl Edge {
    fn new(spool: &Spool) -> Edge {
        Edge {
            cursor: spool.cursor(),
            ahead: None,
            passed: 0,
        }
    }

    /// The next document.
    fn next(&mut self, spool: &Spool) -> Result<Option<Bytes>> {
        let next = match self.ahead.take() {
            Some((doc, _)) => Some(doc),
            None => self.cursor.next(spool)?,
        };
        self.passed += u64::from(next.is_some());
        Ok(next)
    }

    /// The sort value of the next document.
    fn peek(&mut self, spool: &Spool, by: &Expr, work: Work<'_>) -> Result<Option<Value<'_>>> {
        if self.ahead.is_none()
            && let Some(doc) = self.cursor.next(spool)?
        {
            let v = value(by, Doc::new(&doc), work)?;
            self.ahead = Some((doc, v));
        }
        Ok(self.ahead.as_ref().map(|(_, v)| v.as_value()))
    }
}

/// The value of an expression; null if it is missing.
pub(super) fn value(e: &Expr, doc: Doc<'_>, work: Work<'_>) -> Result<ValueBuf> {
    with_arena(work, |arena| {
        let cx = EvalContext::new(doc, arena);
        Ok(ValueBuf::new(e.eval(&cx)?.unwrap_or(Value::Null)))
    })
}

impl Window {
    fn new(f: &Framed, spool: &Spool, task: &Task) -> Window {
        let grows = match &f.frame {
            Frame::Documents(low, _) => low.is_none(),
            Frame::Range { low, .. } => low.is_none(),
        };
        Window {
            state: match &f.growing {
                Some(make) if grows => {
                    let mut state = make();
                    state.works_for(task);
                    State::Growing(state)
                }
                _ => State::Sliding((f.sliding)()),
            },
            low: Edge::new(spool),
            high: Edge::new(spool),
        }
    }

    fn add(&mut self, f: &Framed, spool: &Spool, work: Work<'_>) -> Result<()> {
        work.tick()?;
        let Some(doc) = self.high.next(spool)? else {
            return Ok(());
        };
        with_arena(work, |arena| {
            let v = f.input.eval(&EvalContext::new(Doc::new(&doc), arena))?;
            match &mut self.state {
                State::Growing(s) => s.add(v),
                State::Sliding(s) => s.add(v),
            }
        })
    }

    fn remove(&mut self, f: &Framed, spool: &Spool, work: Work<'_>) -> Result<()> {
        work.tick()?;
        let Some(doc) = self.low.next(spool)? else {
            return Ok(());
        };
        with_arena(work, |arena| {
            let v = f.input.eval(&EvalContext::new(Doc::new(&doc), arena))?;
            match &mut self.state {
                State::Growing(_) => Err(Error::internal("a window that grows does not shrink")),
                State::Sliding(s) => s.remove(v),
            }
        })
    }

    /// Moves the window to the document `row` and appends the field.
    fn row(&mut self, f: &Framed, order: &Order, row: &Row<'_>, out: &mut Vec<u8>) -> Result<()> {
        let (spool, work) = (row.spool, row.work);
        match &f.frame {
            Frame::Documents(low, high) => {
                // Offsets are cut at the partition's ends, so nothing can overflow.
                let n = i64::try_from(spool.count()).unwrap_or(i64::MAX);
                let here = i64::try_from(row.number).unwrap_or(i64::MAX);
                let at = |by: i64| here.saturating_add(by).clamp(0, n) as u64;
                let high = high.map_or(spool.count(), |h| at(h.saturating_add(1)));
                while self.high.passed < high {
                    self.add(f, spool, work)?;
                }
                let low = low.map_or(0, at);
                while self.low.passed < low.min(self.high.passed) {
                    self.remove(f, spool, work)?;
                }
            }
            Frame::Range { low, high, unit } => {
                let Some((by, _)) = order.single() else {
                    return Err(Error::internal("a range has no sort"));
                };
                let here = value(by, row.doc, work)?;
                frame::check(here.as_value(), *unit)?;
                let end = |offset: &Option<ValueBuf>| match offset {
                    None => Ok(None),
                    Some(o) => frame::end(here.as_value(), o.as_value(), *unit).map(Some),
                };
                let high = end(high)?;
                while let Some(v) = self.high.peek(spool, by, work)? {
                    if let Some(high) = &high {
                        frame::check(v, *unit)?;
                        if cmp_values(v, high.as_value()) == Ordering::Greater {
                            break;
                        }
                    }
                    self.add(f, spool, work)?;
                }
                let low = end(low)?;
                while let Some(low) = &low
                    && self.low.passed < self.high.passed
                    && let Some(v) = self.low.peek(spool, by, work)?
                    && cmp_values(v, low.as_value()) == Ordering::Less
                {
                    self.remove(f, spool, work)?;
                }
            }
        }
        if let Some(empty) = &f.empty
            && self.low.passed == self.high.passed
        {
            put(out, b"", empty);
            return Ok(());
        }
        let Some(relate) = &f.relate else {
            self.finish(out);
            return Ok(());
        };
        let mut result = Vec::new();
        let start = open(&mut result);
        self.finish(&mut result);
        close(&mut result, start);
        let result = Doc::new(&result).first().map_or(Value::Null, |e| e.value());
        let field = with_arena(work, |arena| {
            let own = f.input.eval(&EvalContext::new(row.doc, arena))?;
            relate(own, result)
        })?;
        put(out, b"", &field);
        Ok(())
    }

    fn finish(&self, out: &mut Vec<u8>) {
        match &self.state {
            State::Growing(s) => s.finish(b"", out),
            State::Sliding(s) => s.finish(b"", out),
        }
    }
}

impl WindowStream {
    pub(crate) fn new(
        spec: Arc<SetWindowFields>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> WindowStream {
        WindowStream {
            spec,
            input: Input::Fresh(source),
            pending: None,
            partition: None,
            share: Share::new(&rt.ledger, Account::Stages),
            rt: rt.clone(),
            ticker: Ticker::new(rt),
        }
    }

    /// Sorts the input if necessary. A payload consists of the length of the partition's key, that key, and
    /// the document.
    fn prepare(&mut self, mut source: Box<dyn DocStream>) -> Result<Input> {
        let spec = Arc::clone(&self.spec);
        let sort = spec.order.sort.as_ref().filter(|s| !s.keys().is_empty());
        if spec.partition.is_none() && sort.is_none() {
            return Ok(Input::Plain(source));
        }
        let mut sorter = Sorter::new(None, self.rt.memory_limit, &self.rt.ledger);
        let mut key = Vec::new();
        while let Some(bytes) = source.next()? {
            self.ticker.tick()?;
            let doc = Doc::new(&bytes);
            key.clear();
            if let Some(partition) = &spec.partition {
                let v = value(partition, doc, self.ticker.work())?;
                if let Value::Array(_) = v.as_value() {
                    return Err(Error::type_mismatch(
                        "An expression used to partition cannot evaluate to value of type array",
                    ));
                }
                spec.collation.encode(v.as_value(), false, &mut key);
            }
            let partition_len = key.len();
            if let Some(sort) = sort {
                sort.key(doc, &mut key)?;
            }
            let partition = key.get(..partition_len).unwrap_or_default();
            let head = (partition_len as u32).to_le_bytes();
            if sorter.push(&key, &[&head, partition, &bytes])? {
                sorter.spill(&self.rt)?;
            }
        }
        sorter.finish(&self.rt)?;
        Ok(Input::Sorted(Box::new(sorter)))
    }

    /// The next document with its partition's key.
    fn pull(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        self.ticker.tick()?;
        match &mut self.input {
            Input::Plain(source) => Ok(source.next()?.map(|doc| (Bytes::new(), doc))),
            Input::Sorted(sorter) => {
                let Some(payload) = sorter.next()? else {
                    return Ok(None);
                };
                let head = payload.get(..4).and_then(|b| b.try_into().ok());
                let end = 4 + head.map_or(0, u32::from_le_bytes) as usize;
                if end > payload.len() {
                    return Err(Error::internal("a sorted document is cut short"));
                }
                Ok(Some((payload.slice(4..end), payload.slice(end..))))
            }
            Input::Fresh(_) | Input::Done => Ok(None),
        }
    }

    /// Reads the next partition.
    fn next_partition(&mut self) -> Result<Option<Partition>> {
        let Some((key, first)) = self.pull()? else {
            return Ok(None);
        };
        let mut spool = Spool::new("$setWindowFields");
        spool.push(first, &self.rt, &self.ticker)?;
        while let Some((k, doc)) = self.pull()? {
            if k != key {
                self.pending = Some((k, doc));
                break;
            }
            spool.push(doc, &self.rt, &self.ticker)?;
        }
        spool.finish()?;
        let runners = self
            .spec
            .outputs
            .iter()
            .map(|(_, f)| match f {
                Function::Framed(f) => {
                    Runner::Window(Box::new(Window::new(f, &spool, self.ticker.task())))
                }
                Function::Rowwise(make) => Runner::Rowwise(make()),
            })
            .collect();
        Ok(Some(Partition {
            current: spool.cursor(),
            runners,
            spool,
        }))
    }

    /// The next document of the partition, with its fields.
    fn row(&mut self, p: &mut Partition) -> Result<Option<Bytes>> {
        let number = p.current.index();
        let Some(bytes) = p.current.next(&p.spool)? else {
            return Ok(None);
        };
        let row = Row {
            doc: Doc::new(&bytes),
            number,
            spool: &p.spool,
            work: self.ticker.work(),
        };
        let mut done = row.doc.as_bytes().to_vec();
        let (mut field, mut next) = (Vec::new(), Vec::new());
        let mut held = 0;
        for ((path, f), runner) in self.spec.outputs.iter().zip(&mut p.runners) {
            field.clear();
            let start = open(&mut field);
            match (f, runner) {
                (Function::Framed(f), Runner::Window(w)) => {
                    w.row(f, &self.spec.order, &row, &mut field)?;
                    held += w.state.heap();
                }
                (_, Runner::Rowwise(r)) => r.row(&row, b"", &mut field)?,
                _ => return Err(Error::internal("a window has no function")),
            }
            close(&mut field, start);
            if let Some(e) = Doc::new(&field).first() {
                next.clear();
                set_path(Doc::new(&done), path.parts(), Some(&e), &mut next);
                std::mem::swap(&mut done, &mut next);
                check_size(done.len())?;
            }
        }
        // A window cannot be spilled.
        self.share.try_hold(held)?;
        carry(row.doc, &mut done);
        Ok(Some(done.into()))
    }
}

impl DocStream for WindowStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Input::Fresh(_) = self.input
            && let Input::Fresh(source) = std::mem::replace(&mut self.input, Input::Done)
        {
            self.input = self.prepare(source)?;
        }
        loop {
            self.ticker.tick()?;
            if let Some(mut p) = self.partition.take()
                && let Some(doc) = self.row(&mut p)?
            {
                self.partition = Some(p);
                return Ok(Some(doc));
            }
            match self.next_partition()? {
                Some(p) => self.partition = Some(p),
                None => {
                    self.input = Input::Done;
                    return Ok(None);
                }
            }
        }
    }
}
