//! Slows the guessing of passwords: tries to log in that were not followed by a success take turns.
//!
//! A try counts when it begins, so guesses on many connections at once are as slow as on one. A few tries
//! for a name from an address are free. Each further one takes the next slot of that pair, and slots come
//! ever further apart; a try whose slot is too far away is refused at once. All tries from one address also
//! share a coarser limit, against guesses at many names. It leaves room for those who know their password:
//! a name that has logged in from there before, and has few failures since, is not counted.
//!
//! Invariants: a success ends the waits of its pair; a waiting try holds no ticket; a bounded number of
//! pairs and addresses is remembered. Times are read from the caller, so that tests need not wait.

use muniment_op::{Event, Interrupt};
use muniment_value::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// So many tries in a row are free for a name from an address.
const FREE: u32 = 5;
/// The distance of the first two slots; each further distance is twice as long.
const FIRST_GAP: Duration = Duration::from_millis(50);
/// The longest distance of two slots.
const LONGEST_GAP: Duration = Duration::from_secs(2);
/// A try is refused whose slot is further away.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// After so long without a try, a pair begins anew.
const FORGIVEN: Duration = Duration::from_secs(60);
/// The distance of tries from one address in the long run.
const ADDRESS_GAP: Duration = Duration::from_millis(50);
/// So many tries from one address may come at once.
const ADDRESS_BURST: u32 = 200;
/// A try is refused that would wait longer for the limit of its address.
const ADDRESS_WAIT: Duration = Duration::from_secs(1);
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

/// The tries of a pair since its last success.
#[derive(Clone, Copy, Default)]
struct Tries {
    count: u32,
    /// When the next try that is not free may go on.
    next: Duration,
    /// When the last one came.
    last: Duration,
    /// How often the pair has logged in.
    successes: u64,
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

/// What becomes of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may go on.
    Now,
    /// It has to wait until then, or until its pair has more successes than these.
    At(Duration, u64),
    /// It is refused.
    Refused {
        /// The number of refused tries that have to be told of now.
        tell: Option<u64>,
    },
}

impl State {
    /// Gives a try its turn. One that does not wait takes nothing if it would have to.
    fn take(&mut self, pair: Pair, now: Duration, waits: bool) -> Turn {
        let rate = match self.places.get_mut(&pair.place) {
            Some(rate) => rate,
            None => {
                bound(&mut self.places, |r| (now < r.due + FORGIVEN, r.due));
                self.places.entry(pair.place).or_default()
            }
        };
        let held = self.pairs.get_mut(&pair);
        let is_new = held.is_none();
        let mut tries = held.as_deref().copied().unwrap_or_default();
        if now >= tries.last + FORGIVEN {
            tries.count = 0;
        }
        tries.last = now;
        let is_free = tries.count < FREE;
        let own = if is_free { now } else { now.max(tries.next) };
        let counts = !is_free || tries.successes == 0;
        let due = rate
            .due
            .max(now.saturating_sub(ADDRESS_GAP * ADDRESS_BURST));
        let of_place = if counts { now.max(due) } else { now };
        if own > now + LONGEST_WAIT || of_place > now + ADDRESS_WAIT {
            if let Some(held) = held {
                *held = tries;
            }
            return Turn::Refused {
                tell: rate.refuse(now),
            };
        }
        let slot = own.max(of_place);
        let turn = match slot > now {
            true => Turn::At(slot, tries.successes),
            false => Turn::Now,
        };
        if slot > now && !waits {
            return turn;
        }
        if counts {
            rate.due = due + ADDRESS_GAP;
        }
        tries.count = tries.count.saturating_add(1);
        if let Some(more) = tries.count.checked_sub(FREE) {
            tries.next = slot + FIRST_GAP.saturating_mul(1 << more.min(10)).min(LONGEST_GAP);
        }
        if is_new {
            // A pair that has logged in is kept longer, or guesses at many names would displace it.
            bound(&mut self.pairs, |t| (t.successes > 0, t.last));
        }
        self.pairs.insert(pair, tries);
        turn
    }

