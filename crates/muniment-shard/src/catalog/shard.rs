//! The documents of `config.shards`.

use super::fields::Fields;
use crate::stamp::Timestamp;
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Type, doc};

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The name, which is the document's `_id`.
    pub name: String,
    /// The name of the replica set.
    pub set: String,
    /// Its members, as `host:port`; at least one.
    pub hosts: Vec<String>,
    /// The time at which the list of shards last changed for this shard.
    pub topology_time: Timestamp,
    /// True while the shard is being removed.
    pub draining: bool,
    /// The zones of the shard.
    pub zones: Vec<String>,
}

/// The state of a shard that takes part in the cluster, the only one that there is today.
const AWARE: i32 = 1;

impl Shard {
    /// Reads a document of `config.shards`.
    ///
    /// # Errors
    /// 4 NoSuchKey and 14 TypeMismatch, which name the field; those of [`Shard::split_host`].
    pub fn parse(doc: Doc<'_>) -> Result<Shard> {
        let fields = Fields::new("config.shards", doc);
        let (set, hosts) = Shard::split_host(&fields.string("host")?)?;
        let tags = fields.optional("tags", Type::Array, |v| {
            let each = v.as_array()?.values();
            each.map(|t| t.as_str().map(str::to_string))
                .collect::<Option<Vec<_>>>()
        })?;
        Ok(Shard {
            name: fields.string("_id")?,
            set,
            hosts,
            topology_time: fields.some_timestamp("topologyTime")?.unwrap_or_default(),
            draining: fields.flag("draining")?,
            zones: tags.unwrap_or_default(),
        })
    }

    /// Divides a connection string, `set/host:port,host:port`, as `addShard` takes it too.
    ///
    /// # Errors
    /// 2 BadValue if there is no set or no host.
    pub fn split_host(text: &str) -> Result<(String, Vec<String>)> {
        let (set, hosts) = text.split_once('/').unwrap_or_default();
        let hosts: Vec<String> = hosts.split(',').map(str::to_string).collect();
        if set.is_empty() || hosts.iter().any(String::is_empty) {
            return Err(Error::bad_value(format!(
                "the host of a shard has to be of the form set/host:port, not '{text}'"
            )));
        }
        Ok((set.to_string(), hosts))
    }

    /// The connection string.
    pub fn host(&self) -> String {
        format!("{}/{}", self.set, self.hosts.join(","))
    }

    /// The document.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = doc! {
            "_id": &self.name,
            "host": self.host(),
            "state": AWARE,
            "topologyTime": self.topology_time.to_value(),
        };
        if self.draining {
            out.append("draining", true);
        }
        if !self.zones.is_empty() {
            out.append("tags", self.zones.iter().collect::<ArrayBuf>());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::array;

    #[test]
    fn there_and_back() {
        let stored = doc! {
            "_id": "shard01",
            "host": "rs1/a:27018,b:27019",
            "state": 1,
            "topologyTime": Timestamp::new(4, 2).to_value(),
            "draining": true,
            "tags": array!["EU", "US"],
        };
        let shard = Shard::parse(stored.as_doc()).unwrap();
        assert_eq!((shard.set.as_str(), shard.hosts.len()), ("rs1", 2));
        assert_eq!(shard.to_doc(), stored);
        let least = doc! { "_id": "s", "host": "rs/a:1" };
        let shard = Shard::parse(least.as_doc()).unwrap();
        assert!(!shard.draining && shard.zones.is_empty());
    }

    #[test]
    fn hosts_that_are_no_set() {
        for host in ["", "a:1", "/a:1", "rs/", "rs/a:1,"] {
            let doc = doc! { "_id": "s", "host": host };
            let e = Shard::parse(doc.as_doc()).unwrap_err();
            assert_eq!(e.code().0, 2, "{host}");
        }
        let doc = doc! { "_id": "s", "host": "rs/a:1", "tags": array![1] };
        let e = Shard::parse(doc.as_doc()).unwrap_err();
        assert!(e.message().contains("tags"));
    }
}
