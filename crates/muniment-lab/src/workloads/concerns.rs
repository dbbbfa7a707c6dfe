//! W1's write concerns: the rows that can be measured on a target.

use muniment_load::conn::Conn;
use muniment_value::{Doc, DocBuf, doc};

/// The time for which a server waits for its secondaries before the row is given up, ms.
const PATIENCE: i32 = 60_000;

/// A write concern.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Concern {
    /// The name of its row.
    pub name: String,
    /// The document that is sent with commands.
    pub doc: DocBuf,
    /// The post's average, minimum and maximum in ms, if the post has this row.
    pub published: Option<[f64; 3]>,
    /// Whether it is acknowledged only once it is in the journal.
    pub journaled: bool,
    /// Whether other members of a set have to acknowledge it too.
    pub replicated: bool,
}

/// The post's rows about sets: the members that acknowledge, the row's name, and its figures.
const REPLICATED: [(i32, &str, [f64; 3]); 2] = [
    (2, "w:2, same data centre", [14.26, 1.65, 867.29]),
    (3, "w:3, two data centres", [311.0, 97.0, 1329.0]),
];

/// The facts about the target's replica set.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Set {
    /// Members that hold data; 0 for a server that is no member of a set.
    pub members: usize,
    /// The names of the write concerns that the set's configuration defines by tags.
    pub modes: Vec<String>,
}

impl Set {
    /// Reads the facts from the replies to hello and, if there was one, replSetGetConfig. Arbiters
    /// acknowledge nothing and are not counted; hello lists them separately.
    pub(crate) fn of(hello: Doc<'_>, config: Option<Doc<'_>>) -> Set {
        if hello.get_str("setName").is_none() {
            return Set::default();
        }
        let listed = |name: &str| hello.get_array(name).map_or(0, |l| l.count());
        let modes = config
            .and_then(|c| c.get_doc("config"))
            .and_then(|c| c.get_doc("settings"))
            .and_then(|s| s.get_doc("getLastErrorModes"));
        Set {
            members: (listed("hosts") + listed("passives")).max(1),
            modes: modes
                .unwrap_or(Doc::EMPTY)
                .iter()
                .map(|e| e.name().to_string())
                .collect(),
        }
    }

    /// Asks the target for the facts.
    pub(crate) fn ask(conn: &mut Conn) -> Set {
        let Ok(hello) = conn.command("admin", &doc! { "hello": 1 }) else {
            return Set::default();
        };
        if hello.as_doc().get_str("setName").is_none() {
            return Set::default();
        }
        // Without the privilege to read the configuration there are no rows for modes.
        let config = conn.command("admin", &doc! { "replSetGetConfig": 1 }).ok();
        Set::of(hello.as_doc(), config.as_ref().map(DocBuf::as_doc))
    }

    /// The rows that are measured.
    pub(crate) fn concerns(&self) -> Vec<Concern> {
        let row = |name: &str, doc: DocBuf, published| Concern {
            name: name.into(),
            doc,
            published,
            journaled: false,
            replicated: false,
        };
        let mut rows = vec![
            row("w:0", doc! { "w": 0 }, Some([0.07, 0.06, 0.11])),
            row("w:1", doc! { "w": 1 }, Some([0.13, 0.11, 0.32])),
            Concern {
                journaled: true,
                ..row(
                    "j:true",
                    doc! { "w": 1, "j": true },
                    Some([11.18, 11.11, 11.24]),
                )
            },
            Concern {
                journaled: true,
                replicated: self.members > 1,
                ..row("majority", doc! { "w": "majority" }, None)
            },
        ];
        for (n, _, published) in REPLICATED {
            if self.members >= n as usize {
                rows.push(Concern {
                    replicated: true,
                    ..row(
                        &format!("w:{n}"),
                        doc! { "w": n, "wtimeout": PATIENCE },
                        Some(published),
                    )
                });
            }
        }
        for mode in &self.modes {
            rows.push(Concern {
                replicated: true,
                ..row(
                    &format!("w:\"{mode}\""),
                    doc! { "w": mode.as_str(), "wtimeout": PATIENCE },
                    None,
                )
            });
        }
        rows
    }

    /// The rows of the post's table that are not measured here; the name tells why.
    pub(crate) fn post_only(&self) -> Vec<(String, [f64; 3])> {
        let hdd = (
            "j:true on a hard disk (post only)".to_string(),
            [34.19, 34.10, 34.28],
        );
        let missing = REPLICATED.iter().filter_map(|(n, name, published)| {
            let why = match self.members {
                0 => "needs a replica set".to_string(),
                m if m < *n as usize => format!("needs {n} members, the set has {m}"),
                _ => return None,
            };
            Some((format!("{name} (post only: {why})"), *published))
        });
        [hdd].into_iter().chain(missing).collect()
    }

