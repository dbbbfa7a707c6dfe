//! The sorted list of window functions that are not accumulators, and the search for a function by name.

use super::super::accumulators;
use super::{
    Call, Framed, Function, check_beside, covariance, derivative, exp_moving_avg, filling,
    integral, min_max_scaler, rank, shift,
};
use muniment_value::{Error, Result, Value};

/// A window function.
pub struct Spec {
    /// The name with its dollar.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
    pub(super) parse: fn(&Call<'_>) -> Result<Function>,
}

/// Every window function that is not an accumulator, sorted by name.
pub fn registry() -> &'static [Spec] {
    static ALL: &[Spec] = &[
        covariance::POP,
        covariance::SAMP,
        rank::DENSE,
        derivative::SPEC,
        rank::NUMBER,
        exp_moving_avg::SPEC,
        integral::SPEC,
        filling::LINEAR,
        filling::LOCF,
        min_max_scaler::SPEC,
        rank::RANK,
        shift::SPEC,
    ];
    ALL
}

/// Parses a call of the function with this name.
///
/// # Errors
/// 9 FailedToParse for an unknown function; those of the function.
pub(super) fn find<'a>(
    name: &str,
    call: impl Fn(&'static str) -> Result<Call<'a>>,
) -> Result<Function> {
    if let Ok(i) = registry().binary_search_by(|s| s.name.cmp(name))
        && let Some(spec) = registry().get(i)
    {
        return (spec.parse)(&call(spec.name)?);
    }
    let unknown = || Error::failed_to_parse(format!("Unrecognized window function, {name}"));
    let spec = accumulators::registry()
        .iter()
        .find(|s| s.name == name && s.windows)
        .ok_or_else(unknown)?;
    let call = call(spec.name)?;
    check_beside(&call)?;
    if spec.name == "$count" && call.operand.as_doc().is_none_or(|d| !d.is_empty()) {
        return Err(Error::failed_to_parse(
            "$count only accepts an empty object as input",
        ));
    }
    let frame = call.frame()?;
    let parsed = spec.parse(call.operand, call.ctx)?;
    let sliding = parsed.sliding.ok_or_else(unknown)?;
    // Sorted states give their result without sorting again for every document.
    let sorted = matches!(spec.name, "$median" | "$percentile");
    Ok(Function::Framed(Framed {
        relate: None,
        input: parsed.expr,
        frame,
        growing: (!sorted).then_some(parsed.make),
        sliding,
        empty: None,
    }))
}

/// Fails for a sort value that is not a number, or not a date if a unit is given.
pub(super) fn check_sort_value(
    name: &str,
    v: Value<'_>,
    unit: bool,
    codes: (i32, i32),
) -> Result<()> {
    match (unit, v) {
        (true, Value::DateTime(_)) => Ok(()),
        (true, _) => Err(Error::location(
            codes.0,
            format!("{name} with unit expects the sortBy field to be a Date"),
        )),
        (false, v) if v.is_number() => Ok(()),
        (false, _) => Err(Error::location(
            codes.1,
            format!("{name} (with no 'unit') expects the sortBy field to be numeric"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_sorted_and_documented() {
        assert!(registry().is_sorted_by(|a, b| a.name < b.name));
        assert!(registry().iter().all(|s| !s.doc.is_empty()));
    }
}
