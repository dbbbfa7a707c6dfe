//! The operations of the tests, one file a kind: each turns its arguments into the command that a
//! driver would send.

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

/// What an operation gives.
pub(crate) enum Got {
    /// A value, or nothing.
    Value(Option<Bson>),
    /// Documents of a cursor, each of which may have more fields than expected.
    Documents(Vec<Document>),
    /// A cursor that goes on.
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
    /// Whose it is.
    pub client: Rc<Client>,
    /// The database.
    pub db: String,
    /// The collection, or nothing.
    pub collection: String,
    /// Its concerns.
    pub settings: Settings,
}

/// The arguments of one operation. What nobody takes is an error of the test.
pub(crate) struct Args {
    operation: String,
    /// What nobody has taken yet.
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

    /// Takes an argument that must be there.
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

    /// Moves the arguments called so into a command.
    pub(crate) fn pass(&mut self, body: &mut Document, names: &[&str]) {
        for name in names {
            if let Some(v) = self.rest.remove(name) {
                body.insert(*name, v);
            }
        }
    }

    /// The concerns for this operation.
    pub(crate) fn settings(&mut self, inherited: &Settings) -> Settings {
        inherited.with(&mut self.rest)
    }

    /// All that is left, for operations whose options are a command's.
    pub(crate) fn into_rest(self) -> Document {
        self.rest
    }

    /// Says that all arguments are taken.
    ///
    /// # Errors
    /// When there is one more.
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

/// Why tests with `timeoutMS` are left out.
pub(crate) const TIMEOUTS: &str = "driver: client-side timeouts (timeoutMS)";

/// Runs a command in a place.
///
/// # Errors
/// As [`Client::run`].
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
