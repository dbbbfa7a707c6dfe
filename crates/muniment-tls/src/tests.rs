//! Both ends of connections, over sockets of this machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use crate::{Endpoint, Mode, Protocol, Refused, Settings, Socket, Version};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// A directory with an authority and certificates, which is removed in the end.
struct Dir {
    path: PathBuf,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Dir {
    fn new() -> Dir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("muniment-tls-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, format!("authority {n}"));
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(path.join("ca.pem"), ca.pem()).unwrap();
        Dir { path, ca }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a certificate and its key.
    fn make(&self, name: &str, hosts: &[&str], serial: u64) -> PathBuf {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_string()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Muniment");
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        let path = self.file(&format!("{name}.pem"));
        std::fs::write(
            &path,
            format!("{}{}", key.serialize_pem(), certificate.pem()),
        )
        .unwrap();
        path
    }

    fn settings(&self, pair: &Path) -> Settings {
        Settings {
            certificate_key_file: Some(pair.to_path_buf()),
            ca_file: Some(self.file("ca.pem")),
            ..Settings::default()
        }
    }

    fn server(&self, mode: Mode, change: impl FnOnce(&mut Settings)) -> Arc<Endpoint> {
        let pair = self.make("server", &["localhost", "127.0.0.1"], 1);
        let mut settings = self.settings(&pair);
        settings.allow_connections_without_certificates = true;
        change(&mut settings);
        Arc::new(Endpoint::new(mode, settings).unwrap())
    }

    fn client(&self, change: impl FnOnce(&mut Settings)) -> Endpoint {
        let mut settings = Settings {
            ca_file: Some(self.file("ca.pem")),
            ..Settings::default()
        };
        change(&mut settings);
        Endpoint::new(Mode::Require, settings).unwrap()
    }
}

fn ends() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

/// Answers everything with the same bytes until the client ends the connection.
fn echo(socket: &Socket) -> std::io::Result<()> {
    let mut buf = vec![0; 48 << 10];
    socket.set_read_timeout(Some(LIMIT));
    loop {
        let n = socket.read(&mut buf)?;
        if n == 0 {
            return Ok(());
        }
        let mut rest = &buf[..n];
        while !rest.is_empty() {
            rest = &rest[socket.write(rest)?..];
        }
    }
}

/// What both ends of a connection come to whose server echoes.
fn meet(
    server: &Arc<Endpoint>,
    client: &Endpoint,
    host: &str,
    talk: impl FnOnce(&Socket),
) -> (std::io::Result<()>, std::io::Result<()>, Arc<Socket>) {
    let (near, far) = ends();
    let far = Arc::new(Socket::accepted(far, Arc::clone(server)));
    let its = Arc::clone(&far);
    let echoes = std::thread::spawn(move || {
        let ended = echo(&its);
        let _ = its.shutdown();
        ended
    });
    let near = Socket::connect(near, client, host, LIMIT).map(|socket| {
        socket.set_read_timeout(Some(LIMIT));
        talk(&socket);
        let _ = socket.shutdown_write();
    });
    (near, echoes.join().unwrap(), far)
}

fn send(socket: &Socket, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        bytes = &bytes[socket.write(bytes).unwrap()..];
    }
}

fn receive(socket: &Socket, len: usize) -> Vec<u8> {
    let mut all = vec![0; len];
    let mut have = 0;
    while have < len {
        match socket.read(&mut all[have..]).unwrap() {
            0 => panic!("ended after {have} of {len}"),
            n => have += n,
        }
    }
    all
}

fn says(socket: &Socket, what: &[u8]) {
    send(socket, what);
    assert!(receive(socket, what.len()) == what);
}

#[test]
fn bytes_pass_in_both_versions() {
    let dir = Dir::new();
    for (disabled, version) in [
        (vec![Protocol::Tls12], Version::Tls13),
        (vec![Protocol::Tls13], Version::Tls12),
    ] {
        let server = dir.server(Mode::Require, |s| s.disabled = disabled);
        let client = dir.client(|_| {});
        let (near, far, socket) = meet(&server, &client, "localhost", |c| {
            for len in [1, 100, 16_384, 16_385, 70_000, 300_000] {
                let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
                // A large message is read by a thread while it is sent, as the echo does not wait.
                std::thread::scope(|scope| {
                    scope.spawn(|| send(c, &bytes));
                    assert!(receive(c, len as usize) == bytes, "{len}");
                });
                c.shrink_idle();
            }
            assert!(!c.has_ended());
        });
        near.unwrap();
        far.unwrap();
        assert_eq!(socket.version(), Some(version));
        assert_eq!(server.accepted(version), 1);
        assert!(socket.certificate().is_none());
    }
}

#[test]
fn a_client_without_tls_is_served_or_refused() {
    let dir = Dir::new();
    for mode in [Mode::Allow, Mode::Prefer, Mode::Require] {
        let server = dir.server(mode, |_| {});
        let (mut near, far) = ends();
        let far = Socket::accepted(far, Arc::clone(&server));
        let echoes = std::thread::spawn(move || echo(&far));
        near.set_read_timeout(Some(LIMIT)).unwrap();
        // The bytes come one by one, and some look like TLS at first.
        for byte in [22, 3, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 2] {
            near.write_all(&[byte]).unwrap();
        }
        let mut back = [0; 14];
        let read = near.read_exact(&mut back);
        if mode == Mode::Require {
            let e = echoes.join().unwrap().unwrap_err();
            assert!(matches!(Refused::of(&e), Some(Refused::Plain)), "{e}");
            assert!(read.is_err());
            assert_eq!(server.failed(), 1);
            continue;
        }
        read.unwrap();
        assert_eq!(back[12..], [1, 2]);
        near.write_all(b"more").unwrap();
        near.read_exact(&mut back[..4]).unwrap();
        assert_eq!(&back[..4], b"more");
        drop(near);
        echoes.join().unwrap().unwrap();
    }
}

#[test]
fn certificates_of_clients_are_checked() {
    let dir = Dir::new();
    let other = Dir::new();
    let good = dir.make("good", &["client"], 7);
    let bad = other.make("bad", &["client"], 8);
    let server = dir.server(Mode::Require, |s| {
        s.allow_connections_without_certificates = false;
    });
    let with = |pair: &Path| {
        let pair = pair.to_path_buf();
        dir.client(|s| s.certificate_key_file = Some(pair))
    };
    let mut bound = None;
    let (near, far, socket) = meet(&server, &with(&good), "127.0.0.1", |c| {
        says(c, b"hi");
        bound = c.binding().copied();
    });
    assert!(bound.is_some() && bound.as_ref() == socket.binding());
    near.unwrap();
    far.unwrap();
    assert_eq!(socket.certificate().unwrap().subject, "O=Muniment,CN=good");
    assert!(server.is_of_member(&socket.certificate().unwrap().membership));
    for client in [with(&bad), dir.client(|_| {})] {
        let (_, far, socket) = meet(&server, &client, "localhost", |c| {
            // In version 1.3 the client learns of the refusal from its first read.
            let _ = c.write(b"hi");
            assert!(!matches!(c.read(&mut [0; 9]), Ok(1..)));
        });
        let e = far.unwrap_err();
        assert!(matches!(Refused::of(&e), Some(Refused::Tls(_))), "{e}");
        assert!(socket.version().is_none());
    }
    // With an authority for clients of their own, that of the servers does not count.
    let server = dir.server(Mode::Require, |s| {
        s.cluster_ca_file = Some(other.file("ca.pem"));
    });
    assert!(
        meet(&server, &with(&bad), "localhost", |c| says(c, b"hi"))
            .1
            .is_ok()
    );
    // A server that accepts any certificate learns its names all the same.
    let server = dir.server(Mode::Require, |s| s.allow_invalid_certificates = true);
    let (_, far, socket) = meet(&server, &with(&bad), "localhost", |c| says(c, b"hi"));
    far.unwrap();
    assert_eq!(socket.certificate().unwrap().subject, "O=Muniment,CN=bad");
}

#[test]
fn certificates_of_servers_are_checked() {
    let dir = Dir::new();
    let other = Dir::new();
    let server = dir.server(Mode::Require, |_| {});
    for (host, client, good) in [
        ("localhost", dir.client(|_| {}), true),
        ("elsewhere", dir.client(|_| {}), false),
        (
            "elsewhere",
            dir.client(|s| s.allow_invalid_hostnames = true),
            true,
        ),
        (
            "localhost",
            dir.client(|s| s.ca_file = Some(other.file("ca.pem"))),
            false,
        ),
        (
            "localhost",
            dir.client(|s| {
                s.ca_file = Some(other.file("ca.pem"));
                s.allow_invalid_hostnames = true;
            }),
            false,
        ),
        (
            "elsewhere",
            dir.client(|s| {
                s.ca_file = Some(other.file("ca.pem"));
                s.allow_invalid_certificates = true;
            }),
            true,
        ),
    ] {
        let (near, far, _) = meet(&server, &client, host, |c| says(c, b"hi"));
        assert_eq!(near.is_ok(), good, "{host} {client:?} {near:?}");
        assert_eq!(far.is_ok(), good, "{host} {client:?} {far:?}");
    }
    assert_eq!(server.failed(), 3);
}

#[test]
fn revoked_certificates_are_refused() {
    let dir = Dir::new();
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(2120, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(9),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = params.signed_by(&dir.ca).unwrap();
    std::fs::write(dir.file("crl.pem"), list.pem().unwrap()).unwrap();
    let server = dir.server(Mode::Require, |s| s.crl_file = Some(dir.file("crl.pem")));
    for (serial, good) in [(8, true), (9, false)] {
        let pair = dir.make(&format!("c{serial}"), &["client"], serial);
        let client = dir.client(|s| s.certificate_key_file = Some(pair));
        let (_, far, _) = meet(&server, &client, "localhost", |c| {
            if good {
                says(c, b"hi");
            }
        });
        assert_eq!(far.is_ok(), good, "{serial} {far:?}");
    }
}

#[test]
fn files_are_read_anew_for_new_connections() {
    let dir = Dir::new();
    let server = dir.server(Mode::Require, |_| {});
    let client = dir.client(|_| {});
    meet(&server, &client, "localhost", |old| {
        says(old, b"before");
        // Files that cannot be used change nothing.
        std::fs::write(dir.file("server.pem"), "nothing").unwrap();
        assert!(server.rotate().is_err());
        says(old, b"between");
        dir.make("server", &["other.example"], 5);
        server.rotate().unwrap();
        says(old, b"after");
        let refused = meet(&server, &client, "localhost", |_| {}).0;
        assert!(refused.is_err());
        let (near, ..) = meet(&server, &client, "other.example", |c| says(c, b"new"));
        near.unwrap();
    })
    .0
    .unwrap();
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let dir = Dir::new();
    let pair = dir.make("server", &["localhost"], 1);
    let second = dir.make("second", &["localhost"], 2);
    let refuses = |change: &dyn Fn(&mut Settings), says: &str| {
        let mut settings = dir.settings(&pair);
        change(&mut settings);
        let e = Endpoint::new(Mode::Require, settings).unwrap_err();
        assert_eq!(e.code().0, 140);
        assert!(e.message().contains(says), "{}", e.message());
    };
    refuses(&|s| s.ca_file = Some(dir.file("none")), "Can not read");
    refuses(
        &|s| s.certificate_key_file = Some(dir.file("ca.pem")),
        "no usable private key",
    );
    refuses(
        &|s| s.disabled = vec![Protocol::Tls12, Protocol::Tls13],
        "leaves no version",
    );
    refuses(
        &|s| s.crl_file = Some(dir.file("ca.pem")),
        "no revocation list",
    );
    let (key, certificate) = (
        std::fs::read_to_string(&pair).unwrap(),
        std::fs::read_to_string(&second).unwrap(),
    );
    let at = |text: &str| text.find("-----BEGIN CERTIFICATE").unwrap();
    let mixed = format!("{}{}", &key[..at(&key)], &certificate[at(&certificate)..]);
    std::fs::write(dir.file("mixed.pem"), mixed).unwrap();
    refuses(
        &|s| s.certificate_key_file = Some(dir.file("mixed.pem")),
        "does not belong",
    );
}

#[test]
fn encrypted_keys_need_their_password() {
    let dir = Dir::new();
    let pair = dir.make("server", &["localhost"], 1);
    let plain = std::fs::read_to_string(&pair).unwrap();
    let at = plain.find("-----BEGIN CERTIFICATE").unwrap();
    let (_, der) = pem_rfc7468::decode_vec(&plain.as_bytes()[..at]).unwrap();
    let key = pkcs8::PrivateKeyInfoRef::try_from(der.as_slice()).unwrap();
    let params = pkcs8::pkcs5::pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(
        2048,
        b"saltsalt",
        [3; 16],
    );
    let encrypted = key.encrypt_with_params(params.unwrap(), "hush").unwrap();
    let ending = pem_rfc7468::LineEnding::LF;
    let pem = pem_rfc7468::encode_string("ENCRYPTED PRIVATE KEY", ending, encrypted.as_bytes());
    std::fs::write(&pair, format!("{}{}", pem.unwrap(), &plain[at..])).unwrap();
    for (password, says) in [
        (Some("hush"), None),
        (Some("loud"), Some("cannot be decrypted")),
        (None, Some("no password is given")),
    ] {
        let mut settings = dir.settings(&pair);
        settings.certificate_key_password = password.map(|p| p.to_string().into());
        let made = Endpoint::new(Mode::Require, settings);
        match says {
            None => assert!(made.is_ok()),
            Some(says) => {
                let e = made.unwrap_err();
                assert!(e.message().contains(says), "{}", e.message());
                assert!(!e.message().contains("loud"));
            }
        }
    }
}

#[test]
fn what_is_not_read_waits_without_being_lost() {
    let dir = Dir::new();
    let server = dir.server(Mode::Require, |_| {});
    let client = dir.client(|_| {});
    let (near, far) = ends();
    let far = Socket::accepted(far, Arc::clone(&server));
    let bytes: Vec<u8> = (0..32_u32 << 20).map(|i| (i % 249) as u8).collect();
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let near = Socket::connect(near, &client, "localhost", LIMIT).unwrap();
            send(&near, b"x");
            // The other side cannot send all of it meanwhile.
            std::thread::sleep(Duration::from_millis(200));
            assert!(receive(&near, bytes.len()) == bytes);
        });
        far.set_read_timeout(Some(LIMIT));
        assert_eq!(far.read(&mut [0; 10]).unwrap(), 1);
        let mut rest = &bytes[..];
        let mut waited = 0;
        far.set_write_timeout(Some(Duration::from_millis(20)));
        while !rest.is_empty() {
            match far.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => waited += 1,
                Err(e) => panic!("{e}"),
            }
        }
        assert!(waited > 0);
        reads.join().unwrap();
    });
}

