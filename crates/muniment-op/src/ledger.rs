//! The ledger: one account book of memory for a server.
//!
//! All memory that grows with the requests of clients is booked here, in an account for its kind. Each
//! account has a limit, and all together have one. An owner of memory books through a [`Share`], which says
//! what a limit means for it: an owner that can let go of memory (a sort can spill) calls [`Share::holds`],
//! which tells it to do so; one that cannot calls [`Share::try_hold`] before it takes the memory, and may be
//! refused.
//!
//! Beyond a limit the large owners are pressed and refused. An owner that holds at most its even part of the
//! limit still gets memory, up to a ceiling that is an eighth above the limit. While the sum is above the
//! limit, at least one owner holds more than its part, so the sum stays below the ceiling, however many
//! owners there are.
//!
//! The caches and memtables of the storage have a limit of their own (`--cacheSizeGB`) and are not booked
//! here.
//!
//! An owner that was refused can wait for room ([`Ledger::wait_for_room`]). An owner that gives memory back
//! wakes exactly those waiters that would get what they asked for now.
//!
//! Invariants: dropping a [`Share`] gives back what it has booked; a refused booking changes nothing. The
//! ledger must not know its owners.

use crate::event::Event;
use muniment_value::{Code, Error};
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes that a stage may hold between the limit and the ceiling, so that it works in useful steps and
/// does not spill a few rows at a time.
pub const FLOOR: usize = 1 << 20;
/// The bytes that a stage may hold even beyond the ceiling.
const LEAST: usize = 64 << 10;
/// Large bookings are rounded up to a multiple of this many bytes, so that growing memory costs few atomic
/// operations.
const STEP: usize = 64 << 10;
/// A smaller amount is not booked, so that most operations touch no counter.
const FREE: usize = 4 << 10;

macro_rules! accounts {
    ($($variant:ident $name:literal $parameter:literal $doc:literal,)*) => {
        /// The purposes of booked memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Account {
            $(#[doc = $doc] $variant,)*
        }

        impl Account {
            /// All accounts.
            pub const ALL: &[Account] = &[$(Account::$variant,)*];

            /// The account's name, in `serverStatus` and in messages.
            pub fn name(self) -> &'static str {
                match self { $(Account::$variant => $name,)* }
            }

            /// The parameter that sets the account's limit.
            pub fn parameter(self) -> &'static str {
                match self { $(Account::$variant => $parameter,)* }
            }
        }
    };
}

accounts! {
    Commands "commands" "munimentQueryMemoryBudgetBytes"
        "Parsed forms of large commands and the bounds of their plans, also while a cursor keeps them.",
    Stages "stages" "munimentQueryMemoryBudgetBytes"
        "State of sorts, groups, joins and other stages, also between the batches of a cursor.",
    Cursors "cursors" "munimentQueryMemoryBudgetBytes"
        "Documents that cursors have produced but not yet returned.",
    Transactions "transactions" "munimentTransactionMemoryBytes"
        "Writes of open transactions.",
    Writes "writes" "munimentWriteMemoryBytes"
        "Documents and index keys of writes that are about to be committed.",
    Streams "streams" "munimentStreamMemoryBytes"
        "Data that readers of the log and change streams have read ahead.",
    Scripts "scripts" "munimentScriptMemoryBytes"
        "Heaps of JavaScript functions.",
    Messages "messages" "munimentMessageMemoryBytes"
        "Messages that are being received.",
    Replies "replies" "munimentMessageMemoryBytes"
        "Replies that clients have not taken yet.",
    Sessions "sessions" "maxSessions"
        "Records of logical sessions.",
}

/// The counters of one limit. They have cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Book {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// The number of shares that hold anything.
    owners: AtomicUsize,
    peak: AtomicUsize,
    pressed: AtomicU64,
    refused: AtomicU64,
}

/// How a booking compares with a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Below,
    /// Above the limit, but below the ceiling.
    Above,
    Beyond,
}

