//! The running operation: the reasons for it to end, how it waits, and the memory that it books.
//!
//! Everything that may take long is given an [`Interrupt`]. A long computation calls its
//! [`check`](Interrupt::check) every so often. A waiting thread never polls: it sleeps in an [`Event`] or a
//! [`Sleep`], and any thread that could end the wait wakes it:
//!
//! - a thread that changes the condition of the wait calls [`Event::notify_one`] or [`Event::notify_all`];
//! - a thread that stops the operation sets its flag, and then wakes the threads in the list of that flag
//!   ([`Sleepers`]): killOp and the end of the server those of the operation, the watcher of sockets those of
//!   the [`Client`], the end of the store those of the store;
//! - a deadline is a time at which the thread wakes by itself ([`Interrupt::wakes_at`]).
//!
//! A waiting thread enters all of these lists before it looks at any of their flags, and a thread that sets a
//! flag looks at its list afterwards, so no call is lost. If a call was meant for one thread alone and
//! reaches one that is just giving up, it is passed on to the next in line.
//!
//! All of this uses the standard library's parking of threads. What is woken is a thread, not an object of
//! the operation, so an operation that never waits pays nothing, and one that waits allocates nothing for it.
//!
//! An operation that waits for others blocks in [`Sleep::park`], which tells the pool that the thread works
//! for ([`Blocks`]). Other blocking is not announced: the thread that gathers and syncs the log for others,
//! the wait for earlier commits to become visible, the connection that passes a command on to the primary, and
//! reads and writes of files.
//!
//! This crate must not know what threads wait for, or which code books memory.

mod blocking;
mod client;
mod event;
mod interrupt;
mod kept;
pub mod ledger;
mod lock;
mod operation;
mod question;
mod room;
mod simulated;
mod sleep;
mod sleepers;
mod wait;

pub use blocking::{Blocks, blocking, works_for};
pub use client::Client;
pub use event::Event;
pub use interrupt::{Asked, Both, Interrupt, NeverInterrupted};
pub use kept::Kept;
pub use ledger::{Account, Ledger, Refused, Share};
pub use lock::{Lock, Locked};
pub use operation::{GRACE, Operation};
pub use question::{Answer, Teller, question};
pub use simulated::{Mistake, Simulated, is_simulated, lives_in, makes, now, since, wall_ms};
pub use sleep::{Sleep, sleep_until};
pub use sleepers::Sleepers;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
