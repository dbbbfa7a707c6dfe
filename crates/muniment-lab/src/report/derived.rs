//! The plots that a report shows of any experiment's loads: their rates and latencies second by
//! second, and their latencies by percentile. They are made from the samples alone, so a page made
//! from kept results has them in their present form.

use super::plot::Plot;
use super::{Outcome, SampleSet, percentiles, timeline};

/// Replaces these plots in `out` by new ones. An outcome without samples keeps its plots: those of
/// several targets were laid over each other when they were measured.
pub(crate) fn renew(out: &mut Outcome) {
    if out.samples.is_empty() {
        return;
    }
    out.plots.retain(|p| !is_derived(p));
    out.plots.extend(percentiles::plot(&out.samples));
    out.plots.extend(timeline::plots(&out.samples));
}

/// The plots of several targets that ran the same experiment, for each target.
pub(crate) fn of_all(targets: &[Vec<SampleSet>]) -> Vec<Vec<Plot>> {
    let times = timeline::of_all(targets);
    targets
        .iter()
        .zip(times)
        .map(|(samples, times)| {
            percentiles::plot(samples)
                .into_iter()
                .chain(times)
                .collect()
        })
        .collect()
}

/// The `most` largest elements of `all`, in the order in which they ran; the first ones among
/// equals. The largest element is always included, however many are equal to the smallest included
/// one.
pub(super) fn largest<T>(all: Vec<T>, most: usize, size: impl Fn(&T) -> u64) -> Vec<T> {
    let mut by_size: Vec<(usize, T)> = all.into_iter().enumerate().collect();
    by_size.sort_by_key(|(_, x)| std::cmp::Reverse(size(x)));
    by_size.truncate(most);
    by_size.sort_by_key(|(i, _)| *i);
    by_size.into_iter().map(|(_, x)| x).collect()
}

fn is_derived(p: &Plot) -> bool {
    p.title == percentiles::TITLE || timeline::TITLES.contains(&p.title.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::run;

    #[test]
    fn what_is_made_anew_is_made_once() {
        let mut run = run();
        let out = &mut run.outcomes[0];
        let own = out.plots.len();
        renew(out);
        let titles =
            |o: &Outcome| -> Vec<String> { o.plots.iter().map(|p| p.title.clone()).collect() };
        let first = titles(out);
        assert_eq!(first.len(), own + 1, "{first:?}");
        renew(out);
        assert_eq!(titles(out), first);
        // An outcome whose plots were laid over each other has no samples.
        out.samples.clear();
        renew(out);
        assert_eq!(titles(out), first);
    }
}
