//! Logging in MongoDB's structured format: one JSON object a line,
//! `{"t":{"$date":…},"s":"I","c":"NETWORK","id":…,"ctx":…,"msg":…,"attr":{…}}`.
//!
//! Invariants: a line is written with one `write`; a line below the level costs one atomic read; logging
//! never fails an operation (a full disk loses lines, not commands); the newest 1024 lines and all start-up
//! warnings stay in memory for `getLog`.

use crate::target::{LogTarget, Rotation};
use crate::verbosity::Verbosity;
use muniment_value::{Doc, DocBuf, Value};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The process ends.
    Fatal,
    /// Something failed that should not.
    Error,
    /// Something an operator should know.
    Warning,
    /// Informational.
    Info,
    /// Verbosity 1–5.
    Debug(u8),
}

impl Severity {
    fn letter(self) -> &'static str {
        match self {
            Severity::Fatal => "F",
            Severity::Error => "E",
            Severity::Warning => "W",
            Severity::Info => "I",
            Severity::Debug(n) => match n {
                0 | 1 => "D1",
                2 => "D2",
                3 => "D3",
                4 => "D4",
                _ => "D5",
            },
        }
    }

    fn level(self) -> i32 {
        match self {
            Severity::Debug(n) => i32::from(n),
            _ => 0,
        }
    }
}

/// Limits a line that many clients may cause: it is written at most every ten seconds, with how often its
/// cause occurred.
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Default for Seldom {
    fn default() -> Seldom {
        Seldom::new()
    }
}

impl Seldom {
    const EVERY: Duration = Duration::from_secs(10);

    /// A limit for a line that was not written yet.
    pub const fn new() -> Seldom {
        Seldom(Mutex::new((None, 0)))
    }

    /// Notes the cause. If the line is to be written, returns how often the cause occurred since the last
    /// line.
    pub fn note(&self) -> Option<u64> {
        let mut state = self.0.lock();
        state.1 += 1;
        let lately = state.0.is_some_and(|at| at.elapsed() < Seldom::EVERY);
        if lately {
            return None;
        }
        state.0 = Some(Instant::now());
        Some(std::mem::take(&mut state.1))
    }
}

/// Lines kept for `getLog: "global"`, as in MongoDB.
const RAM_LINES: usize = 1024;
/// The most bytes of these lines together, as in MongoDB. The oldest lines go first, and the newest always
/// stays.
const RAM_BYTES: usize = 1 << 20;
/// The longest string value of an attribute; a longer one is cut.
const MAX_STRING: usize = 4096;

#[derive(Default)]
struct RamLog {
    lines: VecDeque<String>,
    /// The bytes of the lines together.
    bytes: usize,
    total: u64,
}

enum Sink {
    Stdout,
    File(File, PathBuf, Rotation),
    /// `syslog(3)`, with this facility.
    Syslog(i32),
    Nothing,
}

/// The server's log.
pub struct Logger {
    /// How much is logged of each component.
    pub verbosity: Verbosity,
    quiet: AtomicBool,
    /// What clients have sent is not shown.
    pub(crate) redacts: AtomicBool,
    sink: Mutex<Sink>,
    global: Mutex<RamLog>,
    startup: Mutex<RamLog>,
    lines: AtomicU64,
    local_time: AtomicBool,
    /// The last line could not be written whole.
    torn: AtomicBool,
}

