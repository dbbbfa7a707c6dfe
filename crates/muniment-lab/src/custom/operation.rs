//! The kinds of operations: the keys that each kind has in a file, and the command that it becomes.

use super::draw::Shape;
use super::source::{Bad, Fields, Item, Parsed, Value};
use super::template::{Node, Seen};
use muniment_options::meant;
use muniment_value::{DocBuf, doc};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An aggregation whose cursor is read to its end.
    Aggregate,
    /// Any command.
    Command,
    /// Deletes one document, or all that match.
    Delete,
    /// A find whose cursor is read to its end.
    Find,
    /// Changes one document and returns it.
    FindAndModify,
    /// Inserts one document.
    Insert,
    /// Inserts several documents in one message.
    InsertMany,
    /// Changes one document, or all that match.
    Update,
}

/// The kinds with their names in the file, sorted.
pub(crate) const KINDS: &[(&str, Kind)] = &[
    ("aggregate", Kind::Aggregate),
    ("command", Kind::Command),
    ("delete", Kind::Delete),
    ("find", Kind::Find),
    ("findAndModify", Kind::FindAndModify),
    ("insert", Kind::Insert),
    ("insertMany", Kind::InsertMany),
    ("update", Kind::Update),
];

/// The type of value that a key takes.
#[derive(Clone, Copy)]
enum Take {
    Document,
    Documents,
    /// A document or a pipeline.
    Update,
    Value,
}

/// A key in the file, its name in the command (or in the command's statement), and the type of its
/// value.
type Pass = (&'static str, &'static str, Take);

const AGGREGATE: &[Pass] = &[
    ("pipeline", "pipeline", Take::Documents),
    ("allowDiskUse", "allowDiskUse", Take::Value),
    ("collation", "collation", Take::Document),
    ("comment", "comment", Take::Value),
    ("hint", "hint", Take::Value),
    ("let", "let", Take::Document),
    ("maxTimeMS", "maxTimeMS", Take::Value),
];
const DELETE: &[Pass] = &[
    ("filter", "q", Take::Document),
    ("collation", "collation", Take::Document),
    ("hint", "hint", Take::Value),
];
const FIND: &[Pass] = &[
    ("filter", "filter", Take::Document),
    ("projection", "projection", Take::Document),
    ("sort", "sort", Take::Document),
    ("skip", "skip", Take::Value),
    ("limit", "limit", Take::Value),
    ("batchSize", "batchSize", Take::Value),
    ("allowDiskUse", "allowDiskUse", Take::Value),
    ("collation", "collation", Take::Document),
    ("comment", "comment", Take::Value),
    ("hint", "hint", Take::Value),
    ("let", "let", Take::Document),
    ("max", "max", Take::Document),
    ("maxTimeMS", "maxTimeMS", Take::Value),
    ("min", "min", Take::Document),
];
const FIND_AND_MODIFY: &[Pass] = &[
    ("filter", "query", Take::Document),
    ("sort", "sort", Take::Document),
    ("update", "update", Take::Update),
    ("remove", "remove", Take::Value),
    ("new", "new", Take::Value),
    ("projection", "fields", Take::Document),
    ("upsert", "upsert", Take::Value),
    ("arrayFilters", "arrayFilters", Take::Documents),
    ("collation", "collation", Take::Document),
    ("comment", "comment", Take::Value),
    ("hint", "hint", Take::Value),
    ("let", "let", Take::Document),
    ("maxTimeMS", "maxTimeMS", Take::Value),
];
const UPDATE: &[Pass] = &[
    ("filter", "q", Take::Document),
    ("update", "u", Take::Update),
    ("multi", "multi", Take::Value),
    ("upsert", "upsert", Take::Value),
    ("arrayFilters", "arrayFilters", Take::Documents),
    ("collation", "collation", Take::Document),
    ("hint", "hint", Take::Value),
];

