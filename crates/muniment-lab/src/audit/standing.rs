//! A set of the lab's own as the victim. Its members can be killed or cut off from each other,
//! which is not possible with a server of which only the address is known.
//!
//! Invariant: the state is compared only after everything has healed, every killed member runs
//! again, and all members have what the primary has. By then every rollback has happened.

use super::concern::Concern;
use super::document::COLLECTION;
use super::fault::{Fault, Steps};
use super::found;
use super::judge::Promise;
use super::retries;
use super::safety;
use super::transfers;
use super::undone::Undone;
use super::victim::{Aftermath, Victim};
use crate::lab::DB;
use crate::process;
use crate::topology::cluster::{Cluster, PATIENCE};
use crate::topology::floors::Layout;
use crate::topology::shape::Shape;
use muniment_load::access::Peer;
use muniment_load::conn::Conn;
use muniment_load::fail::{Failure, Result};
use muniment_load::stop;
use muniment_value::{array, doc};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The collection of a new primary's first write, by which the new primary's branch becomes the
/// set's.
const MARKERS: &str = "audit_markers";

/// The cache of each member, GiB.
const CACHE_GB: f64 = 0.25;

/// A set, and the next fault that will hit it.
pub(crate) struct Standing {
    cluster: Cluster,
    layout: Layout,
    fault: Fault,
    primary: usize,
    server: Peer,
    steps: Steps,
    /// A thread that looks for another primary from the moment of the fault on.
    watch: Option<JoinHandle<Option<(usize, Duration)>>>,
    rounds: i64,
}

impl Standing {
    /// Starts a set of so many members below `parent`.
    ///
    /// # Errors
    /// A member cannot be started or configured.
    pub(crate) fn start(members: usize, parent: &Path) -> Result<Standing> {
        let shape = Shape::side_by_side(members);
        let cluster = Cluster::start(shape, &process::own()?, parent, CACHE_GB)
            .map_err(|e| e.while_doing("--topology set"))?;
        let primary = cluster.wait_until_well(PATIENCE)?;
        let config = cluster.shape.config(&cluster.addresses());
        Ok(Standing {
            layout: Layout::of(config.as_doc(), |_| Some(0.0)),
            fault: Fault::KillPrimary,
            server: Peer::open(cluster.address(primary)?),
            primary,
            cluster,
            steps: Steps::default(),
            watch: None,
            rounds: 0,
        })
    }

    /// Sets the next fault.
    pub(crate) fn expect(&mut self, fault: Fault) {
        self.fault = fault;
    }

    /// Stops the frozen members for as long as an election may take, then lets them continue.
    fn freeze(&self) -> Result<()> {
        for &m in &self.steps.frozen {
            self.cluster.freeze(m)?;
        }
        let begin = Instant::now();
        while begin.elapsed() < self.cluster.shape.election * 3 && !stop::asked() {
            std::thread::sleep(Duration::from_millis(5));
        }
        for &m in &self.steps.frozen {
            self.cluster.thaw(m)?;
        }
        Ok(())
    }

    /// A number computed from one member's documents; two members have the same number only if they
    /// have the same documents.
    fn digest(server: &Peer) -> Result<(u64, u64)> {
        let mut c = Conn::connect(server)?;
        c.set_timeout(Some(PATIENCE))?;
        let (mut count, mut hash) = (0, DefaultHasher::new());
        let [from, to] = transfers::COLLECTIONS;
        for collection in [COLLECTION, from, to, retries::SHARED] {
            let find = doc! {
                "find": collection,
                "sort": doc! { "_id": 1 },
                "$readPreference": doc! { "mode": "secondaryPreferred" },
            };
            found::each(&mut c, collection, find, |d| {
                count += 1;
                d.as_bytes().hash(&mut hash);
            })?;
        }
        Ok((count, hash.finish()))
    }
}

