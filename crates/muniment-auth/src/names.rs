//! The names of users and roles: each is a name within a database.

use muniment_value::{Doc, DocBuf, Error, Result, Value};
use std::fmt;

/// The name of a user.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UserName {
    /// The database in which the user is defined.
    pub db: String,
    /// The name within the database.
    pub user: String,
}

/// The name of a role.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoleName {
    /// The database in which the role is defined.
    pub db: String,
    /// The name within the database.
    pub role: String,
}

/// The words of messages about one of the two kinds of names.
struct Kind {
    /// The field of the name within the database.
    field: &'static str,
    /// What messages about a document call it.
    kind: &'static str,
    /// What messages about the name itself call it.
    label: &'static str,
}

const USER: Kind = Kind {
    field: "user",
    kind: "UserName",
    label: "User",
};

const ROLE: Kind = Kind {
    field: "role",
    kind: "RoleName",
    label: "Role",
};

impl UserName {
    /// Makes a name without looking at it.
    pub fn new(user: impl Into<String>, db: impl Into<String>) -> UserName {
        UserName {
            db: db.into(),
            user: user.into(),
        }
    }

    /// Makes a name that a client gave.
    ///
    /// # Errors
    /// 2 BadValue for an empty name or one with a NUL byte.
    pub fn checked(user: &str, db: &str) -> Result<UserName> {
        check(&USER, user, db)?;
        Ok(UserName::new(user, db))
    }

    /// The name that `{user, db}` describes, or a string with `default_db`.
    ///
    /// # Errors
    /// 2 BadValue for another type, a field that is missing, unknown, given twice or no string, an empty name,
    /// or a NUL byte.
    pub fn from_value(value: Value<'_>, default_db: &str) -> Result<UserName> {
        let (user, db) = read(&USER, value, default_db)?;
        UserName::checked(user, db)
    }

    /// The name that `{user, db}` describes.
    ///
    /// # Errors
    /// As [`UserName::from_value`].
    pub fn from_doc(doc: Doc<'_>) -> Result<UserName> {
        UserName::from_value(Value::Document(doc), "")
    }

    /// The document `{user, db}`.
    pub fn to_doc(&self) -> DocBuf {
        print(&USER, &self.user, &self.db)
    }

    /// The key of the user's document: "db.user".
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.user)
    }
}

impl RoleName {
    /// Makes a name without looking at it.
    pub fn new(role: impl Into<String>, db: impl Into<String>) -> RoleName {
        RoleName {
            db: db.into(),
            role: role.into(),
        }
    }

    /// Makes a name that a client gave.
    ///
    /// # Errors
    /// 2 BadValue for an empty name or one with a NUL byte.
    pub fn checked(role: &str, db: &str) -> Result<RoleName> {
        check(&ROLE, role, db)?;
        Ok(RoleName::new(role, db))
    }

    /// The name that `{role, db}` describes, or a string with `default_db`.
    ///
    /// # Errors
    /// 2 BadValue for another type, a field that is missing, unknown, given twice or no string, an empty name,
    /// or a NUL byte.
    pub fn from_value(value: Value<'_>, default_db: &str) -> Result<RoleName> {
        let (role, db) = read(&ROLE, value, default_db)?;
        RoleName::checked(role, db)
    }

    /// The name that `{role, db}` describes.
    ///
    /// # Errors
    /// As [`RoleName::from_value`].
    pub fn from_doc(doc: Doc<'_>) -> Result<RoleName> {
        RoleName::from_value(Value::Document(doc), "")
    }

    /// The names of an array of roles, in its order: `"read"` or `{role: "read", db: "x"}`.
    ///
    /// # Errors
    /// As [`RoleName::from_value`].
    pub fn from_array(array: Doc<'_>, default_db: &str) -> Result<Vec<RoleName>> {
        array
            .values()
            .map(|v| RoleName::from_value(v, default_db))
            .collect()
    }

    /// The document `{role, db}`.
    pub fn to_doc(&self) -> DocBuf {
        print(&ROLE, &self.role, &self.db)
    }

    /// The key of the role's document: "db.role".
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.role)
    }
}

/// Prints MongoDB's form "user@db".
impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.db)
    }
}

/// Prints MongoDB's form "role@db".
impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.role, self.db)
    }
}

fn print(kind: &Kind, name: &str, db: &str) -> DocBuf {
    let mut d = DocBuf::new();
    d.append(kind.field, name).append("db", db);
    d
}