impl Logger {
    /// A log to this target. An existing file that is not to be appended to is renamed to `<path>.<UTC
    /// time>`, as mongod does.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(target: &LogTarget, level: i32, quiet: bool) -> io::Result<Logger> {
        let sink = match target {
            LogTarget::Silent => return Ok(Logger::silent()),
            LogTarget::Stdout => Sink::Stdout,
            LogTarget::Syslog { facility } => Sink::Syslog(*facility),
            LogTarget::File {
                path,
                append,
                rotation,
            } => {
                if path.is_dir() {
                    return Err(io::Error::new(
                        io::ErrorKind::IsADirectory,
                        "the log's path has to name a file, not a directory",
                    ));
                }
                // A terminal, a pipe or /dev/null is not renamed.
                if !append && path.is_file() {
                    put_aside(path, now_ms())?;
                }
                Sink::File(open_file(path)?, path.clone(), *rotation)
            }
        };
        Ok(Logger::with_sink(sink, level, quiet))
    }

    /// A log that is kept in memory only: for embedded servers and tests.
    pub fn silent() -> Logger {
        Logger::with_sink(Sink::Nothing, 0, true)
    }

    fn with_sink(sink: Sink, level: i32, quiet: bool) -> Logger {
        Logger {
            verbosity: Verbosity::new(level),
            quiet: AtomicBool::new(quiet),
            redacts: AtomicBool::new(false),
            sink: Mutex::new(sink),
            global: Mutex::default(),
            startup: Mutex::default(),
            lines: AtomicU64::new(0),
            local_time: AtomicBool::new(false),
            torn: AtomicBool::new(false),
        }
    }

    /// Renames the file and begins a new one. If another program has renamed it (`Rotation::Reopen`), only
    /// opens it again. A log without a file stays as it is.
    ///
    /// # Errors
    /// The file cannot be renamed or created; the log then continues in the old one.
    pub fn rotate(&self, ctx: &str) -> io::Result<()> {
        let now = now_ms();
        self.info(
            "CONTROL",
            23166,
            ctx,
            "Log rotation initiated",
            &muniment_value::doc! { "suffix": suffix(now) },
        );
        self.open_next(now)?;
        self.info(
            "CONTROL",
            20721,
            ctx,
            "Process Details",
            &muniment_value::doc! {
                "pid": std::process::id().to_string(),
                "host": crate::hostname(),
                "architecture": "64-bit",
            },
        );
        Ok(())
    }

    fn open_next(&self, now: i64) -> io::Result<()> {
        let mut sink = self.sink.lock();
        let Sink::File(file, path, rotation) = &mut *sink else {
            return Ok(());
        };
        // If the file is gone, another program has already renamed it.
        if *rotation == Rotation::Rename && path.is_file() {
            put_aside(path, now)?;
        }
        *file = open_file(path)?;
        Ok(())
    }

    /// Whether times have the offset of the local zone.
    pub fn set_local_time(&self, local: bool) {
        self.local_time.store(local, Ordering::Relaxed);
    }

    fn time(&self) -> String {
        let now = now_ms();
        match self.local_time.load(Ordering::Relaxed) {
            true => iso8601_at(now, local_offset(now)),
            false => iso8601(now),
        }
    }

    /// The verbosity: 0 is informational, up to 5.
    pub fn level(&self) -> i32 {
        self.verbosity.base()
    }

    /// Sets the verbosity.
    pub fn set_level(&self, level: i32) {
        self.verbosity.set_base(level);
    }

    /// Whether `--quiet` asks to leave out connection events.
    pub fn quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Sets whether connection events are left out.
    pub fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    /// Writes a line. `component` is MongoDB's (NETWORK, COMMAND, …), `id` a stable number of
    /// the message, `ctx` the thread's name.
    pub fn log(
        &self,
        severity: Severity,
        component: &'static str,
        id: u32,
        ctx: &str,
        msg: &str,
        attr: Option<&DocBuf>,
    ) {
        if !self.verbosity.says(component, severity.level()) {
            return;
        }
        let line = format_line(&self.time(), severity, component, id, ctx, msg, attr);
        self.write(severity, &line);
        self.global.lock().push(line);
    }

    /// A warning at start: in the log, in `getLog: "global"` and in `getLog: "startupWarnings"`.
    pub fn startup_warning(&self, id: u32, msg: &str) {
        self.startup_warning_of(id, msg, &DocBuf::new());
    }

    /// Writes a start-up warning with attributes.
    pub fn startup_warning_of(&self, id: u32, msg: &str, attr: &DocBuf) {
        let (warning, ctx) = (Severity::Warning, "initandlisten");
        let line = format_line(&self.time(), warning, "CONTROL", id, ctx, msg, Some(attr));
        self.write(warning, &line);
        self.startup.lock().push(line.clone());
        self.global.lock().push(line);
    }

    /// Forgets the start-up warnings, since a new start begins.
    pub fn forget_startup_warnings(&self) {
        *self.startup.lock() = RamLog::default();
    }

    /// Writes an informational line.
    pub fn info(&self, component: &'static str, id: u32, ctx: &str, msg: &str, attr: &DocBuf) {
        self.log(Severity::Info, component, id, ctx, msg, Some(attr));
    }

    fn write(&self, severity: Severity, line: &str) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        let bytes = || {
            let mut bytes = Vec::with_capacity(line.len() + 2);
            // After a full disk the file may end within a line; a newline keeps that rest apart from this
            // line.
            if self.torn.load(Ordering::Relaxed) {
                bytes.push(b'\n');
            }
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
            bytes
        };
        // A log that cannot be written must not fail the operation that logs.
        let mut sink = self.sink.lock();
        let written = match &mut *sink {
            Sink::Stdout => io::stdout().write_all(&bytes()),
            Sink::File(f, ..) => f.write_all(&bytes()),
            Sink::Syslog(facility) => {
                to_syslog(*facility, severity, line);
                Ok(())
            }
            Sink::Nothing => Ok(()),
        };
        self.torn.store(written.is_err(), Ordering::Relaxed);
    }

    /// `getLog`: the kept lines and how many were written in all; `None` for an unknown name.
    pub fn kept(&self, name: &str) -> Option<(Vec<String>, u64)> {
        let ram = match name {
            "global" => &self.global,
            "startupWarnings" => &self.startup,
            _ => return None,
        };
        let ram = ram.lock();
        Some((ram.lines.iter().cloned().collect(), ram.total))
    }
}