#[test]
fn reads_end_in_time_and_when_another_thread_ends_the_connection() {
    let dir = Dir::new();
    let server = dir.server(Mode::Require, |_| {});
    let client = dir.client(|_| {});
    let (near, _, _) = meet(&server, &client, "localhost", |c| {
        says(c, b"hi");
        c.set_read_timeout(Some(Duration::from_millis(10)));
        let e = c.read(&mut [0; 9]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        let e = c.read_at_once(&mut [0; 9]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        c.set_read_timeout(None);
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| c.read(&mut [0; 9]));
            std::thread::sleep(Duration::from_millis(50));
            // It can be written to meanwhile.
            assert_eq!(c.write(b"abc").unwrap(), 3);
            assert_eq!(reads.join().unwrap().unwrap(), 3);
            let reads = scope.spawn(|| c.read(&mut [0; 9]));
            std::thread::sleep(Duration::from_millis(50));
            c.shutdown().unwrap();
            assert_eq!(reads.join().unwrap().unwrap_or(0), 0);
        });
    });
    near.unwrap();
}

#[test]
fn the_end_of_the_other_side_is_seen_without_reading() {
    let dir = Dir::new();
    let server = dir.server(Mode::Require, |_| {});
    let client = dir.client(|_| {});
    let (near, far) = ends();
    let far = Socket::accepted(far, Arc::clone(&server));
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| Socket::connect(near, &client, "localhost", LIMIT).unwrap());
        far.set_read_timeout(Some(Duration::from_millis(200)));
        assert!(far.read(&mut [0; 9]).is_err());
        let near = connects.join().unwrap();
        assert!(!near.has_ended());
        assert_eq!(far.write(b"last").unwrap(), 4);
        far.shutdown().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        // What was sent comes before the end.
        assert!(!near.has_ended());
        assert_eq!(receive(&near, 4), b"last");
        assert!(near.has_ended());
    });
}

