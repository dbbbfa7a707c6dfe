//! A client like a driver's, as far as servers can tell: one connection, which is opened again when it
//! breaks, sessions, concerns, one retry, and a record of its commands.
//!
//! It must not hide the server's answers: there is no second retry, and it never waits.

use crate::failure::{Done, Failure, broken, whole};
use crate::session::{ServerSession, Session, SessionRef, TxnState};
use crate::test::Deployment;
use bson::{Bson, Document, doc};
use muniment_value::DocBuf;
use muniment_wire::Connection;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// How the servers are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server alone.
    Single,
    /// A replica set.
    ReplicaSet,
    /// Routers in front of shards.
    Sharded,
}

impl Topology {
    /// Its name in `runOnRequirements`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Topology::Single => "single",
            Topology::ReplicaSet => "replicaset",
            Topology::Sharded => "sharded",
        }
    }
}

/// Concerns and a read preference. Collections inherit them from databases, and databases from clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `{level: …}`.
    pub read_concern: Option<Document>,
    /// In the form of commands: `{w, j, wtimeout}`.
    pub write_concern: Option<Document>,
    /// In the form of commands: `{mode, tags, maxStalenessSeconds}`.
    pub read_preference: Option<Document>,
}

impl Settings {
    /// Takes `readConcern`, `writeConcern` and `readPreference` out of `options`. Missing ones stay as in
    /// `self`.
    pub(crate) fn with(&self, options: &mut Document) -> Settings {
        let mut take = |name: &str| match options.remove(name) {
            Some(Bson::Document(d)) => Some(d),
            _ => None,
        };
        let mut new = self.clone();
        if let Some(d) = take("readConcern") {
            new.read_concern = Some(d);
        }
        if let Some(d) = take("writeConcern") {
            new.write_concern = Some(renamed(d, &[("journal", "j"), ("wtimeoutMS", "wtimeout")]));
        }
        if let Some(d) = take("readPreference") {
            new.read_preference = Some(renamed(d, &[("tagSets", "tags")]));
        }
        new
    }

    /// True with `w: 0`.
    pub(crate) fn unacknowledged(&self) -> bool {
        let w = self.write_concern.as_ref().and_then(|c| c.get("w"));
        w.and_then(whole) == Some(0)
    }
}

fn renamed(d: Document, names: &[(&str, &str)]) -> Document {
    d.into_iter()
        .map(|(name, v)| {
            let new = names.iter().find(|(old, _)| *old == name);
            (new.map_or(name.clone(), |(_, new)| (*new).to_owned()), v)
        })
        .collect()
}

/// The kind of a command, which decides on concerns and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Has a read concern, and is not retried.
    Read,
    /// Has a read concern, and may be sent again.
    RetryableRead,
    /// Has a write concern, and is not retried.
    Write,
    /// Has a write concern, and may be sent again under its transaction number.
    RetryableWrite,
    /// An aggregation that writes: it has both concerns, and is not retried.
    ReadAndWrite,
    /// Is sent unchanged.
    Bare,
    /// Is sent unchanged, but may be sent again: listings.
    RetryableBare,
}

impl Kind {
    /// True for a command that has a read concern.
    fn reads(self) -> bool {
        matches!(self, Kind::Read | Kind::RetryableRead | Kind::ReadAndWrite)
    }

    /// True for a command that has a write concern.
    fn writes(self) -> bool {
        matches!(
            self,
            Kind::Write | Kind::RetryableWrite | Kind::ReadAndWrite
        )
    }
}

/// A command to run.
pub(crate) struct Call<'a> {
    /// The database.
    pub db: &'a str,
    /// The command without the fields that a driver adds.
    pub body: Document,
    /// Arrays that are sent as document sequences.
    pub sequences: Vec<(&'static str, Vec<Document>)>,
    /// The session, if the command has one.
    pub session: Option<&'a SessionRef>,
    /// The kind, for concerns and retries.
    pub kind: Kind,
    /// The settings of the collection, database or client.
    pub settings: &'a Settings,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// `commandStartedEvent`.
    Started,
    /// `commandSucceededEvent`.
    Succeeded,
    /// `commandFailedEvent`.
    Failed,
}

