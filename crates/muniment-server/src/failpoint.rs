//! Failpoints: configureFailPoint's `failCommand`, which the drivers' own tests rely on, and the others in
//! [`NAMES`].
//!
//! Invariant: while no failpoint is on, a command pays one atomic read.

use crate::registry::CommandSpec;
use muniment_op::{Interrupt, sleep_until};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, number};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// When a failpoint fires.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Off,
    Always,
    Times(i64),
    Skip(i64),
    Probability(f64),
}

#[derive(Debug)]
struct FailPoint {
    name: &'static str,
    mode: Mode,
    data: DocBuf,
    entered: u64,
}

/// The server's failpoints.
pub struct FailPoints {
    any: AtomicBool,
    points: Mutex<Vec<FailPoint>>,
    seed: AtomicU64,
}

/// What failCommand does to one command.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Wait so long first.
    pub block: Option<Duration>,
    /// Close the connection instead of answering.
    pub close: bool,
    /// Answer this error.
    pub error: Option<Error>,
    /// Run the command, and put this `writeConcernError` into its reply unchanged.
    pub write_concern_error: Option<DocBuf>,
    /// The `errorLabels` of `error` or of `write_concern_error`.
    pub labels: Option<ArrayBuf>,
}

/// Makes a getMore fail after it has found its cursor.
const GET_MORE: &str = "failGetMoreAfterCursorCheckout";

/// Makes a secondary take no records.
pub const STOP_PRODUCER: &str = "stopReplProducer";

/// Makes a router fail or wait at a step of a move between shards: see [`FailPoints::at_step`].
const MOVE_STEP: &str = "munimentMoveStep";

/// How often a move that waits at a step looks whether it may go on.
const LOOK: Duration = Duration::from_millis(20);

/// The failpoints that exist.
pub const NAMES: [&str; 7] = [
    "failCommand",
    GET_MORE,
    "maxTimeAlwaysTimeOut",
    "maxTimeNeverTimeOut",
    MOVE_STEP,
    "onPrimaryTransactionalWrite",
    STOP_PRODUCER,
];

impl Default for FailPoints {
    fn default() -> FailPoints {
        FailPoints {
            any: AtomicBool::new(false),
            points: Mutex::new(
                NAMES
                    .iter()
                    .map(|name| FailPoint {
                        name,
                        mode: Mode::Off,
                        data: DocBuf::new(),
                        entered: 0,
                    })
                    .collect(),
            ),
            seed: AtomicU64::new(0x9E37_79B9_7F4A_7C15),
        }
    }
}

impl FailPoints {
    /// Sets a failpoint. Returns how often it has fired so far.
    ///
    /// # Errors
    /// 266 for an unknown failpoint, 2 and 14 for a bad mode or data.
    pub fn configure(&self, name: &str, mode: Value<'_>, data: Doc<'_>) -> Result<u64> {
        let mode = parse_mode(mode)?;
        if name == "failCommand" && mode != Mode::Off {
            Failure::parse(data)?;
        }
        let mut points = self.points.lock();
        let Some(p) = points.iter_mut().find(|p| p.name == name) else {
            return Err(Error::new(
                Code::FailPointSetFailed,
                format!("{name} not found"),
            ));
        };
        p.mode = mode;
        p.data = data.to_buf();
        let entered = p.entered;
        let any = points.iter().any(|p| p.mode != Mode::Off);
        self.any.store(any, Ordering::Release);
        Ok(entered)
    }

    /// True if a failpoint is on.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether a failpoint without data fires now.
    pub fn fires(&self, name: &str) -> bool {
        self.fires_within(name, 1)
    }

    /// Whether a failpoint fires at least once while it is passed this many times.
    fn fires_within(&self, name: &str, times: usize) -> bool {
        self.any() && {
            let mut points = self.points.lock();
            let found = points.iter_mut().find(|p| p.name == name);
            found.is_some_and(|p| (0..times).any(|_| p.fire(self.roll())))
        }
    }

