//! A table of the options that each kind of index may have, whichever command sets them. An accepted index
//! also exists after a kill, because a start reads the catalog by the same rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, array, doc};
use muniment_wire::Connection;
use std::fmt::Write;
use testkit::{Server, ServerOptions, shell};

/// The kinds of indexes, each with a key.
const KINDS: [(&str, &str); 9] = [
    ("plain", "a: 1"),
    ("two", "a: 1, b: -1"),
    ("_id", "_id: 1"),
    ("2d", "l: '2d'"),
    ("sphere", "g: '2dsphere'"),
    ("text", "t: 'text'"),
    ("hashed", "h: 'hashed'"),
    ("wild", "'$**': 1"),
    ("wild+", "a: 1, 'b.$**': 1"),
];

/// The code that creating an index with these options gets, for each kind; 0 if it is created.
const CREATED: &str = "
hidden: false | 0 0 197 0 0 0 0 0 0
unique: true | 0 0 197 0 0 0 16764 67 67
unique: false | 0 0 197 0 0 0 0 0 0
unique: 'x' | 14 14 14 14 14 14 14 14 14
sparse: true | 0 0 197 0 0 0 0 67 67
hidden: true | 0 0 197 0 0 0 0 0 0
hidden: 1 | 14 14 14 14 14 14 14 14 14
prepareUnique: true | 0 0 197 0 0 0 16764 67 67
unique: true, prepareUnique: true | 0 0 197 0 0 0 16764 67 67
unique: true, sparse: true | 0 0 197 0 0 0 16764 67 67
unique: true, hidden: true | 0 0 197 0 0 0 16764 67 67
unique: true, collation: {locale: 'en'} | 0 0 197 67 0 67 16764 67 67
expireAfterSeconds: 5 | 0 67 197 0 0 0 0 67 67
expireAfterSeconds: 0 | 0 67 197 0 0 0 0 67 67
expireAfterSeconds: -1 | 67 67 67 67 67 67 67 67 67
expireAfterSeconds: NaN | 67 67 67 67 67 67 67 67 67
expireAfterSeconds: 1e300 | 67 67 67 67 67 67 67 67 67
expireAfterSeconds: NumberDecimal('NaN') | 67 67 67 67 67 67 67 67 67
expireAfterSeconds: 2147483647 | 0 67 197 0 0 0 0 67 67
expireAfterSeconds: NumberLong('2147483648') | 67 67 67 67 67 67 67 67 67
expireAfterSeconds: 'x' | 67 67 67 67 67 67 67 67 67
expireAfterSeconds: 5, unique: true | 0 67 197 0 0 0 16764 67 67
expireAfterSeconds: 5, partialFilterExpression: {z: 1} | 0 67 197 0 0 0 0 67 67
partialFilterExpression: {z: {$gt: 1}} | 0 0 197 0 0 0 0 0 0
partialFilterExpression: {} | 0 0 197 0 0 0 0 0 0
partialFilterExpression: {z: {$ne: 1}} | 67 67 197 67 67 67 67 67 67
partialFilterExpression: {$bogus: 1} | 2 2 197 2 2 2 2 2 2
partialFilterExpression: 'x' | 14 14 14 14 14 14 14 14 14
partialFilterExpression: {z: 1}, sparse: true | 67 67 197 67 67 67 67 67 67
partialFilterExpression: {z: 1}, unique: true | 0 0 197 0 0 0 16764 67 67
collation: {locale: 'en'} | 0 0 2 67 0 67 0 0 0
collation: {locale: 'simple'} | 0 0 0 0 0 0 0 0 0
collation: {locale: 'xx'} | 2 2 2 2 2 2 2 2 2
collation: {} | 2 2 2 2 2 2 2 2 2
collation: {locale: 'en'}, v: 1 | 67 67 2 67 67 67 67 67 67
background: true | 0 0 197 0 0 0 0 0 0
storageEngine: {wiredTiger: {}} | 0 0 197 0 0 0 0 0 0
storageEngine: {} | 67 67 67 67 67 67 67 67 67
storageEngine: {other: {}} | 72 72 197 72 72 72 72 72 72
storageEngine: 1 | 67 67 67 67 67 67 67 67 67
v: 1 | 0 0 0 0 0 0 0 67 67
v: 0 | 67 67 67 67 67 67 67 67 67
v: 3 | 67 67 67 67 67 67 67 67 67
v: 'x' | 14 14 14 14 14 14 14 14 14
name: '' | 67 67 67 67 67 67 67 67 67
name: '*' | 2 2 2 2 2 2 2 2 2
name: '_id_' | 2 2 0 2 2 2 2 2 2
name: 5 | 14 14 14 14 14 14 14 14 14
bits: 20 | 0 0 197 0 0 0 0 0 0
bits: 99 | 0 0 197 72 0 0 0 0 0
bits: 'x' | 14 14 197 14 14 14 14 14 14
min: -10, max: 10 | 0 0 197 0 0 0 0 0 0
min: 10, max: -10 | 0 0 197 72 0 0 0 0 0
'2dsphereIndexVersion': 2 | 0 0 197 0 0 0 0 0 0
'2dsphereIndexVersion': 9 | 0 0 197 0 67 0 0 0 0
'2dsphereIndexVersion': 'x' | 14 14 197 14 14 14 14 14 14
coarsestIndexedLevel: 5, finestIndexedLevel: 9 | 0 0 197 0 0 0 0 0 0
coarsestIndexedLevel: 9, finestIndexedLevel: 5 | 0 0 197 0 16749 0 0 0 0
textIndexVersion: 3 | 0 0 197 0 0 0 0 0 0
textIndexVersion: 1 | 0 0 197 0 0 67 0 0 0
weights: {z: 5} | 67 67 197 67 67 0 67 67 67
weights: {z: 0} | 67 67 197 67 67 67 67 67 67
weights: 'x' | 67 67 197 67 67 67 67 67 67
default_language: 'german' | 0 0 197 0 0 0 0 0 0
default_language: 'klingon' | 0 0 197 0 0 67 0 0 0
default_language: 5 | 14 14 197 14 14 14 14 14 14
language_override: 'lang' | 0 0 197 0 0 0 0 0 0
wildcardProjection: {a: 0} | 2 2 197 2 2 2 2 0 9
wildcardProjection: {z: 1} | 2 2 197 2 2 2 2 0 9
wildcardProjection: {} | 2 2 197 2 2 2 2 9 9
wildcardProjection: 5 | 2 2 197 2 2 2 2 14 14
bucketSize: 1 | 0 0 197 0 0 0 0 0 0
bucketSize: 'x' | 14 14 14 14 14 14 14 14 14
originalSpec: {v: 2, key: {a: 1}, name: 'x'} | 0 0 197 0 0 0 0 0 0
originalSpec: {bogus: 1} | 197 197 197 197 197 197 197 197 197
originalSpec: {} | 2 2 2 2 2 2 2 2 2
dropDups: true | 0 0 197 0 0 0 0 0 0
ns: 'd.c' | 0 0 0 0 0 0 0 0 0
clustered: true | 197 197 197 197 197 197 197 197 197
bogus: 1 | 197 197 197 197 197 197 197 197 197
";

