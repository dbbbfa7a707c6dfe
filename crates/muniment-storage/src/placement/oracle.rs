//! Placements after any course of moves, compared with a list of who owned what at which time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use muniment_value::array;
use std::collections::BTreeSet;

/// The keys that are looked at: each stands for the range up to the next one.
const CELLS: i32 = 10;

type Cells = BTreeSet<i32>;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: i32) -> i32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as i32
    }

    /// Some cells side by side.
    fn run(&mut self) -> Cells {
        let from = self.below(CELLS);
        (from..=from + self.below(CELLS - from)).collect()
    }
}

fn key() -> Arc<ShardKey> {
    Arc::new(ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap())
}

fn at(cell: i32) -> Vec<u8> {
    key().key_of(doc! { "a": cell }.as_doc()).unwrap()
}

fn time(n: u32) -> Timestamp {
    Timestamp::new(n, 0)
}

/// The last cell has no end.
fn ranges_of(cells: &Cells) -> Vec<Owned> {
    let end = |cell: i32| (cell + 1 < CELLS).then(|| at(cell + 1));
    join(cells.iter().map(|cell| (at(*cell), end(*cell))).collect()).unwrap()
}

fn cells_in(ranges: &[Owned]) -> Cells {
    (0..CELLS)
        .filter(|cell| holds(ranges, &at(*cell)))
        .collect()
}

/// What must be so.
struct Oracle {
    now: u32,
    version: u32,
    /// What was owned from each time on.
    history: Vec<(u32, Cells)>,
    foreign: Cells,
    /// When the rows of each cell were lost that may still be there, or were deleted.
    lost: Vec<(u32, i32)>,
    cleaned: u32,
    forgotten: u32,
    swept: u32,
    moving: Option<(Cells, bool)>,
}

impl Oracle {
    fn owned(&self, at: u32) -> &Cells {
        &self
            .history
            .iter()
            .rev()
            .find(|(from, _)| *from <= at)
            .unwrap()
            .1
    }

    fn told(&self, owned: &Cells) -> Placement {
        let version = Version::new(self.version, 0);
        let told = Placement::new(time(1), version, key(), ranges_of(owned), false).unwrap();
        told.as_of(time(self.now))
    }

    /// The configuration says what is owned.
    fn follow(&mut self, p: &Placement, owned: Cells) -> Placement {
        (self.now, self.version) = (self.now + 2, self.version + 1);
        let before = self.owned(self.now).clone();
        for cell in before.difference(&owned) {
            self.foreign.insert(*cell);
            self.lost.push((self.now, *cell));
        }
        for cell in owned.difference(&before) {
            self.foreign.remove(cell);
        }
        self.moving = None;
        self.history.push((self.now, owned.clone()));
        p.followed_by(self.told(&owned))
    }

    fn step(&mut self, p: Placement, dice: &mut Dice) -> Placement {
        let run = dice.run();
        let owned = self.owned(self.now).clone();
        let id = [dice.below(3) as u8; 16];
        match (dice.below(7), &self.moving) {
            (0, None) if run.is_disjoint(&owned) => {
                self.foreign.extend(&run);
                self.moving = Some((run.clone(), true));
                p.receiving(id, ranges_of(&run).remove(0)).unwrap()
            }
            (0, None) => {
                p.receiving(id, ranges_of(&run).remove(0)).unwrap_err();
                p
            }
            (1, None) if run.is_subset(&owned) => {
                self.moving = Some((run.clone(), false));
                p.giving(id, ranges_of(&run).remove(0)).unwrap()
            }
            (1, None) => {
                p.giving(id, ranges_of(&run).remove(0)).unwrap_err();
                p
            }
            (0 | 1, Some(_)) => {
                let other = [9; 16];
                p.receiving(other, ranges_of(&run).remove(0)).unwrap_err();
                p.giving(other, ranges_of(&run).remove(0)).unwrap_err();
                p
            }
            (2, Some((cells, arrives))) => {
                let owned = match arrives {
                    true => &owned | cells,
                    false => &owned - cells,
                };
                let p = if *arrives { p.completed() } else { p };
                self.follow(&p, owned)
            }
            (3, Some(_)) => {
                self.moving = None;
                p.still()
            }
            (4, _) => {
                let waste = p.waste_in(&ranges_of(&run).remove(0));
                let gone = cells_in(&waste);
                assert!(gone.is_subset(&run) && gone.is_subset(&self.foreign));
                let noted = p.cleaning(&waste);
                assert_eq!(cells_in(noted.foreign()), self.foreign);
                let newest = self
                    .lost
                    .iter()
                    .filter(|(_, cell)| gone.contains(cell))
                    .map(|(at, _)| *at)
                    .max();
                // It may be later than need be, for changes of whole ranges are remembered.
                assert!(noted.cleaned() >= time(newest.unwrap_or(0).max(self.cleaned)));
                assert!(
                    noted.cleaned() <= time(self.now)
                        && (!gone.is_empty() || noted.cleaned() == p.cleaned())
                );
                self.cleaned = self.cleaned.max(newest.unwrap_or(0));
                self.swept = self.now + 1;
                self.foreign = &self.foreign - &gone;
                let after = noted.cleaned_of(&waste, time(self.swept));
                assert_eq!(after.cleaned(), noted.cleaned());
                after
            }
            (5, _) => {
                let until = self.now.saturating_sub(dice.below(10) as u32);
                self.lost.retain(|(at, _)| *at > until);
                if self.swept <= until {
                    self.swept = 0;
                }
                let after = p.forgetting(time(until));
                // Nothing that was so later is forgotten.
                assert!(after.forgotten() <= time(until).max(p.forgotten()));
                self.forgotten = after.forgotten().t;
                after
            }
            _ => self.follow(&p, owned),
        }
    }

