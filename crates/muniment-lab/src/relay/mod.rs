//! A network between processes of one host: TCP connections are relayed with a delay, a bandwidth,
//! loss and partitions, which can be changed while it runs. It needs no rights and no kernel
//! module, unlike netem.
//!
//! | module | what |
//! |---|---|
//! | [`cli`], [`language`] | `muniment bench relay …`, and what it is told while it runs |
//! | [`conditions`] | what a direction of a link does |
//! | [`mod@line`] | when what enters comes out: pure |
//! | [`connection`], [`engine`], [`poller`] | sockets: all links and connections in one thread |
//! | [`measure`] | what the relay itself costs and how exact it is |
//!
//! What a network does that this one does too: bytes of a connection keep their order and none is
//! lost; what is lost below TCP costs a retransmission timeout, for which the connection's
//! direction stalls; connecting takes a round trip and a half until the first byte can arrive; an
//! end and a reset are under way as long as bytes. A partition holds everything, connections that
//! are being made among it, and lets it go on a delay after it has healed.
//!
//! What it does not: a client is connected to the relay at once and learns only later if the server
//! cannot be reached (a reset instead of a refusal); a partition of one way leaves the other way open
//! for as long as it takes, where TCP, missing its acknowledgements, would give up after a window;
//! there is no congestion control, so that a wire is always used to its end.

pub(crate) mod cli;
pub(crate) mod conditions;
mod connection;
mod engine;
pub(crate) mod language;
mod line;
pub(crate) mod measure;
mod poller;
#[cfg(test)]
mod tests;

use conditions::{Both, Conditions, Direction, What};
use engine::{Engine, Order};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::hist::Latency;
use poller::{Poller, Waker};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// From which address to which a link leads, and how it is at first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    /// The address at which the relay listens for it; port 0 for a free one.
    pub listen: SocketAddr,
    /// The address to which the relay connects.
    pub to: SocketAddr,
    /// What each direction does.
    pub conditions: Both<Conditions>,
    /// Whether connections are refused while a direction is cut; otherwise they hang.
    pub refuse: bool,
}

/// What the relay has done.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    /// Connections that were made.
    pub connections: u64,
    /// Those that are there now.
    pub open: u64,
    /// Bytes given on.
    pub bytes: Both<u64>,
    /// How much later than due each piece was given on. One that could not be given on yet because
    /// its receiver had no room counts from when it was tried.
    pub lateness: Latency,
    /// CPU seconds of the relay's thread.
    pub cpu_seconds: f64,
    /// The last thing that the system refused.
    pub trouble: Option<String>,
}

/// A running relay. Dropped, it closes everything.
pub(crate) struct Relay {
    control: Control,
    addresses: Vec<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

/// One link of a relay, by which it is partitioned and changed.
#[derive(Clone)]
pub(crate) struct Link {
    control: Control,
    index: usize,
    address: SocketAddr,
}

/// The way to the relay's thread.
#[derive(Clone)]
pub(crate) struct Control {
    orders: Arc<Sender<Order>>,
    waker: Waker,
}

impl Control {
    fn ask<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> Result<T> {
        let (to, answer): (Sender<T>, Receiver<T>) = channel();
        let gone = |_| Failure::new("the relay has ended");
        self.orders.send(order(to)).map_err(|_| gone(()))?;
        self.waker.wake();
        answer.recv().map_err(|_| gone(()))
    }

    /// Changes both directions or one, of all links or one (from 0). When this returns it is in
    /// force.
    ///
    /// # Errors
    /// There is no such link, or its port cannot be had again.
    pub(crate) fn change(
        &self,
        link: Option<usize>,
        direction: Option<Direction>,
        what: What,
    ) -> Result<()> {
        self.ask(|done| Order::Change {
            link,
            direction,
            what,
            done,
        })?
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn figures(&self) -> Result<Figures> {
        self.ask(Order::Figures)
    }

    /// How the links are.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn conditions(&self) -> Result<Vec<Both<Conditions>>> {
        self.ask(Order::Conditions)
    }
}

impl Relay {
    /// Listens for all routes and begins to relay. Random numbers follow from `seed`.
    ///
    /// # Errors
    /// An address that is not to be had.
    pub(crate) fn start(routes: &[Route], seed: u64) -> Result<Relay> {
        let poller = Poller::new().context("starting the relay")?;
        let waker = poller.waker();
        let (orders, inbox) = channel();
        let engine = Engine::new(poller, routes, seed, inbox)?;
        let addresses = engine.addresses();
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || engine.run())
            .context("starting the relay's thread")?;
        Ok(Relay {
            control: Control {
                orders: Arc::new(orders),
                waker,
            },
            addresses,
            thread: Some(thread),
        })
    }

    /// The way to its thread.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Its links, in the order of the routes.
    pub(crate) fn links(&self) -> Vec<Link> {
        let all = self.addresses.iter().enumerate();
        all.map(|(index, address)| Link {
            control: self.control.clone(),
            index,
            address: *address,
        })
        .collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It fails when the thread has ended already, which is what is wanted.
        let _ = self.control.orders.send(Order::Stop);
        self.control.waker.wake();
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

impl Link {
    /// The address at which the relay listens for it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes a direction, or both.
    ///
    /// # Errors
    /// The relay has ended, or the link's port cannot be had again.
    pub(crate) fn change(&self, direction: Option<Direction>, what: What) -> Result<()> {
        self.control.change(Some(self.index), direction, what)
    }
}
