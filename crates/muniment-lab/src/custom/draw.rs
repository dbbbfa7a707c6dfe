//! The distributions that a workload file may name, with their parameters. A distribution draws one
//! of `n` things.

use super::source::{Fields, Item, Parsed};
use crate::distributions::exponential::Exponential;
use crate::distributions::hotspot::Hotspot;
use crate::distributions::scrambled::Scrambled;
use crate::distributions::sequential::Sequential;
use crate::distributions::zipfian::{THETA, Zipfian};
use crate::distributions::{Distribution, fnv};
use muniment_load::rng::Rng;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

/// A distribution as a file names it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Shape {
    /// Exponential: the newest number is the likeliest. The fields are a percentile, and the share
    /// of the range that so many percent of the draws are in.
    Exponential(f64, f64),
    /// The range is divided into equal parts that are drawn by these weights; each part is uniform
    /// inside.
    Histogram(Vec<f64>),
    /// The share of the range that is hot, and the share of the draws that the hot part gets.
    Hotspot(f64, f64),
    /// Zipf with this θ, counted from the newest number back.
    Latest(f64),
    /// Zipf with this θ, with the hot numbers scattered over the range.
    Scrambled(f64),
    /// One number after the other; all workers share the position.
    Sequential,
    /// Every number is equally likely.
    #[default]
    Uniform,
    /// Zipf with this θ; the lowest number is the likeliest.
    Zipfian(f64),
}

/// The names of all distributions, sorted.
pub(crate) const NAMES: [&str; 8] = [
    "exponential",
    "histogram",
    "hotspot",
    "latest",
    "scrambled",
    "sequential",
    "uniform",
    "zipfian",
];

impl Shape {
    /// The distribution's name in the file.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Shape::Exponential(..) => "exponential",
            Shape::Histogram(_) => "histogram",
            Shape::Hotspot(..) => "hotspot",
            Shape::Latest(_) => "latest",
            Shape::Scrambled(_) => "scrambled",
            Shape::Sequential => "sequential",
            Shape::Uniform => "uniform",
            Shape::Zipfian(_) => "zipfian",
        }
    }

    /// The distribution of this name with its usual parameters. A histogram has no usual weights,
    /// so it is not found.
    pub(crate) fn named(name: &str) -> Option<Shape> {
        Some(match name {
            "exponential" => Shape::Exponential(95.0, 0.857_142_857_1),
            "hotspot" => Shape::Hotspot(0.2, 0.8),
            "latest" => Shape::Latest(THETA),
            "scrambled" => Shape::Scrambled(THETA),
            "sequential" => Shape::Sequential,
            "uniform" => Shape::Uniform,
            "zipfian" => Shape::Zipfian(THETA),
            _ => return None,
        })
    }

    /// The same distribution with another θ; `None` if it has no θ.
    pub(crate) fn with_theta(&self, theta: f64) -> Option<Shape> {
        Some(match self {
            Shape::Latest(_) => Shape::Latest(theta),
            Shape::Scrambled(_) => Shape::Scrambled(theta),
            Shape::Zipfian(_) => Shape::Zipfian(theta),
            _ => return None,
        })
    }

    /// Reads the key `distribution` of a table, and the keys in the same table that are its
    /// parameters; `None` if there is no such key.
    ///
    /// # Errors
    /// There is no such distribution, it has no such parameter, or a parameter is out of range.
    pub(crate) fn read(f: &mut Fields<'_>) -> Parsed<Option<Shape>> {
        let distribution = f.get("distribution");
        let theta = f.get("theta");
        let hot = [f.get("hot_share"), f.get("hot_operations")];
        let exponential = [f.get("percentile"), f.get("percentile_share")];
        let weights = f.get("histogram");
        let words: Vec<(&str, &str)> = NAMES.iter().map(|n| (*n, *n)).collect();
        let name = distribution.map(|d| d.one_of("distribution", &words));
        let name = name.transpose()?;
        let belongs = |item: Option<&Item>, key: &str, to: &[&str]| match item {
            Some(i) if !name.is_some_and(|n| to.contains(&n)) => Err(i.bad(format!(
                "{}: {key} belongs to distribution = {}",
                f.what,
                to.join(" or ")
            ))),
            _ => Ok(()),
        };
        belongs(theta, "theta", &["latest", "scrambled", "zipfian"])?;
        for (item, key) in hot.iter().zip(["hot_share", "hot_operations"]) {
            belongs(*item, key, &["hotspot"])?;
        }
        for (item, key) in exponential.iter().zip(["percentile", "percentile_share"]) {
            belongs(*item, key, &["exponential"])?;
        }
        belongs(weights, "histogram", &["histogram"])?;
        let Some(name) = name else { return Ok(None) };
        let theta = theta.map_or(Ok(THETA), read_theta)?;
        let share = |item: Option<&Item>, key: &str, default: f64| {
            item.map_or(Ok(default), |i| i.share(key))
        };
        Ok(Some(match name {
            "exponential" => {
                let percentile =
                    exponential[0].map_or(Ok(95.0), |i| match i.number("percentile") {
                        Ok(p) if p > 0.0 && p < 100.0 => Ok(p),
                        _ => Err(i.bad("percentile must be between 0 and 100")),
                    })?;
                let of = share(exponential[1], "percentile_share", 0.857_142_857_1)?;
                Shape::Exponential(percentile, of)
            }
            "histogram" => {
                let list = weights.ok_or_else(|| {
                    f.bad("distribution = \"histogram\" needs histogram = [weight, …]")
                })?;
                Shape::Histogram(read_weights(list, "histogram")?)
            }
            "hotspot" => Shape::Hotspot(
                share(hot[0], "hot_share", 0.2)?,
                share(hot[1], "hot_operations", 0.8)?,
            ),
            other => {
                let shape = Shape::named(other).unwrap_or_default();
                shape.with_theta(theta).unwrap_or(shape)
            }
        }))
    }
}

