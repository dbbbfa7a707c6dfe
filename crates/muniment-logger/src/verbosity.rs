//! How much the log says of each component, set by the parameter `logComponentVerbosity`.
//!
//! A component without a level of its own has that of the component above it; the topmost level is
//! `logLevel`.

use muniment_value::{Doc, DocBuf, Error, Result, Value, doc, number};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The components, sorted, each with its path in the parameter and its name in the log's lines.
const COMPONENTS: &[(&str, &str)] = &[
    ("accessControl", "ACCESS"),
    ("assert", "ASSERT"),
    ("command", "COMMAND"),
    ("control", "CONTROL"),
    ("executor", "EXECUTOR"),
    ("ftdc", "FTDC"),
    ("geo", "GEO"),
    ("index", "INDEX"),
    ("network", "NETWORK"),
    ("network.asio", "ASIO"),
    ("network.bridge", "BRIDGE"),
    ("network.connectionPool", "CONNPOOL"),
    ("processHealth", "HEALTH"),
    ("query", "QUERY"),
    ("query.rejected", "REJECTED"),
    ("replication", "REPL"),
    ("replication.election", "ELECTION"),
    ("replication.heartbeats", "REPL_HB"),
    ("replication.initialSync", "INITSYNC"),
    ("replication.rollback", "ROLLBACK"),
    ("sharding", "SHARDING"),
    ("storage", "STORAGE"),
    ("storage.journal", "JOURNAL"),
    ("storage.recovery", "RECOVERY"),
    ("storage.wt", "WT"),
    ("transaction", "TXN"),
    ("write", "WRITE"),
];

/// The value of a component without a level of its own.
const INHERITED: i32 = -1;

/// The levels of all components.
pub struct Verbosity {
    base: AtomicI32,
    levels: [AtomicI32; COMPONENTS.len()],
    /// The highest level of all. A line above it is not written, and needs no search for its component.
    highest: AtomicI32,
}

impl Verbosity {
    /// All components at one level.
    pub fn new(base: i32) -> Verbosity {
        Verbosity {
            base: AtomicI32::new(base),
            levels: [const { AtomicI32::new(INHERITED) }; COMPONENTS.len()],
            highest: AtomicI32::new(base),
        }
    }

    /// `logLevel`.
    pub fn base(&self) -> i32 {
        self.base.load(Relaxed)
    }

    /// Sets `logLevel`.
    pub fn set_base(&self, level: i32) {
        self.base.store(level, Relaxed);
        self.note_highest();
    }

    /// Whether a line of this level is written.
    pub fn says(&self, component: &str, level: i32) -> bool {
        if level <= 0 || level > self.highest.load(Relaxed) {
            return level <= 0;
        }
        let at = COMPONENTS.iter().position(|(_, name)| *name == component);
        level <= at.map_or(self.base(), |at| self.effective(at))
    }

    fn own(&self, at: usize) -> i32 {
        self.levels.get(at).map_or(INHERITED, |l| l.load(Relaxed))
    }

    fn effective(&self, at: usize) -> i32 {
        let own = self.own(at);
        if own != INHERITED {
            return own;
        }
        let path = COMPONENTS.get(at).map_or("", |(path, _)| path);
        let above = path.split_once('.').map(|(above, _)| above);
        match above.and_then(|a| COMPONENTS.iter().position(|(path, _)| *path == a)) {
            Some(above) => self.effective(above),
            None => self.base(),
        }
    }

    fn note_highest(&self) {
        let highest = self.levels.iter().map(|l| l.load(Relaxed)).max();
        let highest = highest.unwrap_or(INHERITED).max(self.base());
        self.highest.store(highest, Relaxed);
    }

