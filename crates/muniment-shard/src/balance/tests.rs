//! The policy on small examples, and repeated on random clusters until it comes to rest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::key::ShardKey;
use crate::stamp::{Timestamp, Version};
use crate::table::{Generation, Record};
use crate::zones::{ZoneOf, ZoneRange};
use muniment_value::doc;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

const MB: u64 = 1 << 20;

fn key() -> ShardKey {
    ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap()
}

fn bound(n: i64) -> Vec<u8> {
    key().bound(doc! { "a": n }.as_doc()).unwrap()
}

/// A table of ranges from MinKey, 10, 20, …, each on the shard that the list names.
fn table(owners: &[usize]) -> RangeTable {
    let end = |n: usize| match n {
        0 => key().lowest(),
        n if n == owners.len() => key().highest(),
        n => bound(10 * n as i64),
    };
    let record = |(n, shard): (usize, &usize)| Record {
        min: end(n),
        max: end(n + 1),
        shard: format!("s{shard}").into(),
        version: Version::new(1, n as u32),
    };
    let generation = Generation {
        uuid: [0; 16],
        timestamp: Timestamp::new(1, 1),
    };
    let records = owners.iter().enumerate().map(record).collect();
    RangeTable::build(Arc::new(key()), generation, records).unwrap()
}

fn load(n: usize, megabytes: u64, zones: &[&str]) -> Load {
    Load {
        name: format!("s{n}").into(),
        bytes: megabytes * MB,
        draining: false,
        zones: zones.iter().map(|z| Arc::from(*z)).collect(),
    }
}

fn zones(ranges: &[(i64, i64, &str)]) -> Zones {
    let range = |(min, max, zone): &(i64, i64, &str)| ZoneRange {
        min: bound(*min),
        max: bound(*max),
        zone: (*zone).into(),
    };
    Zones::new(&key(), ranges.iter().map(range).collect()).unwrap()
}

fn shown(plan: &Plan) -> String {
    let each = plan
        .migrations
        .iter()
        .map(|m| format!("{} {}-{} {:?}", key().show(&m.min), m.from, m.to, m.reason));
    each.collect::<Vec<_>>().join(", ")
}

#[test]
fn sizes() {
    let none = BTreeSet::new();
    let of = |sizes: &[u64], owners: &[usize]| {
        let shards: Vec<Load> = sizes
            .iter()
            .enumerate()
            .map(|(n, s)| load(n, *s, &[]))
            .collect();
        shown(&plan(
            &table(owners),
            &Zones::default(),
            &shards,
            &none,
            CHUNK_BYTES,
        ))
    };
    assert_eq!(of(&[383, 0], &[0, 0, 0]), "");
    assert_eq!(of(&[384, 0], &[0, 0, 0]), "{ a: MinKey } s0-s1 Size");
    assert_eq!(
        of(&[1000, 0, 900, 10], &[1, 0, 2, 3]),
        "{ a: 10 } s0-s1 Size, { a: 20 } s2-s3 Size"
    );
    // The fullest shard has no range to give.
    assert_eq!(of(&[1000, 0, 900], &[1, 2]), "{ a: 10 } s2-s1 Size");
    assert_eq!(of(&[1000], &[0]), "");
}

#[test]
fn shards_that_are_removed_come_first() {
    let mut shards = vec![load(0, 10, &[]), load(1, 5000, &[]), load(2, 20, &[])];
    shards[0].draining = true;
    let table = table(&[0, 0, 1, 1]);
    let none = BTreeSet::new();
    let of = |jumbo: &BTreeSet<Vec<u8>>, shards: &[Load]| {
        plan(&table, &Zones::default(), shards, jumbo, CHUNK_BYTES)
    };
    assert_eq!(shown(&of(&none, &shards)), "{ a: MinKey } s0-s2 Draining");
    let jumbo = BTreeSet::from([key().lowest()]);
    let found = of(&jumbo, &shards);
    assert_eq!(shown(&found), "{ a: 10 } s0-s2 Draining");
    assert_eq!(found.stuck, 1);
    // Nothing moves to a shard that is being removed, however little it has.
    shards[2].draining = true;
    assert_eq!(shown(&of(&none, &shards)), "{ a: MinKey } s0-s1 Draining");
    shards[1].draining = true;
    let found = of(&none, &shards);
    assert!(found.is_empty());
    assert_eq!(found.stuck, 4);
}

#[test]
fn zones_are_kept() {
    let none = BTreeSet::new();
    let zones = zones(&[(10, 20, "EU"), (20, 30, "US")]);
    let shards = vec![
        load(0, 10, &[]),
        load(1, 9000, &["EU"]),
        load(2, 20, &["EU", "US"]),
    ];
    let found = plan(&table(&[0, 0, 1, 1]), &zones, &shards, &none, CHUNK_BYTES);
    assert_eq!(shown(&found), "{ a: 10 } s0-s2 Zone");
    // The range of the zone stays, since no other shard of the zone has much less.
    let shards = vec![
        load(0, 10, &[]),
        load(1, 9000, &["EU"]),
        load(2, 8999, &["EU", "US"]),
    ];
    let found = plan(&table(&[0, 1, 2]), &zones, &shards, &none, CHUNK_BYTES);
    assert!(found.migrations.is_empty());
    // Two zones meet within a range, which is split first.
    let found = plan(&table(&[0]), &zones, &shards, &none, CHUNK_BYTES);
    assert_eq!(found.splits, [bound(10), bound(20), bound(30)]);
    assert!(found.migrations.is_empty());
}

