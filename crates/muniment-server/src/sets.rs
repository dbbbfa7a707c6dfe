//! The connections of a router, or of a shard, to the members of other sets.
//!
//! A set is known by its name and some of its members. Its other members, and which of them is primary, are asked
//! for with `hello`, when a connection is needed and nothing is known, and after an error says that what was known
//! is true no more.

mod known;

pub use known::Reach;

use crate::link::Link;
use crate::options::SetAddress;
use crate::read_preference::{Mode, ReadPreference};
use known::Known;
use muniment_member::{Caller, Routes, Trust, times_of};
use muniment_op::{Interrupt, Sleepers};
use muniment_storage::Timestamp;
use muniment_value::{Code, Doc, DocBuf, Error, Result};
use muniment_wire::begin_request;
use muniment_wire::client::{check_ok, code_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long each step of connecting may take.
const STEP: Duration = Duration::from_secs(5);
/// How long a primary is looked for.
const LOOKING: Duration = Duration::from_secs(20);
/// The pause before the members are asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections to a member that are kept while nothing uses them.
const MOST_IDLE: usize = 256;
/// After so long without an answer, the member is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(5);
/// The longest pause within a message.
const WITHIN: Duration = Duration::from_secs(30);
/// A connection that has carried a longer message is not kept, since its buffers have grown.
const LARGE: usize = 1 << 20;

/// The sets that a router or a shard speaks to.
pub struct Sets {
    /// The server's own address, what proves it to be of the cluster, and its ways to others.
    own: (String, Trust, Routes),
    all: Mutex<HashMap<String, Arc<SetPool>>>,
}

impl Sets {
    /// No sets yet. `port` is the server's own, `trust` proves it to be of the cluster, and `routes` are its ways to
    /// others.
    pub fn new(port: u16, trust: &Trust, routes: &Routes) -> Sets {
        let own = format!("{}:{port}", muniment_logger::hostname());
        Sets {
            own: (own, trust.clone(), routes.clone()),
            all: Mutex::default(),
        }
    }

    /// The set at this address.
    pub fn of(&self, address: &SetAddress) -> Arc<SetPool> {
        let mut all = self.all.lock();
        let made = || {
            let (own, trust, routes) = self.own.clone();
            let caller = Caller::new(address.name.clone(), own, trust, routes).that_calls_often();
            Arc::new(SetPool {
                name: address.name.clone(),
                caller,
                known: Mutex::new(Known {
                    hosts: address.hosts.clone(),
                    ..Known::default()
                }),
                idle: Mutex::default(),
                made: Mutex::default(),
                told: AtomicU64::new(0),
            })
        };
        let set = Arc::clone(all.entry(address.name.clone()).or_insert_with(made));
        // The members may have moved.
        let mut known = set.known.lock();
        for host in &address.hosts {
            if !known.hosts.contains(host) {
                known.hosts.push(host.clone());
            }
        }
        drop(known);
        set
    }

    /// All sets.
    pub fn all(&self) -> Vec<Arc<SetPool>> {
        self.all.lock().values().map(Arc::clone).collect()
    }
}

/// The connections that were made to a member.
#[derive(Default)]
struct Made {
    /// How many ever.
    all: usize,
    /// How many are open.
    open: Arc<AtomicUsize>,
}

/// How many connections there are to a member.
pub struct Figures {
    /// The member.
    pub host: String,
    /// Those that were ever made.
    pub created: usize,
    /// Those that nothing uses.
    pub idle: usize,
    /// Those that commands use.
    pub in_use: usize,
}

/// The connections to one set.
pub struct SetPool {
    /// The set's name.
    pub name: String,
    caller: Caller,
    known: Mutex<Known>,
    idle: Mutex<HashMap<String, Vec<Link>>>,
    made: Mutex<HashMap<String, Made>>,
    /// The newest time of the set's log that a member has told.
    told: AtomicU64,
}

/// A message that is ready to be sent: `message` has the whole OP_MSG.
pub struct Outgoing<'m> {
    /// The bytes.
    pub message: &'m [u8],
    /// The member that is asked.
    pub reach: Reach<'m>,
    /// It may be sent again though it may have been executed.
    pub repeatable: bool,
}

impl Outgoing<'_> {
    /// Whether it may be sent to another member that leads by then.
    fn may_move(&self) -> bool {
        self.repeatable && matches!(self.reach, Reach::Primary)
    }
}

