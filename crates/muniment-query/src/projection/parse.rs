//! Parses projections, and refuses contradictions with MongoDB's codes.

use super::{Action, Field, Fields, Mode, Projection, switch};
use crate::context::QueryContext;
use crate::expr::Expr;
use crate::filter::{Filter, Node};
use crate::sort::check_field_path;
use muniment_value::{Code, Doc, DocBuf, Elem, Error, MAX_DEPTH, Result, Value};

/// The command or stage that a projection belongs to.
#[derive(Clone, Copy)]
pub(crate) enum Dialect<'f> {
    /// find, with its `$slice`, `$elemMatch` and `$`, and the command's filter.
    Find(Option<&'f Filter>),
    /// The `$project` stage.
    Stage,
    /// The `$addFields` stage.
    AddFields,
}

struct State<'c> {
    dialect: Dialect<'c>,
    ctx: &'c QueryContext,
    root: Fields,
    mode: Option<Mode>,
    id_included: bool,
    id_named: bool,
    elem_match: bool,
    meta: bool,
    positional: bool,
}

pub(super) fn parse(doc: Doc<'_>, dialect: Dialect<'_>, ctx: &QueryContext) -> Result<Projection> {
    let mut s = State {
        dialect,
        ctx,
        root: Fields::default(),
        mode: None,
        id_included: false,
        id_named: false,
        elem_match: false,
        meta: false,
        positional: false,
    };
    match dialect {
        Dialect::Find(_) => {}
        Dialect::Stage if doc.is_empty() => {
            return Err(Error::location(
                51272,
                "projection specification must have at least one field",
            ));
        }
        Dialect::Stage => {}
        Dialect::AddFields => s.mode = Some(Mode::Addition),
    }
    for e in doc {
        s.element(e, e.name(), 0)?;
    }
    // If only metadata are named, find keeps the document's fields and `$project` does not.
    let meta = s.meta && matches!(dialect, Dialect::Stage);
    let mode = s.mode.unwrap_or(if s.id_included || s.elem_match || meta {
        Mode::Inclusion
    } else {
        Mode::Exclusion
    });
    if mode == Mode::Inclusion && !s.id_named {
        s.root.fields.insert(
            0,
            Field {
                name: "_id".to_string(),
                action: Action::Include,
            },
        );
    }
    Ok(Projection {
        root: s.root,
        mode,
        positional: s.positional,
    })
}

pub(super) fn excluding<'p>(paths: impl Iterator<Item = &'p str>) -> Result<Projection> {
    let mut root = Fields::default();
    for path in paths {
        check_field_path(path)?;
        root.add(path, Action::Exclude)?;
    }
    Ok(Projection {
        root,
        mode: Mode::Exclusion,
        positional: false,
    })
}

