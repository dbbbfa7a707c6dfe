#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::frame::read_message;
use crate::{Connection, Header};
use muniment_value::doc;
use std::io::{Read, Write};

/// Every form, and pools of one thread and of several.
fn forms() -> Vec<Form> {
    let mut all = vec![Form::Threads];
    if cfg!(target_os = "linux") {
        for (workers, polls) in [(1, 0), (3, 0), (2, 50)] {
            let polls = Duration::from_micros(polls);
            all.push(Form::Pool { workers, polls });
        }
    }
    all
}

fn ping() -> Vec<u8> {
    let mut request = Vec::new();
    encode_request(doc! { "ping": 1 }.as_doc(), "admin", &mut request).unwrap();
    request
}

#[test]
fn many_connections_are_answered_at_once() {
    for form in forms() {
        let document = doc! { "_id": 1, "text": "x".repeat(2000) };
        let server = NullServer::start_as(form, "127.0.0.1:0", document.as_doc()).unwrap();
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let mut c = Connection::connect(&server.address()).unwrap();
                    for _ in 0..50 {
                        let found = c.command("db", &doc! { "find": "c" }).unwrap();
                        let batch = found.as_doc().get_doc("cursor").unwrap();
                        let first = batch.get_array("firstBatch").unwrap();
                        assert_eq!(first.get_doc("0").unwrap().to_buf(), document, "{form:?}");
                    }
                });
            }
        });
        server.stop();
    }
}

/// A message may come in any pieces, and many may come at once.
#[test]
fn pieces_and_crowds_of_messages_are_answered_in_order() {
    for form in forms() {
        let server = NullServer::start_as(form, "127.0.0.1:0", doc! {}.as_doc()).unwrap();
        let mut socket = TcpStream::connect(server.address()).unwrap();
        let many: Vec<Vec<u8>> = (0..300).map(|_| ping()).collect();
        let sent: Vec<u8> = many.concat();
        let mut out = socket.try_clone().unwrap();
        thread::scope(|scope| {
            let sent = &sent;
            scope.spawn(move || {
                // Byte by byte through the first messages, then pieces that fit nothing, then the rest.
                let (bytes, rest) = sent.split_at(200);
                bytes.iter().for_each(|b| out.write_all(&[*b]).unwrap());
                let (pieces, rest) = rest.split_at(3000);
                pieces.chunks(37).for_each(|p| out.write_all(p).unwrap());
                out.write_all(rest).unwrap();
            });
            let mut reply = Vec::new();
            for request in &many {
                let header = read_message(&mut socket, &mut reply).unwrap().unwrap();
                let asked = Header::parse(request).unwrap().request_id;
                assert_eq!(header.response_to, asked, "{form:?}");
            }
        });
    }
}

/// A client that sends without reading is not read any more once its socket is full, and gets everything
/// when it reads at last. The others are served meanwhile.
#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    const MANY: usize = 4000;
    for form in forms() {
        let document = doc! { "text": "x".repeat(10_000) };
        let server = NullServer::start_as(form, "127.0.0.1:0", document.as_doc()).unwrap();
        let mut slow = TcpStream::connect(server.address()).unwrap();
        let mut find = Vec::new();
        encode_request(doc! { "find": "c" }.as_doc(), "db", &mut find).unwrap();
        let mut sender = slow.try_clone().unwrap();
        thread::scope(|scope| {
            let find = &find;
            scope.spawn(move || (0..MANY).for_each(|_| sender.write_all(find).unwrap()));
            let mut other = Connection::connect(&server.address()).unwrap();
            for _ in 0..100 {
                other.command("admin", &doc! { "ping": 1 }).unwrap();
            }
            let mut reply = Vec::new();
            for _ in 0..MANY {
                read_message(&mut slow, &mut reply).unwrap().unwrap();
                assert!(reply.len() > 10_000, "{form:?}");
            }
        });
    }
}

#[test]
fn nonsense_closes_a_connection_and_the_end_closes_all() {
    for form in forms() {
        let server = NullServer::start_as(form, "127.0.0.1:0", doc! {}.as_doc()).unwrap();
        let mut nonsense = TcpStream::connect(server.address()).unwrap();
        nonsense.write_all(&[7; 64]).unwrap();
        assert!(ended(&mut nonsense), "{form:?}");
        let mut idle = TcpStream::connect(server.address()).unwrap();
        let mut served = Connection::connect(&server.address()).unwrap();
        served.command("admin", &doc! { "ping": 1 }).unwrap();
        server.stop();
        assert!(ended(&mut idle), "{form:?}");
    }
}

/// True if the server has closed the connection, with or without a reset.
fn ended(socket: &mut TcpStream) -> bool {
    !matches!(socket.read(&mut [0; 16]), Ok(n) if n > 0)
}
