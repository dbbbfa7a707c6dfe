//! Privileges: which actions on which resources, and the set of them that a user has.

use crate::action::{Action, Actions};
use crate::resource::{Resource, Target};
use muniment_value::args::{Args, Field, Types, req};
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, doc};

const FIELDS: &[Field] = &[req("resource", Types::OBJECT), req("actions", Types::ARRAY)];

/// Some actions on one resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Privilege {
    /// What the actions may be done to.
    pub resource: Resource,
    /// What may be done.
    pub actions: Actions,
}

impl Privilege {
    /// Makes a privilege.
    pub fn new(resource: Resource, actions: Actions) -> Privilege {
        Privilege { resource, actions }
    }

    /// The privilege that `{resource, actions}` describes.
    ///
    /// # Errors
    /// 9 FailedToParse for names that are no actions, and as [`Resource::from_doc`]; 14 for a field or an action
    /// of the wrong type; 40413, 40414 and 40415 for a field that is given twice, is missing, or is unknown.
    pub fn from_doc(doc: Doc<'_>) -> Result<Privilege> {
        let args = Args::parse("privilege", FIELDS, doc)?;
        // A required field may still be null, which counts as missing.
        let missing = |name| muniment_value::args::missing_field("privilege", name);
        let resource = args.doc("resource").ok_or_else(|| missing("resource"))?;
        let actions = args.array("actions").ok_or_else(|| missing("actions"))?;
        Ok(Privilege {
            resource: Resource::from_doc(resource)?,
            actions: read_actions(actions)?,
        })
    }

    /// The document `{resource, actions}`, the actions sorted by name.
    pub fn to_doc(&self) -> DocBuf {
        let actions: ArrayBuf = self.actions.names().collect();
        doc! { "resource": self.resource.to_doc(), "actions": actions }
    }
}

/// Reads the names of an array of actions.
fn read_actions(names: Doc<'_>) -> Result<Actions> {
    let mut actions = Actions::EMPTY;
    let mut unknown = Vec::new();
    for e in names.iter() {
        let Some(name) = e.value().as_str() else {
            return Err(Error::type_mismatch(format!(
                "BSON field 'privilege.actions.{}' is the wrong type '{}', expected type 'string'",
                e.name(),
                e.ty().name()
            )));
        };
        match Action::from_name(name) {
            Some(action) => actions.insert(action),
            None => unknown.push(name),
        }
    }
    match unknown.is_empty() {
        true => Ok(actions),
        false => Err(Error::failed_to_parse(format!(
            "Unrecognized action privilege strings: {}",
            unknown.join(",")
        ))),
    }
}

/// A set of privileges: sorted by resource, each resource once and with at least one action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Privileges(Vec<Privilege>);

impl Privileges {
    /// No privileges.
    pub fn new() -> Privileges {
        Privileges::default()
    }

    /// The privileges that an array of `{resource, actions}` describes, merged by resource.
    ///
    /// # Errors
    /// 14 TypeMismatch for an element that is no document; as [`Privilege::from_doc`].
    pub fn from_array(array: Doc<'_>) -> Result<Privileges> {
        let mut all = Privileges::new();
        for e in array.iter() {
            let doc = e.value().as_doc().ok_or_else(|| {
                Error::type_mismatch(format!(
                    "BSON field 'privileges.{}' is the wrong type '{}', expected type 'object'",
                    e.name(),
                    e.ty().name()
                ))
            })?;
            all.add(Privilege::from_doc(doc)?);
        }
        Ok(all)
    }

    /// Adds a privilege. One on the same resource gets its actions.
    pub fn add(&mut self, privilege: Privilege) {
        if privilege.actions.is_empty() {
            return;
        }
        match self.place(&privilege.resource) {
            Ok(at) => {
                if let Some(own) = self.0.get_mut(at) {
                    own.actions = own.actions.union(privilege.actions);
                }
            }
            Err(at) => self.0.insert(at, privilege),
        }
    }

