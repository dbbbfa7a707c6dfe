//! The engine: a thread that owns a runtime and calls functions for one operation.
//!
//! The engine has its own thread because QuickJS recurses on the native stack: this stack is large enough for
//! the runtime's limit, however deep the caller's stack is. Calls wait for their answers.

use crate::from_js::FromJs;
use crate::to_js::{self, Helpers};
use md5::{Digest, Md5};
use muniment_op::{Event, Interrupt, sleep_until};
use muniment_value::{Code, Doc, DocBuf, Error, MONGODB_VERSION, Result, Value, ValueBuf};
use rquickjs::context::EvalOptions;
use rquickjs::{Array, CatchResultExt, CaughtError, Context, Ctx, Function, Object, Persistent};
use rquickjs::{Runtime, Value as Js};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Codes with which parts of the server tell each other what to do (a collection has gone, a plan was killed,
/// a duplicate key, a conflict). A script's error with one of these codes must not be taken for that, so it
/// loses its code.
const OURS: [i32; 5] = [26, 48, 112, 175, 11000];

/// The interrupt that is asked again and again while a script runs. Its error stops the script.
pub type Stop = Arc<dyn Interrupt>;

/// The largest heap of an engine, in bytes.
pub const MOST_HEAP: usize = 128 << 20;

/// The stack that a script may use, in bytes.
const STACK: usize = 1 << 20;

/// The stack of an engine's thread, which leaves room for conversions beyond the script's stack.
const THREAD_STACK: usize = 4 << 20;

/// How many engines may run at a time. Further ones wait.
const MAX_ENGINES: usize = 16;

/// How many compiled functions an engine keeps.
const MAX_FUNCTIONS: usize = 256;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static ENDED: Event = Event::new();

/// The right of an engine to run.
struct Place;

impl Place {
    fn wait(stop: &Stop) -> Result<Place> {
        let one_more = |n: usize| (n < MAX_ENGINES).then(|| n + 1);
        let take = || RUNNING.fetch_update(SeqCst, SeqCst, one_more).is_ok();
        ENDED.wait(&**stop, take)?;
        Ok(Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, SeqCst);
        ENDED.notify_one(|()| true);
    }
}

/// A request to an engine.
enum Job {
    /// Calls a function.
    Call {
        code: Arc<str>,
        this: Option<DocBuf>,
        args: DocBuf,
        where_: bool,
    },
    /// Returns the pairs that `emit` has collected.
    Emitted,
    /// Sets a global variable.
    Global(String, ValueBuf),
}

/// A running engine. Dropping it ends it.
pub struct Engine {
    jobs: Sender<Job>,
    answers: Receiver<Result<ValueBuf>>,
}

fn gone() -> Error {
    Error::new(
        Code::JSInterpreterFailure,
        "the JavaScript engine has ended unexpectedly",
    )
}

impl Engine {
    /// Starts an engine with a heap of at most this many bytes for one operation, which `stop` ends.
    ///
    /// # Errors
    /// The error of `stop` while waiting for a place; 139 if no thread can be started.
    pub fn start(stop: Stop, heap: usize) -> Result<Engine> {
        let place = Place::wait(&stop)?;
        let (jobs, todo) = channel();
        let (done, answers) = channel();
        std::thread::Builder::new()
            .name("javascript".into())
            .stack_size(THREAD_STACK)
            .spawn(move || {
                let _place = place;
                work(&stop, heap, &todo, &done);
            })
            .map_err(|e| {
                Error::new(
                    Code::JSInterpreterFailure,
                    format!("cannot start the JavaScript engine: {e}"),
                )
            })?;
        Ok(Engine { jobs, answers })
    }

    fn ask(&mut self, job: Job) -> Result<ValueBuf> {
        self.jobs.send(job).map_err(|_| gone())?;
        self.answers.recv().map_err(|_| gone())?
    }

    /// Calls the function in `code` (or the one whose body it is) with the elements of `args`.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure with the exception's name, message and stack; the reason for which it was
    /// stopped.
    pub fn call(
        &mut self,
        code: &Arc<str>,
        this: Option<Doc<'_>>,
        args: Doc<'_>,
    ) -> Result<ValueBuf> {
        self.ask(Job::Call {
            code: Arc::clone(code),
            this: this.map(DocBuf::from_doc),
            args: DocBuf::from_doc(args),
            where_: false,
        })
    }

    /// Calls the function of a `$where`: `this` and the global `obj` are the document.
    ///
    /// # Errors
    /// Those of [`Engine::call`].
    pub fn call_where(&mut self, code: &Arc<str>, doc: Doc<'_>) -> Result<bool> {
        let v = self.ask(Job::Call {
            code: Arc::clone(code),
            this: Some(DocBuf::from_doc(doc)),
            args: DocBuf::new(),
            where_: true,
        })?;
        Ok(v.as_value().truthy())
    }

    /// The pairs that were emitted since the last call, as an array of arrays of key and value.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure.
    pub fn emitted(&mut self) -> Result<ValueBuf> {
        self.ask(Job::Emitted)
    }

    /// Sets a global variable.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure.
    pub fn set_global(&mut self, name: &str, value: Value<'_>) -> Result<()> {
        self.ask(Job::Global(name.to_owned(), ValueBuf::new(value)))
            .map(|_| ())
    }
}

/// The reason for which scripts were stopped.
type Reason = Arc<Mutex<Option<Error>>>;

fn taken(reason: &Reason) -> Option<Error> {
    reason.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn work(stop: &Stop, heap: usize, jobs: &Receiver<Job>, answers: &Sender<Result<ValueBuf>>) {
    let reason: Reason = Arc::default();
    let mut machine = Machine::new(stop, &reason, heap);
    while let Ok(job) = jobs.recv() {
        let answer = match &mut machine {
            Ok(m) => m.run(job),
            Err(e) => Err(e.clone()),
        };
        if answers.send(answer).is_err() {
            break;
        }
    }
}

/// The runtime with its context, which live on the engine's thread.
struct Machine {
    // Fields are dropped in this order: values before the context, the context before the runtime.
    functions: HashMap<Arc<str>, Persistent<Function<'static>>>,
    prelude: Persistent<Object<'static>>,
    context: Context,
    _runtime: Runtime,
    reason: Reason,
    heap: usize,
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(Code::JSInterpreterFailure, message)
}

fn loose() -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options
}

/// A time longer than any script sleeps.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// `sleep(ms)`, which scripts of the server have in MongoDB as well. It ends early when the operation must
/// stop.
fn sleep(ms: f64, stop: &Stop, why: &Reason) -> rquickjs::Result<()> {
    let time = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    // Even a sleep of no time checks the operation: a script that catches the exception and sleeps again must
    // not continue.
    let until = Instant::now().checked_add(time);
    let until = until.unwrap_or_else(|| Instant::now() + FOR_EVER);
    sleep_until(until, &**stop).map_err(|e| {
        *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
        rquickjs::Error::Exception
    })
}

/// `hex_md5(text)`.
fn hex_md5(text: &str) -> String {
    let digest: [u8; 16] = Md5::digest(text.as_bytes()).into();
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

impl Machine {
    fn new(stop: &Stop, reason: &Reason, heap: usize) -> Result<Machine> {
        let failed = |e: rquickjs::Error| failed(e.to_string());
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(heap);
        runtime.set_max_stack_size(STACK);
        let asleep = Arc::clone(stop);
        let (stop, why) = (Arc::clone(stop), Arc::clone(reason));
        runtime.set_interrupt_handler(Some(Box::new(move || match stop.check() {
            Ok(()) => false,
            Err(e) => {
                *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                true
            }
        })));
        let context = Context::full(&runtime).map_err(failed)?;
        let (stop, why) = (Arc::clone(&asleep), Arc::clone(reason));
        let prelude = context.with(|ctx| {
            let sleep = Function::new(ctx.clone(), move |ms: f64| sleep(ms, &stop, &why));
            let md5 = Function::new(ctx.clone(), |text: String| hex_md5(&text));
            let version = Function::new(ctx.clone(), || MONGODB_VERSION);
            for (name, f) in [("sleep", sleep), ("hex_md5", md5), ("version", version)] {
                f.and_then(|f| ctx.globals().set(name, f)).map_err(failed)?;
            }
            let prelude: Object<'_> = ctx
                .eval(include_str!("prelude.js"))
                // The operation may have to stop already here.
                .map_err(|e| taken(reason).unwrap_or_else(|| failed(e)))?;
            Ok::<_, Error>(Persistent::save(&ctx, prelude))
        })?;
        Ok(Machine {
            functions: HashMap::new(),
            prelude,
            context,
            _runtime: runtime,
            reason: Arc::clone(reason),
            heap,
        })
    }

    fn run(&mut self, job: Job) -> Result<ValueBuf> {
        let context = self.context.clone();
        context.with(|ctx| {
            let prelude = self
                .prelude
                .clone()
                .restore(&ctx)
                .map_err(|e| failed(e.to_string()))?;
            let helpers = Helpers::of(&prelude);
            let helpers = helpers.catch(&ctx).map_err(|e| self.error(e))?;
            let value: Js<'_> = match job {
                Job::Call {
                    code,
                    this,
                    args,
                    where_,
                } => {
                    let f = self.function(&ctx, &code)?;
                    self.call(&ctx, &prelude, &helpers, f, this, args.as_doc(), where_)
                }
                Job::Emitted => prelude
                    .get::<_, Function<'_>>("emitted")
                    .and_then(|f| f.call(())),
                Job::Global(name, value) => to_js::value(&ctx, &helpers, value.as_value())
                    .and_then(|v| ctx.globals().set(name, v))
                    .map(|()| Js::new_null(ctx.clone())),
            }
            .catch(&ctx)
            .map_err(|e| self.error(e))?;
            FromJs::new(&helpers).value(&value, 0).map_err(|e| {
                // The conversion calls into the engine, which may be stopped there.
                self.stopped().unwrap_or(e)
            })
        })
    }

    #[allow(clippy::too_many_arguments)] // the parts of one call
    fn call<'js>(
        &self,
        ctx: &Ctx<'js>,
        prelude: &Object<'js>,
        helpers: &Helpers<'js>,
        f: Function<'js>,
        this: Option<DocBuf>,
        args: Doc<'_>,
        where_: bool,
    ) -> rquickjs::Result<Js<'js>> {
        let this = match this {
            Some(d) => to_js::document(ctx, helpers, d.as_doc())?,
            None => Object::new(ctx.clone())?,
        };
        let args: Array<'js> = to_js::array(ctx, helpers, args)?;
        let call: Function<'js> = prelude.get("call")?;
        call.call((f, this, args, where_))
    }

    /// Compiles the function, or finds it among those that were compiled.
    fn function<'js>(&mut self, ctx: &Ctx<'js>, code: &Arc<str>) -> Result<Function<'js>> {
        let invalid = |e: rquickjs::Error| failed(e.to_string());
        if let Some(f) = self.functions.get(code) {
            return f.clone().restore(ctx).map_err(invalid);
        }
        let parses = |expression: &str| {
            // The code is parsed, and none of it runs.
            let source = format!("(function(){{ return {expression} }})");
            ctx.eval_with_options::<Js<'js>, _>(source, loose())
                .catch(ctx)
                .is_ok()
        };
        let source = format!("__function = {}", as_function(code, parses));
        let v: Js<'js> = ctx
            .eval_with_options(source, loose())
            .catch(ctx)
            .map_err(|e| self.error(e))?;
        let f = v
            .as_function()
            .cloned()
            .ok_or_else(|| failed("the code is no function"))?;
        if self.functions.len() >= MAX_FUNCTIONS {
            self.functions.clear();
        }
        self.functions
            .insert(Arc::clone(code), Persistent::save(ctx, f.clone()));
        Ok(f)
    }

    fn stopped(&self) -> Option<Error> {
        taken(&self.reason)
    }

    /// The error for an exception in MongoDB's words, or the reason for which the script was stopped.
    fn error(&self, e: CaughtError<'_>) -> Error {
        if let Some(reason) = self.stopped() {
            return reason;
        }
        // As in MongoDB, errors that have a code keep it.
        if let CaughtError::Exception(e) = &e
            && let Ok(Some(code)) = e.as_object().get::<_, Option<i32>>("code")
            && code > 0
            && !OURS.contains(&code)
        {
            return Error::new(Code(code), e.message().unwrap_or_default());
        }
        failed(match e {
            CaughtError::Exception(e) => {
                let name: String = e.as_object().get("name").unwrap_or_else(|_| "Error".into());
                let message = e.message().unwrap_or_default();
                let stack = e.stack().unwrap_or_default();
                format!("{name}: {message} :\n{stack}")
            }
            CaughtError::Value(v) => match v.as_string().and_then(|s| s.to_string().ok()) {
                Some(s) => format!("uncaught exception: {s}"),
                // The engine has no memory left for an error object then.
                None if v.is_null() => format!(
                    "uncaught exception: null, or the script needs more than {} bytes \
                     (munimentScriptMemoryBytes)",
                    self.heap
                ),
                None => "uncaught exception".to_owned(),
            },
            CaughtError::Error(e) => e.to_string(),
        })
    }
}