impl EventKind {
    /// The event's name in the tests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EventKind::Started => "commandStartedEvent",
            EventKind::Succeeded => "commandSucceededEvent",
            EventKind::Failed => "commandFailedEvent",
        }
    }
}

/// A command's event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The command's name.
    pub command: String,
    /// Its database.
    pub db: String,
    /// The command or the reply.
    pub document: Document,
    /// Whether the server has sent the connection's number.
    pub has_connection_id: bool,
}

struct State {
    connection: Option<Connection>,
    has_connection_id: bool,
    pool: Vec<ServerSession>,
    cluster_time: Option<Document>,
    events: Vec<Event>,
}

/// A client.
pub(crate) struct Client {
    address: String,
    /// The topology of the deployment.
    pub topology: Topology,
    /// Whether the server knows `rawData`, which is sent only to those that do.
    raw_data: bool,
    /// The settings that databases inherit.
    pub settings: Settings,
    retry_reads: bool,
    retry_writes: bool,
    app_name: Option<String>,
    socket_timeout: Duration,
    api: Document,
    observed: Vec<String>,
    ignored: Vec<String>,
    sensitive_too: bool,
    state: RefCell<State>,
}

/// Commands whose events must not show their contents.
const SENSITIVE: &[&str] = &[
    "authenticate",
    "copydb",
    "copydbgetnonce",
    "copydbsaslstart",
    "createUser",
    "getnonce",
    "saslContinue",
    "saslStart",
    "updateUser",
];

fn is_sensitive(name: &str, body: &Document) -> bool {
    SENSITIVE.contains(&name)
        || (matches!(name, "hello" | "ismaster" | "isMaster")
            && body.contains_key("speculativeAuthenticate"))
}

