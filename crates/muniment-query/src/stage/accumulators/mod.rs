//! Accumulators of `$group`: each one file with its SPEC, one line in the sorted registry.

mod add_to_set;
mod avg;
mod count;
mod extreme;
mod first_last;
mod merge_objects;
mod push;
mod std_dev;
mod sum;

use muniment_value::{Code, Error, Result, Value};
use std::fmt::Debug;

/// One accumulator: its name, a line for the generated page, and how a state is made.
#[derive(Debug)]
pub struct Spec {
    /// The name with its dollar.
    pub name: &'static str,
    /// One line that says what it does.
    pub doc: &'static str,
    /// A fresh state.
    pub make: fn() -> Box<dyn Accumulator>,
}

/// The state of one accumulator in one group.
pub trait Accumulator: Debug + Send {
    /// Takes a document's value; `None` is missing.
    ///
    /// # Errors
    /// For values that the accumulator cannot take.
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()>;

    /// Appends the result as an element.
    fn finish(&self, name: &[u8], out: &mut Vec<u8>);

    /// Appends the state as an element that [`Accumulator::merge`] understands.
    fn save(&self, name: &[u8], out: &mut Vec<u8>);

    /// Takes what a state that came later has saved.
    ///
    /// # Errors
    /// As [`Accumulator::add`].
    fn merge(&mut self, saved: Value<'_>) -> Result<()>;

    /// Bytes held on the heap, roughly.
    fn heap(&self) -> usize {
        0
    }
}

/// Every accumulator, sorted by name.
pub fn registry() -> &'static [Spec] {
    static ALL: &[Spec] = &[
        add_to_set::SPEC,
        avg::SPEC,
        count::SPEC,
        first_last::FIRST,
        first_last::LAST,
        extreme::MAX,
        merge_objects::SPEC,
        extreme::MIN,
        push::SPEC,
        std_dev::POP,
        std_dev::SAMP,
        sum::SPEC,
    ];
    ALL
}

/// MongoDB's other accumulators, sorted.
const NOT_YET: &[&str] = &[
    "$accumulator",
    "$bottom",
    "$bottomN",
    "$concatArrays",
    "$firstN",
    "$lastN",
    "$maxN",
    "$median",
    "$minN",
    "$percentile",
    "$setUnion",
    "$top",
    "$topN",
];

/// The accumulator with this name.
///
/// # Errors
/// 115 for one that is not there yet; 15952 for one that never was.
pub(crate) fn find(name: &str) -> Result<&'static Spec> {
    let all = registry();
    if let Some(spec) = all
        .binary_search_by(|s| s.name.cmp(name))
        .ok()
        .and_then(|i| all.get(i))
    {
        return Ok(spec);
    }
    if NOT_YET.binary_search(&name).is_ok() {
        return Err(Error::new(
            Code::CommandNotSupported,
            format!("The accumulator {name} is not supported yet"),
        ));
    }
    Err(Error::location(
        15952,
        format!("unknown group operator '{name}'"),
    ))
}

/// The most that one accumulator may hold.
const MAX_HELD: usize = 100 * 1024 * 1024;