/// A message that was sent, or could not be.
pub struct Sent {
    host: String,
    link: Link,
    result: Result<()>,
}

impl Sent {
    /// Waits until one of these has a reply, or its connection has ended; false after `limit`.
    pub fn wait_for_any<'s>(all: impl Iterator<Item = &'s Sent>, limit: Duration) -> bool {
        Link::wait_for_any(all.map(|sent| &sent.link), limit)
    }

    /// Whether there is a reply, or the connection has ended.
    pub fn has_reply(&self) -> bool {
        self.link.wait_for_reply(Duration::ZERO)
    }
}

/// An operation that may go on until some time at most.
pub struct Until<'i> {
    /// The operation.
    pub on: &'i dyn Interrupt,
    /// The latest time.
    pub until: Instant,
}

impl Interrupt for Until<'_> {
    fn check(&self) -> Result<()> {
        self.on.check()?;
        match muniment_op::now() < self.until {
            true => Ok(()),
            false => Err(Error::new(
                Code::ExceededTimeLimit,
                "a member of another set has not answered in time",
            )),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.on.sleepers(show);
    }

    fn wakes_at(&self) -> Option<Instant> {
        let sooner = self.on.wakes_at();
        Some(sooner.map_or(self.until, |at| at.min(self.until)))
    }
}

/// How long something is tried. The clock is read only when the first try was in vain.
struct Patience {
    limit: Duration,
    until: Option<Instant>,
}

impl Patience {
    fn of(limit: Duration) -> Patience {
        Patience { limit, until: None }
    }

    /// The time runs from here, or from before.
    fn begins(&mut self) -> Instant {
        let limit = self.limit;
        *self.until.get_or_insert_with(|| muniment_op::now() + limit)
    }

    fn is_over(&mut self) -> bool {
        let until = self.begins();
        muniment_op::now() >= until
    }
}

/// A reply, and the member that gave it.
pub struct Reply {
    /// The reply's document.
    pub body: DocBuf,
    /// The member.
    pub host: String,
}

impl SetPool {
    /// Sends a message, and waits for the reply, be it an error.
    ///
    /// # Errors
    /// 133 FailedToSatisfyReadPreference if no member can be asked; 6, 9001 if the connection breaks and the
    /// message cannot be sent again; 18 if one of both does not prove itself; what `on` says.
    pub fn ask(&self, out: &Outgoing<'_>, on: &dyn Interrupt) -> Result<Reply> {
        let mut patience = Patience::of(LOOKING);
        let mut repeats = 0;
        let mut broken = None;
        loop {
            let host = match self.choose(out.reach, &mut patience, on) {
                Ok(host) => host,
                // The first attempt may have been executed, which the client has to know.
                Err(e) => return Err(broken.unwrap_or(e)),
            };
            let mut c = match self.connection(&host) {
                Ok(c) => c,
                Err(e) if e.code() == Code::AuthenticationFailed => return Err(e),
                Err(e) => {
                    self.forget(&host);
                    if matches!(out.reach, Reach::Host(_)) || patience.is_over() {
                        return Err(e);
                    }
                    muniment_op::sleep_until(muniment_op::now() + PAUSE, on)?;
                    continue;
                }
            };
            match self.exchange(&host, &mut c, out, on) {
                Ok(body) => {
                    if out.message.len().max(body.as_doc().byte_len()) <= LARGE {
                        self.keep(&host, c);
                    }
                    let fixed = matches!(out.reach, Reach::Host(_));
                    if leads_no_more(body.as_doc()) && !fixed {
                        // Whatever becomes of this command: the next one looks for the primary.
                        self.forget(&host);
                        if out.repeatable && !patience.is_over() {
                            muniment_op::sleep_until(muniment_op::now() + PAUSE, on)?;
                            continue;
                        }
                    }
                    return Ok(Reply { body, host });
                }
                Err(e) => {
                    on.check()?;
                    self.forget(&host);
                    repeats += 1;
                    if !out.repeatable || repeats > 2 {
                        return Err(e);
                    }
                    broken = Some(e);
                }
            }
        }
    }

