//! How a link is: what each of its two directions does to the bytes that pass.

use std::time::Duration;

/// The two directions of a connection, as seen from the client, which is the side that connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Direction {
    /// From the client to the server that it connected to.
    Out,
    /// The way back.
    Back,
}

impl Direction {
    /// Both of them.
    pub(crate) const ALL: [Direction; 2] = [Direction::Out, Direction::Back];

    /// The opposite one.
    pub(crate) fn other(self) -> Direction {
        match self {
            Direction::Out => Direction::Back,
            Direction::Back => Direction::Out,
        }
    }
}

/// One of something for each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Both<T> {
    /// Of the way out.
    pub out: T,
    /// Of the way back.
    pub back: T,
}

impl<T> Both<T> {
    /// That of one direction.
    pub(crate) fn of(&self, d: Direction) -> &T {
        match d {
            Direction::Out => &self.out,
            Direction::Back => &self.back,
        }
    }

    /// That of one direction.
    pub(crate) fn of_mut(&mut self, d: Direction) -> &mut T {
        match d {
            Direction::Out => &mut self.out,
            Direction::Back => &mut self.back,
        }
    }
}

/// What one direction of a link does.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Conditions {
    /// How long a byte is under way.
    pub delay: Duration,
    /// By how much that varies at most, either way.
    pub jitter: Duration,
    /// Bytes a second that all connections of the link share; `None`: as fast as it goes.
    pub bandwidth: Option<u64>,
    /// The share of segments that are lost, 0 to [`MOST_LOSS`].
    pub loss: f64,
    /// What a lost segment costs; `None`: a round trip and [`LEAST_TIMEOUT`].
    pub timeout: Option<Duration>,
    /// Nothing passes.
    pub cut: bool,
}

/// More loss than this makes a stall last for ever.
pub(crate) const MOST_LOSS: f64 = 0.5;
/// What Linux's retransmission timeout adds to the round trip at least.
pub(crate) const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

impl Conditions {
    /// Bytes take so long, and nothing else happens to them.
    pub(crate) fn delayed(delay: Duration) -> Conditions {
        Conditions {
            delay,
            ..Conditions::default()
        }
    }
}

/// What can be changed of a direction while the relay runs.
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
    /// It does again.
    Heal,
    /// What becomes of new connections while a direction is cut: refused, or accepted and left
    /// without an answer. Of both directions at once.
    Refuse(bool),
}

impl Conditions {
    /// Changes one of them. What is under way already keeps the time that it has.
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
