//! The shape of a set: centres, round trips, the links that need a relay, and the configuration
//! document. Pure functions.

use crate::lab::Preset;
use muniment_load::fail::{Failure, Result};
use muniment_value::{ArrayBuf, DocBuf, doc};
use std::time::Duration;

/// The set's name.
pub const SET: &str = "lab";
/// The mode that needs a member in each of any two centres.
pub const TWO_CENTRES: &str = "twoCentres";
/// The mode that needs a member in every centre, each named by its tag.
pub const ONE_PER_CENTRE: &str = "onePerCentre";
/// The mode of a set in one centre that needs a majority by the members' tags.
pub const BY_TAGS: &str = "byTags";
/// The names of the centres.
const CENTRES: [&str; 2] = ["west", "east"];
/// Members with no longer a round trip than this get no relay between them, since the loopback
/// interface itself takes about as long.
const NEXT_DOOR: Duration = Duration::from_micros(200);

/// The shape of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The centre of each member.
    pub centres: Vec<&'static str>,
    /// The round trip within a centre.
    pub near: Duration,
    /// The round trip between centres.
    pub far: Duration,
    /// Whether there is a relay between any two members, so that any two can be cut off from each
    /// other.
    pub every_link: bool,
    /// The `electionTimeoutMillis` of the configuration.
    pub election: Duration,
}

impl Shape {
    /// The shape that the command line names.
    ///
    /// # Errors
    /// There is no shape of this name.
    pub fn named(name: &str, preset: Preset) -> Result<Shape> {
        match name {
            "two-dcs" => Ok(Shape::two_centres(preset)),
            _ => Err(Failure::new("there is two-dcs")),
        }
    }

    /// Four members, two in each of two centres. The paper preset has the round trips of the blog
    /// post, the others have those within a continent.
    pub fn two_centres(preset: Preset) -> Shape {
        let (near, far) = preset.pick((100, 90_000), (100, 90_000), (864, 71_187));
        Shape {
            centres: vec!["west", "west", "east", "east"],
            near: Duration::from_micros(near),
            far: Duration::from_micros(far),
            every_link: false,
            election: Duration::from_secs(10),
        }
    }

    /// So many members in one place, any two of which can be cut off from each other, with a short
    /// election timeout so that they notice it soon.
    pub fn side_by_side(members: usize) -> Shape {
        Shape {
            centres: vec!["west"; members],
            near: Duration::ZERO,
            far: Duration::ZERO,
            every_link: true,
            election: Duration::from_secs(1),
        }
    }

    /// Replaces the round trips by `NEAR,FAR` in ms.
    ///
    /// # Errors
    /// The text is no such pair.
    pub fn with_round_trips(self, text: &str) -> Result<Shape> {
        let (near, far) = round_trips(text)?;
        Ok(Shape { near, far, ..self })
    }

    /// The round trip between two members.
    pub fn round_trip(&self, a: usize, b: usize) -> Duration {
        match (self.centres.get(a), self.centres.get(b)) {
            _ if a == b => Duration::ZERO,
            (x, y) if x == y => self.near,
            _ => self.far,
        }
    }

    /// The pairs of members of which the first reaches the second through a relay.
    pub fn relayed(&self) -> Vec<(usize, usize)> {
        let n = self.centres.len();
        let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
        pairs
            .filter(|(a, b)| a != b && (self.every_link || self.round_trip(*a, *b) > NEXT_DOOR))
            .collect()
    }

    /// The configuration of members at these addresses. Every member has the tag `dc` with its
    /// centre, and a tag named after the centre, by which a mode can ask for that centre.
    pub fn config(&self, addresses: &[String]) -> DocBuf {
        let mut members = ArrayBuf::new();
        for (i, (centre, host)) in self.centres.iter().zip(addresses).enumerate() {
            let mut tags = doc! { "dc": *centre };
            tags.append(centre, format!("{centre}{i}").as_str());
            members.push(doc! { "_id": i as i32, "host": host.as_str(), "tags": tags });
        }
        let mut settings = doc! { "electionTimeoutMillis": self.election.as_millis() as i32 };
        if self.heartbeat() < Duration::from_secs(2) {
            settings.append(
                "heartbeatIntervalMillis",
                self.heartbeat().as_millis() as i32,
            );
        }
        let there = CENTRES.iter().filter(|c| self.centres.contains(c));
        let several = there.clone().count() > 1;
        let mut each = DocBuf::new();
        for c in there {
            let majority = self.centres.len() / 2 + 1;
            each.append(c, if several { 1 } else { majority as i32 });
        }
        let mut modes = DocBuf::new();
        if several {
            modes.append(TWO_CENTRES, doc! { "dc": 2 });
            modes.append(ONE_PER_CENTRE, each);
        } else {
            modes.append(BY_TAGS, each);
        }
        settings.append("getLastErrorModes", modes);
        doc! { "_id": SET, "version": 1, "members": members, "settings": settings }
    }

