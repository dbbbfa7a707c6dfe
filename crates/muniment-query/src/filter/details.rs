//! Why a document does not match a filter: `errInfo.details` of a failed validation.
//!
//! The module works on the filter as it was written, clause by clause, and matches each clause separately. It
//! is only called after a failure. Invariants: for one clause it shows at most [`MAX_CONSIDERED`] values of
//! the document; a clause that cannot be evaluated is named without a reason.
//!
//! Source: the MongoDB manual, "Specify JSON Schema Validation" and "Specify Validation With
//! Query Operators", which show these replies.

use super::Filter;
use super::parse::is_operators;
use super::schema::Schema;
use crate::context::QueryContext;
use crate::expr::{EvalContext, Expr, arena};
use crate::running::Work;
use muniment_value::path::{Path, visit};
use muniment_value::{ArrayBuf, Doc, DocBuf, Type, Value, ValueBuf, doc};

/// The most values of the document that are shown for one clause.
const MAX_CONSIDERED: usize = 10;

/// Clauses nested deeper than this are not taken apart.
const MAX_DEPTH: usize = 100;

/// Explains why `document` does not match `filter`.
pub fn details(filter: Doc<'_>, document: Doc<'_>, work: Work<'_>) -> DocBuf {
    Explain {
        document,
        ctx: QueryContext {
            task: work.task(),
            ..QueryContext::new()
        },
    }
    .filter(filter, false, 0)
}

/// One condition of a filter.
struct Clause<'f> {
    /// The operator; `$eq` for a plain value.
    operator: &'f str,
    /// The path; `None` for an operator that stands next to fields, not below one.
    path: Option<&'f str>,
    operand: Value<'f>,
    /// The clause as a separate filter, as it was written.
    source: DocBuf,
}

/// The conditions at the top level of a filter.
fn clauses(filter: Doc<'_>) -> Vec<Clause<'_>> {
    let mut out = Vec::new();
    for e in filter {
        let name = e.name();
        if name == "$comment" {
            continue;
        }
        let mut source = DocBuf::new();
        match e.value() {
            operand if name.starts_with('$') => {
                source.append(name, operand);
                out.push(Clause {
                    operator: name,
                    path: None,
                    operand,
                    source,
                });
            }
            Value::Document(d) if is_operators(d) => {
                for op in d {
                    if matches!(op.name(), "$options" | "$comment") {
                        continue;
                    }
                    let mut inner = DocBuf::new();
                    inner.append_elem(op);
                    if op.name() == "$regex" {
                        inner.append_some("$options", d.get("$options"));
                    }
                    let mut source = DocBuf::new();
                    source.append(name, inner);
                    out.push(Clause {
                        operator: op.name(),
                        path: Some(name),
                        operand: op.value(),
                        source,
                    });
                }
            }
            operand => {
                source.append(name, operand);
                let operator = match operand {
                    Value::Regex { .. } => "$regex",
                    _ => "$eq",
                };
                out.push(Clause {
                    operator,
                    path: Some(name),
                    operand,
                    source,
                });
            }
        }
    }
    out
}

/// The reasons that an operator gives: when it did not match, and when it did.
fn reasons(operator: &str) -> (&'static str, &'static str) {
    match operator {
        "$ne" => ("comparison succeeded", "comparison failed"),
        "$in" => (
            "no matching value found in array",
            "matching value found in array",
        ),
        "$nin" => (
            "matching value found in array",
            "no matching value found in array",
        ),
        "$exists" => ("path does not exist", "path does exist"),
        "$type" => ("type did not match", "type did match"),
        "$regex" => (
            "regular expression did not match",
            "regular expression did match",
        ),
        "$mod" => (
            "$mod did not evaluate to expected remainder",
            "$mod did evaluate to expected remainder",
        ),
        "$size" => (
            "array length was not equal to given size",
            "array length was equal to given size",
        ),
        "$elemMatch" => (
            "array did not satisfy the child predicate",
            "array did satisfy the child predicate",
        ),
        "$all" => (
            "array did not contain all specified values",
            "array did contain all specified values",
        ),
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => (
            "bitwise operator failed to match",
            "bitwise operator matched successfully",
        ),
        "$geoIntersects" => (
            "none of the considered geometries intersected the expression's geometry",
            "at least one of considered geometries intersected the expression's geometry",
        ),
        "$geoWithin" | "$within" => (
            "none of the considered geometries was contained within the expression's geometry",
            "at least one of considered geometries was contained within the expression's geometry",
        ),
        _ => ("comparison failed", "comparison succeeded"),
    }
}

/// The types of values that an operator tests; empty for all types.
fn expected(operator: &str) -> &'static [Type] {
    match operator {
        "$mod" => &[Type::Decimal128, Type::Double, Type::Int32, Type::Int64],
        "$regex" => &[Type::Regex, Type::String, Type::Symbol],
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => &[
            Type::Binary,
            Type::Decimal128,
            Type::Double,
            Type::Int32,
            Type::Int64,
        ],
        "$size" | "$elemMatch" => &[Type::Array],
        _ => &[],
    }
}

