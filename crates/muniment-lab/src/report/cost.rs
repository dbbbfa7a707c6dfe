//! The table of the loads' costs: microseconds of CPU, kilobytes read and written, and the bytes
//! written for each byte of a write (write amplification).

use super::table::{Table, bytes, rate};
use muniment_load::samples::SampleSet;
use muniment_load::stats::median;
use muniment_load::usage::{ServerUsage, TOO_SHORT, Usage};

/// The table of the costs of `samples`, with a row for each name (medians if a load was repeated);
/// `None` if nothing was measured. `price` is the price of a core for an hour, in any currency.
pub(crate) fn table(samples: &[SampleSet], price: Option<f64>) -> Option<Table> {
    let mut names: Vec<&str> = Vec::new();
    for s in samples.iter().filter(|s| s.usage.is_some()) {
        if !names.contains(&s.name.as_str()) {
            names.push(&s.name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut columns = vec![
        "<load",
        ">documents",
        ">server CPU µs/doc",
        ">client CPU µs/doc",
        ">KB read/doc",
        ">KB written/doc",
        ">write amplification",
        ">largest RSS",
    ];
    columns.push(match price {
        Some(_) => ">cost of 1 M docs",
        None => ">core-s of 1 M docs",
    });
    let mut t = Table::new("Cost per document", &columns);
    for name in names {
        let all = samples.iter().filter(|s| s.name == name);
        let usages: Vec<Usage> = all.filter_map(|s| s.usage).collect();
        t.row(row(name, &usages, price));
    }
    t.note(format!(
        "Written: what the server handed to the block layer while the load ran; what it compacts later is not in it. Write amplification: that over the bytes of documents and changes sent. Cost: the server's CPU{}.",
        match price {
            Some(p) => format!(" at {p} a core and hour"),
            None => " (--core-hour PRICE turns it into money)".into(),
        }
    ));
    Some(t)
}

/// The costs of all loads of this name.
fn row(name: &str, usages: &[Usage], price: Option<f64>) -> [String; 9] {
    let of = |f: &dyn Fn(&Usage) -> Option<f64>| {
        let all: Vec<f64> = usages.iter().filter_map(f).collect();
        (!all.is_empty()).then(|| median(&all))
    };
    let dash = || "–".to_string();
    let figure = |x: Option<f64>, show: fn(f64) -> String| x.map_or_else(dash, show);
    let server =
        |f: fn(&ServerUsage) -> f64| of(&|u: &Usage| u.server.as_ref().map(|s| u.each(f(s))));
    let cpu = server(|s| s.cpu);
    // Whether there was enough CPU time to believe is decided by all repetitions together.
    let all = usages.iter().filter_map(|u| u.server);
    let together = all.reduce(|a, b| ServerUsage {
        cpu: a.cpu + b.cpu,
        ..b
    });
    let short = together.is_some_and(|s| s.cpu_believed().is_none());
    let of_cpu = |x: Option<f64>, show: fn(f64) -> String| match short {
        true => TOO_SHORT.to_string(),
        false => figure(x, show),
    };
    [
        name.to_string(),
        figure(of(&|u| Some(u.units as f64)), rate),
        of_cpu(cpu.map(|c| c * 1e6), digits),
        figure(of(&|u| Some(u.each(u.client_cpu) * 1e6)), digits),
        figure(server(|s| s.read).map(|b| b / 1e3), digits),
        figure(server(|s| s.written).map(|b| b / 1e3), digits),
        figure(
            of(&|u| {
                let written = u.server.as_ref()?.written;
                (u.payload > 0).then(|| written / u.payload as f64)
            }),
            digits,
        ),
        figure(of(&|u| u.server.as_ref().map(|s| s.rss)), bytes),
        match price {
            Some(p) => of_cpu(cpu.map(|c| c * 1e6 / 3600.0 * p), |x| format!("{x:.5}")),
            None => of_cpu(cpu.map(|c| c * 1e6), digits),
        },
    ]
}

/// Formats a number with about three digits.
fn digits(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() => "–".into(),
        a if a >= 100.0 => rate(x),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a > 0.0 && a < 0.095 => format!("{x:.3}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn sample(name: &str, cpu: f64) -> SampleSet {
        SampleSet {
            name: name.into(),
            usage: Some(Usage {
                units: 1000,
                client_cpu: 0.002,
                server: Some(ServerUsage {
                    cpu,
                    cpu_step: 1e-4,
                    read: 0.0,
                    written: 3_000_000.0,
                    rss: 5e7,
                }),
                payload: 1_000_000,
            }),
            ..SampleSet::default()
        }
    }

    #[test]
    fn costs_are_per_document_and_medians_of_repetitions() {
        let mut other = sample("b", 0.5);
        other.usage.as_mut().unwrap().server = None;
        let set = [
            sample("a", 0.01),
            sample("a", 0.02),
            sample("a", 0.04),
            other,
        ];
        let t = table(&set, None).unwrap();
        assert_eq!(
            t.rows[0],
            [
                "a", "1,000", "20.0", "2.00", "0.00", "3.00", "3.00", "50.00 MB", "20.0"
            ]
        );
        assert_eq!(t.rows[1][2], "–");
        assert_eq!(t.rows.len(), 2);
        assert!(table(&[SampleSet::default()], None).is_none());
        // 20 µs of CPU for each document are 20 s for a million, which is a 180th of an hour.
        let t = table(&set, Some(1.8)).unwrap();
        assert_eq!(t.rows[0][8], "0.01000");
    }

    #[test]
    fn a_few_ticks_of_a_clock_are_no_figure() {
        let mut one = sample("a", 0.05);
        let server = |s: &mut SampleSet, cpu: f64| {
            let server = s.usage.as_mut().unwrap().server.as_mut().unwrap();
            (server.cpu, server.cpu_step) = (cpu, 0.01);
        };
        server(&mut one, 0.01);
        let t = table(&[one.clone()], None).unwrap();
        assert_eq!(
            (t.rows[0][2].as_str(), t.rows[0][8].as_str()),
            (TOO_SHORT, TOO_SHORT)
        );
        server(&mut one, 0.3);
        let t = table(&[one.clone()], None).unwrap();
        assert_eq!(t.rows[0][2], "300");
        // Ten repetitions with little CPU time each have enough together.
        server(&mut one, 0.05);
        let t = table(&vec![one; 10], None).unwrap();
        assert_eq!(t.rows[0][2], "50.0");
    }
}