/// A cluster whose ranges have sizes.
#[derive(Clone, Debug)]
struct Cluster {
    table: RangeTable,
    zones: Zones,
    /// The size of each range, by its lower bound.
    sizes: BTreeMap<Vec<u8>, u64>,
    jumbo: BTreeSet<Vec<u8>>,
    shards: Vec<Load>,
    version: u32,
}

impl Cluster {
    /// Measures the shards.
    fn measure(&mut self) {
        for shard in &mut self.shards {
            let named = self.table.shard_named(&shard.name);
            let ranges = self.table.ranges().filter(|r| Some(r.shard) == named);
            shard.bytes = ranges.map(|r| self.sizes[&r.min]).sum();
        }
    }

    fn change(&mut self, changes: Vec<(Vec<u8>, Vec<u8>, Arc<str>)>) {
        let records = changes.into_iter().map(|(min, max, shard)| {
            self.version += 1;
            Record {
                min,
                max,
                shard,
                version: Version::new(self.version, 0),
            }
        });
        let records = records.collect();
        self.table = self.table.apply(records).unwrap();
    }

    fn split(&mut self, at: &[u8]) {
        let range = self.table.find(at);
        let shard: Arc<str> = self.table.shard_name(range.shard).into();
        let size = self.sizes[&range.min] / 2;
        self.sizes.insert(range.min.clone(), size);
        self.sizes.insert(at.to_vec(), size);
        self.change(vec![
            (range.min, at.to_vec(), shard.clone()),
            (at.to_vec(), range.max, shard),
        ]);
    }

    /// Checks a migration, and makes it.
    fn migrate(&mut self, m: &Migration) {
        let range = self.table.find(&m.min);
        assert_eq!((&range.min, &range.max), (&m.min, &m.max));
        assert_eq!(self.table.shard_name(range.shard), &*m.from);
        assert!(!self.jumbo.contains(&m.min));
        let to = self.shards.iter().find(|s| s.name == m.to).unwrap();
        assert!(!to.draining);
        match self.zones.of(&m.min, &m.max) {
            ZoneOf::One(zone) => assert!(to.zones.contains(zone)),
            ZoneOf::None => {}
            ZoneOf::Divided(_) => panic!("a zone begins within a range that moves"),
        }
        self.change(vec![(m.min.clone(), m.max.clone(), m.to.clone())]);
    }

    /// Checks that no range is where it must not be, unless nothing can be done.
    fn check_rest(&self) {
        let stays = |zone: Option<&Arc<str>>| {
            let may = |s: &&Load| zone.is_none_or(|z| s.zones.contains(z)) && !s.draining;
            self.shards.iter().filter(may).count()
        };
        for range in self.table.ranges().filter(|r| !self.jumbo.contains(&r.min)) {
            let name = self.table.shard_name(range.shard);
            let shard = self.shards.iter().find(|s| *s.name == *name).unwrap();
            let zone = match self.zones.of(&range.min, &range.max) {
                ZoneOf::One(zone) => Some(zone),
                ZoneOf::None => None,
                ZoneOf::Divided(_) => panic!("not split"),
            };
            if stays(zone) > 0 {
                assert!(!shard.draining);
                assert!(zone.is_none_or(|z| shard.zones.contains(z)));
            }
        }
    }
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let shard = (
        prop::bool::weighted(0.2),
        prop::sample::subsequence(vec!["EU", "US"], 0..=2),
    );
    let range = (
        any::<prop::sample::Index>(),
        0..128_u64,
        prop::bool::weighted(0.05),
    );
    let zone_bounds = prop::collection::btree_set(0..300_i64, 0..=4);
    (
        prop::collection::vec(shard, 1..6),
        prop::collection::vec(range, 1..60),
        zone_bounds,
    )
        .prop_map(|(shards, ranges, bounds)| {
            let owners: Vec<usize> = ranges.iter().map(|(i, ..)| i.index(shards.len())).collect();
            let table = table(&owners);
            let mins: Vec<Vec<u8>> = table.ranges().map(|r| r.min).collect();
            let sized = mins.into_iter().zip(&ranges);
            let sizes = sized
                .clone()
                .map(|(min, (_, mb, _))| (min, mb * MB))
                .collect();
            let jumbo = sized
                .filter(|(_, (.., j))| *j)
                .map(|(min, _)| min)
                .collect();
            let bounds: Vec<i64> = bounds.into_iter().collect();
            let pairs = bounds.chunks_exact(2).zip(["EU", "US"]);
            let ranges: Vec<_> = pairs.map(|(b, zone)| (b[0], b[1], zone)).collect();
            Cluster {
                table,
                zones: zones(&ranges),
                sizes,
                jumbo,
                shards: shards
                    .into_iter()
                    .enumerate()
                    .map(|(n, (draining, zones))| Load {
                        draining,
                        ..load(n, 0, &zones)
                    })
                    .collect(),
                version: 1,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn plans_come_to_an_end_and_keep_to_zones(mut c in cluster()) {
        for round in 0.. {
            prop_assert!(round < 500, "no end");
            c.measure();
            let found = plan(&c.table, &c.zones, &c.shards, &c.jumbo, CHUNK_BYTES);
            if found.is_empty() {
                break;
            }
            let mut seen = HashSet::new();
            for m in &found.migrations {
                prop_assert!(seen.insert(m.from.clone()) && seen.insert(m.to.clone()));
                c.migrate(m);
            }
            for at in &found.splits {
                c.split(at);
            }
        }
        c.check_rest();
    }
}
