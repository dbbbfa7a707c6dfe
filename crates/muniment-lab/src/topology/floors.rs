//! The least time that an acknowledgement can take: the round trip to the nearest members that
//! suffice, and one sync of the disk if the write concern asks for it. Pure functions.

use muniment_load::conn::string_at;
use muniment_value::Doc;
use std::collections::BTreeMap;

/// A round trip of at least this many ms leads to another centre.
const FAR_MS: f64 = 5.0;
/// The time that the set itself may add to a round trip between centres, ms.
const ALLOWED_MS: f64 = 2.0;

/// A member that can acknowledge.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// `host:port`.
    pub host: String,
    /// Its tags.
    pub tags: Vec<(String, String)>,
    /// Whether it has a vote, and so counts for a majority.
    pub votes: bool,
    /// The round trip from the primary to it, ms; 0 for the primary itself.
    pub round_trip: f64,
}

/// The members of a set with their distances, votes and modes, from which its floors follow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layout {
    /// Members that hold data.
    pub places: Vec<Place>,
    /// The number of voting members, including arbiters.
    pub voters: usize,
    /// The modes: for each tag, the number of different values that the mode wants.
    pub modes: BTreeMap<String, Vec<(String, usize)>>,
}

impl Layout {
    /// Makes a layout from a set's configuration. `round_trip` tells a member's distance from the
    /// primary; a member whose distance is not known is left out.
    pub fn of(config: Doc<'_>, round_trip: impl Fn(&str) -> Option<f64>) -> Layout {
        let mut layout = Layout::default();
        let members = config.get_array("members");
        for m in members.iter().flat_map(|a| a.values()) {
            let Some(m) = m.as_doc() else { continue };
            let votes = m.get("votes").is_none_or(|v| v.truthy());
            layout.voters += usize::from(votes);
            let arbiter = m.get("arbiterOnly").is_some_and(|v| v.truthy());
            let host = string_at(m, "host").filter(|_| !arbiter);
            let Some((host, round_trip)) = host.and_then(|h| {
                let far = round_trip(&h)?;
                Some((h, far))
            }) else {
                continue;
            };
            let tags = m.get_doc("tags").unwrap_or(Doc::EMPTY);
            let tags = tags.iter().filter_map(|e| {
                let value = e.value().as_str()?.to_string();
                Some((e.name().to_string(), value))
            });
            layout.places.push(Place {
                host,
                tags: tags.collect(),
                votes,
                round_trip,
            });
        }
        let modes = config.get_doc("settings").unwrap_or(Doc::EMPTY);
        let modes = modes.get_doc("getLastErrorModes").unwrap_or(Doc::EMPTY);
        for mode in modes {
            let wanted = mode.value().as_doc().unwrap_or(Doc::EMPTY);
            let wanted = wanted.iter().map(|e| {
                let n = e.value().as_i64_exact().unwrap_or(0);
                (e.name().to_string(), usize::try_from(n).unwrap_or(0))
            });
            layout
                .modes
                .insert(mode.name().to_string(), wanted.collect());
        }
        layout
    }

    /// The number of voters that form a majority.
    pub fn majority(&self) -> usize {
        self.voters / 2 + 1
    }

    /// The round trip to the farthest of the members that an acknowledgement of this write concern
    /// must wait for, if the nearest ones suffice. `None` if the acknowledgement never comes.
    pub fn reach(&self, concern: Doc<'_>) -> Option<f64> {
        let all = |voters_only: bool| {
            let mut far: Vec<f64> = self
                .places
                .iter()
                .filter(|p| p.votes || !voters_only)
                .map(|p| p.round_trip)
                .collect();
            far.sort_by(f64::total_cmp);
            far
        };
        let Some(w) = concern.get("w") else {
            return Some(0.0);
        };
        match w.as_str() {
            None => {
                let n = usize::try_from(w.as_i64_exact()?).ok()?;
                all(false).get(n.max(1) - 1).copied()
            }
            Some("majority") => all(true).get(self.majority() - 1).copied(),
            Some(mode) => {
                let mut reach = 0.0f64;
                for (tag, n) in self.modes.get(mode)? {
                    reach = reach.max(self.of_tag(tag, *n)?);
                }
                Some(reach)
            }
        }
    }

    /// The round trip within which there are `n` different values of a tag.
    fn of_tag(&self, tag: &str, n: usize) -> Option<f64> {
        let mut nearest: BTreeMap<&str, f64> = BTreeMap::new();
        for p in &self.places {
            for (_, value) in p.tags.iter().filter(|(name, _)| name == tag) {
                let far = nearest.entry(value).or_insert(p.round_trip);
                *far = far.min(p.round_trip);
            }
        }
        let mut far: Vec<f64> = nearest.into_values().collect();
        far.sort_by(f64::total_cmp);
        match n {
            0 => Some(0.0),
            n => far.get(n - 1).copied(),
        }
    }
}

/// The least time that a write concern can take, ms, in its two parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// The round trip.
    pub round_trip: f64,
    /// One sync, that of the last member to acknowledge; the syncs of the others happen at the same
    /// time.
    pub sync: f64,
}