/// Reads θ, which must be between 0 and 1: the method of drawing works only there.
fn read_theta(item: &Item) -> Parsed<f64> {
    match item.number("theta") {
        Ok(t) if t > 0.0 && t < 1.0 => Ok(t),
        _ => Err(item.bad(format!(
            "theta must be between 0 and 1, not {}",
            item.described()
        ))),
    }
}

/// Reads a list of weights: none may be negative, and their sum must be above zero.
///
/// # Errors
/// The value is no such list.
pub(crate) fn read_weights(item: &Item, what: &str) -> Parsed<Vec<f64>> {
    let weights = item
        .list(what)?
        .iter()
        .map(|w| match w.number(what) {
            Ok(n) if n >= 0.0 => Ok(n),
            _ => Err(w.bad(format!("a weight must be 0 or more, not {}", w.described()))),
        })
        .collect::<Parsed<Vec<f64>>>()?;
    if weights.iter().sum::<f64>() <= 0.0 {
        return Err(item.bad(format!("{what}: one weight at least must be above 0")));
    }
    Ok(weights)
}

/// Draws one of several things by weight.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    /// Cumulative shares, rising to 1.
    sums: Vec<f64>,
}

impl Weighted {
    /// Draws by these weights.
    pub(crate) fn new(weights: &[f64]) -> Weighted {
        let all: f64 = weights.iter().sum();
        let mut sum = 0.0;
        Weighted {
            sums: weights
                .iter()
                .map(|w| {
                    sum += w / all;
                    sum
                })
                .collect(),
        }
    }

    /// Draws the number of a thing.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> usize {
        if self.sums.len() < 2 {
            return 0;
        }
        let u = rng.unit();
        let at = self.sums.partition_point(|s| *s <= u);
        // Rounding may leave the last sum a little below 1, and a draw above it would name a thing
        // that does not exist.
        at.min(self.sums.len() - 1)
    }
}

/// The state of distributions that the workers of a phase share: the positions of sequential draws,
/// and the sums of Zipf's distribution, which take a second for 10⁸ numbers and are computed once.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    places: Mutex<HashMap<String, Arc<AtomicU64>>>,
    zipf: Mutex<HashMap<(u64, u64), Zipfian>>,
}

impl Shared {
    /// The position of the sequential draw of this name.
    fn place(&self, name: &str) -> Arc<AtomicU64> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(name.to_string()).or_default().clone()
    }

    fn zipf(&self, count: u64, theta: f64) -> Zipfian {
        let mut zipf = self.zipf.lock().unwrap_or_else(PoisonError::into_inner);
        let made = zipf.entry((count, theta.to_bits()));
        made.or_insert_with(|| Zipfian::new(0, count.saturating_sub(1), theta))
            .clone()
    }
}

