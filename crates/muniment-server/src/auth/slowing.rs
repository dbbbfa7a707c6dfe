//! Slows the guessing of passwords: tries to log in that fail take turns.
//!
//! A few tries for a name from an address may be under way or have failed since the last success. Each further
//! one waits for its turn, and turns come ever further apart, on however many connections a client guesses. A
//! success lets go all that wait: an application that opens many connections at once is no crowd of guessers.
//! All tries from one address also share a coarser limit, against guesses at many names. It leaves room for
//! those who know their password: a name that has logged in from there before, and has few failures since, is
//! not counted.
//!
//! Invariants: once a few tries have failed, few wait and the others are refused at once; a waiting try holds no
//! ticket; a bounded number of pairs and addresses is remembered. Times are given by the caller, so that tests
//! need not wait.

use muniment_op::{Event, Interrupt};
use muniment_value::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many tries for a name from an address go on at once.
const FREE: u32 = 5;
/// The distance of the first two turns; each further distance is twice as long.
const FIRST_GAP: Duration = Duration::from_millis(50);
/// The longest distance of two turns.
const LONGEST_GAP: Duration = Duration::from_secs(2);
/// A try is refused that has waited so long.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// So many tries of a pair wait once a few have failed.
const WAITING: u32 = 5;
/// So many tries of a pair wait in any case.
const MOST_WAITING: u32 = 2_000;
/// After so long without a try, a pair begins anew.
const FORGIVEN: Duration = Duration::from_secs(60);
/// The distance of tries from one address in the long run.
const ADDRESS_GAP: Duration = Duration::from_millis(50);
/// So many tries from one address may come at once.
const ADDRESS_BURST: u32 = 200;
/// Refused tries from an address are told of once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// So many pairs, and so many addresses, are remembered.
const MOST: usize = 10_000;
/// Times count from so long before the start, so that all that is subtracted from them can be.
const BEFORE: Duration = Duration::from_secs(86_400);

/// The clients that count as one: an IPv4 address, or the network of an IPv6 address, of which one client
/// may have all addresses. `None`: those of Unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place(Option<IpAddr>);

impl Place {
    fn of(address: Option<IpAddr>) -> Place {
        Place(address.map(|address| match address.to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        }))
    }
}

/// A name that clients try to log in with, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    place: Place,
    /// A hash of the name with a random key, so that long names take no memory.
    name: u64,
}

/// The tries of a pair.
#[derive(Clone, Copy, Default)]
struct Tries {
    /// So many have failed since the last success.
    failures: u32,
    /// So many have begun and not ended.
    pending: u32,
    /// So many wait.
    waiting: u32,
    /// When the next one that is not free may go on.
    next: Duration,
    /// When the last one came.
    last: Duration,
    /// How often the pair has logged in.
    successes: u64,
}

impl Tries {
    fn begun(&self) -> u32 {
        self.failures.saturating_add(self.pending)
    }

    fn have_failed(&self) -> bool {
        self.failures >= FREE
    }
}

/// All tries from one place.
#[derive(Default)]
struct Rate {
    /// When the next one is due if they come evenly.
    due: Duration,
    /// The tries that were refused, and not told of yet.
    refused: u64,
    told: Duration,
}

#[derive(Default)]
struct State {
    pairs: HashMap<Pair, Tries>,
    places: HashMap<Place, Rate>,
}

/// A try that waits.
#[derive(Clone, Copy)]
struct Waiter {
    since: Duration,
    /// The successes of its pair when it began to wait.
    successes: u64,
}

/// What becomes of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may go on.
    Now,
    /// It has to look again then, or when a try of its pair has ended. The successes of the pair so far.
    At(Duration, u64),
    /// It is refused.
    Refused,
}

