//! The operations on `testRunner`: failpoints, and assertions about events, sessions and collections.

use super::Args;
use crate::client::{Call, Client, Event, EventKind, Kind, Settings};
use crate::entities::Entities;
use crate::failure::{Done, Trouble, broken, whole};
use crate::matching::{Root, matches};

use crate::test::Deployment;
use bson::{Bson, Document, doc};
use std::rc::Rc;

/// An active failpoint, with the client that has set it.
pub(crate) type FailPoint = (Rc<Client>, Bson);

/// Runs an operation on `testRunner`.
///
/// # Errors
/// A failed assertion.
pub(crate) fn operate(
    name: &str,
    mut args: Args,
    entities: &mut Entities,
    fail_points: &mut Vec<FailPoint>,
    deployment: &Deployment,
) -> Done<()> {
    match name {
        "failPoint" | "targetedFailPoint" => {
            fail_points.extend(fail_point(name, args, entities)?);
            Ok(())
        }
        "assertCollectionExists" | "assertCollectionNotExists" => {
            assert_collection(name, args, deployment)
        }
        "assertIndexExists" | "assertIndexNotExists" => assert_index(name, args, deployment),
        "assertSessionDirty"
        | "assertSessionNotDirty"
        | "assertSessionTransactionState"
        | "assertSessionUnpinned" => assert_session(name, args, entities),
        "assertSameLsidOnLastTwoCommands" | "assertDifferentLsidOnLastTwoCommands" => {
            assert_lsids(name, args, entities)
        }
        "createEntities" => {
            let list = args.need_array("entities")?;
            args.finish()?;
            entities.create(&list, deployment)
        }
        "waitForEvent" | "assertEventCount" => assert_events(name, args, entities),
        "wait" => {
            let ms = args.need("ms")?;
            args.finish()?;
            let ms = whole(&ms).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
            std::thread::sleep(std::time::Duration::from_millis(ms));
            Ok(())
        }
        "assertNumberConnectionsCheckedOut" => {
            Err(Trouble::Skip("driver: the connection pool".into()))
        }
        "assertSessionPinned" => Err(Trouble::Skip("driver: sessions pinned to routers".into())),
        "runOnThread" | "waitForThread" => Err(Trouble::Skip("driver: threads".into())),
        "recordTopologyDescription" | "assertTopologyType" | "waitForPrimaryChange" => {
            Err(Trouble::Skip(MONITORING.into()))
        }
        "loop" => Err(Trouble::Skip("driver: loops for its own load tests".into())),
        other => broken(format!("the runner does not know the operation {other}")),
    }
}

fn ensure(holds: bool, message: &str) -> Done<()> {
    match holds {
        true => Ok(()),
        false => broken(message),
    }
}

/// Sets a failpoint.
fn fail_point(name: &str, mut args: Args, entities: &Entities) -> Done<Option<FailPoint>> {
    let client = match name {
        "failPoint" => entities.client(&args.need_str("client")?)?,
        _ => entities
            .session(&args.need_str("session")?)?
            .borrow()
            .client(),
    };
    args.take("session");
    let body = args.need_doc("failPoint")?;
    args.finish()?;
    let point = body.get("configureFailPoint").cloned();
    configure(&client, body)?;
    Ok(point.map(|p| (client, p)))
}

fn assert_collection(name: &str, mut args: Args, deployment: &Deployment) -> Done<()> {
    let db = args.need_str("databaseName")?;
    let collection = args.need_str("collectionName")?;
    args.finish()?;
    let body = doc! {
        "listCollections": 1, "nameOnly": true, "filter": { "name": &collection },
    };
    let there = !deployment.list(&db, body)?.is_empty();
    ensure(
        there == (name == "assertCollectionExists"),
        &format!(
            "{name}: {db}.{collection} is{} there",
            if there { "" } else { " not" }
        ),
    )
}

fn assert_index(name: &str, mut args: Args, deployment: &Deployment) -> Done<()> {
    let db = args.need_str("databaseName")?;
    let collection = args.need_str("collectionName")?;
    let index = args.need_str("indexName")?;
    args.finish()?;
    let all = match deployment.list(&db, doc! { "listIndexes": &collection }) {
        Err(Trouble::Failed(f)) if f.code == Some(26) => Vec::new(),
        other => other?,
    };
    let there = all
        .iter()
        .any(|d| d.get_str("name").ok() == Some(index.as_str()));
    ensure(
        there == (name == "assertIndexExists"),
        &format!(
            "{name}: {index} of {db}.{collection} is{} there",
            if there { "" } else { " not" }
        ),
    )
}

