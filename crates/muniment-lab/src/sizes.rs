//! The amount of data compared with the server's cache: a figure for data that fit in the cache
//! says nothing about data that do not.

use crate::report::table::{Table, bytes};
use muniment_load::conn::{Conn, number_at};
use muniment_value::doc;

/// The sizes of a database as an experiment left it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// The name of the target.
    pub target: String,
    /// Bytes of documents.
    pub data: f64,
    /// Bytes of collections on the disk.
    pub storage: f64,
    /// Bytes of indexes on the disk.
    pub indexes: f64,
    /// Bytes that the server's cache may hold; `None` if the server does not tell.
    pub cache: Option<f64>,
}

impl Sizes {
    /// Asks the server for the sizes of database `db`; `None` if it does not tell them.
    pub fn of(conn: &mut Conn, target: &str, db: &str) -> Option<Sizes> {
        let stats = conn.command(db, &doc! { "dbStats": 1 }).ok()?;
        let status = conn.command("admin", &doc! { "serverStatus": 1 }).ok();
        let at = |name: &str| number_at(stats.as_doc(), name);
        Some(Sizes {
            target: target.to_string(),
            data: at("dataSize")?,
            storage: at("storageSize")?,
            indexes: at("indexSize").unwrap_or(0.0),
            cache: status
                .and_then(|s| number_at(s.as_doc(), "wiredTiger.cache.maximum bytes configured"))
                .filter(|c| *c > 0.0),
        })
    }
}

/// The table of the sizes that several databases had at their end; `None` if there are none.
pub(crate) fn table(sizes: &[Sizes]) -> Option<Table> {
    // A server that was left empty is not one that was measured, so it is left out.
    let mut sizes: Vec<&Sizes> = sizes.iter().filter(|s| s.data > 0.0).collect();
    // The turns of a comparison leave the same database each time, which is listed once.
    let mut seen: Vec<&Sizes> = Vec::new();
    sizes.retain(|s| {
        let new = !seen.contains(s);
        seen.push(s);
        new
    });
    if sizes.is_empty() {
        return None;
    }
    let mut t = Table::new(
        "Data and cache at the end",
        &[
            "<server",
            ">data",
            ">on disk",
            ">indexes",
            ">server's cache",
            ">data : cache",
        ],
    );
    for s in sizes {
        let dash = || "–".to_string();
        t.row([
            s.target.clone(),
            bytes(s.data),
            bytes(s.storage),
            bytes(s.indexes),
            s.cache.map_or_else(dash, bytes),
            s.cache.map_or_else(dash, |c| format!("{:.3}", s.data / c)),
        ]);
    }
    t.note("Below 1 : 1 everything fits the server's cache; the operating system caches files besides.");
    Some(t)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn the_ratio_is_of_documents_to_the_servers_cache() {
        let mut s = Sizes {
            target: "embedded".into(),
            data: 3e9,
            storage: 1e9,
            indexes: 2e8,
            cache: Some(5e8),
        };
        let t = table(std::slice::from_ref(&s)).unwrap();
        assert_eq!(t.rows[0][5], "6.000");
        assert_eq!(table(&[s.clone(), s.clone()]).unwrap().rows.len(), 1);
        s.cache = None;
        assert_eq!(table(&[s]).unwrap().rows[0][5], "–");
        assert!(table(&[]).is_none());
    }
}
