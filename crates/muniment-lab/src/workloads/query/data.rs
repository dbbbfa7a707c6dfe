//! The data of a shop: orders of about 400 bytes with three items each, and customers. The same
//! numbers give the same documents everywhere, so that the correct result of every query is known.

use crate::lab::{DB, Lab};
use muniment_load::conn::{Conn, Message, check};
use muniment_load::fail::Result;
use muniment_load::rng::Rng;
use muniment_load::stop;
use muniment_value::{ArrayBuf, DocBuf, Value, array, doc};

/// The amount of data.
pub(crate) struct Size {
    pub orders: u64,
    pub customers: u64,
}

/// The states of an order; each state has every fifth order, by the order's number.
pub(super) const STATUS: [&str; 5] = ["new", "paid", "packed", "shipped", "returned"];
/// The regions; each has one order in eight, by the order's number divided by five.
pub(super) const REGION: [&str; 8] = [
    "north", "south", "east", "west", "centre", "coast", "islands", "abroad",
];
/// The number of different items.
pub(super) const SKUS: u64 = 1000;
/// One order in so many has the rare word in its note and a code that begins with `RX`.
pub(super) const RARE: u64 = 500;

const WORDS: [&str; 16] = [
    "please",
    "deliver",
    "after",
    "noon",
    "ring",
    "twice",
    "leave",
    "with",
    "neighbour",
    "fragile",
    "gift",
    "wrapped",
    "invoice",
    "attached",
    "second",
    "floor",
];
const BATCH: u64 = 1000;

/// Makes order number `i`.
pub(super) fn order(i: u64, size: &Size) -> DocBuf {
    let mut r = Rng::new(i ^ 0x5EED);
    let mut items = ArrayBuf::new();
    for _ in 0..3 {
        items.push(doc! {
            "sku": format!("s{:04}", r.below(SKUS)),
            "qty": 1 + r.below(9) as i32,
            "price": r.below(100_000) as f64 / 100.0,
        });
    }
    let pick = |n: usize| WORDS.get(n % WORDS.len()).copied().unwrap_or("");
    let mut note: Vec<&str> = (0..7).map(|_| pick(r.next_u64() as usize)).collect();
    let rare = i.is_multiple_of(RARE);
    if rare {
        note.push("giraffe");
    }
    let of = |list: &[&'static str], n: u64| list.get((n % list.len() as u64) as usize).copied();
    doc! {
        "_id": i as i32,
        "customer": (r.below(size.customers)) as i32,
        "status": of(&STATUS, i).unwrap_or(""),
        "region": of(&REGION, i / 5).unwrap_or(""),
        "code": format!("{}{:06}", if rare { "RX" } else { "AB" }, i),
        "at": Value::DateTime(1_600_000_000_000 + (r.below(100_000_000) as i64) * 1000),
        // The ranks of a thousand successive orders are a permutation of the numbers below 1000.
        "rank": (i * 7 % 1000) as i32,
        "total": r.below(1_000_000) as f64 / 100.0,
        "items": items,
        "note": note.join(" "),
        "place": doc! { "type": "Point", "coordinates": array![
            r.unit() * 10.0 + 5.0, r.unit() * 10.0 + 45.0
        ] },
    }
}

/// Makes customer number `i`.
pub(super) fn customer(i: u64) -> DocBuf {
    doc! {
        "_id": format!("c{i:06}"),
        "number": i as i32,
        "name": format!("customer {i} of the shop"),
        "tier": ["gold", "silver", "bronze"].get((i % 3) as usize).copied().unwrap_or(""),
    }
}

/// Inserts all documents; returns the average size of an order.
pub(super) fn load(lab: &mut Lab, conn: &mut Conn, size: &Size) -> Result<f64> {
    lab.progress.step("query: customers");
    fill(conn, "customers", size.customers, customer)?;
    lab.progress.step("query: orders");
    let bytes = fill(conn, "orders", size.orders, |i| order(i, size))?;
    Ok(bytes as f64 / size.orders as f64)
}

fn fill(conn: &mut Conn, name: &str, n: u64, make: impl Fn(u64) -> DocBuf) -> Result<u64> {
    let template = Message::insert(DB, name, None);
    let (mut docs, mut bytes) = (Vec::new(), 0);
    for first in (0..n).step_by(BATCH as usize) {
        if stop::asked() {
            break;
        }
        docs.clear();
        for i in first..(first + BATCH).min(n) {
            docs.extend_from_slice(make(i).as_bytes());
        }
        bytes += docs.len() as u64;
        check(conn.call(&mut template.message(&docs))?)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn orders_have_their_size_and_are_the_same_each_time() {
        let size = Size {
            orders: 1_000_000,
            customers: 100_000,
        };
        let all: usize = (0..1000).map(|i| order(i, &size).as_bytes().len()).sum();
        assert!((380..=420).contains(&(all / 1000)), "{}", all / 1000);
        assert_eq!(order(17, &size), order(17, &size));
        let o = order(RARE, &size);
        assert!(o.as_doc().get_str("code").unwrap().starts_with("RX"));
        assert!(o.as_doc().get_str("note").unwrap().ends_with("giraffe"));
    }
}
