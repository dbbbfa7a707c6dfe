//! `$accumulator`: JavaScript functions that create, change, merge and finish a state.
//!
//! The state is kept as BSON between the calls.

use super::{Accumulator, Options, Order, Parsed, Spec, check_held};
use crate::bytes::put;
use crate::expr::Expr;
use crate::running::{Task, Work, need_javascript};
use muniment_value::{ArrayBuf, Doc, Error, Result, Value, ValueBuf};
use std::sync::Arc;

pub(super) const SPEC: Spec = Spec::options(
    "$accumulator",
    "What JavaScript functions make of the documents' values.",
    Order::Kept,
    parse,
);

/// The functions, which all states share.
#[derive(Debug)]
struct Functions {
    init: Arc<str>,
    accumulate: Arc<str>,
    merge: Arc<str>,
    finalize: Option<Arc<str>>,
}

/// The code of one of the functions.
fn function(name: &str, v: Value<'_>) -> Result<Arc<str>> {
    match v {
        Value::String(s) | Value::Code(s) => Ok(s.into()),
        _ => Err(Error::location(
            4_544_702,
            format!(
                "$accumulator '{name}' field must be a String or Code, but found {}",
                v.type_name()
            ),
        )),
    }
}

fn check_language(v: Value<'_>) -> Result<()> {
    let says = match v.as_str() {
        Some("js") => return Ok(()),
        Some(other) => format!("$accumulator only supports lang: 'js', not '{other}'"),
        None => "$accumulator lang must be a string".to_string(),
    };
    Err(Error::location(4_544_703, says))
}

fn parse(o: Options<'_>) -> Result<Parsed> {
    need_javascript("$accumulator")?;
    for e in o.doc {
        if !matches!(
            e.name(),
            "init" | "initArgs" | "accumulate" | "accumulateArgs" | "merge" | "finalize" | "lang"
        ) {
            return Err(Error::location(
                4_544_706,
                format!("$accumulator got an unexpected field: {}", e.name()),
            ));
        }
    }
    let init = function("init", o.need("init", 4_544_707)?)?;
    let accumulate = function("accumulate", o.need("accumulate", 4_544_708)?)?;
    let merge = function("merge", o.need("merge", 4_544_709)?)?;
    let args = o.need("accumulateArgs", 4_544_710)?;
    let lang = o.need("lang", 4_544_711)?;
    check_language(lang)?;
    let finalize = match o.doc.get("finalize") {
        Some(v) => Some(function("finalize", v)?),
        None => None,
    };
    let mut start = None;
    let init_args = match o.doc.get("initArgs") {
        None => ArrayBuf::new(),
        Some(v) => {
            let expr = Expr::parse(v, o.ctx)?;
            match expr.as_constant() {
                Some(v) => init_args(Some(v))?,
                None => {
                    start = Some(expr);
                    ArrayBuf::new()
                }
            }
        }
    };
    let functions = Arc::new(Functions {
        init,
        accumulate,
        merge,
        finalize,
    });
    Ok(Parsed {
        start,
        sliding: None,
        expr: Expr::parse(args, o.ctx)?,
        make: Box::new(move || {
            let functions = Arc::clone(&functions);
            Box::new(State::new(functions, init_args.clone()))
        }),
    })
}

#[derive(Debug)]
struct State {
    functions: Arc<Functions>,
    init_args: ArrayBuf,
    /// `None` before the first document.
    value: Option<ValueBuf>,
    task: Task,
}

fn call(code: &Arc<str>, args: Doc<'_>, work: Work<'_>) -> Result<ValueBuf> {
    work.with_engine(|e| e.call(code, None, args))
}

impl State {
    fn new(functions: Arc<Functions>, init_args: ArrayBuf) -> State {
        State {
            functions,
            init_args,
            value: None,
            task: Task::default(),
        }
    }

    fn started(&self) -> Result<ValueBuf> {
        match &self.value {
            Some(v) => Ok(v.clone()),
            None => call(
                &self.functions.init,
                self.init_args.as_doc(),
                self.task.work(),
            ),
        }
    }
}

/// The arguments of `init`.
fn init_args(v: Option<Value<'_>>) -> Result<ArrayBuf> {
    match v {
        Some(Value::Array(a)) => Ok(a.values().collect()),
        other => Err(Error::location(
            4_544_711,
            format!(
                "initArgs must be an array, but found {}",
                other.map_or("missing", |v| v.type_name())
            ),
        )),
    }
}

impl Accumulator for State {
    fn works_for(&mut self, task: &Task) {
        self.task = task.clone();
    }

    fn start(&mut self, args: Option<Value<'_>>) -> Result<()> {
        self.init_args = init_args(args)?;
        Ok(())
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let Some(Value::Array(values)) = v else {
            return Err(Error::location(
                4_544_712,
                "accumulateArgs must be an array",
            ));
        };
        let mut args = ArrayBuf::new();
        args.push(self.started()?);
        for v in values.values() {
            args.push(v);
        }
        self.value = Some(call(
            &self.functions.accumulate,
            args.as_doc(),
            self.task.work(),
        )?);
        check_held("$accumulator", self.heap())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.value);
    }

    fn result(&self) -> Result<Option<ValueBuf>> {
        let state = self.started()?;
        Ok(Some(match &self.functions.finalize {
            None => state,
            Some(f) => {
                let mut args = ArrayBuf::new();
                args.push(state);
                call(f, args.as_doc(), self.task.work())?
            }
        }))
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.value);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.value = Some(match &self.value {
            None => ValueBuf::new(saved),
            Some(before) => {
                let mut args = ArrayBuf::new();
                args.push(before);
                args.push(saved);
                call(&self.functions.merge, args.as_doc(), self.task.work())?
            }
        });
        Ok(())
    }

    fn heap(&self) -> usize {
        self.value.as_ref().map_or(0, super::first_last::size)
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    const SUM: &str = "init:'function(n) { return {sum: n}; }',initArgs:[10],\
                       accumulate:'function(s, x) { s.sum += x; return s; }',\
                       accumulateArgs:['$a'],merge:'function(s, t) { return {sum: s.sum + t.sum}; }'";

    #[test]
    fn functions_of_a_state() {
        let group = |acc: &str| {
            format!("[{{$group:{{_id:null,r:{{$accumulator:{{{acc}}}}}}}}},{{$project:{{_id:0}}}}]")
        };
        let with = |more: &str| group(&format!("{SUM}{more}"));
        for (pipeline, want) in [
            (with(",lang:'js'"), "[{r:{sum:13.0}}]"),
            (
                with(",finalize:'function(s) { return s.sum / 2; }',lang:'js'"),
                "[{r:6.5}]",
            ),
            (
                with(",lang:'c'"),
                "4544703: $accumulator only supports lang: 'js', not 'c'",
            ),
            (
                with(",x:1"),
                "4544706: $accumulator got an unexpected field: x",
            ),
            (
                with(""),
                "4544711: Missing value for 'lang' in $accumulator",
            ),
        ] {
            table(&[("[{a:1},{a:2}]", &pipeline, want)]);
        }
        let of_key = SUM.replace("initArgs:[10]", "initArgs:['$k']");
        table(&[(
            "[{k:5,a:1},{k:5,a:2}]",
            &format!("[{{$group:{{_id:{{k:'$k'}},r:{{$accumulator:{{{of_key},lang:'js'}}}}}}}}]"),
            "[{_id:{k:5},r:{sum:8.0}}]",
        )]);
    }
}
