//! Writes that reach the stored users and roles by themselves, and not by the commands for users and roles:
//! a restore, or an administrator with a right to write there.

use crate::auth::{self, ROLES, USERS};
use crate::context::CommandContext;
use crate::registry::{Kind, Names};
use muniment_value::{Doc, DocBuf, Value, doc};

/// A body is looked through down to this depth; what is nested deeper counts as naming the collections.
const MAX_NESTED: usize = 100;

/// The fields of a stored user or role that an event shows. The credentials are not among them.
const SHOWN: [&str; 5] = ["_id", "user", "role", "db", "roles"];

/// The parameters of the events for a command that has written: one for each document that it inserts, else
/// one for each of the two collections that it names.
pub fn mutations(cx: &CommandContext<'_>) -> Vec<DocBuf> {
    if cx.commit.is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for namespace in [USERS, ROLES] {
        if !writes_to(cx, namespace) {
            continue;
        }
        let of = |document: DocBuf| doc! { "ns": namespace, "document": document, "operation": cx.spec.name };
        let before = found.len();
        found.extend(cx.request.documents("documents").map(|d| of(shown(d))));
        if found.len() == before {
            found.push(of(DocBuf::new()));
        }
    }
    found
}

fn shown(document: Doc<'_>) -> DocBuf {
    let mut d = DocBuf::new();
    for e in document.iter().filter(|e| SHOWN.contains(&e.name())) {
        d.append_elem(e);
    }
    d
}

/// Whether a command may write to a collection of users or roles.
fn writes_to(cx: &CommandContext<'_>, namespace: &str) -> bool {
    let body = cx.request.body;
    let named = |d: Doc<'_>| d.get_str("ns") == Some(namespace);
    match (cx.spec.names, cx.spec.kind) {
        (Names::Elsewhere, _) => names(Value::Document(body), cx.db(), namespace, 0),
        (Names::NsInfo, _) => cx.request.documents("nsInfo").any(named),
        (Names::Target, Kind::Write) => cx.ns() == namespace,
        (Names::Target, _) if (cx.spec.writes_output)(body) => {
            // A pipeline writes with its last stage.
            let last = body
                .get_array("pipeline")
                .and_then(|stages| stages.values().last());
            let output = last.or_else(|| body.get("out"));
            output.is_some_and(|output| names(output, cx.db(), namespace, 0))
        }
        (Names::Target, _) => false,
    }
}

/// Whether a value names a collection of the database of users: as `db.collection`, as two fields, or by its
/// name alone where the command's database is that one.
fn names(v: Value<'_>, db: &str, namespace: &str, depth: usize) -> bool {
    let collection = namespace.split_once('.').map_or("", |(_, name)| name);
    match v {
        Value::String(text) => text == namespace || (db == auth::DB && text == collection),
        Value::Document(d) | Value::Array(d) => {
            let db = d.get_str("db").unwrap_or(db);
            depth > MAX_NESTED || d.values().any(|v| names(v, db, namespace, depth + 1))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn names_are_found_in_every_form() {
        for (db, text, found) in [
            ("a", "{x: [{ns: 'admin.system.users'}]}", true),
            ("a", "{ns: 'a.system.users'}", false),
            ("a", "{$out: {db: 'admin', coll: 'system.users'}}", true),
            ("a", "{$out: {db: 'b', coll: 'system.users'}}", false),
            ("admin", "{$out: {db: 'b', coll: 'system.users'}}", false),
            ("admin", "{$out: 'system.users'}", true),
            ("admin", "{$out: 'system.roles'}", false),
            ("a", "{$out: 'system.users'}", false),
        ] {
            let d = testkit::shell(text);
            let is = names(Value::Document(d.as_doc()), db, USERS, 0);
            assert_eq!(is, found, "{db}: {text}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let d = testkit::shell("{_id: 'a.b', user: 'b', db: 'a', credentials: {x: 1}, roles: []}");
        let wanted = testkit::shell("{_id: 'a.b', user: 'b', db: 'a', roles: []}");
        assert_eq!(shown(d.as_doc()), wanted);
    }
}