impl State<'_> {
    fn element(&mut self, e: Elem<'_>, path: &str, level: usize) -> Result<()> {
        if level > MAX_DEPTH {
            return Err(crate::bytes::too_deep());
        }
        let find = matches!(self.dialect, Dialect::Find(_));
        if path.ends_with(".$") && matches!(self.dialect, Dialect::Stage) {
            return Err(Error::location(
                31324,
                "Cannot use positional projection in aggregation projection",
            ));
        }
        if path.contains(".$.") && find {
            return Err(Error::location(
                31394,
                format!(
                    "As of 4.4, it's illegal to specify positional operator in the middle of a \
                     path. Positional projection may only be used at the end, for example: a.b.$. \
                     Found {path}"
                ),
            ));
        }
        if find && let Some(base) = path.strip_suffix(".$") {
            return self.positional(base, e);
        }
        check_field_path(path)?;
        if self.mode != Some(Mode::Addition)
            && let Some(include) = switch(e.value())
        {
            return self.switch(path, include);
        }
        match e.value() {
            Value::Document(d) => self.document(d, path, level),
            v => self.compute(path, v),
        }
    }

    /// A document as the value of a field: an expression, an operator of projections, or the projection of the
    /// fields below.
    fn document(&mut self, d: Doc<'_>, path: &str, level: usize) -> Result<()> {
        let find = matches!(self.dialect, Dialect::Find(_));
        let Some(first) = d.first() else {
            if self.mode == Some(Mode::Addition) {
                return self.compute(path, Value::Document(d));
            }
            return Err(Error::location(
                51270,
                format!(
                    "An empty sub-projection is not a valid value. Found empty object at path {path}"
                ),
            ));
        };
        if d.count() > 1 && first.name().starts_with('$') {
            return if self.mode == Some(Mode::Addition) {
                Err(Error::location(
                    40181,
                    format!(
                        "an expression specification must contain exactly one field, the name of \
                         the expression. Found {} fields in {}",
                        d.count(),
                        Value::Document(d).to_display()
                    ),
                ))
            } else {
                check_field_path(first.name())
            };
        }
        if first.name() == "$meta" {
            // Metadata are also allowed in an exclusion, and do not decide the mode.
            let expr = Expr::parse(Value::Document(d), self.ctx)?;
            self.meta = true;
            return self.add(path, Action::Compute(Box::new(expr)));
        }
        if find
            && first.name() == "$slice"
            && let Some((skip, limit)) = slice(first)?
        {
            return self.add(path, Action::Slice { skip, limit });
        }
        if find && first.name() == "$elemMatch" {
            return self.elem_match(path, first);
        }
        if first.name().starts_with('$') {
            return self.compute(path, Value::Document(d));
        }
        for sub in d {
            if self.mode == Some(Mode::Addition) && sub.name().contains('.') {
                return Err(Error::location(
                    40183,
                    format!(
                        "FieldPath field names may not contain '.' in sub-object: {}",
                        sub.name()
                    ),
                ));
            }
            self.element(sub, &format!("{path}.{}", sub.name()), level + 1)?;
        }
        Ok(())
    }

    fn switch(&mut self, path: &str, include: bool) -> Result<()> {
        if path == "_id" {
            self.id_included |= include;
        } else if include {
            if self.mode == Some(Mode::Exclusion) {
                return Err(Error::location(
                    31253,
                    format!("Cannot do inclusion on field {path} in exclusion projection"),
                ));
            }
            self.mode = Some(Mode::Inclusion);
        } else {
            if self.mode == Some(Mode::Inclusion) {
                return Err(Error::location(
                    31254,
                    format!("Cannot do exclusion on field {path} in inclusion projection"),
                ));
            }
            self.mode = Some(Mode::Exclusion);
        }
        self.add(
            path,
            if include {
                Action::Include
            } else {
                Action::Exclude
            },
        )
    }

    fn compute(&mut self, path: &str, v: Value<'_>) -> Result<()> {
        if self.mode == Some(Mode::Exclusion) {
            return Err(match v {
                Value::Document(_) => Error::location(
                    31252,
                    "Cannot use expression other than $meta in exclusion projection",
                ),
                _ => Error::location(
                    31310,
                    format!(
                        "Cannot use an expression {path}: {} in an exclusion projection",
                        v.to_display()
                    ),
                ),
            });
        }
        let expr = Expr::parse(v, self.ctx).map_err(|e| match v {
            // For an unknown operator, find and $project have their own code.
            Value::Document(d)
                if self.mode != Some(Mode::Addition)
                    && e.code() == Code::InvalidPipelineOperator
                    && e.message().starts_with("Unrecognized expression") =>
            {
                match d.first() {
                    // $elemMatch is a known operator, but only in find.
                    Some(f)
                        if f.name() != "$elemMatch"
                            && e.message().ends_with(&format!("'{}'", f.name())) =>
                    {
                        Error::location(31325, format!("Unknown expression {}", f.name()))
                    }
                    _ => e,
                }
            }
            _ => e,
        })?;
        self.mode = self.mode.or(Some(Mode::Inclusion));
        self.add(path, Action::Compute(Box::new(expr)))
    }

    fn positional(&mut self, path: &str, e: Elem<'_>) -> Result<()> {
        match (switch(e.value()), e.value()) {
            (Some(true), _) => {}
            (Some(false), _) => return Err(exclusion()),
            (None, Value::Document(_)) => {
                return Err(Error::location(
                    31271,
                    format!(
                        "positional projection cannot be used with an expression or sub object: {path}.$"
                    ),
                ));
            }
            (None, _) => {
                return Err(Error::location(
                    31308,
                    format!("positional projection cannot be used with a literal: {path}.$"),
                ));
            }
        }
        check_field_path(path)?;
        if self.positional {
            return Err(Error::location(
                31276,
                "Cannot specify more than one positional projection per query.",
            ));
        }
        if self.elem_match {
            return Err(Error::location(
                31256,
                "Cannot specify positional operator and $elemMatch.",
            ));
        }
        if self.mode == Some(Mode::Exclusion) {
            return Err(exclusion());
        }
        if let Dialect::Find(Some(f)) = self.dialect
            && has_expr(f.root())
        {
            return Err(Error::new(
                Code::QueryFeatureNotAllowed,
                "the positional projection cannot be used with $expr in the query",
            ));
        }
        self.mode = Some(Mode::Inclusion);
        self.positional = true;
        self.add(path, Action::Positional)
    }

    fn elem_match(&mut self, path: &str, e: Elem<'_>) -> Result<()> {
        let Value::Document(of) = e.value() else {
            return Err(Error::location(
                31274,
                format!(
                    "elemMatch: Invalid argument, object required, but got {}",
                    e.value().type_name()
                ),
            ));
        };
        if self.positional {
            return Err(Error::location(
                31255,
                "Cannot specify positional operator and $elemMatch.",
            ));
        }
        if path.contains('.') {
            return Err(Error::location(
                31275,
                "Cannot use $elemMatch projection on a nested field",
            ));
        }
        if of.get("$jsonSchema").is_some() {
            return Err(Error::new(
                Code::QueryFeatureNotAllowed,
                "$jsonSchema is not allowed in this context",
            ));
        }
        let mut condition = DocBuf::new();
        condition.append_elem(e);
        let mut wrapped = DocBuf::new();
        wrapped.append("e", condition);
        let filter = Filter::parse(wrapped.as_doc(), self.ctx)?;
        self.elem_match = true;
        self.add(path, Action::ElemMatch(Box::new(filter)))
    }

    fn add(&mut self, path: &str, action: Action) -> Result<()> {
        self.id_named |= path == "_id" || path.starts_with("_id.");
        self.root.add(path, action)
    }
}

