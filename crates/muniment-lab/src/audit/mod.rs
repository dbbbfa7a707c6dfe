//! The durability audit: writers remember what they wrote, a server is crashed at a random moment,
//! and the acknowledged writes are compared with the state afterwards.
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | `muniment bench audit …` |
//! | [`concern`] | write concerns and their promises |
//! | [`document`], [`writer`], [`history`] | the documents, the threads that write them, and the record of every write |
//! | [`transfers`], [`retries`] | the same for transactions, and for writes that are sent again |
//! | [`victim`] | the server that is crashed: the lab's own, an external one, or a replica set's primary |
//! | [`standing`], [`fault`], [`safety`], [`undone`] | a set that the lab starts: its faults, its promises and its rolled-back writes |
//! | [`found`] | the state after the crash |
//! | [`judge`] | the comparison |
//!
//! The thread that crashes the server knows nothing of the writers: the moment of the crash is
//! drawn before they begin, so that their progress cannot influence it.

pub(crate) mod cli;
pub(crate) mod concern;
pub(crate) mod document;
pub(crate) mod fault;
pub(crate) mod found;
pub(crate) mod history;
pub(crate) mod judge;
pub(crate) mod retries;
pub(crate) mod safety;
pub(crate) mod standing;
pub(crate) mod transfers;
pub(crate) mod undone;
pub(crate) mod victim;
pub(crate) mod writer;

use crate::lab::{DB, Lab};
use crate::linkbench::transaction;
use crate::targets::Endpoint;
use concern::{Concern, Crash, Server};
use document::{COLLECTION, INDEX};
use history::History;
use judge::{Promise, Tally, Verdict};
use muniment_load::access::Peer;
use muniment_load::conn::Conn;
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;
use muniment_load::stop;
use muniment_value::{ArrayBuf, array, doc};
use retries::Retries;
use standing::Standing;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use transfers::Transfers;
use victim::{Aftermath, Embedded, External, Templates, Victim};
use writer::{Fate, Work, Writer};

/// The parts of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Single commands under each write concern.
    Concerns,
    /// Transactions: all or nothing.
    Transactions,
    /// Writes that are sent again: exactly once.
    Retries,
}

impl Check {
    pub(crate) const ALL: [Check; 3] = [Check::Concerns, Check::Transactions, Check::Retries];

    /// The check's name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Check::Concerns => "concerns",
            Check::Transactions => "transactions",
            Check::Retries => "retries",
        }
    }

    /// The title of the check's row; only the check of write concerns has a row for each concern.
    fn title(self, concern: &Concern) -> &str {
        match self {
            Check::Concerns => &concern.name,
            Check::Transactions => "transactions: all or nothing",
            Check::Retries => "retries: exactly once",
        }
    }

    /// The reason why the server cannot be checked, if there is one.
    fn left_out(self, server: &Peer) -> Result<Option<String>> {
        let conn = Conn::connect(server);
        match self {
            Check::Concerns => Ok(None),
            Check::Transactions => transaction::unsupported(&mut conn?),
            Check::Retries => transaction::no_retries(&mut conn?),
        }
    }
}

/// The parsed plan of an audit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Crashes for each write concern and kind of crash.
    pub rounds: u64,
    /// The longest time until a crash.
    pub seconds: f64,
    /// The number of writers.
    pub threads: usize,
    /// The checks to run.
    pub checks: Vec<Check>,
    /// The write concerns to check.
    pub concerns: Vec<Concern>,
    /// The kinds of crash.
    pub crashes: Vec<Crash>,
    /// The seed of random moments and documents.
    pub seed: u64,
    /// Microseconds that each sync takes longer under the layer.
    pub sync_us: u64,
    /// The embedded server's `--journalCommitInterval`, milliseconds.
    pub journal_ms: Option<u64>,
    /// The commands that crash and start an external server.
    pub templates: Option<Templates>,
    /// The number of members, if a set that the lab starts takes the place of a single server.
    pub members: Option<usize>,
}

/// The commit interval that the server has by default, ms.
const COMMIT_INTERVAL_MS: u64 = 100;
/// The time that scheduling may add to a promised time on a machine that is not idle.
const SLACK: Duration = Duration::from_millis(200);

/// The write concern of transactions and of writes that are sent again: a server that promises
/// durability for any concern promises it for this one.
const STRICTEST: &str = "majority+j:true";

