//! `title` and `description`: texts for people, which explanations repeat.

use super::KeywordSpec;
use muniment_value::{Error, Result, Value};

/// `title`.
pub(super) const TITLE: KeywordSpec = KeywordSpec {
    name: "title",
    doc: "A title, without effect",
    parse: |_, v| check("title", v).map(|()| None),
};

/// `description`.
pub(super) const DESCRIPTION: KeywordSpec = KeywordSpec {
    name: "description",
    doc: "A description, without effect",
    parse: |_, v| check("description", v).map(|()| None),
};

fn check(keyword: &str, v: Value<'_>) -> Result<()> {
    match v {
        Value::String(_) => Ok(()),
        v => Err(Error::type_mismatch(format!(
            "$jsonSchema keyword '{keyword}' must be of type string, not {}",
            v.type_name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{explains, fails, valid};

    #[test]
    fn table_test() {
        valid("{'title': 't', 'description': 'd'}", &["{}"], &[]);
        fails(
            "{'title': 1}",
            14,
            "$jsonSchema keyword 'title' must be of type string, not int",
        );
        explains(
            "{'properties': {'a': {'description': 'why', 'type': 'null'}}}",
            "{'a': 1}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'description': 'why', 'details': [{'operatorName': 'type', 'specifiedAs': \
              {'type': 'null'}, 'reason': 'type did not match', 'consideredValue': 1, \
              'consideredType': 'int'}]}]}]",
        );
    }
}
