//! TLS: real servers, and clients over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod certificates;
mod clients;
mod lab;
mod members;

use muniment_tls::{Endpoint, Mode, Settings};
use muniment_value::{DocBuf, Result, Value, doc};
use muniment_wire::{Connection, Stream};
use std::path::Path;
use std::time::Duration;
use testkit::{Authority, Server, ServerOptions, shell};

const LIMIT: Duration = Duration::from_secs(30);

/// Options of a server in this mode, with a certificate of the authority.
fn options(authority: &Authority, mode: &str) -> ServerOptions {
    options_with(authority, mode, &authority.issue("server", "db"))
}

/// The same with this certificate.
fn options_with(authority: &Authority, mode: &str, pair: &Path) -> ServerOptions {
    let path = |p: &Path| p.to_str().unwrap().to_string();
    ServerOptions::new()
        .arg("--tlsMode")
        .arg(mode)
        .arg("--tlsCertificateKeyFile")
        .arg(path(pair))
        .arg("--tlsCAFile")
        .arg(path(&authority.ca()))
}

/// The same, for clients without certificates.
fn open(authority: &Authority, mode: &str) -> ServerOptions {
    options(authority, mode).arg("--tlsAllowConnectionsWithoutCertificates")
}

/// A client that trusts the authority, and shows a certificate if it has one.
fn client(authority: &Authority, pair: Option<&Path>) -> Endpoint {
    let settings = Settings {
        ca_file: Some(authority.ca()),
        certificate_key_file: pair.map(Path::to_path_buf),
        ..Settings::default()
    };
    Endpoint::new(Mode::Require, settings).unwrap()
}

fn dial(address: &str, tls: &Endpoint) -> std::io::Result<Connection> {
    let stream = Stream::connect(address, Some(LIMIT))?;
    let mut c = Connection::over(stream.secured(tls, "localhost", LIMIT)?);
    c.set_timeout(Some(LIMIT)).map_err(std::io::Error::other)?;
    Ok(c)
}

fn connect(server: &Server, tls: &Endpoint) -> Connection {
    dial(&server.address(), tls).unwrap_or_else(|e| panic!("{e}\n{}", server.log()))
}

/// Whether the server answers a client. In version 1.3 a client learns that its certificate is refused only
/// when it reads.
fn answers(address: &str, tls: &Endpoint) -> bool {
    dial(address, tls).is_ok_and(|mut c| c.hello().is_ok())
}

fn run(c: &mut Connection, db: &str, cmd: &str) -> DocBuf {
    c.command(db, &shell(cmd))
        .unwrap_or_else(|e| panic!("{cmd}: {e}"))
}

fn code(result: Result<DocBuf>) -> i32 {
    result.map_or_else(|e| e.code().0, |_| 0)
}

fn number(d: &DocBuf, path: &[&str]) -> i64 {
    let (last, above) = path.split_last().unwrap();
    let mut at = d.as_doc();
    for name in above {
        at = at.get_doc(name).unwrap();
    }
    at.get(last).and_then(|v| v.as_i64_exact()).unwrap()
}

fn by_certificate(c: &mut Connection, user: Option<&str>) -> Result<DocBuf> {
    let mut cmd = doc! { "authenticate": 1, "mechanism": "MONGODB-X509" };
    if let Some(user) = user {
        cmd.append("user", user);
    }
    c.command("$external", &cmd)
}

fn whoami(c: &mut Connection) -> Option<String> {
    let reply = run(c, "admin", "{connectionStatus: 1}");
    let info = reply.as_doc().get_doc("authInfo")?;
    let users = info.get_array("authenticatedUsers")?;
    match users.first()?.value() {
        Value::Document(d) => d.get_str("user").map(str::to_string),
        _ => None,
    }
}
