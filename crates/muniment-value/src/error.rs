//! The one error type, which clients see.

use crate::{Code, DocBuf, doc};
use std::fmt;

/// `Result` with Muniment's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error as MongoDB reports it: code, code name, message, labels and extra fields.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: String,
    labels: Vec<&'static str>,
    extra: DocBuf,
    phase: Phase,
}

/// When an error occurred. MongoDB's commands put different words before the message for each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// While the command was read and planned.
    #[default]
    Parsing,
    /// While constants were evaluated.
    Optimizing,
    /// While documents were looked at.
    Executing,
}

impl Error {
    /// An error with MongoDB's code and a message for people.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            code,
            message: message.into(),
            labels: Vec::new(),
            extra: DocBuf::new(),
            phase: Phase::default(),
        }))
    }

    /// 2 BadValue.
    pub fn bad_value(message: impl Into<String>) -> Error {
        Error::new(Code::BadValue, message)
    }

    /// 9 FailedToParse.
    pub fn failed_to_parse(message: impl Into<String>) -> Error {
        Error::new(Code::FailedToParse, message)
    }

    /// 14 TypeMismatch.
    pub fn type_mismatch(message: impl Into<String>) -> Error {
        Error::new(Code::TypeMismatch, message)
    }

    /// An error with a numeric location code ("Location40415"), which has no name.
    pub fn location(code: i32, message: impl Into<String>) -> Error {
        Error::new(Code(code), message)
    }

    /// 1 InternalError: a bug of Muniment, or a failure of the machine.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(Code::InternalError, message)
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// True for an error that ends an operation from outside: killOp, a time limit, a client that left, the
    /// end of the server. (These are the codes of MongoDB's category Interruption that can occur here.)
    pub fn is_interruption(&self) -> bool {
        matches!(
            self.0.code,
            Code::MaxTimeMSExpired
                | Code::ExceededTimeLimit
                | Code::ShutdownInProgress
                | Code::CursorKilled
                | Code::ClientDisconnect
                | Code::InterruptedAtShutdown
                | Code::Interrupted
                | Code::InterruptedDueToReplStateChange
        )
    }

    /// True for an error that fails a command of several statements as a whole, not a single statement: an
    /// interruption, or the loss of the primary's role. Drivers then send the command to the new primary,
    /// while they would report a statement's error to the application.
    pub fn fails_command(&self) -> bool {
        self.is_interruption()
            || matches!(
                self.0.code,
                Code::NotWritablePrimary
                    | Code::NotPrimaryNoSecondaryOk
                    | Code::NotPrimaryOrSecondary
                    | Code::PrimarySteppedDown
            )
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Further fields of the reply, such as keyPattern and keyValue.
    pub fn extra(&self) -> &DocBuf {
        &self.0.extra
    }

    /// Adds extra fields.
    #[must_use]
    pub fn with_extra(mut self, extra: DocBuf) -> Error {
        self.0.extra.append_all(extra.as_doc());
        self
    }

    /// Adds an error label.
    #[must_use]
    pub fn with_label(mut self, label: &'static str) -> Error {
        self.0.labels.push(label);
        self
    }

    /// Puts `prefix` before the message.
    #[must_use]
    pub fn context(mut self, prefix: &str) -> Error {
        self.0.message = format!("{prefix}{}", self.0.message);
        self
    }

    /// Does the same as [`Error::context`] for an error of parsing. An error of evaluating a constant gets no
    /// prefix.
    #[must_use]
    pub fn parsing_context(self, prefix: &str) -> Error {
        match self.is_optimizing() {
            true => self,
            false => self.context(prefix),
        }
    }

    /// Does the same as [`Error::context`] if the error occurred while documents were processed.
    #[must_use]
    pub fn executing_context(self, prefix: &str) -> Error {
        match self.0.phase {
            Phase::Executing => self.context(prefix),
            _ => self,
        }
    }

    /// The error of another server's command before [`Error::executing_context`] has put `prefix` before its message.
    #[must_use]
    pub fn before_executing_context(mut self, prefix: &str) -> Error {
        if let Some(message) = self.0.message.strip_prefix(prefix) {
            self.0.message = message.to_string();
            self.0.phase = Phase::Executing;
        }
        self
    }

    /// Marks this as an error of evaluating a constant.
    #[must_use]
    pub fn while_optimizing(mut self) -> Error {
        self.0.phase = Phase::Optimizing;
        self
    }

    /// Marks this as an error that occurred while documents were processed.
    #[must_use]
    pub fn while_executing(mut self) -> Error {
        self.0.phase = Phase::Executing;
        self
    }

    /// True if the error occurred while a constant was evaluated.
    pub fn is_optimizing(&self) -> bool {
        self.0.phase == Phase::Optimizing
    }

    /// The labels.
    pub fn labels(&self) -> &[&'static str] {
        &self.0.labels
    }

    /// The failing command's reply: `{ok: 0, errmsg, code, codeName, …extra, errorLabels}`.
    pub fn to_reply(&self) -> DocBuf {
        let mut d = doc! {
            "ok": 0.0,
            "errmsg": self.message(),
            "code": self.code().0,
            "codeName": self.code().name().as_ref(),
        };
        d.append_all(self.0.extra.as_doc());
        if !self.0.labels.is_empty() {
            d.append(
                "errorLabels",
                self.0.labels.iter().collect::<crate::ArrayBuf>(),
            );
        }
        d
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}): {}",
            self.code().name(),
            self.code().0,
            self.message()
        )
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        if !self.0.extra.as_doc().is_empty() {
            write!(f, " {:?}", self.0.extra)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// An [`Error`] that was wrapped in an I/O error is unwrapped.
impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        let e = match e.downcast::<Error>() {
            Ok(wrapped) => return wrapped,
            Err(e) => e,
        };
        let code = match e.raw_os_error() {
            Some(28) => Code::OutOfDiskSpace,
            _ => Code::InternalError,
        };
        Error::new(code, e.to_string())
    }
}
