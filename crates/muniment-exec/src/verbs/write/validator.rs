//! Validators of collections: `validator`, `validationLevel`, `validationAction`.
//!
//! A parsed validator is kept per collection until the collection's options change. Failures are
//! explained in the form of MongoDB's `errInfo`.

use crate::operation::OpContext;
use muniment_query::filter::details::details;
use muniment_query::running::Work;
use muniment_query::{Filter, QueryContext};
use muniment_storage::{Collection, CollectionOptions};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The most parsed validators that are kept.
const KEPT: usize = 1000;

/// What happens to a document that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// It is refused.
    Error,
    /// It is written and logged.
    Warn,
    /// It is refused and logged.
    ErrorAndLog,
}

/// A collection's validator.
#[derive(Debug)]
pub(crate) struct Validator {
    filter: Filter,
    source: DocBuf,
    namespace: String,
    /// validationLevel "moderate": a document that was invalid before may stay invalid.
    moderate: bool,
    action: Action,
}

/// The log function; it gets the namespace and `{failingDocumentId, details}`.
pub type Log = Box<dyn Fn(&str, Doc<'_>) + Send + Sync>;

/// A validator, and the options that it was made from.
type Parsed = (Arc<CollectionOptions>, Arc<Validator>);

/// The parsed validators, and the log for documents that are not valid.
#[derive(Default)]
pub(crate) struct Validators {
    parsed: Mutex<HashMap<[u8; 16], Parsed>>,
    log: OnceLock<Log>,
}

impl Validators {
    /// Sets the log, which gets the namespace and `{failingDocumentId, details}` of each document
    /// that is not valid, whether it is written or refused. Only the first call counts.
    pub(crate) fn on_failure(&self, log: Log) {
        let _ = self.log.set(log);
    }

    /// The validator that a write must satisfy, if there is one.
    ///
    /// # Errors
    /// The errors of parsing the validator.
    pub(crate) fn of(
        &self,
        op: &Arc<OpContext>,
        collection: &Collection,
        bypass: bool,
    ) -> Result<Option<Arc<Validator>>> {
        if bypass {
            return Ok(None);
        }
        let options = collection.options();
        let d = options.document.as_doc();
        let Some(source) = d.get_doc("validator").filter(|v| !v.is_empty()) else {
            return Ok(None);
        };
        let level = d.get_str("validationLevel").unwrap_or("strict");
        if level == "off" {
            return Ok(None);
        }
        collection.check_validator()?;
        if let Some((of, v)) = self.parsed.lock().get(&collection.uuid())
            && Arc::ptr_eq(of, &options)
        {
            return Ok(Some(v.clone()));
        }
        // Parsing may take long (constant expressions, polygons), so the lock is not held
        // meanwhile, and the operation can be ended.
        let cx = QueryContext::new()
            .with_collation(collection.collation().clone())
            .with_operation(op.clone());
        let validator = Arc::new(Validator {
            filter: Filter::parse(source, &cx)?,
            source: source.to_buf(),
            namespace: collection.namespace(),
            moderate: level == "moderate",
            action: match d.get_str("validationAction") {
                Some("warn") => Action::Warn,
                Some("errorAndLog") => Action::ErrorAndLog,
                _ => Action::Error,
            },
        });
        let mut parsed = self.parsed.lock();
        if parsed.len() >= KEPT {
            parsed.clear();
        }
        parsed.insert(collection.uuid(), (options.clone(), validator.clone()));
        Ok(Some(validator))
    }

    /// Checks the new version of a document.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure with `errInfo`; the errors of evaluating the validator.
    pub(crate) fn check(
        &self,
        v: &Validator,
        old: Option<&[u8]>,
        new: &[u8],
        work: Work<'_>,
    ) -> Result<()> {
        let valid = |d: &[u8]| v.filter.matches(Doc::new(d), work);
        let judged = valid(new);
        if matches!(judged, Ok(true)) {
            return Ok(());
        }
        if let Some(old) = old.filter(|_| v.moderate) {
            // A document that makes the validator fail (an error in $expr) was not valid either. An
            // interrupted operation is different: it says nothing about the document.
            let was = valid(old);
            if was.is_err() {
                work.check()?;
            }
            if !was.unwrap_or(false) {
                return Ok(());
            }
        }
        judged?;
        let new = Doc::new(new);
        let info = doc! {
            "failingDocumentId": new.get("_id").unwrap_or(Value::Null),
            "details": details(v.source.as_doc(), new, work),
        };
        if v.action != Action::Error
            && let Some(log) = self.log.get()
        {
            log(&v.namespace, info.as_doc());
        }
        if v.action == Action::Warn {
            return Ok(());
        }
        Err(Error::new(
            Code::DocumentValidationFailure,
            "Document failed validation",
        )
        .with_extra(doc! { "errInfo": info }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::tests::{Bench, NS, j};
    use muniment_storage::CollectionOptions;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn options(text: &str) -> CollectionOptions {
        CollectionOptions {
            document: j(text),
            ..CollectionOptions::default()
        }
    }

    #[test]
    fn levels_and_actions() {
        let b = Bench::new();
        let logged = Arc::new(AtomicUsize::new(0));
        let count = logged.clone();
        b.engine.on_validation_failure(Box::new(move |ns, info| {
            assert_eq!(ns, NS);
            assert!(info.get_doc("details").is_some());
            count.fetch_add(1, Relaxed);
        }));
        b.insert_json(&[r#"{"_id": 1, "a": 1}"#, r#"{"_id": 2, "a": -1}"#]);
        let c = b.engine.store.collection(NS).unwrap();
        let set = |text: &str| {
            let new = options(&format!(
                r#"{{"validator": {{"a": {{"$gt": 0}}}}, {text}}}"#
            ));
            b.engine
                .store
                .modify_options(&c, new, &muniment_query::NeverInterrupted)
                .unwrap();
        };
        let code = |r: muniment_value::Result<_>| r.map(|_: crate::StatementOutcome| ()).err();
        set(r#""validationLevel": "strict""#);
        assert!(code(b.update(r#"{"_id": 2}"#, r#"{"$set": {"b": 1}}"#, false)).is_some());
        assert!(code(b.update(r#"{"_id": 1}"#, r#"{"$set": {"b": 1}}"#, false)).is_none());
        set(r#""validationLevel": "moderate""#);
        assert!(code(b.update(r#"{"_id": 2}"#, r#"{"$set": {"b": 1}}"#, false)).is_none());
        let e = code(b.update(r#"{"_id": 1}"#, r#"{"$set": {"a": 0}}"#, false)).unwrap();
        assert_eq!(e.code().0, 121);
        assert_eq!(
            crate::tests::text(e.extra().as_bytes()),
            r#"{"errInfo":{"failingDocumentId":1,"details":{"operatorName":"$gt","specifiedAs":{"a":{"$gt":0}},"reason":"comparison failed","consideredValue":0}}}"#
        );
        set(r#""validationLevel": "off""#);
        assert!(code(b.update(r#"{"_id": 1}"#, r#"{"$set": {"a": 0}}"#, false)).is_none());
        assert_eq!(logged.load(Relaxed), 0);
        set(r#""validationAction": "warn""#);
        assert_eq!(b.insert(&[j(r#"{"_id": 3}"#)]).n, 1);
        assert_eq!(logged.load(Relaxed), 1);
        set(r#""validationAction": "errorAndLog""#);
        assert_eq!(b.insert(&[j(r#"{"_id": 4}"#)]).errors.len(), 1);
        assert_eq!(logged.load(Relaxed), 2);
    }

    /// When the operation is ended while the old document is checked, that document must not count
    /// as invalid: the new one would be let through.
    #[test]
    fn an_operation_that_was_ended_judges_no_document() {
        let b = Bench::new();
        let c = options(
            r#"{"validationLevel": "moderate", "validator": {"$expr": {"$gt": [0, {"$size": {"$range": [0, "$n"]}}]}}}"#,
        );
        let never = &muniment_query::NeverInterrupted;
        let c = b.engine.store.create_collection(NS, c, never).unwrap();
        let v = b.engine.validators.of(&b.op, &c, false).unwrap().unwrap();
        let d = j(r#"{"_id": 1, "n": 500000}"#);
        let check = |op: &crate::OpContext| {
            let (old, new) = (Some(d.as_bytes()), d.as_bytes());
            b.engine.validators.check(&v, old, new, op.work())
        };
        check(&b.op).unwrap();
        let op = b.engine.operations.begin(crate::OpStart::default());
        b.engine.operations.kill(op.id());
        assert_eq!(
            check(&op).unwrap_err().code(),
            muniment_value::Code::Interrupted
        );
    }
}
