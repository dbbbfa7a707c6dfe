//! The errors of a running test, and the comparison of an operation's error with the one that a test expects.

use crate::matching::{Entities, Root, matches};
use bson::{Bson, Document};

/// An error of an operation, in the form in which a driver would report it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure {
    /// All messages joined together.
    pub message: String,
    /// The error code of the server.
    pub code: Option<i64>,
    /// The name of the code.
    pub code_name: Option<String>,
    /// The `errorLabels`.
    pub labels: Vec<String>,
    /// The reply with the error.
    pub response: Option<Document>,
    /// True if the error is not the server's: bad arguments, a broken connection.
    pub client: bool,
    /// True for a broken connection.
    pub network: bool,
    /// The partial result of a bulk write.
    pub result: Option<Document>,
    /// The `writeErrors` by the index of the write in the request.
    pub write_errors: Vec<(i64, Document)>,
    /// The `writeConcernError`s.
    pub write_concern_errors: Vec<Document>,
}

impl Failure {
    /// An error that the client detects before it asks the server.
    pub(crate) fn of_client(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            client: true,
            ..Failure::default()
        }
    }

    /// A broken connection.
    pub(crate) fn of_network(message: impl Into<String>) -> Failure {
        Failure {
            network: true,
            ..Failure::of_client(message)
        }
    }

    /// The error in `of`, which is a reply, a write error or a write concern error.
    pub(crate) fn from_document(of: &Document, reply: &Document) -> Failure {
        let labels = reply.get_array("errorLabels").ok();
        let labels = labels.into_iter().flatten();
        Failure {
            message: of.get_str("errmsg").unwrap_or_default().to_owned(),
            code: of.get("code").and_then(whole),
            code_name: of.get_str("codeName").ok().map(str::to_owned),
            labels: labels
                .filter_map(|l| l.as_str())
                .map(str::to_owned)
                .collect(),
            response: Some(reply.clone()),
            ..Failure::default()
        }
    }

    /// Whether the error has the label.
    pub(crate) fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|l| l == label)
    }

    /// Compares with a test's `expectError`.
    ///
    /// # Errors
    /// A description of the difference.
    pub(crate) fn check(&self, expected: &Document, entities: &dyn Entities) -> Result<(), String> {
        for (name, want) in expected {
            let fits = match (name.as_str(), want) {
                ("isError", _) => true,
                ("isClientError", Bson::Boolean(b)) => *b == self.client,
                ("isTimeoutError", Bson::Boolean(b)) => !b,
                ("errorContains", Bson::String(s)) => {
                    self.message.to_lowercase().contains(&s.to_lowercase())
                }
                ("errorCode", n) => self.code.is_some() && whole(n) == self.code,
                ("errorCodeName", Bson::String(s)) => self
                    .code_name
                    .as_ref()
                    .is_some_and(|n| n.eq_ignore_ascii_case(s)),
                ("errorLabelsContain", Bson::Array(all)) => all
                    .iter()
                    .all(|l| l.as_str().is_some_and(|l| self.has_label(l))),
                ("errorLabelsOmit", Bson::Array(all)) => !all
                    .iter()
                    .any(|l| l.as_str().is_some_and(|l| self.has_label(l))),
                ("errorResponse", want) => {
                    let response = self.response.clone().map(Bson::Document);
                    matches(entities, want, response.as_ref(), Root::Yes)
                        .map_err(|e| format!("errorResponse: {e}"))?;
                    true
                }
                ("expectResult", want) => {
                    let result = self.result.clone().map(Bson::Document);
                    matches(entities, want, result.as_ref(), Root::Yes)
                        .map_err(|e| format!("the error's result: {e}"))?;
                    true
                }
                ("writeErrors", Bson::Document(want)) => {
                    self.check_write_errors(want, entities)?;
                    true
                }
                ("writeConcernErrors", Bson::Array(want)) => {
                    let have = self.write_concern_errors.iter().cloned();
                    let have = Bson::Array(have.map(Bson::Document).collect());
                    matches(
                        entities,
                        &Bson::Array(want.clone()),
                        Some(&have),
                        Root::Elements,
                    )
                    .map_err(|e| format!("writeConcernErrors: {e}"))?;
                    true
                }
                _ => {
                    return Err(format!(
                        "the runner does not know expectError's {name}: {want}"
                    ));
                }
            };
            if !fits {
                return Err(format!("expected an error with {name}: {want}, got {self}"));
            }
        }
        Ok(())
    }

    fn check_write_errors(&self, want: &Document, entities: &dyn Entities) -> Result<(), String> {
        let have: Document = self
            .write_errors
            .iter()
            .map(|(i, e)| (i.to_string(), Bson::Document(e.clone())))
            .collect();
        if want.len() != have.len() {
            return Err(format!("writeErrors: expected {want}, got {have}"));
        }
        for (index, want) in want {
            matches(entities, want, have.get(index), Root::Yes)
                .map_err(|e| format!("writeErrors.{index}: {e}"))?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whose = if self.client { "client" } else { "server" };
        match self.code {
            Some(code) => write!(f, "{whose} error {code}: {}", self.message)?,
            None => write!(f, "{whose} error: {}", self.message)?,
        }
        if !self.labels.is_empty() {
            write!(f, " {:?}", self.labels)?;
        }
        match &self.response {
            Some(reply) => write!(f, " in {reply}"),
            None => Ok(()),
        }
    }
}

/// The reason why an operation has no result.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The operation's own error, which a test may expect.
    Failed(Box<Failure>),
    /// The test is about something other than the server.
    Skip(String),
    /// The test is malformed, or an assertion in it fails.
    Broken(String),
}

impl From<Failure> for Trouble {
    fn from(f: Failure) -> Trouble {
        Trouble::Failed(Box::new(f))
    }
}

/// The result of an operation.
pub(crate) type Done<T> = Result<T, Trouble>;

/// The error for a malformed test.
pub(crate) fn broken<T>(message: impl Into<String>) -> Done<T> {
    Err(Trouble::Broken(message.into()))
}

/// A whole number of any numeric type except decimal.
pub(crate) fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) if n.fract() == 0.0 && n.abs() < 9e15 => Some(*n as i64),
        _ => None,
    }
}