/// Looks for a primary among these members until there is one or the patience has run out.
fn watch(servers: Vec<(usize, Peer)>) -> Option<(usize, Duration)> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        for (member, server) in &servers {
            let says = Conn::connect(server).and_then(|mut c| {
                c.set_timeout(Some(Duration::from_secs(2)))?;
                c.command("admin", &doc! { "hello": 1 })
            });
            let takes_writes = says.is_ok_and(|r| {
                let flag = r.as_doc().get("isWritablePrimary");
                flag.and_then(|v| v.as_bool()) == Some(true)
            });
            if takes_writes {
                return Some((*member, begin.elapsed()));
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

impl Victim for Standing {
    fn server(&self) -> &Peer {
        &self.server
    }

    fn crash(&mut self) -> Result<()> {
        let all = self.cluster.shape.centres.len();
        self.steps = self.fault.steps(all, self.primary);
        if let Some((side, way)) = &self.steps.cut {
            let others: Vec<usize> = (0..all).filter(|m| !side.contains(m)).collect();
            self.cluster.part(side, &others, *way)?;
        }
        for &m in &self.steps.killed {
            self.cluster.kill(m)?;
        }
        if !self.steps.electors.is_empty() {
            let electors = self.steps.electors.iter();
            let servers: Result<Vec<(usize, Peer)>> = electors
                .map(|m| Ok((*m, Peer::open(self.cluster.address(*m)?))))
                .collect();
            let servers = servers?;
            self.watch = Some(std::thread::spawn(move || watch(servers)));
        }
        if !self.steps.frozen.is_empty() {
            self.freeze()?;
        }
        Ok(())
    }

    /// The time that the old primary may take to step down.
    fn lingers(&self) -> Duration {
        match self.fault.lingers() {
            true => self.cluster.shape.election * 2,
            false => Duration::ZERO,
        }
    }

    fn revive(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let mut found = None;
        if let Some(watch) = self.watch.take() {
            let joined = watch
                .join()
                .map_err(|_| Failure::new("the look-out for a primary panicked"))?;
            let (member, after) = joined.ok_or_else(|| {
                Failure(format!(
                    "{}: no other member takes writes {} s later",
                    self.fault.name(),
                    PATIENCE.as_secs()
                ))
            })?;
            // Until the new primary has written something, its branch is not ahead of the old
            // primary's and might lose against it.
            self.rounds += 1;
            let mut c = Conn::connect(&Peer::open(self.cluster.address(member)?))?;
            c.set_timeout(Some(PATIENCE))?;
            let marker = doc! { "_id": self.rounds };
            let durable = doc! { "w": "majority", "j": true, "wtimeout": 30_000 };
            c.command(
                DB,
                &doc! { "insert": MARKERS, "documents": array![marker], "writeConcern": durable },
            )
            .map_err(|e| e.while_doing("the new primary's first write"))?;
            found = Some(after);
        }
        self.cluster.heal()?;
        for m in std::mem::take(&mut self.steps).killed {
            self.cluster.restart(m)?;
        }
        self.primary = self.cluster.wait_until_well(PATIENCE)?;
        self.server = Peer::open(self.cluster.address(self.primary)?);
        Ok(found.unwrap_or(begin.elapsed()))
    }

    fn promise(&self, concern: &Concern) -> Option<Promise> {
        Some(safety::promise(&self.layout, concern.doc.as_doc()))
    }

    fn aftermath(&mut self, mark: u64, writers: usize) -> Result<Option<Aftermath>> {
        let mut undone = Undone::new(mark, writers);
        let mut differing = Vec::new();
        let want = Standing::digest(&self.server)?;
        for (m, address) in self.cluster.addresses().iter().enumerate() {
            undone.member(self.cluster.data(m)?)?;
            let has = Standing::digest(&Peer::open(address))?;
            if has != want {
                differing.push(format!(
                    "{address} holds {} documents, the primary {}, or others",
                    has.0, want.0
                ));
            }
        }
        Ok(Some(Aftermath { undone, differing }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_load::fake;
    use muniment_value::DocBuf;

    #[test]
    fn the_look_out_finds_who_takes_writes() {
        let (mut asked, ok) = (0, doc! { "ok": 1.0, "isWritablePrimary": false });
        let secondary = ok.clone();
        let (a, _) = fake::server(move |_, _| secondary.clone());
        let (b, _) = fake::server(move |_, _| {
            asked += 1;
            doc! { "ok": 1.0, "isWritablePrimary": asked > 3 }
        });
        // A member that is dead must be passed over.
        let dead = muniment_wire::Reserved::new().unwrap();
        let members = vec![
            (0, Peer::open(dead.address().to_string())),
            (1, Peer::open(a)),
            (2, Peer::open(b)),
        ];
        let (found, after) = watch(members).unwrap();
        assert_eq!(found, 2);
        assert!(after >= Duration::from_millis(15), "{after:?}");
    }

    #[test]
    fn members_that_hold_the_same_have_the_same_digest_whatever_the_batches() {
        /// Starts a server that answers a find of the audit's own collection with these documents,
        /// in batches of two.
        fn member(docs: Vec<DocBuf>) -> Peer {
            let batch = move |from: usize| {
                let mut all = muniment_value::ArrayBuf::new();
                for d in docs.iter().skip(from).take(2) {
                    all.push(d);
                }
                (all, docs.len() > from + 2)
            };
            let mut at = 0;
            let (address, _) = fake::server(move |_, body| {
                let first = body.first().unwrap();
                let (name, next) = (first.name(), first.name() == "getMore");
                if !next && body.get_str("find") != Some(COLLECTION) {
                    let cursor = doc! { "firstBatch": array![], "id": 0i64 };
                    return doc! { "ok": 1.0, "cursor": cursor };
                }
                assert!(next || body.get_doc("$readPreference").is_some(), "{name}");
                at = if next { at + 2 } else { 0 };
                let (docs, more) = batch(at);
                let id = if more { 7i64 } else { 0 };
                let mut cursor = doc! { "id": id };
                cursor.append(if next { "nextBatch" } else { "firstBatch" }, docs);
                doc! { "ok": 1.0, "cursor": cursor }
            });
            Peer::open(address)
        }
        let docs = |last: i32| {
            (1..5)
                .map(|i| doc! { "_id": i })
                .chain([doc! { "_id": last }])
        };
        let want = Standing::digest(&member(docs(5).collect())).unwrap();
        assert_eq!(want.0, 5);
        assert_eq!(Standing::digest(&member(docs(5).collect())).unwrap(), want);
        assert_ne!(Standing::digest(&member(docs(6).collect())).unwrap(), want);
        let fewer = Standing::digest(&member(docs(5).take(4).collect())).unwrap();
        assert_eq!(fewer.0, 4);
    }
}