/// One operation of a phase.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    /// The name that tables show.
    pub name: &'static str,
    /// The name under which tables show the operations that failed.
    pub failed: &'static str,
    pub kind: Kind,
    /// The weight with which it is chosen among the operations of the phase.
    pub weight: f64,
    /// The collection; empty for the kind `command`.
    pub collection: String,
    /// The command without its concerns and its database.
    pub body: Vec<(String, Node)>,
    /// The template of the documents to insert.
    pub document: Option<Node>,
    /// The number of documents in one message.
    pub batch: u64,
    /// Whether it draws keys by `shape`.
    pub draws: bool,
    /// The distribution of keys.
    pub shape: Shape,
    /// The database, if it differs from the workload's.
    pub database: Option<String>,
    pub write_concern: Option<DocBuf>,
    pub read_concern: Option<DocBuf>,
    pub read_preference: Option<DocBuf>,
    /// Whether the server's errors are only counted; otherwise the first one ends the run.
    pub errors_count: bool,
}

/// The parts of a phase and its file that an operation needs.
pub(crate) struct Around<'a> {
    /// The templates of `[template.NAME]`.
    pub templates: &'a BTreeMap<String, Node>,
    pub collections: &'a [String],
    /// The phase's concerns.
    pub concerns: &'a Concerns,
    /// The phase's distribution of keys.
    pub shape: Option<&'a Shape>,
}

/// The keys that a phase may set for all its operations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Concerns {
    /// The key `write_concern`.
    pub write: Option<DocBuf>,
    /// The key `read_concern`.
    pub read: Option<DocBuf>,
    /// The key `read_preference`.
    pub preference: Option<DocBuf>,
    /// The key `on_error`.
    pub errors_count: Option<bool>,
}

impl Concerns {
    /// Reads the keys.
    ///
    /// # Errors
    /// A concern makes no sense.
    pub(crate) fn read(f: &mut Fields<'_>) -> Parsed<Concerns> {
        let write = f.get("write_concern").map(write_concern).transpose()?;
        let read = f
            .get("read_concern")
            .map(|i| named(i, "read_concern", "level"));
        let preference = f
            .get("read_preference")
            .map(|i| named(i, "read_preference", "mode"));
        let on_error = f
            .get("on_error")
            .map(|i| i.one_of("on_error", &[("count", true), ("stop", false)]));
        Ok(Concerns {
            write,
            read: read.transpose()?,
            preference: preference.transpose()?,
            errors_count: on_error.transpose()?,
        })
    }
}

/// Reads a document, or a word that stands for the document with the word as `key`.
fn named(item: &Item, what: &str, key: &str) -> Parsed<DocBuf> {
    match &item.value {
        Value::Text(s) => {
            let mut d = DocBuf::new();
            d.append(key, s.as_str());
            Ok(d)
        }
        _ => constant(item, what),
    }
}

fn write_concern(item: &Item) -> Parsed<DocBuf> {
    let mut f = item.fields("write_concern")?;
    if let Some(w) = f.get("w")
        && !matches!(w.value, Value::Whole(0..) | Value::Text(_))
    {
        return Err(w.bad(format!(
            "w must be a number of members, \"majority\" or a tag set's name, not {}",
            w.described()
        )));
    }
    for key in ["j", "fsync"] {
        f.get(key).map(|i| i.flag(key)).transpose()?;
    }
    f.get("wtimeout").map(|i| i.count("wtimeout")).transpose()?;
    f.end()?;
    constant(item, "write_concern")
}

/// Reads a document without generators.
///
/// # Errors
/// The value has generators, or is no document.
pub(crate) fn constant(item: &Item, what: &str) -> Parsed<DocBuf> {
    let node = Node::document(item, what, &mut Seen::default())?;
    let bytes = node.constant();
    bytes.ok_or_else(|| item.bad(format!("{what} may not hold generators")))
}

/// Makes a text that lives as long as the program, as the names of meters must. The same text is
/// kept only once.
pub(crate) fn intern(text: &str) -> &'static str {
    static ALL: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(text) {
        return known;
    }
    let kept: &'static str = Box::leak(text.to_string().into_boxed_str());
    all.insert(kept);
    kept
}

