//! Slows the guessing of passwords: tries to log in that fail take turns.
//!
//! A few tries for a name from an address may be under way or have failed since the last success. Each further
//! one waits for its turn, and turns come ever further apart, on however many connections a client guesses. Each
//! success lets a few go that wait, and each of these that succeeds a few more: an application that opens many
//! connections at once is no crowd of guessers. All tries from one address at names that have never logged in from
//! there also share a coarser limit, against guesses at many names.
//!
//! Invariants: once a few tries have failed, few wait and the others are refused at once; a success lets a bounded
//! number of tries go; a waiting try holds no ticket; the number that wait, and the number of pairs and addresses
//! that are remembered, is bounded. Times are given by the caller, so that tests need not wait.

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
/// So many tries wait at all, each of which holds a thread.
const ALL_WAITING: u32 = 4_000;
/// So many that wait go on with each success of their pair.
const RELEASED: u32 = 8;
/// A try that has not ended after this time counts no more: its conversation has expired.
const PENDING: Duration = Duration::from_secs(60);
/// After so long without a try, a pair begins anew.
const FORGIVEN: Duration = Duration::from_secs(60);
/// The distance of tries from one address in the long run.
const ADDRESS_GAP: Duration = Duration::from_millis(50);
/// So many tries from one address may come at once.
const ADDRESS_BURST: u32 = 200;
/// So many wait for the limit of their address.
const ADDRESS_WAITING: u32 = 200;
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
    /// When the last one of them began.
    begun: Duration,
    /// So many wait.
    waiting: u32,
    /// So many of these may go on since a success.
    released: u32,
    /// When the next one that is not free may go on.
    next: Duration,
    /// When the last one came.
    last: Duration,
    /// How often the pair has logged in.
    successes: u64,
}

impl Tries {
    /// How many count.
    fn counted(&self) -> u32 {
        self.failures.saturating_add(self.pending)
    }

    fn begin(&mut self, now: Duration) {
        self.pending += 1;
        self.begun = now;
    }

    /// What it is worth to remember it: a pair that has logged in, or is being guessed at, is kept longer.
    fn worth(&self) -> (bool, bool, Duration) {
        let is_used = self.pending > 0 || self.waiting > 0;
        (self.successes > 0 || self.have_failed(), is_used, self.last)
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
    /// How many tries wait for that.
    waiting: u32,
    /// The tries that were refused, and not told of yet.
    refused: u64,
    told: Duration,
}

#[derive(Default)]
struct State {
    pairs: HashMap<Pair, Tries>,
    places: HashMap<Place, Rate>,
    /// How many tries wait, of all pairs.
    waiting: u32,
}

/// A try that waits.
#[derive(Clone, Copy)]
struct Waiter {
    since: Duration,
    /// It waits for the limit of its address.
    for_place: bool,
}

/// What becomes of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may go on. Whether it counts for the limit of its address.
    Now(bool),
    /// It has to look again then, or when a try of its pair has ended. Whether it waits for the limit of its
    /// address.
    At(Duration, bool),
    /// It is refused.
    Refused,
}

impl State {
    /// Gives a try its turn. `waiter`: it waits already, which ends unless it has to look again. `waits`: it is to
    /// wait if it has to.
    fn look(
        &mut self,
        pair: Pair,
        now: Duration,
        waiter: Option<&mut Waiter>,
        waits: bool,
    ) -> Turn {
        let held = self.pairs.get(&pair).copied();
        let mut tries = held.unwrap_or_default();
        if waiter.is_none() {
            if now >= tries.last + FORGIVEN {
                tries.failures = 0;
            }
            tries.last = now;
        }
        if now >= tries.begun + PENDING {
            tries.pending = 0;
        }
        if let Some(waiter) = &waiter {
            self.leaves(&mut tries, pair.place, waiter.for_place);
        }
        let mut turn = self.turn(&mut tries, pair.place, now, waiter.as_deref());
        if let Turn::At(_, for_place) = turn
            && waits
        {
            turn = match self.enters(&mut tries, pair.place, for_place) {
                true => turn,
                false => Turn::Refused,
            };
            if let Some(waiter) = waiter {
                waiter.for_place = for_place;
            }
        }
        // Refused tries at ever new names must not displace what is remembered.
        if held.is_some() || matches!(turn, Turn::Now(_)) || tries.waiting > 0 {
            bound(&mut self.pairs, &pair, Tries::worth);
            self.pairs.insert(pair, tries);
        }
        turn
    }

