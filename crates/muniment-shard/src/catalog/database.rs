//! The documents of `config.databases`.

use super::fields::{Fields, uuid_value};
use crate::stamp::Timestamp;
use muniment_value::{Doc, DocBuf, Error, Result, Type, doc};

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// The name, which is the document's `_id`.
    pub name: String,
    /// The name of the shard that has the collections that are not sharded.
    pub primary: String,
    /// The version.
    pub version: DatabaseVersion,
}

/// The version of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatabaseVersion {
    /// The database's own id, which another of the same name does not have.
    pub uuid: [u8; 16],
    /// The time at which it was created.
    pub timestamp: Timestamp,
    /// How often its primary shard has been set: 1 for a new database.
    pub last_mod: i32,
}

impl Database {
    /// Reads a document of `config.databases`.
    ///
    /// # Errors
    /// Those of [`DatabaseVersion::parse`].
    pub fn parse(doc: Doc<'_>) -> Result<Database> {
        let fields = Fields::new("config.databases", doc);
        Ok(Database {
            name: fields.string("_id")?,
            primary: fields.string("primary")?,
            version: DatabaseVersion::read(fields.within(fields.doc("version")?))?,
        })
    }

    /// The document.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "_id": &self.name,
            "primary": &self.primary,
            "version": self.version.to_doc(),
        }
    }
}

impl DatabaseVersion {
    /// Reads a version, as commands between routers and shards carry it.
    ///
    /// # Errors
    /// 4 NoSuchKey and 14 TypeMismatch, which name the field; 2 BadValue for a count that is no int.
    pub fn parse(doc: Doc<'_>) -> Result<DatabaseVersion> {
        DatabaseVersion::read(Fields::new("config.databases", doc))
    }

    fn read(fields: Fields<'_>) -> Result<DatabaseVersion> {
        let count = fields.required("lastMod", Type::Int32, |v| v.as_i64_exact())?;
        let no_int = |_| Error::bad_value(format!("the field lastMod cannot be {count}"));
        Ok(DatabaseVersion {
            uuid: fields.uuid("uuid")?,
            timestamp: fields.timestamp("timestamp")?,
            last_mod: i32::try_from(count).map_err(no_int)?,
        })
    }

    /// The document of the version.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "uuid": uuid_value(&self.uuid),
            "timestamp": self.timestamp.to_value(),
            "lastMod": self.last_mod,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn there_and_back() {
        let version = doc! {
            "uuid": uuid_value(&[5; 16]),
            "timestamp": Timestamp::new(9, 1).to_value(),
            "lastMod": 1,
        };
        let stored = doc! { "_id": "db", "primary": "shard01", "version": &version };
        let db = Database::parse(stored.as_doc()).unwrap();
        assert_eq!(db.to_doc(), stored);
        assert_eq!(
            DatabaseVersion::parse(version.as_doc()).unwrap(),
            db.version
        );
        let without = doc! { "_id": "db", "primary": "s", "version": doc! { "lastMod": 1 } };
        let e = Database::parse(without.as_doc()).unwrap_err();
        assert!(e.message().contains("field uuid"), "{e}");
    }
}