    /// Sends a message without waiting for the reply, if that is possible at once; [`SetPool::finish`] does the rest.
    pub fn send(&self, out: &Outgoing<'_>) -> Option<Sent> {
        let host = {
            let mut known = self.known.lock();
            // What is known of secondaries is looked at again first.
            if known.is_old(out.reach) {
                return None;
            }
            known.pick(out.reach)?
        };
        let mut link = loop {
            let kept = self.idle.lock().get_mut(&host).and_then(Vec::pop)?;
            if !kept.has_ended() {
                break kept;
            }
        };
        let result = link.send(out.message);
        Some(Sent { host, link, result })
    }

    /// Sends a message for whose reply somebody waits later: see [`Sent::has_reply`] and [`SetPool::receive_reply`].
    ///
    /// # Errors
    /// As [`SetPool::ask`].
    pub fn begin(&self, out: &Outgoing<'_>, on: &dyn Interrupt) -> Result<Sent> {
        loop {
            if let Some(sent) = self.send(out) {
                if sent.result.is_ok() {
                    return Ok(sent);
                }
                // A connection that was idle may have ended.
                continue;
            }
            let host = self.choose(out.reach, &mut Patience::of(LOOKING), on)?;
            let connected = self.connection(&host);
            let mut link = connected.inspect_err(|_| self.forget(&host))?;
            let sent = link.send(out.message);
            sent.inspect_err(|_| self.forget(&host))?;
            return Ok(Sent {
                host,
                link,
                result: Ok(()),
            });
        }
    }

    /// The reply of a message that was sent, be it an error, which is there or on its way.
    ///
    /// # Errors
    /// As [`SetPool::ask`].
    pub fn receive_reply(&self, mut sent: Sent, on: &dyn Interrupt) -> Result<Reply> {
        match self.receive(&sent.host, &mut sent.link, false, on) {
            Ok(body) => {
                if body.as_doc().byte_len() <= LARGE {
                    self.keep(&sent.host, sent.link);
                }
                if leads_no_more(body.as_doc()) {
                    self.forget(&sent.host);
                }
                let host = sent.host;
                Ok(Reply { body, host })
            }
            Err(e) => {
                self.forget(&sent.host);
                Err(e)
            }
        }
    }

    /// Asks whether a member is still there that has not answered for long.
    ///
    /// # Errors
    /// 6, 9001 if it is not.
    pub fn is_there(&self, sent: &Sent) -> Result<()> {
        let asked = Link::open(&self.caller, &sent.host, STEP);
        let told = asked.and_then(|mut c| c.hello());
        told.inspect_err(|_| self.forget(&sent.host)).map(drop)
    }

    /// Waits for the reply of a message that was sent, or sends it first. Everything else is as in
    /// [`SetPool::ask`].
    ///
    /// # Errors
    /// As [`SetPool::ask`].
    pub fn finish(
        &self,
        sent: Option<Sent>,
        out: &Outgoing<'_>,
        on: &dyn Interrupt,
    ) -> Result<Reply> {
        let Some(mut sent) = sent else {
            return self.ask(out, on);
        };
        let reply = sent
            .result
            .and_then(|()| self.receive(&sent.host, &mut sent.link, out.may_move(), on));
        let fixed = matches!(out.reach, Reach::Host(_));
        match reply {
            Ok(body) => {
                if out.message.len().max(body.as_doc().byte_len()) <= LARGE {
                    self.keep(&sent.host, sent.link);
                }
                if leads_no_more(body.as_doc()) && !fixed {
                    self.forget(&sent.host);
                    if out.repeatable {
                        return self.ask(out, on);
                    }
                }
                Ok(Reply {
                    body,
                    host: sent.host,
                })
            }
            Err(e) => {
                on.check()?;
                self.forget(&sent.host);
                match out.repeatable {
                    true => self.ask(out, on),
                    false => Err(e),
                }
            }
        }
    }

    /// Runs a command of the server's own on the primary. `time` is sent as the cluster's time.
    ///
    /// # Errors
    /// As [`SetPool::ask`]; the set's, be it one of the write concern.
    pub fn run(
        &self,
        db: &str,
        command: &DocBuf,
        time: Option<DocBuf>,
        repeatable: bool,
        on: &dyn Interrupt,
    ) -> Result<DocBuf> {
        let mut message = Vec::new();
        begin_request(&mut message, 1, 0)
            .body_with(|w| {
                w.elements(command.as_doc());
                w.field("$db", db);
                if let Some(time) = time {
                    w.field("$clusterTime", time);
                }
            })
            .finish()?;
        let out = Outgoing {
            message: &message,
            reach: Reach::Primary,
            repeatable,
        };
        let reply = self.ask(&out, on)?.body;
        check_done(reply.as_doc())?;
        Ok(reply)
    }