/// A distribution ready to draw; its numbers begin at 0.
#[derive(Debug)]
pub(crate) enum Draw {
    /// As in [`Shape`], which describes all of them.
    Exponential(Exponential),
    /// The parts, and the number of numbers.
    Histogram(Weighted, u64),
    /// The hot numbers are the lowest.
    Hotspot(Hotspot),
    /// Zipf, counted from the newest number back.
    Latest(Zipfian),
    /// The same as YCSB's, over 10¹⁰ ranks.
    Scrambled(Scrambled),
    /// Zipf over the numbers, then hashed; used for a θ other than YCSB's, whose ζ is not known in
    /// advance.
    Hashed(Zipfian, u64),
    /// One number after the other.
    Sequential(Sequential),
    /// Every number is equally likely.
    Uniform,
    /// The lowest number is the likeliest.
    Zipfian(Zipfian),
}

impl Draw {
    /// Prepares `shape` for the `count` numbers that exist now. Workers that give the same `name`
    /// share the position of a sequential draw.
    pub(crate) fn new(shape: &Shape, count: u64, shared: &Shared, name: &str) -> Draw {
        let last = count.saturating_sub(1);
        match shape {
            Shape::Exponential(percentile, share) => {
                Draw::Exponential(Exponential::new(*percentile, count as f64 * share))
            }
            Shape::Histogram(weights) => Draw::Histogram(Weighted::new(weights), count),
            Shape::Hotspot(data, operations) => {
                Draw::Hotspot(Hotspot::new(0, last, *data, *operations))
            }
            Shape::Latest(theta) => Draw::Latest(shared.zipf(count, *theta)),
            Shape::Scrambled(theta) if *theta == THETA => Draw::Scrambled(Scrambled::new(0, last)),
            Shape::Scrambled(theta) => Draw::Hashed(shared.zipf(count, *theta), count),
            Shape::Sequential => Draw::Sequential(Sequential::new(0, last, shared.place(name))),
            Shape::Uniform => Draw::Uniform,
            Shape::Zipfian(theta) => Draw::Zipfian(shared.zipf(count, *theta)),
        }
    }

