//! The report of the durability audit: its table, sentences and plot.

use crate::audit::concern::{Crash, Server};
use crate::audit::judge::{Promise, Verdict};
use crate::audit::{Check, Plan, Row, shows_no_loss};
use crate::report::Outcome;
use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, ms, rate};

/// Adds the results of the rows to the report.
pub(crate) fn tell(rows: &[Row], plan: &Plan, out: &mut Outcome) {
    out.about = format!(
        "{} writers insert, insert in batches and update under each write concern until the server is crashed at a random moment within {} s; then it is started again and compared with what they remember. {} rounds a row, seed {}.",
        plan.threads, plan.seconds, plan.rounds, plan.seed
    );
    for r in rows {
        out.findings.push(sentence(r));
        figures(r, out);
    }
    if rows.iter().any(|r| r.external) {
        out.findings.push(
            "Process crash only: nothing here says what a power loss would leave of this server."
                .into(),
        );
    }
    if !rows.is_empty() {
        out.tables.push(table(rows));
    }
    out.plots.extend(plot(rows));
    if shows_no_loss(rows) {
        out.warnings.push(
            "No write was lost that might have been: these rounds do not show that a loss would be seen. More rounds or a longer --journalCommitInterval do."
                .into(),
        );
    }
}

/// The verdict in the table's words.
fn verdict_text(r: &Row) -> String {
    let lost = r.tally.lost();
    match (r.verdict(), r.server) {
        (Verdict::Kept, _) => "KEPT".into(),
        (Verdict::Broken, _) => "BROKEN".into(),
        (Verdict::NothingShown, _) => "NOTHING SHOWN".into(),
        (Verdict::LeftOut, _) => "left out".into(),
        (Verdict::NoPromise, _) if lost == 0 => "none lost".into(),
        (Verdict::NoPromise, Server::Set) => format!("rolled back {}", rate(lost as f64)),
        (Verdict::NoPromise, _) => format!("lost {}", rate(lost as f64)),
    }
}

/// The promise in words, or the reason why the row was left out.
fn promise(r: &Row) -> String {
    match (&r.left_out, r.check) {
        (Some(why), _) => format!("not tried: {why}"),
        (None, Check::Concerns) => r.promise.text(),
        (None, Check::Transactions) => format!("{}; no halves", r.promise.text()),
        (None, Check::Retries) => format!("{}; nothing is done twice", r.promise.text()),
    }
}

/// The result of one row in a sentence.
fn sentence(r: &Row) -> String {
    let t = &r.tally;
    if let Some(why) = &r.left_out {
        let crash = r.crash_name();
        return format!(
            "{}, {crash}: left out, the target answers: {why}",
            r.concern
        );
    }
    let (known, when) = match (r.check, r.concern.as_str()) {
        (Check::Transactions, _) => ("acknowledged transactions", "acknowledged"),
        (Check::Concerns, "w:0") => ("writes known to be applied", "known"),
        _ => ("acknowledged writes", "acknowledged"),
    };
    let mut s = format!("{}, {}: ", r.concern, r.crash_name());
    let gone = match r.server {
        Server::Set => "rolled back",
        _ => "lost",
    };
    match (t.lost(), t.oldest_lost_ms(), t.newest_lost_ms()) {
        (n, Some(oldest), Some(newest)) => {
            s += &format!(
                "{} of {} {known} {gone}, {when} {newest:.0} to {oldest:.0} ms before the {}",
                rate(n as f64),
                rate(t.acknowledged as f64),
                match r.crash {
                    Crash::Process => "crash",
                    Crash::Power => "cut",
                    Crash::Fault(_) => "fault",
                }
            );
            if t.lost_updates > 0 {
                s += &format!(" ({} of them updates)", rate(t.lost_updates as f64));
            }
        }
        _ => s += &format!("none of {} {known} {gone}", rate(t.acknowledged as f64)),
    }
    if r.check == Check::Retries {
        let n = rate(t.sent_again as f64);
        s += &format!("; {n} that had not been answered were sent again");
    }
    if t.undone > 0 {
        s += &format!("; {} documents in rollback files", rate(t.undone as f64));
    }
    for fault in t.faults() {
        s += &format!("; {fault}");
    }
    s += &match r.promise {
        Promise::Unknown => "; no promise is known".to_string(),
        p => format!("; promise: {}", p.text()),
    };
    if r.needs_allowance() {
        s += &format!(
            " (and {} ms for the sync itself and for threads that had to wait)",
            r.allowance.as_millis()
        );
    }
    s + ": " + &verdict_text(r)
}