    /// The members as they are known, as `name/host,host`.
    pub fn text(&self) -> String {
        format!("{}/{}", self.name, self.known.lock().hosts.join(","))
    }

    /// The newest time of the set's log that a member has told.
    pub fn told(&self) -> Timestamp {
        Timestamp(self.told.load(Relaxed))
    }

    /// Whether the set's log has come to this time, as a member has told.
    pub fn has_told(&self, time: Timestamp) -> bool {
        self.told.load(Relaxed) >= time.0
    }

    /// Whether a primary is known.
    pub fn knows_primary(&self) -> bool {
        self.known.lock().primary.is_some()
    }

    /// The connections to each member.
    pub fn connections(&self) -> Vec<Figures> {
        let idle = self.idle.lock();
        let made = self.made.lock();
        let of = |(host, made): (&String, &Made)| {
            let idle = idle.get(host).map_or(0, Vec::len);
            Figures {
                host: host.clone(),
                created: made.all,
                idle,
                in_use: made.open.load(Relaxed).saturating_sub(idle),
            }
        };
        made.iter().map(of).collect()
    }

    /// Asks a member, or one after the other until one answers, what it knows of the set.
    ///
    /// # Errors
    /// 133 if none is of this set and answers in time; what `on` says.
    pub fn look(&self, on: &dyn Interrupt) -> Result<()> {
        self.choose(Reach::Primary, &mut Patience::of(STEP), on)
            .map(|_| ())
    }

    /// The member that is asked.
    fn choose(
        &self,
        reach: Reach<'_>,
        patience: &mut Patience,
        on: &dyn Interrupt,
    ) -> Result<String> {
        loop {
            let mut known = self.known.lock();
            let looks = known.is_old(reach);
            if looks {
                known.looked = Some(muniment_op::now());
            } else if let Some(host) = known.pick(reach) {
                return Ok(host);
            }
            drop(known);
            patience.begins();
            let mut told = Error::new(Code::HostUnreachable, "no member is known");
            let hosts = self.known.lock().hosts.clone();
            for host in &hosts {
                on.check()?;
                let asked = muniment_op::now();
                match self.hello(host) {
                    Ok(reply) => {
                        match self.known.lock().learn(
                            &self.name,
                            (host, reply.as_doc()),
                            muniment_op::since(asked),
                        ) {
                            Ok(()) => {}
                            Err(e) => told = e,
                        }
                    }
                    Err(e) => told = e,
                }
                if !looks && self.known.lock().pick(reach).is_some() {
                    break;
                }
            }
            if self.known.lock().pick(reach).is_some() {
                continue;
            }
            if patience.is_over() {
                // The set may have been made anew, with elections of its own.
                self.known.lock().election = [0; 12];
                let preference = match reach {
                    Reach::By(preference) => preference,
                    Reach::Primary | Reach::Host(_) => ReadPreference::of(Mode::Primary),
                };
                let preference = preference.show();
                return Err(Error::new(
                    Code::FailedToSatisfyReadPreference,
                    format!(
                        "Could not find host matching read preference {preference} for set {} \
                         ({})",
                        self.name,
                        told.message()
                    ),
                ));
            }
            muniment_op::sleep_until(muniment_op::now() + PAUSE, on)?;
        }
    }

    fn hello(&self, host: &str) -> Result<DocBuf> {
        let mut c = self.connection(host)?;
        c.set_timeout(STEP)?;
        let reply = c.hello()?;
        c.looks(WITHIN)?;
        self.keep(host, c);
        Ok(reply)
    }

    fn forget(&self, host: &str) {
        self.known.lock().forget(host);
        self.idle.lock().remove(host);
    }

    fn connection(&self, host: &str) -> Result<Link> {
        loop {
            let kept = self.idle.lock().get_mut(host).and_then(Vec::pop);
            match kept {
                // The member may have closed it meanwhile.
                Some(c) if c.has_ended() => {}
                Some(c) => return Ok(c),
                None => break,
            }
        }
        let mut c = Link::open(&self.caller, host, STEP)?;
        c.looks(WITHIN)?;
        let mut made = self.made.lock();
        let made = made.entry(host.to_string()).or_default();
        made.all += 1;
        c.count_in(&made.open);
        Ok(c)
    }