impl State {
    /// Gives a try its turn. `waiter`: it waits already, which ends unless it has to look again.
    fn look(&mut self, pair: Pair, now: Duration, waiter: Option<Waiter>) -> Turn {
        let held = self.pairs.get(&pair).copied();
        let mut tries = held.unwrap_or_default();
        if waiter.is_none() {
            if now >= tries.last + FORGIVEN {
                tries.failures = 0;
            }
            tries.last = now;
        }
        let turn = self.turn(&mut tries, pair.place, now, waiter);
        if waiter.is_some() && !matches!(turn, Turn::At(..)) {
            tries.waiting = tries.waiting.saturating_sub(1);
        }
        // Refused tries at ever new names must not displace what is remembered.
        if held.is_some() || turn == Turn::Now {
            // A pair that has logged in is kept longer.
            bound(&mut self.pairs, &pair, |t| (t.successes > 0, t.last));
            self.pairs.insert(pair, tries);
        }
        turn
    }

    fn turn(
        &mut self,
        tries: &mut Tries,
        place: Place,
        now: Duration,
        waiter: Option<Waiter>,
    ) -> Turn {
        if waiter.is_some_and(|w| tries.successes > w.successes) {
            tries.pending += 1;
            return Turn::Now;
        }
        let others = tries.waiting - u32::from(waiter.is_some() && tries.waiting > 0);
        let most = match tries.have_failed() {
            true => WAITING,
            false => MOST_WAITING,
        };
        if others >= most || waiter.is_some_and(|w| now >= w.since + LONGEST_WAIT) {
            return Turn::Refused;
        }
        let is_free = tries.begun() < FREE;
        if !is_free && now < tries.next {
            return Turn::At(tries.next, tries.successes);
        }
        if !is_free || tries.successes == 0 {
            bound(&mut self.places, &place, |r| {
                (now < r.due + FORGIVEN, r.due)
            });
            let rate = self.places.entry(place).or_default();
            let due = rate
                .due
                .max(now.saturating_sub(ADDRESS_GAP * ADDRESS_BURST));
            // Tries do not wait for this limit, since there is no end of names that would.
            if due > now {
                return Turn::Refused;
            }
            rate.due = due + ADDRESS_GAP;
        }
        tries.pending += 1;
        if let Some(more) = tries.begun().checked_sub(FREE) {
            tries.next = now + FIRST_GAP.saturating_mul(1 << more.min(10)).min(LONGEST_GAP);
        }
        Turn::Now
    }

    /// A refused try is counted. Returns how many have to be told of now, if there are.
    fn refuse(&mut self, place: Place, now: Duration) -> Option<u64> {
        let rate = self.places.get_mut(&place)?;
        rate.refused += 1;
        if now < rate.told + TOLD_EVERY {
            return None;
        }
        rate.told = now;
        Some(std::mem::take(&mut rate.refused))
    }

    fn waits(&mut self, pair: Pair, begins: bool) {
        if let Some(tries) = self.pairs.get_mut(&pair) {
            tries.waiting = match begins {
                true => tries.waiting + 1,
                false => tries.waiting.saturating_sub(1),
            };
        }
    }

    /// A try that went on has ended.
    fn end(&mut self, pair: Pair, outcome: Outcome) {
        if outcome == Outcome::Succeeded
            && let Some(rate) = self.places.get_mut(&pair.place)
        {
            rate.due = rate.due.saturating_sub(ADDRESS_GAP);
        }
        let Some(tries) = self.pairs.get_mut(&pair) else {
            return;
        };
        tries.pending = tries.pending.saturating_sub(1);
        match outcome {
            Outcome::Succeeded => {
                tries.failures = 0;
                tries.next = Duration::ZERO;
                tries.successes += 1;
            }
            Outcome::Failed => tries.failures = tries.failures.saturating_add(1),
            Outcome::Unknown => {}
        }
    }
}

/// How a try has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    Failed,
    /// The client has not gone on, or the failure was none of its own. It has learned nothing of the password.
    Unknown,
}

