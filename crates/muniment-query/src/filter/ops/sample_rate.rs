//! `$sampleRate`: each document matches with the given probability, as it would with `{$expr: {$lt: [{$rand:
//! {}}, rate]}}`.

use super::OpSpec;
use crate::expr::Expr;
use crate::filter::Node;
use muniment_value::{Error, Value, array, doc, number};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$sampleRate",
    "Matches each document with this probability, 0 to 1.",
    |p, v| {
        p.top_only("$sampleRate")?;
        let rate = number::to_f64(v)
            .ok_or_else(|| Error::bad_value("argument to $sampleRate must be a numeric type"))?;
        if !(0.0..=1.0).contains(&rate) {
            return Err(Error::bad_value(
                "numeric argument to $sampleRate must be in [0, 1]",
            ));
        }
        let e = doc! { "$lt": array![doc! { "$rand": doc! {} }, rate] };
        Ok(Node::Expr {
            expr: Expr::parse(Value::Document(e.as_doc()), p.ctx)?,
            implied: None,
        })
    },
);

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches("{'$sampleRate': 1}", &["{}"], &[]);
        matches("{'$sampleRate': 0.0}", &[], &["{}"]);
        fails(
            "{'$sampleRate': 'x'}",
            2,
            "argument to $sampleRate must be a numeric type",
        );
        fails(
            "{'$sampleRate': 1.5}",
            2,
            "numeric argument to $sampleRate must be in [0, 1]",
        );
        fails(
            "{'$sampleRate': ['$NaN']}",
            2,
            "numeric argument to $sampleRate must be in [0, 1]",
        );
    }
}