impl Kind {
    /// The kind's name in the file.
    pub(crate) fn name(self) -> &'static str {
        let found = KINDS.iter().find(|(_, k)| *k == self);
        found.map_or("", |(n, _)| n)
    }

    /// Whether a phase's write concern applies to it.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, Kind::Aggregate | Kind::Command | Kind::Find)
    }

    /// Whether a phase's read concern applies to it.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Kind::Aggregate | Kind::Find)
    }

    /// Whether the server sends no reply if the write concern asks for no acknowledgement.
    pub(crate) fn may_be_silent(self) -> bool {
        self.writes() && self != Kind::FindAndModify
    }
}

/// Reads the collection that a table names; without a name it is the only collection of the file.
///
/// # Errors
/// The file has no such collection.
pub(crate) fn collection(f: &mut Fields<'_>, all: &[String]) -> Parsed<String> {
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    match (f.get("collection"), all) {
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(f.bad(format!(
            "it needs the key 'collection' (there are {})",
            names.join(", ")
        ))),
        (Some(item), _) => {
            let name = item.text("collection")?;
            if all.iter().any(|c| c == name) {
                return Ok(name.to_string());
            }
            Err(item.bad(format!(
                "there is no [[collection]] with name = \"{name}\": {}there are {}",
                meant(name, &names),
                names.join(", ")
            )))
        }
    }
}

/// Reads `document`, which is a document or the name of a template.
///
/// # Errors
/// There is no such template.
pub(crate) fn document(
    item: &Item,
    templates: &BTreeMap<String, Node>,
    seen: &mut Seen,
) -> Parsed<Node> {
    let Value::Text(name) = &item.value else {
        return Node::document(item, "document", seen);
    };
    let names: Vec<&str> = templates.keys().map(String::as_str).collect();
    seen.draws += usize::from(seen.drawing.contains(name));
    templates.get(name).cloned().ok_or_else(|| {
        item.bad(format!(
            "there is no [template.{name}]: {}there are {}",
            meant(name, &names),
            names.join(", ")
        ))
    })
}

impl Operation {
    /// Reads `[[phase.operation]]`.
    ///
    /// # Errors
    /// Something in the table makes no sense.
    pub(crate) fn read(item: &Item, around: &Around<'_>, seen: &mut Seen) -> Parsed<Operation> {
        let mut f = item.fields("[[phase.operation]]")?;
        let kind = f.need("kind")?.one_of("kind", KINDS)?;
        f.what = format!("[[phase.operation]] of kind {}", kind.name());
        let name = f.get("name").map_or(Ok(kind.name()), |i| i.text("name"))?;
        let weight = f
            .get("weight")
            .map_or(Ok(1.0), |i| i.above_zero("weight"))?;
        let own = Shape::read(&mut f)?;
        let (own_shape, before) = (own.is_some(), seen.draws);
        let collection = match kind {
            Kind::Command => String::new(),
            _ => collection(&mut f, around.collections)?,
        };
        let mut o = Operation {
            name: intern(name),
            failed: intern(&format!("{name}, failed")),
            kind,
            weight,
            body: Vec::new(),
            document: None,
            batch: 1,
            draws: false,
            shape: own.or(around.shape.cloned()).unwrap_or_default(),
            database: None,
            write_concern: None,
            read_concern: None,
            read_preference: None,
            errors_count: false,
            collection,
        };
        o.concerns(&mut f, around.concerns)?;
        match kind {
            Kind::Insert | Kind::InsertMany => o.insert(&mut f, around.templates, seen)?,
            Kind::Command => {
                let command = f.need("command")?;
                let Node::Document(body) = Node::document(command, "command", seen)? else {
                    return Err(command.bad("command must be a table"));
                };
                if body.is_empty() {
                    return Err(command.bad("command: its first key is the command's name"));
                }
                if let Some(own) = body.iter().find(|(k, _)| k == "$db") {
                    return Err(command.bad(format!("command: {} is said by database", own.0)));
                }
                o.body = body;
                let database = f.get("database").map(|i| i.text("database"));
                o.database = database.transpose()?.map(str::to_string);
            }
            _ => o.statement(&mut f, seen)?,
        }
        f.end()?;
        o.draws = seen.draws > before;
        if own_shape && !o.draws {
            return Err(item.bad("distribution: no key in this operation is drawn by it"));
        }
        Ok(o)
    }