/// Renames the log's file to a name with the time, as mongod does. If that name is taken it also gets a
/// number, so that no file is overwritten. The caller holds the lock of the log, so that no other rotation
/// takes the name. Returns the new name.
///
/// # Errors
/// The file cannot be renamed.
pub fn put_aside(path: &Path, now: i64) -> io::Result<PathBuf> {
    let named = |suffix: &str| {
        let mut to = path.as_os_str().to_owned();
        to.push(".");
        to.push(suffix);
        PathBuf::from(to)
    };
    let plain = std::iter::once(suffix(now));
    let numbered = (1_u32..).map(|n| format!("{}.{n}", suffix(now)));
    let free = plain
        .chain(numbered)
        .map(|suffix| named(&suffix))
        .find(|to| to.symlink_metadata().is_err());
    let to = free.unwrap_or_else(|| named("old"));
    std::fs::rename(path, &to)?;
    Ok(to)
}

/// The time of a renamed log: `2026-01-31T08-09-10`, UTC.
fn suffix(now: i64) -> String {
    iso8601(now)
        .chars()
        .take(19)
        .collect::<String>()
        .replace(':', "-")
}

/// The facilities of `syslog(3)`, by their names.
const FACILITIES: &[(&str, i32)] = &[
    ("auth", libc::LOG_AUTH),
    ("authpriv", libc::LOG_AUTHPRIV),
    ("cron", libc::LOG_CRON),
    ("daemon", libc::LOG_DAEMON),
    ("ftp", libc::LOG_FTP),
    ("kern", libc::LOG_KERN),
    ("local0", libc::LOG_LOCAL0),
    ("local1", libc::LOG_LOCAL1),
    ("local2", libc::LOG_LOCAL2),
    ("local3", libc::LOG_LOCAL3),
    ("local4", libc::LOG_LOCAL4),
    ("local5", libc::LOG_LOCAL5),
    ("local6", libc::LOG_LOCAL6),
    ("local7", libc::LOG_LOCAL7),
    ("lpr", libc::LOG_LPR),
    ("mail", libc::LOG_MAIL),
    ("news", libc::LOG_NEWS),
    ("syslog", libc::LOG_SYSLOG),
    ("user", libc::LOG_USER),
    ("uucp", libc::LOG_UUCP),
];

/// The number of a facility of `syslog(3)`.
pub fn facility(name: &str) -> Option<i32> {
    let found = FACILITIES.iter().find(|(n, _)| *n == name);
    found.map(|(_, number)| *number)
}

/// Writes an informational line into the system's log.
pub fn write_to_syslog(facility: i32, line: &str) {
    to_syslog(facility, Severity::Info, line);
}

fn to_syslog(facility: i32, severity: Severity, line: &str) {
    let priority = match severity {
        Severity::Fatal => libc::LOG_ALERT,
        Severity::Error => libc::LOG_ERR,
        Severity::Warning => libc::LOG_WARNING,
        Severity::Info => libc::LOG_INFO,
        Severity::Debug(_) => libc::LOG_DEBUG,
    };
    // The text has no zero byte: a line is JSON, in which one is escaped.
    let Ok(text) = CString::new(line) else { return };
    // SAFETY: the format takes one string, which outlives the call.
    unsafe { libc::syslog(facility | priority, c"%s".as_ptr(), text.as_ptr()) };
}

