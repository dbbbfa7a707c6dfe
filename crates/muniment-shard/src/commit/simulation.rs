//! Coordinators and participants with crashes, lost and repeated messages between any two steps.
//!
//! Time is the number of steps. What is stored survives a crash; what is in memory does not. A message is
//! delivered at some later step, never, or several times. At the end messages arrive again and everything runs, and
//! then nothing may be left.

#![allow(clippy::panic)]

use super::*;
use std::collections::BTreeMap;

/// A mistake that the simulation has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The coordinator resolves before its decision is stored.
    ResolvesEarly,
    /// A participant does not take its latches again after an election.
    ForgetsLatches,
    /// A participant aborts by itself after it has voted.
    AbortsAlone,
    /// A participant in doubt is told of an abort that is not stored.
    StoresNoAbort,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What is on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Commit,
    Prepare(usize),
    Vote(usize, Vote<u64>),
    Resolve(usize, Decision<u64>),
    Resolved(usize),
    Ask(usize),
    Answered(usize, Decision<u64>),
    Told(Told),
}

/// A participant's part of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// In memory alone.
    Open,
    /// Prepared at this time, and stored.
    Prepared(u64),
    Ended(Decision<u64>),
}

struct Participant {
    part: Part,
    latched: bool,
    /// How often something else was written under its latch.
    foreign: u32,
    /// When its part was prepared: `foreign` at that time.
    seen: u32,
}

struct World {
    rng: Random,
    bug: Bug,
    now: u64,
    participants: Vec<Participant>,
    /// The coordinator in memory.
    running: Option<Coordinator<u64>>,
    /// The stored decision, and whether the majority has it.
    row: Option<(Decision<u64>, bool)>,
    messages: Vec<Message>,
    told: Vec<Told>,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64, bug: Bug) -> World {
        let mut rng = Random(seed);
        let n = 2 + rng.below(2);
        World {
            bug,
            now: 0,
            participants: (0..n)
                .map(|_| Participant {
                    part: Part::Open,
                    latched: true,
                    foreign: 0,
                    seen: 0,
                })
                .collect(),
            running: None,
            row: None,
            messages: vec![Message::Commit],
            told: Vec::new(),
            trace: Vec::new(),
            rng,
        }
    }

    fn send(&mut self, message: Message) {
        self.messages.push(message);
        if self.rng.one_in(8) {
            self.messages.push(message);
        }
    }

    /// What the coordinator's set knows. Participant 0 is its own part.
    fn known(&self) -> Known<u64> {
        match (&self.running, self.row) {
            (Some(_), _) => Known::Running,
            (None, Some((decision, _))) => Known::Decided(decision),
            (None, None) => match self.participants[0].part {
                Part::Ended(Decision::Commit(_)) => Known::Forgotten,
                _ => Known::Nothing,
            },
        }
    }

    /// Does what the coordinator wants, or a part of it.
    fn act(&mut self) {
        let Some(running) = &self.running else { return };
        let actions = running.actions();
        let told = running.told();
        for action in actions {
            if self.rng.one_in(4) {
                continue;
            }
            match action {
                Action::Prepare(i) => self.send(Message::Prepare(i)),
                Action::Store(decision) => {
                    self.row.get_or_insert((decision, false));
                }
                Action::Resolve(i, decision) => self.send(Message::Resolve(i, decision)),
                Action::Forget => {
                    self.row = None;
                    self.running = None;
                }
            }
        }
        if let Some(told) = told.filter(|_| self.rng.one_in(2)) {
            self.send(Message::Told(told));
            if self
                .running
                .as_ref()
                .is_some_and(|c| c.actions().is_empty())
            {
                self.running = None;
            }
        }
    }

    /// The majority gets the stored decision.
    fn replicate(&mut self) {
        if let Some((_, durable)) = &mut self.row {
            *durable = true;
        }
        if let (Some((decision, true)), Some(running)) = (self.row, &mut self.running) {
            // There may have been another decision, which counts then.
            let wanted = running.actions();
            if wanted.contains(&Action::Store(decision)) {
                running.input(Input::Stored);
            } else if wanted.iter().any(|a| matches!(a, Action::Store(_))) {
                *running = Coordinator::resume(self.participants.len(), decision);
            }
        }
    }

    fn fall(&mut self) {
        self.running = None;
        if self.row.is_some_and(|(_, durable)| !durable) && self.rng.one_in(2) {
            self.row = None;
        }
    }

    /// A new primary of the coordinator's set goes on.
    fn take_up(&mut self) {
        if let (None, Some((decision, true))) = (&self.running, self.row) {
            self.running = Some(Coordinator::resume(self.participants.len(), decision));
        }
    }

    fn elect(&mut self, i: usize) {
        let p = &mut self.participants[i];
        match p.part {
            // What is in memory alone is gone.
            Part::Open => p.part = Part::Ended(Decision::Abort),
            Part::Prepared(_) => p.latched = self.bug != Bug::ForgetsLatches,
            Part::Ended(_) => {}
        }
    }

    fn end(&mut self, i: usize, decision: Decision<u64>) {
        let p = &mut self.participants[i];
        match p.part {
            Part::Prepared(_) => {
                assert_eq!(p.foreign, p.seen, "something came in the way of {i}");
                p.part = Part::Ended(decision);
            }
            Part::Open => {
                assert_eq!(decision, Decision::Abort, "{i} has not voted");
                p.part = Part::Ended(decision);
            }
            Part::Ended(_) => {}
        }
        p.latched = false;
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Commit => {
                if self.running.is_none() {
                    self.running = Some(match self.row {
                        Some((decision, true)) => {
                            Coordinator::resume(self.participants.len(), decision)
                        }
                        Some(_) => return,
                        None => Coordinator::new(self.participants.len()),
                    });
                    if let (Some(c), true) = (&mut self.running, self.bug == Bug::ResolvesEarly) {
                        c.resolves_early = true;
                    }
                }
            }
            Message::Prepare(i) => {
                let p = &mut self.participants[i];
                if p.part == Part::Open {
                    match self.rng.one_in(10) {
                        true => p.part = Part::Ended(Decision::Abort),
                        false => (p.part, p.seen) = (Part::Prepared(self.now), p.foreign),
                    }
                }
                let vote = match p.part {
                    Part::Open | Part::Ended(Decision::Abort) => Vote::Refused,
                    Part::Prepared(at) => Vote::Prepared(at),
                    Part::Ended(Decision::Commit(_)) => Vote::Committed,
                };
                self.send(Message::Vote(i, vote));
            }
            Message::Vote(i, vote) => {
                if let Some(c) = &mut self.running {
                    c.input(Input::Voted(i, vote));
                }
            }
            Message::Resolve(i, decision) => {
                self.end(i, decision);
                self.send(Message::Resolved(i));
            }
            Message::Resolved(i) => {
                if let Some(c) = &mut self.running {
                    c.input(Input::Resolved(i));
                }
            }
            Message::Ask(i) => match answer(self.known()) {
                Answer::Decided(decision) => {
                    if self.row.is_some_and(|(_, durable)| durable) {
                        self.send(Message::Answered(i, decision));
                    }
                }
                Answer::Open | Answer::Old => {}
                Answer::StoreAbort if self.bug == Bug::StoresNoAbort => {
                    self.send(Message::Answered(i, Decision::Abort));
                }
                Answer::StoreAbort => self.row = Some((Decision::Abort, false)),
            },
            Message::Answered(i, decision) => self.end(i, decision),
            Message::Told(told) => self.told.push(told),
        }
    }

    fn step(&mut self, calm: bool) {
        self.now += 1;
        let n = self.participants.len() as u64;
        let one = self.rng.below(n) as usize;
        match self.rng.below(20) {
            0..=7 if !self.messages.is_empty() => {
                let at = self.rng.below(self.messages.len() as u64) as usize;
                let message = self.messages.swap_remove(at);
                if calm || !self.rng.one_in(6) {
                    self.trace.push(format!("{} {message:?}", self.now));
                    self.deliver(message);
                }
            }
            8..=10 => self.act(),
            11 | 12 => self.replicate(),
            13 if !calm => self.elect(one),
            14 if !calm => self.fall(),
            15 if calm || self.rng.one_in(4) => self.take_up(),
            16 => {
                if let Part::Prepared(_) = self.participants[one].part {
                    self.send(Message::Ask(one));
                }
            }
            17 => {
                // Another client writes where no latch is in the way.
                let p = &mut self.participants[one];
                p.foreign += u32::from(!p.latched);
            }
            18 if !calm && self.rng.one_in(4) => {
                if let Some(c) = &mut self.running {
                    c.input(Input::GaveUp);
                }
            }
            // The router sends the commit again while it has no answer.
            18 if self.told.is_empty() => self.send(Message::Commit),
            19 if self.bug == Bug::AbortsAlone && self.rng.one_in(4) => {
                self.end(one, Decision::Abort)
            }
            _ => {}
        }
    }

    fn check(&self) {
        let mut ends: Vec<Decision<u64>> = Vec::new();
        for p in &self.participants {
            if let Part::Ended(decision) = p.part {
                ends.push(decision);
            }
        }
        let committed = ends.iter().any(|e| matches!(e, Decision::Commit(_)));
        let aborted = ends.contains(&Decision::Abort);
        assert!(
            !(committed && aborted),
            "some have committed, some aborted: {ends:?}"
        );
        let times: BTreeMap<_, _> = ends
            .iter()
            .filter_map(|e| match e {
                Decision::Commit(at) => Some((*at, ())),
                Decision::Abort => None,
            })
            .collect();
        assert!(times.len() < 2, "two commit times: {ends:?}");
        for told in &self.told {
            let wrong = match told {
                Told::Committed => aborted,
                Told::Aborted => committed,
            };
            assert!(!wrong, "the client was told {told:?}: {ends:?}");
        }
    }
}