/// The rounds of one write concern or other check, and kind of crash.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The write concern, or the check's title.
    pub concern: String,
    /// The check that was made.
    pub check: Check,
    /// The reason why it was not tried, if it was not.
    pub left_out: Option<String>,
    /// The kind of crash.
    pub crash: Crash,
    /// The server that was crashed.
    pub server: Server,
    /// The counts of its rounds.
    pub tally: Tally,
    /// The longest time from the start until the server answered.
    pub restart: Duration,
    /// The promise that the rounds are judged by.
    pub promise: Promise,
    /// The time that a sync and the machine's scheduling may add to a promised time.
    pub allowance: Duration,
    /// Whether the server is not the lab's own.
    pub external: bool,
}

impl Row {
    /// Whether the promise was kept.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.left_out.is_some() {
            return Verdict::LeftOut;
        }
        judge::verdict(&self.tally, self.promise, self.allowance)
    }

    /// The kind of crash in words.
    pub(crate) fn crash_name(&self) -> &'static str {
        match (self.crash, self.server) {
            (Crash::Fault(fault), _) => fault.name(),
            (_, Server::Set) => "primary killed",
            (Crash::Process, _) => "process crash",
            (Crash::Power, _) => "power loss",
        }
    }

    /// Whether a lost write was older than the promised time, so that the promise was only kept
    /// with the allowance.
    pub(crate) fn needs_allowance(&self) -> bool {
        match (self.promise, self.tally.oldest_lost_ms()) {
            (Promise::Within(d), Some(oldest)) => oldest > d.as_secs_f64() * 1e3,
            _ => false,
        }
    }

    /// A sentence for the error output, if the promise was broken or could not be tested.
    pub(crate) fn wrong(&self) -> Option<String> {
        let name = format!("{} on {}", self.concern, self.crash_name());
        match self.verdict() {
            Verdict::Broken => Some(format!("the promise of {name} was broken")),
            Verdict::NothingShown => Some(format!(
                "no write was acknowledged before a crash under {name}, which shows nothing; --seconds gives the writers longer"
            )),
            _ => None,
        }
    }
}

/// Whether nothing was lost in the rows that may lose something. If so, the audit has not shown
/// that it would notice a loss.
pub(crate) fn shows_no_loss(rows: &[Row]) -> bool {
    let may_lose = |r: &&Row| {
        matches!(r.promise, Promise::Within(_) | Promise::Undone(_)) && r.tally.acknowledged > 0
    };
    let mut some = rows.iter().filter(may_lose).peekable();
    some.peek().is_some() && some.all(|r| r.tally.lost() == 0)
}

/// The result of one round.
struct Round {
    tally: Tally,
    restart: Duration,
    /// The longest time that a thread which was ready to run had to wait for a core, measured by
    /// short sleeps that lasted too long.
    stall: Duration,
}

/// The servers that are crashed.
struct Victims {
    /// A server that the lab did not start.
    external: Option<External>,
    /// A set that the lab started.
    standing: Option<Standing>,
    /// The commit interval of embedded servers.
    interval: Duration,
}

impl Victims {
    fn of(lab: &mut Lab, plan: &Plan) -> Result<Victims> {
        // This embedded target is only asked about its surroundings; the servers that are crashed
        // are started separately.
        let target = lab.target(None)?;
        let external = match (&plan.templates, &lab.endpoint) {
            (Some(t), Endpoint::Server(uri)) => {
                let parent = &lab.data_parent;
                Some(External::new(
                    &target.peer,
                    target.same_host,
                    uri,
                    t,
                    parent,
                )?)
            }
            _ => None,
        };
        if external.is_none() {
            lab.done(target);
        }
        let standing = match plan.members {
            Some(n) => Some(Standing::start(n, &lab.data_parent)?),
            None => None,
        };
        let interval = Duration::from_millis(plan.journal_ms.unwrap_or(COMMIT_INTERVAL_MS));
        Ok(Victims {
            external,
            standing,
            interval,
        })
    }

    /// Runs all rounds of a row on the victim that the row is about.
    fn rounds(
        &mut self,
        lab: &mut Lab,
        plan: &Plan,
        what: (Check, &Concern),
        row: &mut Row,
        rng: &mut Rng,
    ) -> Result<()> {
        if let (Some(v), Crash::Fault(fault)) = (&mut self.standing, row.crash) {
            v.expect(fault);
            row.server = Server::Set;
        }
        match (&mut self.external, &mut self.standing) {
            (_, Some(v)) => rounds(lab, plan, v, what, row, rng),
            (Some(v), None) => {
                row.server = victim::kind(v.server(), v.is_set(), self.interval)?;
                rounds(lab, plan, v, what, row, rng)
            }
            (None, None) => {
                let (ms, us) = (plan.journal_ms, plan.sync_us);
                let mut v = Embedded::start(&lab.data_parent, row.crash, ms, us)?;
                rounds(lab, plan, &mut v, what, row, rng)
            }
        }
    }