    fn check(&self, p: &Placement, when: &str) {
        for at_time in self.forgotten.max(1)..self.now + 3 {
            let owned: Cells = (0..CELLS)
                .filter(|cell| p.owned_at(&at(*cell), time(at_time)))
                .collect();
            assert_eq!(owned, *self.owned(at_time), "{when}: at {at_time}");
            let changed = p.changes.iter().any(|c| c.at > time(at_time));
            let filters = !self.foreign.is_empty() || changed || self.swept > at_time;
            assert_eq!(p.filters(time(at_time)), filters, "{when}: at {at_time}");
        }
        assert_eq!(cells_in(p.foreign()), self.foreign, "{when}");
        let arriving = self
            .moving
            .as_ref()
            .filter(|(_, arrives)| *arrives)
            .map(|(cells, _)| cells.clone());
        let leaving = self
            .moving
            .as_ref()
            .filter(|(_, arrives)| !*arrives)
            .map(|(cells, _)| cells.clone());
        let (arriving, leaving) = (arriving.unwrap_or_default(), leaving.unwrap_or_default());
        assert_eq!(cells_in(&p.waste()), &self.foreign - &arriving, "{when}");
        let owned = self.owned(self.now);
        let mut buf = Vec::new();
        for cell in 0..CELLS {
            let d = doc! { "a": cell };
            let d = d.as_doc();
            assert_eq!(
                p.takes(d, &mut buf).unwrap(),
                owned.contains(&cell) && !leaving.contains(&cell),
                "{when}: {cell}"
            );
            assert_eq!(
                p.arrives(d, &mut buf).unwrap(),
                arriving.contains(&cell),
                "{when}: {cell}"
            );
            let waste = !owned.contains(&cell) && !arriving.contains(&cell);
            assert_eq!(p.is_waste(d, &mut buf).unwrap(), waste, "{when}: {cell}");
        }
        assert_eq!(p.undecided, !leaving.is_empty(), "{when}");
        assert_eq!(p.forgotten(), time(self.forgotten), "{when}");
        let again = Placement::parse(p.to_doc().as_doc()).unwrap();
        assert_eq!(again.to_doc(), p.to_doc(), "{when}");
    }
}

#[test]
fn a_placement_is_what_its_course_was() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let owned = dice.run();
        let mut oracle = Oracle {
            now: 1,
            version: 1,
            history: vec![(0, owned.clone())],
            foreign: Cells::new(),
            lost: Vec::new(),
            cleaned: 0,
            forgotten: 0,
            swept: 0,
            moving: None,
        };
        let mut p = oracle.told(&owned);
        for step in 0..60 {
            p = oracle.step(p, &mut dice);
            oracle.check(&p, &format!("seed {seed}, step {step}"));
        }
    }
}

