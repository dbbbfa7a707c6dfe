//! Names of databases and collections.
//!
//! Source: the MongoDB manual, "Naming Restrictions" and "Namespace Length".

use muniment_value::{Code, Error, Result, Value};

/// How the name of a collection begins that is to take the place of another one.
pub const RESHARDING: &str = "system.resharding.";

/// Longest namespace `db.collection`, in bytes.
pub const MAX_NAMESPACE: usize = 255;
/// A database name must be shorter than this, in bytes.
pub const MAX_DB: usize = 64;

/// Checks a database name.
///
/// # Errors
/// 73 InvalidNamespace.
pub fn check_db(db: &str) -> Result<()> {
    let legal = !db.is_empty()
        && db.len() < MAX_DB
        && (db == "$external" || !db.contains(['/', '\\', '.', ' ', '"', '$', '\0']));
    if legal {
        Ok(())
    } else {
        Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid database name: '{db}'"),
        ))
    }
}

/// Checks a collection name for reading and writing.
///
/// # Errors
/// 73 InvalidNamespace.
pub fn check_collection(db: &str, collection: &str) -> Result<()> {
    let ns = || format!("{db}.{collection}");
    let bad = |why: &str| {
        Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid namespace specified '{}'{why}", ns()),
        ))
    };
    let internal = collection.starts_with("$cmd");
    if collection.is_empty()
        || collection.starts_with('.')
        || (collection.starts_with('$') && !internal)
        || collection.contains('\0')
    {
        return bad("");
    }
    if db.len() + 1 + collection.len() > MAX_NAMESPACE {
        return bad(&format!(": longer than the limit of {MAX_NAMESPACE} bytes"));
    }
    Ok(())
}

/// Checks that a collection's name has no `$`.
///
/// # Errors
/// 73 InvalidNamespace.
pub fn check_dollar(collection: &str) -> Result<()> {
    if collection.contains('$') {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid collection name: {collection}"),
        ));
    }
    Ok(())
}

/// Checks the name of a collection that is about to be created.
///
/// # Errors
/// 73 InvalidNamespace, also for names that may be read but not created.
pub fn check_create(db: &str, collection: &str) -> Result<()> {
    check_collection(db, collection)?;
    check_dollar(collection)?;
    let system = collection.strip_prefix("system.");
    if let Some(rest) = system {
        let known = matches!(
            rest,
            "js" | "profile" | "views" | "users" | "roles" | "version"
        ) || rest.starts_with("buckets.")
            || rest.starts_with("resharding.")
            || (db == "config" && rest == "sessions")
            || (db == "local" && rest == "replset");
        if !known {
            return Err(Error::new(
                Code::InvalidNamespace,
                format!("Invalid system namespace: {db}.{collection}"),
            ));
        }
    }
    Ok(())
}

/// Checks the name of a collection that a client is about to write to.
///
/// # Errors
/// 73 InvalidNamespace, also for collections that only the server writes.
pub fn check_write(db: &str, collection: &str) -> Result<()> {
    if collection == "system.profile" {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("cannot write to {db}.{collection}"),
        ));
    }
    // Nearly no write is to the database of the generated collections, and so this formats no string.
    if muniment_exec::generated_in(db).any(|name| name == collection) {
        muniment_exec::refuse_generated(&format!("{db}.{collection}"))?;
    }
    check_create(db, collection)
}

/// The name in a command's first element, which may be one that no collection can have: the collection is
/// then simply not found.
///
/// # Errors
/// 73 if it is no string, empty, begins with a dot or has a null byte.
pub fn lenient(v: Value<'_>) -> Result<&str> {
    let name = match v {
        Value::String(c) | Value::Symbol(c) => c,
        v => {
            return Err(Error::new(
                Code::InvalidNamespace,
                format!("collection name has invalid type {}", v.type_name()),
            ));
        }
    };
    if name.is_empty() || name.starts_with('.') || name.contains('\0') {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid collection name: '{name}'"),
        ));
    }
    Ok(name)
}

/// The collection that a command's first element names.
///
/// # Errors
/// 73 if it is no string or illegal.
pub fn collection_of<'a>(db: &str, v: Value<'a>) -> Result<&'a str> {
    match v {
        Value::String(c) | Value::Symbol(c) => {
            check_collection(db, c)?;
            Ok(c)
        }
        v => Err(Error::new(
            Code::InvalidNamespace,
            format!("collection name has invalid type {}", v.type_name()),
        )),
    }
}

/// Splits a full name, and checks both parts.
///
/// # Errors
/// 73.
pub fn split(ns: &str) -> Result<(&str, &str)> {
    let (db, c) = ns.split_once('.').ok_or_else(|| {
        Error::new(
            Code::InvalidNamespace,
            format!("Invalid namespace specified '{ns}'"),
        )
    })?;
    check_db(db)?;
    check_collection(db, c)?;
    Ok((db, c))
}

/// The namespace of the cursor over the results of `bulkWrite`.
pub const OF_BULK_WRITE: &str = "admin.$cmd.bulkWrite";

/// The error 263 for a database that takes no part in transactions.
pub fn not_in_transaction(db: &str) -> Error {
    Error::new(
        Code::OperationNotSupportedInTransaction,
        format!("Cannot run command against the '{db}' database in a transaction."),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn databases() {
        for ok in [
            "a",
            "admin",
            "$external",
            "ünicode",
            "a-b_c",
            &"x".repeat(63),
        ] {
            assert!(check_db(ok).is_ok(), "{ok}");
        }
        for bad in [
            "",
            "a.b",
            "a b",
            "a$b",
            "a/b",
            "a\\b",
            "a\"b",
            "a\0b",
            &"x".repeat(64),
        ] {
            assert_eq!(check_db(bad).unwrap_err().code().0, 73, "{bad}");
        }
    }

    #[test]
    fn collections() {
        for ok in ["a", "a.b", "a$b", "system.indexes", &"x".repeat(253)] {
            assert!(check_collection("d", ok).is_ok(), "{ok}");
        }
        for bad in ["", ".a", "a\0", &"x".repeat(254)] {
            assert_eq!(
                check_collection("d", bad).unwrap_err().code().0,
                73,
                "{bad}"
            );
        }
        for bad in ["$cmd", "a$b", "system.foo"] {
            assert_eq!(check_create("d", bad).unwrap_err().code().0, 73, "{bad}");
        }
        assert!(check_create("d", "system.js").is_ok());
        assert_eq!(split("a.b.c").unwrap(), ("a", "b.c"));
        assert!(split("a").is_err());
        assert!(collection_of("d", Value::Int32(1)).is_err());
    }
}
