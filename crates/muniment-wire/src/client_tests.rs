#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::null_server::NullServer;
use std::io::Read;
use std::net::TcpListener;

#[test]
fn talks_to_the_null_responder() {
    let big = doc! { "_id": 1, "text": "x".repeat(2000) };
    let server = NullServer::start("127.0.0.1:0", big.as_doc()).unwrap();
    let mut c = Connection::connect(&server.address()).unwrap();
    c.set_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(
        c.hello()
            .unwrap()
            .as_doc()
            .get("isWritablePrimary")
            .is_some()
    );
    let found = c.find_all("db", &doc! { "find": "c" }).unwrap();
    assert_eq!(found, vec![big.clone()]);
    c.send_only(
        "db",
        &doc! { "insert": "c", "writeConcern": doc! { "w": 0 } },
    )
    .unwrap();
    let docs = vec![doc! { "_id": 1 }, doc! { "_id": 2 }];
    let r = c.command_with("db", &doc! { "insert": "c" }, &[("documents", &docs)]);
    assert_eq!(
        r.unwrap().as_doc().get("n").unwrap().as_i64_exact(),
        Some(2)
    );
    for with in crate::compress::NEGOTIABLE {
        c.set_compressor(Some(with));
        c.command("db", &doc! { "ping": 1 }).unwrap();
    }
    let mut request = Vec::new();
    crate::null_server::encode_request(doc! { "ping": 1 }.as_doc(), "db", &mut request).unwrap();
    let two = [request.as_slice(), &request].concat();
    c.send_bytes(&two).unwrap();
    let mut reply = Vec::new();
    c.recv_into(&mut reply).unwrap();
    assert!(c.recv_bytes().is_ok());
    server.stop();
    assert_eq!(
        c.command("db", &doc! { "ping": 1 }).unwrap_err().code().0,
        9001
    );
}

#[test]
fn an_error_reply_keeps_code_labels_and_extra() {
    let reply = doc! {
        "ok": 0.0,
        "errmsg": "E11000 duplicate key",
        "code": 11000,
        "codeName": "DuplicateKey",
        "keyValue": doc! { "x": 1 },
        "errorLabels": muniment_value::array!["RetryableWriteError", "Unheard"],
    };
    let e = check_ok(reply.as_doc()).unwrap_err();
    assert_eq!((e.code().0, e.message()), (11000, "E11000 duplicate key"));
    assert_eq!(e.labels(), ["RetryableWriteError"]);
    assert_eq!(e.extra(), &doc! { "keyValue": doc! { "x": 1 } });
    assert!(check_ok(doc! { "ok": 1 }.as_doc()).is_ok());
    assert!(check_ok(doc! {}.as_doc()).is_err());
}

#[test]
fn a_silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut c = Connection::connect(&listener.local_addr().unwrap().to_string()).unwrap();
    c.set_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(c.hello().unwrap_err().code().0, 89);
}

#[test]
fn addresses() {
    let table = [
        ("localhost", "localhost:27017"),
        ("localhost:5", "localhost:5"),
        ("mongodb://h", "h:27017"),
        ("mongodb://h:7/db?x=1", "h:7"),
        ("mongodb://h:7/?x=1", "h:7"),
        ("/tmp/s.sock", "/tmp/s.sock"),
        ("mongodb://%2Ftmp%2Fs.sock/db", "/tmp/s.sock"),
        ("[::1]:5", "[::1]:5"),
        ("[::1]", "[::1]:27017"),
    ];
    for (given, expected) in table {
        assert_eq!(parse_address(given).unwrap(), expected, "{given}");
    }
    for bad in [
        "mongodb://a:b@h",
        "mongodb://a,b",
        "mongodb://",
        "mongodb:///db",
    ] {
        assert_eq!(parse_address(bad).unwrap_err().code().0, 9, "{bad}");
    }
}

