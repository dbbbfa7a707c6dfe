//! Checks isolation. Transactions append numbers to lists and read the lists, and the lists that they read
//! show in which order the transactions took effect.
//!
//! The anomalies are Adya's, with Elle's names for list-append: G0 (interleaved writes), G1a (a read of an
//! aborted write), G1b (a read of an intermediate write), G1c (a circle of writes and reads), G-single (a
//! circle with one read that misses a later write: read skew and lost updates). A circle with two such reads,
//! write skew, is allowed by snapshot isolation and counted. (Kingsbury and Alvaro, "Elle: inferring
//! isolation anomalies from experimental observations", VLDB 2020.)

use std::collections::{BTreeMap, HashMap, HashSet};

/// The steps of a transaction, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appended a number to a key's list. No number is appended twice.
    Append(i64, i64),
    /// Read this list.
    Read(i64, Vec<i64>),
}

/// The end of a transaction, as far as the client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server replied that it was committed.
    Committed,
    /// The server replied that it was not, or the client never asked for it.
    Aborted,
    /// The client asked and got no reply.
    Unknown,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The way in which it ended.
    pub fate: Fate,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// The result of the check.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The forbidden anomalies, one per line.
    pub anomalies: Vec<String>,
    /// The number of circles that snapshot isolation allows.
    pub write_skews: usize,
    /// The number of committed transactions.
    pub committed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Edge {
    /// The second transaction wrote right after the first one's write.
    WriteWrite,
    /// The second transaction read a write of the first one.
    WriteRead,
    /// The second transaction wrote something that the first one did not see.
    ReadWrite,
}

/// Checks a history. `last` has all lists at the end.
pub fn judge(history: &[Transaction], last: &BTreeMap<i64, Vec<i64>>) -> Verdict {
    let mut found = Verdict::default();
    let committed = fates(history, last, &mut found);
    found.committed = committed.iter().filter(|c| **c).count();
    let mut judge = Judge {
        last,
        committed,
        writer: HashMap::new(),
        final_append: HashSet::new(),
        edges: HashMap::new(),
        found,
    };
    judge.note_writers(history);
    judge.check_lists();
    judge.order_writes();
    for (t, transaction) in history.iter().enumerate() {
        judge.check_reads(t, transaction);
    }
    circles(&judge.edges, &mut judge.found);
    judge.found
}

/// What is known of a history while it is judged. Transactions are named by their places in it.
struct Judge<'a> {
    /// The lists at the end.
    last: &'a BTreeMap<i64, Vec<i64>>,
    committed: Vec<bool>,
    /// The transaction that wrote each value, by key and value.
    writer: HashMap<(i64, i64), usize>,
    /// The last append of each transaction to each key.
    final_append: HashSet<(i64, i64)>,
    edges: HashMap<usize, HashSet<(usize, Edge)>>,
    found: Verdict,
}