#[test]
fn bytes_that_are_no_tls_end_the_connection_alone() {
    let dir = Dir::new();
    let server = dir.server(Mode::Require, |_| {});
    for tail in [&[0xFF; 3][..], &[0; 400], &[22; 70_000]] {
        let (mut near, far) = ends();
        let far = Socket::accepted(far, Arc::clone(&server));
        let bytes = [&[22, 3, 1, 0xFF, 0xFF, 1, 0, 0xFF, 0xF0, 3, 3][..], tail].concat();
        let writes = std::thread::spawn(move || {
            let _ = near.write_all(&bytes);
            let _ = near.shutdown(std::net::Shutdown::Write);
            let _ = near.read(&mut [0; 100]);
        });
        far.set_read_timeout(Some(LIMIT));
        assert!(!matches!(far.read(&mut [0; 9]), Ok(1..)));
        assert!(!matches!(far.read(&mut [0; 9]), Ok(1..)));
        drop(far);
        writes.join().unwrap();
    }
}

#[test]
fn the_end_is_seen_after_a_part_of_a_record() {
    let dir = Dir::new();
    let server = dir.server(Mode::Require, |_| {});
    let client = dir.client(|_| {});
    let (near, far) = ends();
    let far = Socket::accepted(far, Arc::clone(&server));
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| Socket::connect(near, &client, "localhost", LIMIT).unwrap());
        far.set_read_timeout(Some(Duration::from_millis(200)));
        assert!(far.read(&mut [0; 9]).is_err());
        let near = connects.join().unwrap();
        let mut raw = far.tcp().try_clone().unwrap();
        raw.write_all(&[23, 3, 3, 0]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!near.has_ended());
        raw.shutdown(std::net::Shutdown::Both).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(near.has_ended());
    });
}