    fn concerns(&mut self, f: &mut Fields<'_>, phase: &Concerns) -> Parsed<()> {
        let own = Concerns::read(f)?;
        if own.write.is_some() && self.kind == Kind::Find {
            return Err(f.bad("a find has no write_concern"));
        }
        if own.read.is_some() && self.kind.writes() {
            return Err(f.bad("a write has no read_concern"));
        }
        let of_phase = |is: bool, c: &Option<DocBuf>| c.clone().filter(|_| is);
        self.write_concern = own.write.or(of_phase(self.kind.writes(), &phase.write));
        self.read_concern = own.read.or(of_phase(self.kind.reads(), &phase.read));
        self.read_preference = own
            .preference
            .or(of_phase(self.kind.reads(), &phase.preference));
        self.errors_count = own.errors_count.or(phase.errors_count).unwrap_or(false);
        Ok(())
    }

    /// Reads the keys of an insert.
    fn insert(
        &mut self,
        f: &mut Fields<'_>,
        templates: &BTreeMap<String, Node>,
        seen: &mut Seen,
    ) -> Parsed<()> {
        self.document = Some(document(f.need("document")?, templates, seen)?);
        if self.kind == Kind::InsertMany {
            self.batch = f.need("batch")?.positive("batch")?;
        }
        self.insert_body(f)
    }

    fn insert_body(&mut self, f: &mut Fields<'_>) -> Parsed<()> {
        let ordered = f.get("ordered").map_or(Ok(true), |i| i.flag("ordered"))?;
        self.body = vec![
            ("insert".into(), Node::text(&self.collection)),
            ("ordered".into(), Node::flag(ordered)),
        ];
        Ok(())
    }

    /// Makes the inserts of a load phase from the phase's own keys.
    ///
    /// # Errors
    /// Something in them makes no sense.
    pub(crate) fn load(
        f: &mut Fields<'_>,
        around: &Around<'_>,
        seen: &mut Seen,
    ) -> Parsed<Operation> {
        let (collection, before) = (collection(f, around.collections)?, seen.draws);
        let name = format!("insert into {collection}");
        let mut o = Operation {
            name: intern(&name),
            failed: intern(&format!("{name}, failed")),
            kind: Kind::InsertMany,
            weight: 1.0,
            collection,
            body: Vec::new(),
            document: Some(document(f.need("document")?, around.templates, seen)?),
            batch: f.get("batch").map_or(Ok(1000), |i| i.positive("batch"))?,
            draws: false,
            shape: around.shape.cloned().unwrap_or_default(),
            database: None,
            write_concern: around.concerns.write.clone(),
            read_concern: None,
            read_preference: None,
            errors_count: around.concerns.errors_count.unwrap_or(false),
        };
        o.insert_body(f)?;
        o.draws = seen.draws > before;
        Ok(o)
    }

