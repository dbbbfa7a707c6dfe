//! The operators: each has a file (or a family of similar ones has), and a line in the registry.

mod accumulate;
mod arithmetic;
mod array;
mod bits;
mod boolean;
mod compare;
mod cond;
mod convert;
pub(crate) mod date;
mod exponential;
mod function;
mod hashed_key;
mod higher;
mod index_of;
mod let_;
mod literal;
pub(crate) mod meta;
mod object;
pub(crate) mod rand;
mod regex;
mod replace;
mod rounding;
mod set_field;
mod sets;
mod several;
mod sizes;
mod sort_array;
mod string;
mod substr;
mod subtype;
mod text;
mod timestamp;
mod trig;
mod zip;

use super::{EvalContext, Expr, OpSpec};
use muniment_value::{Result, Value};

/// All operators, sorted by name.
#[rustfmt::skip]
pub(super) const REGISTRY: &[&OpSpec] = &[
    &rounding::ABS,
    &trig::ACOS,
    &trig::ACOSH,
    &arithmetic::ADD,
    &sets::ALL_TRUE,
    &boolean::AND,
    &sets::ANY_TRUE,
    &array::ARRAY_ELEM_AT,
    &object::ARRAY_TO_OBJECT,
    &trig::ASIN,
    &trig::ASINH,
    &trig::ATAN,
    &trig::ATAN2,
    &trig::ATANH,
    &accumulate::AVG,
    &sizes::BINARY,
    &bits::AND,
    &bits::NOT,
    &bits::OR,
    &bits::XOR,
    &sizes::BSON,
    &rounding::CEIL,
    &compare::CMP,
    &string::CONCAT,
    &array::CONCAT_ARRAYS,
    &cond::COND,
    &literal::CONST,
    &convert::CONVERT,
    &trig::COS,
    &trig::COSH,
    &date::add::ADD,
    &date::diff::SPEC,
    &date::from_parts::SPEC,
    &date::from_string::SPEC,
    &date::add::SUBTRACT,
    &date::to_parts::SPEC,
    &date::format::SPEC,
    &date::trunc::SPEC,
    &date::parts::DAY_OF_MONTH,
    &date::parts::DAY_OF_WEEK,
    &date::parts::DAY_OF_YEAR,
    &trig::DEGREES_TO_RADIANS,
    &arithmetic::DIVIDE,
    &compare::EQ,
    &exponential::EXP,
    &higher::FILTER,
    &array::FIRST,
    &several::FIRST_N,
    &rounding::FLOOR,
    &function::SPEC,
    &object::GET_FIELD,
    &compare::GT,
    &compare::GTE,
    &date::parts::HOUR,
    &cond::IF_NULL,
    &array::IN,
    &array::INDEX_OF_ARRAY,
    &index_of::BYTES,
    &index_of::CP,
    &array::IS_ARRAY,
    &convert::IS_NUMBER,
    &date::parts::ISO_DAY_OF_WEEK,
    &date::parts::ISO_WEEK,
    &date::parts::ISO_WEEK_YEAR,
    &array::LAST,
    &several::LAST_N,
    &let_::SPEC,
    &literal::LITERAL,
    &exponential::LN,
    &exponential::LOG,
    &exponential::LOG10,
    &compare::LT,
    &compare::LTE,
    &substr::LTRIM,
    &higher::MAP,
    &accumulate::MAX,
    &several::MAX_N,
    &accumulate::MEDIAN,
    &object::MERGE_OBJECTS,
    &meta::SPEC,
    &date::parts::MILLISECOND,
    &accumulate::MIN,
    &several::MIN_N,
    &date::parts::MINUTE,
    &arithmetic::MOD,
    &date::parts::MONTH,
    &arithmetic::MULTIPLY,
    &compare::NE,
    &boolean::NOT,
    &object::OBJECT_TO_ARRAY,
    &boolean::OR,
    &accumulate::PERCENTILE,
    &exponential::POW,
    &trig::RADIANS_TO_DEGREES,
    &rand::SPEC,
    &array::RANGE,
    &higher::REDUCE,
    &regex::FIND,
    &regex::FIND_ALL,
    &regex::MATCH,
    &replace::ALL,
    &replace::ONE,
    &array::REVERSE_ARRAY,
    &rounding::ROUND,
    &substr::RTRIM,
    &date::parts::SECOND,
    &sets::DIFFERENCE,
    &sets::EQUALS,
    &set_field::SET,
    &sets::INTERSECTION,
    &sets::IS_SUBSET,
    &sets::UNION,
    &exponential::SIGMOID,
    &trig::SIN,
    &trig::SINH,
    &array::SIZE,
    &array::SLICE,
    &sort_array::SPEC,
    &string::SPLIT,
    &exponential::SQRT,
    &accumulate::STD_DEV_POP,
    &accumulate::STD_DEV_SAMP,
    &string::STR_LEN_BYTES,
    &string::STR_LEN_CP,
    &string::STRCASECMP,
    &substr::SUBSTR,
    &substr::BYTES,
    &substr::CP,
    &arithmetic::SUBTRACT,
    &subtype::SPEC,
    &accumulate::SUM,
    &cond::SWITCH,
    &trig::TAN,
    &trig::TANH,
    &convert::TO_BOOL,
    &convert::TO_DATE,
    &convert::TO_DECIMAL,
    &convert::TO_DOUBLE,
    &hashed_key::SPEC,
    &convert::TO_INT,
    &convert::TO_LONG,
    &string::TO_LOWER,
    &convert::TO_OBJECT_ID,
    &convert::TO_STRING,
    &convert::TO_UUID,
    &string::TO_UPPER,
    &substr::TRIM,
    &rounding::TRUNC,
    &timestamp::INCREMENT,
    &timestamp::SECOND,
    &convert::TYPE,
    &set_field::UNSET,
    &date::parts::WEEK,
    &date::parts::YEAR,
    &zip::SPEC,
];

