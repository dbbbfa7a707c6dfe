//! What a report shows of an experiment's loads whatever the experiment is: each second by second,
//! and each by percentile. It is made from the samples alone, so that a page of results that were
//! kept has the plots of today.

use super::plot::Plot;
use super::{Outcome, SampleSet, percentiles, timeline};

/// Takes out of `out` what was made so before, and makes it anew. An outcome without samples keeps
/// what it has: those of several targets are laid over each other when they are measured.
pub(crate) fn renew(out: &mut Outcome) {
    if out.samples.is_empty() {
        return;
    }
    out.plots.retain(|p| !is_derived(p));
    out.plots.extend(percentiles::plot(&out.samples));
    out.plots.extend(timeline::plots(&out.samples));
}

/// The same of several targets that ran the same experiment: for each of them its plots.
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

/// The `most` largest of `all`, in the order in which they ran; of equals the first. The largest is
/// always among them, whatever else is as large as the last that is taken.
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
        // What was laid over each other has no samples any more.
        out.samples.clear();
        renew(out);
        assert_eq!(titles(out), first);
    }
}