/// Adds the figures of one row, and the examples of faults.
fn figures(r: &Row, out: &mut Outcome) {
    let t = &r.tally;
    let name = |what: &str| format!("{}, {}: {what}", r.concern, r.crash_name());
    out.figure(name("acknowledged"), t.acknowledged as f64, "writes", None);
    out.figure(name("lost"), t.lost() as f64, "writes", None);
    if let Some(age) = t.oldest_lost_ms() {
        out.figure(name("oldest lost"), age, "ms", None);
    }
    out.warnings.extend(t.examples.iter().map(|e| name(e)));
}

/// The explanation of the table's columns.
const NOTE: &str = "A document of a batch and an update count as one write. Lost: acknowledged and not there; its age is from the acknowledgement to the crash. Holes: not there although a later write of the same writer is. Phantoms: there and never sent. Damaged: other content than was sent. Index: differences between collection and secondary index, or validate failed. In flight: sent and not acknowledged, excluded from lost. Rolled back: documents in the rollback files of a set of the lab's own. Restart: the slowest; of such a set the time from the fault to another primary, or without a majority until all are well again.";

/// The remark for audits in which servers were only killed.
const KILLED_ONLY: &str = " PROCESS CRASH ONLY: a killed process leaves what it gave to the operating system, so that this table says nothing about power loss.";

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(
        "Acknowledged writes after a crash",
        &[
            "<write concern or check",
            "<crash",
            "<verdict",
            ">rounds",
            ">acknowledged",
            ">lost",
            ">oldest lost, ms",
            ">holes",
            ">phantoms",
            ">damaged",
            ">index",
            ">rolled back",
            ">in flight, there",
            ">in flight, gone",
            ">part batches",
            ">restart, ms",
            "<promise",
        ],
    );
    for r in rows {
        let t = &r.tally;
        let n = |n: u64| rate(n as f64);
        table.row([
            r.concern.clone(),
            r.crash_name().into(),
            verdict_text(r),
            n(t.rounds),
            n(t.acknowledged),
            n(t.lost()),
            t.oldest_lost_ms().map_or_else(|| "–".into(), ms),
            n(t.holes),
            n(t.phantoms),
            n(t.damaged),
            n(t.disagreements),
            match r.crash {
                Crash::Fault(_) => n(t.undone),
                _ => "–".into(),
            },
            n(t.in_flight_present),
            n(t.in_flight_absent),
            n(t.partial_batches),
            ms(r.restart.as_secs_f64() * 1e3),
            promise(r),
        ]);
    }
    let external = rows.iter().any(|r| r.external);
    table.note(format!("{NOTE}{}", if external { KILLED_ONLY } else { "" }));
    table
}