/// A command as its event shows it: the document sequences are arrays in it.
fn with_sequences(body: &Document, sequences: &[(&'static str, Vec<Document>)]) -> Document {
    let mut shown = body.clone();
    for (field, documents) in sequences {
        let all = documents.iter().cloned().map(Bson::Document).collect();
        shown.insert(*field, Bson::Array(all));
    }
    shown
}

/// Codes of errors after which a command may be sent again.
const RETRYABLE: &[i64] = &[
    6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436,
];

impl Client {
    /// A client as an entity describes it.
    ///
    /// # Errors
    /// For unknown options.
    pub(crate) fn new(deployment: &Deployment, entity: &Document) -> Done<Rc<Client>> {
        let strings = |name: &str| -> Vec<String> {
            let all = entity.get_array(name).ok().into_iter().flatten();
            all.filter_map(|v| v.as_str()).map(str::to_owned).collect()
        };
        let mut client = Client {
            address: deployment.address.clone(),
            topology: deployment.topology,
            raw_data: deployment.version >= [8, 2, 0],
            settings: Settings::default(),
            retry_reads: true,
            retry_writes: true,
            app_name: None,
            socket_timeout: Duration::from_secs(30),
            api: Document::new(),
            observed: strings("observeEvents"),
            ignored: strings("ignoreCommandMonitoringEvents"),
            sensitive_too: entity.get_bool("observeSensitiveCommands").unwrap_or(false),
            state: RefCell::new(State {
                connection: None,
                has_connection_id: false,
                pool: Vec::new(),
                cluster_time: None,
                events: Vec::new(),
            }),
        };
        if let Ok(api) = entity.get_document("serverApi") {
            if api.get_str("version").ok() != Some("1") {
                return broken(format!("no driver knows this Stable API: {api}"));
            }
            client.api = renamed(
                api.clone(),
                &[
                    ("version", "apiVersion"),
                    ("strict", "apiStrict"),
                    ("deprecationErrors", "apiDeprecationErrors"),
                ],
            );
        }
        let options = entity.get_document("uriOptions").ok();
        for (name, value) in options.into_iter().flatten() {
            client.uri_option(name, value)?;
        }
        Ok(Rc::new(client))
    }

    fn uri_option(&mut self, name: &str, value: &Bson) -> Done<()> {
        let mut concern = |field: &str, value: &Bson| {
            let c = self.settings.write_concern.get_or_insert_default();
            c.insert(field, value.clone());
        };
        match (name, value) {
            ("retryReads", Bson::Boolean(b)) => self.retry_reads = *b,
            ("retryWrites", Bson::Boolean(b)) => self.retry_writes = *b,
            ("w", w) => concern("w", w),
            ("journal", j) => concern("j", j),
            ("wTimeoutMS", t) => concern("wtimeout", t),
            ("readConcernLevel", level) => {
                self.settings.read_concern = Some(doc! { "level": level.clone() });
            }
            ("readPreference", mode) => {
                self.settings.read_preference = Some(doc! { "mode": mode.clone() });
            }
            ("appName" | "appname", Bson::String(name)) => self.app_name = Some(name.clone()),
            ("socketTimeoutMS", ms) => {
                let ms = whole(ms)
                    .and_then(|n| u64::try_from(n).ok())
                    .unwrap_or(30_000);
                self.socket_timeout = Duration::from_millis(ms.max(1));
            }
            // With one connection and no monitor, these options change nothing.
            (
                "directConnection"
                | "heartbeatFrequencyMS"
                | "maxPoolSize"
                | "minPoolSize"
                | "maxIdleTimeMS"
                | "connectTimeoutMS"
                | "serverSelectionTimeoutMS"
                | "localThresholdMS"
                | "waitQueueTimeoutMS"
                | "serverMonitoringMode",
                _,
            ) => {}
            _ => {
                return Err(crate::failure::Trouble::Skip(format!(
                    "driver: the URI option {name}"
                )));
            }
        }
        Ok(())
    }

    /// A new session. It ends with its operation unless it is `explicit`: then the test ends it.
    pub(crate) fn session(self: &Rc<Client>, explicit: Option<Document>) -> Done<SessionRef> {
        let server = self.state.borrow_mut().pool.pop();
        Session::new(self.clone(), server.unwrap_or_default(), explicit)
    }

    /// Takes back a session that is not used any more.
    pub(crate) fn give_back(&self, session: ServerSession) {
        if !session.dirty {
            self.state.borrow_mut().pool.push(session);
        }
    }

    /// Ends sessions and connection.
    pub(crate) fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.pool.clear();
        state.connection = None;
    }

    /// The events so far that the test observes.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.state.borrow().events.clone()
    }

    /// Sends a command, again once if that is allowed, and returns its reply.
    ///
    /// # Errors
    /// A broken connection, or a reply with `ok: 0`.
    pub(crate) fn run(&self, call: Call<'_>) -> Result<Document, Failure> {
        let in_txn = call.session.is_some_and(|s| s.borrow().in_transaction());
        let unacknowledged = !in_txn
            && matches!(call.kind, Kind::Write | Kind::RetryableWrite)
            && call.settings.unacknowledged();
        let numbered = call.kind == Kind::RetryableWrite
            && self.retry_writes
            && self.topology != Topology::Single
            && !in_txn
            && !unacknowledged;
        let again = numbered
            || (matches!(call.kind, Kind::RetryableRead | Kind::RetryableBare)
                && self.retry_reads
                && !in_txn);
        let body = self.complete(&call, in_txn, numbered, unacknowledged)?;
        let reply = self.send(&call, &body, unacknowledged);
        let first = match reply {
            Err(mut e) => {
                if e.network && numbered {
                    e.labels.push("RetryableWriteError".into());
                }
                e
            }
            Ok(reply) if numbered && reply.contains_key("errorLabels") => {
                let of = reply.get_document("writeConcernError").unwrap_or(&reply);
                Failure::from_document(of, &reply)
            }
            Ok(reply) => return Ok(reply),
        };
        let retryable = match numbered {
            true => first.has_label("RetryableWriteError"),
            false => first.network || first.code.is_some_and(|c| RETRYABLE.contains(&c)),
        };
        if !again || !retryable {
            return match first.response {
                Some(reply) if reply.get("ok").and_then(whole) == Some(1) => Ok(reply),
                _ => Err(first),
            };
        }
        self.send(&call, &body, unacknowledged)
            .map_err(|mut second| {
                if second.has_label("NoWritesPerformed") {
                    return first;
                }
                if second.network && numbered {
                    second.labels.push("RetryableWriteError".into());
                }
                second
            })
    }

    /// The command with everything that a driver adds.
    fn complete(
        &self,
        call: &Call<'_>,
        in_txn: bool,
        numbered: bool,
        unacknowledged: bool,
    ) -> Result<Document, Failure> {
        let mut body = call.body.clone();
        if !self.raw_data {
            body.remove("rawData");
        }
        let settings = call.settings;
        let (reads, writes) = (call.kind.reads(), call.kind.writes());
        if !in_txn {
            let level = match reads {
                true => settings.read_concern.clone().unwrap_or_default(),
                false => Document::new(),
            };
            let concern = match call.session {
                Some(s) => s.borrow().read_concern(level, &body, reads || writes),
                None => level,
            };
            if !concern.is_empty() {
                body.insert("readConcern", concern);
            }
        }
        if writes && !in_txn {
            let concern = settings.write_concern.clone().unwrap_or_default();
            if !concern.is_empty() {
                body.insert("writeConcern", concern);
            }
        }
        if let Some(session) = call.session {
            let mut s = session.borrow_mut();
            if unacknowledged && s.is_explicit() {
                return Err(Failure::of_client(
                    "a session cannot be used with unacknowledged writes",
                ));
            }
            if !unacknowledged {
                // In a transaction, an operation's own read preference counts only for commands that are sent
                // unchanged.
                if in_txn && (reads || call.kind == Kind::Bare) {
                    let own = settings.read_preference.as_ref();
                    s.check_preference(own.filter(|_| call.kind == Kind::Bare))?;
                }
                s.apply(&mut body, numbered)?;
            }
        }
        body.insert("$db", call.db);
        if self.topology != Topology::Single
            && !in_txn
            && (!writes || call.kind == Kind::ReadAndWrite)
            && let Some(mode) = &settings.read_preference
            && mode.get_str("mode").ok() != Some("primary")
        {
            body.insert("$readPreference", mode.clone());
        }
        if let Some(time) = &self.state.borrow().cluster_time {
            body.insert("$clusterTime", time.clone());
        }
        body.extend(self.api.clone());
        Ok(body)
    }

    fn send(
        &self,
        call: &Call<'_>,
        body: &Document,
        unacknowledged: bool,
    ) -> Result<Document, Failure> {
        let mut state = self.state.borrow_mut();
        let name = body.keys().next().cloned().unwrap_or_default();
        if state.connection.is_none() {
            let (connection, has_id) = self.connect()?;
            state.connection = Some(connection);
            state.has_connection_id = has_id;
        }
        let has_connection_id = state.has_connection_id;
        let secret = is_sensitive(&name, body);
        let told = !self.ignored.contains(&name)
            && name != "configureFailPoint"
            && (!secret || self.sensitive_too);
        let event = |kind, document: Document| {
            let seen = told && self.observed.iter().any(|o| o == EventKind::name(kind));
            seen.then(|| Event {
                kind,
                command: name.clone(),
                db: call.db.to_owned(),
                document: if secret { Document::new() } else { document },
                has_connection_id,
            })
        };
        let shown = with_sequences(body, &call.sequences);
        state.events.extend(event(EventKind::Started, shown));
        let reply = match state.connection.as_mut() {
            Some(c) => exchange(c, body, &call.sequences, unacknowledged),
            None => Err(Failure::of_network("no connection")),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(mut e) => {
                state.connection = None;
                state
                    .events
                    .extend(event(EventKind::Failed, Document::new()));
                if let Some(s) = call.session {
                    s.borrow_mut().broken(&mut e);
                }
                return Err(e);
            }
        };
        if let Ok(time) = reply.get_document("$clusterTime") {
            state.cluster_time = Some(time.clone());
        }
        if let Some(s) = call.session {
            s.borrow_mut().learn(&reply);
        }
        match reply.get("ok").and_then(whole) {
            Some(1) => {
                state
                    .events
                    .extend(event(EventKind::Succeeded, reply.clone()));
                Ok(reply)
            }
            _ => {
                state.events.extend(event(EventKind::Failed, reply.clone()));
                Err(Failure::from_document(&reply, &reply))
            }
        }
    }

    /// A new connection after its handshake, and whether the server has sent its number.
    fn connect(&self) -> Result<(Connection, bool), Failure> {
        let mut client = doc! {
            "driver": { "name": "unified", "version": env!("CARGO_PKG_VERSION") },
            "os": { "type": std::env::consts::OS },
        };
        if let Some(name) = &self.app_name {
            client.insert("application", doc! { "name": name });
        }
        let mut hello = doc! { "hello": 1, "helloOk": true, "client": client, "$db": "admin" };
        hello.extend(self.api.clone());
        let network = |e: muniment_value::Error| Failure::of_network(e.to_string());
        let mut c = Connection::connect(&self.address).map_err(network)?;
        c.set_timeout(Some(self.socket_timeout)).map_err(network)?;
        let reply = exchange(&mut c, &hello, &[], false)?;
        if reply.get("ok").and_then(whole) != Some(1) {
            return Err(Failure::from_document(&reply, &reply));
        }
        Ok((c, reply.contains_key("connectionId")))
    }
}

