#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::resample::normal;
use super::*;
use crate::report::{Better, Outcome, Statistic};
use muniment_load::hist::Latency;
use muniment_load::rng::Rng;
use muniment_load::samples::SampleSet;

/// Makes a run of w1: a rate of about `rate` whose noise persists over intervals, and 3000
/// latencies of about `ms`.
fn made_up(seed: u64, rate: f64, ms: f64) -> Run {
    let mut rng = Rng::new(seed);
    let (mut t, mut n, mut noise) = (0.0, 0.0, 0.0);
    let mut timeline = vec![(0.0, 0.0)];
    for _ in 0..60 {
        noise = 0.5 * noise + 0.15 * normal(&mut rng);
        t += 0.1;
        n += rate * 0.1 * (1.0f64 + noise).max(0.1);
        timeline.push((t, n));
    }
    let mut latency = Latency::new();
    for _ in 0..3000 {
        latency.record((ms * 1e6 * (0.4 * normal(&mut rng)).exp()) as u64);
    }
    let mut x = Outcome {
        id: "w1".into(),
        preset: "smoke".into(),
        ..Outcome::default()
    };
    x.figure("inserts", n / t, "docs/s", None)
        .of("load", Statistic::Rate);
    x.figure("avg", latency.mean_ms(), "ms", None)
        .of("load", Statistic::Mean);
    x.figure("p50", latency.quantile_ms(0.5), "ms", None)
        .of("load", Statistic::P50);
    x.figure("p99", latency.quantile_ms(0.99), "ms", None)
        .of("load", Statistic::P99);
    x.figure("gain", 1.1, "×", None)
        .better(Better::Higher)
        .between(1.05, 1.15);
    x.figure("share", 0.5 * rate, "ratio", None);
    x.figure("size", rate, "bytes", None);
    x.samples.push(SampleSet {
        name: "load".into(),
        latency,
        timeline,
        ..SampleSet::default()
    });
    Run {
        command: "muniment bench w1".into(),
        started: "today".into(),
        environment: vec![("CPU".into(), "a".into()), ("Kernel".into(), "6".into())],
        outcomes: vec![x],
        interrupted: false,
        failed: false,
    }
}

fn terms() -> Terms {
    Terms::default()
}

fn verdicts(c: &Comparison) -> Vec<(&str, Verdict)> {
    c.figures
        .iter()
        .map(|r| (r.figure.as_str(), r.verdict))
        .collect()
}

#[test]
fn a_slower_run_is_worse_and_a_faster_one_is_better() {
    use Verdict::{Better, Open, Same, Worse};
    let (a, b) = (made_up(1, 1000.0, 1.0), made_up(2, 600.0, 1.5));
    let c = compare(&a, &b, &terms());
    let want = |v| {
        vec![
            ("inserts", v),
            ("avg", v),
            ("p50", v),
            ("p99", v),
            ("gain", Same),
            ("share", Open),
            ("size", Open),
        ]
    };
    assert_eq!(verdicts(&c), want(Worse));
    assert_eq!(code(&c), 1);
    assert!(c.warnings.is_empty());
    let c = compare(&b, &a, &terms());
    assert_eq!(verdicts(&c), want(Better));
    assert_eq!(code(&c), 0);
    let said = text(&b, &a, &c, &terms(), None);
    for want in [
        "0 worse, 4 better, 1 without",
        "17 %",
        "--target a=",
        "not judged: neither way is better",
        "not judged: no distribution",
    ] {
        assert!(said.contains(want), "{want} in {said}");
    }
}

#[test]
fn the_last_run_is_compared_in_a_line() {
    let (a, b) = (made_up(1, 1000.0, 1.0), made_up(2, 600.0, 1.5));
    let said = line("monday", &a, &b);
    let counts = "Against monday: 4 worse, 0 better, 1 as before, 2 not judged; worst w1 ";
    assert!(said.starts_with(counts), "{said}");
    assert!(said.contains("17 %"), "{said}");
    let mut elsewhere = b.clone();
    elsewhere
        .environment
        .push(("Data on".into(), "tmpfs".into()));
    let said = line("monday", &a, &elsewhere);
    assert!(
        said.starts_with("Against monday: not judged, since Data on differs"),
        "{said}"
    );
    let mut other = b.clone();
    other.outcomes[0].preset = "quick".into();
    assert_eq!(
        line("monday", &a, &other),
        "Against monday: nothing to judge."
    );
}

