//! The objects that a test refers to by name.

use crate::client::{Client, Settings};
use crate::cursor::Cursor;
use crate::failure::{Done, Trouble, broken};
use crate::matching;
use crate::ops::Place;
use crate::ops::gridfs::Bucket;
use crate::session::SessionRef;
use crate::test::Deployment;
use bson::{Bson, Document};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// An object with a name.
#[derive(Clone)]
pub(crate) enum Entity {
    /// A client.
    Client(Rc<Client>),
    /// A database, or a collection if the place names one.
    Place(Rc<Place>),
    /// A GridFS bucket.
    Bucket(Rc<Bucket>),
    /// A session.
    Session(SessionRef),
    /// A cursor or change stream.
    Cursor(Rc<RefCell<Cursor>>),
    /// A saved result.
    Value(Bson),
}

/// All objects of a test.
#[derive(Default)]
pub(crate) struct Entities {
    all: HashMap<String, Entity>,
    /// The clients in the order of their creation.
    pub clients: Vec<Rc<Client>>,
}

impl matching::Entities for Entities {
    fn value(&self, name: &str) -> Option<Bson> {
        match self.all.get(name) {
            Some(Entity::Value(v)) => Some(v.clone()),
            _ => None,
        }
    }

    fn lsid(&self, name: &str) -> Option<Bson> {
        match self.all.get(name) {
            Some(Entity::Session(s)) => Some(Bson::Document(s.borrow().lsid())),
            _ => None,
        }
    }
}

impl Entities {
    /// Gives an object a name.
    ///
    /// # Errors
    /// If the name is taken.
    pub(crate) fn insert(&mut self, name: &str, entity: Entity) -> Done<()> {
        if self.all.contains_key(name) {
            return broken(format!("there is an entity {name} already"));
        }
        self.all.insert(name.to_owned(), entity);
        Ok(())
    }

    /// The object called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn get(&self, name: &str) -> Done<Entity> {
        let found = self.all.get(name).cloned();
        found.ok_or_else(|| Trouble::Broken(format!("there is no entity {name}")))
    }

    /// The client called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn client(&self, name: &str) -> Done<Rc<Client>> {
        match self.get(name)? {
            Entity::Client(c) => Ok(c),
            _ => broken(format!("{name} is no client")),
        }
    }

    /// The session called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn session(&self, name: &str) -> Done<SessionRef> {
        match self.get(name)? {
            Entity::Session(s) => Ok(s),
            _ => broken(format!("{name} is no session")),
        }
    }

    fn place(&self, name: &str) -> Done<Rc<Place>> {
        match self.get(name)? {
            Entity::Place(p) => Ok(p),
            _ => broken(format!("{name} is no database")),
        }
    }

    /// Makes the objects that `list` describes.
    ///
    /// # Errors
    /// A malformed test, or one that needs something only a driver has.
    pub(crate) fn create(&mut self, list: &[Bson], deployment: &Deployment) -> Done<()> {
        for entity in list {
            let Some((kind, Bson::Document(d))) =
                entity.as_document().and_then(|e| e.iter().next())
            else {
                return broken(format!("an entity is {entity}"));
            };
            let entity = self.entity(kind, d, deployment)?;
            self.insert(&text(kind, d, "id")?, entity)?;
        }
        Ok(())
    }

    /// Makes an entity from its description.
    fn entity(&mut self, kind: &str, d: &Document, deployment: &Deployment) -> Done<Entity> {
        let text = |name: &str| text(kind, d, name);
        let mut options = Document::new();
        for name in [
            "databaseOptions",
            "collectionOptions",
            "bucketOptions",
            "sessionOptions",
        ] {
            if let Ok(o) = d.get_document(name) {
                options = o.clone();
            }
        }
        if options.contains_key("timeoutMS") {
            return Err(Trouble::Skip(crate::ops::TIMEOUTS.into()));
        }
        Ok(match kind {
            "client" => {
                if d.contains_key("autoEncryptOpts") {
                    return Err(Trouble::Skip(ENCRYPTION.into()));
                }
                let client = Client::new(deployment, d)?;
                self.clients.push(client.clone());
                Entity::Client(client)
            }
            "database" => {
                let client = self.client(&text("client")?)?;
                let settings = client.settings.with(&mut options);
                Entity::Place(Rc::new(Place {
                    client,
                    db: text("databaseName")?,
                    collection: String::new(),
                    settings,
                }))
            }
            "collection" => {
                let database = self.place(&text("database")?)?;
                Entity::Place(Rc::new(Place {
                    collection: text("collectionName")?,
                    settings: database.settings.with(&mut options),
                    ..(*database).clone()
                }))
            }
            "bucket" => {
                let database = self.place(&text("database")?)?;
                Entity::Bucket(Rc::new(Bucket::new(&database, options)?))
            }
            "session" => {
                let client = self.client(&text("client")?)?;
                if let Some(Bson::String(name)) = options.get("snapshotTime") {
                    let time = matching::Entities::value(self, name);
                    let time = time.unwrap_or(Bson::Null);
                    options.insert("snapshotTime", time);
                }
                Entity::Session(client.session(Some(options))?)
            }
            "thread" => return Err(Trouble::Skip("driver: threads".into())),
            "clientEncryption" => return Err(Trouble::Skip(ENCRYPTION.into())),
            other => return broken(format!("there are no entities of the kind {other}")),
        })
    }

    /// Closes everything that is open.
    pub(crate) fn clear(&mut self) {
        for (_, entity) in self.all.drain() {
            match entity {
                Entity::Cursor(c) => c.borrow_mut().close(),
                Entity::Session(s) => s.borrow_mut().end(),
                _ => {}
            }
        }
        for client in self.clients.drain(..) {
            client.close();
        }
    }
}

/// The reason for leaving out tests of client-side encryption.
pub(crate) const ENCRYPTION: &str = "driver: client-side encryption";

/// The place of a client's own commands.
pub(crate) fn admin(client: &Rc<Client>) -> Place {
    Place {
        client: client.clone(),
        db: "admin".into(),
        collection: String::new(),
        settings: Settings {
            ..client.settings.clone()
        },
    }
}

/// The text that the description of an entity must have under this name.
fn text(kind: &str, d: &Document, name: &str) -> Done<String> {
    match d.get(name) {
        Some(Bson::String(s)) => Ok(s.clone()),
        _ => Err(Trouble::Broken(format!("{kind} needs {name}"))),
    }
}