impl Floor {
    /// The floor of a write concern; `sync` is the time that the disk takes.
    pub fn of(layout: &Layout, concern: Doc<'_>, sync: f64) -> Option<Floor> {
        let round_trip = layout.reach(concern)?;
        let majority = concern.get("w").and_then(|w| w.as_str()) == Some("majority");
        let synced = match concern.get("j").and_then(|j| j.as_bool()) {
            Some(j) => j,
            // This is the default of `writeConcernMajorityJournalDefault`.
            None => majority,
        };
        Some(Floor {
            round_trip,
            sync: if synced { sync } else { 0.0 },
        })
    }

    /// The sum of both parts.
    pub fn total(self) -> f64 {
        self.round_trip + self.sync
    }

    /// Whether the acknowledgement needs another centre.
    pub fn is_far(self) -> bool {
        self.round_trip >= FAR_MS
    }

    /// The latency that a good set stays below, ms: little more than the floor if another centre is
    /// needed, and not much more than w:1 and a sync otherwise.
    pub fn target(self, w1: f64, sync: f64) -> f64 {
        match self.is_far() {
            true => self.total() + ALLOWED_MS,
            false => 1.5 * w1 + sync,
        }
    }
}

/// The operations a second that so many clients should reach if each waits only for the network:
/// nine tenths of the rate that the floor and the allowed time on top of it permit.
pub fn pipelined(clients: usize, floor: Floor) -> f64 {
    clients as f64 / ((floor.total() + ALLOWED_MS) / 1e3) * 0.9
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::shape::Shape;
    use super::*;
    use crate::lab::Preset;
    use muniment_value::{DocBuf, array, doc};

    /// A layout whose first member is primary, 0.1 ms from the second and 90 ms from the others.
    fn two_dcs() -> Layout {
        let addresses: Vec<String> = (1..=4).map(|p| format!("h:{p}")).collect();
        let config = Shape::two_centres(Preset::Smoke).config(&addresses);
        let far = [0.0, 0.1, 90.0, 90.4];
        Layout::of(config.as_doc(), |host| {
            let i = addresses.iter().position(|a| a == host)?;
            far.get(i).copied()
        })
    }

    fn floor(l: &Layout, concern: DocBuf) -> Option<f64> {
        Floor::of(l, concern.as_doc(), 0.5).map(Floor::total)
    }

    #[test]
    fn the_posts_write_concerns() {
        let l = two_dcs();
        assert_eq!((l.voters, l.majority()), (4, 3));
        for (concern, want) in [
            (doc! { "w": 0 }, 0.0),
            (doc! { "w": 1 }, 0.0),
            (doc! { "w": 1, "j": true }, 0.5),
            (doc! { "w": 2 }, 0.1),
            (doc! { "w": 2, "j": true }, 0.6),
            (doc! { "w": 3 }, 90.0),
            (doc! { "w": 4 }, 90.4),
            (doc! { "w": "majority" }, 90.5),
            (doc! { "w": "majority", "j": false }, 90.0),
            (doc! { "w": "twoCentres" }, 90.0),
            (doc! { "w": "onePerCentre" }, 90.0),
        ] {
            assert_eq!(floor(&l, concern.clone()), Some(want), "{concern:?}");
        }
        assert_eq!(floor(&l, doc! { "w": 5 }), None);
        assert_eq!(floor(&l, doc! { "w": "nowhere" }), None);
    }

    #[test]
    fn who_has_no_data_acknowledges_nothing_and_who_has_no_vote_no_majority() {
        let members = array![
            doc! { "host": "a:1" },
            doc! { "host": "b:1", "votes": 0, "tags": doc! { "use": "backup" } },
            doc! { "host": "c:1" },
            doc! { "host": "d:1", "arbiterOnly": true }
        ];
        let settings = doc! { "getLastErrorModes": doc! { "copy": doc! { "use": 1 } } };
        let config = doc! { "members": members, "settings": settings };
        let far = |h: &str| {
            Some(match h {
                "a:1" => 0.0,
                "b:1" => 1.0,
                _ => 7.0,
            })
        };
        let l = Layout::of(config.as_doc(), far);
        assert_eq!((l.places.len(), l.voters, l.majority()), (3, 3, 2));
        assert_eq!(floor(&l, doc! { "w": 2 }), Some(1.0));
        assert_eq!(floor(&l, doc! { "w": "majority", "j": false }), Some(7.0));
        assert_eq!(floor(&l, doc! { "w": "copy" }), Some(1.0));
        // A member whose distance is not known is left out, so a farther one has to acknowledge.
        let l = Layout::of(config.as_doc(), |h| far(h).filter(|_| h != "b:1"));
        assert_eq!(floor(&l, doc! { "w": 2 }), Some(7.0));
        assert_eq!(floor(&l, doc! { "w": "copy" }), None);
    }

    #[test]
    fn the_targets() {
        let l = two_dcs();
        let target = |concern: DocBuf| {
            let f = Floor::of(&l, concern.as_doc(), 0.5).unwrap();
            f.target(0.2, 0.5)
        };
        assert_eq!(target(doc! { "w": 3 }), 92.0);
        assert_eq!(target(doc! { "w": "twoCentres" }), 92.0);
        assert_eq!(target(doc! { "w": "majority" }), 92.5);
        assert!((target(doc! { "w": 2 }) - 0.8).abs() < 1e-9);
        let f = Floor {
            round_trip: 90.0,
            sync: 0.0,
        };
        assert!((pipelined(64, f) - 64.0 / 0.092 * 0.9).abs() < 1e-6);
    }
}
