//! The accumulators of `$group`. Each has a file with its SPEC, and a line in the sorted registry.

mod add_to_set;
mod arrays;
mod avg;
mod count;
mod extreme;
mod first_last;
mod javascript;
mod merge_objects;
mod percentile;
mod push;
mod several;
pub(super) mod sliding;
pub(super) mod sliding_numbers;
pub(crate) mod sliding_sorted;
mod std_dev;
pub(crate) mod sum;
mod top;

use crate::context::QueryContext;
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use crate::running::Task;
use muniment_value::{Code, Collation, Doc, Error, Result, Value, ValueBuf};
use std::fmt::Debug;

/// One accumulator: its name, a line for the generated page, and its parser.
#[derive(Debug)]
pub struct Spec {
    /// The name with its dollar.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
    /// Whether the result depends on the order of the documents.
    pub(crate) order: Order,
    operand: Operand,
    /// Makes the state for `$setWindowFields`, from which values can be removed. Accumulators with options do
    /// this in their own way.
    sliding: Option<MakeOf<dyn Sliding>>,
    /// Whether `$setWindowFields` may use it.
    pub windows: bool,
}

/// Whether an accumulator's result depends on the order of its documents. If it does, and they are sorted, their
/// states cannot be accumulated on several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The result is the same in every order.
    Free,
    /// The order matters, if only for ties or for the last bit of a double.
    Kept,
}

/// The kinds of an accumulator's operand.
#[derive(Debug)]
enum Operand {
    /// An expression.
    Expression(MakeOf<dyn Accumulator>),
    /// A document of options.
    Options(fn(Options<'_>) -> Result<Parsed>),
}

/// Makes a state for a collation.
type MakeOf<T> = fn(&Collation) -> Box<T>;

/// Makes a state.
pub(crate) type Make<T> = Box<dyn Fn() -> Box<T> + Send + Sync>;

/// A parsed accumulator: the expression that is evaluated per document, and the function that makes a state.
pub(crate) struct Parsed {
    pub expr: Expr,
    /// An expression over the group's `_id`, whose value the state gets before any document.
    pub start: Option<Expr>,
    pub make: Make<dyn Accumulator>,
    /// The state for a window whose lower end moves.
    pub sliding: Option<Make<dyn Sliding>>,
}

impl Parsed {
    /// The state of a group with this `_id`.
    ///
    /// # Errors
    /// Those of the expression over the `_id`, and of [`Accumulator::start`].
    pub(crate) fn state(&self, id: Value<'_>, task: &Task) -> Result<Box<dyn Accumulator>> {
        let mut state = (self.make)();
        state.works_for(task);
        if let Some(start) = &self.start {
            let root = id.as_doc().unwrap_or(Doc::EMPTY);
            with_arena(task.work(), |arena| {
                state.start(start.eval(&EvalContext::new(root, arena))?)
            })?;
        }
        Ok(state)
    }
}

impl std::fmt::Debug for Parsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.expr.fmt(f)
    }
}

/// The options of an accumulator.
struct Options<'a> {
    name: &'static str,
    doc: Doc<'a>,
    ctx: &'a QueryContext,
}

impl<'a> Options<'a> {
    /// Fails with 9 FailedToParse if there is an option other than these.
    fn only(&self, names: &[&str]) -> Result<()> {
        match self.doc.iter().find(|e| !names.contains(&e.name())) {
            None => Ok(()),
            Some(e) => Err(Error::failed_to_parse(format!(
                "Unknown argument for {}: {}",
                self.name,
                e.name()
            ))),
        }
    }

    /// The option's value. If it is absent, fails with this code.
    fn need(&self, option: &str, code: i32) -> Result<Value<'a>> {
        self.doc.get(option).ok_or_else(|| {
            Error::location(
                code,
                format!("Missing value for '{option}' in {}", self.name),
            )
        })
    }

    /// Reads `n`: a whole number above 0, or an expression over the group's `_id` that gives one (see
    /// [`Parsed::start`]).
    fn n(&self, missing: i32) -> Result<(usize, Option<Expr>)> {
        let expr = Expr::parse(self.need("n", missing)?, self.ctx)?;
        match expr.as_constant() {
            Some(v) => Ok((whole_n(Some(v))?, None)),
            None => Ok((0, Some(expr))),
        }
    }
}

/// The number of values that an accumulator keeps.
///
/// # Errors
/// 7548606 for a value that is not a whole number above 0.
fn whole_n(v: Option<Value<'_>>) -> Result<usize> {
    v.filter(Value::is_number)
        .and_then(|v| v.as_i64_exact())
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n > 0)
        .ok_or_else(|| {
            Error::location(
                7_548_606,
                format!(
                    "Cannot create accumulator: 'n' must be a whole number above 0, but found {}",
                    v.map_or("missing".to_string(), |v| v.to_display())
                ),
            )
        })
}