    /// Notes that a try was no guess: it has succeeded, or failed for another reason than its client.
    fn give_back(&mut self, pair: Pair, succeeded: bool) {
        if let Some(rate) = self.places.get_mut(&pair.place) {
            rate.due = rate.due.saturating_sub(ADDRESS_GAP);
        }
        let Some(tries) = self.pairs.get_mut(&pair) else {
            return;
        };
        if succeeded {
            tries.count = 0;
            tries.next = Duration::ZERO;
            tries.successes += 1;
        } else {
            tries.count = tries.count.saturating_sub(1);
        }
    }
}

impl Rate {
    fn refuse(&mut self, now: Duration) -> Option<u64> {
        self.refused += 1;
        if now < self.told + TOLD_EVERY {
            return None;
        }
        self.told = now;
        Some(std::mem::take(&mut self.refused))
    }
}

/// Makes room in a map that is full: drops the half that is worth least.
fn bound<K: Copy + Eq + Hash, V>(map: &mut HashMap<K, V>, worth: impl Fn(&V) -> (bool, Duration)) {
    if map.len() < MOST {
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
    /// It has to be told as failed. The number of refused tries that have to be told of now, if there is.
    Refused(Option<u64>),
    /// It would have to wait.
    Later,
}

/// The slots of all pairs and addresses.
pub struct Slowing {
    state: Mutex<State>,
    /// Tries that wait look again when their pair has logged in.
    released: Event<Pair>,
    names: RandomState,
    began: Instant,
}

impl Default for Slowing {
    fn default() -> Slowing {
        Slowing {
            state: Mutex::default(),
            released: Event::new(),
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
        &self,
        pair: Pair,
        waits: bool,
        on: &dyn Interrupt,
    ) -> Result<std::result::Result<(), Held>> {
        let turn = self.state.lock().take(pair, self.now(), waits);
        match turn {
            Turn::Now => Ok(Ok(())),
            Turn::Refused { tell } => Ok(Err(Held::Refused(tell))),
            Turn::At(..) if !waits => Ok(Err(Held::Later)),
            Turn::At(slot, successes) => {
                let until = Instant::now() + slot.saturating_sub(self.now());
                let succeeded = || {
                    let state = self.state.lock();
                    let now = state.pairs.get(&pair).map_or(0, |t| t.successes);
                    (now > successes).then_some(())
                };
                self.released.wait_for_until(pair, on, until, succeeded)?;
                Ok(Ok(()))
            }
        }
    }

    /// A try has succeeded: the pair begins anew, and its tries that wait go on.
    pub fn succeeded(&self, pair: Pair) {
        self.state.lock().give_back(pair, true);
        self.released.notify_those(|waiting| *waiting == pair);
    }

    /// A try has failed for a reason that its client has no part in.
    pub fn forgive(&self, pair: Pair) {
        self.state.lock().give_back(pair, false);
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

    /// The tries that go on within a time, of clients that try without a pause on so many connections.
    fn guesses(state: &mut State, connections: usize, names: u64, within: Duration) -> usize {
        let step = Duration::from_millis(5);
        let mut free_at = vec![T0; connections];
        let mut went = 0;
        let mut now = T0;
        while now < T0 + within {
            for (i, free_at) in free_at.iter_mut().enumerate() {
                if *free_at > now {
                    continue;
                }
                let name = (i as u64 + u64::try_from(now.as_millis()).unwrap()) % names;
                match state.take(pair(1, name), now, true) {
                    Turn::Now => went += 1,
                    Turn::At(slot, _) => {
                        *free_at = slot;
                        went += usize::from(slot < T0 + within);
                    }
                    Turn::Refused { .. } => {}
                }
            }
            now += step;
        }
        went
    }

    #[test]
    fn slots_come_ever_further_apart() {
        let mut state = State::default();
        let p = pair(1, 1);
        let mut slots = Vec::new();
        for _ in 0..20 {
            slots.push(match state.take(p, T0, true) {
                Turn::Now => 0,
                Turn::At(slot, 0) => (slot - T0).as_millis(),
                Turn::Refused { .. } => break,
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(
            slots,
            [
                0, 0, 0, 0, 0, 50, 150, 350, 750, 1550, 3150, 5150, 7150, 9150
            ]
        );
        // Another name, and another address, do not wait.
        assert_eq!(state.take(pair(1, 2), T0, true), Turn::Now);
        assert_eq!(state.take(pair(2, 1), T0, true), Turn::Now);
        // Without a try for long, all is forgiven.
        let later = T0 + Duration::from_millis(500) + FORGIVEN;
        assert_eq!(state.take(p, later, true), Turn::Now);
        // A success ends it at once.
        let mut state = State::default();
        while !matches!(state.take(p, T0, true), Turn::Refused { .. }) {}
        state.give_back(p, true);
        assert_eq!(state.take(p, T0, true), Turn::Now);
    }

    #[test]
    fn many_connections_guess_no_faster_than_one() {
        let minute = Duration::from_secs(60);
        let one = guesses(&mut State::default(), 1, 1, minute);
        let many = guesses(&mut State::default(), 300, 1, minute);
        assert!(one <= 40 && many <= 40, "{one} {many}");
        // To let it be forgiven takes longer than to go on.
        let few = guesses(&mut State::default(), 300, 1, Duration::from_secs(6));
        assert!(few <= 12, "{few}");
    }

    #[test]
    fn guesses_at_many_names_share_the_limit_of_their_address() {
        let mut state = State::default();
        let known = pair(1, 1_000_000);
        assert_eq!(state.take(known, T0, true), Turn::Now);
        state.give_back(known, true);
        let minute = Duration::from_secs(60);
        let many = guesses(&mut state, 300, 100_000, minute);
        let most = ADDRESS_BURST as usize + 60 * 20 + 1;
        assert!((most / 2..=most).contains(&many), "{many} of {most}");
        let now = T0 + minute;
        let strange = state.take(pair(1, 2_000_000), now, true);
        assert!(!matches!(strange, Turn::Now), "{strange:?}");
        // Who has logged in before does not wait, even after a slip; other addresses do not either.
        for _ in 0..FREE {
            assert_eq!(state.take(known, now, true), Turn::Now);
        }
        assert_eq!(state.take(pair(2, 5), now, true), Turn::Now);
        assert!(state.pairs.len() <= most + 30, "{}", state.pairs.len());
    }

    /// A server of applications opens its connections at once, and all of them log in.
    #[test]
    fn many_logins_that_succeed_do_not_wait() {
        let mut state = State::default();
        let mut now = T0;
        let mut waited = 0;
        for _ in 0..5000 {
            waited += usize::from(state.take(pair(1, 1), now, true) != Turn::Now);
            state.give_back(pair(1, 1), true);
            now += Duration::from_millis(1);
        }
        assert_eq!(waited, 0);
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
            assert_eq!(state.take(Pair { place, name }, now, true), Turn::Now);
            assert!(state.pairs.len() <= MOST && state.places.len() <= MOST);
        }
        let mut state = State::default();
        let mut told = Vec::new();
        for i in 0..30_000_u64 {
            let now = T0 + Duration::from_millis(i);
            if let Turn::Refused { tell: Some(n) } = state.take(pair(1, 1), now, true) {
                told.push(n);
            }
        }
        assert!((2..=4).contains(&told.len()), "{told:?}");
        assert!(told.iter().sum::<u64>() > 15_000, "{told:?}");
    }

    #[test]
    fn one_that_does_not_wait_takes_nothing() {
        let mut state = State::default();
        let p = pair(1, 1);
        for _ in 0..FREE {
            assert_eq!(state.take(p, T0, false), Turn::Now);
        }
        let slot = T0 + FIRST_GAP;
        for _ in 0..3 {
            assert_eq!(state.take(p, T0, false), Turn::At(slot, 0));
        }
        assert_eq!(state.take(p, T0, true), Turn::At(slot, 0));
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