/// By how many seconds the local time was ahead of UTC at this time.
pub fn local_offset(ms: i64) -> i64 {
    let seconds: libc::time_t = ms.div_euclid(1000);
    // SAFETY: the structure is plain data that the call fills, and both outlive the call.
    unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        match libc::localtime_r(&seconds, &mut parts).is_null() {
            true => 0,
            false => parts.tm_gmtoff,
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

impl RamLog {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > RAM_LINES || (self.bytes > RAM_BYTES && self.lines.len() > 1) {
            let oldest = self.lines.pop_front();
            self.bytes -= oldest.map_or(0, |line| line.len());
        }
        self.total += 1;
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as i64)
}

fn format_line(
    time: &str,
    severity: Severity,
    component: &str,
    id: u32,
    ctx: &str,
    msg: &str,
    attr: Option<&DocBuf>,
) -> String {
    let mut s = String::with_capacity(160);
    let _ = write!(
        s,
        "{{\"t\":{{\"$date\":\"{time}\"}},\"s\":\"{}\",\"c\":\"{component}\",\"id\":{id},\"ctx\":",
        severity.letter()
    );
    json_string(ctx, &mut s);
    s.push_str(",\"msg\":");
    json_string(msg, &mut s);
    if let Some(attr) = attr.filter(|a| !a.as_doc().is_empty()) {
        s.push_str(",\"attr\":");
        json_doc(attr.as_doc(), false, 0, &mut s);
    }
    s.push('}');
    s
}

/// `2026-01-31T08:09:10.123+00:00`: proleptic Gregorian, UTC.
pub fn iso8601(ms: i64) -> String {
    iso8601_at(ms, 0)
}

/// The time where the clocks are ahead of UTC by `offset` seconds: `2026-01-31T10:09:10.123+02:00`.
fn iso8601_at(ms: i64, offset: i64) -> String {
    let ms = ms + offset * 1000;
    let (days, ms_of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Howard Hinnant's algorithm `civil_from_days`.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let s = ms_of_day / 1000;
    let (sign, ahead) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}{sign}{:02}:{:02}",
        s / 3600,
        s / 60 % 60,
        s % 60,
        ms_of_day % 1000,
        ahead / 60,
        ahead % 60
    )
}

/// Appends `text` as a JSON string.
pub fn json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends a document as relaxed Extended JSON. For the log, long strings and deep nesting are cut.
fn json_doc(doc: Doc<'_>, array: bool, depth: usize, out: &mut String) {
    let (open, close) = if array { ('[', ']') } else { ('{', '}') };
    out.push(open);
    for (i, e) in doc.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if depth > 12 || i >= 200 {
            json_string("…", out);
            if !array {
                out.push_str(":true");
            }
            break;
        }
        if !array {
            json_string(e.name(), out);
            out.push(':');
        }
        json_value(e.value(), depth, out);
    }
    out.push(close);
}

