//! Clients that write while something happens to a set.

use muniment_value::{array, doc};
use muniment_wire::Connection;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::Duration;

/// A client that inserts documents with rising numbers as `_id` into `test.c`, one after the other, with the
/// write concern majority.
#[derive(Default)]
pub struct Load {
    stop: AtomicBool,
    next: AtomicI64,
    acknowledged: Mutex<BTreeSet<i64>>,
}

impl Load {
    /// Writes to whichever of `hosts` accepts it, until [`Load::stop`]. The hosts may change meanwhile.
    pub fn run(&self, hosts: &Mutex<Vec<String>>) {
        let (mut turn, second) = (0, Duration::from_secs(1));
        while !self.stop.load(SeqCst) {
            turn += 1;
            let host = {
                let hosts = hosts.lock().unwrap();
                hosts[turn % hosts.len()].clone()
            };
            if let Ok(mut c) = Connection::connect_timeout(&host, second) {
                c.set_timeout(Some(second * 5)).unwrap();
                while self.write(&mut c) {
                    if self.stop.load(SeqCst) {
                        return;
                    }
                }
            }
            std::thread::sleep(second / 100);
        }
    }

    /// Writes the next document. True if a majority has acknowledged it.
    fn write(&self, c: &mut Connection) -> bool {
        let id = self.next.fetch_add(1, SeqCst);
        let command = doc! {
            "insert": "c",
            "documents": array![doc! { "_id": id }],
            "writeConcern": doc! { "w": "majority", "wtimeout": 3000 },
        };
        let reply = c.command("test", &command);
        let taken = reply.is_ok_and(|r| r.as_doc().get("writeConcernError").is_none());
        if taken {
            self.note(id);
        }
        taken
    }

    /// Notes that another client has written this document, and a majority has it.
    pub fn note(&self, id: i64) {
        self.acknowledged.lock().unwrap().insert(id);
    }

    /// The documents that a majority has acknowledged.
    pub fn acknowledged(&self) -> BTreeSet<i64> {
        self.acknowledged.lock().unwrap().clone()
    }

    /// The number of these documents.
    pub fn written(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Ends [`Load::run`].
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
    }
}
