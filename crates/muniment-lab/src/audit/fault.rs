//! What happens to a set of the lab's own in the middle of the writes. Pure functions.

use crate::topology::cluster::Way;
use muniment_load::fail::{Failure, Result};

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The primary is killed.
    KillPrimary,
    /// The primary is killed, and so many others that no majority is left.
    KillMajority,
    /// All members are killed.
    KillAll,
    /// The primary is cut off from all others.
    CutPrimary,
    /// The primary still hears the others, which do not hear it.
    CutPrimaryOut,
    /// The others still hear the primary, which does not hear them.
    CutPrimaryIn,
    /// The primary is cut off together with as many others as are no majority.
    CutMajority,
    /// The primary stands still for longer than the others wait for it, and then goes on as if nothing
    /// had been.
    FreezePrimary,
}

impl Fault {
    /// All of them.
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

    /// As the command line names it.
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

    /// As the table names it.
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

    /// Those of a list of words.
    ///
    /// # Errors
    /// A word that is none, or is there twice.
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

    /// Whether a primary that is there goes on until it notices.
    pub(crate) fn lingers(self) -> bool {
        !matches!(
            self,
            Fault::KillPrimary | Fault::KillMajority | Fault::KillAll
        )
    }

    /// What is done to a set of so many members.
    pub(crate) fn steps(self, members: usize, primary: usize) -> Steps {
        let others: Vec<usize> = (0..members).filter(|m| *m != primary).collect();
        let majority = members / 2 + 1;
        // The members that are hit along with the primary.
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

/// What is done, and which members can go on meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Killed at once.
    pub killed: Vec<usize>,
    /// Stopped, and continued when the others have had time to elect a primary.
    pub frozen: Vec<usize>,
    /// Cut off from all others, in this way (there: from them to the others).
    pub cut: Option<(Vec<usize>, Way)>,
    /// The members that can elect a new primary while it lasts; none where there is no majority.
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
                    // The members cut off with the primary are no majority, so that it must step down.
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
