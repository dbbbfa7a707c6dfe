//! Logging in MongoDB's structured format: one JSON object a line,
//! `{"t":{"$date":…},"s":"I","c":"NETWORK","id":…,"ctx":…,"msg":…,"attr":{…}}`.
//!
//! Invariants: a line is written with one `write`; what is below the level costs one atomic
//! read; logging never fails an operation (a full disk loses lines, not commands); the newest
//! 1024 lines and all start-up warnings stay in memory for `getLog`.

use crate::verbosity::Verbosity;
use muniment_value::{Doc, DocBuf, Value};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How bad it is.
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

/// Lines kept for `getLog: "global"`.
const RAM_LINES: usize = 1024;
/// Longest string value of an attribute; what is longer is cut.
const MAX_STRING: usize = 4096;

struct RamLog {
    lines: VecDeque<String>,
    total: u64,
}

enum Sink {
    Stdout,
    File(File, PathBuf),
    Nothing,
}

/// The server's log.
pub struct Logger {
    /// How much is said of which component.
    pub verbosity: Verbosity,
    quiet: AtomicBool,
    sink: Mutex<Sink>,
    global: Mutex<RamLog>,
    startup: Mutex<RamLog>,
    lines: AtomicU64,
}

impl Logger {
    /// A log to `path`, or to stdout without one. `append` keeps what is in the file; else an
    /// existing file is renamed to `<path>.<UTC time>`, as mongod does.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: Option<&Path>, append: bool, level: i32, quiet: bool) -> io::Result<Logger> {
        let sink = match path {
            None => Sink::Stdout,
            Some(p) => {
                if !append && p.exists() {
                    put_aside(p)?;
                }
                Sink::File(open_file(p)?, p.to_path_buf())
            }
        };
        Ok(Logger::with_sink(sink, level, quiet))
    }

    /// A log that is kept in memory only: for embedded servers and tests.
    pub fn silent() -> Logger {
        Logger::with_sink(Sink::Nothing, 0, true)
    }

    fn with_sink(sink: Sink, level: i32, quiet: bool) -> Logger {
        let ram = || {
            Mutex::new(RamLog {
                lines: VecDeque::new(),
                total: 0,
            })
        };
        Logger {
            verbosity: Verbosity::new(level),
            quiet: AtomicBool::new(quiet),
            sink: Mutex::new(sink),
            global: ram(),
            startup: ram(),
            lines: AtomicU64::new(0),
        }
    }

    /// Puts the file aside and begins a new one; a log without a file stays as it is.
    ///
    /// # Errors
    /// The file cannot be renamed or made; the log goes on where it was.
    pub fn rotate(&self) -> io::Result<()> {
        let mut sink = self.sink.lock();
        if let Sink::File(file, path) = &mut *sink {
            put_aside(path)?;
            *file = open_file(path)?;
        }
        Ok(())
    }

    /// The verbosity: 0 is informational, up to 5.
    pub fn level(&self) -> i32 {
        self.verbosity.base()
    }

    /// Sets the verbosity.
    pub fn set_level(&self, level: i32) {
        self.verbosity.set_base(level);
    }

    /// True when `--quiet` asks to leave out connection events.
    pub fn quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Leaves them out or not.
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
        let line = format_line(severity, component, id, ctx, msg, attr);
        self.write(&line);
        self.global.lock().push(line);
    }

    /// A warning at start: in the log, in `getLog: "global"` and in `getLog: "startupWarnings"`.
    pub fn startup_warning(&self, id: u32, msg: &str) {
        let line = format_line(Severity::Warning, "CONTROL", id, "initandlisten", msg, None);
        self.write(&line);
        self.startup.lock().push(line.clone());
        self.global.lock().push(line);
    }

    /// Informational.
    pub fn info(&self, component: &'static str, id: u32, ctx: &str, msg: &str, attr: &DocBuf) {
        self.log(Severity::Info, component, id, ctx, msg, Some(attr));
    }

    fn write(&self, line: &str) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        // A log that cannot be written must not fail what is logged.
        let _ = match &mut *self.sink.lock() {
            Sink::Stdout => io::stdout().write_all(&bytes),
            Sink::File(f, _) => f.write_all(&bytes),
            Sink::Nothing => Ok(()),
        };
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

/// Gives a log's file a name with the time, as mongod does.
fn put_aside(path: &Path) -> io::Result<()> {
    let mut to = path.as_os_str().to_owned();
    to.push(format!(".{}", iso8601(now_ms()).replace(':', "-")));
    std::fs::rename(path, to)
}

fn open_file(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

impl RamLog {
    fn push(&mut self, line: String) {
        if self.lines.len() >= RAM_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
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
        "{{\"t\":{{\"$date\":\"{}\"}},\"s\":\"{}\",\"c\":\"{component}\",\"id\":{id},\"ctx\":",
        iso8601(now_ms()),
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
    let (days, ms_of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Howard Hinnant's civil-from-days.
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
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}+00:00",
        s / 3600,
        s / 60 % 60,
        s % 60,
        ms_of_day % 1000
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

/// Relaxed Extended JSON with what a log needs beside it: long strings and deep nesting are cut.
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
pub fn hex(bytes: &[u8]) -> String {
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
    fn dates() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000+00:00");
        assert_eq!(iso8601(951_782_400_001), "2000-02-29T00:00:00.001+00:00");
        assert_eq!(iso8601(-1), "1969-12-31T23:59:59.999+00:00");
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
        assert!(log.kept("nope").is_none());
    }
}
