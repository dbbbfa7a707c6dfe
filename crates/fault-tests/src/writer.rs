//! The load: writers that remember their writes.

use crate::Rng;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The database of the load.
pub const DB: &str = "faults";
/// Its collections.
pub const COLLECTIONS: [&str; 3] = ["a", "b", "c"];
/// The size of the range of ids that belongs to one writer.
const RANGE: i64 = 1_000_000_000;
/// Approximately how many documents a writer keeps in a collection.
const KEPT: usize = 300;

/// A document of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The number of the last write of the document.
    pub(crate) v: i64,
    /// Unique in the collection.
    pub(crate) u: i64,
    pub(crate) a: i32,
    pub(crate) b: String,
    /// The sparse index has an entry if this field exists.
    pub(crate) s: Option<i32>,
    pub(crate) tags: Vec<i32>,
}

impl State {
    fn new(rng: &mut Rng, v: i64, id: i64, sizes: [usize; 3]) -> State {
        let size = sizes[rng.below(3) as usize];
        State {
            v,
            u: id,
            a: rng.below(50) as i32,
            b: rng.text(size),
            s: (rng.below(3) == 0).then(|| rng.below(100) as i32),
            tags: (0..rng.below(5)).map(|_| rng.below(30) as i32).collect(),
        }
    }

    fn to_doc(&self, id: i64, padding: &str) -> DocBuf {
        let mut d = doc! {
            "_id": id, "v": self.v, "u": self.u, "a": self.a, "b": self.b.as_str(),
            "tags": self.tags.iter().collect::<ArrayBuf>(),
        };
        d.append_some("s", self.s);
        if !padding.is_empty() {
            d.append("padding", padding);
        }
        d
    }

    /// The id and the state of a document that was read.
    pub(crate) fn read(d: Doc<'_>) -> Option<(i64, State)> {
        let int = |name: &str| d.get(name).and_then(|v| v.as_i64_exact());
        let tags = d.get_array("tags")?;
        Some((
            int("_id")?,
            State {
                v: int("v")?,
                u: int("u")?,
                a: int("a")? as i32,
                b: d.get_str("b")?.to_owned(),
                s: int("s").map(|n| n as i32),
                tags: tags
                    .values()
                    .map(|v| v.as_i64_exact().map(|n| n as i32))
                    .collect::<Option<_>>()?,
            },
        ))
    }
}

/// A write, with the time of its acknowledgement, if there was one, and whether it was journaled.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) v: i64,
    pub(crate) acknowledged: Option<Instant>,
    pub(crate) journaled: bool,
}

/// The states of a document, oldest first, each with the number of its write.
pub(crate) type History = Vec<(i64, Option<State>)>;

/// One writer's memory.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) number: usize,
    rng: Rng,
    /// The lengths of the text in a document.
    sizes: [usize; 3],
    /// The length of a field that only makes documents larger and is not checked.
    padding: usize,
    next_v: i64,
    next_id: i64,
    /// The histories by collection and id.
    pub(crate) memory: Vec<BTreeMap<i64, History>>,
    /// The writes since the last check.
    pub(crate) writes: Vec<Write>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// The moment just before the crash.
    pub at: Instant,
    /// The longest time that a thread which was ready to run had to wait during the run, as far as one
    /// thread's sleeps can tell.
    pub stall: Duration,
}

/// The writers and how they write.
#[derive(Debug)]
pub struct Load {
    pub(crate) writers: Vec<Writer>,
    /// How many of a hundred writes ask for the journal.
    journaled_percent: u64,
    /// How long a write may take.
    patience: Duration,
}

impl Load {
    /// `writers` writers without any writes yet.
    pub fn new(seed: u64, writers: usize, journaled_percent: u64) -> Load {
        let writer = |number: usize| Writer {
            number,
            rng: Rng::new(seed.wrapping_add(1000 * number as u64)),
            sizes: [8, 60, 400],
            padding: 0,
            next_v: 1,
            next_id: number as i64 * RANGE,
            memory: vec![BTreeMap::new(); COLLECTIONS.len()],
            writes: Vec::new(),
        };
        Load {
            writers: (0..writers).map(writer).collect(),
            journaled_percent,
            patience: Duration::from_secs(20),
        }
    }

    /// How long the server may take for a write. The default is twenty seconds.
    #[must_use]
    pub fn patience(mut self, d: Duration) -> Load {
        self.patience = d;
        self
    }