/// Makes room in a map that is full and has no such key: drops the half that is worth least.
fn bound<K: Copy + Eq + Hash, V>(
    map: &mut HashMap<K, V>,
    key: &K,
    worth: impl Fn(&V) -> (bool, Duration),
) {
    if map.len() < MOST || map.contains_key(key) {
        return;
    }
    let mut all: Vec<_> = map.values().map(&worth).collect();
    let (_, middle, _) = all.select_nth_unstable(MOST / 2);
    let middle = *middle;
    map.retain(|_, v| worth(v) > middle);
}

/// Why a try does not go on.
#[derive(Debug)]
pub enum Held {
    /// It has to be told as failed. The number of refused tries that have to be told of now, if there are.
    Refused(Option<u64>),
    /// It would have to wait.
    Later,
}

/// A try that goes on. If it is dropped, it has ended without success or failure.
#[derive(Debug)]
pub struct Try {
    slowing: Arc<Slowing>,
    pair: Pair,
    outcome: Outcome,
}

impl Try {
    /// The client has proven who it is: the pair begins anew, and its tries that wait go on.
    pub fn succeeded(mut self) {
        self.outcome = Outcome::Succeeded;
    }

    /// The client has not proven it.
    pub fn failed(mut self) {
        self.outcome = Outcome::Failed;
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        self.slowing.state.lock().end(self.pair, self.outcome);
        let pair = self.pair;
        self.slowing.ended.notify_those(|waiting| *waiting == pair);
    }
}

/// The turns of all pairs and addresses.
pub struct Slowing {
    state: Mutex<State>,
    /// Tries that wait look again when one of their pair has ended.
    ended: Event<Pair>,
    names: RandomState,
    began: Instant,
}

impl std::fmt::Debug for Slowing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slowing").finish_non_exhaustive()
    }
}

impl Default for Slowing {
    fn default() -> Slowing {
        Slowing {
            state: Mutex::default(),
            ended: Event::new(),
            names: RandomState::new(),
            began: Instant::now(),
        }
    }
}

impl Slowing {
    /// The pair of a name and the address of the client that uses it.
    pub fn pair(&self, address: Option<IpAddr>, user: &str, db: &str) -> Pair {
        Pair {
            place: Place::of(address),
            name: self.names.hash_one((user, db)),
        }
    }

    fn now(&self) -> Duration {
        BEFORE + self.began.elapsed()
    }