    /// A change of the cluster comes to a step. If `munimentMoveStep` names it, the change fails with the failpoint's `errorCode`, or else
    /// waits until the failpoint is off.
    ///
    /// # Errors
    /// That error; what `on` says.
    pub fn at_step(&self, step: &str, on: &dyn Interrupt) -> Result<()> {
        if !self.any() {
            return Ok(());
        }
        let fired = {
            let mut points = self.points.lock();
            let roll = self.roll();
            let point = points
                .iter_mut()
                .find(|p| p.name == MOVE_STEP && p.data.as_doc().get_str("step") == Some(step));
            point.filter(|p| p.mode != Mode::Off).and_then(|p| {
                let code = p.data.as_doc().get("errorCode");
                let code = code.and_then(number::to_i64_exact);
                p.fire(roll).then_some(code)
            })
        };
        let Some(code) = fired else {
            return Ok(());
        };
        if let Some(code) = code {
            return Err(Error::new(
                Code(i32::try_from(code).unwrap_or_default()),
                format!("Hit {MOVE_STEP} failpoint at {step}"),
            ));
        }
        let is_on = || {
            let points = self.points.lock();
            points
                .iter()
                .any(|p| p.name == MOVE_STEP && p.mode != Mode::Off)
        };
        while is_on() {
            sleep_until(muniment_op::now() + LOOK, on)?;
        }
        Ok(())
    }

    /// The error that `failGetMoreAfterCursorCheckout` gives to a getMore, if it fires.
    pub fn fails_get_more(&self) -> Option<Error> {
        if !self.fires(GET_MORE) {
            return None;
        }
        let points = self.points.lock();
        let data = points.iter().find(|p| p.name == GET_MORE)?.data.as_doc();
        let code = data.get("errorCode").and_then(number::to_i64_exact)?;
        Some(Error::new(
            Code(i32::try_from(code).unwrap_or_default()),
            format!("Hit {GET_MORE} failpoint"),
        ))
    }

    /// The effect of `onPrimaryTransactionalWrite` on a retryable write: whether the connection is closed
    /// instead of answered, and the error with which the write fails before anything is written. Each
    /// statement passes the failpoint once.
    pub fn loses_write(&self, statements: usize) -> (bool, Option<Error>) {
        const NAME: &str = "onPrimaryTransactionalWrite";
        if !self.fires_within(NAME, statements) {
            return (false, None);
        }
        let points = self.points.lock();
        let data = points
            .iter()
            .find(|p| p.name == NAME)
            .map(|p| p.data.as_doc());
        let data = data.unwrap_or(Doc::EMPTY);
        let code = data.get("failBeforeCommitExceptionCode");
        let error = code.and_then(number::to_i64_exact).map(|code| {
            Error::new(
                Code(i32::try_from(code).unwrap_or_default()),
                format!("Failing command via '{NAME}' failpoint"),
            )
        });
        // By default it closes the connection.
        let closes = data.get("closeConnection").is_none_or(|v| v.truthy());
        (closes, error)
    }

    /// The effect of failCommand on this command, if it fires.
    pub fn fail_command(
        &self,
        spec: &CommandSpec,
        ns: &str,
        app_name: Option<&str>,
    ) -> Option<Failure> {
        let named = |name: &str| spec.is_named(name);
        let fails = spec.can_be_failed;
        fails.then(|| self.fail(&named, ns, app_name)).flatten()
    }

    /// The same for a command that the server does not have. MongoDB may have it, and the driver's test is
    /// about the connection, not the command.
    pub fn fail_unknown(&self, name: &str, ns: &str, app_name: Option<&str>) -> Option<Failure> {
        self.fail(&|n| n == name, ns, app_name)
    }

    fn fail(
        &self,
        is_named: &dyn Fn(&str) -> bool,
        ns: &str,
        app_name: Option<&str>,
    ) -> Option<Failure> {
        let mut points = self.points.lock();
        let roll = self.roll();
        let p = points.iter_mut().find(|p| p.name == "failCommand")?;
        let data = p.data.as_doc();
        let commands = data.get_array("failCommands")?;
        let named = commands.values().any(|v| v.as_str().is_some_and(is_named));
        let same = |field: &str, actual: Option<&str>| {
            data.get_str(field).is_none_or(|want| Some(want) == actual)
        };
        if !named || !same("appName", app_name) || !same("namespace", Some(ns)) || !p.fire(roll) {
            return None;
        }
        Failure::parse(p.data.as_doc()).ok()
    }