#[test]
fn the_oldest_changes_are_forgotten() {
    let all: Cells = (0..CELLS).collect();
    let mut p = Placement::new(time(1), Version::new(1, 0), key(), ranges_of(&all), false).unwrap();
    for n in 0..(MOST_CHANGES as u32 + 10) {
        let owned = if n % 2 == 0 {
            Cells::from([1])
        } else {
            all.clone()
        };
        let next = Placement::new(
            time(1),
            Version::new(2 + n, 0),
            key(),
            ranges_of(&owned),
            false,
        )
        .unwrap();
        p = p.followed_by(next.as_of(time(10 + n)));
    }
    assert_eq!(p.changes.len(), MOST_CHANGES);
    assert!(p.forgotten() > time(10) && p.cleaned() >= p.forgotten());
    let other = Placement::new(time(2), Version::new(1, 0), key(), Vec::new(), false).unwrap();
    // Another generation begins with nothing.
    assert_eq!(p.followed_by(other.clone()).to_doc(), other.to_doc());
}

#[test]
fn a_step_that_comes_twice_changes_nothing() {
    let p = Placement::new(
        time(1),
        Version::new(1, 0),
        key(),
        ranges_of(&Cells::from([1, 2])),
        false,
    )
    .unwrap();
    let range = ranges_of(&Cells::from([5])).remove(0);
    let complete = p.receiving([1; 16], range.clone()).unwrap().completed();
    assert!(
        complete.undecided,
        "routers wait until the shard knows what was decided"
    );
    let again = complete.receiving([1; 16], range).unwrap();
    assert_eq!(again.to_doc(), complete.to_doc());
    assert!(!complete.still().undecided && complete.still().moving().is_none());
    let given = p
        .giving([2; 16], ranges_of(&Cells::from([1])).remove(0))
        .unwrap();
    assert!(given.undecided && !given.still().undecided);
    assert!(p.is_settled_as(&given.still()) && !given.is_settled_as(&p));
}

#[test]
fn a_collection_that_is_to_stay_is_not_settled_as_one_that_is_undecided() {
    let owned = ranges_of(&Cells::from([1, 2]));
    let p = Placement::new(time(1), Version::new(1, 0), key(), owned, true).unwrap();
    assert!(p.is_settled_as(&p) && !p.is_settled_as(&p.clone().staying()));
}

#[test]
fn malformed_forms() {
    let range = || ranges_of(&Cells::from([5])).remove(0);
    let p = Placement::new(
        time(1),
        Version::new(1, 0),
        key(),
        ranges_of(&Cells::from([1, 2])),
        false,
    )
    .unwrap();
    let p = p.receiving([1; 16], range()).unwrap();
    let whole = p.followed_by(p.clone().as_of(time(9)));
    let whole = whole
        .receiving([1; 16], range())
        .unwrap()
        .cleaned_of(&[], time(5))
        .to_doc();
    assert!(Placement::parse(whole.as_doc()).is_ok());
    let bad = Value::String("bad");
    for (field, code) in [
        ("timestamp", 9),
        ("version", 9),
        ("key", 9),
        ("owned", 9),
        ("changed", 9),
        ("swept", 9),
        ("cleaned", 9),
    ] {
        let mut d = DocBuf::new();
        whole
            .as_doc()
            .iter()
            .filter(|e| e.name() != field)
            .for_each(|e| {
                d.append_elem(e);
            });
        d.append(field, bad);
        let e = Placement::parse(d.as_doc()).unwrap_err();
        assert_eq!(e.code().0, code, "{field}: {e}");
        assert!(e.message().contains(field), "{field}: {e}");
    }
    for (field, value) in [
        ("moving", doc! { "id": 1 }),
        (
            "moving",
            doc! { "id": Value::Binary { subtype: 4, bytes: &[1; 16] }, "range": array![], "arrives": true },
        ),
        ("foreign", doc! { "0": 1 }),
        ("changes", doc! { "0": doc! { "at": 1 } }),
    ] {
        let mut d = DocBuf::new();
        whole
            .as_doc()
            .iter()
            .filter(|e| e.name() != field)
            .for_each(|e| {
                d.append_elem(e);
            });
        match field {
            "moving" => d.append(field, value),
            _ => d.append(field, Value::Array(value.as_doc())),
        };
        assert!(Placement::parse(d.as_doc()).is_err(), "{field}: {d:?}");
    }
}
