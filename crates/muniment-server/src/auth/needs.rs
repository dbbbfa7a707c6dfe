//! What a command needs its user to be allowed, and whether a user is.
//!
//! Invariant: a check looks at nothing but the request and the user's privileges. It opens no data.

use super::User;
use crate::context::Request;
use crate::registry;
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target;
use muniment_query::stage::rights::{Named, Right, Rights};
use muniment_query::stage::rights_of;
use muniment_value::{Doc, Value};

/// How deep pipelines may be nested in each other. The parser of stages allows fewer.
const MAX_DEPTH: usize = 60;

/// What a command needs its user to be allowed.
pub enum Needs {
    /// Nothing: it also runs on a connection on which nobody has logged in.
    Nothing,
    /// Somebody who has logged in. What belongs to other users, the command itself leaves alone.
    Login,
    /// Another member of the replica set, or a user who may do everything.
    Member,
    /// These actions on the server.
    Cluster(Actions),
    /// These actions on the command's database.
    Database(Actions),
    /// These actions on the collection that the command's first element names.
    Collection(Actions),
    /// These actions on the collection whose full name is the command's first element.
    Named(Actions),
    /// What this function finds in the request.
    Of(fn(&Asks<'_>) -> bool),
}

impl Needs {
    /// These actions on the server.
    pub const fn cluster(actions: &[Action]) -> Needs {
        Needs::Cluster(Actions::of(actions))
    }

    /// This action on the collection whose full name is the command's first element.
    pub const fn named(action: Action) -> Needs {
        Needs::Named(Actions::of(&[action]))
    }

    /// These actions on the command's database.
    pub const fn database(actions: &[Action]) -> Needs {
        Needs::Database(Actions::of(actions))
    }

    /// These actions on the collection that the command's first element names.
    pub const fn collection(actions: &[Action]) -> Needs {
        Needs::Collection(Actions::of(actions))
    }
}

/// A request of a user, for the function that says whether it is allowed.
pub struct Asks<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The namespace of the operation, `db.collection`.
    pub namespace: &'a str,
    /// The user.
    pub user: &'a User,
}

impl<'a> Asks<'a> {
    /// Whether the user may run a command with these needs.
    pub fn meets(&self, needs: &Needs) -> bool {
        match needs {
            Needs::Nothing | Needs::Login => true,
            Needs::Member => self.may(Target::Cluster, Actions::of(&[Action::Internal])),
            Needs::Cluster(actions) => self.may(Target::Cluster, *actions),
            Needs::Database(actions) => self.may(Target::Database(self.request.db), *actions),
            Needs::Collection(actions) => self.may_here(*actions),
            Needs::Named(actions) => {
                let ns = self.target().as_str().unwrap_or_default();
                self.may_on(ns, *actions)
            }
            Needs::Of(check) => check(self),
        }
    }

    /// Whether the user may do this there.
    pub fn may(&self, target: Target<'_>, actions: Actions) -> bool {
        self.user.privileges.allows(&target, &actions)
    }

    /// Whether the user may do one thing there.
    pub fn may_one(&self, target: Target<'_>, action: Action) -> bool {
        self.may(target, Actions::of(&[action]))
    }

    /// Whether the user may do this on the collection that the command's first element names.
    pub fn may_here(&self, actions: Actions) -> bool {
        self.may_on(self.namespace, actions)
    }

    /// Whether the user may do this on a collection, `db.collection`.
    pub fn may_on(&self, namespace: &str, actions: Actions) -> bool {
        let (db, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        self.may(Target::Collection(db, collection), actions)
    }

    /// Whether the user may do this on the collection that the command's first element names, for a command
    /// that checks the name itself. A name that is no string is refused by the command.
    pub fn may_on_named(&self, actions: Actions) -> bool {
        let name = self.target().as_str().unwrap_or_default();
        self.may(Target::Collection(self.request.db, name), actions)
    }

    /// The value of the command's first element.
    pub fn target(&self) -> Value<'a> {
        self.request.body.first().map_or(Value::Null, |e| e.value())
    }

    /// Whether a field of the command is true.
    pub fn has(&self, field: &str) -> bool {
        self.request.body.get(field).is_some_and(|v| v.truthy())
    }

