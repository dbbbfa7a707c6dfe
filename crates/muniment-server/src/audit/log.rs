//! The audit log as an open one: the filter, and what happens when a line cannot be written.

use super::event::{self, Who};
use super::sink::Sink;
use crate::options::AuditOptions;
use muniment_logger::{Logger, Seldom, Severity};
use muniment_query::QueryContext;
use muniment_query::filter::Filter;
use muniment_query::running::Work;
use muniment_value::{Code, DocBuf, Error, JsonMode, Result, doc};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The audit log of a server.
pub struct Audit {
    sink: Mutex<Sink>,
    filter: Option<Filter>,
    log: Arc<Logger>,
    /// Limits the line of the server's log about events that could not be written.
    failed: Seldom,
    /// The end of the server is already in the log.
    ended: AtomicBool,
}

impl Audit {
    /// Opens the audit log that the options describe, if they describe one.
    ///
    /// # Errors
    /// 2 BadValue for a filter that is no query; 39 FileStreamFailed for a file that cannot be opened.
    pub fn open(options: Option<&AuditOptions>, log: &Arc<Logger>) -> Result<Option<Audit>> {
        let Some(options) = options else {
            return Ok(None);
        };
        let filter = options.filter.as_ref();
        let filter = filter.map(|d| Filter::parse(d.as_doc(), &QueryContext::new()));
        let sink = Sink::open(&options.target).map_err(|e| {
            let path = options.path().unwrap_or(Path::new(""));
            Error::new(
                Code::FileStreamFailed,
                format!("cannot open the audit log {}: {e}", path.display()),
            )
        })?;
        Ok(Some(Audit {
            sink: Mutex::new(sink),
            filter: filter.transpose()?,
            log: Arc::clone(log),
            failed: Seldom::new(),
            ended: AtomicBool::new(false),
        }))
    }

    /// Writes an event, unless the filter leaves it out.
    ///
    /// # Errors
    /// 96 OperationFailed if it cannot be written.
    pub fn event(&self, who: &Who, atype: &str, param: &DocBuf, result: Code) -> Result<()> {
        let event = event::document(who, atype, param, result);
        // An event that the filter cannot judge is written.
        let wanted = |filter: &Filter| {
            let judged = filter.matches(event.as_doc(), Work::unasked());
            judged.unwrap_or(true)
        };
        if !self.filter.as_ref().is_none_or(wanted) {
            return Ok(());
        }
        let line = event.as_doc().to_json(JsonMode::Relaxed);
        let written = self.sink.lock().write(&line, gap);
        written.map_err(|e| self.failed(atype, &e))
    }

    /// Makes sure, as far as it can be known, that the next event can be written.
    ///
    /// # Errors
    /// 96 OperationFailed if it cannot.
    pub fn ready(&self, command: &str) -> Result<()> {
        let ready = self.sink.lock().ready(gap);
        ready.map_err(|e| {
            self.failed(command, &e);
            Error::new(
                Code::OperationFailed,
                format!("{command} was not run, because the audit log cannot be written: {e}"),
            )
        })
    }

    /// Puts the log's file aside and begins a new one, or only opens it again. Returns the name of the old
    /// file, if it has got one.
    ///
    /// # Errors
    /// The file cannot be renamed or created; the events then go on into the old one.
    pub fn rotate(&self) -> io::Result<Option<PathBuf>> {
        self.sink.lock().rotate()
    }

    /// Notes that the end of the server is in the log. Returns whether it already was.
    pub fn is_ended(&self) -> bool {
        self.ended.swap(true, Relaxed)
    }

    fn failed(&self, what: &str, e: &io::Error) -> Error {
        if let Some(times) = self.failed.note() {
            self.log.log(
                Severity::Error,
                "ACCESS",
                7_340_031,
                "audit",
                "The audit log cannot be written, so what it has to tell of fails",
                Some(&doc! { "of": what, "error": e.to_string(), "times": times as i64 }),
            );
        }
        Error::new(
            Code::OperationFailed,
            format!("the event {what} could not be written to the audit log: {e}"),
        )
    }
}

/// The line that tells how many events before it were lost.
fn gap(lost: u64) -> String {
    let msg = format!("{lost} events could not be written to this log");
    let param = doc! { "msg": msg };
    let d = event::document(&Who::server(), "applicationMessage", &param, Code::OK);
    d.as_doc().to_json(JsonMode::Relaxed)
}