    /// The heartbeat interval: MongoDB's two seconds, or less if the election timeout is short.
    fn heartbeat(&self) -> Duration {
        (self.election / 5).min(Duration::from_secs(2))
    }
}

/// Parses a pair of round trips in ms, `NEAR,FAR`.
///
/// # Errors
/// The text is no pair; the error tells what would be right.
pub fn round_trips(text: &str) -> Result<(Duration, Duration)> {
    let time = |t: &str| {
        let n = t.trim().parse::<f64>().ok();
        let n = n.filter(|n| (0.0..=10_000.0).contains(n))?;
        Some(Duration::from_secs_f64(n / 1e3))
    };
    let pair = text.split_once(',');
    pair.and_then(|(near, far)| time(near).zip(time(far)))
        .filter(|(near, far)| near <= far)
        .ok_or_else(|| {
            Failure::new("it must be NEAR,FAR in milliseconds, up to 10000, as in 0.1,90")
        })
}

/// The value of the parameter that tells a member which addresses to dial for others, from pairs of
/// the configured address and the address to dial.
pub fn routes(pairs: &[(String, String)]) -> String {
    let all: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}={b}")).collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::array;

    #[test]
    fn only_what_is_far_goes_through_a_relay() {
        let s = Shape::two_centres(Preset::Smoke);
        assert_eq!(
            s.relayed(),
            [
                (0, 2),
                (0, 3),
                (1, 2),
                (1, 3),
                (2, 0),
                (2, 1),
                (3, 0),
                (3, 1)
            ]
        );
        assert_eq!(s.round_trip(0, 1), Duration::from_micros(100));
        assert_eq!(s.round_trip(1, 2), Duration::from_millis(90));
        assert_eq!(s.round_trip(1, 1), Duration::ZERO);
        // In the blog post, the members of a centre were far enough from each other to need a
        // relay.
        assert_eq!(Shape::two_centres(Preset::Paper).relayed().len(), 12);
        assert_eq!(Shape::side_by_side(3).relayed().len(), 6);
    }

    #[test]
    fn the_configuration_names_each_member_once_with_its_tags() {
        let addresses: Vec<String> = (1..=4).map(|p| format!("127.0.0.1:{p}")).collect();
        let c = Shape::two_centres(Preset::Quick).config(&addresses);
        let member =
            |i: i32, host: &str, tags: DocBuf| doc! { "_id": i, "host": host, "tags": tags };
        let members = array![
            member(0, "127.0.0.1:1", doc! { "dc": "west", "west": "west0" }),
            member(1, "127.0.0.1:2", doc! { "dc": "west", "west": "west1" }),
            member(2, "127.0.0.1:3", doc! { "dc": "east", "east": "east2" }),
            member(3, "127.0.0.1:4", doc! { "dc": "east", "east": "east3" })
        ];
        let modes = doc! {
            "twoCentres": doc! { "dc": 2 },
            "onePerCentre": doc! { "west": 1, "east": 1 },
        };
        let settings = doc! { "electionTimeoutMillis": 10_000, "getLastErrorModes": modes };
        let want = doc! { "_id": "lab", "version": 1, "members": members, "settings": settings };
        assert_eq!(c, want);
        let three = Shape::side_by_side(3).config(addresses.get(..3).unwrap());
        let settings = three.as_doc().get_doc("settings").unwrap().to_buf();
        let want = doc! {
            "electionTimeoutMillis": 1000,
            "heartbeatIntervalMillis": 200,
            "getLastErrorModes": doc! { "byTags": doc! { "west": 2 } },
        };
        assert_eq!(settings, want);
    }

    #[test]
    fn round_trips_and_routes_as_text() {
        let s = Shape::two_centres(Preset::Smoke);
        let s = s.with_round_trips("0.864, 71.187").unwrap();
        assert_eq!(s.near, Duration::from_micros(864));
        assert_eq!(s.far, Duration::from_micros(71_187));
        for bad in ["90", "90,1", "a,b", "-1,2", "1,20000"] {
            let e = round_trips(bad).unwrap_err().0;
            assert!(e.contains("NEAR,FAR"), "{bad}: {e}");
        }
        assert!(Shape::named("ring", Preset::Smoke).is_err());
        let pairs = [("a:1".into(), "b:2".into()), ("c:3".into(), "d:4".into())];
        assert_eq!(routes(&pairs), "a:1=b:2,c:3=d:4");
    }
}
