//! `$and`, `$or`, `$nor`.

use super::OpSpec;
use crate::filter::Node;
use crate::filter::parse::{self, Parser};
use muniment_value::{Error, Result, Value};

/// The specification of `$and`.
pub(super) const AND: OpSpec = OpSpec::top("$and", "All of these filters match.", |p, v| {
    Ok(parse::and(list("$and", p, v)?))
});

/// The specification of `$or`.
pub(super) const OR: OpSpec = OpSpec::top("$or", "Some of these filters matches.", |p, v| {
    Ok(parse::or(list("$or", p, v)?, &p.ctx.collation))
});

/// The specification of `$nor`.
pub(super) const NOR: OpSpec = OpSpec::top("$nor", "None of these filters matches.", |p, v| {
    Ok(parse::nor(list("$nor", p, v)?))
});

fn list(op: &str, p: &mut Parser<'_>, v: Value<'_>) -> Result<Vec<Node>> {
    let Value::Array(items) = v else {
        return Err(Error::bad_value(format!("{op} must be an array")));
    };
    if items.is_empty() {
        return Err(Error::bad_value("$and/$or/$nor must be a nonempty array"));
    }
    items
        .values()
        .map(|v| match v {
            Value::Document(d) => p.filter(d),
            _ => Err(Error::bad_value(
                "$or/$and/$nor entries need to be full objects",
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'$and': [{'a': 1}, {'b': 2}]}",
            &["{'a': 1, 'b': 2}"],
            &["{'a': 1}"],
        );
        matches(
            "{'$or': [{'a': 1}, {'b': 2}]}",
            &["{'a': 1}", "{'b': 2}"],
            &["{}"],
        );
        matches(
            "{'$or': [{'a': 1}, {'a': 2}]}",
            &["{'a': 2}"],
            &["{'a': 3}"],
        );
        matches(
            "{'$nor': [{'a': 1}, {'b': 2}]}",
            &["{}"],
            &["{'a': 1}", "{'b': 2}"],
        );
        matches("{'$or': [{}]}", &["{}"], &[]);
        matches("{'$nor': [{}]}", &[], &["{}"]);
        matches(
            "{'c': 1, '$or': [{'$and': [{'a': 1}, {'b': 1}]}, {'$nor': [{'b': 1}]}]}",
            &["{'c': 1, 'a': 1, 'b': 1}", "{'c': 1}"],
            &["{'c': 1, 'b': 1}", "{}"],
        );
        fails("{'$and': 1}", 2, "$and must be an array");
        fails("{'$or': []}", 2, "$and/$or/$nor must be a nonempty array");
        fails(
            "{'$nor': [1]}",
            2,
            "$or/$and/$nor entries need to be full objects",
        );
        fails(
            "{'$foo': 1}",
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        );
        fails(
            "{'$not': 1}",
            2,
            "unknown top level operator: $not. If you are trying to negate an entire expression, use $nor.",
        );
        fails("{'a': {'$foo': 1}}", 2, "unknown operator: $foo");
        fails("{'a': {'$gt': 1, 'b': 1}}", 2, "unknown operator: b");
        fails("{'a': {'$and': []}}", 2, "unknown operator: $and");
    }
}
