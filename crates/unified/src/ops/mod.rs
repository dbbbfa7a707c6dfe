//! The operations of the tests, with one file for each kind. Each operation turns its arguments into the
//! command that a driver would send.

pub(crate) mod bulk;
pub(crate) mod client_bulk;
pub(crate) mod gridfs;
pub(crate) mod manage;
pub(crate) mod read;
pub(crate) mod runner;
pub(crate) mod write;

use crate::client::{Call, Client, Kind, Settings};
use crate::cursor::Cursor;
use crate::failure::{Done, Failure, Trouble, broken};
use crate::session::SessionRef;
use bson::{Bson, Document};
use std::rc::Rc;

/// The result of an operation.
pub(crate) enum Got {
    /// A value, or nothing.
    Value(Option<Bson>),
    /// Documents of a cursor, each of which may have more fields than expected.
    Documents(Vec<Document>),
    /// An open cursor.
    Cursor(Box<Cursor>),
    /// A collection.
    Place(Rc<Place>),
}

impl Got {
    /// No value.
    pub(crate) const NOTHING: Got = Got::Value(None);

    /// A cursor.
    pub(crate) fn cursor(c: Cursor) -> Got {
        Got::Cursor(Box::new(c))
    }

    /// A document.
    pub(crate) fn document(d: Document) -> Got {
        Got::Value(Some(Bson::Document(d)))
    }
}

/// A database, or a collection in it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The client that it belongs to.
    pub client: Rc<Client>,
    /// The database.
    pub db: String,
    /// The collection; empty for the database itself.
    pub collection: String,
    /// Its concerns and read preference.
    pub settings: Settings,
}

/// The arguments of one operation. An argument that is not taken is an error of the test.
pub(crate) struct Args {
    operation: String,
    /// The arguments that have not been taken yet.
    pub rest: Document,
}

impl Args {
    /// The arguments of `operation`.
    pub(crate) fn new(operation: &str, rest: Document) -> Args {
        Args {
            operation: operation.to_owned(),
            rest,
        }
    }

    /// Takes an argument.
    pub(crate) fn take(&mut self, name: &str) -> Option<Bson> {
        self.rest.remove(name)
    }

    /// Takes an argument that must exist.
    ///
    /// # Errors
    /// A malformed test.
    pub(crate) fn need(&mut self, name: &str) -> Done<Bson> {
        let found = self.rest.remove(name);
        found.ok_or_else(|| Trouble::Broken(format!("{} needs {name}", self.operation)))
    }

    /// Takes a document.
    ///
    /// # Errors
    /// A malformed test.
    pub(crate) fn need_doc(&mut self, name: &str) -> Done<Document> {
        match self.need(name)? {
            Bson::Document(d) => Ok(d),
            other => broken(format!("{}: {name} is {other}", self.operation)),
        }
    }

    /// Takes a string.
    ///
    /// # Errors
    /// A malformed test.
    pub(crate) fn need_str(&mut self, name: &str) -> Done<String> {
        match self.need(name)? {
            Bson::String(s) => Ok(s),
            other => broken(format!("{}: {name} is {other}", self.operation)),
        }
    }

    /// Takes an array.
    ///
    /// # Errors
    /// A malformed test.
    pub(crate) fn need_array(&mut self, name: &str) -> Done<Vec<Bson>> {
        match self.need(name)? {
            Bson::Array(a) => Ok(a),
            other => broken(format!("{}: {name} is {other}", self.operation)),
        }
    }

    /// Moves the arguments with these names into a command.
    pub(crate) fn pass(&mut self, body: &mut Document, names: &[&str]) {
        for name in names {
            if let Some(v) = self.rest.remove(name) {
                body.insert(*name, v);
            }
        }
    }

    /// The settings for this operation.
    pub(crate) fn settings(&mut self, inherited: &Settings) -> Settings {
        inherited.with(&mut self.rest)
    }

    /// All remaining arguments, for operations whose options belong to the command.
    pub(crate) fn into_rest(self) -> Document {
        self.rest
    }

    /// Checks that all arguments were taken.
    ///
    /// # Errors
    /// If there is another one.
    pub(crate) fn finish(&self) -> Done<()> {
        match self.rest.keys().next().map(String::as_str) {
            None => Ok(()),
            Some("timeoutMS" | "timeoutMode") => Err(Trouble::Skip(TIMEOUTS.into())),
            Some(name) => broken(format!(
                "{} does not know the argument {name}",
                self.operation
            )),
        }
    }
}

/// The reason for leaving out tests with `timeoutMS`.
pub(crate) const TIMEOUTS: &str = "driver: client-side timeouts (timeoutMS)";

/// Runs a command in a database or collection.
///
/// # Errors
/// The errors of [`Client::run`].
pub(crate) fn run(
    place: &Place,
    body: Document,
    session: &SessionRef,
    kind: Kind,
    settings: &Settings,
) -> Result<Document, Failure> {
    place.client.run(Call {
        db: &place.db,
        body,
        sequences: Vec::new(),
        session: Some(session),
        kind,
        settings,
    })
}
