//! The faults that hit a set of the lab's own in the middle of the writes. Pure functions.

use crate::topology::cluster::Way;
use muniment_load::fail::{Failure, Result};

/// A fault of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The primary is killed.
    KillPrimary,
    /// The primary is killed, together with so many others that no majority is left.
    KillMajority,
    /// All members are killed.
    KillAll,
    /// The primary is cut off from all others.
    CutPrimary,
    /// The primary still hears the others, which do not hear it.
    CutPrimaryOut,
    /// The others still hear the primary, which does not hear them.
    CutPrimaryIn,
    /// The primary is cut off together with other members; together they are no majority.
    CutMajority,
    /// The primary is stopped for longer than the others wait for it before they elect another, and
    /// then continues without knowing that time has passed.
    FreezePrimary,
}

impl Fault {
    pub(crate) const ALL: [Fault; 8] = [
        Fault::KillPrimary,
        Fault::KillMajority,
        Fault::KillAll,
        Fault::CutPrimary,
        Fault::CutPrimaryOut,
        Fault::CutPrimaryIn,
        Fault::CutMajority,
        Fault::FreezePrimary,
    ];

    /// The fault's word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Fault::KillPrimary => "kill-primary",
            Fault::KillMajority => "kill-majority",
            Fault::KillAll => "kill-all",
            Fault::CutPrimary => "cut-primary",
            Fault::CutPrimaryOut => "cut-primary-out",
            Fault::CutPrimaryIn => "cut-primary-in",
            Fault::CutMajority => "cut-majority",
            Fault::FreezePrimary => "freeze-primary",
        }
    }

    /// The fault's name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::KillPrimary => "primary killed",
            Fault::KillMajority => "majority killed",
            Fault::KillAll => "all killed",
            Fault::CutPrimary => "primary cut off",
            Fault::CutPrimaryOut => "primary not heard",
            Fault::CutPrimaryIn => "primary deaf",
            Fault::CutMajority => "majority cut off",
            Fault::FreezePrimary => "primary frozen",
        }
    }

    /// Parses a list of words.
    ///
    /// # Errors
    /// A word names no fault, or stands in the list twice.
    pub(crate) fn list(text: &str) -> Result<Vec<Fault>> {
        let mut all: Vec<Fault> = Vec::new();
        for word in text.split(',') {
            let known = Fault::ALL.into_iter().find(|f| f.word() == word);
            let fault = known.filter(|f| !all.contains(f)).ok_or_else(|| {
                let words: Vec<_> = Fault::ALL.iter().map(|f| f.word()).collect();
                Failure(format!(
                    "--faults {text}: '{word}': there are {}, each once",
                    words.join(", ")
                ))
            })?;
            all.push(fault);
        }
        Ok(all)
    }

    /// Whether the old primary still runs after the fault and takes writes until it notices.
    pub(crate) fn lingers(self) -> bool {
        !matches!(
            self,
            Fault::KillPrimary | Fault::KillMajority | Fault::KillAll
        )
    }

    /// The steps that bring this fault about in a set of so many members.
    pub(crate) fn steps(self, members: usize, primary: usize) -> Steps {
        let others: Vec<usize> = (0..members).filter(|m| *m != primary).collect();
        let majority = members / 2 + 1;
        // The members that are hit together with the primary.
        let along = |count: usize| others.iter().copied().take(count);
        let mut steps = Steps::default();
        match self {
            Fault::KillPrimary => steps.killed = vec![primary],
            Fault::KillMajority => {
                steps.killed = vec![primary];
                steps.killed.extend(along(members - majority));
            }
            Fault::KillAll => steps.killed = (0..members).collect(),
            Fault::CutPrimary => steps.cut = Some((vec![primary], Way::Both)),
            Fault::CutPrimaryOut => steps.cut = Some((vec![primary], Way::There)),
            Fault::CutPrimaryIn => steps.cut = Some((vec![primary], Way::Back)),
            Fault::CutMajority => {
                let mut side = vec![primary];
                side.extend(along(members - majority - 1));
                steps.cut = Some((side, Way::Both));
            }
            Fault::FreezePrimary => steps.frozen = vec![primary],
        }
        let lost = |m: &usize| {
            let cut = steps.cut.as_ref().is_some_and(|(side, _)| side.contains(m));
            cut || steps.killed.contains(m) || steps.frozen.contains(m)
        };
        let left: Vec<usize> = (0..members).filter(|m| !lost(m)).collect();
        if left.len() >= majority {
            steps.electors = left;
        }
        steps
    }
}