    /// Leaves an external server as it was found.
    fn done(&self) {
        if let Some(v) = &self.external
            && let Ok(mut c) = Conn::connect(v.server())
        {
            // A failure is ignored: nothing can be done about a server that has gone away.
            let _ = c.command(DB, &doc! { "dropDatabase": 1 });
        }
    }
}

/// Runs the plan; `done` gets each row once it is complete.
///
/// # Errors
/// A server cannot be started, crashed or asked, or does not come back.
pub(crate) fn run(lab: &mut Lab, plan: &Plan, mut done: impl FnMut(Row)) -> Result<()> {
    let mut rng = Rng::new(plan.seed);
    let mut victims = Victims::of(lab, plan)?;
    let strictest = concern::parse_list(STRICTEST)?;
    let rows: Vec<(Check, &Concern)> = plan
        .checks
        .iter()
        .flat_map(|check| match check {
            Check::Concerns => plan.concerns.iter().map(|c| (*check, c)).collect(),
            _ => strictest.iter().map(|c| (*check, c)).collect::<Vec<_>>(),
        })
        .collect();
    for crash in &plan.crashes {
        for (check, concern) in rows.iter().copied() {
            if stop::asked() {
                return Ok(());
            }
            let mut row = Row {
                concern: check.title(concern).to_string(),
                check,
                left_out: None,
                crash: *crash,
                server: Server::Muniment(victims.interval),
                tally: Tally::default(),
                restart: Duration::ZERO,
                promise: Promise::Unknown,
                allowance: SLACK + Duration::from_micros(plan.sync_us),
                external: victims.external.is_some(),
            };
            let ended = victims.rounds(lab, plan, (check, concern), &mut row, &mut rng);
            // If a round fails, the rounds of the row that were completed before are still
            // reported.
            if row.tally.rounds > 0 || row.left_out.is_some() {
                done(row);
            }
            ended?;
        }
    }
    victims.done();
    Ok(())
}

/// Runs all rounds of one write concern and kind of crash.
fn rounds(
    lab: &mut Lab,
    plan: &Plan,
    victim: &mut dyn Victim,
    (check, concern): (Check, &Concern),
    row: &mut Row,
    rng: &mut Rng,
) -> Result<()> {
    let what = format!("{}, {}", row.concern, row.crash_name());
    lab.progress.step(format!("Audit {what}"));
    row.left_out = check.left_out(victim.server())?;
    if row.left_out.is_some() {
        return Ok(());
    }
    let by_kind = || concern.promise(row.server, row.crash);
    row.promise = victim.promise(concern).unwrap_or_else(by_kind);
    let (allowance, mut stall) = (row.allowance, Duration::ZERO);
    for n in 1..=plan.rounds {
        if stop::asked() {
            break;
        }
        let r = round(plan, victim, (check, concern), rng)
            .map_err(|e| e.while_doing(&format!("{what}, round {n}")))?;
        row.restart = row.restart.max(r.restart);
        stall = stall.max(r.stall);
        row.allowance = allowance + 3 * stall;
        row.tally.add(r.tally);
        lab.progress.news(&format!(
            "round {n} of {}, {} acknowledged, {} lost",
            plan.rounds,
            row.tally.acknowledged,
            row.tally.lost()
        ));
    }
    Ok(())
}

/// The writers of a check. Those of the retry check send their last write again after the crash.
enum Writers<'a> {
    Single(Vec<Writer<'a>>),
    Transfers(Vec<Transfers>),
    Retries(Vec<Retries>),
}

impl<'a> Writers<'a> {
    fn new(
        plan: &Plan,
        server: &Peer,
        mark: u64,
        (check, concern): (Check, &'a Concern),
    ) -> Result<Writers<'a>> {
        let all = 0..plan.threads;
        Ok(match check {
            Check::Concerns => {
                prepare(server, mark, plan.threads)?;
                let of = |t| Writer::new(server, t, mark, concern);
                Writers::Single(all.map(of).collect::<Result<_>>()?)
            }
            Check::Transactions => {
                transfers::prepare(server, mark)?;
                let of = |t| Transfers::new(server, t, mark, concern);
                Writers::Transfers(all.map(of).collect::<Result<_>>()?)
            }
            Check::Retries => {
                prepare(server, mark, plan.threads)?;
                retries::prepare(server)?;
                let of = |t| Retries::new(server, t, mark, concern);
                Writers::Retries(all.map(of).collect::<Result<_>>()?)
            }
        })
    }

    fn each(&mut self) -> Vec<&mut dyn Work> {
        fn all<W: Work>(v: &mut [W]) -> Vec<&mut dyn Work> {
            v.iter_mut().map(|w| w as &mut dyn Work).collect()
        }
        match self {
            Writers::Single(v) => all(v),
            Writers::Transfers(v) => all(v),
            Writers::Retries(v) => all(v),
        }
    }