/// The number of places at which the last statement of a script is looked for.
const MAX_STATEMENTS: usize = 200;

/// The source of a function. Code that is not a function is the body of one, which returns its last statement
/// if that is an expression, by MongoDB's rule. `parses` tells whether an expression is well-formed.
fn as_function(code: &str, parses: impl Fn(&str) -> bool) -> String {
    let code = code.trim_start();
    if is_function(code) {
        return code.to_owned();
    }
    let script = code.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    // The last statement is the longest end of the script that is an expression.
    let behind = |(at, _): (usize, &str)| at + 1;
    let places = script.match_indices([';', '}', '\n']).map(behind);
    for at in std::iter::once(0).chain(places).take(MAX_STATEMENTS) {
        let (before, last) = script.split_at(at);
        let statement = last.trim_start();
        if statement.is_empty() || statement.starts_with('{') || is_function(statement) {
            continue;
        }
        // The newline ends a comment in the last line.
        let function = format!("function(){{ {before}\nreturn (\n{last}\n)\n}}");
        if parses(&format!("(\n{last}\n)")) && parses(&format!("({function})")) {
            return function;
        }
    }
    format!("function(){{ {code}\n}}")
}

fn is_function(code: &str) -> bool {
    code.strip_prefix("function")
        .is_some_and(|rest| rest.starts_with(|c: char| c == '(' || c.is_whitespace() || c == '*'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_op::{NeverInterrupted, Operation};
    use muniment_value::{array, doc};

    fn limited(ms: u64) -> Stop {
        let limit = Duration::from_millis(ms);
        Arc::new(Operation::new(Instant::now(), Some(limit)))
    }

    fn engine() -> Engine {
        Engine::start(Arc::new(NeverInterrupted), MOST_HEAP).unwrap()
    }

    fn call(code: &str, args: Doc<'_>) -> Result<ValueBuf> {
        engine().call(&code.into(), None, args)
    }

    #[test]
    fn functions_and_bodies() {
        for (code, want) in [
            ("function(a, b) { return a + b; }", 3.0),
            ("function (a, b) { return a * 10 + b; };", 12.0),
            ("  function named(a) { return a; }", 1.0),
            ("7 * 6", 42.0),
            ("7 * 6;", 42.0),
            ("var x = 5; return x;", 5.0),
            ("return 8", 8.0),
            ("x = 4; x + 1;", 5.0),
            ("let x = 4; x\n + 2 // six", 6.0),
            ("(function() { return 3; })()", 3.0),
            ("var f = function() { return 1; }; f() + 1", 2.0),
            ("if (1) { return 9; } 4", 9.0),
            ("if (0) { return 9; } 4", 4.0),
            ("x = 1\ny = x + 2", 3.0),
            ("'a;b'.length", 3.0),
        ] {
            let got = call(code, array![1, 2].as_doc()).unwrap();
            assert_eq!(got, ValueBuf::new(want), "{code}");
        }
    }

    #[test]
    fn values_come_back_as_they_went() {
        let values = array![
            Value::Double(1.5),
            Value::String("aé\0b"),
            doc! { "a": 1, "b": doc! { "c": array![2.0, Value::Null] } },
            Value::Binary {
                subtype: 4,
                bytes: &[1, 2, 255]
            },
            Value::Undefined,
            Value::ObjectId([0xAB; 12]),
            true,
            Value::DateTime(-5),
            Value::Regex {
                pattern: "a/b",
                options: "im"
            },
            Value::Timestamp { t: u32::MAX, i: 7 },
            i64::MAX,
            Value::MinKey,
            Value::MaxKey
        ];
        let got = call(
            "function() { return [].slice.call(arguments); }",
            values.as_doc(),
        )
        .unwrap();
        let Value::Array(got) = got.as_value() else {
            panic!("no array")
        };
        for (want, got) in values.as_doc().values().zip(got.values()) {
            if let Value::Regex { options, .. } = got {
                // The slash is escaped in JavaScript's source.
                assert_eq!(options, "im");
                continue;
            }
            assert_eq!(ValueBuf::new(want), ValueBuf::new(got));
        }
        let d = muniment_value::decimal::Decimal::parse("1.50")
            .unwrap()
            .to_bid();
        let got = call(
            "function(d) { return d; }",
            array![Value::Decimal128(d)].as_doc(),
        );
        assert_eq!(got.unwrap(), ValueBuf::new(Value::Decimal128(d)));
    }

    #[test]
    fn types_by_name() {
        for (code, want) in [
            (
                "NumberLong('9007199254740993')",
                ValueBuf::new(9_007_199_254_740_993_i64),
            ),
            ("new NumberInt(3)", ValueBuf::new(3)),
            ("NumberLong(2) + 1", ValueBuf::new(3.0)),
            (
                "ISODate('1970-01-01T00:00:01Z')",
                ValueBuf::new(Value::DateTime(1000)),
            ),
            ("Array.sum([1, 2, 3])", ValueBuf::new(6.0)),
            (
                "tojson({a: [1, 'x'], b: NumberLong(5)})",
                ValueBuf::new("{ \"a\" : [ 1, \"x\" ], \"b\" : NumberLong(5) }"),
            ),
            (
                "UUID('00112233445566778899aabbccddeeff').hex()",
                ValueBuf::new("00112233445566778899aabbccddeeff"),
            ),
            ("({a: 1}).a", ValueBuf::new(1.0)),
        ] {
            assert_eq!(call(code, Doc::EMPTY).unwrap(), want, "{code}");
        }
    }

    #[test]
    fn where_sees_the_document() {
        let mut e = engine();
        let d = doc! { "a": 5, "b": i64::from(7) };
        for (code, want) in [
            ("this.a == 5", true),
            ("obj.a + obj.b == 12", true),
            ("function() { return this.a > this.b; }", false),
            ("this.missing", false),
        ] {
            assert_eq!(
                e.call_where(&code.into(), d.as_doc()).unwrap(),
                want,
                "{code}"
            );
        }
    }

    #[test]
    fn emitted_pairs_are_handed_over_once() {
        let mut e = engine();
        let f: Arc<str> = "function() { emit(this.k, 1); emit('x', this.k); }".into();
        e.call(&f, Some(doc! { "k": 2 }.as_doc()), Doc::EMPTY)
            .unwrap();
        let want = array![array![2.0, 1.0], array!["x", 2.0]];
        assert_eq!(
            e.emitted().unwrap(),
            ValueBuf::new(Value::Array(want.as_doc()))
        );
        assert_eq!(
            e.emitted().unwrap(),
            ValueBuf::new(Value::Array(Doc::EMPTY))
        );
    }

    #[test]
    fn errors_name_what_happened() {
        for (code, want) in [
            ("nothing.here", "ReferenceError: nothing is not defined :\n"),
            ("function( { return 1; }", "SyntaxError: "),
            ("throw 'plain'; return 1", "uncaught exception: plain"),
            ("throw new TypeError('x'); return 1", "TypeError: x :\n"),
        ] {
            let e = call(code, Doc::EMPTY).unwrap_err();
            assert_eq!(e.code().0, 139, "{code}: {e:?}");
            assert!(e.message().starts_with(want), "{code}: {}", e.message());
        }
        let cycle = "var a = {}; a.a = a; return a;";
        assert_eq!(call(cycle, Doc::EMPTY).unwrap_err().code().0, 17279);
    }

    #[test]
    fn scripts_can_sleep_until_they_must_stop() {
        let started = Instant::now();
        let got = call("sleep(30) || true", Doc::EMPTY).unwrap();
        assert_eq!(got, ValueBuf::new(true));
        assert!(started.elapsed() >= Duration::from_millis(30));
        for code in ["sleep(-5); return 1", "sleep(NaN); return 1"] {
            assert_eq!(
                call(code, Doc::EMPTY).unwrap(),
                ValueBuf::new(1.0),
                "{code}"
            );
        }
        let started = Instant::now();
        let mut e = Engine::start(limited(50), MOST_HEAP).unwrap();
        let error = e
            .call(&"sleep(60000)".into(), None, Doc::EMPTY)
            .unwrap_err();
        assert_eq!(error.code(), Code::MaxTimeMSExpired);
        assert!(started.elapsed() < Duration::from_secs(30));
        // Only the kill ends this sleep.
        let op = Arc::new(Operation::new(Instant::now(), None));
        let mut e = Engine::start(op.clone(), MOST_HEAP).unwrap();
        let error = std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                op.kill(Code::Interrupted);
            });
            e.call(&"sleep(600000)".into(), None, Doc::EMPTY)
        });
        assert_eq!(error.unwrap_err().code(), Code::Interrupted);
    }

    #[test]
    fn a_place_among_the_engines_is_waited_for() {
        // Other tests have engines, too. With as many engines as may run, one more has to wait in any case.
        let all = |n: usize| -> Vec<Engine> {
            (0..n)
                .map_while(|_| Engine::start(limited(100), MOST_HEAP).ok())
                .collect()
        };
        let mut held = all(MAX_ENGINES + 1);
        assert!(held.len() <= MAX_ENGINES);
        std::thread::scope(|s| {
            let waits = s.spawn(|| Engine::start(limited(600_000), MOST_HEAP).is_ok());
            while ENDED.waiting() == 0 && !waits.is_finished() {
                std::thread::yield_now();
            }
            held.clear();
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn loops_memory_and_stack_are_bounded() {
        let started = Instant::now();
        let mut e = Engine::start(limited(200), MOST_HEAP).unwrap();
        for code in [
            "while (true) {}; return 1",
            "/(a+)+$/.test('a'.repeat(50) + 'b')",
        ] {
            let err = e.call(&code.into(), None, Doc::EMPTY);
            assert_eq!(err.unwrap_err().code(), Code::MaxTimeMSExpired, "{code}");
        }
        assert!(started.elapsed() < Duration::from_secs(5));

        for code in [
            "var a = []; while (true) { a.push('x'.repeat(100000) + a.length); }; return 1",
            "var f = () => f() + 1; return f();",
            "var s = 'x'; while (true) { s += s; }; return s",
        ] {
            assert_eq!(call(code, Doc::EMPTY).unwrap_err().code().0, 139, "{code}");
        }
    }

    #[test]
    fn one_that_is_stopped_at_once_says_why() {
        let stop = Operation::new(Instant::now(), None);
        stop.kill(Code::Interrupted);
        let mut e = Engine::start(Arc::new(stop), MOST_HEAP).unwrap();
        let err = e.call(&"while (true) {}; return 1".into(), None, Doc::EMPTY);
        assert_eq!(err.unwrap_err().code(), Code::Interrupted);
    }

    #[test]
    fn nothing_of_the_host_can_be_reached() {
        for name in [
            "require", "process", "std", "os", "load", "quit", "db", "fetch",
        ] {
            let got = call(&format!("typeof {name}"), Doc::EMPTY).unwrap();
            assert_eq!(got, ValueBuf::new("undefined"), "{name}");
        }
        assert!(call("import('os')", Doc::EMPTY).is_ok_and(|v| v == ValueBuf::new(doc! {})));
    }

    #[test]
    fn int32_fields_stay_int32_when_they_stay_whole() {
        let args = array![doc! { "a": 1, "b": 2, "c": 3.0 }];
        let got = call(
            "function(d) { d.a++; d.b += 0.5; return d; }",
            args.as_doc(),
        )
        .unwrap();
        assert_eq!(got, ValueBuf::new(doc! { "a": 2, "b": 2.5, "c": 3.0 }));
    }
}
