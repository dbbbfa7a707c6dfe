//! The merged stream of all parts.

use super::opening::Opening;
use super::part::{self, Next, Part};
use crate::router::sharded::remote::Terms;
use crate::sets::Sent;
use bytes::Bytes;
use muniment_exec::{EventTokens, OpContext, Tail, read_token};
use muniment_op::Interrupt;
use muniment_query::DocStream;
use muniment_storage::Timestamp;
use muniment_value::{Doc, DocBuf, Result, doc};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a thread that waits for shards looks whether its operation has to end.
const LOOK: Duration = Duration::from_millis(50);
/// A shard whose promise is this many seconds older than the cluster's time is asked for a newer one, also if no event
/// waits for it. Otherwise the token of the whole stream would stay at that promise, until the logs of other shards do
/// not reach back to it any more.
const OLD: u32 = 10;

/// What the stream and its cursor share.
pub struct Merged {
    parts: Mutex<Parts>,
    pub tokens: Arc<EventTokens>,
}

/// See the module's head.
struct Parts {
    terms: Terms,
    opening: Opening,
    all: Vec<Part>,
    /// Answers were taken since the batch began. It ends with what there is, however much comes meanwhile.
    received: bool,
    /// The stream has ended, since the events of one shard have.
    ended: bool,
}

/// The source of the stages that run at the router.
pub struct Source(pub Arc<Merged>);

impl Merged {
    /// The merged stream of these parts.
    pub fn new(
        terms: &Terms,
        opening: Opening,
        all: Vec<Part>,
        tokens: Arc<EventTokens>,
    ) -> Arc<Merged> {
        let parts = Parts {
            terms: terms.clone(),
            opening,
            all,
            received: false,
            ended: false,
        };
        Arc::new(Merged {
            parts: Mutex::new(parts),
            tokens,
        })
    }
}

impl Parts {
    /// The part whose event comes next, or whose end does. Otherwise what the others have to come to first, if there
    /// is an event.
    fn first(&self) -> std::result::Result<usize, Option<Timestamp>> {
        let nexts = self.all.iter().enumerate();
        let ready = nexts.filter(|(_, part)| !matches!(part.next(), Next::Unknown(_)));
        let Some((n, first)) = ready.min_by_key(|(_, part)| part.next().token()) else {
            return Err(None);
        };
        let token = first.next().token();
        match self.lagging(token).next() {
            None => Ok(n),
            Some(_) => Err(Some(time_of(token))),
        }
    }

    /// The parts of which something may come before an event.
    fn lagging(&self, token: &str) -> impl Iterator<Item = usize> {
        let parts = self.all.iter().enumerate();
        parts.filter_map(move |(n, part)| match part.next() {
            Next::Unknown(promise) if promise < token => Some(n),
            _ => None,
        })
    }

    fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.ended {
            let Ok(first) = self.first() else {
                if self.received || !self.receive()? {
                    return Ok(None);
                }
                self.received = true;
                continue;
            };
            let Some(part) = self.all.get_mut(first) else {
                return Ok(None);
            };
            let Some(event) = part.pop() else {
                if part.shard.is_none() {
                    return Err(part::ended(part.name()));
                }
                self.ended = true;
                return Ok(None);
            };
            part.ask(&self.terms)?;
            if part.shard.is_some() {
                return Ok(Some(event));
            }
            self.change(Doc::new(&event))?;
        }
        Ok(None)
    }

    /// Takes the answers that are there; whether there were any.
    fn receive(&mut self) -> Result<bool> {
        let mut any = false;
        for part in &mut self.all {
            any |= part.receive(&self.terms)?;
        }
        Ok(any)
    }

    /// Opens the part of a shard that was added, or ends that of one that was removed: all of its events were given.
    fn change(&mut self, event: Doc<'_>) -> Result<()> {
        let Some(shard) = event.get_doc("fullDocument") else {
            let gone = event.get_doc("documentKey").and_then(|k| k.get_str("_id"));
            let is_it = |part: &mut Part| gone.is_some() && part.shard.as_deref() == gone;
            let mut gone: Vec<Part> = self.all.extract_if(.., is_it).collect();
            part::end(&self.terms, self.terms.router()?, &mut gone);
            return Ok(());
        };
        let shard = self.opening.shard(self.terms.router()?, shard)?;
        if let Some(shard) = shard.filter(|s| self.all.iter().all(|p| p.name() != s.set.name)) {
            let mut opened = self.opening.open(&self.terms, &[shard])?;
            self.all.append(&mut opened);
        }
        Ok(())
    }

    /// Has shards come to a time whose promises hold up an event, or are old.
    fn nudge(&mut self) -> Result<()> {
        let newest = self.terms.router()?.times.at();
        let old = Timestamp::new(newest.seconds().saturating_sub(OLD), 0);
        let event = match self.first() {
            Err(Some(event)) => event,
            _ => Timestamp::ZERO,
        };
        let time = event.max(old);
        for part in &mut self.all {
            // A promise up to the event's time may still be one of before the event.
            if part.is_behind(time.plus(1)) {
                part.come_to(&self.terms, time)?;
            }
        }
        Ok(())
    }

    /// Waits until there is an answer, or until this time.
    fn wait(&mut self, op: &Arc<OpContext>, until: Instant) -> Result<()> {
        for part in &mut self.all {
            part.ask(&self.terms)?;
        }
        self.nudge()?;
        loop {
            if self.receive()? {
                return Ok(());
            }
            op.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            Sent::wait_for_any(self.all.iter().flat_map(Part::awaited), left.min(LOOK));
        }
    }

    /// Up to which token everything was given.
    fn promise(&self) -> Option<&DocBuf> {
        let promises = self.all.iter().filter_map(Part::promise);
        promises.min_by_key(|token| token.as_doc().get_str("_data").unwrap_or_default())
    }
}

/// The time in a token.
fn time_of(token: &str) -> Timestamp {
    let read = read_token(doc! { "_data": token }.as_doc());
    read.map_or(Timestamp::ZERO, |(at, _)| at)
}

impl DocStream for Source {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let event = self.0.parts.lock().next()?;
        if let Some(event) = &event {
            let token = Doc::new(event).get_doc("_id").unwrap_or(Doc::EMPTY);
            self.0.tokens.gives(token);
        }
        Ok(event)
    }
}

impl Tail for Merged {
    fn begins(&self) {
        self.parts.lock().received = false;
    }

    fn wait(&self, op: &Arc<OpContext>, until: Instant) -> Result<()> {
        self.parts.lock().wait(op, until)
    }

    fn passes(&self, event: Doc<'_>) -> Result<()> {
        self.tokens.passes(event)
    }

    fn token(&self, drained: bool) -> Option<DocBuf> {
        let passed = self.tokens.passed();
        let parts = self.parts.lock();
        let promise = parts.promise().filter(|_| drained && !parts.ended);
        let digits = |token: &DocBuf| {
            let digits = token.as_doc().get_str("_data");
            digits.unwrap_or_default().to_string()
        };
        match promise {
            Some(promise) if digits(promise) > digits(&passed) => Some(promise.clone()),
            _ => Some(passed),
        }
    }

    fn has_ended(&self) -> bool {
        self.parts.lock().ended
    }

    fn is_change_stream(&self) -> bool {
        true
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let Ok(router) = self.terms.router() {
            part::end(&self.terms, router, &mut self.all);
        }
    }
}