    /// Draws one of the `count` numbers that exist by now, which may not be fewer than before;
    /// gives 0 if there are none. Only the uniform and the latest draw use the new count; the
    /// others keep the one that they were made with.
    #[inline]
    pub(crate) fn draw(&mut self, count: u64, rng: &mut Rng) -> u64 {
        let last = count.saturating_sub(1);
        let n = match self {
            Draw::Exponential(d) => loop {
                let back = d.draw(rng);
                if back <= last {
                    break last - back;
                }
            },
            Draw::Histogram(parts, of) => {
                let part = parts.draw(rng) as u128;
                let all = parts.sums.len().max(1) as u128;
                let begin = (part * u128::from(*of) / all) as u64;
                let end = ((part + 1) * u128::from(*of) / all) as u64;
                begin + rng.below(end - begin)
            }
            Draw::Hotspot(d) => d.draw(rng),
            Draw::Latest(d) => last.saturating_sub(d.draw_of(count.max(1), rng)),
            Draw::Scrambled(d) => d.draw(rng),
            Draw::Hashed(d, of) => fnv::hash(d.draw(rng)).unsigned_abs() % (*of).max(1),
            Draw::Sequential(d) => d.draw(rng),
            Draw::Uniform => rng.below(count),
            Draw::Zipfian(d) => d.draw(rng),
        };
        n.min(last)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::custom::source::read;
    use crate::lab::Preset;

    fn shape(text: &str) -> Parsed<Option<Shape>> {
        let root = read(text, Preset::Smoke)?;
        let mut f = root.fields("it")?;
        let s = Shape::read(&mut f)?;
        f.end()?;
        Ok(s)
    }

    #[test]
    fn every_distribution_stays_in_its_range_and_has_its_shape() {
        for name in NAMES {
            let more = if name == "histogram" {
                "\nhistogram = [8, 1, 1]"
            } else {
                ""
            };
            let s = shape(&format!("distribution = \"{name}\"{more}"));
            let s = s.unwrap().unwrap();
            assert_eq!(s.name(), name);
            let mut d = Draw::new(&s, 1000, &Shared::default(), "x");
            let mut rng = Rng::new(7);
            let mut seen = vec![0u32; 1000];
            for _ in 0..100_000 {
                seen[d.draw(1000, &mut rng) as usize] += 1;
            }
            let part = |r: std::ops::Range<usize>| f64::from(seen[r].iter().sum::<u32>()) / 1e5;
            match name {
                "exponential" => {
                    // 95 % of the draws lie in the newest 857 of 1000, and draws beyond the range
                    // are repeated: the exact share is 0.95 / (1 − 0.05^(1/0.857)).
                    assert!((part(143..1000) - 0.98).abs() < 0.01)
                }
                "histogram" => assert!((part(0..333) - 0.8).abs() < 0.01),
                "hotspot" => assert!((part(0..200) - 0.8).abs() < 0.01),
                "latest" => assert!(part(999..1000) > 0.1 && part(0..500) < 0.2),
                "scrambled" => assert!(seen.iter().any(|n| *n > 3000) && part(0..10) < 0.2),
                "sequential" => assert!(seen.iter().all(|n| *n == 100)),
                "uniform" => {
                    let chi: f64 = seen
                        .iter()
                        .map(|n| (f64::from(*n) - 100.0).powi(2) / 100.0)
                        .sum();
                    // The bounds are ± 4 σ at 999 degrees of freedom.
                    assert!((820.0..1180.0).contains(&chi), "{chi}");
                }
                _ => assert!(part(0..1) > 0.1 && part(500..1000) < 0.2),
            }
        }
    }

    #[test]
    fn a_single_number_and_none_are_drawn_too() {
        for name in NAMES.iter().filter(|n| **n != "histogram") {
            let s = Shape::named(name).unwrap();
            for count in [0, 1, 2] {
                let mut d = Draw::new(&s, count, &Shared::default(), "x");
                let mut rng = Rng::new(1);
                for _ in 0..100 {
                    assert!(d.draw(count, &mut rng) < count.max(1), "{name} of {count}");
                }
            }
        }
    }

    #[test]
    fn theta_bends_the_curve() {
        let hottest = |text: &str| {
            let s = shape(text).unwrap().unwrap();
            let mut d = Draw::new(&s, 1000, &Shared::default(), "x");
            let mut rng = Rng::new(7);
            let mut seen = vec![0u32; 1000];
            for _ in 0..50_000 {
                seen[d.draw(1000, &mut rng) as usize] += 1;
            }
            seen.into_iter().max().unwrap()
        };
        for name in ["latest", "scrambled", "zipfian"] {
            let flat = hottest(&format!("distribution = \"{name}\"\ntheta = 0.5"));
            assert!(
                2 * flat < hottest(&format!("distribution = \"{name}\"")),
                "{name}"
            );
        }
    }

    #[test]
    fn parameters_belong_to_their_distributions() {
        for (text, why) in [
            (
                "distribution = \"zipf\"",
                "there are exponential, histogram",
            ),
            ("distribution = \"zipfain\"", "is 'zipfian' meant?"),
            (
                "theta = 0.5",
                "theta belongs to distribution = latest or scrambled or zipfian",
            ),
            (
                "distribution = \"uniform\"\ntheta = 0.5",
                "theta belongs to",
            ),
            (
                "distribution = \"zipfian\"\ntheta = 1.0",
                "theta must be between 0 and 1, not 1",
            ),
            (
                "distribution = \"uniform\"\nhot_share = 0.5",
                "hot_share belongs to",
            ),
            (
                "distribution = \"hotspot\"\nhot_share = 2",
                "from 0 to 1, not 2",
            ),
            (
                "distribution = \"exponential\"\npercentile = 100",
                "between 0 and 100",
            ),
            (
                "distribution = \"histogram\"",
                "needs histogram = [weight, …]",
            ),
            (
                "distribution = \"histogram\"\nhistogram = [0]",
                "one weight at least",
            ),
            (
                "distribution = \"histogram\"\nhistogram = [-1]",
                "must be 0 or more, not -1",
            ),
        ] {
            let e = shape(text).unwrap_err().text;
            assert!(e.contains(why), "{text}: {e}");
        }
    }
}