fn json_value(v: Value<'_>, depth: usize, out: &mut String) {
    let _ = match v {
        Value::String(s) | Value::Symbol(s) | Value::Code(s) => {
            let mut end = s.len().min(MAX_STRING);
            while !s.is_char_boundary(end) {
                end -= 1;
            }
            json_string(s.get(..end).unwrap_or_default(), out);
            Ok(())
        }
        Value::Document(d) => {
            json_doc(d, false, depth + 1, out);
            Ok(())
        }
        Value::Array(d) => {
            json_doc(d, true, depth + 1, out);
            Ok(())
        }
        Value::Bool(b) => write!(out, "{b}"),
        Value::Int32(n) => write!(out, "{n}"),
        Value::Int64(n) => write!(out, "{n}"),
        Value::Double(n) if n.is_finite() => write!(out, "{n:?}"),
        Value::Double(n) => write!(out, "{{\"$numberDouble\":\"{n}\"}}"),
        Value::Null | Value::Undefined => write!(out, "null"),
        Value::DateTime(ms) => write!(out, "{{\"$date\":\"{}\"}}", iso8601(ms)),
        Value::ObjectId(id) => write!(out, "{{\"$oid\":\"{}\"}}", hex(&id)),
        Value::Timestamp { t, i } => write!(out, "{{\"$timestamp\":{{\"t\":{t},\"i\":{i}}}}}"),
        Value::Binary { subtype: 4, bytes } => {
            write!(out, "{{\"$uuid\":\"{}\"}}", hex(bytes))
        }
        Value::Binary { bytes, .. } => write!(out, "\"<{} bytes>\"", bytes.len()),
        other => {
            json_string(other.type_name(), out);
            Ok(())
        }
    };
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut s = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        let _ = write!(s, "{b:02x}");
    }
    s
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn lines_are_mongodbs_format() {
        let line = format_line(
            &iso8601(now_ms()),
            Severity::Info,
            "NETWORK",
            22943,
            "listener",
            "Connection \"accepted\"",
            Some(&doc! { "remote": "127.0.0.1:5\n", "n": 3, "a": array![1.5, true] }),
        );
        assert!(line.starts_with("{\"t\":{\"$date\":\"2"), "{line}");
        assert!(
            line.ends_with(
                "\"s\":\"I\",\"c\":\"NETWORK\",\"id\":22943,\"ctx\":\"listener\",\
             \"msg\":\"Connection \\\"accepted\\\"\",\
             \"attr\":{\"remote\":\"127.0.0.1:5\\n\",\"n\":3,\"a\":[1.5,true]}}"
            ),
            "{line}"
        );
    }

    #[test]
    fn a_torn_line_does_not_spoil_the_next_one() {
        let full = || {
            Sink::File(
                open_file(Path::new("/dev/full")).unwrap(),
                "x".into(),
                Rotation::Rename,
            )
        };
        let log = Logger::with_sink(full(), 0, true);
        log.info("-", 1, "t", "lost", &doc! {});
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "half a li").unwrap();
        *log.sink.lock() = Sink::File(open_file(&path).unwrap(), path.clone(), Rotation::Rename);
        log.info("-", 2, "t", "whole", &doc! {});
        log.info("-", 3, "t", "whole", &doc! {});
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "half a li"));
        assert!(lines[1].contains("\"id\":2,") && lines[2].contains("\"id\":3,"));
    }

    #[test]
    fn dates() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000+00:00");
        assert_eq!(iso8601(951_782_400_001), "2000-02-29T00:00:00.001+00:00");
        assert_eq!(iso8601(-1), "1969-12-31T23:59:59.999+00:00");
        assert_eq!(iso8601_at(0, 19_800), "1970-01-01T05:30:00.000+05:30");
        assert_eq!(iso8601_at(0, -12_600), "1969-12-31T20:30:00.000-03:30");
        assert_eq!(suffix(951_782_400_001), "2000-02-29T00-00-00");
    }

    #[test]
    fn the_ram_log_keeps_the_newest_and_counts_all() {
        let log = Logger::silent();
        for i in 0..2000 {
            log.info("-", i, "t", "m", &DocBuf::new());
        }
        let (lines, total) = log.kept("global").unwrap();
        assert_eq!((lines.len(), total), (1024, 2000));
        assert!(lines[1023].contains("\"id\":1999"));
        log.log(Severity::Debug(1), "-", 1, "t", "m", None);
        assert_eq!(log.kept("global").unwrap().1, 2000);
        log.startup_warning(1, "w");
        assert_eq!(log.kept("startupWarnings").unwrap().1, 1);
        log.forget_startup_warnings();
        assert_eq!(log.kept("startupWarnings").unwrap().1, 0);
        assert!(log.kept("nope").is_none());
        // Long lines displace more old ones, and are kept whole.
        let long = doc! { "a": "x".repeat(4000), "b": "y".repeat(4000) };
        for i in 0..2000 {
            log.info("-", i, "t", "m", &long);
        }
        let (lines, total) = log.kept("global").unwrap();
        let bytes: usize = lines.iter().map(String::len).sum();
        assert_eq!((lines.len(), total), ((1 << 20) / lines[0].len(), 4001));
        assert!(bytes <= 1 << 20 && lines.iter().all(|l| l.len() > 8000 && l.ends_with("}}")));
        let seldom = Seldom::new();
        let told: Vec<_> = (0..3).map(|_| seldom.note()).collect();
        assert_eq!(told, [Some(1), None, None]);
    }
}
