//! Logging in by the certificate that the client has shown when the connection began (MONGODB-X509).
//!
//! Invariant: only a certificate that an authority of the server's has issued counts.

use super::sasl::{self, MONGODB_X509};
use super::{EXTERNAL, Said, tell};
use crate::connections::ConnShared;
use crate::context::ConnLocal;
use crate::state::ServerState;
use muniment_auth::names::UserName;
use muniment_op::Interrupt;
use muniment_value::{Code, Doc, DocBuf, Error, Result, doc};

/// Makes the owner of the connection's certificate its user; the reply of `authenticate`. `claimed` is the name
/// that the client gives, if it gives one.
///
/// # Errors
/// 18 AuthenticationFailed; 334 MechanismUnavailable.
pub fn log_in(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    claimed: Option<&str>,
) -> Result<DocBuf> {
    sasl::check_enabled(server, MONGODB_X509)?;
    server.auth.figures.tried(MONGODB_X509, false);
    sasl::hold_back(server, conn, on)?;
    let subject = subject(server, conn, claimed);
    let shown = subject.as_deref().unwrap_or_default();
    let came = match &subject {
        Ok(subject) => {
            let name = UserName {
                user: subject.clone(),
                db: EXTERNAL.to_string(),
            };
            sasl::enter(server, conn, local, &name, MONGODB_X509, |_| true)
        }
        Err(e) => Err(e.clone()),
    };
    tell(
        server,
        conn,
        Said {
            mechanism: MONGODB_X509,
            user: claimed.unwrap_or(shown),
            db: EXTERNAL,
            error: came.as_ref().err(),
        },
    );
    if let Err(e) = came {
        sasl::note_failure(server, conn);
        return Err(match e.code() {
            Code::ProtocolError | Code::MechanismUnavailable => e,
            _ => sasl::failed(),
        });
    }
    Ok(doc! { "dbname": EXTERNAL, "user": shown })
}

/// The name of the certificate's owner.
fn subject(server: &ServerState, conn: &ConnShared, claimed: Option<&str>) -> Result<String> {
    let refused = |why: &str| Error::new(Code::AuthenticationFailed, why.to_string());
    let tls = server.trust.tls.as_ref();
    let tls = tls.ok_or_else(|| refused("the server uses no TLS"))?;
    if tls.settings().allow_invalid_certificates {
        return Err(refused(
            "the server accepts any certificate (tlsAllowInvalidCertificates), so none counts",
        ));
    }
    let shown = conn.stream.tls().and_then(|s| s.certificate());
    let shown = shown.ok_or_else(|| refused("the client has shown no certificate"))?;
    match claimed.is_none_or(|claimed| claimed == shown.subject) {
        true => Ok(shown.subject.clone()),
        false => Err(refused(
            "the user's name is not that of the certificate's owner",
        )),
    }
}

/// As [`log_in`], for a login that came with a hello. Whatever fails, the client then logs in by
/// `authenticate`.
pub fn speculative(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    d: Doc<'_>,
) -> Option<DocBuf> {
    d.get("authenticate")?;
    if d.get_str("mechanism") != Some(MONGODB_X509) {
        return None;
    }
    server.auth.figures.tried(MONGODB_X509, true);
    log_in(server, conn, local, on, d.get_str("user")).ok()
}