/// Runs a seed; the words of what it found.
fn run(seed: u64, bug: Bug) -> Result<(), String> {
    let mut world = World::new(seed, bug);
    let course = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let wild = 50 + world.rng.below(250);
        for _ in 0..wild {
            world.step(false);
            world.check();
        }
        let open = |p: &Participant| matches!(p.part, Part::Prepared(_));
        let mut left = 20_000;
        while world.participants.iter().any(open) || world.told.is_empty() {
            world.step(true);
            world.check();
            left -= 1;
            assert!(left > 0, "it does not come to an end");
        }
    }));
    course.map_err(|e| {
        let text = e.downcast_ref::<String>().cloned().unwrap_or_default();
        format!("seed {seed}: {text}\n{}", world.trace.join("\n"))
    })
}

fn seeds() -> std::ops::Range<u64> {
    let given = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match given("MUNIMENT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..given("MUNIMENT_SEEDS").unwrap_or(2000),
    }
}

#[test]
fn all_shards_end_a_transaction_alike_whatever_fails() {
    for seed in seeds() {
        if let Err(found) = run(seed, Bug::None) {
            panic!("{found}");
        }
    }
}

#[test]
fn the_simulation_finds_known_mistakes() {
    let finds = |bug| (0..2000).find(|seed| run(*seed, bug).is_err());
    for bug in [
        Bug::ResolvesEarly,
        Bug::ForgetsLatches,
        Bug::AbortsAlone,
        Bug::StoresNoAbort,
    ] {
        assert!(finds(bug).is_some(), "{bug:?} was not found");
    }
}