/// A reader that gives out its bytes in pieces of at most `step`, and counts its calls.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
    calls: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.calls += 1;
        let n = self.step.min(buf.len()).min(self.bytes.len() - self.at);
        buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn messages(sizes: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let each: Vec<Vec<u8>> = sizes
        .iter()
        .map(|n| {
            let mut m = Vec::new();
            let d = doc! { "x": "y".repeat(*n) };
            begin_request(&mut m, 1, 0)
                .body(d.as_doc())
                .finish()
                .unwrap();
            m
        })
        .collect();
    (each.concat(), each)
}

#[test]
fn reader_cuts_any_stream_into_its_messages() {
    let (bytes, each) = messages(&[10, 3000, 0, 100_000, 20, 17_000, 1]);
    for step in [1, 7, 16, 511, 16_384, 1_000_000] {
        let mut r = MessageReader::new(Pieces {
            bytes: bytes.clone(),
            at: 0,
            step,
            calls: 0,
        });
        for m in &each {
            let (h, got) = r.read().unwrap().unwrap();
            assert_eq!(got, m, "step {step}");
            assert_eq!(h.message_length as usize, m.len());
        }
        assert!(r.read().unwrap().is_none());
        r.shrink_idle();
        assert_eq!(r.capacity(), 0);
    }
}

#[test]
fn small_messages_cost_one_read_or_none() {
    let (bytes, each) = messages(&[100; 20]);
    // One message at a time, as a client that waits for replies sends them.
    let one = each[0].len();
    let mut r = MessageReader::new(Pieces {
        bytes: bytes.clone(),
        at: 0,
        step: one,
        calls: 0,
    });
    for _ in &each {
        r.read().unwrap().unwrap();
    }
    assert_eq!(r.get_ref().calls, 20);
    // All messages at once: only the first read is small, since the buffer is that of an idle connection.
    let mut r = MessageReader::new(Pieces {
        bytes,
        at: 0,
        step: 1 << 20,
        calls: 0,
    });
    for _ in &each {
        r.read().unwrap().unwrap();
    }
    assert!(r.get_ref().calls <= 8, "{}", r.get_ref().calls);
}

#[test]
fn a_lying_header_costs_no_memory() {
    let mut bytes = Vec::new();
    Header {
        message_length: 48_000_000,
        ..Header::default()
    }
    .put(&mut bytes);
    bytes.extend_from_slice(&[0; 100]);
    let mut r = MessageReader::new(Pieces {
        bytes: bytes.clone(),
        at: 0,
        step: 1 << 20,
        calls: 0,
    });
    assert!(matches!(r.read(), Err(FrameError::Io(_))));
    assert!(r.capacity() <= 16 * 1024);
    let mut buf = Vec::new();
    assert!(crate::read_message(&mut bytes.as_slice(), &mut buf).is_err());
    assert!(buf.capacity() <= 64 * 1024, "{}", buf.capacity());
}

#[test]
fn impossible_lengths_and_clean_ends() {
    for len in [i32::MIN, -1, 0, 15, 48_000_001, i32::MAX] {
        let mut bytes = Vec::new();
        Header {
            message_length: len,
            ..Header::default()
        }
        .put(&mut bytes);
        let mut r = MessageReader::new(bytes.as_slice());
        assert!(matches!(r.read(), Err(FrameError::Protocol(_))), "{len}");
        let e = crate::read_message(&mut bytes.as_slice(), &mut Vec::new());
        assert!(matches!(e, Err(FrameError::Protocol(_))), "{len}");
    }
    let (bytes, each) = messages(&[5, 6]);
    let (mut stream, mut buf) = (bytes.as_slice(), Vec::new());
    for m in &each {
        assert!(
            crate::read_message(&mut stream, &mut buf)
                .unwrap()
                .is_some()
        );
        assert_eq!(&buf, m);
    }
    assert!(
        crate::read_message(&mut stream, &mut buf)
            .unwrap()
            .is_none()
    );
    for n in 1..each[0].len() {
        let cut = &each[0][..n];
        assert!(
            matches!(MessageReader::new(cut).read(), Err(FrameError::Io(_))),
            "{n}"
        );
        assert!(crate::read_message(&mut &*cut, &mut buf).is_err(), "{n}");
    }
}