#[test]
fn many_authorities_and_lists_that_are_out_of_date() {
    let dir = Dir::new();
    // More names than a message of the handshake can have.
    let mut all = std::fs::read_to_string(dir.file("ca.pem")).unwrap();
    for n in 0..90 {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("{n} {}", "x".repeat(900));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        all += &params.self_signed(&key).unwrap().pem();
    }
    std::fs::write(dir.file("all.pem"), all).unwrap();
    let server = dir.server(Mode::Require, |s| s.ca_file = Some(dir.file("all.pem")));
    let pair = dir.make("c", &["client"], 7);
    let client = dir.client(|s| s.certificate_key_file = Some(pair.clone()));
    let (near, far, socket) = meet(&server, &client, "localhost", |c| says(c, b"hi"));
    near.unwrap();
    far.unwrap();
    assert!(socket.certificate().is_some());
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2021, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = params.signed_by(&dir.ca).unwrap();
    std::fs::write(dir.file("old.pem"), list.pem().unwrap()).unwrap();
    let server = dir.server(Mode::Require, |s| s.crl_file = Some(dir.file("old.pem")));
    let (_, far, _) = meet(&server, &client, "localhost", |_| {});
    assert!(far.is_err());
}

#[test]
fn a_connection_that_ends_before_it_shows_its_kind_has_ended() {
    let server = Dir::new().server(Mode::Prefer, |_| {});
    let (near, mut far) = ends();
    let socket = Socket::accepted(near, server);
    far.write_all(&[22]).unwrap();
    drop(far);
    assert_eq!(socket.read(&mut [0; 9]).unwrap(), 0);
    assert!(socket.has_ended());
}

