//! Reading a view: find, count and distinct become a pipeline over the collection below it.

use super::Resolved;
use crate::aggregate::AggregateRequest;
use crate::count::CountRequest;
use crate::cursor::Cursor;
use crate::database::Database;
use crate::distinct::{DistinctRequest, Found};
use crate::explain::Explainable;
use crate::find::{FindRequest, Hint};
use crate::operation::OpContext;
use crate::plan::candidate::natural;
use muniment_query::Interrupt;
use muniment_value::path::Path;
use muniment_value::{ArrayBuf, Code, Doc, Error, Result, Value, doc, number};
use std::sync::Arc;

fn unsupported(option: &str) -> Error {
    Error::new(
        Code::InvalidPipelineOperator,
        format!("Option {option} not supported in aggregation."),
    )
}

/// The stages that a find stands for.
///
/// # Errors
/// 168 InvalidPipelineOperator for an option that no stage has.
pub(crate) fn find_stages(r: &FindRequest<'_>) -> Result<ArrayBuf> {
    for (given, option) in [
        (!r.min.is_empty(), "min"),
        (!r.max.is_empty(), "max"),
        (r.return_key, "returnKey"),
        (r.show_record_id, "showRecordId"),
        (r.tailable, "tailable"),
        (r.no_cursor_timeout, "noCursorTimeout"),
    ] {
        if given {
            return Err(unsupported(option));
        }
    }
    if r.sort.get_elem("$natural").is_some() {
        return Err(Error::new(
            Code::InvalidPipelineOperator,
            "Sort option {$natural: 1} not supported in aggregation.",
        ));
    }
    let finds_only = |v: Value<'_>| {
        v.as_doc()
            .is_some_and(|d| d.get_elem("$elemMatch").is_some())
    };
    if r.projection.values().any(finds_only) {
        return Err(Error::new(
            Code::InvalidPipelineOperator,
            "Unrecognized expression '$elemMatch'",
        ));
    }
    let mut stages = ArrayBuf::new();
    if !r.filter.is_empty() {
        stages.push(doc! { "$match": r.filter });
    }
    if !r.sort.is_empty() {
        stages.push(doc! { "$sort": r.sort });
    }
    if r.skip > 0 {
        stages.push(doc! { "$skip": i64::try_from(r.skip).unwrap_or(i64::MAX) });
    }
    if r.limit > 0 {
        stages.push(doc! { "$limit": i64::try_from(r.limit).unwrap_or(i64::MAX) });
    }
    if !r.projection.is_empty() {
        stages.push(doc! { "$project": r.projection });
    }
    Ok(stages)
}

/// The stages that a count stands for.
pub(crate) fn count_stages(r: &CountRequest<'_>) -> ArrayBuf {
    let mut stages = ArrayBuf::new();
    if !r.filter.is_empty() {
        stages.push(doc! { "$match": r.filter });
    }
    if r.skip > 0 {
        stages.push(doc! { "$skip": i64::try_from(r.skip).unwrap_or(i64::MAX) });
    }
    if r.limit > 0 {
        stages.push(doc! { "$limit": i64::try_from(r.limit).unwrap_or(i64::MAX) });
    }
    stages.push(doc! { "$count": "count" });
    stages
}

/// The stages that a distinct's query stands for.
pub(crate) fn distinct_stages(r: &DistinctRequest<'_>) -> ArrayBuf {
    let mut stages = ArrayBuf::new();
    if !r.filter.is_empty() {
        stages.push(doc! { "$match": r.filter });
    }
    stages
}

impl Database {
    /// Runs stages on top of a view; the cursor carries the view's name.
    pub(crate) fn aggregate_view(
        &self,
        op: &Arc<OpContext>,
        view: &Resolved,
        request: &AggregateRequest<'_>,
        name: &str,
    ) -> Result<Cursor> {
        let pipeline = view.with(request.pipeline);
        let (db, collection) = view.parts();
        let given = request.collation.as_ref();
        let below = AggregateRequest {
            db,
            collection: Some(collection),
            pipeline: pipeline.as_doc(),
            // A given one is the view's own; buckets have none of their own.
            collation: Some(given.unwrap_or(&view.collation).clone()),
            ..request.clone()
        };
        Ok(self.aggregate(op, &below)?.named(name))
    }