impl Fields {
    /// Adds `action` at `path`.
    ///
    /// 31250 if the path exists already or has fields below it; 31249 if a field above it exists.
    /// 31250 when the path is there or has fields below it; 31249 when a field above it is.
    fn add(&mut self, path: &str, action: Action) -> Result<()> {
        let computes = matches!(action, Action::Compute(_) | Action::ElemMatch(_));
        let mut at = self;
        let mut rest = path;
        loop {
            at.computes |= computes;
            let Some((name, below)) = rest.split_once('.') else {
                if at.find(rest.as_bytes()).is_some() {
                    return Err(Error::location(31250, format!("Path collision at {path}")));
                }
                at.fields.push(Field {
                    name: rest.to_string(),
                    action,
                });
                return Ok(());
            };
            let i = match at.find(name.as_bytes()) {
                Some(i) => i,
                None => {
                    at.fields.push(Field {
                        name: name.to_string(),
                        action: Action::Below(Fields::default()),
                    });
                    at.fields.len() - 1
                }
            };
            match at.fields.get_mut(i).map(|f| &mut f.action) {
                Some(Action::Below(fields)) => at = fields,
                _ => {
                    return Err(Error::location(
                        31249,
                        format!("Path collision at {path} remaining portion {below}"),
                    ));
                }
            }
            rest = below;
        }
    }
}

/// find's `$slice` with a number, or with skip and limit. `None` leaves anything else to the expression of
/// the same name.
fn slice(e: Elem<'_>) -> Result<Option<(i64, i64)>> {
    use muniment_value::number::to_i64_clamped;
    match e.value() {
        v if v.is_number() => {
            let n = to_i64_clamped(v).unwrap_or(0);
            // A negative number counts from the end.
            Ok(Some(if n < 0 {
                (n, n.checked_neg().unwrap_or(i64::MAX))
            } else {
                (0, n)
            }))
        }
        Value::Array(a) => {
            let values: Vec<Value<'_>> = a.values().take(3).collect();
            match values.as_slice() {
                [skip, limit] if skip.is_number() && limit.is_number() => {
                    let limit = to_i64_clamped(*limit).unwrap_or(0);
                    if limit <= 0 {
                        return Err(Error::location(
                            28724,
                            "First argument to $slice must be an array, but is of type: int; \
                             as a find projection, its limit must be positive",
                        ));
                    }
                    Ok(Some((to_i64_clamped(*skip).unwrap_or(0), limit)))
                }
                _ => Ok(None),
            }
        }
        _ => Err(Error::location(
            28667,
            format!(
                "Invalid $slice syntax. The given syntax {{ {} }} did not match the find() syntax",
                crate::bytes::show(e)
            ),
        )),
    }
}

/// 31395, for `$` in an exclusion.
fn exclusion() -> Error {
    Error::location(31395, "positional projection cannot be used with exclusion")
}

/// Whether the filter has an `$expr`.
fn has_expr(node: &Node) -> bool {
    match node {
        Node::And(nodes) | Node::Or(nodes) | Node::Nor(nodes) => nodes.iter().any(has_expr),
        Node::Expr { .. } => true,
        _ => false,
    }
}