impl Book {
    const fn new() -> Book {
        Book {
            limit: AtomicUsize::new(usize::MAX),
            used: AtomicUsize::new(0),
            owners: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            pressed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// How the sum would compare with the limit with `more` bytes, and an owner's even part of the limit.
    fn with(&self, more: usize) -> (Standing, usize) {
        let (limit, used) = (self.limit.load(Relaxed), self.used.load(Relaxed));
        let used = used.saturating_add(more);
        if used <= limit {
            return (Standing::Below, limit);
        }
        let part = limit / self.owners.load(Relaxed).max(1);
        match used - limit > limit / 8 {
            true => (Standing::Beyond, part),
            false => (Standing::Above, part),
        }
    }

    /// The limit that would refuse `more` bytes to an owner that would hold `asked` bytes with them; `None`
    /// if it would not.
    fn refuses(&self, asked: usize, more: usize) -> Option<usize> {
        let (standing, part) = self.with(more);
        let refused = match standing {
            Standing::Below => false,
            Standing::Above => asked > part,
            Standing::Beyond => true,
        };
        refused.then(|| self.limit.load(Relaxed))
    }

    fn add(&self, bytes: usize, first: bool) {
        if first {
            self.owners.fetch_add(1, Relaxed);
        }
        let now = self.used.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if now > self.peak.load(Relaxed) {
            self.peak.fetch_max(now, Relaxed);
        }
    }

    fn take(&self, bytes: usize, last: bool) {
        if last {
            self.owners.fetch_sub(1, SeqCst);
        }
        // This happens before the check for waiting threads: see `Ledger::tell`.
        self.used.fetch_sub(bytes, SeqCst);
    }
}

/// The figures of an account, or of all accounts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The bytes that may be held.
    pub limit: usize,
    /// The bytes that are held.
    pub used: usize,
    /// The most bytes that were ever held.
    pub peak: usize,
    /// How often an owner was told to let go of memory.
    pub pressed: u64,
    /// How often an owner was refused.
    pub refused: u64,
}

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    total: Book,
    accounts: [Book; Account::ALL.len()],
    /// Held while a booking of at least a [`STEP`] is checked and made, so that two owners that ask at the
    /// same moment do not both get the last room.
    asking: Mutex<()>,
    /// The threads that wait for room, with the refusal that each has got.
    pub(crate) freed: Event<Refused>,
}

impl Default for Ledger {
    /// A ledger without limits.
    fn default() -> Ledger {
        Ledger {
            asking: Mutex::new(()),
            freed: Event::new(),
            total: Book::new(),
            accounts: [const { Book::new() }; Account::ALL.len()],
        }
    }
}

impl Ledger {
    /// The parameter that sets the limit of all accounts together.
    pub const PARAMETER: &str = "munimentMemoryLimitBytes";

    /// Sets how many bytes all accounts together may hold.
    pub fn set_total(&self, bytes: usize) {
        self.total.limit.store(bytes, SeqCst);
        self.tell();
    }

    /// Sets how many bytes an account may hold.
    pub fn set_limit(&self, account: Account, bytes: usize) {
        self.book(account).limit.store(bytes, SeqCst);
        self.tell();
    }

    /// The figures of all accounts together.
    pub fn total(&self) -> Figures {
        Ledger::figures_of(&self.total)
    }

    /// The figures of an account.
    pub fn figures(&self, account: Account) -> Figures {
        Ledger::figures_of(self.book(account))
    }

    fn figures_of(book: &Book) -> Figures {
        Figures {
            limit: book.limit.load(Relaxed),
            used: book.used.load(Relaxed),
            peak: book.peak.load(Relaxed),
            pressed: book.pressed.load(Relaxed),
            refused: book.refused.load(Relaxed),
        }
    }

    /// Waits for its turn to check a large booking.
    fn ask(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called when there is more room: the waiters that would get it now try again.
    #[inline]
    fn tell(&self) {
        self.freed.notify_those(|refused| self.has_room(refused));
    }

    /// Whether a refused owner would probably not be refused any more, checked without taking a turn.
    fn has_room(&self, refused: &Refused) -> bool {
        let Refused {
            account,
            held,
            asked,
            ..
        } = *refused;
        let more = asked.saturating_sub(held);
        let book = self.book(account);
        let refuses = |book: &Book| book.refuses(asked, more).is_some();
        book.used.load(Relaxed) <= held || !refuses(book) && !refuses(&self.total)
    }

    fn book(&self, account: Account) -> &Book {
        // There is a book for each variant.
        self.accounts.get(account as usize).unwrap_or(&self.total)
    }
}

/// Why a booking was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The account of the booking.
    pub account: Account,
    /// Whether the limit was that of all accounts together.
    pub total: bool,
    /// The bytes that the owner holds.
    pub held: usize,
    /// The bytes that the owner would have held.
    pub asked: usize,
    /// The limit.
    pub limit: usize,
    /// The bytes that all owners under the limit hold.
    pub used: usize,
}

