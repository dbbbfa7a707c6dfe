//! Checks operations on single documents: is there an order of all operations on a register, each at some
//! moment between its call and its reply, in which every reply is right?
//!
//! The search is Wing and Gong's with Lowe's memory of attempts, over the list of calls and replies as
//! arranged by Horn and Kroening ("Faster linearizability checking via P-compositionality", 2015). An
//! operation without a reply may take effect at any time after its call, or never.

use std::collections::HashSet;

/// The effect of an operation, according to its reply. A register has a number, which is 0 at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Read this number.
    Read(i64),
    /// Wrote this number.
    Write(i64),
    /// Found the first number, and wrote the second.
    Swapped(i64, i64),
    /// Found a number other than this, and wrote nothing.
    Kept(i64),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The time at which it was sent.
    pub called: u64,
    /// The time at which its reply came; `None` if it never came.
    pub answered: Option<u64>,
    /// Its effect, or the effect that it would have had.
    pub what: What,
}

impl What {
    /// The register after the operation; `None` if the register's number does not fit the operation.
    fn on(self, register: i64) -> Option<i64> {
        match self {
            What::Read(v) => (v == register).then_some(register),
            What::Write(v) => Some(v),
            What::Swapped(old, new) => (old == register).then_some(new),
            What::Kept(other) => (other != register).then_some(register),
        }
    }
}

/// The calls and replies that are not taken out, in order: a list whose entries know their neighbours, so that
/// an entry is taken out, and put back in the opposite order, in constant time.
struct Row {
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Row {
    /// A list of `len` entries; the entry `len` is both head and tail.
    fn new(len: usize) -> Row {
        Row {
            next: (1..=len).chain([0]).collect(),
            before: (0..=len).map(|i| i.checked_sub(1).unwrap_or(len)).collect(),
        }
    }

    fn first(&self) -> usize {
        self.next[self.next.len() - 1]
    }

    fn take_out(&mut self, at: usize) {
        let (before, next) = (self.before[at], self.next[at]);
        (self.next[before], self.before[next]) = (next, before);
    }

    fn put_back(&mut self, at: usize) {
        let (before, next) = (self.before[at], self.next[at]);
        (self.next[before], self.before[next]) = (at, at);
    }
}

/// True if there is such an order.
pub fn is_linearizable(operations: &[Operation]) -> bool {
    // The times of calls and replies in one list. A call comes before a reply at the same time.
    let mut times: Vec<(u64, bool, usize)> = Vec::new();
    for (i, o) in operations.iter().enumerate() {
        times.push((o.called, false, i));
        times.push((o.answered.unwrap_or(u64::MAX), true, i));
    }
    times.sort_unstable();
    let mut row = Row::new(times.len());
    let mut place = vec![(0, 0); operations.len()];
    for (at, (_, is_answer, i)) in times.iter().enumerate() {
        match is_answer {
            false => place[*i].0 = at,
            true => place[*i].1 = at,
        }
    }
    let must = operations.iter().filter(|o| o.answered.is_some()).count();
    let (mut done, mut register) = (vec![0_u64; operations.len().div_ceil(64)], 0);
    let mut tried: HashSet<(Vec<u64>, i64)> = HashSet::new();
    let mut stack: Vec<(usize, i64)> = Vec::new();
    let mut answered = 0;
    let mut at = row.first();
    while answered < must {
        if let Some((_, false, i)) = times.get(at) {
            let o = &operations[*i];
            let after = o.what.on(register).filter(|after| {
                let mut with = done.clone();
                with[i / 64] |= 1 << (i % 64);
                tried.insert((with, *after))
            });
            let Some(after) = after else {
                at = row.next[at];
                continue;
            };
            stack.push((*i, register));
            done[i / 64] |= 1 << (i % 64);
            register = after;
            answered += usize::from(o.answered.is_some());
            row.take_out(place[*i].0);
            row.take_out(place[*i].1);
            at = row.first();
            continue;
        }
        // This is the end, or the reply of an operation that has not taken effect yet. So the last operation
        // that did must not take effect here.
        let Some((i, was)) = stack.pop() else {
            return false;
        };
        register = was;
        done[i / 64] &= !(1 << (i % 64));
        answered -= usize::from(operations[i].answered.is_some());
        row.put_back(place[i].1);
        row.put_back(place[i].0);
        at = row.next[place[i].0];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::What::{Kept, Read, Swapped, Write};
    use super::*;

    fn check(all: &[(u64, u64, What)]) -> bool {
        let one = |(called, answered, what): &(u64, u64, What)| Operation {
            called: *called,
            answered: Some(*answered).filter(|at| *at > 0),
            what: *what,
        };
        is_linearizable(&all.iter().map(one).collect::<Vec<_>>())
    }

    #[test]
    fn short_histories_are_judged() {
        assert!(check(&[]));
        assert!(check(&[(1, 2, Read(0)), (3, 4, Write(7)), (5, 6, Read(7))]));
        // The read is stale.
        assert!(!check(&[(1, 2, Write(7)), (3, 4, Read(0))]));
        // Either of two simultaneous operations may come first, but not both.
        assert!(check(&[(1, 4, Write(7)), (2, 3, Read(0))]));
        assert!(check(&[(1, 4, Write(7)), (2, 3, Read(7))]));
        assert!(!check(&[
            (1, 9, Write(7)),
            (2, 3, Read(7)),
            (4, 5, Read(0))
        ]));
        // An operation without a reply may have happened late, or never.
        assert!(check(&[(1, 0, Write(7)), (2, 3, Read(0)), (4, 5, Read(7))]));
        assert!(check(&[(1, 0, Write(7)), (2, 3, Read(0)), (4, 5, Read(0))]));
        assert!(!check(&[
            (1, 0, Write(7)),
            (2, 3, Read(7)),
            (4, 5, Read(0))
        ]));
        assert!(!check(&[(4, 0, Write(7)), (2, 3, Read(7))]));
        assert!(check(&[
            (1, 2, Swapped(0, 3)),
            (3, 4, Kept(0)),
            (5, 6, Swapped(3, 4))
        ]));
        assert!(!check(&[(1, 2, Swapped(0, 3)), (3, 4, Swapped(0, 4))]));
        assert!(!check(&[(1, 2, Write(3)), (3, 4, Kept(3))]));
    }

    /// There are many simultaneous operations, with only one correct order.
    #[test]
    fn long_histories_of_many_clients_are_judged() {
        let all = |stale: bool| {
            let mut all: Vec<(u64, u64, What)> = Vec::new();
            for i in 0..300_i64 {
                let at = i as u64 * 10 + 100;
                all.push((at - 45, at + 45, Swapped(i, i + 1)));
                all.push((at + 1, at + 3, Read(i + 1)));
            }
            if stale {
                all.push((2000, 2001, Read(150)));
            }
            all
        };
        assert!(check(&all(false)));
        assert!(!check(&all(true)));
    }
}