    /// Has a try wait for its turn. With `waits` false, one that would have to wait is not counted.
    ///
    /// # Errors
    /// What ends the wait.
    pub fn enter(
        self: &Arc<Slowing>,
        pair: Pair,
        waits: bool,
        on: &dyn Interrupt,
    ) -> Result<std::result::Result<Try, Held>> {
        let goes_on = || Try {
            slowing: Arc::clone(self),
            pair,
            outcome: Outcome::Unknown,
        };
        let refused = || Held::Refused(self.state.lock().refuse(pair.place, self.now()));
        let now = self.now();
        let (mut turn, since) = {
            let mut state = self.state.lock();
            let turn = state.look(pair, now, None);
            if let Turn::At(..) = turn
                && waits
            {
                state.waits(pair, true);
            }
            (turn, now)
        };
        let Turn::At(mut at, successes) = turn else {
            return Ok(match turn {
                Turn::Refused => Err(refused()),
                _ => Ok(goes_on()),
            });
        };
        if !waits {
            return Ok(Err(Held::Later));
        }
        let waiter = Waiter { since, successes };
        loop {
            let until = self.began + at.saturating_sub(BEFORE);
            let waited = self.ended.wait_for_until(pair, on, until, || {
                turn = self.state.lock().look(pair, self.now(), Some(waiter));
                match turn {
                    // There is another end of the wait.
                    Turn::At(next, _) => (next != at).then_some(()),
                    Turn::Now | Turn::Refused => Some(()),
                }
            });
            if let Err(e) = waited {
                self.state.lock().waits(pair, false);
                return Err(e);
            }
            match turn {
                Turn::Now => return Ok(Ok(goes_on())),
                Turn::Refused => return Ok(Err(refused())),
                Turn::At(next, _) => at = next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const T0: Duration = BEFORE;

    fn pair(last: u8, name: u64) -> Pair {
        Pair {
            place: Place::of(Some(IpAddr::from([10, 0, 0, last]))),
            name,
        }
    }

    fn came(state: &mut State, pair: Pair, now: Duration) -> Turn {
        state.look(pair, now, None)
    }

    fn fails(state: &mut State, pair: Pair, now: Duration) {
        assert_eq!(came(state, pair, now), Turn::Now);
        state.end(pair, Outcome::Failed);
    }

    /// The tries that go on within a time, of clients that guess without a pause on so many connections. An
    /// answer takes ten milliseconds.
    fn guesses(state: &mut State, connections: usize, names: u64, within: Duration) -> usize {
        enum Is {
            Free,
            Waiting(Pair, Waiter),
            Judged(Pair),
        }
        let step = Duration::from_millis(10);
        let mut all: Vec<Is> = (0..connections).map(|_| Is::Free).collect();
        let (mut went, mut name) = (0, 0);
        let mut now = T0;
        while now < T0 + within {
            for guesser in &mut all {
                let (turn, pair, waiter) = match guesser {
                    Is::Judged(pair) => {
                        state.end(*pair, Outcome::Failed);
                        *guesser = Is::Free;
                        continue;
                    }
                    Is::Waiting(pair, waiter) => {
                        let turn = state.look(*pair, now, Some(*waiter));
                        (turn, *pair, Some(*waiter))
                    }
                    Is::Free => {
                        name += 1;
                        let pair = pair(1, name % names);
                        (came(state, pair, now), pair, None)
                    }
                };
                *guesser = match turn {
                    Turn::Now => {
                        went += 1;
                        Is::Judged(pair)
                    }
                    Turn::Refused => Is::Free,
                    Turn::At(_, successes) => {
                        if waiter.is_none() {
                            state.waits(pair, true);
                        }
                        let since = waiter.map_or(now, |w| w.since);
                        Is::Waiting(pair, Waiter { since, successes })
                    }
                };
            }
            now += step;
        }
        went
    }

    #[test]
    fn turns_come_ever_further_apart() {
        let mut state = State::default();
        let p = pair(1, 1);
        let mut now = T0;
        let mut turns = Vec::new();
        for _ in 0..14 {
            match came(&mut state, p, now) {
                Turn::At(next, 0) => {
                    now = next;
                    fails(&mut state, p, now);
                }
                other => {
                    assert_eq!(other, Turn::Now);
                    state.end(p, Outcome::Failed);
                }
            }
            turns.push((now - T0).as_millis());
        }
        assert_eq!(
            turns,
            [
                0, 0, 0, 0, 0, 50, 150, 350, 750, 1550, 3150, 5150, 7150, 9150
            ]
        );
        // Another name, and another address, do not wait.
        assert_eq!(came(&mut state, pair(1, 2), now), Turn::Now);
        assert_eq!(came(&mut state, pair(2, 1), now), Turn::Now);
        // Without a try for long, all is forgiven.
        let mut after = state.pairs[&p];
        assert!(matches!(came(&mut state, p, now), Turn::At(..)));
        assert_eq!(came(&mut state, p, now + FORGIVEN), Turn::Now);
        // A success ends it at once.
        after.pending = 1;
        state.pairs.insert(p, after);
        state.end(p, Outcome::Succeeded);
        assert_eq!(came(&mut state, p, now), Turn::Now);
    }

    #[test]
    fn many_connections_guess_no_faster_than_one() {
        let minute = Duration::from_secs(60);
        let one = guesses(&mut State::default(), 1, 1, minute);
        let many = guesses(&mut State::default(), 300, 1, minute);
        assert!(
            (30..=40).contains(&one) && (30..=40).contains(&many),
            "{one} {many}"
        );
    }

    #[test]
    fn guesses_at_many_names_share_the_limit_of_their_address() {
        let mut state = State::default();
        let known = pair(1, 1_000_000);
        assert_eq!(came(&mut state, known, T0), Turn::Now);
        state.end(known, Outcome::Succeeded);
        let minute = Duration::from_secs(60);
        let many = guesses(&mut state, 300, 100_000, minute);
        let most = ADDRESS_BURST as usize + 60 * 20 + 1;
        assert!((most / 2..=most).contains(&many), "{many} of {most}");
        let now = T0 + minute - Duration::from_millis(10);
        assert_eq!(came(&mut state, pair(1, 2_000_000), now), Turn::Refused);
        // A client that has logged in before does not wait, even after a slip; other addresses do not either.
        for _ in 0..FREE {
            fails(&mut state, known, now);
        }
        assert_eq!(came(&mut state, pair(2, 5), now), Turn::Now);
        assert!(state.pairs.len() <= most + 30, "{}", state.pairs.len());
    }

    /// A server of applications opens its connections at once, and all of them log in.
    #[test]
    fn those_that_wait_go_on_with_the_first_that_succeeds() {
        let mut state = State::default();
        let p = pair(1, 1);
        let mut waiters = Vec::new();
        for _ in 0..1000 {
            match came(&mut state, p, T0) {
                Turn::Now => {}
                Turn::At(_, successes) => {
                    state.waits(p, true);
                    waiters.push(Waiter {
                        since: T0,
                        successes,
                    });
                }
                Turn::Refused => panic!("refused"),
            }
        }
        assert_eq!(waiters.len(), 1000 - FREE as usize);
        state.end(p, Outcome::Unknown);
        state.end(p, Outcome::Succeeded);
        for waiter in waiters {
            assert_eq!(state.look(p, T0, Some(waiter)), Turn::Now);
        }
        for _ in 2..1000 {
            state.end(p, Outcome::Succeeded);
        }
        assert_eq!((state.pairs[&p].pending, state.pairs[&p].waiting), (0, 0));
    }

    /// Most of those that wait are refused as soon as a few have failed.
    #[test]
    fn few_wait_after_failures() {
        let mut state = State::default();
        let p = pair(1, 1);
        let mut waiting = 0;
        for _ in 0..300 {
            if let Turn::At(..) = came(&mut state, p, T0) {
                state.waits(p, true);
                waiting += 1;
            }
        }
        for _ in 0..FREE {
            state.end(p, Outcome::Failed);
        }
        let waiter = Waiter {
            since: T0,
            successes: 0,
        };
        for _ in 0..waiting {
            state.look(p, T0, Some(waiter));
        }
        // With the one that looks.
        assert_eq!(state.pairs[&p].waiting, WAITING);
        let late = T0 + LONGEST_WAIT;
        assert_eq!(state.look(p, late, Some(waiter)), Turn::Refused);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_was_refused_told_seldom() {
        let mut state = State::default();
        for i in 0..30_000_u32 {
            let [.., a, b] = i.to_be_bytes();
            let [_, c, ..] = i.to_be_bytes();
            let place = Place::of(Some(IpAddr::from([10, c, a, b])));
            let name = u64::from(i);
            let now = T0 + Duration::from_micros(u64::from(i));
            assert_eq!(came(&mut state, Pair { place, name }, now), Turn::Now);
            assert!(state.pairs.len() <= MOST && state.places.len() <= MOST);
        }
        let mut state = State::default();
        fails(&mut state, pair(1, 1), T0);
        let mut told = Vec::new();
        for i in 0..30_000 {
            let now = T0 + Duration::from_millis(i);
            told.extend(state.refuse(pair(1, 1).place, now));
        }
        assert_eq!(told, [1, 10_000, 10_000]);
    }

    #[test]
    fn the_network_of_an_address_counts() {
        let of = |text: &str| Place::of(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
