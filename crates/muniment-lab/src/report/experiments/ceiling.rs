//! The report of the load generator's ceiling: rates and CPU by the number of connections.

use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::workloads::ceiling::Row;
use muniment_load::placement;

/// Adds the results to the report.
pub(crate) fn tell(rows: &[Row], out: &mut Outcome) {
    for row in rows {
        figures(row, out);
    }
    let best = rows
        .iter()
        .reduce(|a, b| match b.load.rate() > a.load.rate() {
            true => b,
            false => a,
        });
    out.findings.extend(best.map(|row| {
        let l = &row.load;
        format!(
            "At most {} inserts/s, with {}.",
            rate(l.rate()),
            l.samples.name
        )
    }));
    out.tables.push(table(rows));
}

/// The client's CPU time, µs an operation.
fn client_us(row: &Row) -> f64 {
    row.client_cpu * 1e6 / row.load.samples.operations.max(1) as f64
}

fn figures(row: &Row, out: &mut Outcome) {
    let l = &row.load;
    let name = &l.samples.name;
    out.figure(format!("{name}, rate"), l.rate(), "operations/s", None)
        .of(name, Statistic::Rate);
    out.figure(format!("{name}, client CPU"), client_us(row), "µs", None);
    if let Some(us) = l.server_us() {
        out.figure(format!("{name}, responder CPU"), us, "µs", None);
    }
    out.samples.push(l.samples.clone());
}

fn table(rows: &[Row]) -> Table {
    let mut t = Table::new(
        "Single inserts against the null responder",
        &[
            ">connections",
            "<form",
            "<cores",
            ">operations/s",
            ">client µs each",
            ">responder µs each",
            ">both",
            ">p50 ms",
            ">p99 ms",
            ">p99.9 ms",
            ">busiest worker",
        ],
    );
    for row in rows {
        let (l, client, responder) = (&row.load, client_us(row), row.load.server_us());
        let us = |x: Option<f64>| x.map_or_else(|| "–".into(), |us| format!("{us:.2}"));
        t.row([
            rate(row.connections as f64),
            row.form.name().to_string(),
            row.placement.name().to_string(),
            rate(l.rate()),
            us(Some(client)),
            us(responder),
            us(responder.map(|r| client + r)),
            ms(l.samples.latency.quantile_ms(0.5)),
            ms(l.samples.latency.quantile_ms(0.99)),
            ms(l.samples.latency.quantile_ms(0.999)),
            format!("{:.0} %", l.busiest_worker * 100.0),
        ]);
    }
    t.note(format!(
        "CPU is that of the whole process, user and system: the driver's own thread is in it. Form is \
         how the responder serves its connections: with a thread for each; with one worker for all; with a worker for each core \
         (pool); with workers that poll for 20 µs before they sleep (polling). {}",
        placement::NOTE
    ));
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, load};
    use crate::responder::Responder;
    use muniment_load::placement::Placement;

    #[test]
    fn by_connections() {
        let steps = [
            (1, Responder::Threads, Placement::OneCore),
            (1, Responder::Pool, Placement::TwoCores),
            (4, Responder::Polling, Placement::Anywhere),
            (16, Responder::Threads, Placement::Anywhere),
        ];
        let mut rows: Vec<Row> = steps
            .into_iter()
            .enumerate()
            .map(|(i, (connections, form, placement))| Row {
                connections,
                form,
                placement,
                load: load(
                    &placement.called(&format!("{connections} connections, {}", form.name())),
                    10_000 * [1, 2, 4, 3][i],
                    2.0,
                    0.01,
                ),
                client_cpu: 0.2,
            })
            .collect();
        rows[2].load.server = None;
        let mut out = Outcome::default();
        tell(&rows, &mut out);
        check("ceiling", &out);
    }
}
