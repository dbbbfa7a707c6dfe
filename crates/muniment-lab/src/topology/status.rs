//! Reads the replies of a set's members: which of them is primary, and what each has applied. Pure
//! functions.

use muniment_load::conn::{number_at, string_at};
use muniment_value::{Doc, Value};

/// A member as the primary sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The `host:port` in the configuration.
    pub name: String,
    /// The member's state: PRIMARY, SECONDARY, …
    pub state: String,
    /// The position up to which it has applied the log, as term and timestamp, which compare in the
    /// log's order.
    pub applied: Option<(i64, u32, u32)>,
    /// The round trip to it in whole ms.
    pub ping_ms: Option<f64>,
}

impl Seen {
    /// Whether the member can be read and acknowledges writes.
    pub fn serves(&self) -> bool {
        matches!(self.state.as_str(), "PRIMARY" | "SECONDARY")
    }
}

/// The members in a reply to replSetGetStatus.
pub fn members(status: Doc<'_>) -> Vec<Seen> {
    let all = status.get_array("members");
    let docs = all.iter().flat_map(|a| a.values());
    docs.filter_map(|v| {
        let m = v.as_doc()?;
        Some(Seen {
            name: string_at(m, "name")?,
            state: string_at(m, "stateStr").unwrap_or_default(),
            applied: m.get_doc("optime").and_then(optime),
            ping_ms: number_at(m, "pingMs"),
        })
    })
    .collect()
}

/// Converts `{ts, t}` to numbers that compare in the log's order.
fn optime(d: Doc<'_>) -> Option<(i64, u32, u32)> {
    let Value::Timestamp { t: second, i } = d.get("ts")? else {
        return None;
    };
    let term = d.get("t").and_then(|t| t.as_i64_exact())?;
    Some((term, second, i))
}

/// Whether all of `count` members serve and have applied what the primary has. It is false if the
/// reply shows two primaries, since one of those is only the last known state of a member that was
/// killed or cut off.
pub fn all_caught_up(members: &[Seen], count: usize) -> bool {
    let mut primaries = members.iter().filter(|m| m.state == "PRIMARY");
    let (Some(primary), None) = (primaries.next(), primaries.next()) else {
        return false;
    };
    let Some(at) = primary.applied else {
        return false;
    };
    members.len() == count
        && members
            .iter()
            .all(|m| m.serves() && m.applied.is_some_and(|a| a >= at))
}

/// The members with their states in words, which shows the one that is missing.
pub fn not_there(members: &[Seen]) -> String {
    let states = members.iter().map(|m| format!("{} {}", m.name, m.state));
    states.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use muniment_value::{ArrayBuf, DocBuf, doc};

    fn status(all: &[(&str, &str, i64, u32)]) -> DocBuf {
        let mut members = ArrayBuf::new();
        for (name, state, t, second) in all {
            let ts = Value::Timestamp { t: *second, i: 1 };
            let optime = doc! { "ts": ts, "t": *t };
            members.push(
                doc! { "name": *name, "stateStr": *state, "optime": optime, "pingMs": 90i64 },
            );
        }
        doc! { "set": "lab", "members": members, "ok": 1.0 }
    }

    fn caught_up(all: &[(&str, &str, i64, u32)], count: usize) -> bool {
        all_caught_up(&members(status(all).as_doc()), count)
    }

    #[test]
    fn a_set_is_well_when_all_serve_and_have_what_the_primary_has() {
        let p = ("a:1", "PRIMARY", 2, 10);
        assert!(caught_up(&[p, ("b:1", "SECONDARY", 2, 10)], 2));
        assert!(!caught_up(&[p, ("b:1", "SECONDARY", 2, 9)], 2));
        // A later time of an older term compares as less.
        assert!(!caught_up(&[p, ("b:1", "SECONDARY", 1, 11)], 2));
        assert!(!caught_up(&[p, ("b:1", "ROLLBACK", 2, 10)], 2));
        assert!(!caught_up(&[p], 2));
        assert!(!caught_up(&[("b:1", "SECONDARY", 2, 10)], 1));
        assert!(!caught_up(&[("b:1", "PRIMARY", 1, 10), p], 2));
    }

    #[test]
    fn what_is_said_of_a_member() {
        let d = status(&[("a:1", "RECOVERING", 2, 10)]);
        let all = members(d.as_doc());
        assert_eq!(all.first().and_then(|m| m.ping_ms), Some(90.0));
        assert_eq!(not_there(&all), "a:1 RECOVERING");
        assert_eq!(members(doc! { "ok": 1.0 }.as_doc()), []);
    }
}
