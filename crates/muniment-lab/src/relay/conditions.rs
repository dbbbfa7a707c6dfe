//! The conditions of a link: the effect of each of its two directions on the bytes that pass.

use std::time::Duration;

/// The two directions of a connection, as seen from the client, which is the side that connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Direction {
    /// From the client to the server that it connected to.
    Out,
    /// From the server back to the client.
    Back,
}

impl Direction {
    /// Both directions.
    pub(crate) const ALL: [Direction; 2] = [Direction::Out, Direction::Back];

    /// The opposite direction.
    pub(crate) fn other(self) -> Direction {
        match self {
            Direction::Out => Direction::Back,
            Direction::Back => Direction::Out,
        }
    }
}

/// A pair of values, one for each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Both<T> {
    /// The value for the way out.
    pub out: T,
    /// The value for the way back.
    pub back: T,
}

impl<T> Both<T> {
    /// The value of one direction.
    pub(crate) fn of(&self, d: Direction) -> &T {
        match d {
            Direction::Out => &self.out,
            Direction::Back => &self.back,
        }
    }

    /// The value of one direction.
    pub(crate) fn of_mut(&mut self, d: Direction) -> &mut T {
        match d {
            Direction::Out => &mut self.out,
            Direction::Back => &mut self.back,
        }
    }
}

/// The conditions of one direction of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Conditions {
    /// The time that a byte takes.
    pub delay: Duration,
    /// The most by which that time varies, in either direction.
    pub jitter: Duration,
    /// The bytes a second that all connections of the link share; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// The share of segments that are lost, 0 to [`MOST_LOSS`].
    pub loss: f64,
    /// The time that a lost segment costs; `None` stands for a round trip and [`LEAST_TIMEOUT`].
    pub timeout: Option<Duration>,
    /// Nothing passes while this is set.
    pub cut: bool,
}

/// With more loss than this, repeated retransmission losses would make stalls practically endless.
pub(crate) const MOST_LOSS: f64 = 0.5;
/// The least that Linux's retransmission timeout adds to the round trip.
pub(crate) const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

impl Conditions {
    /// Conditions that delay bytes and do nothing else to them.
    pub(crate) fn delayed(delay: Duration) -> Conditions {
        Conditions {
            delay,
            ..Conditions::default()
        }
    }
}

/// A change of a direction while the relay runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum What {
    /// [`Conditions::delay`].
    Delay(Duration),
    /// [`Conditions::jitter`].
    Jitter(Duration),
    /// [`Conditions::bandwidth`].
    Bandwidth(Option<u64>),
    /// [`Conditions::loss`].
    Loss(f64),
    /// [`Conditions::timeout`].
    Timeout(Option<Duration>),
    /// Nothing passes any more.
    Cut,
    /// Bytes pass again.
    Heal,
    /// Whether new connections are refused while a direction is cut, or accepted and left without
    /// an answer. This applies to both directions at once.
    Refuse(bool),
}

impl Conditions {
    /// Applies a change. Bytes that are under way keep the times that they have.
    pub(crate) fn change(&mut self, what: What) {
        match what {
            What::Delay(d) => self.delay = d,
            What::Jitter(d) => self.jitter = d,
            What::Bandwidth(b) => self.bandwidth = b,
            What::Loss(share) => self.loss = share,
            What::Timeout(t) => self.timeout = t,
            What::Cut => self.cut = true,
            What::Heal => self.cut = false,
            What::Refuse(_) => {}
        }
    }
}
