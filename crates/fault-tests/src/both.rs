//! Clients of registers and of lists together, while something happens to the servers.

use crate::appends::Shared;
use crate::isolation::Transaction;
use crate::linear::Operation;
use crate::registers::Registers;
use std::sync::atomic::Ordering::SeqCst;

/// The number of clients of registers, and of clients of lists.
const CLIENTS: u64 = 3;

/// What the clients have done, and what was done to the servers.
#[derive(Debug)]
pub struct Done<T> {
    /// The transactions with lists.
    pub transactions: Vec<Transaction>,
    /// The operations, each with its register.
    pub operations: Vec<(i64, Operation)>,
    /// What `work` has returned.
    pub work: T,
}

/// Runs clients of both kinds as long as `work` takes.
///
/// # Panics
/// If a client has got a wrong reply.
pub fn beside<T>(
    (appends, registers): (&Shared, &Registers),
    seed: u64,
    work: impl FnOnce() -> T,
) -> Done<T> {
    std::thread::scope(|s| {
        let _guard = appends.address.guard();
        let lists: Vec<_> = (0..CLIENTS)
            .map(|i| s.spawn(move || appends.run(i, seed)))
            .collect();
        let single: Vec<_> = (0..CLIENTS)
            .map(|i| s.spawn(move || registers.run(&appends.address, i, seed)))
            .collect();
        let work = work();
        appends.stop.store(true, SeqCst);
        registers.stop.store(true, SeqCst);
        Done {
            transactions: lists.into_iter().flat_map(|c| c.join().unwrap()).collect(),
            operations: single.into_iter().flat_map(|c| c.join().unwrap()).collect(),
            work,
        }
    })
}
