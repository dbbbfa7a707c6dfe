//! `items`, `additionalItems`, `minItems`, `maxItems`, `uniqueItems`. They only restrict arrays.

use super::limits::{Counted, least, most};
use super::parse::{Keywords, mismatch, schemas};
use super::{KeywordSpec, Rule, Schema, canonical, considered, head};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, doc};
use std::collections::HashSet;

/// `items`.
pub(super) const ITEMS: KeywordSpec = KeywordSpec {
    name: "items",
    doc: "A schema of every element, or one of each of the first elements",
    parse: |k, v| match v {
        Value::Document(d) => Ok(Some(Box::new(Every {
            keyword: "items",
            reason: "At least one item did not match the sub-schema",
            from: 0,
            schema: k.nested(d)?,
        }))),
        Value::Array(a) => Ok(Some(Box::new(Tuple(schemas(k, "items", a)?)))),
        v => Err(mismatch(
            "items",
            &format!("an array or an object, not {}", v.type_name()),
        )),
    },
};

/// `additionalItems`: restricts the elements after those that `items` describes one by one.
pub(super) const ADDITIONAL_ITEMS: KeywordSpec = KeywordSpec {
    name: "additionalItems",
    doc: "A schema of the elements after those that items names, or whether there may be any",
    parse: additional,
};

/// `minItems`.
pub(super) const MIN_ITEMS: KeywordSpec = KeywordSpec {
    name: "minItems",
    doc: "The least number of elements",
    parse: |_, v| least("minItems", v, &ELEMENTS),
};

/// `maxItems`.
pub(super) const MAX_ITEMS: KeywordSpec = KeywordSpec {
    name: "maxItems",
    doc: "The greatest number of elements",
    parse: |_, v| most("maxItems", v, &ELEMENTS),
};

/// `uniqueItems`.
pub(super) const UNIQUE_ITEMS: KeywordSpec = KeywordSpec {
    name: "uniqueItems",
    doc: "Whether no two elements may be equal",
    parse: |_, v| match v {
        Value::Bool(true) => Ok(Some(Box::new(Unique))),
        Value::Bool(false) => Ok(None),
        _ => Err(mismatch("uniqueItems", "a boolean")),
    },
};

fn additional(k: &Keywords<'_>, v: Value<'_>) -> Result<Option<Box<dyn Rule>>> {
    // If `items` is not a list of schemas, it describes every element, and none is additional.
    let from = k.doc.get_array("items").map(|a| a.count());
    match v {
        Value::Document(d) => {
            let schema = k.nested(d)?;
            Ok(from.map(|from| -> Box<dyn Rule> {
                Box::new(Every {
                    keyword: "additionalItems",
                    reason: "At least one additional item did not match the sub-schema",
                    from,
                    schema,
                })
            }))
        }
        Value::Bool(false) => Ok(from.map(|most| -> Box<dyn Rule> { Box::new(NoMore(most)) })),
        Value::Bool(true) => Ok(None),
        v => Err(mismatch(
            "additionalItems",
            &format!("either an object or a boolean, but got a {}", v.type_name()),
        )),
    }
}

fn elements(v: Value<'_>) -> Doc<'_> {
    v.as_array().unwrap_or(Doc::EMPTY)
}

/// One schema for all elements from a position on.
#[derive(Debug)]
struct Every {
    keyword: &'static str,
    reason: &'static str,
    from: usize,
    schema: Schema,
}

impl Every {
    fn first_bad<'v>(&self, v: Value<'v>) -> Result<Option<(usize, Value<'v>)>> {
        for (i, x) in elements(v).values().enumerate().skip(self.from) {
            if !self.schema.matches(x)? {
                return Ok(Some((i, x)));
            }
        }
        Ok(None)
    }
}

impl Rule for Every {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok(self.first_bad(v)?.is_none())
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let mut d = doc! { "operatorName": self.keyword, "reason": self.reason };
        if let Some((i, x)) = self.first_bad(v)? {
            d.append("itemIndex", i as i32);
            d.append("details", self.schema.failures(x)?);
        }
        Ok(d)
    }
}

/// A schema for each of the first elements.
#[derive(Debug)]
struct Tuple(Vec<Schema>);

impl Rule for Tuple {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        for (schema, x) in self.0.iter().zip(elements(v).values()) {
            if !schema.matches(x)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let mut bad = ArrayBuf::new();
        for (i, (schema, x)) in self.0.iter().zip(elements(v).values()).enumerate() {
            let details = schema.failures(x)?;
            if !details.is_empty() {
                bad.push(doc! { "itemIndex": i as i32, "details": details });
            }
        }
        Ok(doc! { "operatorName": "items", "details": bad })
    }
}

/// `additionalItems: false`.
#[derive(Debug)]
struct NoMore(usize);