    /// The sentence about how the target's set differs from the post's.
    pub(crate) fn deviation(&self) -> String {
        match self.members {
            0 => "w:2, w:3 and write concerns by tags need a replica set and are not run; w:\"majority\" is added. On a standalone server a majority is one member, whose journal is synced before the acknowledgement.".into(),
            n => format!(
                "The set has {n} members, the post's had four. w:\"majority\" is added{}.",
                match self.modes.len() {
                    0 => ", the set's configuration defines no write concerns by tags",
                    _ => ", and so are the write concerns that the set's configuration defines by tags",
                }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use muniment_value::array;

    fn names(s: &Set) -> Vec<String> {
        s.concerns().into_iter().map(|c| c.name).collect()
    }

    #[test]
    fn a_standalone_server_and_a_router_have_no_rows_of_a_set() {
        for hello in [
            doc! { "isWritablePrimary": true, "ok": 1.0 },
            doc! { "isWritablePrimary": true, "msg": "isdbgrid", "ok": 1.0 },
        ] {
            let s = Set::of(hello.as_doc(), None);
            assert_eq!(names(&s), ["w:0", "w:1", "j:true", "majority"]);
            let post = s.post_only();
            assert_eq!(post.len(), 3);
            assert_eq!(
                post[1],
                (
                    "w:2, same data centre (post only: needs a replica set)".into(),
                    [14.26, 1.65, 867.29]
                )
            );
            assert!(s.deviation().contains("need a replica set and are not run"));
        }
    }

    #[test]
    fn as_many_rows_as_members_that_hold_data() {
        let hello = |hosts: &[&str], passives: &[&str]| {
            let list = |names: &[&str]| {
                let mut a = muniment_value::ArrayBuf::new();
                names.iter().for_each(|n| {
                    a.push(*n);
                });
                a
            };
            doc! {
                "setName": "rs", "hosts": list(hosts), "passives": list(passives),
                "arbiters": array!["x:1"], "ok": 1.0,
            }
        };
        let one = Set::of(hello(&["a:1"], &[]).as_doc(), None);
        assert_eq!(names(&one), ["w:0", "w:1", "j:true", "majority"]);
        assert!(
            one.post_only()[1]
                .0
                .contains("needs 2 members, the set has 1")
        );
        let two = Set::of(hello(&["a:1", "b:1"], &[]).as_doc(), None);
        assert_eq!(names(&two)[4..], ["w:2"]);
        assert!(two.post_only()[1].0.starts_with("w:3") && two.post_only().len() == 2);
        // hello lists a member of priority 0 separately, but it acknowledges as others do.
        let three = Set::of(hello(&["a:1", "b:1"], &["c:1"]).as_doc(), None);
        assert_eq!(names(&three)[4..], ["w:2", "w:3"]);
        assert_eq!(three.post_only().len(), 1);
        assert_eq!(three.concerns()[4].published, Some([14.26, 1.65, 867.29]));
        assert_eq!(
            three.concerns()[5].doc,
            doc! { "w": 3, "wtimeout": PATIENCE }
        );
    }

    #[test]
    fn the_configurations_own_modes_are_rows() {
        let hello = doc! { "setName": "rs", "hosts": array!["a:1", "b:1"], "ok": 1.0 };
        let modes = doc! { "twoRacks": doc! { "rack": 2 }, "backup": doc! { "use": 1 } };
        let settings = doc! { "getLastErrorModes": modes };
        let config = doc! { "config": doc! { "_id": "rs", "settings": settings }, "ok": 1.0 };
        let s = Set::of(hello.as_doc(), Some(config.as_doc()));
        assert_eq!(names(&s)[4..], ["w:2", "w:\"twoRacks\"", "w:\"backup\""]);
        let tagged = &s.concerns()[5];
        assert_eq!(tagged.doc, doc! { "w": "twoRacks", "wtimeout": PATIENCE });
        assert!(tagged.replicated && !tagged.journaled);
        assert!(s.deviation().contains("defines by tags"));
        // Modes mean nothing on a server that is in no set.
        let alone = Set::of(doc! { "ok": 1.0 }.as_doc(), Some(config.as_doc()));
        assert_eq!(alone, Set::default());
    }
}