    /// These actions, and that of skipping validators if the command asks for it.
    pub fn with_bypass(&self, actions: Actions) -> Actions {
        match self.has("bypassDocumentValidation") {
            true => actions.with(Action::BypassDocumentValidation),
            false => actions,
        }
    }

    /// Whether the user may run another command, which is a part of this one, in the same database.
    pub fn may_run(&self, db: &str, body: Doc<'_>) -> bool {
        let name = body.first().map_or("", |e| e.name());
        // An unknown command fails by itself.
        let Some(spec) = registry::find(name) else {
            return true;
        };
        let request = Request {
            db,
            name,
            body,
            sequences: &[],
            exhaust_allowed: false,
            unacknowledged: false,
            legacy: true,
        };
        let target = body.first().map_or(Value::Null, |e| e.value());
        let namespace = match target.as_str() {
            Some(collection) => format!("{db}.{collection}"),
            // A pipeline without a collection.
            None => format!("{db}.$cmd.aggregate"),
        };
        let part = Asks {
            request: &request,
            namespace: &namespace,
            user: self.user,
        };
        !matches!(spec.needs, Needs::Member) && part.meets(&spec.needs)
    }

    /// Whether the user may run a pipeline over a collection; `None` for one without a collection.
    pub fn may_run_pipeline(&self, db: &str, collection: Option<&str>, pipeline: Doc<'_>) -> bool {
        self.stages(Over { db, collection }, pipeline, false, 0)
    }

    /// `fed`: documents already come into the first stage.
    fn stages(&self, over: Over<'_>, pipeline: Doc<'_>, fed: bool, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        let mut reads = !fed;
        let mut allowed = true;
        for (i, stage) in pipeline.values().filter_map(|v| v.as_doc()).enumerate() {
            let Some(e) = stage.first() else { continue };
            let of = match rights_of(e.name()) {
                Some(Rights::Also(of)) => of,
                Some(Rights::Instead(of)) => {
                    reads &= i > 0;
                    of
                }
                // A stage that does not exist fails by itself.
                Some(Rights::Input) | None => continue,
            };
            // Of two fields of one name, the stage might take the other one.
            let named = e.value().as_doc().unwrap_or(Doc::EMPTY);
            if has_duplicates(named) {
                return false;
            }
            of(e.value(), &mut |right| {
                allowed = allowed && self.right(over, right, depth);
            });
        }
        allowed && (!reads || over.may(self, Actions::of(&[Action::Find])))
    }

    fn right(&self, over: Over<'_>, right: Right<'_>, depth: usize) -> bool {
        let action = |name: &str| match Action::from_name(name) {
            Some(action) => Actions::of(&[action]),
            None => Actions::ALL,
        };
        match right {
            Right::Collection(name) => over.may(self, action(name)),
            Right::Cluster(name) => self.may(Target::Cluster, action(name)),
            Right::Stages(stages) => self.stages(over, stages, true, depth + 1),
            Right::Pipeline(named, stages) => {
                let inner = Over {
                    db: named.and_then(|n| n.db).unwrap_or(over.db),
                    collection: named.map(|n| n.collection),
                };
                self.stages(inner, stages, named.is_none(), depth + 1)
            }
            Right::Output(Named { db, collection }, names) => {
                let db = db.unwrap_or(over.db);
                let all = names
                    .iter()
                    .fold(Actions::EMPTY, |all, name| all.union(action(name)));
                self.may(Target::Collection(db, collection), self.with_bypass(all))
            }
        }
    }
}

/// Whether two fields have one name.
fn has_duplicates(d: Doc<'_>) -> bool {
    let mut names: Vec<&str> = d.iter().map(|e| e.name()).collect();
    names.sort_unstable();
    names.windows(2).any(|two| two.first() == two.last())
}

/// What a pipeline runs over.
#[derive(Clone, Copy)]
struct Over<'a> {
    db: &'a str,
    collection: Option<&'a str>,
}

impl Over<'_> {
    fn may(self, asks: &Asks<'_>, actions: Actions) -> bool {
        match self.collection {
            Some(collection) => asks.may(Target::Collection(self.db, collection), actions),
            // A pipeline on admin without a collection, such as a change stream, is about all databases.
            None if self.db == "admin" => asks.user.privileges.allows_everywhere(&actions),
            None => asks.may(Target::Database(self.db), actions),
        }
    }
}