/// Sends a command and reads its reply.
fn exchange(
    connection: &mut Connection,
    body: &Document,
    sequences: &[(&'static str, Vec<Document>)],
    unacknowledged: bool,
) -> Result<Document, Failure> {
    /// The flag of an OP_MSG without a reply.
    const MORE_TO_COME: u32 = 2;
    let encode = |d: &Document| match d.to_vec() {
        Ok(bytes) => Ok(DocBuf::from_bytes_trusted(bytes)),
        Err(e) => Err(Failure::of_client(e.to_string())),
    };
    let network = |e: muniment_value::Error| Failure::of_network(e.to_string());
    let command = encode(body)?;
    let mut encoded = Vec::new();
    for (name, documents) in sequences {
        let all: Result<Vec<DocBuf>, Failure> = documents.iter().map(encode).collect();
        encoded.push((*name, all?));
    }
    let sections: Vec<(&str, &[DocBuf])> =
        encoded.iter().map(|(n, d)| (*n, d.as_slice())).collect();
    let flags = if unacknowledged { MORE_TO_COME } else { 0 };
    connection
        .send_command("admin", &command, flags, &sections)
        .map_err(network)?;
    if unacknowledged {
        return Ok(doc! { "ok": 1 });
    }
    let reply = connection.recv().map_err(network)?;
    Document::from_reader(reply.body.as_bytes()).map_err(|e| Failure::of_network(e.to_string()))
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client of {}", self.address)
    }
}

/// The first write or write concern error of a reply, as an error.
///
/// # Errors
/// The write error or write concern error.
pub(crate) fn check_write(reply: &Document) -> Result<(), Failure> {
    match reply.get_document("writeConcernError") {
        Ok(of) => {
            let mut e = Failure::from_document(of, reply);
            e.write_concern_errors.push(of.clone());
            Err(e)
        }
        Err(_) => Ok(()),
    }
}

/// Whether a transaction's state lets an operation begin a new one.
pub(crate) fn idle(state: TxnState) -> bool {
    !matches!(state, TxnState::Starting | TxnState::InProgress)
}