/// Inputs from which the fuzzer of `greeting` starts: greetings, messages, and the answers of servers.
fn greetings(dir: &Dir, server: &Arc<Endpoint>) -> Vec<Vec<u8>> {
    let (near, mut far) = ends();
    let client = dir.client(|_| {});
    let limit = Duration::from_millis(50);
    assert!(Socket::connect(near, &client, "localhost", limit).is_err());
    let mut hello = Vec::new();
    far.read_to_end(&mut hello).unwrap();
    let (near, mut far) = ends();
    let socket = Socket::accepted(near, Arc::clone(server));
    far.write_all(&hello).unwrap();
    while socket.read_at_once(&mut [0; 9]).is_ok() {}
    drop(socket);
    let mut answer = Vec::new();
    let _ = far.read_to_end(&mut answer);
    assert!(hello.len() > 100 && answer.len() > 100);
    let message = b"\x3a\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0";
    let http = b"GET / HTTP/1.1\r\n\r\n";
    let alert = [21, 3, 3, 0, 2, 2, 40];
    let inputs: [&[u8]; 6] = [&hello, &answer, message, http, &alert, &[22, 3, 3]];
    let mut all = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        for mode in 0..3 {
            let begin = [mode | 8, [0, 5, 200][(i + usize::from(mode)) % 3]];
            all.push([&begin[..], input].concat());
        }
    }
    all
}