    /// Sends a message and waits for its reply. The connection must not be used again after an error.
    fn exchange(
        &self,
        host: &str,
        c: &mut Link,
        out: &Outgoing<'_>,
        on: &dyn Interrupt,
    ) -> Result<DocBuf> {
        c.send(out.message)?;
        self.receive(host, c, out.may_move(), on)
    }

    /// Waits for a reply, as long as the member is there, and, if the message `moves`, leads. The connection must not be
    /// used again after an error.
    fn receive(&self, host: &str, c: &mut Link, moves: bool, on: &dyn Interrupt) -> Result<DocBuf> {
        // When there was last a sign of the member, and how much of the reply had arrived.
        let mut heard: Option<(Instant, usize)> = None;
        let reply = loop {
            if let Some(reply) = c.reply_soon()? {
                break reply;
            }
            on.check()?;
            let (now, begun) = (muniment_op::now(), c.begun());
            match heard {
                Some((at, before)) if before == begun && begun > 0 => {
                    if now.saturating_duration_since(at) > WITHIN {
                        let why = format!("{host} has stopped in the middle of a reply");
                        return Err(Error::new(Code::NetworkTimeout, why));
                    }
                }
                Some((at, before)) if before == begun => {
                    if now.saturating_duration_since(at) > SILENCE {
                        // It may be busy with this command, or gone without a word.
                        let hello = Link::open(&self.caller, host, STEP)?.hello()?;
                        let leads = hello.as_doc().get("isWritablePrimary");
                        if moves && !leads.is_some_and(|v| v.truthy()) {
                            // It may wait for what only another one can give.
                            let why = format!("{host} leads no more, and has not answered");
                            return Err(Error::new(Code::HostUnreachable, why));
                        }
                        heard = Some((now, begun));
                    }
                }
                _ => heard = Some((now, begun)),
            }
        };
        if let Some(at) = reply.as_doc().get("operationTime") {
            self.told.fetch_max(times_of(at).0, Relaxed);
        }
        Ok(reply)
    }

    fn keep(&self, host: &str, c: Link) {
        let mut idle = self.idle.lock();
        match idle.get_mut(host) {
            Some(of) if of.len() < MOST_IDLE => of.push(c),
            Some(_) => {}
            None => drop(idle.insert(host.to_string(), vec![c])),
        }
    }
}

/// Fails if a reply is one of failure, or if the majority has not taken what was done: that may be rolled back, and must
/// not be relied on.
///
/// # Errors
/// The reply's.
pub fn check_done(reply: Doc<'_>) -> Result<()> {
    check_ok(reply)?;
    match reply.get_doc("writeConcernError") {
        None => Ok(()),
        Some(e) => {
            let code = code_of(e).unwrap_or(Code::WriteConcernFailed);
            Err(Error::new(code, e.get_str("errmsg").unwrap_or_default()))
        }
    }
}

/// Whether a reply says that the member does not lead. A command that may be executed twice is then sent to another
/// one; no other, since a batch of which a part was executed ends so, too.
fn leads_no_more(reply: Doc<'_>) -> bool {
    let failed = !reply.get("ok").is_some_and(|v| v.truthy());
    let code = code_of(reply).filter(|_| failed);
    matches!(
        code,
        Some(
            Code::NotWritablePrimary
                | Code::NotPrimaryNoSecondaryOk
                | Code::InterruptedDueToReplStateChange
                | Code::PrimarySteppedDown
                | Code::ShutdownInProgress
                | Code::InterruptedAtShutdown
                | Code::NotPrimaryOrSecondary
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use muniment_value::doc;

    #[test]
    fn replies_that_tell_of_an_election() {
        let refused = |code: Code| doc! { "ok": 0.0, "code": code.0 };
        for code in [
            Code::NotWritablePrimary,
            Code::NotPrimaryNoSecondaryOk,
            Code::InterruptedDueToReplStateChange,
            Code::ShutdownInProgress,
        ] {
            assert!(leads_no_more(refused(code).as_doc()));
        }
        assert!(!leads_no_more(refused(Code::BadValue).as_doc()));
        assert!(!leads_no_more(doc! { "ok": 1.0, "code": 10107 }.as_doc()));
    }
}