impl Refused {
    /// The message for the client.
    pub fn message(&self) -> String {
        let Refused {
            account,
            held,
            asked,
            limit,
            used,
            ..
        } = self;
        let name = account.name();
        let parameter = self.parameter();
        let whose = match self.total {
            true => "all accounts together hold".to_string(),
            false => format!("the account '{name}' holds"),
        };
        format!(
            "not enough memory: the operation holds {held} bytes of the account '{name}' and asks \
             for {asked}, while {whose} {used} of {limit} bytes ({parameter})"
        )
    }

    /// The parameter that sets the limit.
    pub fn parameter(&self) -> &'static str {
        match self.total {
            true => Ledger::PARAMETER,
            false => self.account.parameter(),
        }
    }
}

impl From<Refused> for Error {
    /// 146 ExceededMemoryLimit.
    fn from(refused: Refused) -> Error {
        Error::new(Code::ExceededMemoryLimit, refused.message())
    }
}

/// The bookings of one owner.
#[derive(Debug)]
pub struct Share {
    ledger: Arc<Ledger>,
    account: Account,
    booked: usize,
}

/// The rounded amount that is booked for this many bytes.
fn rounded(bytes: usize) -> usize {
    if bytes <= FREE {
        0
    } else if bytes < STEP {
        bytes.next_power_of_two()
    } else {
        bytes.checked_next_multiple_of(STEP).unwrap_or(bytes)
    }
}

impl Share {
    /// A share that has booked nothing yet.
    pub fn new(ledger: &Arc<Ledger>, account: Account) -> Share {
        Share {
            ledger: ledger.clone(),
            account,
            booked: 0,
        }
    }

    /// A share for another owner in the same account, which has booked nothing yet.
    pub fn another(&self) -> Share {
        Share::new(&self.ledger, self.account)
    }

    /// The ledger of this share.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// The bytes that are booked, after rounding.
    pub fn booked(&self) -> usize {
        self.booked
    }

    /// Books that the owner now holds this many bytes, whatever the limits. True if the owner should let go
    /// of them, because it has grown while the sum is above a limit.
    #[inline]
    pub fn holds(&mut self, bytes: usize) -> bool {
        let rounded = rounded(bytes);
        if rounded == self.booked {
            return false;
        }
        let more = rounded > self.booked;
        self.book(rounded);
        let pressed = more && self.is_pressed();
        if pressed {
            self.ledger.book(self.account).pressed.fetch_add(1, Relaxed);
            self.ledger.total.pressed.fetch_add(1, Relaxed);
        }
        pressed
    }

    /// Books that the owner is about to hold this many bytes altogether. A smaller amount than before is
    /// never refused.
    ///
    /// # Errors
    /// If the sum would be above a limit and the owner would hold more than its part. Nothing has changed
    /// then.
    #[inline]
    pub fn try_hold(&mut self, bytes: usize) -> Result<(), Refused> {
        let rounded = rounded(bytes);
        if rounded == self.booked {
            return Ok(());
        }
        let Some(more) = rounded.checked_sub(self.booked) else {
            self.book(rounded);
            return Ok(());
        };
        let ledger = (more >= STEP).then(|| self.ledger.clone());
        let _asking = ledger.as_ref().map(|ledger| ledger.ask());
        self.may_have(rounded, more)?;
        self.book(rounded);
        Ok(())
    }

    /// Does the same as [`Share::try_hold`], but never refuses the account's only owner.
    ///
    /// # Errors
    /// Those of [`Share::try_hold`], while another owner has something in the account.
    pub fn try_hold_alone(&mut self, bytes: usize) -> Result<(), Refused> {
        let ledger = self.ledger.clone();
        let _asking = ledger.ask();
        let rounded = rounded(bytes);
        let more = rounded.saturating_sub(self.booked);
        let refused = self.may_have(rounded, more);
        if refused.is_err() && ledger.book(self.account).used.load(Relaxed) > self.booked {
            return refused;
        }
        self.book(rounded);
        Ok(())
    }

    /// True if the owner holds so much that it should let go of it, because the sum is above a limit.
    pub fn is_pressed(&self) -> bool {
        let presses = |book: &Book| {
            let (standing, part) = book.with(0);
            match standing {
                Standing::Below => false,
                Standing::Above => self.booked > part.max(FLOOR),
                Standing::Beyond => self.booked > part.max(LEAST),
            }
        };
        self.booked > LEAST
            && (presses(self.ledger.book(self.account)) || presses(&self.ledger.total))
    }