    /// Makes the documents so large that the engine flushes and compacts all the time.
    #[must_use]
    pub fn large(mut self) -> Load {
        for w in &mut self.writers {
            w.sizes = [500, 900, 1000];
            w.padding = 20_000;
        }
        self
    }

    /// Writes to the server at `address` until `crash` has run, which is called after `time`.
    ///
    /// # Panics
    /// If the server refuses a write before that.
    pub fn run(&mut self, address: &str, time: Duration, crash: impl FnOnce()) -> Crash {
        let crashing = Arc::new(AtomicBool::new(false));
        let (percent, patience) = (self.journaled_percent, self.patience);
        let mut crashed = Crash {
            at: Instant::now(),
            stall: Duration::ZERO,
        };
        thread::scope(|scope| {
            for w in &mut self.writers {
                let crashing = crashing.clone();
                scope.spawn(move || w.work(address, patience, percent, &crashing));
            }
            let until = Instant::now() + time;
            let step = Duration::from_millis(5);
            while Instant::now() < until {
                let before = Instant::now();
                thread::sleep(step);
                crashed.stall = crashed.stall.max(before.elapsed().saturating_sub(step));
            }
            crashing.store(true, Ordering::SeqCst);
            crashed.at = Instant::now();
            crash();
        });
        crashed
    }

    /// The number of acknowledged writes since the last check.
    pub fn acknowledged(&self) -> usize {
        let all = self.writers.iter().flat_map(|w| &w.writes);
        all.filter(|w| w.acknowledged.is_some()).count()
    }
}

/// The changes of a write: ids and their states afterwards.
type Changes = Vec<(i64, Option<State>)>;

impl Writer {
    fn work(
        &mut self,
        address: &str,
        patience: Duration,
        journaled_percent: u64,
        crashing: &AtomicBool,
    ) {
        let connected = Connection::connect(address).and_then(|mut c| {
            c.set_timeout(Some(patience))?;
            Ok(c)
        });
        let mut c = match connected {
            Ok(c) => c,
            // The crash came before the connection.
            Err(_) if crashing.load(Ordering::SeqCst) => return,
            Err(e) => panic!("writer {}: {e:?}", self.number),
        };
        loop {
            let coll = self.rng.below(COLLECTIONS.len() as u64) as usize;
            let journaled = self.rng.below(100) < journaled_percent;
            let v = self.next_v;
            self.next_v += 1;
            let (mut cmd, changes) = self.choose(coll, v);
            let concern = if journaled {
                doc! { "w": 1, "j": true }
            } else {
                doc! { "w": 1 }
            };
            cmd.append("writeConcern", concern);
            for (id, state) in &changes {
                let history = self.memory[coll]
                    .entry(*id)
                    .or_insert_with(|| vec![(0, None)]);
                history.push((v, state.clone()));
            }
            let reply = c.command(DB, &cmd);
            let outcome = reply.and_then(|r| all_done(&r, changes.len()));
            self.writes.push(Write {
                v,
                acknowledged: outcome.is_ok().then(Instant::now),
                journaled,
            });
            if let Err(e) = outcome {
                assert!(
                    crashing.load(Ordering::SeqCst),
                    "writer {}: {e:?}: {cmd:?}",
                    self.number
                );
                return;
            }
        }
    }

    /// A write to the collection, and its changes.
    fn choose(&mut self, coll: usize, v: i64) -> (DocBuf, Changes) {
        let name = COLLECTIONS[coll];
        let live: Vec<i64> = self.memory[coll]
            .iter()
            .filter(|(_, h)| h.last().is_some_and(|(_, s)| s.is_some()))
            .map(|(id, _)| *id)
            .collect();
        let dice = if live.is_empty() {
            0
        } else {
            self.rng.below(100)
        };
        let grow = live.len() < KEPT;
        let one = |rng: &mut Rng| live[rng.below(live.len() as u64) as usize];
        match dice {
            0..30 if grow || live.is_empty() => self.insert(name, v),
            0..55 => {
                let id = one(&mut self.rng);
                self.update(coll, v, &[id])
            }
            55..70 => {
                // Several documents are changed at once, by a range of ids.
                let at = self.rng.below(live.len() as u64) as usize;
                let some = &live[at..live.len().min(at + 8)];
                self.update(coll, v, some)
            }
            70..80 => {
                let id = one(&mut self.rng);
                let state = State::new(&mut self.rng, v, id, self.sizes);
                let padding = self.rng.text(self.padding);
                let update = doc! { "q": doc! { "_id": id }, "u": state.to_doc(id, &padding) };
                let updates = muniment_value::array![update];
                let cmd = doc! { "update": name, "updates": updates };
                (cmd, vec![(id, Some(state))])
            }
            80..85 => self.upsert(name, v),
            _ => {
                let at = self.rng.below(live.len() as u64) as usize;
                let count = if self.rng.below(4) == 0 { 6 } else { 1 };
                let some = &live[at..live.len().min(at + count)];
                let delete = doc! { "q": range(some), "limit": 0 };
                let cmd = doc! { "delete": name, "deletes": muniment_value::array![delete] };
                (cmd, some.iter().map(|id| (*id, None)).collect())
            }
        }
    }

