//! `$exists`.

use super::OpSpec;
use crate::filter::Pred;

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::field(
    "$exists",
    "The field is there (with any value, null too), or is not.",
    |_, o| Ok(Some(Pred::Exists(o.value.truthy()))),
);

#[cfg(test)]
mod tests {
    use crate::filter::tests::matches;

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$exists': true}}",
            &["{'a': 1}", "{'a': null}", "{'a': []}"],
            &["{}", "{'b': 1}"],
        );
        matches("{'a': {'$exists': 0}}", &["{}"], &["{'a': null}"]);
        matches(
            "{'a.b': {'$exists': true}}",
            &["{'a': [{}, {'b': 1}]}"],
            &["{'a': []}", "{'a': [1]}", "{'a': 1}"],
        );
        matches(
            "{'a.': {'$exists': true}}",
            &["{'a': []}", "{'a': [1]}", "{'a': {'': 1}}"],
            &["{}", "{'a': 1}", "{'a': {}}", "{'a': {'b': 1}}"],
        );
        matches(
            "{'a.b.': 1}",
            &[
                "{'a': {'b': [1]}}",
                "{'a': [{'b': [2, 1]}]}",
                "{'a': {'b': {'': 1}}}",
            ],
            &["{'a': {'b': 1}}", "{'a': [1]}"],
        );
        matches(
            "{'a.b': {'$exists': false}}",
            &["{'a': []}", "{'a': [1]}", "{'a': 1}"],
            &["{'a': [{}, {'b': 1}]}"],
        );
    }
}
