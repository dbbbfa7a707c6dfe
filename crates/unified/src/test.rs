//! A file and its tests: entities, data, operations, events and outcome.

use crate::client::{Call, Client, EventKind, Kind, Settings, Topology};
use crate::cursor::{Cursor, Opening};
use crate::entities::{Entities, Entity, admin};
use crate::failure::{Done, Trouble, broken, whole};
use crate::matching::{Root, matches, same};
use crate::ops::{Args, Got, client_bulk, manage, read, runner, write};
use crate::requirements;
use crate::session::{SessionRef, end_transaction, with_transaction};
use bson::{Bson, Document, doc};
use std::cell::RefCell;
use std::rc::Rc;

/// The servers that the tests run against.
pub(crate) struct Deployment {
    /// `host:port`.
    pub address: String,
    /// The way in which its servers are connected.
    pub topology: Topology,
    /// The server's version.
    pub version: [u64; 3],
    /// All server parameters.
    pub parameters: Document,
}

/// How a test ended.
pub(crate) enum Outcome {
    /// It passed.
    Passed,
    /// It is not for this server or this runner.
    Skipped(String),
    /// It failed.
    Failed(String),
}

impl Deployment {
    /// Asks the server about itself.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) fn find(address: &str) -> Done<Deployment> {
        let mut d = Deployment {
            address: address.to_owned(),
            topology: Topology::Single,
            version: [0; 3],
            parameters: Document::new(),
        };
        let hello = d.command("admin", doc! { "hello": 1 })?;
        if hello.get_str("msg").ok() == Some("isdbgrid") {
            d.topology = Topology::Sharded;
        } else if hello.contains_key("setName") {
            d.topology = Topology::ReplicaSet;
        }
        let build = d.command("admin", doc! { "buildInfo": 1 })?;
        let parts = build.get_array("versionArray").ok().into_iter().flatten();
        for (part, to) in parts.zip(&mut d.version) {
            *to = whole(part).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        }
        d.parameters = d.command("admin", doc! { "getParameter": "*" })?;
        Ok(d)
    }

    /// A client for commands of the runner itself.
    fn client(&self) -> Done<Rc<Client>> {
        Client::new(self, &Document::new())
    }

    /// Runs a command of the runner itself.
    ///
    /// # Errors
    /// The server's errors.
    pub(crate) fn command(&self, db: &str, body: Document) -> Done<Document> {
        let reply = self.client()?.run(Call {
            db,
            body,
            sequences: Vec::new(),
            session: None,
            kind: Kind::Bare,
            settings: &Settings::default(),
        })?;
        Ok(reply)
    }

    /// The documents of a cursor.
    ///
    /// # Errors
    /// The server's errors.
    pub(crate) fn list(&self, db: &str, body: Document) -> Done<Vec<Document>> {
        let client = self.client()?;
        let mut cursor = Cursor::open(Opening {
            session: client.session(None)?,
            client,
            db: db.to_owned(),
            body,
            kind: Kind::Bare,
            settings: Settings::default(),
            more: Document::new(),
            limit: None,
        })?;
        Ok(cursor.all()?)
    }
}

fn documents<'d>(of: &'d Document, name: &str) -> impl Iterator<Item = &'d Document> {
    let all = of.get_array(name).ok().into_iter().flatten();
    all.filter_map(Bson::as_document)
}

/// Runs a test of a file.
pub(crate) fn run(deployment: &Deployment, file: &Document, test: &Document) -> Outcome {
    let schema = file.get_str("schemaVersion").unwrap_or_default();
    if !requirements::schema_known(schema) {
        return Outcome::Failed(format!("the runner does not know schemaVersion {schema}"));
    }
    let reason = test.get_str("skipReason").ok();
    if let Some(why) = reason {
        return Outcome::Skipped(format!("skipReason: {why}"));
    }
    let unmet = requirements::unmet(file, deployment);
    if let Some(why) = unmet.or_else(|| requirements::unmet(test, deployment)) {
        return Outcome::Skipped(why);
    }
    let mut running = Running {
        deployment,
        entities: Entities::default(),
        fail_points: Vec::new(),
    };
    let result = running.test(file, test);
    let off = runner::switch_off(&mut running.fail_points);
    running.entities.clear();
    let transactions = documents(test, "operations").any(|o| {
        matches!(
            o.get_str("name"),
            Ok("startTransaction" | "withTransaction")
        )
    });
    if transactions {
        // The command may interrupt itself, and so an error is ignored.
        let _ = deployment.command("admin", doc! { "killAllSessions": [] });
    }
    match result.and(off) {
        Ok(()) => Outcome::Passed,
        Err(Trouble::Skip(why)) => Outcome::Skipped(why),
        Err(Trouble::Broken(why)) => Outcome::Failed(why),
        Err(Trouble::Failed(f)) => Outcome::Failed(format!("an unexpected {f}")),
    }
}

