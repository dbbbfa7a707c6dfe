//! `rotateCertificates`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::startup;
use muniment_auth::action::Action;
use muniment_value::args::{Types, opt};
use muniment_value::{Code, Error, Result, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "rotateCertificates",
    doc: "Reads the files of certificates, keys and authorities anew, for connections from now on",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt("message", Types::STRING)],
    run,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::RotateCertificates]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let server = cx.server;
    let Some(tls) = &server.trust.tls else {
        return Err(Error::new(
            Code::IllegalOperation,
            "rotateCertificates: the server uses no TLS (--tlsMode)",
        ));
    };
    tls.rotate()?;
    let mut attr = doc! {};
    attr.append_some("subject", tls.own().map(|c| c.subject));
    attr.append_some("message", cx.args.str("message"));
    server.log.info(
        "NETWORK",
        4_913_400,
        &format!("conn{}", cx.conn.id),
        "Successfully rotated X509 certificates",
        &attr,
    );
    startup::warn_of_certificates(&server.log, Some(tls));
    Ok(())
}