/// Evaluates the i-th argument, which counts as missing if there is none.
fn arg<'a>(args: &'a [Expr], i: usize, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    match args.get(i) {
        Some(e) => e.eval(ctx),
        None => Ok(None),
    }
}

/// Evaluates the i-th argument; `None` for missing, null and undefined.
fn arg_some<'a>(args: &'a [Expr], i: usize, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    Ok(arg(args, i, ctx)?.filter(|v| !v.is_nullish()))
}

/// MongoDB's name of a value's type, or "missing".
fn type_name(v: Option<Value<'_>>) -> &'static str {
    v.map_or("missing", |v| v.type_name())
}

/// MongoDB's truth of a value. Missing is false.
fn truthy(v: Option<Value<'_>>) -> bool {
    v.is_some_and(|v| v.truthy())
}

/// The only argument of a numeric operator; `None` for null and missing.
///
/// # Errors
/// 28765 if it is not a number.
fn numeric<'a>(op: &str, args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    match arg_some(args, 0, ctx)? {
        Some(v) if !v.is_number() => Err(muniment_value::Error::location(
            28765,
            format!("{op} only supports numeric types, not {}", v.type_name()),
        )),
        v => Ok(v),
    }
}

/// A number as a double; NaN for any other value.
fn double(v: Value<'_>) -> f64 {
    muniment_value::number::to_f64(v).unwrap_or(f64::NAN)
}

/// The result of most operators for null and missing input.
const NULL: Result<Option<Value<'static>>> = Ok(Some(Value::Null));

/// The named arguments of an operator, in the operator's order.
struct Named<'s, 'v, const N: usize> {
    op: &'s str,
    names: [&'s str; N],
    values: [Option<Value<'v>>; N],
}

impl<'s, 'v, const N: usize> Named<'s, 'v, N> {
    /// Reads the fields `names` from an operand. The codes are for an operand that is not an object, and for
    /// an unknown field.
    fn read(
        op: &'s str,
        operand: Value<'v>,
        names: [&'s str; N],
        not_object: i32,
        unknown: i32,
    ) -> Result<Self> {
        let Value::Document(d) = operand else {
            return Err(muniment_value::Error::location(
                not_object,
                format!("{op} only supports an object as its argument"),
            ));
        };
        let mut values = [None; N];
        for e in d {
            match names
                .iter()
                .position(|n| *n == e.name())
                .and_then(|i| values.get_mut(i))
            {
                Some(slot) => *slot = Some(e.value()),
                None => {
                    return Err(muniment_value::Error::location(
                        unknown,
                        format!("Unrecognized parameter to {op}: {}", e.name()),
                    ));
                }
            }
        }
        Ok(Named { op, names, values })
    }

    fn get(&self, i: usize) -> Option<Value<'v>> {
        self.values.get(i).copied().flatten()
    }

    /// The i-th argument. If it is missing, that is an error with `code`.
    fn need(&self, i: usize, code: i32) -> Result<Value<'v>> {
        self.get(i).ok_or_else(|| {
            muniment_value::Error::location(
                code,
                format!(
                    "Missing '{}' parameter to {}",
                    self.names.get(i).copied().unwrap_or_default(),
                    self.op
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::REGISTRY;

    #[test]
    fn registry_is_sorted() {
        for pair in REGISTRY.windows(2) {
            assert!(
                pair[0].name < pair[1].name,
                "{} {}",
                pair[0].name,
                pair[1].name
            );
        }
    }
}
