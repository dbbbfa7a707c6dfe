//! The metadata that is known when a row leaves its plan: sort keys, index key and record id.
//! Metadata that only a stage knows (distances, scores) is attached by that stage.

use super::Row;
use super::key_document;
use super::recipe::Recipe;
use crate::plan::access::{Access, Candidate};
use bytes::Bytes;
use muniment_query::meta::{Meta, attach, binary};
use muniment_query::{MetaSet, SortSpec};
use muniment_storage::Collection;
use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf, Result, Value};
use std::sync::Arc;

/// The metadata that a plan attaches.
pub(super) struct RowMetadata {
    wanted: MetaSet,
    sort: Option<SortSpec>,
    key: Key,
    collection: Arc<Collection>,
}

/// The source of a row's index key.
enum Key {
    /// Rows have no index key.
    Not,
    /// The document's own `_id`.
    Id,
    /// The row's key of an index with these fields.
    Row(Vec<(Path, bool)>),
}

impl RowMetadata {
    /// The metadata that the plan has to attach; `None` if there is none.
    pub(super) fn of(recipe: &Recipe, candidate: &Candidate) -> Option<RowMetadata> {
        let sorted = recipe.sort.is_some() && recipe.metadata.has(Meta::MergeKey);
        let here = [Meta::IndexKey, Meta::RecordId, Meta::SortKey];
        if !sorted && !here.iter().any(|m| recipe.metadata.has(*m)) {
            return None;
        }
        let key = match &candidate.access {
            Access::IdHack(_) => Key::Id,
            Access::Index(a) if a.bound.info.clustered => Key::Id,
            Access::Index(a) => Key::Row(a.bound.info.fields().to_vec()),
            _ => Key::Not,
        };
        Some(RowMetadata {
            wanted: recipe.metadata,
            sort: recipe.sort.as_ref().map(|(s, _)| s.clone()),
            key,
            collection: recipe.collection.clone(),
        })
    }

    /// The row's document with its metadata attached.
    pub(super) fn attach(&self, row: &Row) -> Result<Bytes> {
        let doc = Doc::new(&row.doc);
        let key = match &self.key {
            _ if !self.wanted.has(Meta::IndexKey) => None,
            Key::Not => None,
            Key::Id => doc.get_elem("_id").map(|id| {
                let mut d = DocBuf::new();
                d.append_elem(id);
                d
            }),
            Key::Row(_) if row.key.is_empty() => None,
            Key::Row(fields) => Some(key_document(fields, row)?),
        };
        let sort = match &self.sort {
            Some(s) if self.wanted.has(Meta::SortKey) => Some(s.values(doc)?),
            _ => None,
        };
        let mut merge_key = Vec::new();
        let mut kinds = Vec::new();
        if let Some(s) = &self.sort
            && self.wanted.has(Meta::MergeKey)
        {
            s.key(doc, &mut merge_key)?;
            kinds.push((Meta::MergeKey, binary(&merge_key)));
        }
        if let Some(k) = &key {
            kinds.push((Meta::IndexKey, Value::Document(k.as_doc())));
        }
        if let Some(s) = &sort {
            kinds.push((Meta::SortKey, Value::Array(s.as_doc())));
        }
        if self.wanted.has(Meta::RecordId) {
            kinds.push((Meta::RecordId, self.collection.record_id(&row.record_key)));
        }
        Ok(attach(doc, &kinds))
    }
}