    /// The value of the parameter, in this form:
    /// `{verbosity: 0, command: {verbosity: -1}, network: {verbosity: -1, asio: {…}}, …}`
    pub fn to_doc(&self) -> DocBuf {
        let mut out = doc! { "verbosity": self.base() };
        let mut all = COMPONENTS.iter().enumerate().peekable();
        while let Some((at, (path, _))) = all.next() {
            let mut d = doc! { "verbosity": self.own(at) };
            while let Some((at, (below, _))) =
                all.next_if(|(_, (p, _))| p.starts_with(&format!("{path}.")))
            {
                let name = below.rsplit('.').next().unwrap_or_default();
                d.append(name, doc! { "verbosity": self.own(at) });
            }
            out.append(path, d);
        }
        out
    }

    /// Sets the levels that a document names, and leaves the others.
    ///
    /// # Errors
    /// 2 BadValue for an unknown component or a level that does not exist; nothing is changed then.
    pub fn set(&self, d: Doc<'_>) -> Result<()> {
        let mut changes = Vec::new();
        read(d, "", &mut changes)?;
        for (at, level) in changes {
            match at {
                Some(at) => {
                    if let Some(l) = self.levels.get(at) {
                        l.store(level, Relaxed);
                    }
                }
                None => self.base.store(level.max(0), Relaxed),
            }
        }
        self.note_highest();
        Ok(())
    }
}

fn read(d: Doc<'_>, path: &str, changes: &mut Vec<(Option<usize>, i32)>) -> Result<()> {
    for e in d {
        let full = match path {
            "" => e.name().to_owned(),
            path => format!("{path}.{}", e.name()),
        };
        match (e.name(), e.value()) {
            ("verbosity", v) => {
                let level = number::to_i64_exact(v).filter(|n| (-1..=5).contains(n));
                let Some(level) = level else {
                    return Err(Error::bad_value(format!(
                        "Expected {full} to be a number between -1 and 5, but found {}",
                        v.to_display()
                    )));
                };
                let at = COMPONENTS.iter().position(|(p, _)| *p == path);
                changes.push((at, level as i32));
            }
            (_, Value::Document(below)) if COMPONENTS.iter().any(|(p, _)| *p == full) => {
                read(below, &full, changes)?;
            }
            (_, Value::Document(_)) => {
                return Err(Error::bad_value(format!("Invalid component name {full}")));
            }
            // A plain number is short for a document with the level.
            (_, v) if v.is_number() && COMPONENTS.iter().any(|(p, _)| *p == full) => {
                read(doc! { "verbosity": v }.as_doc(), &full, changes)?;
            }
            (_, v) => {
                return Err(Error::bad_value(format!(
                    "Invalid component name or level: {full}: {}",
                    v.to_display()
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn levels_are_inherited() {
        assert!(COMPONENTS.windows(2).all(|w| w[0].0 < w[1].0));
        let v = Verbosity::new(0);
        assert!(v.says("COMMAND", 0) && !v.says("COMMAND", 1));
        let storage = doc! { "verbosity": 2, "journal": doc! { "verbosity": 4 } };
        v.set(doc! { "storage": storage, "query": 1 }.as_doc())
            .unwrap();
        assert!(v.says("RECOVERY", 2) && !v.says("RECOVERY", 3));
        assert!(v.says("JOURNAL", 4) && !v.says("JOURNAL", 5));
        assert!(v.says("QUERY", 1) && !v.says("COMMAND", 1));
        v.set(doc! { "verbosity": 3 }.as_doc()).unwrap();
        assert!(v.says("COMMAND", 3) && v.says("NEW", 3) && !v.says("QUERY", 2));
        v.set(doc! { "query": doc! { "verbosity": -1 } }.as_doc())
            .unwrap();
        assert!(v.says("QUERY", 3));
        for bad in [
            doc! { "nope": 1 },
            doc! { "query": 6 },
            doc! { "query": doc! { "x": doc! {} } },
        ] {
            assert!(v.set(bad.as_doc()).is_err(), "{bad:?}");
        }
        let shown = v.to_doc();
        let storage = shown.as_doc().get_doc("storage").unwrap();
        assert_eq!(
            storage.to_display(),
            "{ verbosity: 2, journal: { verbosity: 4 }, recovery: { verbosity: -1 }, wt: \
             { verbosity: -1 } }"
        );
    }
}