impl Rule for NoMore {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok(elements(v).iter().nth(self.0).is_none())
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let mut d = head("additionalItems", Value::Bool(false));
        d.append("reason", "found additional items");
        let more: ArrayBuf = elements(v).values().skip(self.0).collect();
        d.append("additionalItems", more);
        Ok(d)
    }
}

const ELEMENTS: Counted = Counted {
    of: |v| v.as_array().map(|a| a.count()),
    explain: |keyword, operand, v| {
        considered(keyword, operand, "array did not match specified length", v)
    },
};

#[derive(Debug)]
struct Unique;

fn duplicate(v: Value<'_>) -> Option<Value<'_>> {
    let mut seen = HashSet::new();
    elements(v)
        .values()
        .find(|x| !seen.insert(canonical::key(*x)))
}

impl Rule for Unique {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok(duplicate(v).is_none())
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let reason = "found a duplicate item";
        let mut d = considered("uniqueItems", Value::Bool(true), reason, v);
        d.append_some("duplicatedValue", duplicate(v));
        Ok(d)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{explains, fails, valid};

    #[test]
    fn table_test() {
        valid(
            "{'properties': {'a': {'items': {'type': 'number'}}}}",
            &["{}", "{'a': []}", "{'a': [1, 2.5]}", "{'a': 'x'}"],
            &["{'a': [1, 'x']}"],
        );
        valid(
            "{'properties': {'a': {'items': [{'type': 'number'}, {'type': 'string'}]}}}",
            &["{'a': [1]}", "{'a': [1, 'x']}", "{'a': [1, 'x', null]}"],
            &["{'a': ['x']}", "{'a': [1, 1]}"],
        );
        valid(
            "{'properties': {'a': {'items': [{}], 'additionalItems': false}}}",
            &["{'a': []}", "{'a': [1]}"],
            &["{'a': [1, 2]}"],
        );
        valid(
            "{'properties': {'a': {'items': [{}], 'additionalItems': {'type': 'null'}}}}",
            &["{'a': [1, null]}"],
            &["{'a': [1, null, 2]}"],
        );
        valid(
            "{'properties': {'a': {'items': {}, 'additionalItems': false}}}",
            &["{'a': [1, 2]}"],
            &[],
        );
        valid(
            "{'properties': {'a': {'minItems': 1, 'maxItems': 2}}}",
            &["{'a': [1]}", "{'a': 'x'}"],
            &["{'a': []}", "{'a': [1, 2, 3]}"],
        );
        valid(
            "{'properties': {'a': {'uniqueItems': true}}}",
            &["{'a': [0, false, '0']}", "{'a': 1}"],
            &[
                "{'a': [1, 1.0]}",
                "{'a': [{'x': 1, 'y': 2}, {'y': 2, 'x': 1}]}",
            ],
        );
        valid(
            "{'properties': {'a': {'uniqueItems': false}}}",
            &["{'a': [1, 1]}"],
            &[],
        );
        fails(
            "{'items': 1}",
            14,
            "$jsonSchema keyword 'items' must be an array or an object, not int",
        );
        fails(
            "{'items': [1]}",
            14,
            "$jsonSchema keyword 'items' must be an array of objects, but found an element of \
             type int",
        );
        fails(
            "{'additionalItems': 1}",
            14,
            "$jsonSchema keyword 'additionalItems' must be either an object or a boolean, but \
             got a int",
        );
        fails(
            "{'uniqueItems': 1}",
            14,
            "$jsonSchema keyword 'uniqueItems' must be a boolean",
        );
        fails(
            "{'minItems': -1}",
            9,
            "Expected a non-negative number in: minItems: -1",
        );
        explains(
            "{'properties': {'a': {'items': {'type': 'null'}, 'minItems': 2, 'uniqueItems': \
              true}}}",
            "{'a': [1]}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'details': [{'operatorName': 'items', 'reason': 'At least one item did not match \
              the sub-schema', 'itemIndex': 0, 'details': [{'operatorName': 'type', \
              'specifiedAs': {'type': 'null'}, 'reason': 'type did not match', \
              'consideredValue': 1, 'consideredType': 'int'}]}, {'operatorName': 'minItems', \
              'specifiedAs': {'minItems': 2}, 'reason': 'array did not match specified length', \
              'consideredValue': [1]}]}]}]",
        );
        explains(
            "{'properties': {'a': {'items': [{}], 'additionalItems': false, 'uniqueItems': \
              true}}}",
            "{'a': [1, 1]}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'details': [{'operatorName': 'additionalItems', 'specifiedAs': \
              {'additionalItems': false}, 'reason': 'found additional items', \
              'additionalItems': [1]}, {'operatorName': 'uniqueItems', 'specifiedAs': \
              {'uniqueItems': true}, 'reason': 'found a duplicate item', 'consideredValue': \
              [1, 1], 'duplicatedValue': 1}]}]}]",
        );
    }
}