    /// Adds all privileges of `other`.
    pub fn merge(&mut self, other: &Privileges) {
        for p in &other.0 {
            self.add(p.clone());
        }
    }

    /// Takes away the actions of a privilege on exactly its resource. Privileges on other resources that
    /// include that one stay. Without "anyAction", the rest of its actions stay.
    pub fn remove(&mut self, privilege: &Privilege) {
        let Ok(at) = self.place(&privilege.resource) else {
            return;
        };
        if let Some(own) = self.0.get_mut(at) {
            for action in privilege.actions.iter() {
                own.actions.remove(action);
            }
            if own.actions.is_empty() {
                self.0.remove(at);
            }
        }
    }

    fn place(&self, resource: &Resource) -> Result<usize, usize> {
        self.0.binary_search_by(|p| p.resource.cmp(resource))
    }

    /// True if all `actions` are allowed on the target. Several privileges may each grant some of them. It
    /// allocates nothing.
    pub fn allows(&self, target: &Target<'_>, actions: &Actions) -> bool {
        let mut missing = *actions;
        for p in &self.0 {
            if missing.is_empty() {
                return true;
            }
            // The sets are compared first, since that is cheaper than comparing names.
            if !missing.intersection(p.actions).is_empty() && p.resource.matches(target) {
                missing = missing.without(p.actions);
            }
        }
        missing.is_empty()
    }

    /// True if at least one of `actions` is allowed on the target. It allocates nothing.
    pub fn allows_any_of(&self, target: &Target<'_>, actions: &Actions) -> bool {
        self.0
            .iter()
            .any(|p| !p.actions.intersection(*actions).is_empty() && p.resource.matches(target))
    }

    /// Whether all of these actions are granted in every database that is not the server's own.
    pub fn allows_everywhere(&self, actions: &Actions) -> bool {
        let granted = self
            .iter()
            .filter(|p| matches!(p.resource, Resource::Any | Resource::AnyNormal));
        let all = granted.fold(Actions::EMPTY, |all, p| all.union(p.actions));
        all.contains_all(*actions)
    }

    /// True if any of `actions` is allowed on the database or on at least one of its collections, existing or
    /// not. (listDatabases shows the databases for which this holds.)
    pub fn allows_within(&self, db: &str, actions: &Actions) -> bool {
        self.0.iter().any(|p| {
            !p.actions.intersection(*actions).is_empty() && p.resource.touches_database(db)
        })
    }

    /// True if whoever has these privileges may do all that `other` allows.
    pub fn covers(&self, other: &Privileges) -> bool {
        other.0.iter().all(|wanted| {
            let mut missing = wanted.actions;
            for own in &self.0 {
                if own.resource.includes(&wanted.resource) {
                    missing = missing.without(own.actions);
                }
            }
            missing.is_empty()
        })
    }

