//! The lab against servers with TLS.

use super::{options, run};
use std::process::{Command, Output};
use testkit::{Authority, Server, binary};

fn bench(uri: &str, out: &std::path::Path) -> Output {
    Command::new(binary())
        .args(["bench", "run", "point-read", "--preset", "smoke"])
        .args(["--set", "seconds=1", "--target"])
        .arg(format!("a={uri}"))
        .arg("--out")
        .arg(out)
        .output()
        .unwrap()
}

#[test]
fn the_lab_uses_tls_and_certificates() {
    let authority = Authority::new();
    let server = Server::start(options(&authority, "preferTLS").arg("--auth"));
    let user = "O=Muniment,OU=clients,CN=ann";
    run(
        &mut server.connect(),
        "$external",
        &format!("{{createUser: '{user}', roles: [{{role: 'root', db: 'admin'}}]}}"),
    );
    let ann = authority.issue("ann", "clients");
    let bob = authority.issue("bob", "clients");
    let dir = tempfile::tempdir().unwrap();
    let of = |pair: &std::path::Path, more: &str| {
        format!(
            "mongodb://localhost:{}/?tls=true&tlsCAFile={}&tlsCertificateKeyFile={}{more}",
            server.port(),
            authority.ca().display(),
            pair.display(),
        )
    };
    let by = "&authMechanism=MONGODB-X509";
    let other = Authority::new();
    let wrong = format!(
        "mongodb://localhost:{}/?tls=true&tlsCAFile={}",
        server.port(),
        other.ca().display()
    );
    for (n, (uri, says)) in [
        (of(&ann, by), None),
        (
            of(&bob, by),
            Some("with MONGODB-X509: Authentication failed"),
        ),
        (of(&ann, ""), Some("requires authentication")),
        (wrong, Some("with TLS: invalid peer certificate")),
    ]
    .into_iter()
    .enumerate()
    {
        let out = bench(&uri, &dir.path().join(n.to_string()));
        let text = String::from_utf8_lossy(&out.stderr).into_owned()
            + &String::from_utf8_lossy(&out.stdout);
        assert_eq!(out.status.success(), says.is_none(), "{uri}: {text}");
        assert!(says.is_none_or(|says| text.contains(says)), "{uri}: {text}");
    }
    let status = run(&mut server.connect(), "admin", "{ping: 1}");
    assert!(status.as_doc().get("ok").is_some());
}
