//! `$merge`: writes the documents into a collection, and combines them with existing documents.

use super::registry::{Place, Spec};
use super::rights::{Named, Right, Rights};
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, idl, write_stream};
use crate::context::{QueryContext, Runtime};
use crate::expr::{Expr, Parser};
use crate::sort::check_field_path;
use muniment_value::path::Path;
use muniment_value::{Code, Doc, DocBuf, Elem, Error, Result, Value, ValueBuf};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$merge",
    doc: "Writes the documents into a collection, merging with those that are there.",
    place: Place::END,
    spread: Spread::Router,
    rights: Rights::Also(|operand, right| {
        let (into, inserts, updates) = match operand {
            Value::Document(d) => (
                d.get("into"),
                !matches!(d.get_str("whenNotMatched"), Some("discard" | "fail")),
                !matches!(d.get_str("whenMatched"), Some("keepExisting" | "fail")),
            ),
            name => (Some(name), true, true),
        };
        let Some(into) = Named::of(into) else { return };
        right(Right::Output(
            into,
            match (inserts, updates) {
                (true, true) => &["insert", "update"],
                (true, false) => &["insert"],
                (false, true) => &["update"],
                // It finds out which documents there are.
                (false, false) => &["find"],
            },
        ));
    }),
    parse,
};

/// The treatment of a document that already exists.
#[derive(Clone, Debug, PartialEq)]
pub enum WhenMatched {
    /// The new document replaces it.
    Replace,
    /// It stays as it is.
    KeepExisting,
    /// The new document's fields are set in it.
    Merge,
    /// The stage fails.
    Fail,
    /// The result is computed by a pipeline update, in which `$$new` is the new document.
    Pipeline(DocBuf),
}

/// The treatment of a document that does not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// It is inserted.
    Insert,
    /// It is discarded.
    Discard,
    /// The stage fails.
    Fail,
}

/// A parsed `$merge`.
#[derive(Clone, Debug)]
pub struct MergeSpec {
    /// The target's database.
    pub db: String,
    /// The target.
    pub collection: String,
    /// The fields that identify a document; empty if the operand does not name any (`_id`).
    pub on: Vec<Path>,
    /// The treatment of a document that already exists.
    pub when_matched: WhenMatched,
    /// The treatment of a document that does not.
    pub when_not_matched: WhenNotMatched,
    /// Variables of the pipeline, evaluated on the new document: name and expression.
    pub let_: Vec<(String, Expr)>,
    /// `let`, `whenMatched` and `whenNotMatched` as they were written.
    pub written: DocBuf,
}

impl MergeSpec {
    /// Parses the stage's operand.
    ///
    /// # Errors
    /// Those of the stage.
    pub fn parse(operand: Value<'_>, ctx: &QueryContext) -> Result<MergeSpec> {
        let spec = match operand {
            Value::String("") => {
                return Err(Error::new(
                    Code::InvalidNamespace,
                    format!("Invalid $merge target namespace, {}.", ctx.db),
                ));
            }
            Value::String(s) => MergeSpec {
                db: ctx.db.clone(),
                collection: s.to_string(),
                on: Vec::new(),
                when_matched: WhenMatched::Merge,
                when_not_matched: WhenNotMatched::Insert,
                let_: Vec::new(),
                written: DocBuf::new(),
            },
            Value::Document(d) => parse_fields(d, ctx)?,
            v => {
                return Err(Error::type_mismatch(format!(
                    "$merge only supports a string or object argument, not {}",
                    v.type_name()
                )));
            }
        };
        check_target(&spec)?;
        Ok(spec)
    }
}

impl WhenMatched {
    fn name(&self) -> &'static str {
        match self {
            WhenMatched::Replace => "replace",
            WhenMatched::KeepExisting => "keepExisting",
            WhenMatched::Merge => "merge",
            WhenMatched::Fail => "fail",
            WhenMatched::Pipeline(_) => "pipeline",
        }
    }
}

impl WhenNotMatched {
    fn name(self) -> &'static str {
        match self {
            WhenNotMatched::Insert => "insert",
            WhenNotMatched::Discard => "discard",
            WhenNotMatched::Fail => "fail",
        }
    }
}

const FIELDS: &[&str] = &["into", "on", "let", "whenMatched", "whenNotMatched"];

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let spec = MergeSpec::parse(e.value(), ctx)?;
    stages.push(Stage::Other(Arc::new(Merge {
        spec,
        ctx: ctx.clone(),
    })));
    Ok(())
}

fn empty_target() -> Error {
    Error::location(
        5_786_800,
        "Invalid $merge target: the collection name is empty",
    )
}