    /// The privileges, sorted by resource.
    pub fn iter(&self) -> impl Iterator<Item = &Privilege> {
        self.0.iter()
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no privileges.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The array of `{resource, actions}`.
    pub fn to_array(&self) -> ArrayBuf {
        self.0.iter().map(Privilege::to_doc).collect()
    }
}

impl FromIterator<Privilege> for Privileges {
    fn from_iter<I: IntoIterator<Item = Privilege>>(privileges: I) -> Privileges {
        let mut all = Privileges::new();
        privileges.into_iter().for_each(|p| all.add(p));
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{Code, array};

    const FIND: Actions = Actions::of(&[Action::Find]);
    const BOTH: Actions = Actions::of(&[Action::Find, Action::Insert]);

    fn privileges(all: &[(&str, &str, &[Action])]) -> Privileges {
        all.iter()
            .map(|(db, c, actions)| Privilege::new(Resource::of(db, c), Actions::of(actions)))
            .collect()
    }

    #[test]
    fn several_resources_grant_together() {
        let p = privileges(&[
            ("x", "", &[Action::Find]),
            ("x", "c", &[Action::Insert]),
            ("x", "system.js", &[Action::Find]),
        ]);
        assert!(p.allows(&Target::Collection("x", "c"), &BOTH));
        assert!(!p.allows(&Target::Collection("x", "d"), &BOTH));
        assert!(p.allows_any_of(&Target::Collection("x", "d"), &BOTH));
        assert!(!p.allows_any_of(&Target::Collection("y", "d"), &BOTH));
        assert!(!p.allows(&Target::Collection("x", "system.users"), &FIND));
        assert!(p.allows(&Target::Collection("y", "c"), &Actions::EMPTY));
        assert!(p.allows_within("x", &FIND) && !p.allows_within("y", &FIND));
    }

    #[test]
    fn merging_and_removing() {
        let mut p = privileges(&[("x", "c", &[Action::Insert]), ("x", "", &[Action::Find])]);
        p.add(Privilege::new(Resource::of("x", "c"), FIND));
        p.add(Privilege::new(Resource::Cluster, Actions::EMPTY));
        p.merge(&p.clone());
        assert_eq!(p.len(), 2);
        assert!(p.0.is_sorted_by(|a, b| a.resource < b.resource));
        p.remove(&Privilege::new(Resource::of("x", ""), BOTH));
        assert_eq!(
            p,
            privileges(&[("x", "c", &[Action::Find, Action::Insert])])
        );
        p.remove(&Privilege::new(Resource::of("x", "c"), FIND));
        p.remove(&Privilege::new(Resource::of("y", ""), FIND));
        assert_eq!(p, privileges(&[("x", "c", &[Action::Insert])]));
    }

    #[test]
    fn covering() {
        let own = privileges(&[("", "", &[Action::Find]), ("x", "", &[Action::Insert])]);
        for (db, c, both) in [("x", "", true), ("x", "c", true), ("y", "c", false)] {
            let other = privileges(&[(db, c, &[Action::Find, Action::Insert])]);
            assert_eq!(own.covers(&other), both, "{db}.{c}");
        }
        assert!(!own.covers(&privileges(&[("local", "", &[Action::Find])])));
        assert!(!own.covers(&privileges(&[("x", "system.js", &[Action::Find])])));
        assert!(own.covers(&Privileges::new()));
        let any = Privileges::from_iter([Privilege::new(Resource::Any, Actions::ALL)]);
        assert!(any.covers(&own) && !own.covers(&any));
    }

    #[test]
    fn reading_and_printing() {
        let printed = array![
            doc! { "resource": doc! { "cluster": true }, "actions": array!["shutdown"] },
            doc! {
                "resource": doc! { "db": "x", "collection": "" },
                "actions": array!["find", "insert"],
            },
            doc! {
                "resource": doc! { "db": "x", "collection": "c" },
                "actions": array!["anyAction"],
            },
        ];
        let p = Privileges::from_array(printed.as_doc()).unwrap();
        assert_eq!(p.to_array(), printed);
        assert!(p.allows(&Target::Cluster, &Actions::of(&[Action::Shutdown])));
        assert!(p.allows(&Target::Collection("x", "c"), &Actions::ALL));
    }

    #[test]
    fn errors() {
        let e = |d: DocBuf| Privileges::from_array(array![d].as_doc()).unwrap_err();
        let resource = || doc! { "db": "x", "collection": "" };
        let unknown = e(doc! { "resource": resource(), "actions": array!["find", "fnd", "x"] });
        assert_eq!(unknown.code(), Code::FailedToParse);
        assert_eq!(
            unknown.message(),
            "Unrecognized action privilege strings: fnd,x"
        );
        let number = e(doc! { "resource": resource(), "actions": array![1] });
        assert_eq!(number.code(), Code::TypeMismatch);
        assert_eq!(e(doc! { "resource": resource() }).code(), Code(40414));
        assert_eq!(e(doc! { "actions": array![] }).code(), Code(40414));
        let more = doc! { "resource": resource(), "actions": array![], "x": 1 };
        assert_eq!(e(more).code(), Code(40415));
        let no_document = Privileges::from_array(array![1].as_doc()).unwrap_err();
        assert_eq!(no_document.code(), Code::TypeMismatch);
    }
}