    /// Reads the keys of the kinds other than inserts.
    fn statement(&mut self, f: &mut Fields<'_>, seen: &mut Seen) -> Parsed<()> {
        let coll = Node::text(&self.collection);
        let list = |statement| Node::Array(vec![Node::Document(statement)]);
        self.body = match self.kind {
            Kind::Find => command("find", coll, pass(FIND, f, seen)?),
            Kind::Aggregate => {
                if f.get("pipeline").is_none() {
                    f.need("pipeline")?;
                }
                let mut body = command("aggregate", coll, pass(AGGREGATE, f, seen)?);
                let size = f.get("batchSize").map(|i| Node::value(i, seen));
                let size = size.transpose()?.map(|n| ("batchSize".to_string(), n));
                body.push(("cursor".into(), Node::Document(size.into_iter().collect())));
                body
            }
            Kind::FindAndModify => {
                let (update, remove) = (f.get("update"), f.get("remove"));
                if update.is_some() == remove.is_some() {
                    return Err(f.bad("it needs update or remove = true, and not both"));
                }
                let passed = pass(FIND_AND_MODIFY, f, seen)?;
                command("findAndModify", coll, passed)
            }
            Kind::Update => {
                f.need("update")?;
                let mut statement = pass(UPDATE, f, seen)?;
                with_filter(&mut statement);
                command("update", coll, vec![("updates".into(), list(statement))])
            }
            _ => {
                let multi = f.get("multi").map_or(Ok(false), |i| i.flag("multi"))?;
                let mut statement = pass(DELETE, f, seen)?;
                with_filter(&mut statement);
                statement.push(("limit".into(), Node::whole(i64::from(!multi))));
                command("delete", coll, vec![("deletes".into(), list(statement))])
            }
        };
        Ok(())
    }

    /// The fields that follow the body: concerns and the database, which is the workload's
    /// `database` if the operation has none.
    pub(crate) fn tail(&self, database: &str) -> Vec<(String, Node)> {
        let mut out = Vec::new();
        let mut add = |name: &str, d: &Option<DocBuf>| {
            if let Some(d) = d {
                out.push((name.to_string(), Node::doc(d)));
            }
        };
        add("writeConcern", &self.write_concern);
        add("readConcern", &self.read_concern);
        add("$readPreference", &self.read_preference);
        let database = self.database.as_deref().unwrap_or(database);
        out.push(("$db".into(), Node::text(database)));
        out
    }

    /// Whether the server will send no reply.
    pub(crate) fn silent(&self) -> bool {
        let c = self.write_concern.as_ref();
        self.kind.may_be_silent()
            && c.is_some_and(|c| muniment_load::conn::is_unacknowledged(c.as_doc()))
    }

    pub(crate) fn set_write_concern(&mut self, field: &str, value: &Node) {
        let old = self.write_concern.take().unwrap_or_default();
        let mut new = DocBuf::new();
        for e in old.as_doc() {
            if e.name() != field {
                new.append_elem(e);
            }
        }
        let node = Node::Document(vec![(field.to_string(), value.clone())]);
        if let Some(one) = node.constant() {
            new.append_all(one.as_doc());
        }
        self.write_concern = Some(new);
    }
}

/// Adds an empty filter to a statement without one, so that it applies to every document.
fn with_filter(statement: &mut Vec<(String, Node)>) {
    if !statement.iter().any(|(k, _)| k == "q") {
        statement.insert(0, ("q".into(), Node::doc(&doc! {})));
    }
}

fn command(name: &str, coll: Node, rest: Vec<(String, Node)>) -> Vec<(String, Node)> {
    let mut body = vec![(name.to_string(), coll)];
    body.extend(rest);
    body
}

/// Reads the keys that go into the command unchanged.
fn pass(keys: &[Pass], f: &mut Fields<'_>, seen: &mut Seen) -> Parsed<Vec<(String, Node)>> {
    let mut out = Vec::new();
    for (key, name, take) in keys {
        let Some(item) = f.get(key) else { continue };
        let node = match take {
            Take::Document => Node::document(item, key, seen)?,
            Take::Documents => Node::documents(item, key, seen)?,
            Take::Update => match item.value {
                Value::List(_) => Node::documents(item, key, seen)?,
                _ => Node::document(item, key, seen)?,
            },
            Take::Value => Node::element(item, seen)?,
        };
        out.push(((*name).to_string(), node));
    }
    Ok(out)
}

/// The error for a whole list of operations.
pub(crate) fn none_of(line: usize, what: &str, why: &str) -> Bad {
    Bad {
        line,
        text: format!("{what}: {why}"),
    }
}