    /// A number in [0, 1).
    fn roll(&self) -> f64 {
        let mut x = self.seed.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.seed.store(x, Ordering::Relaxed);
        (x >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl FailPoint {
    fn fire(&mut self, roll: f64) -> bool {
        let fires = match &mut self.mode {
            Mode::Off => false,
            Mode::Always => true,
            Mode::Times(n) => {
                *n -= 1;
                if *n <= 0 {
                    self.mode = Mode::Off;
                }
                true
            }
            Mode::Skip(n) => {
                *n -= 1;
                if *n <= 0 {
                    self.mode = Mode::Always;
                }
                false
            }
            Mode::Probability(p) => roll < *p,
        };
        self.entered += u64::from(fires);
        fires
    }
}

fn parse_mode(mode: Value<'_>) -> Result<Mode> {
    let count = |v: Value<'_>, name: &str| match number::to_i64_exact(v) {
        Some(n) if n >= 0 => Ok(n),
        _ => Err(Error::bad_value(format!(
            "'mode.{name}' must be a whole number that is not negative"
        ))),
    };
    match mode {
        Value::String("off") => Ok(Mode::Off),
        Value::String("alwaysOn") => Ok(Mode::Always),
        Value::String(other) => Err(Error::bad_value(format!("unknown mode: {other}"))),
        Value::Document(d) => match d.first().map(|e| (e.name(), e.value())) {
            Some(("times", v)) => Ok(match count(v, "times")? {
                0 => Mode::Off,
                n => Mode::Times(n),
            }),
            Some(("skip", v)) => Ok(match count(v, "skip")? {
                0 => Mode::Always,
                n => Mode::Skip(n),
            }),
            Some(("activationProbability", v)) => match number::to_f64(v) {
                Some(p) if (0.0..=1.0).contains(&p) => Ok(Mode::Probability(p)),
                _ => Err(Error::bad_value(
                    "activationProbability must be between 0.0 and 1.0",
                )),
            },
            _ => Err(Error::bad_value(
                "'mode' must be one of 'off', 'alwaysOn', 'times', 'skip', 'activationProbability'",
            )),
        },
        v => Err(Error::type_mismatch(format!(
            "'mode' must be a string or JSON object, not {}",
            v.type_name()
        ))),
    }
}

impl Failure {
    fn parse(data: Doc<'_>) -> Result<Failure> {
        let mut f = Failure::default();
        let (mut code, mut labels, mut extra) = (None, None, None);
        let (mut block, mut block_ms) = (false, None);
        let wrong = |e: &str, v: Value<'_>| {
            Error::type_mismatch(format!(
                "failCommand: '{e}' has the wrong type {}",
                v.type_name()
            ))
        };
        for e in data {
            let v = e.value();
            match e.name() {
                "failCommands" if v.as_array().is_none() => return Err(wrong(e.name(), v)),
                "errorCode" => {
                    let n = number::to_i64_exact(v).ok_or_else(|| wrong(e.name(), v))?;
                    code = Some(n as i32);
                }
                "closeConnection" => f.close = v.truthy(),
                "blockConnection" => block = v.truthy(),
                "blockTimeMS" => {
                    let n = number::to_i64_exact(v).ok_or_else(|| wrong(e.name(), v))?;
                    block_ms = Some(n.max(0) as u64);
                }
                "errorLabels" => labels = Some(v.as_array().ok_or_else(|| wrong(e.name(), v))?),
                "errorExtraInfo" => {
                    extra = Some(v.as_doc().ok_or_else(|| wrong(e.name(), v))?);
                }
                "writeConcernError" => {
                    let d = v.as_doc().ok_or_else(|| wrong(e.name(), v))?;
                    f.write_concern_error = Some(d.to_buf());
                }
                "appName" | "namespace" => {
                    v.as_str().ok_or_else(|| wrong(e.name(), v))?;
                }
                // This server has no internal clients, so these change nothing.
                "failInternalCommands" | "failLocalClients" => {}
                // These would change which commands fail. Any other field is ignored, as in MongoDB.
                other @ ("failAllCommands" | "threadName") => {
                    return Err(Error::bad_value(format!(
                        "failCommand: '{other}' is not supported"
                    )));
                }
                _ => {}
            }
        }
        if block {
            let ms = block_ms.ok_or_else(|| {
                Error::new(
                    Code::InvalidOptions,
                    "must specify 'blockTimeMS' when 'blockConnection' is true",
                )
            })?;
            f.block = Some(Duration::from_millis(ms));
        }
        if let Some(code) = code {
            let mut err = Error::new(Code(code), "Failing command via 'failCommand' failpoint");
            if let Some(x) = extra {
                err = err.with_extra(x.to_buf());
            }
            f.error = Some(err);
        }
        f.labels = labels.map(|l| l.values().collect());
        Ok(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    fn find() -> &'static CommandSpec {
        crate::registry::find("ping").unwrap()
    }

    #[test]
    fn times_skip_and_off() {
        let f = FailPoints::default();
        assert!(!f.any());
        let data = doc! { "failCommands": array!["ping"], "errorCode": 5 };
        let set = |mode: DocBuf| {
            let mode = mode.as_doc().get("mode").map(muniment_value::ValueBuf::new);
            f.configure("failCommand", mode.unwrap().as_value(), data.as_doc())
        };
        set(doc! { "mode": doc! { "times": 2 } }).unwrap();
        let fired = || f.fail_command(find(), "a.b", None).is_some();
        assert_eq!([fired(), fired(), fired()], [true, true, false]);
        set(doc! { "mode": doc! { "skip": 1 } }).unwrap();
        assert_eq!([fired(), fired(), fired()], [false, true, true]);
        assert_eq!(set(doc! { "mode": "off" }).unwrap(), 4);
        assert!(!fired() && !f.any());
        assert_eq!(set(doc! { "mode": "x" }).unwrap_err().code().0, 2);
        assert_eq!(set(doc! { "mode": 1 }).unwrap_err().code().0, 14);
    }

    #[test]
    fn each_statement_passes() {
        let f = FailPoints::default();
        let mode = doc! { "skip": 3 };
        let data = doc! { "failBeforeCommitExceptionCode": 1 };
        let name = "onPrimaryTransactionalWrite";
        f.configure(name, Value::Document(mode.as_doc()), data.as_doc())
            .unwrap();
        let codes = |n| f.loses_write(n).1.map(|e| e.code().0);
        assert_eq!(
            [codes(3), codes(1), codes(0), codes(2)],
            [None, Some(1), None, Some(1)]
        );
        f.configure(
            name,
            Value::Document(doc! { "times": 1 }.as_doc()),
            data.as_doc(),
        )
        .unwrap();
        assert_eq!([codes(3), codes(3)], [Some(1), None]);
    }

    #[test]
    fn data_says_what_happens() {
        let f = FailPoints::default();
        let data = doc! {
            "failCommands": array!["ping"], "errorCode": 91, "appName": "me",
            "errorLabels": array!["A"], "blockConnection": true, "blockTimeMS": 7,
        };
        f.configure("failCommand", Value::String("alwaysOn"), data.as_doc())
            .unwrap();
        assert!(f.fail_command(find(), "a.b", Some("other")).is_none());
        let failure = f.fail_command(find(), "a.b", Some("me")).unwrap();
        assert_eq!(failure.block, Some(Duration::from_millis(7)));
        assert_eq!(failure.error.unwrap().code().0, 91);
        assert_eq!(failure.labels.unwrap().len(), 1);
        assert!(
            f.configure("nope", Value::String("off"), Doc::EMPTY)
                .is_err()
        );
        for (data, want) in [
            (doc! { "failCommands": 1 }, false),
            (
                doc! { "failCommands": array!["ping"], "threadName": "x" },
                false,
            ),
            (
                doc! { "failCommands": array!["ping"], "nobody knows": 1 },
                true,
            ),
        ] {
            let set = f.configure("failCommand", Value::String("alwaysOn"), data.as_doc());
            assert_eq!(set.is_ok(), want, "{data:?}");
        }
    }
}