    fn may_have(&self, rounded: usize, more: usize) -> Result<(), Refused> {
        let account = self.ledger.book(self.account);
        for (book, total) in [(account, false), (&self.ledger.total, true)] {
            if let Some(limit) = book.refuses(rounded, more) {
                account.refused.fetch_add(1, Relaxed);
                self.ledger.total.refused.fetch_add(1, Relaxed);
                return Err(Refused {
                    account: self.account,
                    total,
                    held: self.booked,
                    asked: rounded,
                    limit,
                    used: book.used.load(Relaxed),
                });
            }
        }
        Ok(())
    }

    fn book(&mut self, rounded: usize) {
        for book in [self.ledger.book(self.account), &self.ledger.total] {
            match rounded.checked_sub(self.booked) {
                Some(more) => book.add(more, self.booked == 0),
                None => book.take(self.booked - rounded, rounded == 0),
            }
        }
        let less = rounded < self.booked;
        self.booked = rounded;
        if less {
            self.ledger.tell();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.booked > 0 {
            self.book(0);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::NeverInterrupted;
    use std::time::{Duration, Instant};

    fn ledger(account: Account, limit: usize) -> Arc<Ledger> {
        let ledger = Ledger::default();
        ledger.set_limit(account, limit);
        Arc::new(ledger)
    }

    #[test]
    fn shares_add_up_and_are_given_back() {
        let ledger = ledger(Account::Stages, 4 * FLOOR);
        let mut a = Share::new(&ledger, Account::Stages);
        let mut b = Share::new(&ledger, Account::Stages);
        assert!(!a.holds(3 * FLOOR));
        assert!(!b.holds(FLOOR));
        // Above the limit, an owner that holds less than its part is not pressed; one that holds more is.
        assert!(!b.holds(FLOOR + FLOOR / 4));
        assert!(a.is_pressed() && a.holds(3 * FLOOR + STEP));
        // An owner is pressed again only when it has grown further.
        assert!(!a.holds(3 * FLOOR + STEP));
        // Other accounts have their own limits.
        let mut c = Share::new(&ledger, Account::Scripts);
        assert!(!c.holds(9 * FLOOR));
        assert_eq!(ledger.figures(Account::Stages).pressed, 1);
        assert_eq!(ledger.total().used, 13 * FLOOR + FLOOR / 4 + STEP);
        drop((a, b, c));
        let f = ledger.total();
        assert_eq!((f.used, f.pressed, f.refused), (0, 1, 0));
        assert_eq!(f.peak, 13 * FLOOR + FLOOR / 4 + STEP);
        assert_eq!(ledger.total.owners.load(Relaxed), 0);
    }

    #[test]
    fn the_largest_owner_is_refused_first() {
        let ledger = ledger(Account::Transactions, 64 * FLOOR);
        let share = || Share::new(&ledger, Account::Transactions);
        let mut large = share();
        large.try_hold(60 * FLOOR).unwrap();
        let mut small: Vec<Share> = (0..8).map(|_| share()).collect();
        for s in &mut small {
            s.try_hold(FLOOR).unwrap();
        }
        // 68 of 64 are held: the large owner gets no more, the small ones do.
        let e = large.try_hold(61 * FLOOR).unwrap_err();
        assert_eq!((e.held, e.asked), (60 * FLOOR, 61 * FLOOR));
        assert!(!e.total && e.message().contains("munimentTransactionMemoryBytes"));
        assert_eq!(large.booked(), 60 * FLOOR);
        small[0].try_hold(2 * FLOOR).unwrap();
        assert!(large.is_pressed() && !small[0].is_pressed());
        // An owner can always give memory back.
        large.try_hold(59 * FLOOR).unwrap();
        assert_eq!(ledger.figures(Account::Transactions).refused, 1);
    }

    #[test]
    fn many_small_owners_stay_below_the_ceiling() {
        let ledger = ledger(Account::Transactions, 100 << 20);
        let mut open = Vec::new();
        let mut refused = 0;
        for _ in 0..2000 {
            let mut s = Share::new(&ledger, Account::Transactions);
            match s.try_hold(980_000) {
                Ok(()) => open.push(s),
                Err(_) => refused += 1,
            }
        }
        assert!(open.len() >= 100 && refused > 0);
        assert!(ledger.total().peak <= (100 << 20) + (100 << 20) / 8);
        // A small owner still gets memory.
        Share::new(&ledger, Account::Transactions)
            .try_hold(100_000)
            .unwrap();
    }

    #[test]
    fn all_accounts_have_a_limit_together() {
        let ledger = Arc::new(Ledger::default());
        ledger.set_total(8 * FLOOR);
        let mut a = Share::new(&ledger, Account::Writes);
        let mut b = Share::new(&ledger, Account::Streams);
        a.try_hold(6 * FLOOR).unwrap();
        let e = b.try_hold(20 * FLOOR).unwrap_err();
        assert!(e.total && Error::from(e).message().contains(Ledger::PARAMETER));
        b.try_hold(2 * FLOOR).unwrap();
        assert!(a.holds(7 * FLOOR));
    }

    #[test]
    fn a_small_amount_touches_no_counter() {
        let ledger = Arc::new(Ledger::default());
        let mut s = Share::new(&ledger, Account::Stages);
        assert!(!s.holds(FREE));
        assert_eq!(s.booked(), 0);
        assert!(!s.holds(FREE + 1));
        assert_eq!(s.booked(), 2 * FREE);
        assert!(!s.holds(STEP + 1));
        assert_eq!(s.booked(), 2 * STEP);
    }

    #[test]
    fn owners_that_ask_at_once_do_not_get_the_same_room() {
        let ledger = ledger(Account::Scripts, 20 * FLOOR);
        std::thread::scope(|scope| {
            for t in 0..4 {
                let ledger = &ledger;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let mut s = Share::new(ledger, Account::Scripts);
                        // The only owner may book more than the limit.
                        let _ = match t {
                            0 | 1 => s.try_hold(16 * FLOOR),
                            _ => s.try_hold_alone(24 * FLOOR),
                        };
                    }
                });
            }
        });
        let figures = ledger.figures(Account::Scripts);
        assert!(
            figures.peak <= 24 * FLOOR && figures.used == 0,
            "{figures:?}"
        );
    }

