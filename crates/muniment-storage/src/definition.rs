//! The definition of an index by its specification, kept once for all indexes with the same one.
//!
//! A server with a collection for each of many tenants has the same few specifications many thousand
//! times. Each is parsed once, also at a start, and its text, its paths and its partial filter are in
//! memory once.

use crate::catalog::IndexSpec;
use crate::index::descending;
use crate::kinds::{self, IndexKind};
use muniment_op::Interrupt;
use muniment_query::{Filter, QueryContext};
use muniment_value::path::Path;
use muniment_value::{Doc, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The number of definitions that are kept. A server with more of them keeps those that it read last.
const KEPT: usize = 1024;

/// Longer documents are not kept, because they would take much memory.
const LONG: usize = 4096;

/// A specification with everything that is computed from it. It never changes.
pub(crate) struct Definition {
    pub spec: Arc<IndexSpec>,
    /// The fields of the keys in order, with true for descending.
    pub fields: Arc<[(Path, bool)]>,
    /// Makes the keys when the index is not plain.
    pub kind: Option<Arc<dyn IndexKind>>,
    /// The partial filter, parsed.
    pub partial: Option<Arc<Filter>>,
}

/// Definitions by the stored documents of their specifications.
type Kept = HashMap<Box<[u8]>, Arc<Definition>>;

fn kept() -> &'static Mutex<Kept> {
    static KEPT: OnceLock<Mutex<Kept>> = OnceLock::new();
    KEPT.get_or_init(Mutex::default)
}

impl Definition {
    /// The definition of a specification.
    ///
    /// # Errors
    /// If the partial filter cannot be parsed, or the kind refuses it; what stops `operation` meanwhile.
    pub fn of(spec: &Arc<IndexSpec>, operation: &dyn Interrupt) -> Result<Arc<Definition>> {
        let stored = spec.document.as_doc().as_bytes();
        if let Some(known) = kept().lock().get(stored)
            && known.spec == *spec
        {
            return Ok(known.clone());
        }
        let made = Arc::new(Definition::new(spec.clone(), operation)?);
        made.keep(stored);
        Ok(made)
    }

    /// The definition whose specification is stored as this document, if it is known.
    pub fn stored(document: Doc<'_>) -> Option<Arc<Definition>> {
        kept().lock().get(document.as_bytes()).cloned()
    }

    fn keep(self: &Arc<Definition>, stored: &[u8]) {
        if stored.len() > LONG {
            return;
        }
        let mut kept = kept().lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(stored.into(), self.clone());
    }

    fn new(spec: Arc<IndexSpec>, operation: &dyn Interrupt) -> Result<Definition> {
        let kind = kinds::open(&spec)?;
        let fields: Arc<[(Path, bool)]> = match kind.as_ref().and_then(|k| k.columns()) {
            Some(columns) => columns.into(),
            None => spec
                .key
                .as_doc()
                .iter()
                .map(|e| (Path::new(e.name()), descending(e.value())))
                .collect(),
        };
        let partial = match &spec.partial_filter {
            Some(f) => {
                let ctx = QueryContext::new()
                    .on_behalf_of(operation)
                    .with_collation(spec.collation.clone());
                Some(Arc::new(Filter::parse(f.as_doc(), &ctx)?))
            }
            None => None,
        };
        Ok(Definition {
            spec,
            fields,
            kind,
            partial,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_op::NeverInterrupted;
    use muniment_value::doc;

    fn spec(name: &str) -> Arc<IndexSpec> {
        let d = doc! { "key": doc! { "kept.once": 1 }, "name": name };
        Arc::new(IndexSpec::parse(d.as_doc()).unwrap())
    }

    #[test]
    fn equal_specifications_are_one_and_others_are_their_own() {
        let one = Definition::of(&spec("kept_once"), &NeverInterrupted).unwrap();
        let same = Definition::of(&spec("kept_once"), &NeverInterrupted).unwrap();
        let other = Definition::of(&spec("kept_twice"), &NeverInterrupted).unwrap();
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert_eq!(one.fields[0].0.as_str(), "kept.once");
        let stored = Definition::stored(one.spec.document.as_doc()).unwrap();
        assert!(Arc::ptr_eq(&stored, &one));
        // A specification that differs although its document is the same is not taken for the known one.
        let mut odd = (*spec("kept_once")).clone();
        odd.unique = true;
        let odd = Definition::of(&Arc::new(odd), &NeverInterrupted).unwrap();
        assert!(odd.spec.unique && !one.spec.unique);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        for n in 0..2 * KEPT {
            Definition::of(&spec(&format!("many_{n}")), &NeverInterrupted).unwrap();
        }
        assert!(kept().lock().len() <= KEPT);
    }
}
