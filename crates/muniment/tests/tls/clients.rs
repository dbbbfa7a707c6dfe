//! Clients with TLS and without.

use super::{LIMIT, answers, client, connect, dial, number, open, options, run};
use muniment_value::{array, doc};
use muniment_wire::{Compressor, Connection};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use testkit::{Authority, Server, ServerOptions};

#[test]
fn each_mode_serves_those_whom_it_should() {
    let authority = Authority::new();
    let tls = client(&authority, None);
    for (mode, plain, secure) in [
        ("allowTLS", true, true),
        ("preferTLS", true, true),
        ("requireTLS", false, true),
    ] {
        let server = Server::start(open(&authority, mode));
        assert_eq!(answers(&server.address(), &tls), secure, "{mode}");
        let hello = Connection::connect(&server.address()).and_then(|mut c| {
            c.set_timeout(Some(LIMIT))?;
            c.hello()
        });
        assert_eq!(hello.is_ok(), plain, "{mode}");
        if !plain {
            server.until("the refusal is logged", || {
                let log = server.log();
                log.contains("only allow SSL connections").then_some(())
            });
        }
    }
    // Without TLS the client gets an alert at once, and the log says what is wrong.
    let server = Server::start(ServerOptions::new());
    let began = Instant::now();
    assert!(!answers(&server.address(), &tls));
    assert!(began.elapsed() < LIMIT / 2);
    server.until("the refusal is logged", || {
        server.log().contains("--tlsMode").then_some(())
    });
}

#[test]
fn everything_passes_as_without() {
    let authority = Authority::new();
    let tls = client(&authority, None);
    for workers in ["0", "2"] {
        let server = Server::start(open(&authority, "preferTLS").arg("--workers").arg(workers));
        let big = "x".repeat(9 << 20);
        for compressor in [None, Some(Compressor::Zlib)] {
            let mut c = connect(&server, &tls);
            let hello = doc! { "hello": 1, "compression": array!["zlib"] };
            c.command("admin", &hello).unwrap();
            c.set_compressor(compressor);
            let one = doc! { "text": big.as_str() };
            let docs = [one.clone(), one.clone(), one];
            let cmd = doc! { "insert": "c" };
            let reply = c.command_with("test", &cmd, &[("documents", &docs)]);
            assert_eq!(number(&reply.unwrap(), &["n"]), 3);
            // A reply of 16 MB and more, and one that is streamed.
            let found = c.find_all("test", &doc! { "find": "c" }).unwrap();
            assert!(
                found
                    .iter()
                    .all(|d| d.as_doc().get_str("text") == Some(&big))
            );
            run(&mut c, "test", "{drop: 'c'}");
            let wait =
                doc! { "hello": 1, "maxAwaitTimeMS": 50, "topologyVersion": topology(&mut c) };
            c.send_exhaust("admin", &wait).unwrap();
            for _ in 0..3 {
                assert!(c.recv_exhaust().unwrap().1);
            }
        }
        // Many small messages that arrive together, and connections that fall silent.
        let mut all: Vec<Connection> = (0..20).map(|_| connect(&server, &tls)).collect();
        for _ in 0..2 {
            for c in &mut all {
                for _ in 0..30 {
                    c.send_command("admin", &doc! { "ping": 1 }, 0, &[])
                        .unwrap();
                }
            }
            for c in &mut all {
                for _ in 0..29 {
                    c.recv_bytes().unwrap();
                }
                c.recv().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1200));
        }
        let status = run(&mut all[0], "admin", "{serverStatus: 1}");
        assert_eq!(number(&status, &["transportSecurity", "1.3"]), 22);
        assert_eq!(number(&status, &["transportSecurity", "failed"]), 0);
    }
}

fn topology(c: &mut Connection) -> muniment_value::DocBuf {
    let hello = c.hello().unwrap();
    hello.as_doc().get_doc("topologyVersion").unwrap().to_buf()
}

#[test]
fn strangers_neither_stay_nor_harm() {
    let authority = Authority::new();
    let tls = client(&authority, None);
    let options = open(&authority, "preferTLS")
        .arg("--setParameter")
        .arg("munimentGreetingTimeoutSeconds=2");
    let server = Server::start(options);
    let mut silent: Vec<TcpStream> = Vec::new();
    let greeting = [22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    for begin in [&[][..], &[22], &greeting, &[0, 1, 0, 0, 0, 0]] {
        let mut s = TcpStream::connect(server.address()).unwrap();
        s.write_all(begin).unwrap();
        s.set_read_timeout(Some(LIMIT)).unwrap();
        silent.push(s);
    }
    // A client that has spoken may be silent for as long as it likes.
    let mut spoke = connect(&server, &tls);
    spoke.hello().unwrap();
    let mut plain = server.connect();
    plain.hello().unwrap();
    for s in &mut silent {
        assert_eq!(s.read(&mut [0; 9]).unwrap_or(0), 0);
    }
    std::thread::sleep(Duration::from_secs(2));
    spoke.hello().unwrap();
    plain.hello().unwrap();
    // What is no TLS after it has begun as such ends the connection, and nothing else.
    for tail in [&[0xFF; 200][..], &[22; 70_000]] {
        let mut s = TcpStream::connect(server.address()).unwrap();
        s.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = s.write_all(&[&greeting[..], tail].concat());
        while matches!(s.read(&mut [0; 99]), Ok(1..)) {}
    }
    let mut s = TcpStream::connect(server.address()).unwrap();
    s.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    s.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("native driver port"), "{answer}");
    assert_eq!(number(&run(&mut plain, "admin", "{ping: 1}"), &["ok"]), 1);
    // After the handshake, too.
    let c = dial(&server.address(), &tls).unwrap();
    let mut raw = c.stream().tls().unwrap().tcp().try_clone().unwrap();
    raw.write_all(&[23, 3, 3, 0, 40]).unwrap();
    raw.write_all(&[7; 40]).unwrap();
    let ended = c.stream().tls().unwrap();
    ended.set_read_timeout(Some(LIMIT));
    assert!(!matches!(ended.read(&mut [0; 9]), Ok(1..)));
    spoke.hello().unwrap();
}