impl Spec {
    const fn unary(
        name: &'static str,
        doc: &'static str,
        order: Order,
        make: MakeOf<dyn Accumulator>,
    ) -> Spec {
        Spec {
            name,
            doc,
            order,
            operand: Operand::Expression(make),
            sliding: None,
            windows: false,
        }
    }

    /// This specification with a state for windows.
    const fn windows(self, sliding: MakeOf<dyn Sliding>) -> Spec {
        Spec {
            sliding: Some(sliding),
            windows: true,
            ..self
        }
    }

    const fn options(
        name: &'static str,
        doc: &'static str,
        order: Order,
        parse: fn(Options<'_>) -> Result<Parsed>,
    ) -> Spec {
        Spec {
            name,
            doc,
            order,
            operand: Operand::Options(parse),
            sliding: None,
            windows: true,
        }
    }

    /// Parses the operand.
    ///
    /// # Errors
    /// Those of the expression or of the options.
    pub(crate) fn parse(&self, operand: Value<'_>, ctx: &QueryContext) -> Result<Parsed> {
        match self.operand {
            Operand::Expression(make) => Ok(Parsed {
                start: None,
                expr: Expr::parse(operand, ctx)?,
                make: {
                    let collation = ctx.collation.clone();
                    Box::new(move || make(&collation))
                },
                sliding: self.sliding.map(|make| {
                    let collation = ctx.collation.clone();
                    Box::new(move || make(&collation)) as Make<dyn Sliding>
                }),
            }),
            Operand::Options(parse) => match operand {
                Value::Document(doc) => parse(Options {
                    name: self.name,
                    doc,
                    ctx,
                }),
                other => Err(Error::location(
                    5_787_900,
                    format!(
                        "specification must be an object; found {}: {}",
                        self.name,
                        other.to_display()
                    ),
                )),
            },
        }
    }
}

/// The state of one accumulator in one group.
pub trait Accumulator: Debug + Send {
    /// Is told what it works for, before anything else, if its steps may take long.
    fn works_for(&mut self, task: &Task) {
        let _ = task;
    }

    /// Takes the value of [`Parsed::start`] for the group, before any document.
    ///
    /// # Errors
    /// For a value that the accumulator cannot take.
    fn start(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let _ = v;
        Ok(())
    }

    /// Takes a document's value; `None` means missing.
    ///
    /// # Errors
    /// For values that the accumulator cannot take.
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()>;

    /// Appends the result as an element.
    fn finish(&self, name: &[u8], out: &mut Vec<u8>);

    /// The result of an accumulator whose last step can fail. The others return `None` and write theirs in
    /// `finish`.
    ///
    /// # Errors
    /// As [`Accumulator::add`].
    fn result(&self) -> Result<Option<ValueBuf>> {
        Ok(None)
    }

    /// Appends the state as an element that [`Accumulator::merge`] understands.
    fn save(&self, name: &[u8], out: &mut Vec<u8>);

    /// Adds the saved state of another accumulator, whose documents come later. The state may come from another
    /// server: fields of a state that are not known are ignored.
    ///
    /// # Errors
    /// As [`Accumulator::add`]; an internal error for a state that has another form.
    fn merge(&mut self, saved: Value<'_>) -> Result<()>;

    /// Bytes held on the heap, roughly.
    fn heap(&self) -> usize {
        0
    }
}

/// Appends an accumulator's result as an element.
///
/// # Errors
/// See [`Accumulator::result`].
pub(crate) fn write_result(a: &dyn Accumulator, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
    match a.result()? {
        Some(v) => crate::bytes::put(out, name, &v),
        None => a.finish(name, out),
    }
    Ok(())
}

/// The state of one accumulator in a moving window. Values are added at its upper end and removed at its
/// lower end.
pub trait Sliding: Debug + Send {
    /// Takes a document's value; `None` means missing.
    ///
    /// # Errors
    /// For values that the accumulator cannot take.
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()>;

    /// Removes the oldest of the values that are left.
    ///
    /// # Errors
    /// As [`Sliding::add`].
    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()>;

    /// Appends the result as an element.
    fn finish(&self, name: &[u8], out: &mut Vec<u8>);

    /// Bytes held on the heap, roughly.
    fn heap(&self) -> usize {
        0
    }
}

/// Every accumulator, sorted by name.
pub fn registry() -> &'static [Spec] {
    static ALL: &[Spec] = &[
        javascript::SPEC,
        add_to_set::SPEC,
        avg::SPEC,
        top::BOTTOM,
        top::BOTTOM_N,
        arrays::CONCAT,
        count::SPEC,
        first_last::FIRST,
        several::FIRST_N,
        first_last::LAST,
        several::LAST_N,
        extreme::MAX,
        several::MAX_N,
        percentile::MEDIAN,
        merge_objects::SPEC,
        extreme::MIN,
        several::MIN_N,
        percentile::SPEC,
        push::SPEC,
        arrays::UNION,
        std_dev::POP,
        std_dev::SAMP,
        sum::SPEC,
        top::TOP,
        top::TOP_N,
    ];
    ALL
}

/// The accumulator with this name.
///
/// # Errors
/// 15952.
pub(crate) fn find(name: &str) -> Result<&'static Spec> {
    let all = registry();
    if let Some(spec) = all
        .binary_search_by(|s| s.name.cmp(name))
        .ok()
        .and_then(|i| all.get(i))
    {
        return Ok(spec);
    }
    Err(Error::location(
        15952,
        format!("unknown group operator '{name}'"),
    ))
}

