//! Logins over TLS with the Rust driver. MUNIMENT_PORT and MUNIMENT_CERTS say where.

use mongodb::bson::{Document, doc};
use mongodb::options::{AuthMechanism, ClientOptions, Credential, ServerAddress, Tls, TlsOptions};
use mongodb::sync::Client;
use std::path::PathBuf;

/// A client with these settings; `None` if the server of this run has no TLS.
fn connect(pair: bool, credential: Option<Credential>) -> Option<Client> {
    let certs = PathBuf::from(std::env::var_os("MUNIMENT_CERTS")?);
    let port = std::env::var("MUNIMENT_PORT").ok()?.parse().ok();
    let tls = TlsOptions::builder()
        .ca_file_path(certs.join("ca.pem"))
        .cert_key_file_path(pair.then(|| certs.join("client.pem")))
        .build();
    let host = "localhost".to_string();
    let options = ClientOptions::builder()
        .hosts(vec![ServerAddress::Tcp { host, port }])
        .tls(Tls::Enabled(tls))
        .credential(credential)
        .build();
    Some(Client::with_options(options).expect("options"))
}

fn scram(mechanism: AuthMechanism, name: &str, password: &str) -> Credential {
    Credential::builder()
        .username(name.to_string())
        .password(password.to_string())
        .source("secured".to_string())
        .mechanism(mechanism)
        .build()
}

fn x509() -> Credential {
    Credential::builder()
        .mechanism(AuthMechanism::MongoDbX509)
        .build()
}

#[test]
fn logins() {
    let logins = [
        (
            false,
            scram(AuthMechanism::ScramSha1, "SCRAM-SHA-1", "pass,=wörd"),
        ),
        (
            false,
            scram(AuthMechanism::ScramSha256, "SCRAM-SHA-256", "pass,=wörd"),
        ),
        (true, x509()),
    ];
    for (pair, credential) in logins {
        let Some(client) = connect(pair, Some(credential)) else {
            return;
        };
        let c = client.database("secured").collection::<Document>("rust");
        c.drop().run().expect("drop");
        let mut session = client.start_session().run().expect("session");
        session.start_transaction().run().expect("begin");
        let one = doc! {"_id": 1, "text": "x".repeat(1 << 20)};
        c.insert_one(one)
            .session(&mut session)
            .run()
            .expect("insert");
        session.commit_transaction().run().expect("commit");
        assert_eq!(c.count_documents(doc! {}).run().expect("count"), 1);
        let other = client.database("other").collection::<Document>("c");
        let refused = other
            .insert_one(doc! {})
            .run()
            .expect_err("another database");
        assert!(refused.to_string().contains("not authorized"), "{refused}");
        c.drop().run().expect("drop");
    }
}

#[test]
fn refusals() {
    let wrong = scram(AuthMechanism::ScramSha256, "SCRAM-SHA-256", "wrong");
    for (credential, why) in [
        (Some(wrong), "Authentication failed"),
        (Some(x509()), "Authentication failed"),
        (None, "requires authentication"),
    ] {
        let Some(client) = connect(false, credential) else {
            return;
        };
        let c = client.database("secured").collection::<Document>("c");
        let e = c.find_one(doc! {}).run().expect_err(why).to_string();
        assert!(e.contains(why), "{e}");
    }
}