    fn new_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    fn insert(&mut self, name: &str, v: i64) -> (DocBuf, Changes) {
        let count = [1, 1, 5, 40][self.rng.below(4) as usize];
        let changes: Changes = (0..count)
            .map(|_| {
                let id = self.new_id();
                (id, Some(State::new(&mut self.rng, v, id, self.sizes)))
            })
            .collect();
        let padding = self.rng.text(self.padding);
        let docs: ArrayBuf = changes
            .iter()
            .filter_map(|(id, s)| s.as_ref().map(|s| s.to_doc(*id, &padding)))
            .collect();
        (doc! { "insert": name, "documents": docs }, changes)
    }

    fn upsert(&mut self, name: &str, v: i64) -> (DocBuf, Changes) {
        let id = self.new_id();
        let state = State {
            s: None,
            ..State::new(&mut self.rng, v, id, self.sizes)
        };
        let set = doc! {
            "v": v, "u": state.u, "a": state.a, "b": state.b.as_str(),
            "tags": state.tags.iter().collect::<ArrayBuf>(),
        };
        let update = doc! {
            "q": doc! { "_id": id }, "u": doc! { "$set": set }, "upsert": true,
        };
        let cmd = doc! { "update": name, "updates": muniment_value::array![update] };
        (cmd, vec![(id, Some(state))])
    }

    /// Changes indexed fields of some documents with operators.
    fn update(&mut self, coll: usize, v: i64, ids: &[i64]) -> (DocBuf, Changes) {
        let (add, tag) = (self.rng.below(9) as i32 - 4, self.rng.below(30) as i32);
        let sparse = (self.rng.below(2) == 0).then(|| self.rng.below(100) as i32);
        let mut u = doc! { "$inc": doc! { "a": add }, "$push": doc! { "tags": tag } };
        let mut set = doc! { "v": v };
        match sparse {
            Some(s) => {
                set.append("s", s);
            }
            None => {
                u.append("$unset", doc! { "s": "" });
            }
        }
        u.append("$set", set);
        let changes = ids.iter().filter_map(|id| {
            let mut s = self.memory[coll].get(id)?.last()?.1.clone()?;
            s.v = v;
            s.a += add;
            s.tags.push(tag);
            s.s = sparse;
            Some((*id, Some(s)))
        });
        let changes: Changes = changes.collect();
        let update = doc! { "q": range(ids), "u": u, "multi": true };
        let updates = muniment_value::array![update];
        (
            doc! { "update": COLLECTIONS[coll], "updates": updates },
            changes,
        )
    }
}

/// The filter for these ids, which must be all live ones between the first and the last.
fn range(ids: &[i64]) -> DocBuf {
    match ids {
        [one] => doc! { "_id": *one },
        _ => doc! { "_id": doc! { "$gte": ids[0], "$lte": ids[ids.len() - 1] } },
    }
}

/// Treats write errors in a reply as an error.
///
/// # Panics
/// If the reply reports success, but another number of documents.
fn all_done(reply: &DocBuf, documents: usize) -> Result<()> {
    for field in ["writeErrors", "writeConcernError"] {
        if let Some(e) = reply.as_doc().get(field) {
            return Err(muniment_value::Error::internal(format!("{field}: {e:?}")));
        }
    }
    let n = reply.as_doc().get("n").and_then(|v| v.as_i64_exact());
    assert_eq!(n, Some(documents as i64), "acknowledged: {reply:?}");
    Ok(())
}