struct Running<'d> {
    deployment: &'d Deployment,
    entities: Entities,
    fail_points: Vec<runner::FailPoint>,
}

impl Running<'_> {
    fn test(&mut self, file: &Document, test: &Document) -> Done<()> {
        self.fill(file)?;
        if let Ok(list) = file.get_array("createEntities") {
            self.entities.create(list, self.deployment)?;
        }
        for operation in documents(test, "operations") {
            self.operation(operation)?;
        }
        // The failpoints are switched off before the remaining checks.
        runner::switch_off(&mut self.fail_points)?;
        for expected in documents(test, "expectEvents") {
            self.events(expected)?;
        }
        for expected in documents(test, "outcome") {
            self.outcome(expected)?;
        }
        Ok(())
    }

    /// Makes the collections of `initialData`.
    fn fill(&self, file: &Document) -> Done<()> {
        for data in documents(file, "initialData") {
            let db = data.get_str("databaseName").unwrap_or_default();
            let collection = data.get_str("collectionName").unwrap_or_default();
            let concern = doc! { "w": "majority" };
            let command = |mut body: Document| {
                body.insert("writeConcern", concern.clone());
                let reply = self.deployment.command(db, body)?;
                match reply.contains_key("writeErrors") {
                    true => broken(format!("the initial data is refused: {reply}")),
                    false => Ok(()),
                }
            };
            match command(doc! { "drop": collection }) {
                Err(Trouble::Failed(f)) if f.code == Some(26) => {}
                other => other?,
            }
            let all: Vec<&Document> = documents(data, "documents").collect();
            let options = data.get_document("createOptions").ok();
            if all.is_empty() || options.is_some() {
                let mut body = doc! { "create": collection };
                body.extend(options.cloned().unwrap_or_default());
                command(body)?;
            }
            if !all.is_empty() {
                let all: Vec<Document> = all.into_iter().cloned().collect();
                command(doc! { "insert": collection, "documents": all })?;
            }
        }
        Ok(())
    }

    /// Runs an operation and compares its result.
    fn operation(&mut self, operation: &Document) -> Done<()> {
        let name = operation.get_str("name").unwrap_or_default();
        let expected = operation.get_document("expectError").ok();
        let ignored = operation.get_bool("ignoreResultAndError").unwrap_or(false);
        let said = |e: String| Trouble::Broken(format!("{name}: {e}"));
        let got = match self.perform(operation) {
            Err(Trouble::Failed(f)) => {
                return match expected {
                    _ if ignored => Ok(()),
                    Some(expected) => f.check(expected, &self.entities).map_err(said),
                    None => Err(said(format!("an unexpected {f}"))),
                };
            }
            other => other?,
        };
        let (value, root) = match got {
            Got::Value(v) => (v, Root::Yes),
            Got::Documents(all) => {
                let all = all.into_iter().map(Bson::Document).collect();
                (Some(Bson::Array(all)), Root::Elements)
            }
            Got::Place(place) => {
                if let Ok(id) = operation.get_str("saveResultAsEntity") {
                    return self.entities.insert(id, Entity::Place(place));
                }
                (None, Root::No)
            }
            Got::Cursor(c) => {
                if let Ok(id) = operation.get_str("saveResultAsEntity") {
                    let cursor = Rc::new(RefCell::new(*c));
                    return self.entities.insert(id, Entity::Cursor(cursor));
                }
                let mut c = c;
                c.close();
                (None, Root::No)
            }
        };
        if ignored {
            return Ok(());
        }
        if let Some(expected) = expected {
            let value = value.unwrap_or(Bson::Null);
            return broken(format!(
                "{name}: expected the error {expected}, got {value}"
            ));
        }
        if let Some(want) = operation.get("expectResult") {
            // Some drivers return nothing and others null, so the two count as equal.
            let null = value.is_none() && *want == Bson::Null;
            if !null {
                matches(&self.entities, want, value.as_ref(), root).map_err(said)?;
            }
        }
        if let Ok(id) = operation.get_str("saveResultAsEntity") {
            let value = value.unwrap_or(Bson::Null);
            self.entities.insert(id, Entity::Value(value))?;
        }
        Ok(())
    }

    /// Executes an operation.
    fn perform(&mut self, operation: &Document) -> Done<Got> {
        let name = operation.get_str("name").unwrap_or_default();
        let object = operation.get_str("object").unwrap_or_default();
        let arguments = operation.get_document("arguments").ok().cloned();
        let mut args = Args::new(name, arguments.unwrap_or_default());
        if object == "testRunner" {
            let points = &mut self.fail_points;
            let asserted = runner::operate(name, args, &mut self.entities, points, self.deployment);
            // A failed assertion of the runner is never the operation's own error.
            return match asserted {
                Ok(()) => Ok(Got::NOTHING),
                Err(Trouble::Failed(f)) => broken(format!("{name}: {f}")),
                Err(other) => Err(other),
            };
        }
        match self.entities.get(object)? {
            Entity::Client(client) => self.of_client(name, args, &client),
            Entity::Place(place) => {
                let session = self.session(&mut args, &place.client)?;
                match place.collection.is_empty() {
                    true => database(&place, name, args, session),
                    false => collection(&place, name, args, session),
                }
            }
            Entity::Bucket(bucket) => {
                let session = self.session(&mut args, &bucket.place.client)?;
                bucket.operate(name, args, &session)
            }
            Entity::Session(session) => self.of_session(name, args, &session),
            Entity::Cursor(cursor) => {
                args.finish()?;
                let mut cursor = cursor.borrow_mut();
                let found = match name {
                    "iterateUntilDocumentOrError" => cursor.next_document()?,
                    "iterateOnce" => cursor.next()?,
                    "close" => {
                        cursor.close();
                        None
                    }
                    other => return broken(format!("a cursor has no operation {other}")),
                };
                Ok(Got::Value(found.map(Bson::Document)))
            }
            Entity::Value(_) => broken(format!("{object} has no operations")),
        }
    }

    /// Runs an operation on a client.
    fn of_client(&self, name: &str, mut args: Args, client: &Rc<Client>) -> Done<Got> {
        match name {
            "close" => {
                args.finish()?;
                client.close();
                return Ok(Got::NOTHING);
            }
            "appendMetadata" => return Err(Trouble::Skip("driver: its handshake".into())),
            _ => {}
        }
        let session = self.session(&mut args, client)?;
        let place = admin(client);
        match name {
            "clientBulkWrite" => client_bulk::run(client, args, session),
            "createChangeStream" => {
                let stream = read::change_stream(&place, args, session, true)?;
                Ok(Got::cursor(stream))
            }
            "listDatabases" | "listDatabaseObjects" => {
                manage::list_databases(&place, args, &session, false)
            }
            "listDatabaseNames" => manage::list_databases(&place, args, &session, true),
            "dropDatabase" => {
                let db = args.need_str("database")?;
                let place = crate::ops::Place { db, ..place };
                manage::drop_database(&place, args, &session)
            }
            other => broken(format!("a client has no operation {other}")),
        }
    }

    /// The session that the arguments name, or a new one for this operation.
    fn session(&self, args: &mut Args, client: &Rc<Client>) -> Done<SessionRef> {
        match args.take("session") {
            Some(Bson::String(name)) => self.entities.session(&name),
            Some(other) => broken(format!("the session is {other}")),
            None => client.session(None),
        }
    }

    fn of_session(&mut self, name: &str, mut args: Args, session: &SessionRef) -> Done<Got> {
        match name {
            "endSession" => {
                args.finish()?;
                if session.borrow().in_transaction() {
                    end_transaction(session, false)?;
                }
                session.borrow_mut().end();
            }
            "startTransaction" => {
                let mut options = args.into_rest();
                session.borrow_mut().start_transaction(&mut options)?;
                if let Some(name) = options.keys().next() {
                    return broken(format!("startTransaction does not know {name}"));
                }
            }
            "commitTransaction" | "abortTransaction" => {
                args.finish()?;
                end_transaction(session, name == "commitTransaction")?;
            }
            "withTransaction" => {
                let callback = args.need_array("callback")?;
                let options = args.into_rest();
                with_transaction(session, &options, || {
                    for operation in callback.iter().filter_map(Bson::as_document) {
                        self.in_callback(operation)?;
                    }
                    Ok(())
                })?;
            }
            "getSnapshotTime" => {
                args.finish()?;
                let time = session.borrow().snapshot_time();
                return Ok(Got::Value(time.map(Bson::Timestamp)));
            }
            other => return broken(format!("a session has no operation {other}")),
        }
        Ok(Got::NOTHING)
    }

    /// Runs an operation of a callback. Its error is compared, and passed on to `withTransaction` as well.
    fn in_callback(&mut self, operation: &Document) -> Done<()> {
        let Ok(expected) = operation.get_document("expectError") else {
            let name = operation.get_str("name").unwrap_or_default();
            let got = self.perform(operation)?;
            return match (operation.get("expectResult"), got) {
                (Some(want), Got::Value(v)) => matches(&self.entities, want, v.as_ref(), Root::Yes)
                    .map_err(|e| Trouble::Broken(format!("{name}: {e}"))),
                _ => Ok(()),
            };
        };
        match self.perform(operation) {
            Err(Trouble::Failed(f)) => {
                f.check(expected, &self.entities).map_err(Trouble::Broken)?;
                Err(Trouble::Failed(f))
            }
            Err(other) => Err(other),
            Ok(_) => broken(format!("expected the error {expected}")),
        }
    }

    fn events(&self, expected: &Document) -> Done<()> {
        if !matches!(expected.get_str("eventType"), Err(_) | Ok("command")) {
            return Ok(());
        }
        let name = expected.get_str("client").unwrap_or_default();
        let events = self.entities.client(name)?.events();
        let want: Vec<&Document> = documents(expected, "events").collect();
        let more = expected.get_bool("ignoreExtraEvents").unwrap_or(false);
        for (i, w) in want.iter().enumerate() {
            let Some(event) = events.get(i) else {
                return broken(format!("event {i} is missing: {w}"));
            };
            if let Err(e) = runner::check_event(w, event, &self.entities)? {
                return broken(format!("event {i}: {e}"));
            }
        }
        match events.get(want.len()) {
            Some(e) if !more => broken(format!(
                "an event too many: {} {}: {}",
                EventKind::name(e.kind),
                e.command,
                e.document
            )),
            _ => Ok(()),
        }
    }

    fn outcome(&self, expected: &Document) -> Done<()> {
        let db = expected.get_str("databaseName").unwrap_or_default();
        let collection = expected.get_str("collectionName").unwrap_or_default();
        let find = doc! {
            "find": collection, "sort": { "_id": 1 }, "readConcern": { "level": "local" },
        };
        let have = self.deployment.list(db, find)?;
        let have = Bson::Array(have.into_iter().map(Bson::Document).collect());
        let want = Bson::Array(
            documents(expected, "documents")
                .cloned()
                .map(Bson::Document)
                .collect(),
        );
        match same(&want, &have) {
            true => Ok(()),
            false => broken(format!("{db}.{collection} holds {have}, expected {want}")),
        }
    }
}

