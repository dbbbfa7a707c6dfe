//! A network between processes of one host: TCP connections are relayed with a delay, a bandwidth,
//! loss and partitions, which can be changed while the relay runs. Unlike netem it needs no
//! privileges and no kernel module.
//!
//! | module | contents |
//! |---|---|
//! | [`cli`], [`language`] | `muniment bench relay …`, and the language for changes while it runs |
//! | [`conditions`] | the conditions of a direction of a link |
//! | [`mod@line`] | the times at which bytes come out: pure functions |
//! | [`connection`], [`engine`], [`poller`] | sockets: all links and connections in one thread |
//! | [`measure`] | measures the relay's own cost and precision |
//!
//! It behaves as a network in these ways. Bytes of a connection keep their order and none is lost.
//! A segment that is lost below TCP costs a retransmission timeout, for which that direction of the
//! connection stalls. Connecting takes a round trip and a half until the first byte can arrive. An
//! end and a reset take as long as bytes do. A partition holds everything, including connections
//! that are being made, and what it held comes out one delay after the heal.
//!
//! It differs from a network in these ways. A client is connected to the relay at once and learns
//! only later that the server cannot be reached, by a reset instead of a refusal. A partition of
//! one direction leaves the other open for as long as it lasts, while TCP would give up after a
//! window because acknowledgements are missing. There is no congestion control, so a wire is always
//! used fully.

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

/// The two addresses that a link connects, and its initial conditions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    /// The address at which the relay listens for it; port 0 for a free one.
    pub listen: SocketAddr,
    /// The address to which the relay connects.
    pub to: SocketAddr,
    /// The conditions of each direction.
    pub conditions: Both<Conditions>,
    /// Whether connections are refused while a direction is cut; otherwise they hang.
    pub refuse: bool,
}

/// The relay's figures so far.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Bytes that were passed on.
    pub bytes: Both<u64>,
    /// How much later than due each piece was passed on. For a piece that had to wait for its
    /// receiver's room, the time of the first attempt counts.
    pub lateness: Latency,
    /// CPU seconds of the relay's thread.
    pub cpu_seconds: f64,
    /// The last error of the operating system.
    pub trouble: Option<String>,
}

/// A running relay. Dropping it closes all connections.
pub(crate) struct Relay {
    control: Control,
    addresses: Vec<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

/// A handle to one link of a relay, by which the link is changed and cut.
#[derive(Clone)]
pub(crate) struct Link {
    control: Control,
    index: usize,
    address: SocketAddr,
}

/// The channel to the relay's thread.
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

    /// Changes both directions or one, of all links or one (from 0). The change is in force when
    /// this returns.
    ///
    /// # Errors
    /// There is no such link, or its port is no longer free.
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

    /// The figures so far.
    ///
    /// # Errors
    /// The relay has ended.
    pub(crate) fn figures(&self) -> Result<Figures> {
        self.ask(Order::Figures)
    }

    /// The conditions of the links.
    ///
    /// # Errors
    /// The relay has ended.
    pub(crate) fn conditions(&self) -> Result<Vec<Both<Conditions>>> {
        self.ask(Order::Conditions)
    }
}

impl Relay {
    /// Starts a relay that listens for all routes. Its random numbers follow from `seed`.
    ///
    /// # Errors
    /// An address cannot be used.
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

    /// The channel to its thread.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// The links, in the order of the routes.
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
        // Sending fails only if the thread has ended already, which is the aim here.
        let _ = self.control.orders.send(Order::Stop);
        self.control.waker.wake();
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

impl Link {
    /// The address at which the relay listens for this link.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes one direction, or both.
    ///
    /// # Errors
    /// The relay has ended, or the link's port is no longer free.
    pub(crate) fn change(&self, direction: Option<Direction>, what: What) -> Result<()> {
        self.control.change(Some(self.index), direction, what)
    }
}