#[test]
fn a_change_below_the_threshold_is_none() {
    let (a, b) = (made_up(1, 1000.0, 1.0), made_up(1, 1040.0, 1.04));
    let c = compare(&a, &b, &terms());
    assert_eq!(c.count(Verdict::Worse) + c.count(Verdict::Better), 0);
    let finer = Terms {
        threshold: 0.01,
        ..terms()
    };
    // The latencies are 4 % longer, which 3000 of them can show.
    assert_eq!(compare(&a, &b, &finer).figures[2].verdict, Verdict::Worse);
}

#[test]
fn a_ratio_with_its_own_interval_is_judged_by_it() {
    let (a, mut b) = (made_up(1, 1000.0, 1.0), made_up(1, 1000.0, 1.0));
    let gain = &mut b.outcomes[0].figures[4];
    gain.value = 0.9;
    gain.between(0.86, 0.94);
    assert_eq!(compare(&a, &b, &terms()).figures[4].verdict, Verdict::Worse);
    b.outcomes[0].figures[4].between(0.6, 1.3);
    assert_eq!(compare(&a, &b, &terms()).figures[4].verdict, Verdict::Same);
}

#[test]
fn an_interval_counts_on_the_side_on_which_it_lies() {
    use Verdict::{Better, Open, Same, Worse};
    type Side = (f64, (f64, f64));
    let verdict = |unit: &str, a: Side, b: Side| {
        let side = |(value, (low, high)): Side| {
            let mut run = made_up(1, 1000.0, 1.0);
            let f = &mut run.outcomes[0].figures[4];
            (f.value, f.unit) = (value, unit.into());
            f.between(low, high);
            run
        };
        compare(&side(a), &side(b), &terms()).figures[4].verdict
    };
    let steady = (1450.0, (1449.0, 1451.0));
    for (unit, a, b, want) in [
        // In some of its turns A was as fast as B, or as slow.
        ("docs/s", (1020.0, (1000.0, 2000.0)), steady, Same),
        ("docs/s", steady, (1020.0, (1000.0, 2000.0)), Same),
        ("docs/s", (2000.0, (1000.0, 2020.0)), steady, Same),
        // The end of an interval that points away from the other run says nothing.
        ("docs/s", (1020.0, (500.0, 1040.0)), steady, Better),
        ("docs/s", steady, (1020.0, (500.0, 1040.0)), Worse),
        // In a count, one more or less is no difference. Double the count is, and so is the same
        // change of a time.
        ("commits", (3.0, (3.0, 3.0)), (4.0, (4.0, 4.0)), Same),
        (
            "commits",
            (30.0, (30.0, 30.0)),
            (60.0, (60.0, 60.0)),
            Better,
        ),
        ("×", (1.5, (1.5, 1.5)), (1.6, (1.6, 1.6)), Better),
        ("docs/s", (10.0, (0.0, 11.0)), steady, Open),
        ("docs/s", (10.0, (-1.0, 11.0)), steady, Open),
    ] {
        assert_eq!(verdict(unit, a, b), want, "{unit} {a:?} {b:?}");
    }
}