    #[test]
    fn room_is_waited_for_by_those_that_were_refused() {
        let ledger = ledger(Account::Writes, 8 * FLOOR);
        let mut held = Share::new(&ledger, Account::Writes);
        held.try_hold(8 * FLOOR).unwrap();
        let never = Instant::now() + Duration::from_secs(600);
        let now = Instant::now();
        let mut small = Share::new(&ledger, Account::Writes);
        let e = ledger.wait_for_room(&NeverInterrupted, now, || small.try_hold(6 * FLOOR));
        assert_eq!(e.unwrap_err().code(), Code::ExceededMemoryLimit);
        std::thread::scope(|s| {
            let got = s.spawn(|| {
                let mut share = Share::new(&ledger, Account::Writes);
                let hold = || share.try_hold(6 * FLOOR);
                ledger.wait_for_room(&NeverInterrupted, never, hold)
            });
            while ledger.freed.waiting() == 0 {
                std::thread::yield_now();
            }
            // This is not enough yet, so no waiter is called.
            held.holds(7 * FLOOR);
            let one = Share::new(&ledger, Account::Writes);
            let refused = one.may_have(6 * FLOOR, 6 * FLOOR).unwrap_err();
            assert!(!ledger.has_room(&refused));
            drop(held);
            got.join().unwrap().unwrap();
        });
        // A higher limit makes room as well.
        let mut held = Share::new(&ledger, Account::Writes);
        held.try_hold(8 * FLOOR).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                let hold = || small.try_hold(6 * FLOOR);
                ledger
                    .wait_for_room(&NeverInterrupted, never, hold)
                    .unwrap();
            });
            while ledger.freed.waiting() == 0 {
                std::thread::yield_now();
            }
            ledger.set_limit(Account::Writes, 14 * FLOOR);
        });
        assert_eq!(small.booked(), 6 * FLOOR);
    }

    #[test]
    fn owners_of_many_threads_leave_nothing_behind() {
        let ledger = ledger(Account::Stages, FLOOR);
        std::thread::scope(|scope| {
            for t in 0..4_usize {
                let ledger = &ledger;
                scope.spawn(move || {
                    for i in 0..2000_usize {
                        let mut s = Share::new(ledger, Account::Stages);
                        s.holds((i * 7919 + t) % (2 * FLOOR));
                        let _ = s.try_hold((i * 104_729) % (2 * FLOOR));
                    }
                });
            }
        });
        assert_eq!(ledger.total().used, 0);
        assert_eq!(ledger.total.owners.load(Relaxed), 0);
        assert_eq!(ledger.book(Account::Stages).owners.load(Relaxed), 0);
    }
}
