//! Geospatial queries find the same with and without an index, and `$near` finds the same as
//! measuring every document.

use super::metamorphic::run_with_releases;
use super::*;
use muniment_query::geo::NearQuery;
use muniment_query::running::Work;
use muniment_query::{Filter, QueryContext};
use muniment_value::path::Path;
use muniment_value::{Value, doc};
use testkit::random::Rng;

/// Random places: all over the earth or close together, and also at the date line and at a pole.
struct Places {
    center: (f64, f64),
    spread: f64,
}

impl Places {
    fn new(rng: &mut Rng) -> Places {
        let center = [(0.0, 0.0), (179.9, 10.0), (20.0, 89.0), (-60.0, -35.0)];
        Places {
            center: center[rng.below(4)],
            spread: [180.0, 20.0, 0.5][rng.below(3)],
        }
    }

    fn unit(rng: &mut Rng) -> f64 {
        rng.below(2001) as f64 / 1000.0 - 1.0
    }

    fn at(&self, rng: &mut Rng, spread: f64) -> (f64, f64) {
        let x = self.center.0 + Places::unit(rng) * spread;
        let y = self.center.1 + Places::unit(rng) * spread / 2.0;
        ((x + 540.0).rem_euclid(360.0) - 180.0, y.clamp(-90.0, 90.0))
    }

    fn pair(&self, rng: &mut Rng) -> String {
        let (x, y) = self.at(rng, self.spread);
        format!("[{x}, {y}]")
    }

    /// The corners of a polygon around a point, by their angle.
    fn ring(&self, rng: &mut Rng) -> String {
        let (x, y) = self.at(rng, self.spread);
        let size = self.spread.min(40.0) * (0.05 + rng.below(100) as f64 / 100.0);
        let n = 3 + rng.below(6);
        let mut list: Vec<String> = (0..n)
            .map(|i| {
                let turn = (i as f64 + 0.8 * rng.below(100) as f64 / 100.0) / n as f64
                    * std::f64::consts::TAU;
                let px = x + size * turn.cos();
                let py = (y + size * turn.sin()).clamp(-89.9, 89.9);
                format!("[{}, {py}]", (px + 540.0).rem_euclid(360.0) - 180.0)
            })
            .collect();
        list.push(list[0].clone());
        format!("[{}]", list.join(", "))
    }