#[test]
fn one_address_has_only_so_many_connections() {
    let options = ServerOptions::new()
        .arg("--setParameter")
        .arg("munimentMaxConnectionsPerAddress=5");
    let server = Server::start(options);
    // The server's own harness may not have closed its connection yet.
    let mut kept = server.until("five are served", || {
        let mut all: Vec<Connection> = (0..5).map(|_| server.connect()).collect();
        all.iter_mut().all(|c| c.hello().is_ok()).then_some(all)
    });
    let e = server.connect().hello().unwrap_err();
    assert!(
        e.message().contains("munimentMaxConnectionsPerAddress"),
        "{e}"
    );
    kept.pop();
    server.until("there is room again", || server.connect().hello().ok());
    let mut c = kept.pop().unwrap();
    run(
        &mut c,
        "admin",
        "{setParameter: 1, munimentMaxConnectionsPerAddress: 0}",
    );
    let mut more: Vec<Connection> = (0..9).map(|_| server.connect()).collect();
    assert!(more.iter_mut().all(|c| c.hello().is_ok()));
}

#[test]
fn the_mode_can_only_become_stricter() {
    let authority = Authority::new();
    let tls = client(&authority, None);
    let server = Server::start(open(&authority, "allowTLS"));
    let mut c = connect(&server, &tls);
    let mut plain = server.connect();
    plain.hello().unwrap();
    let set = |c: &mut Connection, mode: &str| {
        c.command("admin", &doc! { "setParameter": 1, "tlsMode": mode })
    };
    for bad in ["requireTLS", "disabled", "nothing"] {
        assert_eq!(set(&mut c, bad).unwrap_err().code().0, 2, "{bad}");
    }
    set(&mut c, "preferTLS").unwrap();
    assert!(set(&mut c, "allowTLS").is_err());
    assert!(server.connect().hello().is_ok());
    set(&mut c, "requireSSL").unwrap();
    let shown = run(&mut c, "admin", "{getParameter: 1, tlsMode: 1}");
    assert_eq!(shown.as_doc().get_str("tlsMode"), Some("requireTLS"));
    // Those that are connected stay.
    assert!(plain.hello().is_ok());
    assert!(server.connect().hello().is_err());
    // A server that was started without TLS cannot begin with it.
    let other = Server::start(ServerOptions::new());
    assert_eq!(
        set(&mut other.connect(), "allowTLS").unwrap_err().code().0,
        2
    );
}

#[test]
fn options_are_shown_without_passwords() {
    let authority = Authority::new();
    let mut server = Server::prepare(
        options(&authority, "preferTLS")
            .arg("--tlsClusterFile")
            .arg(authority.issue("cluster", "db").to_str().unwrap())
            .arg("--tlsCertificateKeyFilePassword=hush-hush"),
    );
    server.start_again();
    let mut c = server.connect();
    let shown = run(&mut c, "admin", "{getCmdLineOpts: 1}");
    let text = shown.as_doc().to_display();
    assert!(
        text.contains("<password>") && text.contains("certificateKeyFile"),
        "{text}"
    );
    let log = run(&mut c, "admin", "{getLog: 'global'}")
        .as_doc()
        .to_display();
    for text in [text, log, server.log()] {
        assert!(!text.contains("hush-hush"), "{text}");
    }
}

#[test]
fn a_first_command_may_take_longer_than_the_greeting() {
    let options = ServerOptions::new()
        .arg("--setParameter")
        .arg("munimentGreetingTimeoutSeconds=1")
        .arg("--setParameter")
        .arg("enableTestCommands=1");
    let server = Server::start(options);
    let mut c = server.connect();
    run(&mut c, "test", "{insert: 'c', documents: [{}]}");
    let slow = "{find: 'c', filter: {$where: 'sleep(3500) || true'}}";
    let found = server.connect().command("test", &testkit::shell(slow));
    let n = found.unwrap();
    let cursor = n.as_doc().get_doc("cursor").unwrap();
    assert_eq!(cursor.get_array("firstBatch").unwrap().values().count(), 1);
}

/// The threads of a process.
fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .count()
}

#[test]
fn strangers_that_are_refused_take_few_threads() {
    let authority = Authority::new();
    let server = Server::start(open(&authority, "preferTLS"));
    let mut c = server.connect();
    let before = threads(server.pid().unwrap());
    let mut kept = Vec::new();
    let mut most = 0;
    for _ in 0..400 {
        let mut s = TcpStream::connect(server.address()).unwrap();
        // A greeting that offers nothing, and the connection stays open.
        let hello = [&[22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3][..], &[0; 39]].concat();
        s.write_all(&hello).unwrap();
        kept.push(s);
        most = most.max(threads(server.pid().unwrap()));
    }
    assert!(most < before + 60, "{before} threads, then {most}");
    c.hello().unwrap();
    server.until("the handshakes have failed", || {
        let status = run(&mut c, "admin", "{serverStatus: 1}");
        (number(&status, &["transportSecurity", "failed"]) > 300).then_some(())
    });
}