/// The plot of lost writes by their age, if any were lost.
fn plot(rows: &[Row]) -> Option<Plot> {
    const BINS: usize = 20;
    let lost = || rows.iter().filter(|r| r.tally.lost() > 0);
    let oldest = lost().filter_map(|r| r.tally.oldest_lost_ms());
    let oldest = oldest.reduce(f64::max)?;
    let width = (oldest / BINS as f64).max(1.0).ceil();
    let series = lost().enumerate().map(|(i, r)| {
        let bins = r.tally.lost_by_age(width, BINS + 1);
        let points = bins.iter().enumerate();
        let points = points.map(|(k, n)| ((k as f64 + 0.5) * width, *n));
        let name = format!("{}, {}", r.concern, r.crash_name());
        Series::new(name, Mark::Line, i % 8, points.collect())
    });
    let plot = Plot::new(
        "Lost writes by age",
        &format!(
            "How long before the crash the lost writes had been acknowledged, in steps of {width:.0} ms. A commit interval shows as the place where the line ends."
        ),
        Axis::linear("ms between acknowledgement and crash"),
        Axis::linear("lost writes"),
    );
    Some(plot.series(series))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::audit::fault::Fault;
    use crate::audit::judge::Tally;
    use crate::report::experiments::fixtures::check;
    use std::time::Duration;

    fn row(server: Server, crash: Crash, promise: Promise, ages: &[f64]) -> Row {
        Row {
            concern: "w:1".into(),
            check: Check::Concerns,
            left_out: None,
            crash,
            server,
            tally: Tally {
                rounds: 2,
                acknowledged: 84_113,
                lost_ages_ms: ages.to_vec(),
                ..Tally::default()
            },
            restart: Duration::from_millis(12),
            promise,
            allowance: Duration::from_millis(200),
            external: server != Server::Muniment(INTERVAL),
        }
    }

    const INTERVAL: Duration = Duration::from_millis(100);
    const OURS: Server = Server::Muniment(INTERVAL);

    fn written(rows: &[Row]) -> (Outcome, Vec<String>) {
        let plan = Plan {
            rounds: 2,
            seconds: 1.0,
            threads: 4,
            checks: Check::ALL.to_vec(),
            concerns: Vec::new(),
            crashes: Vec::new(),
            seed: 1,
            sync_us: 0,
            journal_ms: None,
            templates: None,
            members: None,
        };
        let mut out = Outcome::default();
        tell(rows, &plan, &mut out);
        (out, rows.iter().filter_map(Row::wrong).collect())
    }

    #[test]
    fn a_kept_promise_is_said_with_the_ages() {
        let r = row(OURS, Crash::Power, Promise::Within(INTERVAL), &[2.2, 95.6]);
        let (out, bad) = written(&[r]);
        assert_eq!(
            out.findings,
            [
                "w:1, power loss: 2 of 84,113 acknowledged writes lost, acknowledged 2 to 96 ms before the cut; promise: at most the last 100 ms: KEPT"
            ]
        );
        assert_eq!(bad, Vec::<String>::new());
        assert_eq!(out.plots.len(), 1);
        let drawn: f64 = out.plots[0].series[0].points.iter().map(|p| p.1).sum();
        assert_eq!(drawn, 2.0);
        assert!(out.warnings.is_empty());
    }

    #[test]
    fn a_broken_one_is_named() {
        let r = row(OURS, Crash::Power, Promise::Within(INTERVAL), &[301.0]);
        let (out, bad) = written(&[r]);
        assert!(out.findings[0].contains("(and 200 ms for the sync itself"));
        assert!(out.findings[0].ends_with(": BROKEN"), "{}", out.findings[0]);
        assert_eq!(bad, ["the promise of w:1 on power loss was broken"]);
    }

    #[test]
    fn an_external_server_is_labelled_and_a_set_rolls_back() {
        let (out, bad) = written(&[
            row(Server::Other, Crash::Process, Promise::Unknown, &[3.0]),
            row(Server::Set, Crash::Process, Promise::Unknown, &[3.0]),
        ]);
        assert!(bad.is_empty());
        assert!(out.tables[0].note.contains("PROCESS CRASH ONLY"));
        let verdicts: Vec<_> = out.tables[0].rows.iter().map(|r| r[2].as_str()).collect();
        assert_eq!(verdicts, ["lost 1", "rolled back 1"]);
        assert!(out.findings[1].starts_with("w:1, primary killed: 1 of"));
    }

    #[test]
    fn an_audit_that_shows_nothing_says_so() {
        let kept = row(OURS, Crash::Power, Promise::Within(INTERVAL), &[]);
        let (out, _) = written(std::slice::from_ref(&kept));
        assert!(out.warnings[0].contains("do not show that a loss would be seen"));
        let mut idle = kept;
        idle.tally.acknowledged = 0;
        let (_, bad) = written(&[idle]);
        assert!(bad[0].contains("no write was acknowledged"), "{bad:?}");
    }

    #[test]
    fn what_was_not_tried_says_why() {
        let mut r = row(Server::Other, Crash::Process, Promise::NothingLost, &[]);
        r.concern = "transactions: all or nothing".into();
        r.check = Check::Transactions;
        r.tally = Tally::default();
        r.left_out = Some("no transactions here".into());
        let (out, bad) = written(&[r]);
        assert_eq!(bad, Vec::<String>::new());
        assert_eq!(
            out.findings[0],
            "transactions: all or nothing, process crash: left out, the target answers: no transactions here"
        );
        assert_eq!(out.tables[0].rows[0][2], "left out");
    }

    #[test]
    fn a_set_of_our_own_shows_what_it_undid() {
        let undone = Promise::Undone(Duration::from_secs(10));
        let crash = Crash::Fault(Fault::CutPrimary);
        let mut r = row(Server::Set, crash, undone, &[0.0, 3.0]);
        r.external = false;
        r.tally.undone = 2;
        let (out, bad) = written(std::slice::from_ref(&r));
        assert_eq!(bad, Vec::<String>::new());
        assert_eq!(
            out.findings,
            [
                "w:1, primary cut off: 2 of 84,113 acknowledged writes rolled back, acknowledged 0 to 3 ms before the fault; 2 documents in rollback files; promise: at most the last 10 s, and that is in rollback files: KEPT"
            ]
        );
        r.tally.untraced = 1;
        let (out, bad) = written(&[r]);
        assert!(out.findings[0].contains("; 1 lost without a trace;"));
        assert_eq!(bad, ["the promise of w:1 on primary cut off was broken"]);
    }

    #[test]
    fn all_kinds_of_rows() {
        let of = |concern: &str, check, r: Row| Row {
            concern: concern.into(),
            check,
            ..r
        };
        let undone = Promise::Undone(Duration::from_secs(10));
        let mut rows = vec![
            row(OURS, Crash::Power, Promise::Within(INTERVAL), &[2.2, 95.6]),
            row(OURS, Crash::Power, Promise::Within(INTERVAL), &[301.0]),
            row(OURS, Crash::Process, Promise::NothingLost, &[]),
            row(Server::Other, Crash::Process, Promise::Unknown, &[3.0, 1.0]),
            row(
                Server::Set,
                Crash::Fault(Fault::CutPrimary),
                undone,
                &[0.0, 3.0],
            ),
            of(
                "transactions: all or nothing",
                Check::Transactions,
                row(OURS, Crash::Process, Promise::NothingLost, &[]),
            ),
            of(
                "retries: exactly once",
                Check::Retries,
                row(OURS, Crash::Process, Promise::NothingLost, &[]),
            ),
            of(
                "w:0",
                Check::Concerns,
                row(OURS, Crash::Process, Promise::Unknown, &[]),
            ),
        ];
        rows[1].tally.examples.push("a lost one".into());
        rows[1].tally.lost_updates = 1;
        rows[4].tally.undone = 2;
        rows[6].tally.sent_again = 7;
        rows[7].left_out = Some("no such thing".into());
        rows[7].tally = Tally::default();
        let (out, bad) = written(&rows);
        check("audit", &out);
        assert_eq!(bad, ["the promise of w:1 on power loss was broken"]);
        let (out, _) = written(&[]);
        assert!(out.tables.is_empty() && out.plots.is_empty());
    }

    #[test]
    fn retries_tell_how_many_there_were() {
        let mut r = row(OURS, Crash::Process, Promise::NothingLost, &[]);
        r.concern = "retries: exactly once".into();
        r.check = Check::Retries;
        r.tally.sent_again = 7;
        let (out, bad) = written(&[r.clone()]);
        assert!(bad.is_empty());
        assert!(
            out.findings[0].contains("; 7 that had not been answered were sent again; promise")
        );
        r.tally.damaged = 1;
        let (out, bad) = written(&[r]);
        assert!(out.findings[0].ends_with(": BROKEN"));
        assert_eq!(
            bad,
            ["the promise of retries: exactly once on process crash was broken"]
        );
    }
}