/// The codes for changing an index of each kind with collMod.
const CHANGED: &str = "
hidden: true | 0 0 2 0 0 0 0 0 0
hidden: true then hidden: false | 0 0 2 0 0 0 0 0 0
hidden: 1 | 0 0 2 0 0 0 0 0 0
expireAfterSeconds: 5 | 0 72 72 0 0 72 0 72 72
expireAfterSeconds: 0 | 0 72 72 0 0 72 0 72 72
expireAfterSeconds: NaN | 0 72 72 0 0 72 0 72 72
expireAfterSeconds: 1e300 | 0 72 72 0 0 72 0 72 72
expireAfterSeconds: -1 | 72 72 72 72 72 72 72 72 72
expireAfterSeconds: 'off' | 14 14 14 14 14 14 14 14 14
expireAfterSeconds: 5 then expireAfterSeconds: 6 | 0 72 72 0 0 72 0 72 72
prepareUnique: true | 0 0 72 0 0 0 72 72 72
prepareUnique: false | 0 0 0 0 0 0 0 0 0
prepareUnique: true then unique: true | 0 0 72 0 0 0 72 72 72
prepareUnique: true then prepareUnique: false | 0 0 72 0 0 0 72 72 72
prepareUnique: true then hidden: true then unique: true | 0 0 72 0 0 0 72 72 72
unique: true | 72 72 0 72 72 72 72 72 72
unique: false | 2 2 2 2 2 2 2 2 2
hidden: true, expireAfterSeconds: 7 | 0 72 72 0 0 72 0 72 72
hidden: true, prepareUnique: true | 72 72 2 72 72 72 72 72 72
sparse: true | 40415 40415 40415 40415 40415 40415 40415 40415 40415
";

