//! The running operation: why it must end, how it waits, and the memory that it books.
//!
//! Everything that may take long is given an [`Interrupt`]. A long computation asks its
//! [`check`](Interrupt::check) every so often. A thread that waits never asks by the clock: it sleeps
//! in an [`Event`] or a [`Sleep`], and whoever could end the wait wakes it:
//!
//! - a thread that changes what is waited for calls [`Event::notify_one`] or [`Event::notify_all`];
//! - a thread that stops the operation sets its flag, and then wakes the threads that stand in the list
//!   of that flag ([`Sleepers`]): killOp and the end of the server those of the operation, the watcher of
//!   sockets those of the [`Client`], the end of the store those of the store;
//! - a deadline is the time at which the thread wakes by itself ([`Interrupt::wakes_at`]).
//!
//! A waiting thread is entered in all of these lists before it looks at any of their flags, and the
//! thread that sets a flag looks at its list afterwards, so no call is lost. A call that was meant for
//! one thread alone and reaches one that is just giving up is passed on to the next in line.
//!
//! The parking of threads by the standard library carries all of this. A thread is what is woken, not
//! an object of the operation's, so that an operation which never waits pays for nothing, and one that
//! waits allocates nothing for it.
//!
//! Where an operation waits for others it blocks in [`Sleep::park`], so that a pool of workers can be told there
//! when one of them is of no use for a while. Blocking that is not seen there: the thread that gathers and
//! syncs the log for others, the wait for earlier commits to become visible, an awaitable `hello`, the
//! connection that passes a command on to the primary, and reads and writes of files.
//!
//! This crate must not know what is waited for, or what books memory.

mod client;
mod event;
mod interrupt;
pub mod ledger;
mod lock;
mod operation;
mod question;
mod room;
mod sleep;
mod sleepers;
mod wait;

pub use client::Client;
pub use event::Event;
pub use interrupt::{Asked, Both, Interrupt, NeverInterrupted};
pub use ledger::{Account, Ledger, Refused, Share};
pub use lock::{Lock, Locked};
pub use operation::{GRACE, Operation};
pub use question::{Answer, Teller, question};
pub use sleep::{Sleep, sleep_until};
pub use sleepers::Sleepers;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
