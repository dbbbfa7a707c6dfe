//! Settings that change a plan, for the command line and for runs that vary a setting. Each key is
//! a row of [`KEYS`] with a function that parses its value and sets it.

use super::draw::{NAMES, Shape};
use super::operation::{Kind, Operation};
use super::plan::{Phase, Plan, typed};
use super::template::Node;
use muniment_load::fail::{Failure, Result};
use muniment_options::meant;
use muniment_value::doc;

/// A setting.
pub(crate) struct Key {
    /// The key's name.
    pub name: &'static str,
    /// A line that tells its purpose.
    pub about: &'static str,
    /// Sets it to a value everywhere in the plan and returns at how many places; an error is about
    /// the value. The function gets the key's name for that error.
    set: fn(&mut Plan, name: &str, value: &str) -> Result<usize>,
}

/// The settings, sorted.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: "batch",
        about: "documents a message of insertMany in run phases, or of load phases where there is none",
        set: batch,
    },
    Key {
        name: "distribution",
        about: "how keys are drawn, for all operations of run phases",
        set: distribution,
    },
    Key {
        name: "j",
        about: "journaled writes: true or false",
        set: j,
    },
    Key {
        name: "operations",
        about: "operations of each run phase",
        set: operations,
    },
    Key {
        name: "pace",
        about: "steady or poisson, beside rate",
        set: pace,
    },
    Key {
        name: "rate",
        about: "operations a second of each run phase, or none",
        set: rate,
    },
    Key {
        name: "readConcern",
        about: "level of finds and aggregations",
        set: read_concern,
    },
    Key {
        name: "records",
        about: "documents of each load phase",
        set: records,
    },
    Key {
        name: "seconds",
        about: "longest time of each run phase",
        set: seconds,
    },
    Key {
        name: "theta",
        about: "θ of zipfian, scrambled and latest draws",
        set: theta,
    },
    Key {
        name: "threads",
        about: "connections of run phases, or of load phases where there is no other",
        set: threads,
    },
    Key {
        name: "w",
        about: "write concern: a number, majority or a tag set",
        set: w,
    },
    Key {
        name: "wtimeout",
        about: "ms that a write waits for its concern",
        set: wtimeout,
    },
];

fn batch(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let n = positive(key, value)?;
    let many = |o: &&mut Operation| o.kind == Kind::InsertMany;
    let in_runs = plan.each(is_run, |p| {
        p.work.iter_mut().filter(many).map(|o| o.batch = n).count()
    });
    Ok(match in_runs {
        0 => plan.each(is_load, |p| p.work.iter_mut().map(|o| o.batch = n).count()),
        some => some,
    })
}

fn distribution(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let shape = Shape::named(value).ok_or_else(|| {
        let all: Vec<&str> = NAMES.into_iter().filter(|n| *n != "histogram").collect();
        Failure(format!(
            "{key}={value}: {}there are {}",
            meant(value, &all),
            all.join(", ")
        ))
    })?;
    Ok(plan.operations(|p, o| {
        let is = is_run(p) && o.draws;
        if is {
            o.shape = shape.clone();
        }
        is
    }))
}

fn j(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let j = typed(key, value, "true or false", |_: &bool| true)?;
    Ok(plan.write_concern(key, &Node::flag(j)))
}

fn operations(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let n = positive(key, value)?;
    Ok(plan.in_phases(is_run, |p| p.operations = Some(n)))
}

fn pace(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let poisson = match value {
        "poisson" => true,
        "steady" => false,
        _ => {
            return Err(Failure(format!(
                "{key}={value}: {key} must be steady or poisson"
            )));
        }
    };
    Ok(plan.in_phases(|p| p.rate.is_some(), |p| p.poisson = poisson))
}

fn rate(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let rate = match value {
        "none" => None,
        _ => Some(typed(key, value, "a number above 0, or none", above_zero)?),
    };
    Ok(plan.in_phases(is_run, |p| p.rate = rate))
}