    /// The view that is read, and the stages that stand for the command; 166 for a write.
    #[allow(clippy::type_complexity)] // the pieces of one request
    pub(crate) fn view_below<'w>(
        &self,
        what: &'w Explainable<'w>,
    ) -> Result<Option<(Resolved, ArrayBuf, Option<Hint<'w>>, Doc<'w>)>> {
        let owned;
        let namespace = match what {
            Explainable::Find(r) => r.namespace,
            Explainable::Count(r) => r.namespace,
            Explainable::Distinct(r) => r.namespace,
            Explainable::Aggregate(r) => match r.collection {
                Some(c) => {
                    owned = format!("{}.{c}", r.db);
                    owned.as_str()
                }
                None => return Ok(None),
            },
            Explainable::Update { namespace, .. } | Explainable::Delete { namespace, .. } => {
                return self.refuse_rendered(namespace).map(|()| None);
            }
            Explainable::FindAndModify(r) => {
                return self.refuse_rendered(r.namespace).map(|()| None);
            }
            Explainable::MapReduce(r) => {
                return self.refuse_view(r.find.namespace).map(|()| None);
            }
        };
        let Some(view) = self.resolve_view(namespace)? else {
            return Ok(None);
        };
        let given = match what {
            Explainable::Find(r) => &r.collation,
            Explainable::Count(r) => &r.collation,
            Explainable::Distinct(r) => &r.collation,
            Explainable::Aggregate(r) => &r.collation,
            _ => &None,
        };
        if let Some(given) = given {
            view.check_collation(namespace, given)?;
        }
        let (stages, hint, let_) = match what {
            Explainable::Find(r) => (find_stages(r)?, r.hint, r.let_),
            Explainable::Count(r) => (count_stages(r), r.hint, r.let_),
            Explainable::Distinct(r) => (distinct_stages(r), r.hint, r.let_),
            Explainable::Aggregate(r) => {
                let mut stages = ArrayBuf::new();
                for v in r.pipeline.values() {
                    stages.push(v);
                }
                (stages, r.hint, r.let_)
            }
            _ => return Ok(None),
        };
        Ok(Some((view, stages, hint, let_)))
    }

    pub(crate) fn find_view(
        &self,
        op: &Arc<OpContext>,
        view: &Resolved,
        r: &FindRequest<'_>,
    ) -> Result<Cursor> {
        let reversed = doc! { "_id": -1 };
        let mut read = r.clone();
        if view.namespace == r.namespace {
            // Buckets have an order of their own, and their cursors may last.
            read.no_cursor_timeout = false;
            let hinted = match r.hint {
                Some(Hint::Pattern(p)) if r.sort.is_empty() => natural(p),
                _ => None,
            };
            if let Some(backward) = natural(r.sort).or(hinted) {
                read.sort = if backward {
                    reversed.as_doc()
                } else {
                    Doc::EMPTY
                };
            }
        }
        let stages = find_stages(&read)?;
        let request = AggregateRequest {
            hint: r.hint,
            allow_disk_use: r.allow_disk_use,
            collation: r.collation.clone(),
            ..AggregateRequest::new(view.parts().0, stages.as_doc(), r.let_)
        };
        let mut cursor = self.aggregate_view(op, view, &request, r.namespace)?;
        cursor.flags.single_batch = r.single_batch;
        cursor.flags.no_timeout = r.no_cursor_timeout;
        Ok(cursor)
    }

    pub(crate) fn count_view(
        &self,
        op: &Arc<OpContext>,
        view: &Resolved,
        r: &CountRequest<'_>,
    ) -> Result<u64> {
        let stages = count_stages(r);
        let request = AggregateRequest {
            hint: r.hint,
            collation: r.collation.clone(),
            ..AggregateRequest::new(view.parts().0, stages.as_doc(), r.let_)
        };
        let mut cursor = self.aggregate_view(op, view, &request, r.namespace)?;
        let n = cursor
            .next_doc(op)?
            .and_then(|d| Doc::new(&d).get("count").and_then(number::to_i64_exact));
        Ok(n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
    }

    pub(crate) fn distinct_view(
        &self,
        op: &Arc<OpContext>,
        view: &Resolved,
        r: &DistinctRequest<'_>,
    ) -> Result<ArrayBuf> {
        let stages = distinct_stages(r);
        let request = AggregateRequest {
            hint: r.hint,
            collation: r.collation.clone(),
            ..AggregateRequest::new(view.parts().0, stages.as_doc(), r.let_)
        };
        let mut cursor = self.aggregate_view(op, view, &request, r.namespace)?;
        let path = Path::new(r.key);
        let mut found = Found::new(r.collation.as_ref().unwrap_or(&view.collation));
        while let Some(d) = cursor.next_doc(op)? {
            op.check()?;
            found.add_path(Doc::new(&d), &path)?;
        }
        Ok(found.sorted())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::{Bench, NS};
    use crate::view::View;
    use muniment_value::{DocBuf, array};

    fn fixture() -> Bench {
        let f = Bench::new();
        let docs: Vec<DocBuf> = (0..10)
            .map(|i| doc! { "_id": i, "a": i % 3, "b": array![i, 7] })
            .collect();
        f.insert(&docs);
        assert_eq!(NS, "test.c");
        let view = View {
            on: "c".into(),
            pipeline: array![
                doc! { "$match": doc! { "_id": doc! { "$gte": 2 } } },
                doc! { "$set": doc! { "s": doc! { "$add": array!["$a", 1] } } },
            ],
            collation: Default::default(),
        };
        f.engine
            .create_view(&OpContext::internal("create"), "test.v", &view)
            .unwrap();
        let top = View {
            on: "v".into(),
            pipeline: array![doc! { "$match": doc! { "a": 0 } }],
            collation: Default::default(),
        };
        f.engine
            .create_view(&OpContext::internal("create"), "test.w", &top)
            .unwrap();
        f
    }

    #[test]
    fn reading_is_translated() {
        let f = fixture();
        let op = f.op.clone();
        let filter = doc! { "s": 1 };
        let sort = doc! { "_id": -1 };
        let projection = doc! { "s": 1 };
        let find = FindRequest {
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            projection: projection.as_doc(),
            skip: 1,
            limit: 1,
            ..FindRequest::new("test.v")
        };
        let mut cursor = f.engine.find(&op, &find).unwrap();
        assert_eq!(cursor.namespace(), "test.v");
        let d = cursor.next_doc(&op).unwrap().unwrap();
        assert_eq!(Doc::new(&d).to_buf(), doc! { "_id": 6, "s": 1 });
        assert!(cursor.next_doc(&op).unwrap().is_none());
        let n = f.engine.count(&op, &CountRequest::new("test.v")).unwrap();
        assert_eq!(n, 8);
        let n = f.engine.count(&op, &CountRequest::new("test.w")).unwrap();
        assert_eq!(n, 3);
        let distinct = DistinctRequest {
            namespace: "test.w",
            key: "b",
            filter: Doc::EMPTY,
            hint: None,
            let_: Doc::EMPTY,
            collation: None,
        };
        let values = f.engine.distinct(&op, &distinct).unwrap();
        assert_eq!(values, array![3, 6, 7, 9]);
    }

    #[test]
    fn options_that_no_stage_has() {
        let f = fixture();
        let op = f.op.clone();
        let code = |r: &FindRequest<'_>| f.engine.find(&op, r).err().unwrap().code().0;
        let natural: DocBuf = doc! { "$natural": 1 };
        for r in [
            FindRequest {
                return_key: true,
                ..FindRequest::new("test.v")
            },
            FindRequest {
                show_record_id: true,
                ..FindRequest::new("test.v")
            },
            FindRequest {
                tailable: true,
                ..FindRequest::new("test.v")
            },
            FindRequest {
                sort: natural.as_doc(),
                ..FindRequest::new("test.v")
            },
        ] {
            assert_eq!(code(&r), 168);
        }
    }

    #[test]
    fn writing_is_refused() {
        let f = fixture();
        let op = f.op.clone();
        let d = doc! { "x": 1 };
        let e = f
            .engine
            .insert_many(
                &op,
                "test.v",
                &|| Box::new(std::iter::once(d.as_doc())),
                crate::InsertOptions::default(),
            )
            .unwrap_err();
        assert_eq!(e.code(), Code::CommandNotSupportedOnView);
        let u = doc! { "$set": doc! { "x": 1 } };
        let s =
            crate::UpdateStatement::new(Doc::EMPTY, muniment_value::Value::Document(u.as_doc()));
        let e = f.engine.update(&op, "test.v", &s).unwrap_err();
        assert_eq!(e.code(), Code::CommandNotSupportedOnView);
    }
}