/// 146 when an accumulator grows beyond what one may hold.
fn check_held(name: &str, bytes: usize) -> Result<()> {
    if bytes > MAX_HELD {
        return Err(Error::new(
            Code::ExceededMemoryLimit,
            format!(
                "{name} used too much memory and cannot spill to disk. Memory limit: {MAX_HELD} \
                 bytes"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::testing::table;

    #[test]
    fn the_registry_is_sorted_and_documented() {
        assert!(registry().is_sorted_by(|a, b| a.name < b.name));
        assert!(registry().iter().all(|s| !s.doc.is_empty()));
        assert!(NOT_YET.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn table_of_accumulators() {
        let group = |acc: &str| format!("[{{$group:{{_id:null,r:{acc}}}}},{{$project:{{_id:0}}}}]");
        for (input, acc, want) in [
            ("[{a:1},{a:2}]", "{$sum:'$a'}", "{r:3}"),
            ("[{a:1},{a:'x'},{},{a:null}]", "{$sum:'$a'}", "{r:1}"),
            ("[{a:'x'}]", "{$sum:'$a'}", "{r:0}"),
            (
                "[{a:2147483647},{a:1}]",
                "{$sum:'$a'}",
                "{r:{$numberLong:'2147483648'}}",
            ),
            (
                "[{a:1},{a:{$numberLong:'1'}}]",
                "{$sum:'$a'}",
                "{r:{$numberLong:'2'}}",
            ),
            ("[{a:1},{a:0.5}]", "{$sum:'$a'}", "{r:1.5}"),
            (
                "[{a:10000000000000000.0},{a:1.0},{a:-10000000000000000.0}]",
                "{$sum:'$a'}",
                "{r:1.0}",
            ),
            (
                "[{a:1},{a:{$numberDecimal:'0.5'}}]",
                "{$sum:'$a'}",
                "{r:{$numberDecimal:'1.5'}}",
            ),
            (
                "[{a:{$numberLong:'9223372036854775807'}},{a:1}]",
                "{$sum:'$a'}",
                "{r:9223372036854775808.0}",
            ),
            ("[{a:1},{a:2}]", "{$avg:'$a'}", "{r:1.5}"),
            ("[{a:'x'},{}]", "{$avg:'$a'}", "{r:null}"),
            (
                "[{a:{$numberDecimal:'1'}},{a:2}]",
                "{$avg:'$a'}",
                "{r:{$numberDecimal:'1.5'}}",
            ),
            ("[{a:3},{a:1},{a:null},{}]", "{$min:'$a'}", "{r:1}"),
            ("[{a:3},{a:1},{a:'x'}]", "{$max:'$a'}", "{r:'x'}"),
            ("[{}]", "{$max:'$a'}", "{r:null}"),
            ("[{a:3},{a:1}]", "{$first:'$a'}", "{r:3}"),
            ("[{},{a:1}]", "{$first:'$a'}", "{r:null}"),
            ("[{a:3},{a:1}]", "{$last:'$a'}", "{r:1}"),
            ("[{a:3},{}]", "{$last:'$a'}", "{r:null}"),
            (
                "[{a:3},{},{a:null},{a:3}]",
                "{$push:'$a'}",
                "{r:[3,null,3]}",
            ),
            ("[{a:3},{},{a:3.0},{a:4}]", "{$addToSet:'$a'}", "{r:[3,4]}"),
            ("[{a:3},{}]", "{$count:{}}", "{r:2}"),
            (
                "[{a:{x:1,y:1}},{},{a:null},{a:{y:2,z:3}}]",
                "{$mergeObjects:'$a'}",
                "{r:{x:1,y:2,z:3}}",
            ),
            (
                "[{a:2},{a:4},{a:4},{a:4},{a:5},{a:5},{a:7},{a:9}]",
                "{$stdDevPop:'$a'}",
                "{r:2.0}",
            ),
            (
                "[{a:1},{a:3}]",
                "{$stdDevSamp:'$a'}",
                "{r:1.4142135623730951}",
            ),
            ("[{a:1}]", "{$stdDevSamp:'$a'}", "{r:null}"),
            ("[{a:'x'}]", "{$stdDevPop:'$a'}", "{r:null}"),
        ] {
            table(&[(input, &group(acc), &format!("[{want}]"))]);
        }
        table(&[
            (
                "[{a:5}]",
                &group("{$mergeObjects:'$a'}"),
                "5911200: $mergeObjects requires object inputs, but input 5 is of type int",
            ),
            (
                "[]",
                &group("{$count:1}"),
                "14: $count takes no arguments, i.e. $count:{}",
            ),
            (
                "[]",
                &group("{$topN:1}"),
                "115: The accumulator $topN is not supported yet",
            ),
        ]);
    }
}
