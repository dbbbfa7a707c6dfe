//! The promise of an acknowledgement on a set, whichever member is crashed or cut off. A write is
//! never undone if so many voters have it that every majority contains one of them: a member is
//! only elected by a majority, and no voter votes for a member that has less than itself. Any other
//! write may be undone, but it must leave a trace. Pure functions.

use super::judge::Promise;
use crate::topology::floors::{Layout, Place};
use muniment_value::Doc;
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest time by which a majority may lag after the primary. MongoDB's manual, "flow
/// control": `flowControlTargetLagSeconds` is 10.
pub(crate) const LAG: Duration = Duration::from_secs(10);
/// Up to so many members, every combination of them is tried.
const MOST: usize = 12;

/// The promise of a write concern on a set whose members are killed or cut off from each other.
pub(crate) fn promise(layout: &Layout, concern: Doc<'_>) -> Promise {
    match least_voters(layout, concern) {
        // If the voters without the write were a majority, they could elect a primary without it.
        Some(n) if n + layout.majority() > layout.voters => Promise::NothingLost,
        Some(_) => Promise::Undone(LAG),
        None => Promise::Unknown,
    }
}

/// The least number of voters that have a write when it is acknowledged. `None` if it is never
/// acknowledged, or if the number is not known.
fn least_voters(layout: &Layout, concern: Doc<'_>) -> Option<usize> {
    let without_vote = layout.places.iter().filter(|p| !p.votes).count();
    let Some(w) = concern.get("w") else {
        return Some(1);
    };
    match w.as_str() {
        None => {
            let n = usize::try_from(w.as_i64_exact()?).ok()?;
            // The primary has the write and votes; the other members that have it may be those
            // without a vote.
            (n <= layout.places.len()).then(|| n.saturating_sub(without_vote).max(1))
        }
        Some("majority") => Some(layout.majority()),
        Some(mode) => {
            let wanted = layout.modes.get(mode)?;
            let n = layout.places.len();
            if n > MOST {
                return None;
            }
            let sets = (0..1u32 << n).map(|mask| {
                let all = layout.places.iter().enumerate();
                all.filter(move |(i, _)| mask >> i & 1 == 1).map(|p| p.1)
            });
            sets.filter(|set| satisfied(set.clone(), wanted))
                .map(|set| set.filter(|p| p.votes).count())
                .min()
        }
    }
}

/// Whether these members have as many different values of each tag as the mode wants.
fn satisfied<'a>(set: impl Iterator<Item = &'a Place> + Clone, wanted: &[(String, usize)]) -> bool {
    wanted.iter().all(|(tag, n)| {
        let tags = set.clone().flat_map(|p| &p.tags);
        let values: BTreeSet<&str> = tags
            .filter(|(name, _)| name == tag)
            .map(|(_, value)| value.as_str())
            .collect();
        values.len() >= *n
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Preset;
    use crate::topology::shape::Shape;
    use muniment_value::{DocBuf, array, doc};

    fn layout(shape: &Shape) -> Layout {
        let addresses: Vec<String> = (1..=shape.centres.len())
            .map(|p| format!("h:{p}"))
            .collect();
        Layout::of(shape.config(&addresses).as_doc(), |_| Some(0.0))
    }

    fn promised(l: &Layout, concern: DocBuf) -> Promise {
        promise(l, concern.as_doc())
    }

    #[test]
    fn what_meets_every_majority_is_safe() {
        use Promise::{NothingLost, Undone};
        let undone = Undone(LAG);
        let three = layout(&Shape::side_by_side(3));
        let four = layout(&Shape::two_centres(Preset::Smoke));
        let five = layout(&Shape::side_by_side(5));
        for (l, w, want) in [
            (&three, doc! { "w": 0 }, undone),
            (&three, doc! { "w": 1 }, undone),
            (&three, doc! { "w": 1, "j": true }, undone),
            (&three, doc! { "j": true }, undone),
            (&three, doc! { "w": 2 }, NothingLost),
            (&three, doc! { "w": "majority" }, NothingLost),
            (&three, doc! { "w": "byTags" }, NothingLost),
            // A majority of four is three, and three members include at least one of any two.
            (&four, doc! { "w": 2 }, NothingLost),
            (&four, doc! { "w": "twoCentres" }, NothingLost),
            (&four, doc! { "w": "onePerCentre" }, NothingLost),
            (&five, doc! { "w": 2 }, undone),
            (&five, doc! { "w": 3 }, NothingLost),
            (&five, doc! { "w": "byTags" }, NothingLost),
            (&five, doc! { "w": 6 }, Promise::Unknown),
            (&five, doc! { "w": "nowhere" }, Promise::Unknown),
        ] {
            assert_eq!(promised(l, w.clone()), want, "{} voters, {w:?}", l.voters);
        }
    }

    #[test]
    fn who_has_no_vote_does_not_help() {
        let members = array![
            doc! { "host": "a:1", "tags": doc! { "use": "db" } },
            doc! { "host": "b:1" },
            doc! { "host": "c:1" },
            doc! { "host": "d:1", "votes": 0, "tags": doc! { "use": "backup" } }
        ];
        let modes = doc! { "copied": doc! { "use": 2 } };
        let settings = doc! { "getLastErrorModes": modes };
        let config = doc! { "members": members, "settings": settings };
        let l = Layout::of(config.as_doc(), |_| Some(0.0));
        // The second member that acknowledges may be the backup, which has no vote.
        assert_eq!(promised(&l, doc! { "w": 2 }), Promise::Undone(LAG));
        assert_eq!(promised(&l, doc! { "w": 3 }), Promise::NothingLost);
        assert_eq!(promised(&l, doc! { "w": "copied" }), Promise::Undone(LAG));
    }
}