impl Judge<'_> {
    fn note_writers(&mut self, history: &[Transaction]) {
        for (t, transaction) in history.iter().enumerate() {
            let mut newest: HashMap<i64, i64> = HashMap::new();
            for step in &transaction.steps {
                if let Step::Append(key, n) = step {
                    self.writer.insert((*key, *n), t);
                    newest.insert(*key, *n);
                }
            }
            self.final_append.extend(newest);
        }
    }

    fn is_committed(&self, t: usize) -> bool {
        self.committed.get(t).copied().unwrap_or(false)
    }

    fn report(&mut self, anomaly: String) {
        self.found.anomalies.push(anomaly);
    }

    fn edge(&mut self, from: usize, to: usize, kind: Edge) {
        if from != to {
            self.edges.entry(from).or_default().insert((to, kind));
        }
    }

    /// Each number in a list must be there once, and by a committed transaction.
    fn check_lists(&mut self) {
        for (key, list) in self.last {
            let mut seen = HashSet::new();
            for n in list {
                if !seen.insert(n) {
                    self.report(format!("twice: {n} in list {key}"));
                }
                match self.writer.get(&(*key, *n)) {
                    None => self.report(format!("never written: {n} in list {key}")),
                    Some(t) if !self.is_committed(*t) => {
                        self.report(format!("aborted but stored: {n} in list {key}"));
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Neighbours in a list show in which order their transactions wrote.
    fn order_writes(&mut self) {
        for (key, list) in self.last {
            for pair in list.windows(2) {
                if let [a, b] = pair
                    && let Some(a) = self.writer.get(&(*key, *a)).copied()
                    && let Some(b) = self.writer.get(&(*key, *b)).copied()
                {
                    self.edge(a, b, Edge::WriteWrite);
                }
            }
        }
    }

    /// Each read must show the transaction's own appends after a list that stays the same.
    fn check_reads(&mut self, t: usize, transaction: &Transaction) {
        let mut own: HashMap<i64, Vec<i64>> = HashMap::new();
        let mut before: HashMap<i64, Vec<i64>> = HashMap::new();
        for step in &transaction.steps {
            let (key, list) = match step {
                Step::Append(key, n) => {
                    own.entry(*key).or_default().push(*n);
                    continue;
                }
                Step::Read(key, list) => (*key, list),
            };
            let mine = own.get(&key).map_or(&[][..], |v| v);
            let Some(others) = list.strip_suffix(mine) else {
                self.report(format!(
                    "internal: transaction {t} read {list:?} of list {key} after it had appended {mine:?}"
                ));
                continue;
            };
            if let Some(was) = before.insert(key, others.to_vec())
                && was != others
            {
                self.report(format!(
                    "a view that changed: transaction {t} read {was:?} and {others:?} of list {key}"
                ));
            }
            self.check_read(t, key, others);
        }
    }

    /// What a transaction read of others must be the begin of the list, up to the end of a transaction.
    fn check_read(&mut self, t: usize, key: i64, others: &[i64]) {
        let order = self.last.get(&key).map_or(&[][..], |v| v);
        if !order.starts_with(others) {
            let aborted = others.iter().find(|n| {
                let writer = self.writer.get(&(key, **n));
                writer.is_some_and(|w| !self.is_committed(*w))
            });
            self.report(match aborted {
                Some(n) => {
                    format!("G1a: transaction {t} read {n} of list {key}, which was aborted")
                }
                None => format!(
                    "order: transaction {t} read {others:?} of list {key}, which is {order:?}"
                ),
            });
            return;
        }
        if let Some(n) = others.last()
            && !self.final_append.contains(&(key, *n))
        {
            self.report(format!(
                "G1b: transaction {t} read list {key} up to {n}, in the middle of a transaction"
            ));
        }
        // A transaction that was not committed has no place in the order.
        if !self.is_committed(t) {
            return;
        }
        let writer = |n: Option<&i64>| self.writer.get(&(key, *n?)).copied();
        let (newest, next) = (writer(others.last()), writer(order.get(others.len())));
        if let Some(w) = newest {
            self.edge(w, t, Edge::WriteRead);
        }
        if let Some(w) = next {
            self.edge(t, w, Edge::ReadWrite);
        }
    }
}

/// Which transactions were committed. One with an unknown outcome was, if any of its effects exist, and then
/// all of them must.
fn fates(
    history: &[Transaction],
    last: &BTreeMap<i64, Vec<i64>>,
    found: &mut Verdict,
) -> Vec<bool> {
    let stored: HashSet<(i64, i64)> = last
        .iter()
        .flat_map(|(key, list)| list.iter().map(|n| (*key, *n)))
        .collect();
    let one = |(t, transaction): (usize, &Transaction)| {
        let appends: Vec<_> = transaction
            .steps
            .iter()
            .filter_map(|s| match s {
                Step::Append(key, n) => Some((*key, *n)),
                Step::Read(..) => None,
            })
            .collect();
        let there = appends.iter().filter(|a| stored.contains(a)).count();
        match transaction.fate {
            Fate::Aborted => false,
            Fate::Committed => {
                for (key, n) in appends.iter().filter(|a| !stored.contains(a)) {
                    let line = format!("lost: {n} of list {key}, committed by transaction {t}");
                    found.anomalies.push(line);
                }
                true
            }
            Fate::Unknown if there == 0 => false,
            Fate::Unknown => {
                if there < appends.len() {
                    let line = format!(
                        "half: {there} of {} appends of transaction {t}",
                        appends.len()
                    );
                    found.anomalies.push(line);
                }
                true
            }
        }
    };
    history.iter().enumerate().map(one).collect()
}

/// Finds circles, classified by the strongest edges that they need.
fn circles(edges: &HashMap<usize, HashSet<(usize, Edge)>>, found: &mut Verdict) {
    for group in components(edges) {
        let members: HashSet<usize> = group.iter().copied().collect();
        let next = |t: usize, allowed: &[Edge]| -> Vec<usize> {
            let all = edges.get(&t).into_iter().flatten();
            all.filter(|(to, kind)| members.contains(to) && allowed.contains(kind))
                .map(|(to, _)| *to)
                .collect()
        };
        let reaches = |from: usize, to: usize, allowed: &[Edge]| {
            let (mut seen, mut todo) = (HashSet::new(), vec![from]);
            while let Some(t) = todo.pop() {
                if t == to {
                    return true;
                }
                if seen.insert(t) {
                    todo.extend(next(t, allowed));
                }
            }
            false
        };
        const WRITES: &[Edge] = &[Edge::WriteWrite];
        const KNOWN: &[Edge] = &[Edge::WriteWrite, Edge::WriteRead];
        let mut name = None;
        for (from, first, rest, what) in group.iter().flat_map(|t| {
            [
                (*t, WRITES, WRITES, "G0"),
                (*t, KNOWN, KNOWN, "G1c"),
                (*t, &[Edge::ReadWrite][..], KNOWN, "G-single"),
            ]
        }) {
            let closes = next(from, first)
                .into_iter()
                .any(|to| reaches(to, from, rest));
            if closes && name.is_none_or(|n| what < n) {
                name = Some(what);
            }
        }
        match name {
            Some(name) => {
                let line = format!("{name}: a circle of transactions {group:?}");
                found.anomalies.push(line);
            }
            None => found.write_skews += 1,
        }
    }
}

/// The strongly connected components of more than one node (Tarjan's, without recursion).
fn components(edges: &HashMap<usize, HashSet<(usize, Edge)>>) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy)]
    struct Seen {
        index: usize,
        low: usize,
        on_stack: bool,
    }
    let targets =
        |t: usize| -> Vec<usize> { edges.get(&t).into_iter().flatten().map(|e| e.0).collect() };
    let mut seen: HashMap<usize, Seen> = HashMap::new();
    let (mut stack, mut groups) = (Vec::new(), Vec::new());
    let mut roots: Vec<usize> = edges.keys().copied().collect();
    roots.sort_unstable();
    for root in roots {
        if seen.contains_key(&root) {
            continue;
        }
        let mut work = vec![(root, targets(root), 0_usize)];
        while let Some((node, all, at)) = work.last_mut() {
            let node = *node;
            if *at == 0 {
                let index = seen.len();
                let fresh = Seen {
                    index,
                    low: index,
                    on_stack: true,
                };
                seen.insert(node, fresh);
                stack.push(node);
            }
            if let Some(to) = all.get(*at).copied() {
                *at += 1;
                match seen.get(&to).copied() {
                    None => work.push((to, targets(to), 0)),
                    Some(other) if other.on_stack => {
                        if let Some(own) = seen.get_mut(&node) {
                            own.low = own.low.min(other.index);
                        }
                    }
                    Some(_) => {}
                }
                continue;
            }
            work.pop();
            let own = seen[&node];
            if let Some((above, _, _)) = work.last()
                && let Some(above) = seen.get_mut(above)
            {
                above.low = above.low.min(own.low);
            }
            if own.low == own.index {
                let mut group = Vec::new();
                while let Some(t) = stack.pop() {
                    if let Some(s) = seen.get_mut(&t) {
                        s.on_stack = false;
                    }
                    group.push(t);
                    if t == node {
                        break;
                    }
                }
                if group.len() > 1 {
                    group.sort_unstable();
                    groups.push(group);
                }
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::Step::{Append, Read};
    use super::*;

    fn committed(steps: &[Step]) -> Transaction {
        Transaction {
            fate: Fate::Committed,
            steps: steps.to_vec(),
        }
    }

    fn check(history: &[Transaction], last: &[(i64, &[i64])]) -> Verdict {
        let last = last.iter().map(|(k, l)| (*k, l.to_vec())).collect();
        judge(history, &last)
    }

    fn names(v: &Verdict) -> Vec<&str> {
        let name = |a: &String| a.len().min(a.find(':').unwrap_or(a.len()));
        v.anomalies.iter().map(|a| &a[..name(a)]).collect()
    }

    #[test]
    fn a_serial_history_is_clean() {
        let history = [
            committed(&[Append(1, 1), Append(2, 1)]),
            committed(&[Read(1, vec![1]), Append(1, 2), Read(1, vec![1, 2])]),
            committed(&[Read(2, vec![1]), Read(1, vec![1, 2])]),
        ];
        let v = check(&history, &[(1, &[1, 2]), (2, &[1])]);
        assert!(v.anomalies.is_empty() && v.write_skews == 0, "{v:?}");
        assert_eq!(v.committed, 3);
    }

    #[test]
    fn write_skew_is_allowed_and_counted() {
        let history = [
            committed(&[Read(1, vec![]), Read(2, vec![]), Append(1, 1)]),
            committed(&[Read(1, vec![]), Read(2, vec![]), Append(2, 2)]),
        ];
        let v = check(&history, &[(1, &[1]), (2, &[2])]);
        assert!(v.anomalies.is_empty() && v.write_skews == 1, "{v:?}");
    }

    #[test]
    fn every_anomaly_is_found() {
        let aborted = |steps: &[Step]| Transaction {
            fate: Fate::Aborted,
            steps: steps.to_vec(),
        };
        let unknown = |steps: &[Step]| Transaction {
            fate: Fate::Unknown,
            steps: steps.to_vec(),
        };
        type Case<'a> = (&'a str, Vec<Transaction>, Vec<(i64, &'a [i64])>);
        let cases: Vec<Case<'_>> = vec![
            (
                "G0",
                vec![
                    committed(&[Append(1, 1), Append(2, 1)]),
                    committed(&[Append(1, 2), Append(2, 2)]),
                ],
                vec![(1, &[1, 2]), (2, &[2, 1])],
            ),
            (
                "G1a",
                vec![aborted(&[Append(1, 1)]), committed(&[Read(1, vec![1])])],
                vec![(1, &[])],
            ),
            (
                "G1b",
                vec![
                    committed(&[Append(1, 1), Append(1, 2)]),
                    committed(&[Read(1, vec![1])]),
                ],
                vec![(1, &[1, 2])],
            ),
            (
                "G1c",
                vec![
                    committed(&[Append(1, 1), Read(2, vec![2])]),
                    committed(&[Append(2, 2), Read(1, vec![1])]),
                ],
                vec![(1, &[1]), (2, &[2])],
            ),
            (
                // This is a read skew.
                "G-single",
                vec![
                    committed(&[Append(1, 1), Append(2, 1)]),
                    committed(&[Read(1, vec![]), Read(2, vec![1])]),
                ],
                vec![(1, &[1]), (2, &[1])],
            ),
            (
                // This is a lost update: both read the same and then wrote.
                "G-single",
                vec![
                    committed(&[Read(1, vec![]), Append(1, 1)]),
                    committed(&[Read(1, vec![]), Append(1, 2)]),
                ],
                vec![(1, &[1, 2])],
            ),
            ("lost", vec![committed(&[Append(1, 1)])], vec![(1, &[])]),
            (
                "half",
                vec![unknown(&[Append(1, 1), Append(2, 1)])],
                vec![(1, &[1]), (2, &[])],
            ),
            (
                "aborted but stored",
                vec![aborted(&[Append(1, 1)])],
                vec![(1, &[1])],
            ),
            (
                "twice",
                vec![committed(&[Append(1, 1)])],
                vec![(1, &[1, 1])],
            ),
            (
                "internal",
                vec![committed(&[Append(1, 1), Read(1, vec![])])],
                vec![(1, &[1])],
            ),
            (
                "a view that changed",
                vec![
                    committed(&[Read(1, vec![]), Read(1, vec![1])]),
                    committed(&[Append(1, 1)]),
                ],
                vec![(1, &[1])],
            ),
        ];
        for (name, history, last) in cases {
            let v = check(&history, &last);
            assert!(names(&v).contains(&name), "{name}: {v:?}");
        }
    }
}