fn database(place: &crate::ops::Place, name: &str, args: Args, session: SessionRef) -> Done<Got> {
    match name {
        "aggregate" => Ok(Got::Documents(
            read::aggregate_cursor(place, args, session)?.all()?,
        )),
        "createChangeStream" => Ok(Got::cursor(read::change_stream(
            place, args, session, false,
        )?)),
        "createCollection" => manage::create_or_modify(place, "create", args, &session),
        "modifyCollection" => manage::create_or_modify(place, "collMod", args, &session),
        "dropCollection" => manage::drop_collection(place, args, &session),
        "listCollections" | "listCollectionObjects" => {
            manage::list_collections(place, args, session, false)
        }
        "listCollectionNames" => manage::list_collections(place, args, session, true),
        "runCommand" => read::run_command(place, args, session),
        "runCursorCommand" => Ok(Got::Documents(
            read::command_cursor(place, args, session)?.all()?,
        )),
        "createCommandCursor" => Ok(Got::cursor(read::command_cursor(place, args, session)?)),
        other => broken(format!("a database has no operation {other}")),
    }
}

fn collection(place: &crate::ops::Place, name: &str, args: Args, session: SessionRef) -> Done<Got> {
    match name {
        "aggregate" => Ok(Got::Documents(
            read::aggregate_cursor(place, args, session)?.all()?,
        )),
        "bulkWrite" => write::bulk_write(place, args, &session),
        "count" | "estimatedDocumentCount" => read::count(place, args, session),
        "countDocuments" => read::count_documents(place, args, session),
        "createChangeStream" => Ok(Got::cursor(read::change_stream(
            place, args, session, false,
        )?)),
        "createFindCursor" => Ok(Got::cursor(read::find_cursor(place, args, session)?)),
        "createIndex" => manage::create_index(place, args, &session),
        "distinct" => read::distinct(place, args, session),
        "drop" => manage::drop_collection(place, args, &session),
        "dropIndex" => manage::drop_index(place, args, &session, false),
        "dropIndexes" => manage::drop_index(place, args, &session, true),
        "find" => Ok(Got::Documents(
            read::find_cursor(place, args, session)?.all()?,
        )),
        "findOne" => read::find_one(place, args, session),
        "findOneAndDelete" | "findOneAndReplace" | "findOneAndUpdate" => {
            write::find_and_modify(place, name, args, &session)
        }
        "insertMany" => write::insert_many(place, args, &session),
        "insertOne" | "updateOne" | "updateMany" | "replaceOne" | "deleteOne" | "deleteMany" => {
            write::single(place, name, args, &session)
        }
        "listIndexes" => manage::list_indexes(place, args, session, false),
        "listIndexNames" => manage::list_indexes(place, args, session, true),
        "mapReduce" => read::map_reduce(place, args, session),
        "rename" => manage::rename(place, args, &session),
        "createSearchIndex"
        | "createSearchIndexes"
        | "dropSearchIndex"
        | "listSearchIndexes"
        | "updateSearchIndex" => manage::search_index(place, name, args, session),
        other => broken(format!("a collection has no operation {other}")),
    }
}
