//! `arrayFilters`: the conditions for the elements that `$[id]` selects.

use crate::bytes::{close, open};
use crate::context::QueryContext;
use crate::filter::Filter;
use crate::running::Work;
use muniment_value::{Code, Doc, Elem, Error, Result, Value};

/// The array filters of one update.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrayFilters {
    filters: Vec<ArrayFilter>,
}

#[derive(Clone, Debug)]
struct ArrayFilter {
    id: String,
    filter: Filter,
    used: bool,
}

impl ArrayFilters {
    /// Parses the array of filters.
    ///
    /// # Errors
    /// 9 FailedToParse and 2 BadValue with MongoDB's messages.
    pub(crate) fn parse(array: Doc<'_>, ctx: &QueryContext) -> Result<ArrayFilters> {
        let mut filters: Vec<ArrayFilter> = Vec::new();
        for v in array.values() {
            let Value::Document(d) = v else {
                return Err(Error::type_mismatch(format!(
                    "BSON field 'update.updates.arrayFilters' is the wrong type '{}', expected \
                     type 'object'",
                    v.type_name()
                )));
            };
            if d.get("$expr").is_some() {
                return Err(Error::new(
                    Code::QueryFeatureNotAllowed,
                    "Error parsing array filter :: caused by :: $expr is not allowed in this context",
                ));
            }
            if let Some(e) = d.iter().find(|e| matches!(e.name(), "$text" | "$where")) {
                return Err(Error::bad_value(format!(
                    "Error parsing array filter :: caused by :: {} is not allowed in this context",
                    e.name()
                )));
            }
            let filter = Filter::parse(d, ctx)
                .map_err(|e| e.context("Error parsing array filter :: caused by :: "))?;
            let mut id = None;
            identifier(d, &mut id, 0)?;
            let id = id.ok_or_else(|| {
                Error::failed_to_parse(
                    "Cannot use an expression without a top-level field name in arrayFilters",
                )
            })?;
            let good = id.starts_with(|c: char| c.is_ascii_lowercase())
                && id.bytes().all(|b| b.is_ascii_alphanumeric());
            if !good {
                return Err(Error::bad_value(format!(
                    "Error parsing array filter :: caused by :: The top-level field name must be \
                     an alphanumeric string beginning with a lowercase letter, found '{id}'"
                )));
            }
            if filters.iter().any(|f| f.id == id) {
                return Err(Error::failed_to_parse(format!(
                    "Found multiple array filters with the same top-level field name {id}"
                )));
            }
            filters.push(ArrayFilter {
                id,
                filter,
                used: false,
            });
        }
        Ok(ArrayFilters { filters })
    }

    /// The filter for `id`, which `path` uses. Marks it as used.
    ///
    /// # Errors
    /// 2 BadValue if there is none.
    pub(crate) fn index(&mut self, id: &str, path: &str) -> Result<usize> {
        let at = self.filters.iter().position(|f| f.id == id);
        let at = at.ok_or_else(|| {
            Error::bad_value(format!(
                "No array filter found for identifier '{id}' in path '{path}'"
            ))
        })?;
        if let Some(f) = self.filters.get_mut(at) {
            f.used = true;
        }
        Ok(at)
    }

    /// Fails with 9 if `update` does not use one of the filters.
    pub(crate) fn check_used(&self, update: Doc<'_>) -> Result<()> {
        match self.filters.iter().find(|f| !f.used) {
            None => Ok(()),
            Some(f) => Err(Error::failed_to_parse(format!(
                "The array filter for identifier '{}' was not used in the update {}",
                f.id,
                Value::Document(update).to_display()
            ))),
        }
    }

    /// Whether filter `at` accepts the array element `e`; `buf` is scratch space.
    pub(crate) fn matches(
        &self,
        at: usize,
        e: Elem<'_>,
        buf: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<bool> {
        let Some(f) = self.filters.get(at) else {
            return Ok(false);
        };
        buf.clear();
        let start = open(buf);
        crate::bytes::put(buf, f.id.as_bytes(), &e);
        close(buf, start);
        f.filter.matches(Doc::new(buf), work)
    }
}

/// Finds the single top-level field name that a filter tests, including inside `$and`, `$or`, `$nor`.
fn identifier(d: Doc<'_>, found: &mut Option<String>, level: usize) -> Result<()> {
    if level > muniment_value::MAX_DEPTH {
        return Ok(());
    }
    for e in d {
        let name = e.name();
        if name.starts_with('$') {
            if let Value::Array(branches) = e.value() {
                for b in branches.values() {
                    if let Value::Document(b) = b {
                        identifier(b, found, level + 1)?;
                    }
                }
            }
            continue;
        }
        let id = name.split('.').next().unwrap_or_default();
        match found {
            None => *found = Some(id.to_string()),
            Some(other) if other != id => {
                return Err(Error::failed_to_parse(format!(
                    "Error parsing array filter :: caused by :: Expected a single top-level \
                     field name, found '{other}' and '{id}'"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn expressions_are_refused() {
        let filters = array![doc! { "$expr": true }];
        let e = ArrayFilters::parse(filters.as_doc(), &QueryContext::new()).err();
        assert_eq!(e.map(|e| e.code().0), Some(224));
    }
}
