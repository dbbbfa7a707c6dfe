//! Requests to members that the tests of replica sets have in common.
#![allow(clippy::unwrap_used, dead_code)]

use muniment_value::{DocBuf, array, doc};
use muniment_wire::Connection;
use testkit::{Server, Set};

/// Stores `{_id: id}`.
pub fn insert(c: &mut Connection, id: i32, wc: DocBuf) -> DocBuf {
    let cmd = doc! { "insert": "c", "documents": array![doc! { "_id": id }], "writeConcern": wc };
    c.command("test", &cmd).unwrap()
}

/// The `_id`s that the member has.
pub fn ids(c: &mut Connection) -> Vec<i64> {
    let cmd = doc! {
        "find": "c",
        "sort": doc! { "_id": 1 },
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let all = c.find_all("test", &cmd).unwrap();
    let id = |d: &DocBuf| d.as_doc().get("_id").unwrap().as_i64_exact().unwrap();
    all.iter().map(id).collect()
}

/// Initiates the set when its first member already has a document, so that the others have to copy it. `args`
/// are those of the member.
pub fn initiate_over_data(set: &mut Set, id: i32, args: &[&str], config: &DocBuf) {
    let member = &mut set.members[0];
    member.terminate();
    member.set_args(&[]);
    member.start_again();
    insert(&mut member.connect(), id, doc! {});
    member.terminate();
    member.set_args(args);
    member.start_again();
    set.initiate(config);
}

/// How many lines of the server's log contain this.
pub fn lines(server: &Server, what: &str) -> usize {
    server.log().lines().filter(|l| l.contains(what)).count()
}

/// The configuration that the member has.
pub fn config(c: &mut Connection) -> DocBuf {
    let reply = c.command("admin", &doc! { "replSetGetConfig": 1 }).unwrap();
    reply.as_doc().get_doc("config").unwrap().to_buf()
}

/// Replaces the members in the primary's configuration by these.
pub fn reconfigure(set: &Set, members: Vec<DocBuf>) {
    let mut c = set.connect(set.primary());
    let version = config(&mut c)
        .as_doc()
        .get("version")
        .unwrap()
        .as_i64_exact();
    let mut next = set.config(members);
    next.append("version", version.unwrap() + 1);
    c.command("admin", &doc! { "replSetReconfig": next })
        .unwrap();
}

/// What the member reports about the one at `host` in `replSetGetStatus`.
pub fn status_of(c: &mut Connection, host: &str) -> DocBuf {
    told_of(c, host).unwrap()
}

/// The same; `None` while the member has not read its configuration.
pub fn told_of(c: &mut Connection, host: &str) -> Option<DocBuf> {
    let status = doc! { "replSetGetStatus": 1 };
    let reply = c.command("admin", &status).ok()?;
    let members = reply.as_doc().get_array("members").unwrap();
    let mut members = members.values().filter_map(|v| v.as_doc());
    let found = members.find(|d| d.get_str("name") == Some(host));
    Some(found.unwrap().to_buf())
}

/// The document with another value in one of its fields.
pub fn with(d: &DocBuf, name: &str, value: impl muniment_value::Put) -> DocBuf {
    let mut changed = DocBuf::new();
    for e in d.as_doc().iter().filter(|e| e.name() != name) {
        changed.append_elem(e);
    }
    changed.append(name, value);
    changed
}
