//! Changing a plan from the command line, and for runs that vary a setting.

use super::draw::{NAMES, Shape};
use super::operation::{Kind, Operation};
use super::plan::{Phase, Plan, typed};
use super::template::Node;
use muniment_load::fail::{Failure, Result};
use muniment_options::meant;
use muniment_value::doc;

/// The keys that can be set, with what each is for, sorted.
pub const KEYS: &[(&str, &str)] = &[
    (
        "batch",
        "documents a message of insertMany in run phases, or of load phases where there is none",
    ),
    (
        "distribution",
        "how keys are drawn, for all operations of run phases",
    ),
    ("j", "journaled writes: true or false"),
    ("operations", "operations of each run phase"),
    ("pace", "steady or poisson, beside rate"),
    ("rate", "operations a second of each run phase, or none"),
    ("readConcern", "level of finds and aggregations"),
    ("records", "documents of each load phase"),
    ("seconds", "longest time of each run phase"),
    ("theta", "θ of zipfian, scrambled and latest draws"),
    (
        "threads",
        "connections of run phases, or of load phases where there is no other",
    ),
    ("w", "write concern: a number, majority or a tag set"),
    ("wtimeout", "ms that a write waits for its concern"),
];

impl Plan {
    /// Sets one of [`KEYS`] in all phases that have it.
    ///
    /// # Errors
    /// A key that there is not; a value it cannot take; no phase that has it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let changed = match key {
            "batch" => {
                let n = positive(key, value)?;
                let many = |o: &&mut Operation| o.kind == Kind::InsertMany;
                let in_runs = self.each(
                    |p| p.records.is_none(),
                    |p| p.work.iter_mut().filter(many).map(|o| o.batch = n).count(),
                );
                match in_runs {
                    0 => self.each(
                        |p| p.records.is_some(),
                        |p| p.work.iter_mut().map(|o| o.batch = n).count(),
                    ),
                    some => some,
                }
            }
            "distribution" => {
                let shape = Shape::named(value).ok_or_else(|| {
                    let all: Vec<&str> = NAMES.into_iter().filter(|n| *n != "histogram").collect();
                    Failure(format!(
                        "distribution={value}: {}there are {}",
                        meant(value, &all),
                        all.join(", ")
                    ))
                })?;
                self.operations(|p, o| {
                    let is = p.records.is_none() && o.draws;
                    if is {
                        o.shape = shape.clone();
                    }
                    is
                })
            }
            "j" => {
                let j = typed(key, value, "true or false", |_: &bool| true)?;
                self.write_concern("j", &Node::flag(j))
            }
            "operations" => {
                let n = positive(key, value)?;
                self.runs_set(|p| p.operations = Some(n))
            }
            "pace" => {
                let poisson = match value {
                    "poisson" => true,
                    "steady" => false,
                    _ => {
                        return Err(Failure(format!(
                            "pace={value}: pace must be steady or poisson"
                        )));
                    }
                };
                self.each(
                    |p| p.rate.is_some(),
                    |p| {
                        p.poisson = poisson;
                        1
                    },
                )
            }
            "rate" => {
                let rate = match value {
                    "none" => None,
                    _ => Some(typed(key, value, "a number above 0, or none", above_zero)?),
                };
                self.runs_set(|p| p.rate = rate)
            }
            "readConcern" => {
                let levels = ["local", "available", "majority", "linearizable", "snapshot"];
                if !levels.contains(&value) {
                    return Err(Failure(format!(
                        "readConcern={value}: readConcern must be one of {}",
                        levels.join(", ")
                    )));
                }
                self.operations(|_, o| {
                    if o.kind.reads() {
                        o.read_concern = Some(doc! { "level": value });
                    }
                    o.kind.reads()
                })
            }
            "records" => {
                let n = positive(key, value)?;
                self.each(
                    |p| p.records.is_some(),
                    |p| {
                        p.records = Some(n);
                        1
                    },
                )
            }
            "seconds" => {
                let s = typed(key, value, "a number above 0", above_zero)?;
                self.runs_set(|p| p.seconds = Some(s))
            }
            "theta" => {
                let theta = typed(key, value, "a number between 0 and 1", |t| {
                    *t > 0.0 && *t < 1.0
                })?;
                self.operations(|p, o| match o.shape.with_theta(theta) {
                    Some(shape) if p.records.is_none() && o.draws => {
                        o.shape = shape;
                        true
                    }
                    _ => false,
                })
            }
            "threads" => {
                let n = typed(key, value, "a whole number from 1 to 10,000", |n| {
                    (1..=10_000).contains(n)
                })?;
                match self.runs_set(|p| p.threads = n) {
                    0 => self.each(
                        |_| true,
                        |p| {
                            p.threads = n;
                            1
                        },
                    ),
                    some => some,
                }
            }
            "w" => {
                let w = match value.parse::<u32>() {
                    Ok(n) => Node::whole(n.into()),
                    Err(_) if value.is_empty() || value.starts_with('-') => {
                        return Err(Failure(format!(
                            "w={value}: w must be a number of members, majority or a tag set's name"
                        )));
                    }
                    Err(_) => Node::text(value),
                };
                self.write_concern("w", &w)
            }
            "wtimeout" => {
                let ms = typed(key, value, "a whole number of ms", |_: &u32| true)?;
                self.write_concern("wtimeout", &Node::whole(ms.into()))
            }
            _ => {
                let all: Vec<&str> = KEYS.iter().map(|(k, _)| *k).collect();
                return Err(Failure(format!(
                    "there is no setting '{key}': {}there are {}",
                    meant(key, &all),
                    all.join(", ")
                )));
            }
        };
        match changed {
            0 => Err(Failure(format!(
                "{key}={value}: nothing in the workload {} has {key}",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// Changes the phases that are `of` these; gives how many changes `change` made.
    fn each(
        &mut self,
        of: impl Fn(&Phase) -> bool,
        change: impl FnMut(&mut Phase) -> usize,
    ) -> usize {
        self.phases.iter_mut().filter(|p| of(p)).map(change).sum()
    }

    fn runs_set(&mut self, mut change: impl FnMut(&mut Phase)) -> usize {
        self.each(
            |p| p.records.is_none(),
            |p| {
                change(p);
                1
            },
        )
    }

    /// Changes operations; `change` says whether it did.
    fn operations(&mut self, mut change: impl FnMut(&Phase, &mut Operation) -> bool) -> usize {
        let mut n = 0;
        for p in &mut self.phases {
            let mut work = std::mem::take(&mut p.work);
            n += work
                .iter_mut()
                .map(|o| usize::from(change(p, o)))
                .sum::<usize>();
            p.work = work;
        }
        n
    }

    fn write_concern(&mut self, field: &str, value: &Node) -> usize {
        self.operations(|_, o| {
            if o.kind.writes() {
                o.set_write_concern(field, value);
            }
            o.kind.writes()
        })
    }
}

fn above_zero(n: &f64) -> bool {
    *n > 0.0 && n.is_finite()
}

fn positive(key: &str, value: &str) -> Result<u64> {
    typed(key, value, "a whole number, 1 or more", |n| *n > 0)
}