/// The steps of a fault, and the members that can carry on meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Members that are killed at once.
    pub killed: Vec<usize>,
    /// Members that are stopped, and continued after the others have had time to elect a primary.
    pub frozen: Vec<usize>,
    /// Members that are cut off from all others, and the direction (forward is from them to the
    /// others).
    pub cut: Option<(Vec<usize>, Way)>,
    /// The members that can elect a new primary during the fault; empty if they are no majority.
    pub electors: Vec<usize>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn steps(f: Fault, members: usize, primary: usize) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let s = f.steps(members, primary);
        (s.killed, s.cut.map(|c| c.0).unwrap_or_default(), s.electors)
    }

    #[test]
    fn who_is_hit_and_who_can_go_on() {
        use Fault::*;
        for (fault, members, primary, killed, cut, electors) in [
            (KillPrimary, 3, 1, vec![1], vec![], vec![0, 2]),
            (KillMajority, 3, 1, vec![1, 0], vec![], vec![]),
            (KillMajority, 4, 0, vec![0, 1], vec![], vec![]),
            (KillMajority, 5, 4, vec![4, 0, 1], vec![], vec![]),
            (KillAll, 3, 2, vec![0, 1, 2], vec![], vec![]),
            (CutPrimary, 3, 0, vec![], vec![0], vec![1, 2]),
            (CutMajority, 3, 0, vec![], vec![0], vec![1, 2]),
            (CutMajority, 4, 3, vec![], vec![3], vec![0, 1, 2]),
            (CutMajority, 5, 2, vec![], vec![2, 0], vec![1, 3, 4]),
            (CutMajority, 7, 0, vec![], vec![0, 1, 2], vec![3, 4, 5, 6]),
        ] {
            let want = (killed, cut, electors);
            assert_eq!(steps(fault, members, primary), want, "{fault:?}");
        }
        assert_eq!(CutPrimaryOut.steps(3, 0).cut.unwrap().1, Way::There);
        assert_eq!(CutPrimaryIn.steps(3, 0).cut.unwrap().1, Way::Back);
    }

    #[test]
    fn every_fault_takes_the_primary_and_nobody_elects_without_a_majority() {
        for fault in Fault::ALL {
            for members in 3..=7 {
                for primary in 0..members {
                    let s = fault.steps(members, primary);
                    let hit = |m| {
                        let cut = s.cut.as_ref().is_some_and(|c| c.0.contains(&m));
                        cut || s.killed.contains(&m) || s.frozen.contains(&m)
                    };
                    assert!(hit(primary));
                    assert!(s.electors.iter().all(|m| !hit(*m)));
                    let n = s.electors.len();
                    assert!(n == 0 || n > members / 2, "{fault:?} of {members}");
                    // The members that are cut off with the primary must be no majority, so that it
                    // has to step down.
                    assert!(s.cut.is_none_or(|c| c.0.len() < members - members / 2));
                }
            }
        }
    }

    #[test]
    fn words() {
        let all: Vec<_> = Fault::ALL.iter().map(|f| f.word()).collect();
        assert_eq!(Fault::list(&all.join(",")).unwrap(), Fault::ALL);
        for bad in ["kill", "kill-all,kill-all", ""] {
            let e = Fault::list(bad).unwrap_err().0;
            assert!(e.contains("there are kill-primary,"), "{e}");
        }
    }
}
