//! Tests that the built-in workloads do what their descriptions claim.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::custom::Plan;
use crate::custom::draw::{Shape, Shared};
use crate::custom::encode::{Encoder, Env, Hand};
use crate::custom::sample;
use crate::distributions::counter::Counter;
use crate::lab::Preset;
use muniment_value::{DocBuf, Type};
use std::sync::Arc;

/// Makes `n` documents of a template, with `start` numbers in every sequence.
fn documents(workload: &str, template: &str, start: u64, n: usize) -> Vec<DocBuf> {
    let plan = Plan::read(workload, Preset::Smoke).unwrap();
    let sequences: Vec<_> = plan
        .sequences
        .keys()
        .map(|name| (name.clone(), Arc::new(Counter::new(start))))
        .collect();
    let shared = Shared::default();
    let env = Env::new(&sequences, &shared, &Shape::Uniform, "x");
    let mut encoder = Encoder::new(&plan.templates[template], &env).unwrap();
    let mut hand = Hand::new(3, &sequences);
    let one = |_| {
        let mut out = Vec::new();
        hand.next_document();
        encoder.write(&mut hand, &mut out);
        DocBuf::from_bytes_trusted(out)
    };
    (0..n).map(one).collect()
}

fn shape(d: &DocBuf) -> Vec<(String, Type)> {
    let fields = d.as_doc().iter();
    fields.map(|e| (e.name().to_string(), e.ty())).collect()
}

#[test]
fn the_registry_is_sorted_and_every_file_is_a_workload() {
    assert!(ALL.is_sorted_by_key(|b| b.name));
    for b in ALL {
        for preset in [Preset::Smoke, Preset::Quick, Preset::Paper] {
            let plan = Plan::read(b.name, preset).unwrap();
            assert_eq!(plan.name, b.name);
            assert!(!plan.about.is_empty() && !plan.runs().is_empty());
            sample::of(&plan).unwrap();
        }
    }
}

#[test]
fn insert_is_w1s_document_to_the_byte() {
    let mut want = Vec::new();
    crate::docs::w1(&mut want);
    assert_eq!(documents("insert", "hat", 0, 1)[0].as_bytes(), want);
    assert_eq!(want.len(), 23);
}

#[test]
fn insert_batch_is_w3s_document() {
    for d in documents("insert-batch", "row", 0, 100) {
        assert_eq!(d.as_bytes().len(), 113);
        let mut want = Vec::new();
        crate::docs::w3(&mut muniment_load::rng::Rng::new(1), 0, [0; 12], &mut want);
        assert_eq!(shape(&d), shape(&DocBuf::from_bytes_trusted(want)));
        let hash = d.as_doc().get_str("rand_hash").unwrap();
        assert!(hash.bytes().all(|b| b.is_ascii_hexdigit()));
    }
}

#[test]
fn insert_2k_is_w4as_document_to_the_byte_but_for_the_id() {
    let ours = documents("insert-2k", "person", 1_000_000, 1);
    let mut want = Vec::new();
    crate::docs::w4a(1_000_000, [0; 12], &mut want);
    // The comparison leaves out the length and the `_id`, which differ.
    assert_eq!(&ours[0].as_bytes()[21..], &want[21..]);
    assert_eq!(want.len(), 2400);
    let plan = Plan::read("insert-2k", Preset::Smoke).unwrap();
    let index = plan.collections[0].indexes[0].as_doc().get_str("name");
    assert_eq!(index, Some("fName_1"));
}

#[test]
fn users_have_a_kilobyte() {
    for w in ["mixed", "point-read", "point-update"] {
        for d in documents(w, "user", 42, 10) {
            assert_eq!(d.as_bytes().len(), 1024, "{w}");
        }
    }
    let plan = Plan::read("mixed", Preset::Smoke).unwrap();
    let weights: Vec<_> = plan.runs()[0]
        .work
        .iter()
        .map(|o| (o.name, o.weight))
        .collect();
    assert_eq!(
        weights,
        [("read", 70.0), ("update", 20.0), ("insert", 10.0)]
    );
    assert!(
        plan.runs()[0]
            .work
            .iter()
            .all(|o| o.shape == Shape::named("scrambled").unwrap())
    );
}

#[test]
fn orders_have_lines_of_products_that_there_are() {
    let mut notes = 0;
    for d in documents("orders", "order", 100, 500) {
        let d = d.as_doc();
        let customer = d.get("customer").unwrap().as_i64_exact().unwrap();
        assert!((0..100).contains(&customer));
        let lines = d.get_array("lines").unwrap();
        assert!((1..=8).contains(&lines.count()));
        for l in lines.values() {
            let l = l.as_doc().unwrap();
            assert!(l.get("product").unwrap().as_i64_exact().unwrap() < 100);
            let names: Vec<String> = l.iter().map(|e| e.name().to_string()).collect();
            assert_eq!(names, ["product", "count", "price"]);
        }
        notes += usize::from(d.get_str("note").is_some());
    }
    assert!((20..90).contains(&notes), "{notes}");
    for d in documents("orders", "customer", 7, 100) {
        let zip = d.as_doc().get_doc("address").unwrap();
        assert_eq!(zip.get_str("zip").unwrap().len(), 5);
    }
}