    fn geometry(&self, rng: &mut Rng) -> String {
        let one = |kind: &str, coordinates: String| {
            format!(r#"{{"type": "{kind}", "coordinates": {coordinates}}}"#)
        };
        match rng.below(9) {
            0..=2 => one("Point", self.pair(rng)),
            3 => self.pair(rng),
            4 => one(
                "LineString",
                format!("[{}, {}]", self.pair(rng), self.pair(rng)),
            ),
            5 | 6 => one("Polygon", format!("[{}]", self.ring(rng))),
            7 => one(
                "MultiPoint",
                format!("[{}, {}]", self.pair(rng), self.pair(rng)),
            ),
            _ => format!(
                r#"{{"type": "GeometryCollection", "geometries": [{}, {}]}}"#,
                one("Point", self.pair(rng)),
                one(
                    "LineString",
                    format!("[{}, {}]", self.pair(rng), self.pair(rng))
                )
            ),
        }
    }

    fn sphere_query(&self, rng: &mut Rng) -> String {
        let polygon = |p: &Places, rng: &mut Rng| {
            format!(r#"{{"type": "Polygon", "coordinates": [{}]}}"#, p.ring(rng))
        };
        match rng.below(4) {
            0 => format!(
                r#"{{"$geoWithin": {{"$geometry": {}}}}}"#,
                polygon(self, rng)
            ),
            1 => format!(
                r#"{{"$geoIntersects": {{"$geometry": {}}}}}"#,
                polygon(self, rng)
            ),
            2 => {
                let radius = self.spread.to_radians() * rng.below(100) as f64 / 100.0;
                let pair = self.pair(rng);
                format!(r#"{{"$geoWithin": {{"$centerSphere": [{pair}, {radius}]}}}}"#)
            }
            _ => format!(
                r#"{{"$geoIntersects": {{"$geometry": {{"type": "LineString", "coordinates": [{}, {}]}}}}}}"#,
                self.pair(rng),
                self.pair(rng)
            ),
        }
    }

    fn plane_query(&self, rng: &mut Rng) -> String {
        let radius = self.spread * rng.below(100) as f64 / 100.0;
        let shape = match rng.below(4) {
            0 => format!(r#""$box": [{}, {}]"#, self.pair(rng), self.pair(rng)),
            1 => format!(r#""$center": [{}, {radius}]"#, self.pair(rng)),
            2 => format!(r#""$polygon": {}"#, self.ring(rng)),
            _ => {
                let pair = self.pair(rng);
                format!(r#""$centerSphere": [{pair}, {}]"#, radius.to_radians())
            }
        };
        format!(r#"{{"$geoWithin": {{{shape}}}}}"#)
    }
}

fn ids(docs: &[DocBuf]) -> Vec<i64> {
    docs.iter()
        .map(|d| d.as_doc().get("_id").unwrap().as_i64_exact().unwrap())
        .collect()
}

fn run(b: &Bench, rng: &mut Rng, request: &FindRequest<'_>) -> Vec<DocBuf> {
    if rng.below(2) == 0 {
        b.run(request).unwrap()
    } else {
        run_with_releases(b, request).unwrap()
    }
}

fn check_shape(b: &Bench, rng: &mut Rng, filter_text: &str) -> usize {
    let filter = j(filter_text);
    let natural = doc! { "$natural": 1 };
    let base = FindRequest {
        filter: filter.as_doc(),
        hint: Some(Hint::Pattern(natural.as_doc())),
        ..FindRequest::new(NS)
    };
    let mut want = ids(&b.run(&base).unwrap());
    let planned = FindRequest {
        hint: None,
        ..base.clone()
    };
    let mut got = ids(&run(b, rng, &planned));
    want.sort_unstable();
    got.sort_unstable();
    assert_eq!(got, want, "{filter_text}\n{}", text(&b.explain(&planned)));
    want.len()
}

fn check_near(b: &Bench, rng: &mut Rng, all: &[DocBuf], path: &str, near: &str, more: &str) {
    let filter_text = format!(r#"{{"{path}": {near}{more}}}"#);
    let filter = j(&filter_text);
    let parsed = Filter::parse_query(filter.as_doc(), &QueryContext::new()).unwrap();
    let (_, query) = parsed.near().unwrap();
    let query: &NearQuery = query;
    let rest = parsed.without_near();
    let distance = |d: &DocBuf| {
        query
            .nearest(d.as_doc(), &Path::new(path), Work::unasked())
            .unwrap()
            .map(|(d, _)| d)
    };
    let mut want: Vec<(f64, i64)> = all
        .iter()
        .filter(|d| rest.matches(d.as_doc(), Work::unasked()).unwrap())
        .filter_map(|d| Some((distance(d)?, ids(std::slice::from_ref(d))[0])))
        .filter(|(d, _)| (query.min..=query.max).contains(d))
        .collect();
    want.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let request = FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(NS)
    };
    let docs = run(b, rng, &request);
    let got: Vec<(f64, i64)> = docs
        .iter()
        .map(|d| (distance(d).unwrap(), ids(std::slice::from_ref(d))[0]))
        .collect();
    assert!(got.is_sorted_by(|a, b| a.0 <= b.0), "{filter_text}");
    let mut sorted = got.clone();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(
        sorted,
        want,
        "{filter_text}\n{}",
        text(&b.explain(&request))
    );
}

/// Runs queries on random documents, and returns how many documents the shapes found.
fn round(seed: u64) -> usize {
    let mut found = 0;
    let mut rng = Rng::new(seed);
    let b = Bench::new();
    let places = Places::new(&mut rng);
    let mut all: Vec<DocBuf> = Vec::new();
    for i in 0..80 {
        let g = match rng.below(15) {
            0 => "null".to_string(),
            _ => places.geometry(&mut rng),
        };
        let p = match rng.below(6) {
            0 => format!("[{}, {}]", places.pair(&mut rng), places.pair(&mut rng)),
            1 => "null".to_string(),
            _ => places.pair(&mut rng),
        };
        let d = j(&format!(
            r#"{{"_id": {i}, "g": {g}, "p": {p}, "n": {}}}"#,
            rng.below(3)
        ));
        // A ring over a pole may cross itself: MongoDB refuses to index it too.
        let value = d.as_doc().get("g").unwrap();
        let fine = muniment_query::geo::Geometry::from_storage(value, Work::unasked()).is_ok();
        if fine || matches!(value, Value::Null) {
            all.push(d);
        }
    }
    // Half of the documents are inserted before the indexes are built, the others afterwards.
    let half = all.len() / 2;
    assert!(b.insert(&all[..half]).errors.is_empty());
    let sphere = rng.pick(&[
        r#"{"key": {"g": "2dsphere"}, "name": "g"}"#,
        r#"{"key": {"g": "2dsphere", "n": 1}, "name": "g"}"#,
        r#"{"key": {"n": -1, "g": "2dsphere"}, "name": "g"}"#,
        r#"{"key": {"g": "2dsphere"}, "name": "g", "2dsphereIndexVersion": 2}"#,
    ]);
    b.index(sphere).unwrap();
    let plane = rng.pick(&[
        r#"{"key": {"p": "2d"}, "name": "p"}"#,
        r#"{"key": {"p": "2d", "n": 1}, "name": "p", "bits": 10}"#,
        r#"{"key": {"p": "2d"}, "name": "p", "bits": 3, "min": -500, "max": 500}"#,
    ]);
    b.index(plane).unwrap();
    let out = b.insert(&all[half..]);
    assert!(out.errors.is_empty(), "{:?}", out.errors);
    for _ in 0..40 {
        let more = rng.pick(&["", "", r#", "n": 1"#, r#", "n": {"$gt": 0}"#]);
        let q = places.sphere_query(&mut rng);
        // A ring over a pole may cross itself.
        let f = format!(r#"{{"g": {q}{more}}}"#);
        if Filter::parse(j(&f).as_doc(), &QueryContext::new()).is_ok() {
            found += check_shape(&b, &mut rng, &f);
        }
        let f = format!(r#"{{"p": {}{more}}}"#, places.plane_query(&mut rng));
        found += check_shape(&b, &mut rng, &f);
        let pair = places.pair(&mut rng);
        let reach = places.spread * 111_000.0 * rng.below(100) as f64 / 100.0;
        let least = reach * [0.0, 0.3][rng.below(2)];
        let near = match rng.below(3) {
            0 => format!(
                r#"{{"$near": {{"$geometry": {{"type": "Point", "coordinates": {pair}}}, "$maxDistance": {reach}, "$minDistance": {least}}}}}"#
            ),
            1 => format!(
                r#"{{"$nearSphere": {{"$geometry": {{"type": "Point", "coordinates": {pair}}}}}}}"#
            ),
            _ => format!(
                r#"{{"$nearSphere": {pair}, "$maxDistance": {}}}"#,
                reach / 6_378_100.0
            ),
        };
        check_near(&b, &mut rng, &all, "g", &near, more);
        let units = reach / 111_000.0;
        let near = match rng.below(3) {
            0 => format!(r#"{{"$near": {pair}, "$maxDistance": {units}}}"#),
            1 => format!(r#"{{"$near": {pair}, "$minDistance": {units}}}"#),
            _ => format!(
                r#"{{"$nearSphere": {pair}, "$maxDistance": {}}}"#,
                units.to_radians()
            ),
        };
        check_near(&b, &mut rng, &all, "p", &near, more);
    }
    let collection = b.engine.store.collection(NS).unwrap();
    let report = b
        .engine
        .store
        .validate(&collection, true, &NeverInterrupted)
        .unwrap();
    let valid = report.as_doc().get("valid");
    assert!(matches!(valid, Some(Value::Bool(true))), "{report:?}");
    found
}

#[test]
fn indexes_find_what_scans_find() {
    let found: usize = (0..4).map(round).sum();
    assert!(found > 100, "{found}");
}

#[test]
fn near_reads_no_more_than_it_gives() {
    let b = Bench::new();
    b.index(r#"{"key": {"p": "2dsphere"}, "name": "p"}"#)
        .unwrap();
    let docs: Vec<DocBuf> = (0..5000)
        .map(|i| doc! { "_id": i, "p": muniment_value::array![f64::from(i % 100) / 10.0, f64::from(i / 100) / 10.0] })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    let filter =
        j(r#"{"p": {"$near": {"$geometry": {"type": "Point", "coordinates": [5, 2.5]}}}}"#);
    let request = FindRequest {
        filter: filter.as_doc(),
        limit: 10,
        ..FindRequest::new(NS)
    };
    let explain = b.explain(&request);
    let stats = explain.as_doc().get_doc("executionStats").unwrap();
    let seen = stats
        .get("totalDocsExamined")
        .unwrap()
        .as_i64_exact()
        .unwrap();
    assert!(seen < 1000, "{}", text(&explain));
    assert!(text(&explain).contains("GEO_NEAR_2DSPHERE"));
}