/// Inputs from which the fuzzer of `certificate` starts.
fn certificates(dir: &Dir) -> Vec<Vec<u8>> {
    let mut all = vec![dir.ca.der().to_vec()];
    let names = [
        (DnType::OrganizationName, "A, B & \"C\""),
        (DnType::OrganizationalUnitName, " x "),
        (DnType::CommonName, "#client \u{e9}\u{1}"),
    ];
    for n in 1..=names.len() {
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        for (kind, text) in &names[..n] {
            params.distinguished_name.push(kind.clone(), *text);
        }
        let key = KeyPair::generate().unwrap();
        all.push(params.self_signed(&key).unwrap().der().to_vec());
    }
    all.push(b"\x00\x04a,b+\x10\x04\\\"<;\x24\x06\0a\0,\0\n\x36\x02\x01\x02".to_vec());
    all
}

/// Runs the seeds, all that they begin with, and the corpus.
fn replay(target: &str, body: &dyn Fn(&[u8]), seeds: &[Vec<u8>]) {
    for s in seeds {
        (0..=s.len()).for_each(|n| body(&s[..n]));
    }
    let dir = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("MUNIMENT_WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(&dir).unwrap();
        for (i, s) in seeds.iter().enumerate() {
            std::fs::write(format!("{dir}/seed-{i:02}"), s).unwrap();
        }
    }
    let mut n = 0;
    for file in std::fs::read_dir(&dir).unwrap() {
        body(&std::fs::read(file.unwrap().path()).unwrap());
        n += 1;
    }
    assert!(n >= seeds.len(), "{dir} has {n} files");
}

#[test]
fn what_strangers_send() {
    let dir = Dir::new();
    let server = dir.server(Mode::Prefer, |_| {});
    let body = |data: &[u8]| crate::fuzzing::greeting(data, &server);
    replay("greeting", &body, &greetings(&dir, &server));
}

#[test]
fn names_that_strangers_have() {
    let seeds = certificates(&Dir::new());
    replay("certificate", &crate::fuzzing::certificate, &seeds);
}