fn parse_fields(d: Doc<'_>, ctx: &QueryContext) -> Result<MergeSpec> {
    idl::only("$merge", d, FIELDS)?;
    let (db, collection) = match d.get("into") {
        None => return Err(idl::missing("$merge", "into")),
        Some(into) => target(into, ctx)?,
    };
    let on = match d.get("on") {
        None => Vec::new(),
        Some(v) => parse_on(v)?,
    };
    let when_matched = match d.get("whenMatched") {
        None => WhenMatched::Merge,
        Some(v) => parse_when_matched(v)?,
    };
    let when_not_matched = match d.get("whenNotMatched") {
        None | Some(Value::Null) => WhenNotMatched::Insert,
        Some(Value::String("insert")) => WhenNotMatched::Insert,
        Some(Value::String("discard")) => WhenNotMatched::Discard,
        Some(Value::String("fail")) => WhenNotMatched::Fail,
        Some(Value::String(other)) => return Err(not_in_enumeration("whenNotMatched", other)),
        Some(v) => return Err(idl::wrong_type("$merge", "whenNotMatched", v, "string")),
    };
    let let_ = match d.get("let").filter(|v| !matches!(v, Value::Null)) {
        None => Vec::new(),
        Some(Value::Document(_)) if !matches!(when_matched, WhenMatched::Pipeline(_)) => {
            return Err(Error::location(
                51199,
                format!(
                    "Cannot use 'let' variables with 'whenMatched: {}' mode",
                    when_matched.name()
                ),
            ));
        }
        Some(Value::Document(vars)) => parse_let(vars, ctx)?,
        Some(v) => return Err(idl::wrong_type("$merge", "let", v, "object")),
    };
    let unsupported = matches!(
        (&when_matched, when_not_matched),
        (
            WhenMatched::KeepExisting | WhenMatched::Fail,
            WhenNotMatched::Discard | WhenNotMatched::Fail
        )
    );
    if unsupported {
        return Err(Error::location(
            51181,
            format!(
                "Combination of {{whenMatched: {}, whenNotMatched: {}}} is not supported",
                when_matched.name(),
                when_not_matched.name()
            ),
        ));
    }
    let mut written = DocBuf::new();
    for name in ["let", "whenMatched", "whenNotMatched"] {
        written.append_some(name, d.get(name));
    }
    Ok(MergeSpec {
        db,
        collection,
        on,
        when_matched,
        when_not_matched,
        let_,
        written,
    })
}

fn not_in_enumeration(field: &str, value: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field '$merge.{field}' is not a valid value."
    ))
}

fn target(into: Value<'_>, ctx: &QueryContext) -> Result<(String, String)> {
    match into {
        Value::String("") => Err(empty_target()),
        Value::String(s) => Ok((ctx.db.clone(), s.to_string())),
        Value::Document(d) => {
            idl::only("$merge.into", d, &["db", "coll"])?;
            let text = |field: &str| match d.get(field) {
                Some(Value::Null) => Ok(None),
                _ => idl::string("$merge.into", d, field),
            };
            let db = text("db")?.filter(|s| !s.is_empty());
            let coll = text("coll")?.ok_or_else(|| {
                Error::location(
                    5_786_801,
                    "Invalid $merge target: 'into' has no collection name",
                )
            })?;
            if coll.is_empty() {
                return Err(empty_target());
            }
            Ok((db.unwrap_or(&ctx.db).to_string(), coll.to_string()))
        }
        v => Err(Error::location(
            51178,
            format!(
                "$merge 'into' field  must be either a string or an object, but found {}",
                v.type_name()
            ),
        )),
    }
}

fn parse_on(on: Value<'_>) -> Result<Vec<Path>> {
    let mut fields: Vec<Path> = Vec::new();
    let mut add = |name: &str| {
        check_field_path(name)?;
        if name.contains('\0') {
            return Err(Error::location(
                16411,
                "FieldPath field names may not contain '\\0'.",
            ));
        }
        if fields.iter().any(|f| f.as_str() == name) {
            return Err(Error::location(
                31465,
                format!("Found a duplicate field '{name}'"),
            ));
        }
        fields.push(Path::new(name));
        Ok(())
    };
    match on {
        Value::String(s) => add(s)?,
        Value::Array(items) => {
            for v in items.values() {
                match v {
                    Value::String(s) => add(s)?,
                    v => {
                        return Err(Error::location(
                            51134,
                            format!(
                                "$merge 'on' array elements must be strings, but found {}",
                                v.type_name()
                            ),
                        ));
                    }
                }
            }
        }
        v => {
            return Err(Error::location(
                51186,
                format!(
                    "$merge 'on' field  must be either a string or an array of strings, but found {}",
                    v.type_name()
                ),
            ));
        }
    }
    if fields.is_empty() {
        return Err(Error::location(
            51187,
            "If explicitly specifying $merge 'on', must include at least one field",
        ));
    }
    Ok(fields)
}