/// The error of a saved state that does not have the form of this accumulator's states.
fn no_state(name: &str, saved: Value<'_>) -> Error {
    Error::internal(format!(
        "a saved state of {name} has an unexpected form: {}",
        saved.type_name()
    ))
}

/// The elements of a saved state that is an array.
///
/// # Errors
/// An internal error for a state of another type.
fn elements<'s>(name: &str, saved: Value<'s>) -> Result<Doc<'s>> {
    saved.as_array().ok_or_else(|| no_state(name, saved))
}

/// The most bytes that one accumulator may hold.
const MAX_HELD: usize = 100 * 1024 * 1024;

/// Fails with 146 if an accumulator holds more than it may.
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
    fn a_state_can_depend_on_its_group() {
        let docs = "[{k:'a',v:1},{k:'a',v:2},{k:'b',v:3},{k:'b',v:4}]";
        let n = "n:{$cond:[{$eq:['$k','a']},1,2]}";
        for (acc, want) in [
            (format!("$firstN:{{input:'$v',{n}}}"), "[1],[3,4]"),
            (format!("$maxN:{{input:'$v',{n}}}"), "[2],[4,3]"),
            (
                format!("$topN:{{output:'$v',sortBy:{{v:-1}},{n}}}"),
                "[2],[4,3]",
            ),
        ] {
            let group = format!(
                "[{{$group:{{_id:{{k:'$k'}},r:{{{acc}}}}}}},{{$sort:{{_id:1}}}},\
                 {{$project:{{_id:0}}}}]"
            );
            let (a, b) = want.split_once("],").unwrap_or_default();
            table(&[(docs, &group, &format!("[{{r:{a}]}},{{r:{b}}}]"))]);
        }
        table(&[(
            docs,
            "[{$group:{_id:null,r:{$firstN:{input:'$v',n:'$v'}}}}]",
            "7548606: Cannot create accumulator: 'n' must be a whole number above 0, but found \
             missing",
        )]);
    }

    #[test]
    fn the_registry_is_sorted_and_documented() {
        assert!(registry().is_sorted_by(|a, b| a.name < b.name));
        assert!(registry().iter().all(|s| !s.doc.is_empty()));
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
            (
                "[{a:3},{a:1},{},{a:2}]",
                "{$firstN:{n:3,input:'$a'}}",
                "{r:[3,1,null]}",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "{$lastN:{n:2,input:'$a'}}",
                "{r:[1,2]}",
            ),
            (
                "[{a:3},{a:1},{},{a:2}]",
                "{$minN:{n:2,input:'$a'}}",
                "{r:[1,2]}",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "{$maxN:{n:2,input:'$a'}}",
                "{r:[3,2]}",
            ),
            (
                "[{a:3,b:1},{a:1,b:2},{a:2}]",
                "{$top:{sortBy:{a:1},output:'$b'}}",
                "{r:2}",
            ),
            (
                "[{a:3,b:1},{a:1,b:2},{a:2}]",
                "{$topN:{n:2,sortBy:{a:1},output:'$b'}}",
                "{r:[2,null]}",
            ),
            (
                "[{a:3,b:1},{a:1,b:2}]",
                "{$bottom:{sortBy:{a:1},output:'$b'}}",
                "{r:1}",
            ),
            (
                "[{a:3,b:1},{a:1,b:2},{a:2,b:3}]",
                "{$bottomN:{n:2,sortBy:{a:1},output:'$b'}}",
                "{r:[3,1]}",
            ),
            (
                "[{a:[1,2]},{},{a:[2,3]}]",
                "{$concatArrays:'$a'}",
                "{r:[1,2,2,3]}",
            ),
            (
                "[{a:[1,2]},{},{a:[2,3]}]",
                "{$setUnion:'$a'}",
                "{r:[1,2,3]}",
            ),
            (
                "[{a:1},{a:'x'},{a:3},{a:2},{a:9}]",
                "{$median:{input:'$a',method:'approximate'}}",
                "{r:2.0}",
            ),
            (
                "[{a:1},{a:3},{a:2}]",
                "{$percentile:{input:'$a',p:[0,0.5,1.0],method:'approximate'}}",
                "{r:[1.0,2.0,3.0]}",
            ),
            (
                "[{}]",
                "{$percentile:{input:'$a',p:[0.5],method:'approximate'}}",
                "{r:[null]}",
            ),
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
                "5787900: specification must be an object; found $topN: 1",
            ),
        ]);
    }
}
