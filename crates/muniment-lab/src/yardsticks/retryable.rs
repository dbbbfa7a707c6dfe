//! Yardstick 15: retryable inserts against plain ones.

use super::{CACHE_GB, Pairs, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab};
use crate::linkbench::transaction::Session;
use crate::report::Outcome;
use muniment_load::conn::{Conn, InsertTemplate, Message, check};
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Worker};
use muniment_load::meter::Meter;
use muniment_load::rng::Rng;
use muniment_load::stats::Side;
use muniment_value::doc;
use std::time::Duration;

pub(super) const SPEC: Spec = Spec {
    number: 15,
    title: "retryable inserts (lsid, and a txnNumber that rises) of 113-byte documents against plain ones, 1 and 16 connections",
    target_text: "0.9 ×",
    run,
};

/// A placeholder in a message, which is replaced by the txnNumber.
const NUMBER: i64 = i64::from_le_bytes(*b"\x01number\x01");

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    let time = Duration::from_millis(lab.preset.pick(600, 2000, 10_000));
    let mut seed = 0;
    for (id, connections) in [("15a", 1), ("15b", 16)] {
        let pairs = Pairs::measure(lab, out, |lab, side| {
            let retryable = side == Side::A;
            let who = if retryable { "retryable" } else { "plain" };
            let mut workers = Vec::with_capacity(connections);
            for c in target.connections(connections)? {
                seed += 1;
                workers.push(Singles::new(c, who, seed, retryable));
            }
            let name = format!("Yardstick 15, {connections} connection(s): {who} inserts");
            lab.progress.step(name.clone());
            let limit = Limit::time(time);
            let load = load::run(&name, workers, limit, target.pid, &mut lab.progress)?;
            Ok((load.rate(), Some(load)))
        })?;
        rows.extend(pairs.row(
            id,
            &format!("retryable inserts / plain, {connections} connection(s)"),
            ["retryable", "plain"],
            0.9,
        ));
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// Sends single inserts with w:1, as a driver does with or without `retryWrites`.
struct Singles {
    conn: Conn,
    template: InsertTemplate,
    message: Message,
    /// The position of the number in each message; `None` for plain inserts.
    number_at: Option<usize>,
    number: i64,
    rng: Rng,
    now: i64,
}

impl Singles {
    fn new(conn: Conn, coll: &str, seed: u64, retryable: bool) -> Singles {
        let mut body = doc! { "insert": coll, "ordered": true, "writeConcern": doc! { "w": 1 } };
        if retryable {
            body.append("lsid", Session::new(seed).lsid())
                .append("txnNumber", NUMBER);
        }
        let template = Message::insert_command(DB, body, false);
        let mut message = Message(Vec::new());
        template.begin(&mut message);
        Singles {
            conn,
            number_at: message.find(&NUMBER.to_le_bytes()),
            template,
            message,
            number: 0,
            rng: Rng::new(seed),
            now: docs::now_ms(),
        }
    }
}

impl Worker for Singles {
    #[inline]
    fn prepare(&mut self) -> bool {
        self.template.begin(&mut self.message);
        if let Some(at) = self.number_at {
            self.number += 1;
            self.message.patch(at, &self.number.to_le_bytes());
        }
        docs::w3(
            &mut self.rng,
            self.now,
            docs::object_id(),
            &mut self.message.0,
        );
        self.template.seal(&mut self.message);
        true
    }

    #[inline]
    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        meter.payload(self.message.0.len());
        check(self.conn.call(&mut self.message)?)?;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_load::fake;
    use muniment_load::meter::Board;
    use muniment_value::{DocBuf, Value};
    use std::sync::Arc;

    fn sent(retryable: bool) -> Vec<DocBuf> {
        let (address, heard) = fake::server(|_, _| doc! { "n": 1, "ok": 1.0 });
        let mut w = Singles::new(
            Conn::connect(&muniment_load::access::Peer::open(&address)).unwrap(),
            "c",
            1,
            retryable,
        );
        let mut meter = Meter::new(Arc::new(Board::default()));
        for _ in 0..3 {
            assert!(w.prepare());
            assert_eq!(w.operate(&mut meter), Ok(1));
        }
        heard.all()
    }

    #[test]
    fn numbers_rise_in_one_session() {
        let all = sent(true);
        let number = |d: &DocBuf| match d.as_doc().get("txnNumber") {
            Some(Value::Int64(n)) => Some(n),
            _ => None,
        };
        let numbers: Vec<_> = all.iter().map(number).collect();
        assert_eq!(numbers, [1, 2, 3].map(Some));
        let id = |d: &DocBuf| d.as_doc().get_doc("lsid").map(|l| l.to_buf());
        assert!(id(&all[0]).is_some() && all.iter().all(|d| id(d) == id(&all[0])));
    }

    #[test]
    fn plain_ones_have_neither() {
        for d in sent(false) {
            let names: Vec<_> = d.as_doc().iter().map(|e| e.name()).collect();
            assert!(!names.contains(&"lsid") && !names.contains(&"txnNumber"));
        }
    }
}