/// The codes for `create` with options for its own index.
const OF_ID: &str = "
idIndex: {v: 2, key: {_id: 1}, name: '_id_'} | 0
idIndex: {v: 1, key: {_id: 1}, name: '_id_'} | 0
idIndex: {v: 3, key: {_id: 1}, name: '_id_'} | 67
idIndex: {key: {_id: 1}, name: 'x'} | 0
idIndex: {key: {_id: 1}} | 9
idIndex: {key: {_id: -1}, name: '_id_'} | 2
idIndex: {key: {_id: 'hashed'}, name: '_id_'} | 2
idIndex: {key: {a: 1}, name: '_id_'} | 2
idIndex: {key: {_id: 1}, name: '_id_', unique: true} | 197
idIndex: {key: {_id: 1}, name: '_id_', sparse: true} | 197
idIndex: {key: {_id: 1}, name: '_id_', hidden: true} | 197
idIndex: {key: {_id: 1}, name: '_id_', prepareUnique: true} | 197
idIndex: {key: {_id: 1}, name: '_id_', expireAfterSeconds: 5} | 197
idIndex: {key: {_id: 1}, name: '_id_', partialFilterExpression: {a: 1}} | 197
idIndex: {key: {_id: 1}, name: '_id_', collation: {locale: 'simple'}} | 0
idIndex: {key: {_id: 1}, name: '_id_', collation: {locale: 'en'}} | 2
idIndex: {key: {_id: 1}, name: '_id_', collation: {locale: 'en'}}, collation: {locale: 'en'} | 0
idIndex: {key: {_id: 1}, name: '_id_', bogus: 1} | 197
idIndex: {key: {_id: 1}, name: '_id_'}, capped: true, size: 1000 | 0
idIndex: {key: {_id: 1}, name: '_id_'}, viewOn: 'x' | 72
idIndex: {key: {_id: 1}, name: '_id_'}, timeseries: {timeField: 't'} | 72
idIndex: {key: {_id: 1}, name: '_id_'}, clusteredIndex: {key: {_id: 1}, unique: true} | 72
clusteredIndex: {key: {_id: 1}, unique: true} | 0
clusteredIndex: {key: {_id: 1}, unique: true, v: 2, name: 'x'} | 0
clusteredIndex: {key: {_id: 1}, unique: true, v: 1} | 5979704
clusteredIndex: {key: {_id: 1}, unique: false} | 5979700
clusteredIndex: {key: {_id: 1}} | 40414
clusteredIndex: {key: {a: 1}, unique: true} | 197
clusteredIndex: {key: {_id: 1}, unique: true, sparse: true} | 40415
clusteredIndex: {key: {_id: 1}, unique: true}, capped: true, size: 1000 | 6049200
clusteredIndex: {key: {_id: 1}, unique: true}, expireAfterSeconds: 5 | 0
clusteredIndex: {key: {_id: 1}, unique: true}, expireAfterSeconds: NaN | 0
clusteredIndex: {key: {_id: 1}, unique: true}, expireAfterSeconds: 1e300 | 72
clusteredIndex: {key: {_id: 1}, unique: true}, expireAfterSeconds: -1 | 72
clusteredIndex: {key: {_id: 1}, unique: true}, collation: {locale: 'en'} | 0
clusteredIndex: true | 5979703
clusteredIndex: false | 0
clusteredIndex: 'x' | 14
";

fn code(c: &mut Connection, db: &str, command: &DocBuf) -> i64 {
    let reply = c.command_raw(db, command).unwrap();
    let code = reply.as_doc().get("code");
    code.map_or(0, |v| v.as_i64_exact().unwrap())
}

