//! `$fill`: values for fields that are null or missing. It becomes a `$setWindowFields` for the fields that
//! are filled from their neighbours, followed by an `$addFields` for those with a value.

use super::registry::{Place, Spec, find};
use super::rights::Rights;
use super::spread::Spread;
use super::{Stage, window};
use crate::context::QueryContext;
use muniment_value::{ArrayBuf, Doc, DocBuf, Elem, Error, Result, Value, doc};

pub(crate) const SPEC: Spec = Spec {
    name: "$fill",
    doc: "Values for fields that are null or missing.",
    // If there are only fields with values, it is an $addFields.
    place: Place::UPDATE,
    spread: Spread::Router,
    rights: Rights::Input,
    parse,
};

/// The stage's options.
#[derive(Default)]
struct Options<'a> {
    partition: Option<DocBuf>,
    sort: Option<Doc<'a>>,
    output: Option<Doc<'a>>,
}

fn options(d: Doc<'_>) -> Result<Options<'_>> {
    let mut o = Options::default();
    for e in d {
        let wrong = |expected: &str| {
            Err(Error::type_mismatch(format!(
                "BSON field '$fill.{}' is the wrong type '{}', expected type '{expected}'",
                e.name(),
                e.value().type_name()
            )))
        };
        let both = || {
            Err(Error::location(
                6_050_204,
                "Maximum one of 'partitionBy' and 'partitionByFields' can be specified in '$fill'",
            ))
        };
        match (e.name(), e.value()) {
            ("partitionBy", Value::Document(_) | Value::String(_)) => {
                if o.partition.is_some() {
                    return both();
                }
                o.partition = Some(doc! { "by": e });
            }
            ("partitionBy", _) => return wrong("object"),
            ("partitionByFields", Value::Array(names)) => {
                if o.partition.is_some() {
                    return both();
                }
                o.partition = Some(doc! { "by": by_fields(names)? });
            }
            ("partitionByFields", _) => return wrong("array"),
            ("sortBy", Value::Document(s)) => o.sort = Some(s),
            ("output", Value::Document(f)) => o.output = Some(f),
            ("sortBy" | "output", _) => return wrong("object"),
            (other, _) => {
                return Err(Error::location(
                    40415,
                    format!("BSON field '$fill.{other}' is an unknown field."),
                ));
            }
        }
    }
    Ok(o)
}

/// The expression for a partition by several fields: a document with their values. The values are named by
/// numbers, because the fields' names may contain dots.
fn by_fields(names: Doc<'_>) -> Result<DocBuf> {
    let mut fields = DocBuf::new();
    for (i, v) in names.values().enumerate() {
        let Some(name) = v.as_str() else {
            return Err(Error::type_mismatch(format!(
                "BSON field '$fill.partitionByFields.{i}' is the wrong type '{}', expected type \
                 'string'",
                v.type_name()
            )));
        };
        if name.starts_with('$') {
            return Err(Error::location(
                6_050_203,
                "'partitionByFields' may not start with '$'",
            ));
        }
        crate::sort::check_field_path(name)?;
        let path = format!("${name}");
        fields.append(&i.to_string(), path.as_str());
    }
    Ok(fields)
}

/// The fields that are filled from their neighbours, each with its window function, and those that are filled
/// with a value, each with its expression.
fn fillings(output: Doc<'_>) -> Result<(DocBuf, DocBuf)> {
    let (mut windows, mut values) = (DocBuf::new(), DocBuf::new());
    for f in output {
        let how = f.value().as_doc().filter(|d| d.count() == 1);
        let how = how.and_then(|d| d.first()).ok_or_else(|| {
            Error::failed_to_parse(format!(
                "The field '{}' of $fill must be an object with exactly one of 'value' and \
                 'method'",
                f.name()
            ))
        })?;
        let path = format!("${}", f.name());
        match (how.name(), how.value()) {
            ("value", v) => {
                let mut either = ArrayBuf::new();
                either.push(path.as_str());
                either.push(v);
                values.append(f.name(), doc! { "$ifNull": either });
            }
            ("method", Value::String("locf")) => {
                windows.append(f.name(), doc! { "$locf": path.as_str() });
            }
            ("method", Value::String("linear")) => {
                windows.append(f.name(), doc! { "$linearFill": path.as_str() });
            }
            ("method", v) => {
                return Err(Error::location(
                    6_050_202,
                    format!(
                        "Method must be either locf or linear, but found {}",
                        v.to_display()
                    ),
                ));
            }
            (other, _) => {
                return Err(Error::location(
                    40415,
                    format!("BSON field '{}.{other}' is an unknown field.", f.name()),
                ));
            }
        }
    }
    Ok((windows, values))
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::failed_to_parse(
            "The argument to $fill must be an object.",
        ));
    };
    let o = options(d)?;
    let Some(output) = o.output else {
        return Err(Error::location(
            40414,
            "BSON field '$fill.output' is missing but a required field",
        ));
    };
    if output.is_empty() {
        return Err(Error::location(
            6_050_200,
            "The 'output' field of $fill must name at least one field",
        ));
    }
    let (windows, values) = fillings(output)?;
    if !windows.as_doc().is_empty() {
        let partition = o.partition.as_ref().and_then(|p| p.as_doc().get("by"));
        window::stage(partition, o.sort, windows.as_doc(), ctx, stages)?;
    }
    if !values.as_doc().is_empty() {
        let set = doc! { "$addFields": values };
        if let Some(e) = set.as_doc().first() {
            (find(e.name())?.parse)(e, ctx, stages)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_fill() {
        table(&[
            (
                "[{_id:1,v:10},{_id:2},{_id:3,v:null},{_id:4,v:40}]",
                "[{$fill:{sortBy:{_id:1},output:{v:{method:'linear'}}}}]",
                "[{_id:1,v:10},{_id:2,v:20.0},{_id:3,v:30.0},{_id:4,v:40}]",
            ),
            (
                "[{_id:1,p:1,v:10},{_id:2,p:2},{_id:3,p:1},{_id:4,p:2,v:4},{_id:5,p:2}]",
                "[{$fill:{partitionByFields:['p'],sortBy:{_id:1},output:{v:{method:'locf'},w:{value:7}}}}]",
                "[{_id:1,p:1,v:10,w:7},{_id:3,p:1,v:10,w:7},{_id:2,p:2,v:null,w:7},{_id:4,p:2,v:4,w:7},{_id:5,p:2,v:4,w:7}]",
            ),
            (
                "[{a:null},{a:1},{b:2}]",
                "[{$fill:{output:{a:{value:{$add:[1,1]}}}}}]",
                "[{a:2},{a:1},{b:2,a:2}]",
            ),
            (
                "[]",
                "[{$fill:{output:{a:{method:'linear'}}}}]",
                "9: $linearFill requires a sortBy with exactly one field",
            ),
            (
                "[]",
                "[{$fill:{sortBy:{a:1}}}]",
                "40414: BSON field '$fill.output' is missing but a required field",
            ),
            (
                "[]",
                "[{$fill:{output:{a:{method:'x'}}}}]",
                "6050202: Method must be either locf or linear, but found \"x\"",
            ),
            (
                "[]",
                "[{$fill:{partitionBy:'$a',partitionByFields:['a'],output:{a:{value:1}}}}]",
                "6050204: Maximum one of 'partitionBy' and 'partitionByFields' can be specified in '$fill'",
            ),
        ]);
    }
}