#[test]
fn what_cannot_be_compared_is_exit_code_3_and_said() {
    let a = made_up(1, 1000.0, 1.0);
    let mut other = a.clone();
    other.outcomes[0].preset = "quick".into();
    let c = compare(&a, &other, &terms());
    assert_eq!(code(&c), 3);
    assert!(c.warnings[0].contains("A ran preset smoke, B preset quick"));
    other.outcomes[0].id = "w3".into();
    let c = compare(&a, &other, &terms());
    assert_eq!(code(&c), 3);
    assert_eq!(c.warnings, ["w1: only A ran it", "w3: only B ran it"]);
    let only = Terms {
        only: Some("w9".into()),
        ..terms()
    };
    let c = compare(&a, &a, &only);
    assert_eq!(code(&c), 3);
    assert!(text(&a, &a, &c, &only, None).contains("nothing to judge of w9"));
    // A figure whose samples are missing cannot be judged, but its ratio is still known.
    let mut bare = a.clone();
    bare.outcomes[0].samples.clear();
    assert_eq!(code(&compare(&a, &bare, &terms())), 0);
    bare.outcomes[0].figures.remove(4);
    assert_eq!(code(&compare(&a, &bare, &terms())), 3);
}

#[test]
fn other_surroundings_are_said() {
    let a = made_up(1, 1000.0, 1.0);
    let mut b = a.clone();
    b.environment[0].1 = "b".into();
    b.interrupted = true;
    b.outcomes[0].warnings.push("busy".into());
    let w = compare(&a, &b, &terms()).warnings;
    assert_eq!(w[0], "CPU differs: A a; B b");
    assert_eq!(w[1], "B was interrupted");
    assert!(w[2].contains("w1: B has 1 warning(s) of its own; the first: busy"));
}

#[test]
fn noise_alone_shows_no_difference() {
    // Four figures are judged with an interval that noise moves. A 95 % interval of a run's own
    // noise is wrong one time in 20, and the threshold takes some of those away.
    let pairs = 150;
    let mut wrong = [0; 4];
    for seed in 0..pairs {
        let (a, b) = (
            made_up(1000 + 2 * seed, 1000.0, 1.0),
            made_up(1001 + 2 * seed, 1000.0, 1.0),
        );
        let c = compare(&a, &b, &terms());
        for (w, r) in wrong.iter_mut().zip(&c.figures) {
            *w += u64::from(matches!(r.verdict, Verdict::Worse | Verdict::Better));
        }
    }
    // If one in 20 were wrong, 15 or more wrong of 150 would come by a chance of 2 in 1000.
    assert!(wrong.iter().all(|w| *w < 15), "{wrong:?} of {pairs}");
}

#[test]
fn arguments() {
    let parsed = |line: &str| options(&page().parse(line.split_whitespace().map(Into::into))?);
    let o = parsed("a b --threshold 2.5% --only w1 --json c.json").unwrap();
    assert_eq!((o.a, o.b), ("a".into(), "b".into()));
    assert_eq!(o.terms.threshold, 0.025);
    assert_eq!(o.terms.only.as_deref(), Some("w1"));
    assert_eq!(o.json, Some("c.json".into()));
    for (line, why) in [
        ("a", "there is no run in bench-report"),
        ("", "there is no run in bench-report"),
        ("a b c", "not 3"),
        ("a b --threshold much", "--threshold much: it must be"),
        ("a b --threshold 100%", "below 100%"),
        ("a b --fast", "there is no option '--fast'"),
        ("a b --treshold 1%", "is '--threshold' meant?"),
    ] {
        let e = parsed(line).unwrap_err().0;
        assert!(e.contains(why), "{line}: {e}");
    }
}

/// JSON text cannot hold arbitrary bytes, so a name that is no text is shown as closely as
/// possible.
#[cfg(target_os = "linux")]
#[test]
fn runs_may_have_names_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let dir = crate::process::TempDir::new(&std::env::temp_dir()).unwrap();
    let named = |bytes: &[u8]| dir.path().join(std::ffi::OsStr::from_bytes(bytes));
    let kept = json::lines(&crate::report::tests::run())
        .unwrap()
        .join("\n");
    let (a, b) = (named(b"a\xFF"), named(b"b\xFF"));
    std::fs::write(&a, &kept).unwrap();
    std::fs::write(&b, &kept).unwrap();
    let o = Options {
        a,
        b,
        terms: Terms::default(),
        json: Some(named(b"out")),
    };
    run(&o).unwrap();
    let written = std::fs::read_to_string(named(b"out")).unwrap();
    assert!(written.contains("b\u{FFFD}"), "{written}");
}
