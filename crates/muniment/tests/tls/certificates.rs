//! Certificates: those of users, those that are read anew, and those that expire.

use super::{answers, by_certificate, client, code, connect, open, options, run, whoami};
use muniment_value::doc;
use testkit::{Authority, Server, ServerOptions};

const SUBJECT: &str = "O=Muniment,OU=clients,CN=ann";

fn with_user(server: &Server) {
    let mut c = server.connect();
    run(
        &mut c,
        "$external",
        &format!(
            "{{createUser: '{SUBJECT}', roles: [{{role: 'readWriteAnyDatabase', db: 'admin'}}]}}"
        ),
    );
}

#[test]
fn users_log_in_by_their_certificates() {
    let authority = Authority::new();
    let server = Server::start(open(&authority, "preferTLS").arg("--auth"));
    with_user(&server);
    let ann = client(&authority, Some(&authority.issue("ann", "clients")));
    let bob = client(&authority, Some(&authority.issue("bob", "clients")));
    let nobody = client(&authority, None);
    let mut c = connect(&server, &ann);
    assert_eq!(code(c.command("test", &doc! { "count": "c" })), 13);
    let reply = by_certificate(&mut c, None).unwrap();
    assert_eq!(reply.as_doc().get_str("user"), Some(SUBJECT));
    assert_eq!(reply.as_doc().get_str("dbname"), Some("$external"));
    run(&mut c, "test", "{insert: 'c', documents: [{a: 1}]}");
    assert_eq!(code(c.command("admin", &doc! { "serverStatus": 1 })), 13);
    assert_eq!(whoami(&mut c).as_deref(), Some(SUBJECT));
    run(&mut c, "admin", "{logout: 1}");
    assert_eq!(code(c.command("test", &doc! { "count": "c" })), 13);
    by_certificate(&mut c, Some(SUBJECT)).unwrap();
    // The name has to be the certificate's, and of a user.
    for (tls, claimed) in [
        (&ann, Some("O=Muniment,OU=clients,CN=bob")),
        (&bob, None),
        (&bob, Some(SUBJECT)),
        (&nobody, None),
        (&nobody, Some(SUBJECT)),
    ] {
        let mut c = connect(&server, tls);
        assert_eq!(code(by_certificate(&mut c, claimed)), 18, "{claimed:?}");
        assert_eq!(whoami(&mut c), None);
    }
    let mut plain = server.connect();
    assert_eq!(code(by_certificate(&mut plain, Some(SUBJECT))), 18);
    // With a hello.
    let mut c = connect(&server, &ann);
    let login = doc! { "authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external" };
    let hello = doc! { "hello": 1, "speculativeAuthenticate": login };
    let reply = c.command("admin", &hello).unwrap();
    let told = reply.as_doc().get_doc("speculativeAuthenticate").unwrap();
    assert_eq!(told.get_str("user"), Some(SUBJECT));
    run(&mut c, "test", "{count: 'c'}");
    let mut c = connect(&server, &bob);
    let reply = c.command("admin", &hello).unwrap();
    assert!(reply.as_doc().get("speculativeAuthenticate").is_none());
    // Another database, and another mechanism.
    let cmd = doc! { "authenticate": 1, "mechanism": "MONGODB-X509" };
    assert_eq!(code(connect(&server, &ann).command("admin", &cmd)), 2);
    let cmd = doc! { "authenticate": 1, "mechanism": "MONGODB-CR" };
    assert_eq!(code(connect(&server, &ann).command("$external", &cmd)), 334);
}

#[test]
fn a_certificate_that_nobody_has_checked_does_not_count() {
    let authority = Authority::new();
    let other = Authority::new();
    let server = Server::start(
        open(&authority, "preferTLS")
            .arg("--auth")
            .arg("--tlsAllowInvalidCertificates"),
    );
    with_user(&server);
    for issuer in [&authority, &other] {
        let settings = muniment_tls::Settings {
            certificate_key_file: Some(issuer.issue("ann", "clients")),
            ca_file: Some(authority.ca()),
            ..muniment_tls::Settings::default()
        };
        let tls = muniment_tls::Endpoint::new(muniment_tls::Mode::Require, settings).unwrap();
        let mut c = connect(&server, &tls);
        assert_eq!(code(by_certificate(&mut c, None)), 18);
    }
}

#[test]
fn a_mechanism_that_is_not_enabled_is_refused() {
    let authority = Authority::new();
    let server = Server::start(
        open(&authority, "preferTLS")
            .arg("--auth")
            .arg("--setParameter")
            .arg("authenticationMechanisms=SCRAM-SHA-256"),
    );
    with_user(&server);
    let tls = client(&authority, Some(&authority.issue("ann", "clients")));
    assert_eq!(code(by_certificate(&mut connect(&server, &tls), None)), 334);
}

#[test]
fn files_are_read_anew_while_clients_go_on() {
    let authority = Authority::new();
    let next = Authority::new();
    let server = Server::start(open(&authority, "preferTLS"));
    let (old, new) = (client(&authority, None), client(&next, None));
    let mut c = connect(&server, &old);
    run(&mut c, "admin", "{ping: 1}");
    assert!(!answers(&server.address(), &new));
    // Files that do not fit together change nothing.
    std::fs::write(authority.file("server.pem"), "-----BEGIN NOTHING").unwrap();
    let e = c.command("admin", &doc! { "rotateCertificates": 1 });
    assert_eq!(code(e), 140);
    assert!(answers(&server.address(), &old));
    next.issue_into(&authority.file("server.pem"), "server", "db", 4000);
    run(&mut c, "admin", "{rotateCertificates: 1, message: 'new'}");
    assert!(answers(&server.address(), &new));
    assert!(!answers(&server.address(), &old));
    run(&mut c, "admin", "{ping: 1}");
    assert!(
        server
            .log()
            .contains("Successfully rotated X509 certificates")
    );
    let without = Server::start(ServerOptions::new());
    let refused = without
        .connect()
        .command("admin", &doc! { "rotateCertificates": 1 });
    assert_eq!(code(refused), 20);
}

#[test]
fn what_expires_soon_is_warned_of() {
    let authority = Authority::new();
    let server = Server::start(options(&authority, "preferTLS"));
    let mut c = server.connect();
    let warned = |c: &mut muniment_wire::Connection| {
        let log = run(c, "admin", "{getLog: 'startupWarnings'}");
        log.as_doc().to_display()
    };
    let expiry = |c: &mut muniment_wire::Connection| {
        let status = run(c, "admin", "{serverStatus: 1}");
        let security = status.as_doc().get_doc("security").unwrap();
        let subject = security.get_str("SSLServerSubjectName").unwrap();
        assert_eq!(subject, "O=Muniment,OU=db,CN=server");
        security
            .get("SSLServerCertificateExpirationDate")
            .unwrap()
            .to_display()
    };
    assert!(!warned(&mut c).contains("expire"));
    assert!(warned(&mut c).contains("can be read by other users"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(authority.file("server.pem"), mode).unwrap();
    let careful = Server::start(super::options_with(
        &authority,
        "preferTLS",
        &authority.file("server.pem"),
    ));
    assert!(!warned(&mut careful.connect()).contains("can be read by other users"));
    let before = expiry(&mut c);
    authority.issue_until("server", "db", 2020);
    run(&mut c, "admin", "{rotateCertificates: 1}");
    assert!(warned(&mut c).contains("has expired"));
    assert_ne!(expiry(&mut c), before);
}