struct Explain<'d> {
    document: Doc<'d>,
    ctx: QueryContext,
}

impl Explain<'_> {
    /// What it works for.
    fn work(&self) -> Work<'_> {
        self.ctx.task.work()
    }

    fn matches(&self, filter: Doc<'_>) -> bool {
        Filter::parse(filter, &self.ctx)
            .and_then(|f| f.matches(self.document, self.work()))
            .unwrap_or(false)
    }

    /// Explains why a filter does not match, or (`inverted`) why it does although it must not.
    fn filter(&self, filter: Doc<'_>, inverted: bool, depth: usize) -> DocBuf {
        let all = clauses(filter);
        if let [one] = all.as_slice() {
            return self.clause(one, inverted, depth);
        }
        let list: Vec<Doc<'_>> = all.iter().map(|c| c.source.as_doc()).collect();
        self.several("$and", &list, inverted, depth)
    }

    /// Explains the clauses that are the reason.
    fn several(&self, operator: &str, list: &[Doc<'_>], inverted: bool, depth: usize) -> DocBuf {
        // `$nor` demands that its clauses do not match; an inverted operator demands the opposite.
        let unwanted = (operator == "$nor") != inverted;
        let mut blamed = ArrayBuf::new();
        for (i, clause) in list.iter().enumerate() {
            if depth < MAX_DEPTH && self.matches(*clause) == unwanted {
                blamed.push(doc! {
                    "index": i as i32,
                    "details": self.filter(*clause, unwanted, depth + 1),
                });
            }
        }
        let name = match unwanted {
            true => "clausesSatisfied",
            false => "clausesNotSatisfied",
        };
        let mut d = doc! { "operatorName": operator };
        d.append(name, blamed);
        d
    }

    fn clause(&self, c: &Clause<'_>, inverted: bool, depth: usize) -> DocBuf {
        match (c.path, c.operator, c.operand) {
            (None, op @ ("$and" | "$or" | "$nor"), Value::Array(list)) => {
                let list: Vec<Doc<'_>> = list.values().filter_map(|v| v.as_doc()).collect();
                self.several(op, &list, inverted, depth)
            }
            (None, "$jsonSchema", Value::Document(schema)) if !inverted => Schema::parse(schema)
                .and_then(|s| s.details(Value::Document(self.document)))
                .unwrap_or_else(|_| self.head(c)),
            (None, "$jsonSchema", _) => {
                let mut d = self.head(c);
                d.append("reason", "schema matched");
                d
            }
            (None, "$expr", v) => self.expr(c, v, inverted),
            (None, "$alwaysFalse" | "$alwaysTrue", _) => {
                let mut d = self.head(c);
                let reason = match inverted {
                    true => "expression always evaluates to true",
                    false => "expression always evaluates to false",
                };
                d.append("reason", reason);
                d
            }
            (Some(path), "$not", v) if depth < MAX_DEPTH => {
                let mut inner = DocBuf::new();
                inner.append(path, v);
                doc! {
                    "operatorName": "$not",
                    "details": self.filter(inner.as_doc(), !inverted, depth + 1),
                }
            }
            (Some(path), _, _) => self.leaf(c, path, inverted),
            _ => self.head(c),
        }
    }

    fn head(&self, c: &Clause<'_>) -> DocBuf {
        doc! { "operatorName": c.operator, "specifiedAs": &c.source }
    }

    fn expr(&self, c: &Clause<'_>, v: Value<'_>, inverted: bool) -> DocBuf {
        let mut d = self.head(c);
        let reason = match inverted {
            true => "expression did match",
            false => "expression did not match",
        };
        d.append("reason", reason);
        let result = Expr::parse(v, &self.ctx).and_then(|e| {
            arena::with_arena(self.work(), |a| {
                e.eval(&EvalContext::new(self.document, a))
                    .map(|v| v.map(ValueBuf::new))
            })
        });
        if let Ok(v) = result {
            d.append_some("expressionResult", v.as_ref());
        }
        d
    }

    fn leaf(&self, c: &Clause<'_>, path: &str, inverted: bool) -> DocBuf {
        let mut d = self.head(c);
        let (mut no, yes) = reasons(c.operator);
        if c.operator == "$exists" && !c.operand.truthy() {
            no = "path does exist";
        }
        let expected = expected(c.operator);
        let traverses = !matches!(c.operator, "$size" | "$elemMatch" | "$exists");
        let values = self.values(path, traverses);
        if values.is_empty() {
            let reason = match c.operator {
                "$exists" => no,
                _ => "field was missing",
            };
            d.append("reason", reason);
            return d;
        }
        let fits = |v: &Value<'_>| expected.is_empty() || expected.contains(&v.ty());
        if !inverted && !values.iter().any(fits) {
            d.append("reason", "type did not match");
            considered(&mut d, &values);
            types(&mut d, &values);
            match expected {
                [one] => d.append("expectedType", one.name()),
                all => d.append(
                    "expectedTypes",
                    all.iter().map(|t| t.name()).collect::<ArrayBuf>(),
                ),
            };
            return d;
        }
        d.append("reason", if inverted { yes } else { no });
        if c.operator != "$exists" {
            considered(&mut d, &values);
        }
        if c.operator == "$type" {
            types(&mut d, &values);
        }
        d
    }

    /// The values at a path. The elements of an array come before the array itself.
    fn values(&self, path: &str, traverses: bool) -> Vec<Value<'_>> {
        let mut out = Vec::new();
        let path = Path::new(path);
        visit(self.document, path.parts(), &mut |v, _| {
            if let Some(v) = v {
                if traverses && let Value::Array(a) = v {
                    out.extend(a.values().take(MAX_CONSIDERED + 1));
                }
                out.push(v);
            }
            out.len() > MAX_CONSIDERED
        });
        out
    }
}