    /// After the crash, compares the state of the server with what the writers remember.
    fn judge(
        self,
        server: &Peer,
        mut histories: Vec<History>,
        mark: u64,
        at: Instant,
        aftermath: Option<&Aftermath>,
    ) -> Result<Tally> {
        let mut c = Conn::connect(server)?;
        c.set_timeout(Some(Duration::from_secs(120)))?;
        let threads = histories.len();
        let retries = match self {
            Writers::Single(_) => Vec::new(),
            Writers::Transfers(_) => {
                let found = transfers::survey(&mut c, mark, threads)?;
                return Ok(judge::judge(&histories, &found, at));
            }
            Writers::Retries(v) => v,
        };
        let mut again = Vec::new();
        for (mut w, h) in retries.into_iter().zip(&mut histories) {
            again.push(w.again(server, h)?);
        }
        let found = found::survey(&mut c, mark, threads)?;
        let mut tally = judge::judge(&histories, &found, at);
        if let Some(a) = aftermath {
            undone::account(&mut tally, &histories, &found, &a.undone);
        }
        if !again.is_empty() {
            retries::judge(&mut tally, &again, retries::shared(&mut c)?);
        }
        Ok(tally)
    }
}

/// Runs one round: writes, crashes the server, brings it back and compares.
fn round(
    plan: &Plan,
    victim: &mut dyn Victim,
    what: (Check, &Concern),
    rng: &mut Rng,
) -> Result<Round> {
    let mark = rng.next_u64() >> 1;
    let time = Duration::from_secs_f64(plan.seconds * (0.1 + 0.9 * rng.unit()));
    let mut writers = Writers::new(plan, victim.server(), mark, what)?;
    let fate = Fate::default();
    let barrier = Barrier::new(plan.threads + 1);
    let mut stall = Duration::ZERO;
    let (crashed, at, histories) = std::thread::scope(|scope| {
        let (fate, barrier) = (&fate, &barrier);
        let handles: Vec<_> = writers
            .each()
            .into_iter()
            .enumerate()
            .map(|(t, w)| {
                scope.spawn(move || {
                    barrier.wait();
                    writer::work(w, t, fate)
                })
            })
            .collect();
        barrier.wait();
        let begin = Instant::now();
        let step = Duration::from_millis(5);
        while begin.elapsed() < time && !stop::asked() {
            let nap = Instant::now();
            std::thread::sleep(step.min(time.saturating_sub(begin.elapsed())));
            stall = stall.max(nap.elapsed().saturating_sub(step));
        }
        fate.near.store(true, Ordering::Release);
        let at = Instant::now();
        let crashed = victim.crash();
        let lingering = Instant::now();
        while lingering.elapsed() < victim.lingers() && !stop::asked() {
            std::thread::sleep(step);
        }
        fate.over.store(true, Ordering::Release);
        let histories: Result<Vec<History>> = handles
            .into_iter()
            .map(|h| {
                h.join()
                    .unwrap_or_else(|_| Err(Failure::new("a writer panicked")))
            })
            .collect();
        (crashed, at, histories)
    });
    // A writer's error is reported before the crash's: it may be the reason why the server could
    // not be crashed.
    let histories = histories?;
    crashed?;
    let restart = victim.revive()?;
    let aftermath = victim.aftermath(mark, plan.threads)?;
    let mut tally = writers.judge(victim.server(), histories, mark, at, aftermath.as_ref())?;
    if let Some(a) = aftermath {
        tally.disagreements += a.differing.len() as u64;
        tally.examples.extend(a.differing);
    }
    Ok(Round {
        tally,
        restart,
        stall,
    })
}

/// Makes an empty collection with its index and counters and makes all of it durable. The last
/// write is durable, and so is everything before it in the same journal or oplog.
fn prepare(server: &Peer, mark: u64, writers: usize) -> Result<()> {
    let mut c = Conn::connect(server)?;
    c.set_timeout(Some(Duration::from_secs(60)))?;
    match c.command(DB, &doc! { "drop": COLLECTION }) {
        Err(e) if !e.0.contains("(26 ") => return Err(e),
        _ => {}
    }
    let index = doc! { "key": doc! { "k": 1, "_id": 1 }, "name": INDEX };
    c.command(
        DB,
        &doc! { "createIndexes": COLLECTION, "indexes": array![index] },
    )?;
    let counters: ArrayBuf = (0..writers).map(|t| document::counter(mark, t)).collect();
    let durable = doc! { "w": "majority", "j": true, "wtimeout": 30_000 };
    c.command(
        DB,
        &doc! { "insert": COLLECTION, "documents": counters, "writeConcern": durable },
    )?;
    Ok(())
}
