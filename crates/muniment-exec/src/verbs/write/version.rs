//! The document that holds the feature compatibility version. No write may delete or corrupt it.

use crate::operation::OpContext;
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Write;
use muniment_query::MatchInfo;
use muniment_storage::Store;
use muniment_value::{Code, Doc, Error, Result, Value};

/// The collection that holds it.
pub const VERSION_COLLECTION: &str = "admin.system.version";
/// The document's `_id`.
pub const VERSION_DOCUMENT: &str = "featureCompatibilityVersion";

/// Refuses a write that would leave the collection without a valid feature compatibility version.
///
/// # Errors
/// 40670 for a delete that matches the document; 2 BadValue for an update that would change the
/// version.
pub(super) fn check_version(store: &Store, op: &OpContext, write: &Write<'_>) -> Result<()> {
    let Some(c) = store.collection(VERSION_COLLECTION) else {
        return Ok(());
    };
    let id = Value::String(VERSION_DOCUMENT);
    let Some((_, found)) = store.snapshot().find_by_id(&c, id)? else {
        return Ok(());
    };
    let found = Doc::new(&found);
    if !write.filter.matches(found, op.work())? {
        return Ok(());
    }
    let Change::Update { update, .. } = &write.change else {
        return Err(Error::location(
            40670,
            "removing FeatureCompatibilityVersion document is not allowed",
        ));
    };
    let mut new = Vec::new();
    let changed = update.apply(found, MatchInfo::default(), &mut new, op.work())?;
    let version = Doc::new(&new).get_str("version");
    if changed && version != Some("8.0") {
        return Err(Error::new(
            Code::BadValue,
            format!(
                "Invalid feature compatibility version value '{}'; expected '8.0'. See the \
                 manual about the feature compatibility version.",
                version.unwrap_or_default()
            ),
        ));
    }
    Ok(())
}
