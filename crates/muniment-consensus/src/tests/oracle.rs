//! The invariants, which are checked after every step of the simulator.

use crate::MemberId;
use crate::tests::node::{Node, Record};
use std::collections::{BTreeMap, BTreeSet};

type Found = Result<(), String>;

#[derive(Default)]
pub(crate) struct Oracle {
    /// The leader of each term.
    leaders: BTreeMap<u64, MemberId>,
    /// The committed records, from place 1 on.
    pub committed: Vec<Record>,
    /// The only record with a given place and term.
    records: BTreeMap<(u64, u64), Record>,
    /// The members that ever had a record, and those that had it durably.
    had: BTreeMap<(u64, u64), (BTreeSet<MemberId>, BTreeSet<MemberId>)>,
    /// How far each member's log has been checked: place and term, and the durable place.
    seen: BTreeMap<MemberId, ((u64, u64), u64)>,
    /// How much was committed when each read began.
    reads: BTreeMap<u64, u64>,
}

impl Oracle {
    fn committed(&self, index: u64) -> Option<&Record> {
        self.committed.get(index.checked_sub(1)? as usize)
    }

    /// Checks and notes the new records of a member's log. Two records with the same place and term are
    /// equal.
    pub(crate) fn look(&mut self, node: &Node) -> Found {
        let end = (node.last(), node.log.back().map_or(0, |r| r.term));
        let ((last, term), durable) = self.seen.get(&node.id).copied().unwrap_or_default();
        let goes_on = node.record(last).is_some_and(|r| r.term == term);
        let from = if goes_on { last + 1 } else { node.base + 1 };
        for index in from..=node.last() {
            let Some(record) = node.record(index) else {
                continue;
            };
            let place = (index, record.term);
            let known = self.records.entry(place).or_insert_with(|| record.clone());
            if known != record {
                return Err(format!("member {}: {record} is elsewhere {known}", node.id));
            }
            self.had.entry(place).or_default().0.insert(node.id);
        }
        let from = if goes_on { durable + 1 } else { node.base + 1 };
        for index in from..=node.durable {
            if let Some(record) = node.record(index) {
                let place = (index, record.term);
                self.had.entry(place).or_default().1.insert(node.id);
            }
        }
        self.seen.insert(node.id, (end, node.durable));
        Ok(())
    }

    /// Checks that a term has one leader, which has everything that is committed.
    pub(crate) fn elected(&mut self, node: &Node, term: u64) -> Found {
        let leader = *self.leaders.entry(term).or_insert(node.id);
        if leader != node.id {
            return Err(format!("{leader} and {} both lead in term {term}", node.id));
        }
        for record in self.committed.iter().skip(node.base as usize) {
            if node.record(record.index) != Some(record) {
                return Err(format!(
                    "{} leads in term {term} without {record}, which is committed",
                    node.id
                ));
            }
        }
        Ok(())
    }

    /// Checks that logs are equal up to the commit point.
    pub(crate) fn commits(&mut self, id: MemberId, records: Vec<Record>) -> Found {
        for record in records {
            match self.committed(record.index) {
                Some(known) if *known == record => {}
                Some(known) => return Err(format!("{id} commits {record}, not {known}")),
                None if record.index == self.committed.len() as u64 + 1 => {
                    self.committed.push(record);
                }
                None => return Err(format!("{id} commits {record} beyond a gap")),
            }
        }
        Ok(())
    }

    /// Checks that no committed record is given up.
    pub(crate) fn gave_up(&self, id: MemberId, records: &[Record]) -> Found {
        let lost = records.iter().find(|r| self.committed(r.index) == Some(*r));
        match lost {
            Some(record) => Err(format!("{id} gave up {record}, which is committed")),
            None => Ok(()),
        }
    }

    /// Checks that a write for which a client waited for two members was at two members.
    pub(crate) fn acknowledged(&self, index: u64, term: u64, journaled: bool) -> Found {
        if self.committed(index).is_some_and(|r| r.term == term) {
            // A member that was synced anew has the write as part of its copy, which `had` does not note.
            return Ok(());
        }
        let had = self.had.get(&(index, term));
        let members = had.map_or(0, |(had, durable)| match journaled {
            true => durable.len(),
            false => had.len(),
        });
        match members >= 2 {
            true => Ok(()),
            false => Err(format!(
                "{index}/{term} was acknowledged and is at {members} members"
            )),
        }
    }

    /// Notes that a linearizable read begins.
    pub(crate) fn asks(&mut self, token: u64) {
        self.reads.insert(token, self.committed.len() as u64);
    }

    /// Checks that a read sees everything that was committed before it began.
    pub(crate) fn read(&self, token: u64, index: u64) -> Found {
        match self.reads.get(&token) {
            Some(before) if index < *before => Err(format!(
                "a read sees {index}, but {before} was committed before it"
            )),
            _ => Ok(()),
        }
    }
}