    /// A try begins to wait; false if too many do.
    fn enters(&mut self, tries: &mut Tries, place: Place, for_place: bool) -> bool {
        let most = match (for_place, tries.have_failed()) {
            (false, true) => WAITING,
            _ => MOST_WAITING,
        };
        let rate = self.places.entry(place).or_default();
        let too_many = tries.waiting >= most
            || self.waiting >= ALL_WAITING
            || (for_place && rate.waiting >= ADDRESS_WAITING);
        if too_many {
            return false;
        }
        tries.waiting += 1;
        self.waiting += 1;
        rate.waiting += u32::from(for_place);
        true
    }

    /// A try waits no more.
    fn leaves(&mut self, tries: &mut Tries, place: Place, for_place: bool) {
        tries.waiting = tries.waiting.saturating_sub(1);
        self.waiting = self.waiting.saturating_sub(1);
        if let Some(rate) = self.places.get_mut(&place).filter(|_| for_place) {
            rate.waiting = rate.waiting.saturating_sub(1);
        }
    }

    fn turn(
        &mut self,
        tries: &mut Tries,
        place: Place,
        now: Duration,
        waiter: Option<&Waiter>,
    ) -> Turn {
        if waiter.is_some() && tries.released > 0 {
            tries.released -= 1;
            tries.begin(now);
            return Turn::Now(false);
        }
        if waiter.is_some_and(|w| now >= w.since + LONGEST_WAIT) {
            return Turn::Refused;
        }
        if tries.counted() >= FREE && now < tries.next {
            return Turn::At(tries.next, false);
        }
        let counts = tries.successes == 0;
        if counts {
            let worth = |r: &Rate| (r.waiting > 0 || now < r.due + FORGIVEN, r.due);
            bound(&mut self.places, &place, worth);
            let rate = self.places.entry(place).or_default();
            let due = rate
                .due
                .max(now.saturating_sub(ADDRESS_GAP * ADDRESS_BURST));
            if due > now {
                return Turn::At(due, true);
            }
            rate.due = due + ADDRESS_GAP;
        }
        tries.begin(now);
        if let Some(more) = tries.counted().checked_sub(FREE) {
            tries.next = now + FIRST_GAP.saturating_mul(1 << more.min(10)).min(LONGEST_GAP);
        }
        Turn::Now(counts)
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

    /// A try that waited has to end.
    fn gives_up(&mut self, pair: Pair, waiter: &Waiter) {
        let mut tries = self.pairs.get(&pair).copied().unwrap_or_default();
        self.leaves(&mut tries, pair.place, waiter.for_place);
        if let Some(held) = self.pairs.get_mut(&pair) {
            *held = tries;
        }
    }

    /// A try that went on has ended.
    fn end(&mut self, pair: Pair, outcome: Outcome, counted: bool) {
        // What was no guess does not count for the address.
        if outcome == Outcome::Succeeded
            && counted
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
                tries.released = tries.waiting.min(tries.released + RELEASED);
            }
            Outcome::Failed => {
                tries.failures = tries.failures.saturating_add(1);
                tries.released = 0;
            }
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
fn bound<K: Copy + Eq + Hash, V, W: Ord + Copy>(
    map: &mut HashMap<K, V>,
    key: &K,
    worth: impl Fn(&V) -> W,
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
    /// It counts for the limit of its address.
    counted: bool,
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
        let mut state = self.slowing.state.lock();
        state.end(self.pair, self.outcome, self.counted);
        drop(state);
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
        let goes_on = |counted| Try {
            slowing: Arc::clone(self),
            pair,
            outcome: Outcome::Unknown,
            counted,
        };
        let refused = || Held::Refused(self.state.lock().refuse(pair.place, self.now()));
        let since = self.now();
        let mut turn = self.state.lock().look(pair, since, None, waits);
        let Turn::At(mut at, for_place) = turn else {
            return Ok(match turn {
                Turn::Now(counted) => Ok(goes_on(counted)),
                _ => Err(refused()),
            });
        };
        if !waits {
            return Ok(Err(Held::Later));
        }
        let mut waiter = Waiter { since, for_place };
        loop {
            let until = self.began + at.saturating_sub(BEFORE);
            let waited = self.ended.wait_for_until(pair, on, until, || {
                let mut state = self.state.lock();
                turn = state.look(pair, self.now(), Some(&mut waiter), true);
                match turn {
                    // There is another end of the wait.
                    Turn::At(next, _) => (next != at).then_some(()),
                    Turn::Now(_) | Turn::Refused => Some(()),
                }
            });
            if let Err(e) = waited {
                self.state.lock().gives_up(pair, &waiter);
                return Err(e);
            }
            match turn {
                Turn::Now(counted) => return Ok(Ok(goes_on(counted))),
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
        state.look(pair, now, None, false)
    }

    fn fails(state: &mut State, pair: Pair, now: Duration) {
        assert!(matches!(came(state, pair, now), Turn::Now(_)));
        state.end(pair, Outcome::Failed, true);
    }

    /// It came, and waits if it has to.
    fn waits(state: &mut State, pair: Pair, now: Duration) -> (Turn, Waiter) {
        let turn = state.look(pair, now, None, true);
        let for_place = matches!(turn, Turn::At(_, true));
        let waiter = Waiter {
            since: now,
            for_place,
        };
        (turn, waiter)
    }

    /// The tries that go on within a time, of clients that guess without a pause on so many connections. An
    /// answer takes ten milliseconds.
    fn guesses(state: &mut State, connections: usize, names: u64, within: Duration) -> usize {
        enum Is {
            Free,
            Waiting(Pair, Waiter),
            Judged(Pair, bool),
        }
        let step = Duration::from_millis(10);
        let mut all: Vec<Is> = (0..connections).map(|_| Is::Free).collect();
        let (mut went, mut name) = (0, 0);
        let mut now = T0;
        while now < T0 + within {
            for guesser in &mut all {
                let (turn, pair, waiter) = match guesser {
                    Is::Judged(pair, counted) => {
                        state.end(*pair, Outcome::Failed, *counted);
                        *guesser = Is::Free;
                        continue;
                    }
                    Is::Waiting(pair, waiter) => {
                        let turn = state.look(*pair, now, Some(waiter), true);
                        (turn, *pair, *waiter)
                    }
                    Is::Free => {
                        name += 1;
                        let pair = pair(1, name % names);
                        let (turn, waiter) = waits(state, pair, now);
                        (turn, pair, waiter)
                    }
                };
                *guesser = match turn {
                    Turn::Now(counted) => {
                        went += 1;
                        Is::Judged(pair, counted)
                    }
                    Turn::Refused => Is::Free,
                    Turn::At(..) => Is::Waiting(pair, waiter),
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
                Turn::At(next, false) => {
                    now = next;
                    fails(&mut state, p, now);
                }
                other => {
                    assert_eq!(other, Turn::Now(true));
                    state.end(p, Outcome::Failed, true);
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
        assert_eq!(came(&mut state, pair(1, 2), now), Turn::Now(true));
        assert_eq!(came(&mut state, pair(2, 1), now), Turn::Now(true));
        // Without a try for long, all is forgiven.
        let mut after = state.pairs[&p];
        assert!(matches!(came(&mut state, p, now), Turn::At(..)));
        assert_eq!(came(&mut state, p, now + FORGIVEN), Turn::Now(true));
        // A success ends it at once.
        after.pending = 1;
        state.pairs.insert(p, after);
        state.end(p, Outcome::Succeeded, true);
        assert_eq!(came(&mut state, p, now), Turn::Now(false));
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
        assert_eq!(came(&mut state, known, T0), Turn::Now(true));
        state.end(known, Outcome::Succeeded, true);
        let minute = Duration::from_secs(60);
        let many = guesses(&mut state, 300, 100_000, minute);
        let most = ADDRESS_BURST as usize + 60 * 20 + 1;
        assert!((most / 2..=most).contains(&many), "{many} of {most}");
        let now = T0 + minute - Duration::from_millis(10);
        let strange = came(&mut state, pair(1, 2_000_000), now);
        assert!(matches!(strange, Turn::At(_, true)), "{strange:?}");
        // A client that has logged in before does not wait, even after a slip; other addresses do not either.
        for _ in 0..FREE {
            fails(&mut state, known, now);
        }
        assert!(matches!(came(&mut state, known, now), Turn::At(_, false)));
        assert_eq!(came(&mut state, pair(2, 5), now), Turn::Now(true));
        let known = state.pairs.len();
        assert!(known <= most + 30 + ADDRESS_WAITING as usize, "{known}");
    }

    /// A login at a name of the guesser's own does not pay for guesses at others.
    #[test]
    fn logins_of_a_known_name_do_not_pay_for_guesses() {
        let mut state = State::default();
        let own = pair(1, 1_000_000);
        let mut went = 0;
        for i in 0..60_000_u64 {
            let now = T0 + Duration::from_millis(i);
            match came(&mut state, own, now) {
                Turn::Now(counted) => state.end(own, Outcome::Succeeded, counted),
                other => panic!("{other:?}"),
            }
            if let Turn::Now(counted) = came(&mut state, pair(1, i % 5_000), now) {
                state.end(pair(1, i % 5_000), Outcome::Failed, counted);
                went += 1;
            }
        }
        assert!(went <= ADDRESS_BURST as usize + 60 * 20 + 1, "{went}");
    }

    /// A server of applications opens its connections at once, and all of them log in.
    #[test]
    fn those_that_wait_go_on_with_those_that_succeed() {
        let mut state = State::default();
        let p = pair(1, 1);
        let (mut waiting, mut begun) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            match waits(&mut state, p, T0) {
                (Turn::Now(counted), _) => begun.push(counted),
                (Turn::At(..), waiter) => waiting.push(waiter),
                (Turn::Refused, _) => panic!("refused"),
            }
        }
        assert_eq!(begun.len(), FREE as usize);
        let mut rounds = 0;
        while let Some(counted) = begun.pop() {
            state.end(p, Outcome::Succeeded, counted);
            waiting.retain_mut(|waiter| match state.look(p, T0, Some(waiter), true) {
                Turn::Now(counted) => {
                    begun.push(counted);
                    false
                }
                turn => {
                    assert!(matches!(turn, Turn::At(..)), "{turn:?}");
                    true
                }
            });
            rounds += 1;
        }
        assert_eq!((rounds, waiting.len()), (1000, 0));
        let tries = state.pairs[&p];
        assert_eq!((tries.pending, tries.waiting, state.waiting), (0, 0, 0));
    }

    /// The success of a client does not let a crowd of guessers go that waits beside it.
    #[test]
    fn a_success_lets_few_go() {
        let mut state = State::default();
        let p = pair(1, 1);
        let mut waiting = Vec::new();
        for _ in 0..2000 {
            if let (Turn::At(..), waiter) = waits(&mut state, p, T0) {
                waiting.push(waiter);
            }
        }
        state.end(p, Outcome::Succeeded, true);
        let went = waiting
            .iter_mut()
            .map(|w| state.look(p, T0, Some(w), true))
            .filter(|turn| matches!(turn, Turn::Now(_)))
            .count();
        // And those that come for the first time.
        assert!(went <= (RELEASED + FREE) as usize, "{went}");
    }

    /// Most of those that wait are refused as soon as a few have failed.
    #[test]
    fn few_wait_after_failures() {
        let mut state = State::default();
        let p = pair(1, 1);
        let mut waiting = Vec::new();
        for _ in 0..300 {
            if let (Turn::At(..), waiter) = waits(&mut state, p, T0) {
                waiting.push(waiter);
            }
        }
        for _ in 0..FREE {
            state.end(p, Outcome::Failed, true);
        }
        waiting.retain_mut(|waiter| state.look(p, T0, Some(waiter), true) != Turn::Refused);
        assert_eq!(waiting.len(), WAITING as usize);
        let late = T0 + LONGEST_WAIT;
        let last = waiting.last_mut().unwrap();
        assert_eq!(state.look(p, late, Some(last), true), Turn::Refused);
        state.gives_up(p, &waiting[0]);
        let tries = state.pairs[&p];
        assert_eq!((tries.waiting, state.waiting), (WAITING - 2, WAITING - 2));
    }

    /// Conversations that are begun and not gone on with hold no turn for ever.
    #[test]
    fn what_is_never_ended_counts_for_a_while() {
        let mut state = State::default();
        let p = pair(1, 1);
        for _ in 0..FREE {
            assert_eq!(came(&mut state, p, T0), Turn::Now(true));
        }
        assert!(matches!(came(&mut state, p, T0), Turn::At(_, false)));
        assert_eq!(came(&mut state, p, T0 + PENDING), Turn::Now(true));
        assert_eq!(state.pairs[&p].pending, 1);
    }

    /// Names that have not logged in from an address before wait for each other, and are not refused.
    #[test]
    fn first_logins_of_many_names_wait() {
        let mut state = State::default();
        let turns: Vec<_> = (0..1000)
            .map(|name| waits(&mut state, pair(1, name), T0).0)
            .collect();
        let count = |is: fn(&Turn) -> bool| turns.iter().filter(|t| is(t)).count() as u32;
        assert_eq!(count(|t| matches!(t, Turn::Now(_))), ADDRESS_BURST + 1);
        assert_eq!(count(|t| matches!(t, Turn::At(_, true))), ADDRESS_WAITING);
    }

    /// Guesses at many names do not make it forget one that is guessed at.
    #[test]
    fn a_pair_that_is_guessed_at_is_kept() {
        let mut state = State::default();
        let p = pair(1, 1);
        for _ in 0..FREE {
            fails(&mut state, p, T0);
        }
        for i in 0..50_000_u64 {
            let [.., a, b] = i.to_be_bytes();
            let other = Pair {
                place: Place::of(Some(IpAddr::from([10, 1, a, b]))),
                name: i,
            };
            came(&mut state, other, T0 + Duration::from_micros(i));
        }
        let now = T0 + Duration::from_millis(49);
        assert!(matches!(came(&mut state, p, now), Turn::At(..)));
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
            assert_eq!(came(&mut state, Pair { place, name }, now), Turn::Now(true));
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