fn read_concern(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    const LEVELS: [&str; 5] = ["local", "available", "majority", "linearizable", "snapshot"];
    if !LEVELS.contains(&value) {
        return Err(Failure(format!(
            "{key}={value}: {key} must be one of {}",
            LEVELS.join(", ")
        )));
    }
    Ok(plan.operations(|_, o| {
        if o.kind.reads() {
            o.read_concern = Some(doc! { "level": value });
        }
        o.kind.reads()
    }))
}

fn records(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let n = positive(key, value)?;
    Ok(plan.in_phases(is_load, |p| p.records = Some(n)))
}

fn seconds(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let s = typed(key, value, "a number above 0", above_zero)?;
    Ok(plan.in_phases(is_run, |p| p.seconds = Some(s)))
}

fn theta(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let is_theta = |t: &f64| *t > 0.0 && *t < 1.0;
    let theta = typed(key, value, "a number between 0 and 1", is_theta)?;
    Ok(plan.operations(|p, o| match o.shape.with_theta(theta) {
        Some(shape) if is_run(p) && o.draws => {
            o.shape = shape;
            true
        }
        _ => false,
    }))
}

fn threads(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let n = typed(key, value, "a whole number from 1 to 10,000", |n| {
        (1..=10_000).contains(n)
    })?;
    Ok(match plan.in_phases(is_run, |p| p.threads = n) {
        0 => plan.in_phases(is_load, |p| p.threads = n),
        some => some,
    })
}

fn w(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let w = match value.parse::<u32>() {
        Ok(n) => Node::whole(n.into()),
        Err(_) if value.is_empty() || value.starts_with('-') => {
            return Err(Failure(format!(
                "{key}={value}: {key} must be a number of members, majority or a tag set's name"
            )));
        }
        Err(_) => Node::text(value),
    };
    Ok(plan.write_concern(key, &w))
}

fn wtimeout(plan: &mut Plan, key: &str, value: &str) -> Result<usize> {
    let ms = typed(key, value, "a whole number of ms", |_: &u32| true)?;
    Ok(plan.write_concern(key, &Node::whole(ms.into())))
}

impl Plan {
    /// Sets one of [`KEYS`] in all phases that have it.
    ///
    /// # Errors
    /// There is no such key, the key cannot take the value, or no phase has it.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(key) = KEYS.iter().find(|k| k.name == name) else {
            let all: Vec<&str> = KEYS.iter().map(|k| k.name).collect();
            return Err(Failure(format!(
                "there is no setting '{name}': {}there are {}",
                meant(name, &all),
                all.join(", ")
            )));
        };
        match (key.set)(self, name, value)? {
            0 => Err(Failure(format!(
                "{name}={value}: nothing in the workload {} has {name}",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// Runs `change` on the phases for which `of` is true; returns the sum of the changes that it
    /// made.
    fn each(
        &mut self,
        of: impl Fn(&Phase) -> bool,
        change: impl FnMut(&mut Phase) -> usize,
    ) -> usize {
        self.phases.iter_mut().filter(|p| of(p)).map(change).sum()
    }

    /// Runs `change` on the phases for which `of` is true; returns their number.
    fn in_phases(&mut self, of: impl Fn(&Phase) -> bool, change: impl FnMut(&mut Phase)) -> usize {
        let of_these = self.phases.iter_mut().filter(|p| of(p));
        of_these.map(change).count()
    }

    /// Changes operations; `change` tells whether it changed one.
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

fn is_load(p: &Phase) -> bool {
    p.records.is_some()
}

fn is_run(p: &Phase) -> bool {
    p.records.is_none()
}

fn above_zero(n: &f64) -> bool {
    *n > 0.0 && n.is_finite()
}

fn positive(key: &str, value: &str) -> Result<u64> {
    typed(key, value, "a whole number, 1 or more", |n| *n > 0)
}