/// The assertions on a session's state.
fn assert_session(name: &str, mut args: Args, entities: &Entities) -> Done<()> {
    let session = entities.session(&args.need_str("session")?)?;
    match name {
        "assertSessionTransactionState" => {
            let state = args.need_str("state")?;
            args.finish()?;
            let is = session.borrow().state.name();
            ensure(
                is == state,
                &format!("the transaction is {is}, expected {state}"),
            )
        }
        // There are no routers that a session could be pinned to.
        "assertSessionUnpinned" => args.finish(),
        _ => {
            args.finish()?;
            let dirty = session.borrow().is_dirty();
            ensure(
                dirty == (name == "assertSessionDirty"),
                &format!("{name}: dirty is {dirty}"),
            )
        }
    }
}

/// The assertions on the sessions of a client's last two commands.
fn assert_lsids(name: &str, mut args: Args, entities: &Entities) -> Done<()> {
    let client = entities.client(&args.need_str("client")?)?;
    args.finish()?;
    let events = client.events();
    let started = events.iter().filter(|e| e.kind == EventKind::Started);
    let last: Vec<_> = started
        .rev()
        .take(2)
        .map(|e| e.document.get_document("lsid").ok())
        .collect();
    match last.as_slice() {
        [Some(b), Some(a)] => ensure(
            (a == b) == (name == "assertSameLsidOnLastTwoCommands"),
            &format!("{name}: {a} and {b}"),
        ),
        _ => broken(format!("{name}: there are not two commands with an lsid")),
    }
}

/// The assertions on the number of a client's events.
fn assert_events(name: &str, mut args: Args, entities: &Entities) -> Done<()> {
    let client = entities.client(&args.need_str("client")?)?;
    let event = args.need_doc("event")?;
    let count = args.need("count")?;
    args.finish()?;
    if !event.keys().all(|k| k.starts_with("command")) {
        return Err(Trouble::Skip(EVENTS.into()));
    }
    let mut n = 0;
    for e in client.events() {
        n += i64::from(check_event(&event, &e, entities)?.is_ok());
    }
    let want = whole(&count).unwrap_or(0);
    let fits = match name {
        "waitForEvent" => n >= want,
        _ => n == want,
    };
    ensure(
        fits,
        &format!("{name}: {n} events {event}, expected {want}"),
    )
}

/// The reason for leaving out tests that count such events.
pub(crate) const EVENTS: &str = "driver: events of pools and monitoring";

/// The reason for leaving out tests of a driver's view of the deployment.
pub(crate) const MONITORING: &str = "driver: monitoring of the deployment";

fn configure(client: &Client, body: Document) -> Done<()> {
    client.run(Call {
        db: "admin",
        body,
        sequences: Vec::new(),
        session: None,
        kind: Kind::Bare,
        settings: &Settings::default(),
    })?;
    Ok(())
}

/// Turns the failpoints off.
///
/// # Errors
/// The server's errors.
pub(crate) fn switch_off(fail_points: &mut Vec<FailPoint>) -> Done<()> {
    for (client, name) in fail_points.drain(..) {
        configure(&client, doc! { "configureFailPoint": name, "mode": "off" })?;
    }
    Ok(())
}

/// Compares an event with the expected one. Returns the difference, if any.
///
/// # Errors
/// For events that are not about commands: such a test cannot be decided here.
pub(crate) fn check_event(
    expected: &Document,
    event: &Event,
    entities: &Entities,
) -> Done<Result<(), String>> {
    let Some((kind, Bson::Document(want))) = expected.iter().next() else {
        return broken(format!("an expected event is {expected}"));
    };
    if !kind.starts_with("command") {
        return Err(Trouble::Skip(EVENTS.into()));
    }
    if kind != event.kind.name() {
        let message = format!(
            "expected {kind}, got {} of {}",
            event.kind.name(),
            event.command
        );
        return Ok(Err(message));
    }
    let document = Bson::Document(event.document.clone());
    for (field, want) in want {
        let compared = match (field.as_str(), want) {
            ("command" | "reply", want) => matches(entities, want, Some(&document), Root::Yes),
            ("commandName", Bson::String(name)) if *name == event.command => Ok(()),
            ("databaseName", Bson::String(name)) if *name == event.db => Ok(()),
            ("hasServiceId", Bson::Boolean(false)) => Ok(()),
            ("hasServerConnectionId", Bson::Boolean(b)) if *b == event.has_connection_id => Ok(()),
            _ => Err(format!("{field} is not {want}")),
        };
        if let Err(e) = compared {
            return Ok(Err(format!("{kind} of {}: {e}: {document}", event.command)));
        }
    }
    Ok(Ok(()))
}
