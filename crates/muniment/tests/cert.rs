//! `muniment cert`: the files, their permissions, and whether another program accepts them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_tls::{Endpoint, Mode, Settings};
use muniment_value::{Value, doc};
use muniment_wire::{Connection, Stream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use testkit::{Server, ServerOptions, shell};

fn cert(dir: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muniment"))
        .args(["cert", "--dev"])
        .arg(dir)
        .args(more)
        .output()
        .unwrap()
}

fn words(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

const FILES: [&str; 4] = ["ca.pem", "ca-key.pem", "server.pem", "client.pem"];

#[test]
fn the_files_are_there_and_only_the_owner_reads_the_keys() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("made/here");
    let o = cert(&dir, &[]);
    let text = words(&o);
    assert!(o.status.success(), "{text}");
    assert_eq!(mode(&dir), 0o700);
    for file in FILES {
        let path = dir.join(file);
        let pem = std::fs::read_to_string(&path).unwrap();
        let begin = |what: &str| pem.find(&format!("-----BEGIN {what}-----"));
        let (key, certificate) = (begin("PRIVATE KEY"), begin("CERTIFICATE"));
        match file {
            "ca.pem" => assert!(key.is_none() && certificate == Some(0)),
            "ca-key.pem" => assert!(key == Some(0) && certificate.is_none()),
            _ => assert!(key == Some(0) && certificate.is_some(), "{pem}"),
        }
        assert_eq!(
            mode(&path),
            if file == "ca.pem" { 0o644 } else { 0o600 },
            "{file}"
        );
    }
    let at = dir.canonicalize().unwrap();
    let at = at.display();
    for part in [
        "for development".to_string(),
        format!("muniment serve --tlsMode requireTLS --tlsCertificateKeyFile {at}/server.pem --tlsCAFile {at}/ca.pem\n"),
        format!("mongodb://localhost:27017/?tls=true&tlsCAFile={at}/ca.pem"),
        format!("mongosh --host localhost --tls --tlsCAFile {at}/ca.pem"),
        r#"db.getSiblingDB("$external").runCommand({createUser: "CN=client,OU=development,O=Muniment""#.to_string(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
}

#[test]
fn nothing_is_overwritten_unless_that_is_asked_for() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    std::fs::write(dir.join("client.pem"), "mine").unwrap();
    let o = cert(dir, &[]);
    assert_eq!(o.status.code(), Some(1));
    assert!(words(&o).contains("client.pem in"), "{}", words(&o));
    assert!(!dir.join("ca.pem").exists(), "it wrote something");
    assert_eq!(std::fs::read(dir.join("client.pem")).unwrap(), b"mine");
    // What the name leads to is not written through either.
    let elsewhere = temporary.path().join("elsewhere");
    std::fs::write(&elsewhere, "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.join("server.pem")).unwrap();
    let o = cert(dir, &["--force"]);
    assert!(o.status.success(), "{}", words(&o));
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"mine");
    assert_eq!(mode(&dir.join("client.pem")), 0o600);
    let first = std::fs::read(dir.join("server.pem")).unwrap();
    let o = cert(dir, &[]);
    assert_eq!(o.status.code(), Some(1));
    assert!(words(&o).contains("ca.pem, ca-key.pem, server.pem, client.pem in"));
    assert_eq!(std::fs::read(dir.join("server.pem")).unwrap(), first);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("none");
    let o = cert(&dir, &["--host", "db:27017"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(words(&o).contains("without a port"), "{}", words(&o));
    let o = Command::new(env!("CARGO_BIN_EXE_muniment"))
        .arg("cert")
        .output()
        .unwrap();
    assert_eq!(o.status.code(), Some(2));
    assert!(words(&o).contains("--dev DIR is missing"), "{}", words(&o));
    assert!(!dir.exists());
}

/// What openssl prints, if it agrees.
fn openssl(args: &[&str]) -> Result<String, String> {
    let o = Command::new("openssl").args(args).output().unwrap();
    match o.status.success() {
        true => Ok(words(&o)),
        false => Err(format!("openssl {}: {}", args.join(" "), words(&o))),
    }
}

#[test]
fn openssl_accepts_the_chain_the_names_and_the_times() {
    // Not every machine has it.
    if Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("c");
    let o = cert(&dir, &["--host", "db.example.org", "10.1.2.3", "--force"]);
    assert!(o.status.success(), "{}", words(&o));
    let path = |file: &str| dir.join(file).to_string_lossy().into_owned();
    let (ca, server, client) = (path("ca.pem"), path("server.pem"), path("client.pem"));
    let verify = |purpose: &str, more: &[&str]| {
        let common = [
            "verify",
            "-x509_strict",
            "-CAfile",
            &ca,
            "-purpose",
            purpose,
        ];
        openssl(&[&common[..], more].concat())
    };
    for (kind, host) in [
        ("-verify_hostname", "localhost"),
        ("-verify_hostname", "db.example.org"),
        ("-verify_ip", "127.0.0.1"),
        ("-verify_ip", "::1"),
        ("-verify_ip", "10.1.2.3"),
    ] {
        verify("sslserver", &[kind, host, &server]).unwrap();
    }
    verify("sslclient", &[&server]).unwrap();
    verify("sslclient", &[&client]).unwrap();
    assert!(
        verify("sslserver", &[&client]).is_err(),
        "a client is no server"
    );
    verify("sslserver", &["-verify_hostname", "example.org", &server]).unwrap_err();

    let subject = ["x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in"];
    let told = |file: &str| openssl(&[&subject[..], &[file]].concat()).unwrap();
    assert_eq!(
        told(&client).trim(),
        "subject=CN=client,OU=development,O=Muniment"
    );
    assert_eq!(
        told(&server).trim(),
        "subject=CN=server,OU=members,O=Muniment"
    );
    let lasts = |file: &str, days: u32| {
        let seconds = (days * 24 * 60 * 60).to_string();
        openssl(&["x509", "-noout", "-checkend", &seconds, "-in", file]).is_ok()
    };
    for leaf in [&server, &client] {
        assert!(lasts(leaf, 820) && !lasts(leaf, 825), "{leaf}");
    }
    assert!(lasts(&ca, 3600) && !lasts(&ca, 3660));
    let key = openssl(&["pkey", "-noout", "-text", "-in", &server]).unwrap();
    assert!(key.contains("P-256"), "{key}");
}

/// The line that starts a server works as printed, and so does the command that creates the user.
#[test]
fn a_server_uses_them_and_the_clients_user_logs_in() {
    const LIMIT: Duration = Duration::from_secs(30);
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("c");
    let text = words(&cert(&dir, &[]));
    let after = |begin: &str| {
        let at = text.find(begin).unwrap() + begin.len();
        text[at..].lines().next().unwrap()
    };
    let options = after("muniment serve ")
        .split(' ')
        .fold(ServerOptions::new(), ServerOptions::arg);
    let server = Server::start(options);
    let connect = |pair: Option<&str>| {
        let tls = Endpoint::new(
            Mode::Require,
            Settings {
                ca_file: Some(dir.join("ca.pem")),
                certificate_key_file: pair.map(|p| dir.join(p)),
                ..Settings::default()
            },
        );
        let stream = Stream::connect(&server.address(), Some(LIMIT)).unwrap();
        let stream = stream.secured(&tls.unwrap(), "localhost", LIMIT)?;
        let mut c = Connection::over(stream);
        c.set_timeout(Some(LIMIT)).unwrap();
        c.hello().map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>(c)
    };
    assert!(
        connect(None).is_err(),
        "a client without a certificate got through"
    );
    let mut c = connect(Some("client.pem")).unwrap();
    let create = after("db.getSiblingDB(\"$external\").runCommand(");
    let create = shell(create.strip_suffix(')').unwrap());
    c.command("$external", &create).unwrap();
    let login = doc! { "authenticate": 1, "mechanism": "MONGODB-X509" };
    c.command("$external", &login).unwrap();
    let status = c.command("admin", &doc! { "connectionStatus": 1 }).unwrap();
    let users = status.as_doc().get_doc("authInfo").unwrap();
    let users = users.get_array("authenticatedUsers").unwrap();
    match users.first().unwrap().value() {
        Value::Document(d) => assert_eq!(
            d.get_str("user"),
            Some("CN=client,OU=development,O=Muniment")
        ),
        other => panic!("{other:?}"),
    }
}