/// The name and the database that `value` gives.
fn read<'a>(kind: &Kind, value: Value<'a>, default_db: &'a str) -> Result<(&'a str, &'a str)> {
    match value {
        Value::String(name) => Ok((name, default_db)),
        Value::Document(doc) => read_doc(kind, doc),
        other => Err(Error::bad_value(format!(
            "{} names must be either strings or objects, not {}",
            kind.label,
            other.type_name()
        ))),
    }
}

fn read_doc<'a>(kind: &Kind, doc: Doc<'a>) -> Result<(&'a str, &'a str)> {
    let (mut name, mut db) = (None, None);
    for e in doc.iter() {
        let place = match e.name() {
            "db" => &mut db,
            field if field == kind.field => &mut name,
            other => {
                return Err(Error::bad_value(format!(
                    "{} contains an unknown field named: '{other}'",
                    kind.kind
                )));
            }
        };
        let Some(text) = e.value().as_str() else {
            return Err(Error::bad_value(format!(
                "{} must contain a string field named: {}, not one of type {}",
                kind.kind,
                e.name(),
                e.ty().name()
            )));
        };
        if place.replace(text).is_some() {
            return Err(Error::bad_value(format!(
                "{} has more than one field named: {}",
                kind.kind,
                e.name()
            )));
        }
    }
    let missing =
        |field| Error::bad_value(format!("{} must contain a field named: {field}", kind.kind));
    Ok((
        name.ok_or_else(|| missing(kind.field))?,
        db.ok_or_else(|| missing("db"))?,
    ))
}

fn check(kind: &Kind, name: &str, db: &str) -> Result<()> {
    for (what, text) in [(kind.label, name), ("Database", db)] {
        if text.is_empty() {
            return Err(Error::bad_value(format!("{what} name must be non-empty")));
        }
        if text.contains('\0') {
            return Err(Error::bad_value(format!(
                "{what} name cannot contain NULL characters"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{Code, array, doc};

    #[test]
    fn reading_and_printing() {
        let user = UserName::new("ann", "shop");
        assert_eq!(UserName::from_doc(user.to_doc().as_doc()).unwrap(), user);
        assert_eq!(user.id(), "shop.ann");
        assert_eq!(user.to_string(), "ann@shop");
        let text = UserName::from_value(Value::String("ann"), "shop").unwrap();
        assert_eq!(text, user);
        let role = RoleName::new("read", "shop");
        assert_eq!(RoleName::from_doc(role.to_doc().as_doc()).unwrap(), role);
        assert_eq!(role.to_doc(), doc! { "role": "read", "db": "shop" });
        assert_eq!(
            (role.id(), role.to_string()),
            ("shop.read".into(), "read@shop".into())
        );
        let turned = doc! { "db": "shop", "role": "read" };
        assert_eq!(RoleName::from_doc(turned.as_doc()).unwrap(), role);
        let roles = array!["read", doc! { "role": "root", "db": "admin" }];
        assert_eq!(
            RoleName::from_array(roles.as_doc(), "shop").unwrap(),
            [role, RoleName::new("root", "admin")]
        );
    }

    #[test]
    fn names_that_are_refused() {
        for d in [
            doc! {},
            doc! { "role": "read" },
            doc! { "db": "x" },
            doc! { "role": "read", "db": 1 },
            doc! { "role": 1, "db": "x" },
            doc! { "user": "read", "db": "x" },
            doc! { "role": "read", "db": "x", "more": 1 },
            doc! { "role": "read", "db": "x", "db": "y" },
            doc! { "role": "", "db": "x" },
            doc! { "role": "read", "db": "" },
            doc! { "role": "re\0ad", "db": "x" },
            doc! { "role": "read", "db": "x\0" },
        ] {
            let e = RoleName::from_doc(d.as_doc()).unwrap_err();
            assert_eq!(e.code(), Code::BadValue, "{d:?}: {e}");
        }
        for v in [Value::Null, Value::Int32(1), Value::String("")] {
            let e = RoleName::from_value(v, "x").unwrap_err();
            assert_eq!(e.code(), Code::BadValue, "{v:?}: {e}");
        }
        assert!(UserName::checked("a", "$external").is_ok());
        assert!(UserName::checked("a\0", "x").is_err());
    }

    #[test]
    fn order_is_by_database_and_name() {
        let mut all = [
            RoleName::new("a", "y"),
            RoleName::new("b", "x"),
            RoleName::new("a", "x"),
        ];
        all.sort();
        let ids: Vec<_> = all.iter().map(RoleName::id).collect();
        assert_eq!(ids, ["x.a", "x.b", "y.a"]);
    }
}