/// The specification `{v, key, name, …}`, in which options may replace fields.
fn spec(key: &str, options: &str) -> DocBuf {
    let options = shell(&format!("{{{options}}}"));
    let mut d = doc! { "v": 2, "key": shell(&format!("{{{key}}}")), "name": "i" };
    if key == "_id: 1" {
        d = doc! { "v": 2, "key": doc! { "_id": 1 }, "name": "_id_" };
    }
    let mut out = DocBuf::new();
    for e in d
        .as_doc()
        .iter()
        .filter(|e| options.as_doc().get(e.name()).is_none())
    {
        out.append_elem(e);
    }
    out.append_all(options.as_doc());
    out
}

/// The rows of a table, each with the result of `codes`, in the form of the tables.
fn filled(rows: &str, mut codes: impl FnMut(&str) -> Vec<i64>) -> String {
    let mut out = String::from("\n");
    for row in rows.trim().lines() {
        let options = row.split(" | ").next().unwrap().trim();
        let codes: Vec<String> = codes(options).iter().map(i64::to_string).collect();
        writeln!(out, "{options} | {}", codes.join(" ")).unwrap();
    }
    out
}

/// All indexes of all collections.
fn indexes(c: &mut Connection) -> Vec<DocBuf> {
    let list = c.find_all("d", &doc! { "listCollections": 1 }).unwrap();
    let mut all = Vec::new();
    for d in &list {
        let name = d.as_doc().get_str("name").unwrap();
        all.push(d.clone());
        all.extend(c.find_all("d", &doc! { "listIndexes": name }).unwrap());
    }
    all
}

#[test]
fn every_kind_with_every_option() {
    let mut s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let mut n = 0;
    let created = filled(CREATED, |options| {
        let mut codes = Vec::new();
        for (kind, key) in KINDS {
            n += 1;
            let spec = spec(key, options);
            let name = format!("c{n}");
            let create = doc! { "createIndexes": &*name, "indexes": array![&spec] };
            let got = code(&mut c, "d", &create);
            codes.push(got);
            // The same index in the form of an oplog entry, for a collection that exists.
            let name = format!("o{n}");
            assert_eq!(code(&mut c, "d", &doc! { "create": &*name }), 0);
            let mut o = doc! { "createIndexes": &*name };
            o.append_all(spec.as_doc());
            let entry = doc! { "op": "c", "ns": "d.$cmd", "o": o };
            let applied = code(&mut c, "admin", &doc! { "applyOps": array![entry] });
            assert_eq!(applied, got, "applyOps, {kind}: {spec:?}");
        }
        codes
    });
    let changed = filled(CHANGED, |changes| {
        let mut codes = Vec::new();
        for (kind, key) in KINDS {
            n += 1;
            let name = format!("m{n}");
            let spec = spec(key, "");
            let create = doc! { "createIndexes": &*name, "indexes": array![&spec] };
            assert_eq!(code(&mut c, "d", &create), 0, "{kind}");
            let mut got = 0;
            for change in changes.split(" then ") {
                let mut index = doc! { "name": spec.as_doc().get_str("name").unwrap() };
                index.append_all(shell(&format!("{{{change}}}")).as_doc());
                let change = doc! { "collMod": &*name, "index": index };
                got = code(&mut c, "d", &change);
                let entry = doc! { "op": "c", "ns": "d.$cmd", "o": &change };
                let applied = code(&mut c, "admin", &doc! { "applyOps": array![entry] });
                assert_eq!(applied, got, "applyOps, {kind}: {change:?}");
                if got != 0 {
                    break;
                }
            }
            codes.push(got);
        }
        codes
    });
    let of_id = filled(OF_ID, |options| {
        n += 1;
        let create = shell(&format!("{{create: 'i{n}', {options}}}"));
        vec![code(&mut c, "d", &create)]
    });
    let found = [created, changed, of_id];
    assert!(
        found == [CREATED, CHANGED, OF_ID],
        "{}",
        found.join("=====")
    );
    let before = indexes(&mut c);
    assert!(before.len() > 1000);
    drop(c);
    s.kill9();
    s.start_again();
    let mut c = s.connect();
    assert_eq!(indexes(&mut c), before);
}
