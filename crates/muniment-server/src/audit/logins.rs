//! The events of a connection: its client's description of itself, logins and logouts.

use super::event::Who;
use super::log::Audit;
use crate::connections::ConnShared;
use muniment_auth::names::UserName;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, array, doc};

/// The most bytes of a mechanism's name, which a client may choose freely.
const LONGEST_NAME: usize = 100;

/// A try to log in.
pub struct Login<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The user's database.
    pub db: &'a str,
    /// The mechanism.
    pub mechanism: &'a str,
}

impl Audit {
    /// Notes a login, or a try that failed with an error.
    ///
    /// # Errors
    /// 96 OperationFailed if it cannot be written.
    pub fn authenticated(&self, who: &Who, login: &Login<'_>, error: Option<&Error>) -> Result<()> {
        let mechanism: String = login.mechanism.chars().take(LONGEST_NAME).collect();
        let param = doc! { "user": login.user, "db": login.db, "mechanism": mechanism };
        let code = error.map_or(Code::OK, Error::code);
        self.event(who, "authenticate", &param, code)
    }

    /// Notes that a connection's user is about to be logged out, for this reason.
    ///
    /// # Errors
    /// 96 OperationFailed if it cannot be written.
    pub fn logs_out(&self, who: &Who, user: &UserName, reason: &str) -> Result<()> {
        let param = doc! {
            "reason": reason,
            "initialUsers": array![user.to_doc()],
            "updatedUsers": ArrayBuf::new(),
        };
        self.event(who, "logout", &param, Code::OK)
    }

    /// Notes what a client says of itself. A client must be able to connect even if that cannot be written,
    /// so an error is only in the server's log.
    pub fn greeted(&self, who: &Who, conn: &ConnShared, client: Doc<'_>) {
        let mut param = DocBuf::new();
        param.append_some("localEndpoint", conn.stream.local().as_deref());
        param.append("clientMetadata", client);
        let _ = self.event(who, "clientMetadata", &param, Code::OK);
    }
}