fn parse_when_matched(v: Value<'_>) -> Result<WhenMatched> {
    Ok(match v {
        Value::String("replace") => WhenMatched::Replace,
        Value::String("keepExisting") => WhenMatched::KeepExisting,
        Value::String("merge") => WhenMatched::Merge,
        Value::String("fail") => WhenMatched::Fail,
        Value::String(other) => return Err(not_in_enumeration("whenMatched", other)),
        Value::Array(stages) => {
            // The stages themselves are checked when the first document arrives.
            if !stages.values().all(|s| s.as_doc().is_some()) {
                return Err(Error::type_mismatch(
                    "Each element of the 'pipeline' array must be an object",
                ));
            }
            WhenMatched::Pipeline(stages.to_buf())
        }
        v => {
            return Err(Error::location(
                51191,
                format!(
                    "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                    v.type_name()
                ),
            ));
        }
    })
}

fn parse_let(vars: Doc<'_>, ctx: &QueryContext) -> Result<Vec<(String, Expr)>> {
    let mut parsed = Vec::new();
    for e in vars {
        crate::expr::check_user_variable(e.name())?;
        if e.name() == "new" && !matches!(e.value(), Value::String("$$ROOT")) {
            return Err(Error::location(
                51273,
                "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'",
            ));
        }
        let expr = Parser::new(ctx).parse(e.value())?;
        parsed.push((e.name().to_string(), expr));
    }
    Ok(parsed)
}

fn check_target(spec: &MergeSpec) -> Result<()> {
    if matches!(spec.db.as_str(), "admin" | "config" | "local") {
        return Err(Error::location(
            31320,
            format!("Cannot $merge to internal database: {}", spec.db),
        ));
    }
    if spec.collection.starts_with("system.") {
        return Err(Error::location(
            31319,
            format!("Cannot $merge to special collection: {}", spec.collection),
        ));
    }
    Ok(())
}

#[derive(Debug)]
struct Merge {
    spec: MergeSpec,
    ctx: QueryContext,
}

impl StageOp for Merge {
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        let writer = rt.host.merge(&self.spec, &self.ctx)?;
        Ok(write_stream::open(source, writer, rt))
    }

    fn writes(&self) -> bool {
        true
    }

    fn check(&self, rt: &Runtime) -> Result<()> {
        rt.host.merge(&self.spec, &self.ctx).map(drop)
    }
}

impl MergeSpec {
    /// The document's values of the `on` fields, in the order of the fields; `None` for a missing one.
    pub fn on_values(&self, doc: Doc<'_>) -> Vec<(String, Option<ValueBuf>)> {
        self.on
            .iter()
            .map(|p| (p.as_str().to_string(), p.get_exact(doc).map(ValueBuf::new)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::super::Pipeline;
    use super::*;
    use crate::update::testing::json_array;

    fn error(stage: &str) -> String {
        let stages = json_array(&format!("[{stage}]"));
        let ctx = QueryContext {
            db: "db".into(),
            ..QueryContext::new()
        };
        match Pipeline::check(stages.as_doc(), &ctx)
            .and_then(|()| Pipeline::parse(stages.as_doc(), &ctx))
        {
            Ok(_) => "ok".into(),
            Err(e) => e.code().0.to_string(),
        }
    }

    #[test]
    fn operands_are_checked() {
        for (stage, want) in [
            ("{$merge: 't'}", "ok"),
            (
                "{$merge: {into: {db: 'x', coll: 't'}, on: ['a', 'b']}}",
                "ok",
            ),
            ("{$merge: 1}", "14"),
            ("{$merge: ''}", "73"),
            ("{$merge: {}}", "40414"),
            ("{$merge: {into: 1}}", "51178"),
            ("{$merge: {into: {db: 'x'}}}", "5786801"),
            ("{$merge: {into: 't', on: 1}}", "51186"),
            ("{$merge: {into: 't', on: []}}", "51187"),
            ("{$merge: {into: 't', on: [1]}}", "51134"),
            ("{$merge: {into: 't', on: ['a', 'a']}}", "31465"),
            ("{$merge: {into: 't', on: '$a'}}", "16410"),
            ("{$merge: {into: 't', whenMatched: 1}}", "51191"),
            ("{$merge: {into: 't', whenMatched: 'x'}}", "2"),
            ("{$merge: {into: 't', whenMatched: [1]}}", "14"),
            ("{$merge: {into: 't', whenNotMatched: 1}}", "14"),
            ("{$merge: {into: 't', let: {v: 1}}}", "51199"),
            (
                "{$merge: {into: 't', let: {new: 1}, whenMatched: []}}",
                "51273",
            ),
            (
                "{$merge: {into: 't', whenMatched: 'fail', whenNotMatched: 'fail'}}",
                "51181",
            ),
            ("{$merge: {into: 't', x: 1}}", "40415"),
            ("{$merge: {into: {db: 'admin', coll: 't'}}}", "31320"),
            ("{$merge: 'system.x'}", "31319"),
            ("{$merge: 't'}, {$limit: 1}", "40601"),
        ] {
            assert_eq!(error(stage), want, "{stage}");
        }
    }
}
