#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::client::{Client, ServerFirst};
use super::*;

const NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";
const SERVER_NONCE: &str = "3rfcNHYJY1ZVvWVs7j0000000000abcd";

/// An exchange of an RFC, word for word.
struct Vector {
    mechanism: Mechanism,
    client_nonce: &'static str,
    server_nonce: &'static str,
    salt: &'static str,
    messages: [&'static str; 4],
}

const RFC_5802: Vector = Vector {
    mechanism: Mechanism::Sha1,
    client_nonce: NONCE,
    server_nonce: "3rfcNHYJY1ZVvWVs7j",
    salt: "QSXCR+Q6sek8bf92",
    messages: [
        "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ],
};

const RFC_7677: Vector = Vector {
    mechanism: Mechanism::Sha256,
    client_nonce: "rOprNGfwEbeRWgbNEkqO",
    server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
    messages: [
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ],
};

impl Vector {
    fn credentials(&self) -> Credentials {
        let salt = BASE64_STANDARD.decode(self.salt).unwrap();
        Credentials::derive(self.mechanism, "pencil", 4096, &salt)
    }

    fn client(&self) -> Client {
        let prepared = Zeroizing::new("pencil".to_string());
        Client::with_prepared(self.mechanism, "user", prepared, self.client_nonce).unwrap()
    }

    fn begin(&self, credentials: &Credentials) -> Exchange {
        let first = ClientFirst::parse(self.messages[0].as_bytes()).unwrap();
        assert_eq!((first.user(), first.nonce()), ("user", self.client_nonce));
        let (exchange, answer) =
            Exchange::begin(first, credentials.clone(), self.server_nonce, true);
        assert_eq!(answer, self.messages[1]);
        exchange
    }
}

fn credentials(mechanism: Mechanism) -> Credentials {
    let salt = vec![7; mechanism.salt_len()];
    Credentials::new(mechanism, "user", "pencil", 4096, &salt).unwrap()
}

/// Logs in with whatever the server has.
fn log_in(user: &str, password: &str, credentials: Credentials, known: bool) -> Result<()> {
    let mut client = Client::new(credentials.mechanism, user, password, NONCE)?;
    let first = ClientFirst::parse(client.first().as_bytes())?;
    assert_eq!(first.user(), user);
    let (mut exchange, answer) = Exchange::begin(first, credentials, SERVER_NONCE, known);
    let proof = client.next(answer.as_bytes())?;
    let last = exchange.finish(proof.as_bytes())?;
    client.verify(last.as_bytes())
}

fn assert_failed<T: fmt::Debug>(result: Result<T>) {
    let e = result.unwrap_err();
    assert_eq!(
        (e.code(), e.message()),
        (Code::AuthenticationFailed, "Authentication failed.")
    );
}

#[test]
fn the_rfcs_exchanges() {
    for vector in [RFC_5802, RFC_7677] {
        let mut exchange = vector.begin(&vector.credentials());
        let mut client = vector.client();
        assert_eq!(client.first(), vector.messages[0]);
        let proof = client.next(vector.messages[1].as_bytes()).unwrap();
        assert_eq!(proof, vector.messages[2]);
        let last = exchange.finish(proof.as_bytes()).unwrap();
        assert_eq!(last, vector.messages[3]);
        client.verify(last.as_bytes()).unwrap();
        // Neither takes a second message.
        assert_failed(exchange.finish(proof.as_bytes()));
        client.verify(last.as_bytes()).unwrap_err();
    }
}

#[test]
fn mechanisms() {
    for (mechanism, name, salt, iterations) in [
        (Mechanism::Sha1, "SCRAM-SHA-1", 16, 10_000),
        (Mechanism::Sha256, "SCRAM-SHA-256", 28, 15_000),
    ] {
        assert_eq!(mechanism.name(), name);
        assert_eq!(Mechanism::from_name(name), Some(mechanism));
        assert_eq!(mechanism.salt_len(), salt);
        assert_eq!(mechanism.default_iterations(), iterations);
    }
    assert_eq!(Mechanism::from_name("scram-sha-1"), None);
    assert_eq!(
        *password_digest("user", "pencil"),
        "1c33006ec1ffd90f9cadcbcc0e118200"
    );
}

/// RFC 2202's and RFC 4231's, with keys longer than a block.
#[test]
fn hmac_of_long_keys() {
    let data: &[&[u8]] = &[
        b"Test Using Larger Than Block-Size Key",
        b" - Hash Key First",
    ];
    let hex = |mac: Secret| mac.iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(
        hex(Mechanism::Sha1.hmac(&[0xaa; 80], data)),
        "aa4ae5e15272d00e95705637ce8a3b55ed402112"
    );
    assert_eq!(
        hex(Mechanism::Sha256.hmac(&[0xaa; 131], data)),
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
    );
}

#[test]
fn who_gets_in() {
    for mechanism in Mechanism::ALL {
        let right = credentials(mechanism);
        log_in("user", "pencil", right.clone(), true).unwrap();
        assert_failed(log_in("user", "pencils", right.clone(), true));
        // The right proof does not help a user that does not exist.
        assert_failed(log_in("user", "pencil", right, false));
        let decoy = Credentials::decoy(mechanism, "user", "admin", b"secret", 4096);
        for known in [false, true] {
            assert_failed(log_in("user", "pencil", decoy.clone(), known));
        }
    }
    // Names with signs that have a meaning, and passwords that are prepared.
    let name = "a,b=c,=2C=3D\u{fc}";
    for mechanism in Mechanism::ALL {
        let salt = vec![7; mechanism.salt_len()];
        let made = Credentials::new(mechanism, name, "I\u{ad}X", 4096, &salt).unwrap();
        log_in(name, "I\u{ad}X", made.clone(), true).unwrap();
        let prepared = log_in(name, "\u{2168}", made, true);
        assert_eq!(prepared.is_ok(), mechanism == Mechanism::Sha256);
    }
}

#[test]
fn decoys_look_like_users() {
    for mechanism in Mechanism::ALL {
        let decoy = |user: &str, db: &str, secret: &[u8]| {
            Credentials::decoy(mechanism, user, db, secret, 15_000).to_doc()
        };
        let one = decoy("user", "admin", b"secret");
        Credentials::from_doc(mechanism, one.as_doc()).unwrap();
        assert_eq!(one, decoy("user", "admin", b"secret"));
        let field = |doc: &DocBuf, name| doc.as_doc().get_str(name).unwrap().to_string();
        for other in [
            decoy("usera", "dmin", b"secret"),
            decoy("user", "admin", b"secret2"),
            decoy("user", "test", b"secret"),
        ] {
            for name in ["salt", "storedKey", "serverKey"] {
                assert_ne!(field(&one, name), field(&other, name));
            }
        }
        assert_ne!(field(&one, "storedKey"), field(&one, "serverKey"));
    }
}

#[test]
fn documents() {
    for mechanism in Mechanism::ALL {
        let made = credentials(mechanism).to_doc();
        let read = Credentials::from_doc(mechanism, made.as_doc()).unwrap();
        assert_eq!(read.to_doc(), made);
        assert_eq!((read.mechanism(), read.iterations()), (mechanism, 4096));
        log_in("user", "pencil", read, true).unwrap();
        let other = match mechanism {
            Mechanism::Sha1 => Mechanism::Sha256,
            Mechanism::Sha256 => Mechanism::Sha1,
        };
        let e = Credentials::from_doc(other, made.as_doc()).unwrap_err();
        assert!(e.message().ends_with("salt has the wrong length"), "{e}");
    }
    let good = credentials(Mechanism::Sha256).to_doc();
    for name in ["iterationCount", "salt", "storedKey", "serverKey"] {
        for (value, why) in [
            (None, "is missing"),
            (Some(doc! { "v": true }), "is not a "),
            (Some(doc! { "v": "AAAA" }), ""),
            (Some(doc! { "v": "*" }), ""),
            (Some(doc! { "v": 4095 }), ""),
            (Some(doc! { "v": -1 }), ""),
            (Some(doc! { "v": 4096.5 }), ""),
            (Some(doc! { "v": (1_i64 << 32) + 5000 }), ""),
        ] {
            let mut doc = DocBuf::new();
            for elem in good.as_doc().iter().filter(|e| !e.is_named(name)) {
                doc.append_elem(elem);
            }
            doc.append_some(name, value.as_ref().and_then(|v| v.as_doc().get("v")));
            let e = Credentials::from_doc(Mechanism::Sha256, doc.as_doc()).unwrap_err();
            assert_eq!(e.code(), Code::BadValue);
            let beginning = format!("SCRAM-SHA-256 credentials: {name} {why}");
            assert!(e.message().starts_with(&beginning), "{e}");
        }
    }
}

#[test]
fn making_credentials_checks() {
    let make = |iterations, salt: &[u8]| {
        Credentials::new(Mechanism::Sha256, "user", "pencil", iterations, salt)
    };
    make(4096, &[1; 28]).unwrap();
    make(4096, &[1; 27]).unwrap_err();
    make(4096, &[]).unwrap_err();
    make(4095, &[1; 28]).unwrap_err();
    make(u32::MAX, &[1; 28]).unwrap_err();
    let unprepared = Credentials::new(Mechanism::Sha256, "user", "a\u{7}", 4096, &[1; 28]);
    assert_eq!(unprepared.unwrap_err().code().0, 50692);
}

#[test]
fn first_messages() {
    let long = "r".repeat(512);
    for good in [
        "n,,n=user,r=12345678",
        "y,,n=user,r=12345678",
        "n,a=user,n=user,r=12345678",
        "y,a=a=2Cb=3D,n=a=2Cb=3D,r=12345678",
        "n,,n=user,r=12345678,x=ignored,Y=too",
        &format!("n,,n=user,r={long}"),
    ] {
        ClientFirst::parse(good.as_bytes()).unwrap();
    }
    let too_long = format!("n,,n=user,r={long}r");
    let too_much = format!("n,,n={},r=12345678", "u".repeat(MOST_PAYLOAD));
    for (bad, named) in [
        ("", "header"),
        ("n", "header"),
        ("n,", "header"),
        ("x,,n=user,r=12345678", "header"),
        ("p=tls-unique,,n=user,r=12345678", "p="),
        ("n,a=other,n=user,r=12345678", "a="),
        ("n,a=,n=user,r=12345678", "a="),
        ("n,user,n=user,r=12345678", "a="),
        ("n,,m=x,n=user,r=12345678", "m="),
        ("n,,n=user,m=x,r=12345678", "m="),
        ("n,,n=user,r=12345678,m=x", "wrong place"),
        ("n,,n=user,r=12345678,r=87654321", "wrong place"),
        ("n,,n=user,r=12345678,", "extension"),
        ("n,,n=user,r=12345678,x=", "extension"),
        ("n,,n=user,r=12345678,1=x", "extension"),
        ("n,,n=,r=12345678", "n="),
        ("n,,r=12345678", "n="),
        ("n,,u=user,r=12345678", "n="),
        ("n,,n=us=er,r=12345678", "n="),
        ("n,,n=us=2cer,r=12345678", "n="),
        ("n,,n=user=,r=12345678", "n="),
        ("n,,n=user", "r="),
        ("n,,n=user,r=", "r="),
        ("n,,n=user,r=1234567", "r="),
        ("n,,n=user,r=1234 5678", "r="),
        ("n,,n=user,r=1234\u{fc}5678", "r="),
        ("n,,n=us\0er,r=12345678", "text"),
        (&too_long, "r="),
        (&too_much, "too long"),
    ] {
        let e = ClientFirst::parse(bad.as_bytes()).unwrap_err();
        assert_eq!(e.code(), Code::BadValue);
        assert!(e.message().contains(named), "{bad}: {e}");
        assert!(!e.message().contains("1234") && !e.message().contains("user"));
    }
    ClientFirst::parse(b"n,,n=us\xffer,r=12345678").unwrap_err();
}

#[test]
fn final_messages() {
    let vector = RFC_7677;
    let credentials = vector.credentials();
    let good = vector.messages[2];
    let nonce = &good[9..good.find(",p=").unwrap()];
    for (bad, named) in [
        (good.replace("c=biws", "c=eSws"), "c="),
        (good.replace("c=biws", "c="), "c="),
        (good.replace("c=biws,", ""), "c="),
        (good.replace(nonce, &nonce[..nonce.len() - 1]), "r="),
        (good.replace(nonce, &format!("{nonce}x")), "r="),
        (good.replace(nonce, vector.client_nonce), "r="),
        (good.replace(",p=", ",m=x,p="), "wrong place"),
        (good.replace(",p=", ",c=biws,p="), "wrong place"),
        (good.replace("c=", "m=x,c="), "m="),
        (good.replace(",p=", ",q="), "p="),
        (format!("{good},x=y"), "p="),
        (format!("{}AAAA", &good[..good.len() - 44]), "p="),
        (good.replace("VQ=", "VQ"), "p="),
        (good.replace("VQ=", "VR="), "p="),
    ] {
        let e = vector
            .begin(&credentials)
            .finish(bad.as_bytes())
            .unwrap_err();
        assert_eq!(e.code(), Code::BadValue, "{bad}");
        assert!(e.message().contains(named), "{bad}: {e}");
        assert!(!e.message().contains("AndVQ") && !e.message().contains(nonce));
    }
    // An extension that is added after the proof was made is not what was proven.
    let more = good.replace(",p=", ",x=y,p=");
    assert_failed(vector.begin(&credentials).finish(more.as_bytes()));
    // A malformed message is a try, too.
    let mut exchange = vector.begin(&credentials);
    exchange.finish(b"").unwrap_err();
    assert_failed(exchange.finish(good.as_bytes()));
}

#[test]
fn the_header_is_bound() {
    // Somebody between the two changes the header; or the client had another one to begin with.
    let vector = RFC_7677;
    for header in ["y,,", "n,a=user,"] {
        let first = vector.messages[0].replace("n,,", header);
        let first = ClientFirst::parse(first.as_bytes()).unwrap();
        let (mut exchange, _) =
            Exchange::begin(first, vector.credentials(), vector.server_nonce, true);
        let e = exchange.finish(vector.messages[2].as_bytes()).unwrap_err();
        assert!(e.message().contains("c="), "{e}");
    }
}

/// Each message that differs in one byte, and each that ends too early.
fn altered(message: &str) -> impl Iterator<Item = Vec<u8>> {
    let bytes = message.as_bytes();
    let cut = (0..bytes.len()).map(|len| bytes[..len].to_vec());
    let changed = (0..bytes.len()).flat_map(move |at| {
        (1..=255).map(move |by| {
            let mut changed = bytes.to_vec();
            changed[at] ^= by;
            changed
        })
    });
    cut.chain(changed)
}

#[test]
fn no_altered_message_gets_in() {
    for vector in [RFC_5802, RFC_7677] {
        let credentials = vector.credentials();
        for payload in altered(vector.messages[2]) {
            let result = vector.begin(&credentials).finish(&payload);
            assert!(result.is_err(), "{}", payload.escape_ascii());
        }
        // The client answers whatever nonce it gets, as a careless one would.
        let client = vector.client();
        let salted = vector.mechanism.salted("pencil", &credentials.salt, 4096);
        let mut read = 0;
        for payload in altered(vector.messages[0]) {
            let Ok(first) = ClientFirst::parse(&payload) else {
                continue;
            };
            read += 1;
            let nonce = first.nonce().to_string();
            let (mut exchange, answer) =
                Exchange::begin(first, credentials.clone(), vector.server_nonce, true);
            let server = ServerFirst::parse(answer.as_bytes(), &nonce).unwrap();
            let (proof, _) = client.answer(&salted, &server);
            let result = exchange.finish(proof.as_bytes());
            assert!(result.is_err(), "{}", payload.escape_ascii());
        }
        assert!(read > 1000, "{read}");
    }
}

#[test]
fn clients_are_careful() {
    let vector = RFC_7677;
    let [_, good, _, last] = vector.messages;
    for (bad, named) in [
        (good.replace("i=4096", "i=4095"), "i="),
        (good.replace("i=4096", "i=1"), "i="),
        (good.replace("i=4096", "i=+4096"), "i="),
        (good.replace("i=4096", "i=4000000000"), "i="),
        (good.replace("i=4096", "i="), "i="),
        (good.replace("r=rOpr", "r=rOps"), "r="),
        (good.replace(vector.server_nonce, ""), "r="),
        (good.replace("s=W22", "s=*"), "s="),
        (good.replace("s=W22", "m=W22"), "m="),
        (String::new(), "r="),
    ] {
        let e = vector.client().next(bad.as_bytes()).unwrap_err();
        assert!(e.message().contains(named), "{bad}: {e}");
    }
    let mut client = vector.client();
    client.verify(last.as_bytes()).unwrap_err();
    for payload in [
        "",
        "v=",
        "v=AAAA",
        "e=invalid-proof",
        &last.replace("v=6", "v=7"),
    ] {
        client.next(good.as_bytes()).unwrap();
        client.verify(payload.as_bytes()).unwrap_err();
    }
    for (user, nonce) in [
        ("", NONCE),
        ("a\0", NONCE),
        ("user", "short"),
        ("user", "12345,678"),
    ] {
        Client::new(Mechanism::Sha1, user, "pencil", nonce).unwrap_err();
    }
}

#[test]
fn debug_shows_nothing_secret() {
    let made = credentials(Mechanism::Sha256);
    assert_eq!(format!("{made:?}"), "Credentials { mechanism: Sha256, .. }");
    let client = Client::new(Mechanism::Sha1, "user", "pencil", NONCE).unwrap();
    assert_eq!(format!("{client:?}"), "Client { mechanism: Sha1, .. }");
    let first = ClientFirst::parse(client.first().as_bytes()).unwrap();
    let (exchange, _) = Exchange::begin(first, made, SERVER_NONCE, true);
    assert_eq!(
        format!("{exchange:?}"),
        "Exchange { mechanism: Sha256, .. }"
    );
}