fn considered(d: &mut DocBuf, values: &[Value<'_>]) {
    if let [one] = values {
        d.append("consideredValue", *one);
        return;
    }
    let shown: ArrayBuf = values.iter().take(MAX_CONSIDERED).copied().collect();
    d.append("consideredValues", shown);
    if values.len() > MAX_CONSIDERED {
        d.append("consideredValuesTruncated", true);
    }
}

fn types(d: &mut DocBuf, values: &[Value<'_>]) {
    let mut names: Vec<&str> = values.iter().map(Value::type_name).collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [one] => d.append("consideredType", *one),
        all => d.append("consideredTypes", all.iter().copied().collect::<ArrayBuf>()),
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::details;
    use crate::expr::testing::json;
    use crate::running::Work;
    use muniment_value::Value;

    fn explains(filter: &str, document: &str, want: &str) {
        let got = details(
            json(filter).as_doc(),
            json(document).as_doc(),
            Work::unasked(),
        );
        let want = json(want);
        assert_eq!(
            Value::Document(got.as_doc()).to_display(),
            Value::Document(want.as_doc()).to_display(),
            "{filter} on {document}"
        );
    }

    #[test]
    fn one_condition() {
        explains(
            "{'a': {'$gt': 5}}",
            "{'a': 1}",
            "{'operatorName': '$gt', 'specifiedAs': {'a': {'$gt': 5}}, 'reason': 'comparison \
             failed', 'consideredValue': 1}",
        );
        explains(
            "{'a': 2}",
            "{'b': 1}",
            "{'operatorName': '$eq', 'specifiedAs': {'a': 2}, 'reason': 'field was missing'}",
        );
        explains(
            "{'a': {'$in': [1, 2]}}",
            "{'a': [3, 4]}",
            "{'operatorName': '$in', 'specifiedAs': {'a': {'$in': [1, 2]}}, 'reason': 'no \
             matching value found in array', 'consideredValues': [3, 4, [3, 4]]}",
        );
        explains(
            "{'a': {'$type': 'string'}}",
            "{'a': 1}",
            "{'operatorName': '$type', 'specifiedAs': {'a': {'$type': 'string'}}, 'reason': \
             'type did not match', 'consideredValue': 1, 'consideredType': 'int'}",
        );
        explains(
            "{'a': {'$exists': true}}",
            "{}",
            "{'operatorName': '$exists', 'specifiedAs': {'a': {'$exists': true}}, 'reason': \
             'path does not exist'}",
        );
        explains(
            "{'a': {'$mod': [2, 0]}}",
            "{'a': 'x'}",
            "{'operatorName': '$mod', 'specifiedAs': {'a': {'$mod': [2, 0]}}, 'reason': 'type \
             did not match', 'consideredValue': 'x', 'consideredType': 'string', \
             'expectedTypes': ['decimal', 'double', 'int', 'long']}",
        );
        explains(
            "{'a': {'$size': 2}}",
            "{'a': [1]}",
            "{'operatorName': '$size', 'specifiedAs': {'a': {'$size': 2}}, 'reason': 'array \
             length was not equal to given size', 'consideredValue': [1]}",
        );
        explains(
            "{'a': {'$regex': '^x', '$options': 'i'}}",
            "{'a': 'y'}",
            "{'operatorName': '$regex', 'specifiedAs': {'a': {'$regex': '^x', '$options': \
             'i'}}, 'reason': 'regular expression did not match', 'consideredValue': 'y'}",
        );
        explains(
            "{'$expr': {'$gt': ['$a', 1]}}",
            "{'a': 1}",
            "{'operatorName': '$expr', 'specifiedAs': {'$expr': {'$gt': ['$a', 1]}}, 'reason': \
             'expression did not match', 'expressionResult': false}",
        );
    }

    #[test]
    fn conditions_together() {
        explains(
            "{'a': {'$gt': 5}, 'b': 1}",
            "{'a': 6}",
            "{'operatorName': '$and', 'clausesNotSatisfied': [{'index': 1, 'details': \
             {'operatorName': '$eq', 'specifiedAs': {'b': 1}, 'reason': 'field was \
             missing'}}]}",
        );
        explains(
            "{'$or': [{'a': 1}, {'a': 2}]}",
            "{'a': 3}",
            "{'operatorName': '$or', 'clausesNotSatisfied': [{'index': 0, 'details': \
             {'operatorName': '$eq', 'specifiedAs': {'a': 1}, 'reason': 'comparison failed', \
             'consideredValue': 3}}, {'index': 1, 'details': {'operatorName': '$eq', \
             'specifiedAs': {'a': 2}, 'reason': 'comparison failed', 'consideredValue': 3}}]}",
        );
        explains(
            "{'$nor': [{'a': 1}, {'a': 2}]}",
            "{'a': 1}",
            "{'operatorName': '$nor', 'clausesSatisfied': [{'index': 0, 'details': \
             {'operatorName': '$eq', 'specifiedAs': {'a': 1}, 'reason': 'comparison \
             succeeded', 'consideredValue': 1}}]}",
        );
        explains(
            "{'a': {'$not': {'$lt': 5}}}",
            "{'a': 1}",
            "{'operatorName': '$not', 'details': {'operatorName': '$lt', 'specifiedAs': {'a': \
             {'$lt': 5}}, 'reason': 'comparison succeeded', 'consideredValue': 1}}",
        );
        explains(
            "{'$jsonSchema': {'title': 't', 'required': ['a']}}",
            "{}",
            "{'operatorName': '$jsonSchema', 'title': 't', 'schemaRulesNotSatisfied': \
             [{'operatorName': 'required', 'specifiedAs': {'required': ['a']}, \
             'missingProperties': ['a']}]}",
        );
    }

    #[test]
    fn few_values_are_shown() {
        let many: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let document = json(&format!("{{'a': [{}]}}", many.join(",")));
        let d = details(
            json("{'a': 99}").as_doc(),
            document.as_doc(),
            Work::unasked(),
        );
        let shown = d.as_doc().get_array("consideredValues").unwrap();
        assert_eq!(shown.count(), 10);
        assert!(d.as_doc().get("consideredValuesTruncated").is_some());
    }
}
